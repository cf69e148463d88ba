"""Long models out of trained ones: positions stretched, attention sparse, then a pretraining run on long documents.

Tiled positions repeat the old ones, so that near tokens stand to each other as they did, but where one tile meets the
next. Interpolated ones keep the order of all positions and change how near tokens stand to each other. With a window no
longer than a tile nothing but a seam is new to a tiled model, which is why that is the default (docs/long.md).
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network
from litebert.pretraining.initial import POSITIONS, Stretch, stretched
from litebert.pretraining.run import PretrainSettings, settings_from
from litebert.train.settings import Bound

LONGEST = 8192
STEP_TOKENS = {"cpu": 8192, "cuda": 65_536}  # of a step in training; at least one text


def long_config(encoder: EncoderConfig, to: int, attention: str, name: str) -> EncoderConfig:
    """The shape of a model with ``to`` positions and this attention; ``name`` is the model's, for messages."""
    if encoder.positions != "absolute":
        raise InputError(
            f"{name} has relative positions, so it already reads texts of any length; give finetune a max_length"
        )
    if not encoder.max_positions < to <= LONGEST:
        raise InputError(
            f"to is {to} but must be more than the {encoder.max_positions} positions of {name} and at most {LONGEST:,}",
            parameter="to",
        )
    longer = replace(encoder, max_positions=to, attention=attention)
    # Attention weights are dropped in tables of all pairs of tokens, whose size is the square of the length.
    return replace(longer, attention_dropout=0.0) if longer.is_sparse else longer


@torch.no_grad()
def lengthened(network: Network, to: int, attention: str, positions: Stretch, name: str) -> Network:
    """A network that reads longer texts, with all weights of this one."""
    encoder = long_config(network.config.encoder, to, attention, name)
    weights = network.state_dict()
    weights[POSITIONS] = stretched(weights[POSITIONS], to + encoder.position_offset, positions, encoder.position_offset)
    with torch.device("meta"):
        longer = Network(replace(network.config, encoder=encoder))
    longer.load_state_dict({key: tensor.clone() for key, tensor in weights.items()}, assign=True)
    return longer.eval()


def lengthen_settings(
    model: str,
    network: Network,
    to: int,
    attention: str,
    positions: Stretch,
    corpus: Sequence[Path],
    out: Path,
    *,
    words: Sequence[str] = (),
    bound: Bound | None = None,
    device: str = "auto",
    precision: str | None = None,
    save_every: str = "5m",
) -> PretrainSettings:
    """The pretraining run that trains a lengthened model: on documents that the old one could not read whole."""
    config, heads = network.config.encoder, network.config.heads.names
    encoder = long_config(config, to, attention, model)
    if "masked_lm" not in heads:
        raise InputError(f"{model} has no masked-LM head to train; lengthen the pretrained model, then fine-tune that")
    asked = {word.partition("=")[0] for word in words}
    shape = sorted(asked & set(EncoderConfig.__dataclass_fields__))
    if shape:
        raise InputError(f"{shape[0]} is a field of the model, which is trained already; only the recipe can change")
    usual = {
        "order": "sop" if "order" in heads else "none",
        "batches.lengths": to,
        "batches.min_document": config.max_positions,
    }
    usual = {name: value for name, value in usual.items() if name not in asked}
    settings = settings_from(
        model,
        [*(f"{name}={value}" for name, value in usual.items()), *words],
        corpus,
        out,
        bound=bound,
        recipe="lengthen",
        device=device,
        precision=precision,
        save_every=save_every,
        encoder=encoder,
    )
    if "batches.tokens" not in asked:
        tokens = max(to, STEP_TOKENS[settings.device] // to * to)
        batches = replace(settings.recipe.batches, tokens=((0.0, tokens),))
        settings = replace(settings, recipe=replace(settings.recipe, batches=batches))
    return replace(settings, source=model, positions=positions)
