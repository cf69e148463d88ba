"""What makes a family: the values in which BERT, ALBERT, RoBERTa, DistilBERT and XLNet differ as architectures.

Presets add sizes to these; checkpoints add what their config.json says. No torch here.
"""

import os
from collections.abc import Mapping, Sequence
from typing import Any

from litebert.config import build, parse_overrides, preset_names, read_preset
from litebert.errors import InputError, nearest
from litebert.nn.config import EncoderConfig

_BERT: dict[str, Any] = {
    "share": "none",
    "vocab_size": 30522,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
}

FAMILIES: dict[str, dict[str, Any]] = {
    "albert": {},
    "bert": _BERT,
    "roberta": {
        **_BERT,
        "vocab_size": 50265,
        "position_offset": 2,
        "num_segments": 1,
        "norm_eps": 1e-5,
        "head_activation": "gelu",
        "pad_id": 1,
    },
    "distilbert": {**_BERT, "num_segments": 0, "pooler": "relu", "pooler_always": False},
    "xlnet": {
        "share": "none",
        "vocab_size": 32000,
        "activation": "gelu",
        "positions": "relative",
        "max_positions": 0,
        "num_segments": 0,
        "embedding_norm": False,
        "attention_bias": False,
        "head_transform": False,
        "pooler_always": False,
        "pooled_token": "last",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "pad_id": 5,
    },
}


def family_config(fields: Mapping[str, Any]) -> EncoderConfig:
    """A config from a family's values and what differs from them."""
    family = fields.get("family", "albert")
    if family not in FAMILIES:
        raise InputError(f"there is no family '{family}'{nearest(str(family), FAMILIES)}")
    merged = {**FAMILIES[family], **fields}
    if family != "albert" and "embedding_width" not in fields:  # only ALBERT factorises
        merged["embedding_width"] = fields.get("width", EncoderConfig.width)
    return build(EncoderConfig, merged)


def preset_config(name: str, overrides: Sequence[str] = ()) -> EncoderConfig:
    """The config of a named preset with ``field=value`` words applied."""
    if os.sep in name:
        raise InputError(f"{name} is not a folder with a model")
    if name not in preset_names("models"):
        raise InputError(f"'{name}' is neither a folder nor a preset{nearest(name, preset_names('models'))}")
    fields = read_preset("models", name)
    fields.pop("about", None)
    return family_config({**fields, **parse_overrides(overrides)})
