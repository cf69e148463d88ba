"""What a task is made of: items with a text and a target, the splits they come in, and the predictions about them.

Readers make these, encoders and scorers take them, and none of them knows from which file or for which model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["classify", "multilabel", "regress", "choice", "span"]
Target = int | float | tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Example:
    """One text, or a pair; the target is a label's index, several of them (multilabel) or a number (regress)."""

    key: str
    first: str
    second: str | None = None
    target: Target | None = None


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A question about a passage with options to choose from; the question may hold a ``_`` for them to fill."""

    key: str
    passage: str
    question: str
    options: tuple[str, ...]
    target: int | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A stretch of a passage, and the character it starts at."""

    text: str
    start: int


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question whose answer is a stretch of its passage, or is not there at all."""

    key: str
    title: str
    passage: str
    question: str
    answers: tuple[Answer, ...] = ()
    impossible: bool = False


Item = Example | Choice | Question


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
    text: tuple[str, ...] = ()  # columns of a person's own file as --text names them: one part or two, joined by +
    label: str = ""  # and its label column (several: parted by commas) as --label does


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """What a model says of one item; for a span its text, where an empty one means that there is no answer."""

    key: str
    label: int | float | tuple[int, ...] | str
    probabilities: tuple[float, ...] = ()
