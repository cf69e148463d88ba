"""Tables as a task: rows become items, the label column becomes targets, and what was done is noted.

Columns are found once, in the training rows, and every split is read alike. Rows without any text are left out, with a
note; everything else that cannot be right (an unknown label, a target that is no number, a missing option) is an error
that names the line.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.data.files import kind_of
from litebert.data.separated import Cell, has_content
from litebert.data.tables import SUFFIXES, Table
from litebert.errors import InputError, nearest
from litebert.tasks.columns import (
    ID_SHARE,
    Columns,
    Names,
    cell_labels,
    check_columns,
    find_columns,
    is_missing,
    label_text,
    number_in,
)
from litebert.tasks.examples import Answer, Choice, Example, Item, Kind, Question, Target, TaskData
from litebert.tasks.kinds import KINDS
from litebert.tasks.squad import find_answer

LETTERS = "ABCDEFGH"
SPLITS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}


def task_from_tables(
    name: str,
    tables: Mapping[str, Table],
    *,
    text: Names = None,
    label: Names = None,
    kind: Kind | None = None,
    labels: Sequence[str] | None = None,
) -> TaskData:
    """The task in tables named train, dev and test, of which the first that is there decides what the columns are.

    Only a test table may come without labels. ``labels`` are those a model has already, in its order.
    """
    main = next(tables[split] for split in SPLITS if split in tables)
    columns = find_columns(main, text=text, label=label, kind=kind)
    notes = [columns.describe()]
    has_classes = KINDS[columns.kind].has_classes
    known = tuple(labels) if labels and has_classes else find_labels(main, columns)
    splits = {
        split: make_items(table, columns, known, notes, labelled=split != "test") for split, table in tables.items()
    }
    unanswered = (item for items in splits.values() for item in items if isinstance(item, Question) and item.impossible)
    return TaskData(
        name=name,
        kind=columns.kind,
        labels=known,
        metrics=KINDS[columns.kind].default_metrics,
        train=splits.get("train", ()),
        dev={"dev": splits["dev"]} if "dev" in splits else {},
        test={"test": splits["test"]} if "test" in splits else {},
        notes=tuple(notes),
        has_null=next(unanswered, None) is not None,
        text=columns.text_parts,
        label=",".join(columns.labels),
    )


@dataclass(frozen=True, kw_only=True)
class TableRow:
    """One row: its cells by column, its number from 0, and where it is for a message."""

    cells: Mapping[str, Cell]
    number: int
    place: str

    def text(self, names: Sequence[str]) -> str:
        """The text of one column, or of several joined by line ends."""
        found = [self.cells[name] for name in names]
        return "\n".join(str(cell).strip() for cell in found if not (cell is None or str(cell).strip() == ""))

    def key(self, name: str | None) -> str:
        """The row's id, or its number."""
        return str(self.number if name is None else self.cells[name])


def find_labels(table: Table, columns: Columns) -> tuple[str, ...]:
    """The classes that occur in a table, in a stable order."""
    if columns.kind not in ("classify", "multilabel"):
        return ()
    if len(columns.labels) > 1:
        return columns.labels
    name = columns.labels[0]
    cells = table.column(name)
    if columns.kind == "multilabel":
        words = {word for cell in cells for word in cell_labels(cell, columns.separator)}
        if not words:
            raise InputError(f"no row of {table.source} has a label in {name}; choose another column with label=")
        return tuple(sorted(words))
    missing = [row for row, cell in enumerate(cells) if is_missing(cell) and has_content(table.rows[row])]
    if missing:
        raise InputError(
            f"{table.place(missing[0])} has no {name}, nor have {len(missing) - 1} more rows; fill or remove them"
            if len(missing) > 1
            else f"{table.place(missing[0])} has no {name}; fill or remove it"
        )
    return _class_names([label_text(cell) for cell in cells if not is_missing(cell)], table, name)


