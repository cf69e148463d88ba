"""The shape of an encoder as plain data, and its plan: which attention and feed-forward block runs at each depth.

A family gives the values, a preset adds sizes. No torch here, so that presets can be listed and shown in an instant.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from litebert.config import build, parse_overrides, preset_names, read_preset
from litebert.errors import InputError, nearest
from litebert.families import FAMILIES
from litebert.families.family import UNBOUNDED
from litebert.nn.attention_pattern import Pattern, patterns_of

Share = Literal["all", "attention", "ffn", "none"]
Activation = Literal["gelu_tanh", "gelu", "relu", "silu"]
Plan = tuple[tuple[int, int], ...]


LARGEST = {"num_layers": 4096, "num_segments": 4096}  # beyond these a mistake, not a model
MOST = 1 << 25


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything that decides what an encoder computes; a family (BERT, ALBERT, ...) is a value of this."""

    family: str = "albert"  # a name in ``litebert.families``
    vocab_size: int = 30000
    width: int = 768
    embedding_width: int = 128
    num_layers: int = 12
    num_heads: int = 12
    feed_forward_width: int = 3072

    share: Share = "all"
    num_groups: int = 1
    layers_per_group: int = 1
    custom_plan: Plan = ()  # set by layer dropping; otherwise the plan follows from the three fields above

    attention: str = "full"  # what tokens see, for all layers or in turn (``attention_pattern.py``)
    positions: Literal["absolute", "relative"] = "absolute"
    max_positions: int = 512
    position_offset: int = 0  # RoBERTa leaves the first rows of its table unused
    num_segments: int = 2
    embedding_norm: bool = True
    embedding_projection: bool | None = None  # None: where the widths differ, as in the paper
    attention_bias: bool = True

    activation: Activation = "gelu_tanh"
    head_activation: Activation | None = None  # None: the same as the encoder's
    head_transform: bool = True  # the dense layer and norm before the vocabulary
    tied: bool = True  # the masked-LM head uses the token table
    pooler: Literal["tanh"] | Activation = "tanh"
    pooler_always: bool = True  # False: the pooler belongs to the classifiers, the bare encoder has none
    pooled_token: Literal["first", "last"] = "first"

    norm_eps: float = 1e-12
    initial_std: float = 0.02
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    classifier_dropout: float = 0.1

    pad_id: int = 0

    def __post_init__(self) -> None:
        check_family(self.family)
        sizes = ("vocab_size", "width", "embedding_width", "num_layers", "num_heads", "feed_forward_width")
        least = {**dict.fromkeys(sizes, 1), "max_positions": int(self.positions == "absolute"), "num_segments": 0}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise InputError(f"{name} is {getattr(self, name)} but must be {bound} or more")
            most = LARGEST.get(name, MOST)
            if getattr(self, name) > most:
                raise InputError(f"{name} is {getattr(self, name):,} but must be {most:,} or less")
        if self.width % self.num_heads:
            raise InputError(
                f"width {self.width} is not a multiple of num_heads {self.num_heads}; choose a number of heads that "
                "divides it"
            )
        if self.embedding_projection is False and self.embedding_width != self.width:
            raise InputError(
                f"embedding_width {self.embedding_width} differs from width {self.width}, so embedding_projection "
                "cannot be false; leave it out, or make the widths the same"
            )
        if self.layers_per_group < 1 or self.num_layers % self.layers_per_group:
            raise InputError(
                f"num_layers {self.num_layers} is not a multiple of layers_per_group {self.layers_per_group}; choose "
                "a size of group that divides it"
            )
        if not 1 <= self.num_groups <= self.num_layers // self.layers_per_group:
            raise InputError(
                f"num_groups is {self.num_groups} but must be from 1 to {self.num_layers // self.layers_per_group}"
            )
        if self.custom_plan and len(self.custom_plan) != self.num_layers:
            raise InputError(f"custom_plan has {len(self.custom_plan)} entries but num_layers is {self.num_layers}")
        if self.is_sparse and self.positions == "relative":
            raise InputError(f"attention is '{self.attention}' but a model with relative positions only has full")
        for name in ("dropout", "attention_dropout", "activation_dropout", "classifier_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)} but must be at least 0 and less than 1")

    @property
    def head_width(self) -> int:
        return self.width // self.num_heads

    @property
    def projects_embeddings(self) -> bool:
        """Whether a linear map leads from the embedding width to the width."""
        if self.embedding_projection is None:
            return self.embedding_width != self.width
        return self.embedding_projection

    def input_limit(self, asked: int | None = None) -> int:
        """The most tokens of an input, at most ``asked``: those with a position, or 512 where there is no limit."""
        if self.positions == "relative":
            return asked or UNBOUNDED
        return min(asked or self.max_positions, self.max_positions)

    @property
    def patterns(self) -> tuple[Pattern, ...]:
        """For each depth, what a token may look at."""
        return patterns_of(self.attention, self.num_layers)

    @property
    def is_sparse(self) -> bool:
        """Whether tokens of some layer do not see all of their sequence."""
        return any(pattern.kind != "full" for pattern in self.patterns)

    @property
    def plan(self) -> Plan:
        """For each depth, the index of the attention block and of the feed-forward block that run there."""
        if self.custom_plan:
            return self.custom_plan
        return tuple(
            (
                self._shared_block(depth) if self.share in ("all", "attention") else depth,
                self._shared_block(depth) if self.share in ("all", "ffn") else depth,
            )
            for depth in range(self.num_layers)
        )

    def _shared_block(self, depth: int) -> int:
        """The block of a depth when blocks are shared within groups of ``layers_per_group`` layers, each repeated."""
        repeats = self.num_layers // self.layers_per_group
        repeat, inner = divmod(depth, self.layers_per_group)
        group = int(repeat / (repeats / self.num_groups))  # floor(repeat * groups / repeats) as Hugging Face rounds it
        return group * self.layers_per_group + inner

    @property
    def num_attention_blocks(self) -> int:
        return max(attention for attention, _ in self.plan) + 1

    @property
    def num_feed_forward_blocks(self) -> int:
        return max(feed_forward for _, feed_forward in self.plan) + 1


def check_family(name: str) -> None:
    """Refuse a name that is not a family's."""
    if name not in FAMILIES:
        raise InputError(f"there is no family '{name}'{nearest(str(name), FAMILIES)}")


def family_config(fields: Mapping[str, Any]) -> EncoderConfig:
    """A config from a family's values and what differs from them."""
    family = fields.get("family", EncoderConfig.family)
    check_family(family)
    merged = {**FAMILIES[family].encoder, **fields}
    merged.setdefault("embedding_width", fields.get("width", EncoderConfig.width))
    return build(EncoderConfig, merged)


def preset_config(name: str, overrides: Sequence[str] = ()) -> EncoderConfig:
    """The config of a named preset with ``field=value`` words applied."""
    if os.sep in name:
        raise InputError(f"'{name}' is not a folder with a model; name one that holds config.json, or a shipped model")
    if name not in preset_names("models"):
        raise InputError(f"'{name}' is neither a folder nor a preset{nearest(name, preset_names('models'))}")
    fields = read_preset("models", name)
    fields.pop("about", None)
    return family_config({**fields, **parse_overrides(overrides)})
