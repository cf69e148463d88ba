"""Pooling: from token states to one vector per text, and the pooling settings of sentence-transformers folders.

Light to import: torch is imported where states are pooled. S sequences, T tokens, H width.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from litebert.data.files import parse_json
from litebert.errors import InputError, nearest

if TYPE_CHECKING:
    from torch import Tensor

    from litebert.nn.layout import Layout
    from litebert.nn.network import Network

Pooling = Literal["mean", "first", "pooler"]
POOLINGS: tuple[Pooling, ...] = get_args(Pooling)
MODULES, POOLING_FILE, LENGTH_FILE = "modules.json", "1_Pooling/config.json", "sentence_bert_config.json"
SENTENCE_FILES = (MODULES, POOLING_FILE, LENGTH_FILE)
_MODES: Mapping[str, Pooling] = {"mean": "mean", "mean_tokens": "mean", "cls": "first", "cls_token": "first"}


@dataclass(frozen=True, kw_only=True)
class SentenceSettings:
    """How a model turns texts into vectors; None where a sentence-transformers folder does not define it."""

    pooling: Pooling | None = None
    max_length: int | None = None
    normalize: bool = False
    lower_case: bool = False

    def files(self, width: int) -> dict[str, str]:
        """The files of a sentence-transformers folder with these settings."""
        names = [("", "Transformer"), ("1_Pooling", "Pooling"), *([("2_Normalize", "Normalize")] * self.normalize)]
        modules = [
            {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for index, (path, kind) in enumerate(names)
        ]
        found: dict[str, Any] = {}
        if self.pooling is not None:
            found[MODULES] = modules
            found[POOLING_FILE] = {
                "word_embedding_dimension": width,
                "pooling_mode_cls_token": self.pooling == "first",
                "pooling_mode_mean_tokens": self.pooling == "mean",
                "pooling_mode_max_tokens": False,
            }
        if self.max_length is not None or self.lower_case:
            found[LENGTH_FILE] = {"max_seq_length": self.max_length, "do_lower_case": self.lower_case}
        return {name: json.dumps(content, indent=2) + "\n" for name, content in found.items()}


def read_sentence_settings(folder: Path) -> tuple[SentenceSettings | None, list[str]]:
    """The settings in a folder, if any, and warnings about those that litebert does not support."""
    pooled, lengths = _read(folder / POOLING_FILE), _read(folder / LENGTH_FILE)
    if pooled is None and lengths is None:
        return None, []
    modules = _read(folder / MODULES) or []
    kinds = [str(module.get("type", "")).rpartition(".")[2] for module in modules if isinstance(module, dict)]
    notes = [
        f"{folder.name} has a {kind} module for text vectors, which litebert ignores"
        for kind in kinds
        if kind not in ("Transformer", "Pooling", "Normalize", "")
    ]
    pooling: Pooling | None = None
    if pooled is not None:
        modes = [name.removeprefix("pooling_mode_") for name, on in pooled.items() if on is True]
        modes = [name for name in modes if name in _MODES or name.endswith(("tokens", "token"))]
        modes = [str(pooled["pooling_mode"])] if "pooling_mode" in pooled else modes
        if len(modes) == 1 and modes[0] in _MODES:
            pooling = _MODES[modes[0]]
        else:
            notes.append(
                f"{folder.name} pools by {' and '.join(modes) or 'an unknown method'}, not supported here: "
                "the mean is used unless you choose another pooling"
            )
    length = (lengths or {}).get("max_seq_length")
    return SentenceSettings(
        pooling=pooling,
        max_length=length if isinstance(length, int) else None,
        normalize="Normalize" in kinds,
        lower_case=bool((lengths or {}).get("do_lower_case")),
    ), notes


def pool(network: "Network", states: "Tensor", layout: "Layout", pooling: Pooling) -> "Tensor":
    """(T, H) states to (S, H) vectors in fp32."""
    import torch

    if pooling == "mean":
        total = torch.zeros(layout.num_sequences, states.shape[1], device=states.device)
        total.index_add_(0, layout.sequence_of_token(), states.float())
        return total / layout.lengths[:, None].clamp_min(1)  # filling may have none
    if pooling == "first":  # XLNet's [CLS] token is the last
        return states[layout.first if network.config.encoder.pooled_token == "first" else layout.last].float()
    return network.pooled(states, layout).float()


def pooling_named(name: str, has_pooler: bool) -> Pooling:
    """The pooling of this name; an error where there is none, or where the model has no pooler for it."""
    if name == "pooler" and not has_pooler:
        raise InputError("pooling is 'pooler' but this model has no pooler; use mean or first")
    for known in POOLINGS:
        if name == known:
            return known
    raise InputError(f"there is no pooling '{name}'{nearest(str(name), POOLINGS)}")


def _read(path: Path) -> Any:
    try:
        return parse_json(path.read_text(encoding="utf-8"), str(path))
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 ({error}); copy the model again") from None