def _class_names(names: Sequence[str], table: Table, column: str) -> tuple[str, ...]:
    """The classes in a stable order, numbers by value; an error where they cannot be classes."""
    different = set(names)
    if len(different) == 1:
        raise InputError(
            f"every row of {table.source} has the {column} '{names[0]}': there is nothing to learn; choose another "
            "column with label=, or add rows of other classes"
        )
    if len(names) > 20 and len(different) > len(names) * ID_SHARE:
        raise InputError(
            f"the column '{column}' of {table.source} has {len(different):,} different values in {len(names):,} rows, "
            "which looks like an id, not like a class; choose another column with label="
        )
    try:
        return tuple(sorted(different, key=int))
    except ValueError:
        return tuple(sorted(different))


def make_items(
    table: Table, columns: Columns, labels: Sequence[str], notes: list[str], *, labelled: bool = True
) -> tuple[Item, ...]:
    """The rows of a table as items; ``labelled`` says that each must have a target."""
    check_columns(table, columns, labelled=labelled)
    known = {name: index for index, name in enumerate(labels)}
    has_labels = bool(columns.labels) and all(name in table.columns for name in columns.labels)
    key = columns.key if columns.key in table.columns else None
    items: list[Item] = []
    empty: list[int] = []
    blank = 0  # rows without any content, as spreadsheets write them below a table
    for number, cells in enumerate(table.rows):
        row = TableRow(cells=dict(zip(table.columns, cells, strict=True)), number=number, place=table.place(number))
        texts = [row.text(part) for part in columns.texts]
        if not any(texts):
            if has_content(cells):
                empty.append(number)
            else:
                blank += 1
            continue
        items.append(_item(row, key, texts, columns, known, has_labels=has_labels))
    _note_empty(table, empty, notes)
    if blank:
        notes.append(f"left out {blank:,} blank rows")
    return tuple(items)


def _note_empty(table: Table, empty: Sequence[int], notes: list[str]) -> None:
    if len(empty) * 2 > len(table.rows):
        raise InputError(
            f"{table.source} has no text in {len(empty):,} of {len(table.rows):,} rows, first in "
            f"{table.unit} {table.lines[empty[0]]}; is it the right column? Choose with text="
        )
    if empty:
        notes.append(f"left out {len(empty):,} rows without any text, first {table.place(empty[0])}")


def _item(
    row: TableRow,
    key: str | None,
    texts: Sequence[str],
    columns: Columns,
    known: Mapping[str, int],
    *,
    has_labels: bool,
) -> Item:
    name = row.key(key)
    if columns.kind == "choice":
        options = _options(row, columns.options)
        passage, question = texts if len(texts) > 1 else ("", texts[0])
        target = _option(row, columns.labels[0], options) if has_labels else None
        return Choice(key=name, passage=passage, question=question, options=options, target=target)
    if columns.kind == "span":
        return _question(row, name, texts, columns.labels[0])
    return Example(
        key=name,
        first=texts[0],
        second=texts[1] if len(texts) > 1 else None,
        target=_target(row, columns, known) if has_labels else None,
    )


def _target(row: TableRow, columns: Columns, known: Mapping[str, int]) -> Target:
    cell = row.cells[columns.labels[0]]
    if columns.kind == "regress":
        return _target_number(cell, row.place)
    if columns.kind == "multilabel":
        if len(columns.labels) > 1:
            words = [name for name in columns.labels if _flag(row.cells[name], row.place, name)]
        else:
            words = cell_labels(cell, columns.separator)
        return tuple(sorted({_class_index(word, known, row.place) for word in words}))
    if is_missing(cell):
        raise InputError(f"{row.place} has no {columns.labels[0]}; fill or remove it")
    return _class_index(label_text(cell), known, row.place)


def _options(row: TableRow, names: Sequence[str]) -> tuple[str, ...]:
    cells = row.cells[names[0]] if len(names) == 1 else [row.cells[name] for name in names]
    if not isinstance(cells, list | None):
        raise InputError(f"{row.place}: {names[0]} is not a list of options but {type(cells).__name__}")
    options = tuple(str(cell).strip() for cell in cells or () if cell is not None and str(cell).strip())
    if len(options) < 2:
        raise InputError(f"{row.place} has {len(options)} options; a choice needs two or more")
    return options


