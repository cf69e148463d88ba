"""What a column of labels means: classes, sets of them or numbers; and what cannot be a label and must be said."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from litebert.data.tables import Cell, Table
from litebert.errors import InputError, nearest
from litebert.tasks.examples import Kind

SEPARATORS = (";", "|", ",")
SCORES = ("score", "similarity", "rating", "stars")  # columns whose whole numbers are measures when written 3.0
MOST_NUMBERED = 30  # more different whole numbers than this are taken as a measure, not as classes
ID_SHARE = 0.5  # a label that is new in more than half of the rows is no class


@dataclass(frozen=True, kw_only=True)
class LabelGuess:
    """What the labels are and, where several share a cell, what parts them."""

    kind: Kind
    separator: str = ""


def is_missing(cell: Cell) -> bool:
    """Whether a cell holds no label: empty, null or not a number."""
    if cell is None or (isinstance(cell, float) and math.isnan(cell)):
        return True
    return isinstance(cell, str) and cell.strip().casefold() in ("", "nan")


def guess_kind(table: Table, columns: Sequence[str]) -> LabelGuess:
    """What these label columns hold."""
    if len(columns) > 1:
        return LabelGuess(kind="multilabel")
    name = columns[0]
    cells = [cell for cell in table.column(name) if not is_missing(cell)]
    if any(isinstance(cell, list) for cell in cells):
        return LabelGuess(kind="multilabel")
    numbers = [number_in(cell) for cell in cells]
    if cells and all(number is not None for number in numbers):
        values = [number for number in numbers if number is not None]
        if not all(value.is_integer() for value in values):
            return LabelGuess(kind="regress")
        measured = any("." in str(cell) for cell in cells) and name.casefold() in SCORES
        many = len(set(values)) > MOST_NUMBERED and len(set(values)) <= len(values) * ID_SHARE
        return LabelGuess(kind="regress" if measured or many else "classify")
    separator = _separator(name, [str(cell) for cell in cells])
    return LabelGuess(kind="multilabel", separator=separator) if separator else LabelGuess(kind="classify")


def number_in(cell: Cell) -> float | None:
    """The number a cell holds, written or stored."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, int | float):
        return float(cell)
    try:
        return float(cell) if isinstance(cell, str) and "_" not in cell else None
    except ValueError:
        return None


def label_text(cell: Cell) -> str:
    """A label's name: whole numbers without a point, everything else as written."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def cell_labels(cell: Cell, separator: str) -> list[str]:
    """The labels in one cell: a list, or words parted by the separator."""
    if is_missing(cell):
        return []
    if isinstance(cell, list):
        return [label_text(one) for one in cell]
    words = str(cell).split(separator) if separator else [label_text(cell)]
    return [word.strip() for word in words if word.strip()]


def class_names(names: Sequence[str], table: Table, column: str) -> tuple[str, ...]:
    """The classes in a stable order, numbers by value; an error where they cannot be classes."""
    different = set(names)
    if len(different) == 1:
        raise InputError(
            f"every row of {table.path} has the {column} '{names[0]}': there is nothing to learn; choose another "
            "column with --label, or add rows of other classes"
        )
    if len(names) > 20 and len(different) > len(names) * ID_SHARE:
        raise InputError(
            f"the column '{column}' of {table.path} has {len(different):,} different values in {len(names):,} rows, "
            "which looks like an id, not like a class; choose another column with --label"
        )
    try:
        return tuple(sorted(different, key=int))
    except ValueError:
        return tuple(sorted(different))


def class_index(name: str, known: Mapping[str, int], place: str) -> int:
    """The index of a class that must be known."""
    if name not in known:
        raise InputError(
            f"{place}: the label '{name}' is not among those the model learns{nearest(name, known)} "
            "(correct the row, or add such rows to the training data)"
        )
    return known[name]


def target_number(cell: Cell, place: str) -> float:
    """The number to be predicted, which must be one."""
    value = number_in(cell)
    if value is None or not math.isfinite(value):
        raise InputError(
            f"{place}: the target is '{'' if cell is None else cell}', which is not a number; correct or remove the row"
        )
    return value


def flag(cell: Cell, place: str, column: str) -> bool:
    """A cell that says whether a label holds."""
    words: dict[Any, bool] = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False, "": False}
    word = "" if is_missing(cell) else label_text(cell).casefold()
    if word not in words:
        raise InputError(f"{place}: {column} is '{cell}' but a column of --label a,b,c holds 0 or 1")
    return words[word]


def any_separator(cells: Sequence[Cell]) -> str:
    """What parts labels within a cell where it is known that something does."""
    words = [cell for cell in cells if isinstance(cell, str)]
    return next((sign for sign in SEPARATORS if any(sign in cell for cell in words)), "")


def _separator(name: str, cells: Sequence[str]) -> str:
    """What parts labels within a cell: a sign that is in many, and that leaves words which several cells share."""
    for sign in SEPARATORS:
        holding = [cell for cell in cells if sign in cell]
        if len(holding) < max(2, len(cells) // 20):
            continue
        words = [word.strip() for cell in set(cells) for word in cell.split(sign)]
        if len(set(words)) < len(words) and (name.casefold() in ("labels", "tags") or sign != ","):
            return sign
    return ""
