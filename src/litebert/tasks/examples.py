"""What a task is made of: items with a text and a target, the splits they come in, the predictions about them, and
what a model folder remembers of its task.

Readers make these, kinds and scorers take them, and none of them knows from which file or for which model. No torch.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Literal

from litebert.errors import InputError

Kind = Literal["classify", "multilabel", "regress", "choice", "span", "embed"]
Target = int | float | tuple[int, ...]
TASK_FILE = "task.json"  # in a model folder: its ``TaskSpec``
LETTERS = "ABCDEFGH"  # of options


@dataclass(frozen=True, kw_only=True)
class Example:
    """One text, or a pair; the target is a label's index, several of them (multilabel) or a number (regress, embed)."""

    key: str
    first: str
    second: str | None = None
    target: Target | None = None
    negatives: tuple[str, ...] = ()  # of a pair that belongs together (embed): texts that do not belong to the first

    @property
    def texts(self) -> tuple[str, ...]:
        """Everything that is read of it, its target left out."""
        return self.first, self.second or ""

    @property
    def readable(self) -> str:
        """The item for a person to read."""
        return self.first if self.second is None else f"{self.first}\n{self.second}"

    @property
    def has_target(self) -> bool:
        """Whether its target is known."""
        return self.target is not None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A question about a passage with options to choose from; the question may hold a ``_`` for them to fill."""

    key: str
    passage: str
    question: str
    options: tuple[str, ...]
    target: int | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        return self.passage, self.question, *self.options

    @property
    def readable(self) -> str:
        options = "  ".join(f"({letter}) {text}" for letter, text in zip(LETTERS, self.options, strict=False))
        return "\n".join(text for text in (self.question, options, self.passage) if text)

    @property
    def has_target(self) -> bool:
        return self.target is not None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A stretch of a passage, and the character it starts at, or -1."""

    text: str
    start: int

    @classmethod
    def located(cls, passage: str, text: str, start: int) -> "Answer":
        """The answer where its text really is: at ``start``, or at the nearest place that has it, or nowhere (-1)."""
        if not text or start < 0 or passage[start : start + len(text)] != text:
            places = [match.start() for match in re.finditer(f"(?={re.escape(text)})", passage)] if text else []
            start = min(places, key=lambda place: abs(place - start), default=-1)
        return cls(text=text, start=start)


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question whose answer is a stretch of its passage, or is not there at all."""

    key: str
    title: str
    passage: str
    question: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False

    @property
    def texts(self) -> tuple[str, ...]:
        return self.passage, self.question

    @property
    def readable(self) -> str:
        return f"{self.question}\n{self.passage}"

    @property
    def has_target(self) -> bool:
        return bool(self.answers) or self.impossible


Item = Example | Choice | Question


def text_key(item: Item) -> tuple[str, ...]:
    """The text of an item without differences of case and space: equal for duplicates."""
    return tuple(" ".join(text.casefold().split()) for text in item.texts)


@dataclass(frozen=True, kw_only=True)
class TaskData:
    """A task as read: its splits, labels and metrics, of which the first is the one to optimise."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    metrics: tuple[str, ...]
    train: tuple[Item, ...]
    dev: Mapping[str, tuple[Item, ...]]
    test: Mapping[str, tuple[Item, ...]] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    has_null: bool = False  # a span task where some questions have no answer, as in SQuAD 2.0
    text: tuple[str, ...] = ()  # columns of a person's own file, as ``text`` names them: one part or two, joined by +
    label: str = ""  # and its label column, as ``label`` names it; several are separated by commas


@dataclass(frozen=True, kw_only=True)
class ItemPrediction:
    """What a model predicts of one item, by indices; for a span its text, where an empty one means no answer."""

    key: str
    label: int | float | tuple[int, ...] | str
    probabilities: tuple[float, ...] = ()
    start: int | None = None  # of a span, in characters of the passage
    end: int | None = None
    cut: bool = False  # whether its text was longer than the model reads
    windows: int = 1  # inputs that its text was read in
    rank: int | None = None  # of the second text of a pair, from 1, among those of all pairs, by nearness to the first


@dataclass(frozen=True, kw_only=True, repr=False)
class Prediction:
    """What a model predicts of a text, as people read it: a label's name, names, a number, an option, an answer."""

    label: str | float | tuple[str, ...]
    probability: float | None = None  # of the label; of a span, of the answer or of there being none
    probabilities: Mapping[str, float] = field(default_factory=dict)
    start: int | None = None  # of a span, in characters of its passage
    end: int | None = None

    def __repr__(self) -> str:
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        shown = [f"{name}={value!r}" for name, value in given.items() if name == "label" or value not in (None, {})]
        return f"Prediction({', '.join(shown)})"


@dataclass(frozen=True, kw_only=True)
class EncodingSettings:
    """How long inputs may be, and how windows over a long passage lie."""

    length: int = 128
    stride: int = 128  # tokens from the start of one window to that of the next
    windows: bool = False  # read a text or pair that is longer in several inputs, instead of cutting it
    question: int = 64  # the most tokens of a question that is asked about windows

    def __post_init__(self) -> None:
        if self.length < 8:
            raise InputError(f"length is {self.length} but inputs must have room for 8 tokens or more")
        if self.stride < 1 or self.question < 1:
            raise InputError(f"stride ({self.stride}) and question ({self.question}) must be 1 token or more")


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """What a model folder remembers of its task (``task.json``), beside what its config.json says."""

    task: str = ""
    kind: Kind = "classify"
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    length: int = 128
    stride: int = 128
    has_null: bool = False
    null_threshold: float = 0.0  # odds of no answer above which there is none
    score_range: tuple[float, float] = (0.0, 1.0)  # of similarities: the scores that stand for cosines of 0 and 1
    text: tuple[str, ...] = ()  # columns of the user's own files
    label: str = ""
    pairs: bool = False  # whether an input is two texts
    seen: tuple[str, ...] = ()  # fingerprints of some training rows, to warn when they are scored

    def encoding(self, *, windows: bool = False) -> EncodingSettings:
        """How inputs were cut in training, or with ``windows`` divided instead."""
        return EncodingSettings(length=self.length, stride=self.stride, windows=windows)

    def text_of_file(self) -> str:
        """The file as it is written."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"