def _option(row: TableRow, name: str, options: Sequence[str]) -> int:
    """The correct option: by its number from 0, its letter, or its text."""
    cell = row.cells[name]
    word = label_text(cell) if cell is not None else ""
    number = number_in(cell)
    if number is not None and number.is_integer() and 0 <= number < len(options):
        return int(number)
    if len(word) == 1 and 0 <= LETTERS.find(word.upper()) < len(options):
        return LETTERS.find(word.upper())
    if word in options:
        return options.index(word)
    raise InputError(
        f"{row.place}: {name} is '{word}' but must be a number from 0 to {len(options) - 1}, a letter or the text of "
        "an option"
    )


def _question(row: TableRow, key: str, texts: Sequence[str], name: str) -> Question:
    cell = row.cells[name]
    if isinstance(cell, list) and all(isinstance(one, dict) for one in cell):  # as in SQuAD's own files
        cell = {"text": [one.get("text") for one in cell], "answer_start": [one.get("answer_start") for one in cell]}
    if not isinstance(cell, dict) or not isinstance(cell.get("text"), list) or len(texts) != 2:
        raise InputError(f'{row.place}: {name} must be {{"text": [...], "answer_start": [...]}}')
    passage, question = texts[0], texts[1]
    starts = cell.get("answer_start") or [0] * len(cell["text"])
    if not isinstance(starts, list):
        raise InputError(f"{row.place}: the answer_start of {name} is '{starts}', which is not a list")
    answers = []
    for text, start in zip(cell["text"], starts, strict=False):
        number = number_in(start)
        if number is None or not number.is_integer():
            raise InputError(f"{row.place}: the answer_start of {name} is '{start}', which is not a whole number")
        place = find_answer(passage, str(text), int(number))
        answers.append(Answer(text=str(text), start=-1 if place is None else place))
    title = str(row.cells.get("title", ""))
    return Question(
        key=key,
        title=title,
        passage=passage,
        question=question,
        answers=tuple(answers),
        impossible=not answers,
    )


def _class_index(name: str, known: Mapping[str, int], place: str) -> int:
    """The index of a class that must be known."""
    if name not in known:
        raise InputError(
            f"{place}: the label '{name}' is not among those the model learns{nearest(name, known)} "
            "(correct the row, or add such rows to the training data)"
        )
    return known[name]


def _target_number(cell: Cell, place: str) -> float:
    """The number to be predicted, which must be one."""
    value = number_in(cell)
    if value is None or not math.isfinite(value):
        raise InputError(
            f"{place}: the target is '{'' if cell is None else cell}', which is not a number; correct or remove the row"
        )
    return value


def _flag(cell: Cell, place: str, column: str) -> bool:
    """A cell that says whether a label holds."""
    words: dict[Any, bool] = {"1": True, "0": False, "true": True, "false": False, "yes": True, "no": False, "": False}
    word = "" if is_missing(cell) else label_text(cell).casefold()
    if word not in words:
        raise InputError(f"{place}: {column} is '{cell}' but a column of label=a,b,c holds 0 or 1")
    return words[word]


def split_files(folder: Path) -> dict[str, Path]:
    """The files of a folder that are named train, dev (or valid) and test."""
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = path.name.lower().replace("-", " ").replace("_", " ").replace(".", " ").split()
        for split, spellings in SPLITS.items():
            if kind_of(path) in SUFFIXES and any(word in spellings for word in words):
                if split in found:
                    raise InputError(f"{folder} has {found[split].name} and {path.name}; name one with data= and dev=")
                found[split] = path
    if "train" not in found and "dev" not in found:
        raise InputError(f"{folder} holds no file named train or dev ({', '.join(SUFFIXES)}); name a file with data=")
    return found
