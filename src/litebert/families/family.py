"""What a family consists of, and the pieces that several share.

A family says four things: how its encoder differs from ALBERT's (fields of ``EncoderConfig``), how it wants its text
(special tokens, where they go around one text or two), how ``transformers`` writes its config.json, and under which
names ``transformers`` keeps its tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

Role = Literal["pad", "unk", "cls", "sep", "mask", "bos", "eos"]
UNBOUNDED = 512  # default maximum of tokens for models without one (XLNet); a caller can name more
ROLES: tuple[Role, ...] = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")

# How a tensor of ours is kept by theirs: as it is; queries, keys and values apart; XLNet's (H, A, D) tensors for
# einsum, going out of the width, into it, or three of them; one vector as (1, 1, H).
Form = Literal["same", "stacked", "heads_out", "heads_in", "heads_stacked", "vector"]


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in a laid out input: a text (``A``, ``B``) or a special token, and its segment."""

    part: Literal["A", "B", "cls", "sep"]
    segment: int


@dataclass(frozen=True, slots=True)
class PairLayout:
    """Where the special tokens go around one text and around two."""

    single: tuple[Slot, ...]
    pair: tuple[Slot, ...]

    @classmethod
    def of(cls, single: str, pair: str) -> "PairLayout":
        """From words such as ``"cls:0 A:0 sep:0"``."""

        def slots(words: str) -> tuple[Slot, ...]:
            return tuple(Slot(part, int(segment)) for part, segment in (word.split(":") for word in words.split()))  # type: ignore[arg-type]

        return cls(slots(single), slots(pair))


@dataclass(frozen=True, slots=True)
class ConfigField:
    """A field of their config.json, ours for the same thing, and the default of their class (files leave it out)."""

    theirs: str
    ours: str
    default: Any


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of ours (``{i}`` stands for a block) and where the family keeps it."""

    ours: str
    theirs: tuple[str, ...]
    form: Form = "same"
    older: tuple[str, ...] = ()  # other names under which it is found in some files, read only
    classifying: tuple[str, ...] = ()  # where it is kept instead when there is a classification head


def _unchanged(fields: dict[str, Any]) -> dict[str, Any]:
    return fields


@dataclass(frozen=True, kw_only=True)
class Family:
    """Everything in which a family differs from the others."""

    name: str  # also ``model_type`` in config.json
    encoder: Mapping[str, Any]  # values of EncoderConfig

    # Text
    layout: PairLayout
    tokens: Mapping[Role, str]
    extra_tokens: tuple[str, ...] = ()
    segments: bool = True  # whether its transformers model takes token_type_ids
    padding_side: Literal["left", "right"] = "right"
    lowercase: bool = False  # when the folder does not say
    unk_id: int | None = None  # of a SentencePiece model, whatever its file says
    honours_keep_accents: bool = True
    tokenizer_options: Mapping[str, int] = field(default_factory=dict)  # further entries of tokenizer_config.json

    # config.json
    class_prefix: str  # of the names of its transformers classes
    classes: tuple[tuple[str, tuple[str, ...]], ...]  # the rest of such a name, and the heads that the class has
    fields: tuple[ConfigField, ...]
    constants: Mapping[str, Any] = field(default_factory=dict)  # written into every config.json
    required: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # fields that must have one of these values
    after_reading: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged  # corrects our fields
    before_writing: Callable[[dict[str, Any]], dict[str, Any]] = _unchanged  # and turns that back
    shares_layers: bool = False  # whether its class repeats groups of layers
    embedding_projection: Literal["always", "never", "where widths differ"] = "never"

    # Tensors
    body: str  # the prefix that its bare model leaves out of every name
    own_rows: tuple[TensorRow, ...]
    copies: tuple[str, ...] = ()  # tensors that repeat another one

    @cached_property
    def rows(self) -> tuple[TensorRow, ...]:
        """All tensors: the family's own rows, and those of the common ones that it does not replace."""
        known = {row.ours for row in self.own_rows}
        return (*self.own_rows, *(row for row in COMMON_ROWS if row.ours not in known))


def linear_rows(ours: str, theirs: str, classifying: str = "") -> list[TensorRow]:
    """Weight and bias of a linear layer or a norm."""
    return [
        TensorRow(
            f"{ours}.{part}", (f"{theirs}.{part}",), classifying=(f"{classifying}.{part}",) if classifying else ()
        )
        for part in ("weight", "bias")
    ]


