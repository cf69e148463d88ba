"""What the five families differ in, as far as text goes: special tokens, how a pair is laid out, what the model takes.

A family here is data: nothing in this package asks for a family by name, it looks up these fields.
"""

from dataclasses import dataclass, field, replace
from typing import Literal

Role = Literal["pad", "unk", "cls", "sep", "mask", "bos", "eos"]
ROLES: tuple[Role, ...] = ("pad", "unk", "cls", "sep", "mask", "bos", "eos")


@dataclass(frozen=True, slots=True)
class Slot:
    """One place in a laid out input: a text (``A``, ``B``) or a special token, and its segment."""

    part: Literal["A", "B", "cls", "sep"]
    segment: int


def _slots(pattern: str) -> tuple[Slot, ...]:
    """``"cls:0 A:0 sep:0"`` as slots."""
    return tuple(Slot(part, int(segment)) for part, segment in (word.split(":") for word in pattern.split()))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class PairLayout:
    """Where the special tokens go around one text and around two."""

    single: tuple[Slot, ...]
    pair: tuple[Slot, ...]


BERT_LAYOUT = PairLayout(_slots("cls:0 A:0 sep:0"), _slots("cls:0 A:0 sep:0 B:1 sep:1"))
ROBERTA_LAYOUT = PairLayout(_slots("cls:0 A:0 sep:0"), _slots("cls:0 A:0 sep:0 sep:0 B:0 sep:0"))
XLNET_LAYOUT = PairLayout(_slots("A:0 sep:0 cls:2"), _slots("A:0 sep:0 B:1 sep:1 cls:2"))


@dataclass(frozen=True, kw_only=True)
class Family:
    """How a family of models wants its text."""

    name: str
    layout: PairLayout
    tokens: dict[Role, str]
    extra_tokens: tuple[str, ...] = ()
    transformers_class: str
    segments: bool = True  # whether its transformers model takes token_type_ids
    padding_side: Literal["left", "right"] = "right"
    lowercase: bool = False  # when the folder does not say
    unk_id: int | None = None  # of a SentencePiece model, whatever its file says
    honours_keep_accents: bool = True
    options: dict[str, int] = field(default_factory=dict)  # further entries of tokenizer_config.json


_BRACKETS: dict[Role, str] = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}

ALBERT = Family(
    name="albert",
    layout=BERT_LAYOUT,
    tokens={**_BRACKETS, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"},
    transformers_class="AlbertTokenizer",
    lowercase=True,
    unk_id=1,
)
BERT = Family(name="bert", layout=BERT_LAYOUT, tokens=_BRACKETS, transformers_class="BertTokenizer", lowercase=True)
DISTILBERT = replace(BERT, name="distilbert", transformers_class="DistilBertTokenizer", segments=False)
ROBERTA = Family(
    name="roberta",
    layout=ROBERTA_LAYOUT,
    tokens={
        "pad": "<pad>",
        "unk": "<unk>",
        "cls": "<s>",
        "sep": "</s>",
        "mask": "<mask>",
        "bos": "<s>",
        "eos": "</s>",
    },
    transformers_class="RobertaTokenizer",
    segments=False,
)
XLNET = Family(
    name="xlnet",
    layout=XLNET_LAYOUT,
    tokens={
        "pad": "<pad>",
        "unk": "<unk>",
        "cls": "<cls>",
        "sep": "<sep>",
        "mask": "<mask>",
        "bos": "<s>",
        "eos": "</s>",
    },
    extra_tokens=("<eop>", "<eod>"),
    transformers_class="XLNetTokenizer",
    padding_side="left",
    honours_keep_accents=False,
    options={"pad_token_type_id": 3},
)

FAMILIES = {family.name: family for family in (ALBERT, BERT, DISTILBERT, ROBERTA, XLNET)}


def guess_family(vocabulary: dict[str, int], kind: str) -> Family:
    """The family whose tokens a vocabulary has; ``kind`` is the sort of model (``Unigram``, ``WordPiece``, ``BPE``)."""
    if "[CLS]" in vocabulary:
        return ALBERT if kind == "Unigram" else BERT
    if "<cls>" in vocabulary:
        return XLNET
    if "<s>" in vocabulary:
        return ROBERTA
    return BERT