def qkv_rows(theirs: Sequence[str]) -> list[TensorRow]:
    """One product gives queries, keys and values; they keep three."""
    return [
        TensorRow(f"encoder.attention.{{i}}.qkv.{part}", tuple(f"{name}.{part}" for name in theirs), "stacked")
        for part in ("weight", "bias")
    ]


def embedding_rows(body: str, segments: bool = True) -> list[TensorRow]:
    """The tables and the norm under the names that all but XLNet use."""
    at = f"{body}.embeddings"
    segment = TensorRow("encoder.embeddings.segment.weight", (f"{at}.token_type_embeddings.weight",))
    return [
        TensorRow("encoder.embeddings.token.weight", (f"{at}.word_embeddings.weight",)),
        TensorRow("encoder.embeddings.position.weight", (f"{at}.position_embeddings.weight",)),
        *([segment] if segments else []),
        *linear_rows("encoder.embeddings.norm", f"{at}.LayerNorm"),
    ]


def bert_layer_rows(body: str) -> list[TensorRow]:
    """A layer as BERT and those that copied its code name it."""
    at = f"{body}.encoder.layer.{{i}}"
    return [
        *qkv_rows([f"{at}.attention.self.{name}" for name in ("query", "key", "value")]),
        *linear_rows("encoder.attention.{i}.out", f"{at}.attention.output.dense"),
        *linear_rows("encoder.attention.{i}.norm", f"{at}.attention.output.LayerNorm"),
        *linear_rows("encoder.feed_forward.{i}.up", f"{at}.intermediate.dense"),
        *linear_rows("encoder.feed_forward.{i}.down", f"{at}.output.dense"),
        *linear_rows("encoder.feed_forward.{i}.norm", f"{at}.output.LayerNorm"),
    ]


# What the families have in common, or what Hugging Face has no name for (an order head where the family has none, the
# answerability of a span).
COMMON_ROWS = (
    *linear_rows("heads.classify.linear", "classifier"),
    *linear_rows("heads.choice.linear", "classifier"),
    *linear_rows("heads.span.linear", "qa_outputs"),
    *linear_rows("heads.span.answerable", "answerable"),
    *linear_rows("heads.order.linear", "order_classifier"),
    *linear_rows("heads.replaced.dense", "discriminator_predictions.dense"),
    *linear_rows("heads.replaced.score", "discriminator_predictions.dense_prediction"),
)

BERT_LAYOUT = PairLayout.of("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 B:1 sep:1")
BERT_TOKENS: dict[Role, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
BERT_ENCODER = {
    "share": "none",
    "vocab_size": 30522,
    "activation": "gelu",
    "dropout": 0.1,
    "attention_dropout": 0.1,
}
TASK_CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("ForSequenceClassification", ("classify",)),
    ("ForMultipleChoice", ("choice",)),
    ("ForQuestionAnswering", ("span",)),
)
ABSOLUTE_ENCODER: Mapping[str, tuple[Any, ...]] = {
    "position_embedding_type": (None, "absolute"),
    "is_decoder": (None, False),
}


def bert_fields(**defaults: Any) -> tuple[ConfigField, ...]:
    """The fields of ``BertConfig``, with the defaults that another class changes."""
    fields = (
        ConfigField("vocab_size", "vocab_size", 30522),
        ConfigField("hidden_size", "width", 768),
        ConfigField("num_hidden_layers", "num_layers", 12),
        ConfigField("num_attention_heads", "num_heads", 12),
        ConfigField("intermediate_size", "feed_forward_width", 3072),
        ConfigField("hidden_act", "activation", "gelu"),
        ConfigField("hidden_dropout_prob", "dropout", 0.1),
        ConfigField("attention_probs_dropout_prob", "attention_dropout", 0.1),
        ConfigField("max_position_embeddings", "max_positions", 512),
        ConfigField("type_vocab_size", "num_segments", 2),
        ConfigField("initializer_range", "initial_std", 0.02),
        ConfigField("layer_norm_eps", "norm_eps", 1e-12),
        ConfigField("pad_token_id", "pad_id", 0),
        ConfigField("tie_word_embeddings", "tied", True),
        ConfigField("classifier_dropout", "classifier_dropout", None),
    )
    return tuple(ConfigField(each.theirs, each.ours, defaults.get(each.theirs, each.default)) for each in fields)
