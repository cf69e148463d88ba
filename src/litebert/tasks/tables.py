"""A person's own data as a task: a table's rows become items, its label column targets, and what was done is said.

Rows without any text are left out, with a note; everything else that cannot be right (an unknown label, a target that
is no number, an option that is not there) stops with the line it is on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import InputError
from litebert.tasks.columns import Columns, check_columns
from litebert.tasks.examples import Answer, Choice, Example, Item, Question, Target
from litebert.tasks.label_cells import (
    cell_labels,
    class_index,
    class_names,
    flag,
    is_missing,
    label_text,
    number_in,
    target_number,
)
from litebert.tasks.squad import find_answer
from litebert.tasks.table_files import SUFFIXES, Cell, Table
from litebert.text.streams import kind_of

LETTERS = "ABCDEFGH"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row: its cells by column, its number from 0, and where it is for a message."""

    cells: Mapping[str, Cell]
    number: int
    place: str

    def text(self, names: Sequence[str]) -> str:
        """The text of one column, or of several joined by line ends."""
        found = [self.cells[name] for name in names]
        return "\n".join(str(cell).strip() for cell in found if not (cell is None or str(cell).strip() == ""))

    def key(self, name: str | None) -> str:
        """What the row is called: its id, or its number."""
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
            raise InputError(f"no row of {table.path} has a label in {name}; choose another column with --label")
        return tuple(sorted(words))
    missing = [row for row, cell in enumerate(cells) if is_missing(cell)]
    if missing:
        raise InputError(
            f"{table.place(missing[0])} has no {name}, nor have {len(missing) - 1} more rows; fill or remove them"
            if len(missing) > 1
            else f"{table.place(missing[0])} has no {name}; fill or remove it"
        )
    return class_names([label_text(cell) for cell in cells], table, name)


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
    for number, cells in enumerate(table.rows):
        row = Row(cells=dict(zip(table.columns, cells, strict=True)), number=number, place=table.place(number))
        texts = [row.text(part) for part in columns.texts]
        if not any(texts):
            empty.append(number)
            continue
        items.append(_item(row, key, texts, columns, known, has_labels=has_labels))
    _note_empty(table, empty, notes)
    return tuple(items)


def _note_empty(table: Table, empty: Sequence[int], notes: list[str]) -> None:
    if len(empty) * 2 > len(table.rows):
        raise InputError(
            f"{table.path} has no text in {len(empty):,} of {len(table.rows):,} rows, first in line "
            f"{table.lines[empty[0]]}; is it the right column? Choose with --text"
        )
    if empty:
        notes.append(f"left out {len(empty):,} rows without any text, first {table.place(empty[0])}")


def _item(
    row: Row, key: str | None, texts: Sequence[str], columns: Columns, known: Mapping[str, int], *, has_labels: bool
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


def _target(row: Row, columns: Columns, known: Mapping[str, int]) -> Target:
    cell = row.cells[columns.labels[0]]
    if columns.kind == "regress":
        return target_number(cell, row.place)
    if columns.kind == "multilabel":
        if len(columns.labels) > 1:
            words = [name for name in columns.labels if flag(row.cells[name], row.place, name)]
        else:
            words = cell_labels(cell, columns.separator)
        return tuple(sorted({class_index(word, known, row.place) for word in words}))
    if is_missing(cell):
        raise InputError(f"{row.place} has no {columns.labels[0]}; fill or remove it")
    return class_index(label_text(cell), known, row.place)


def _options(row: Row, names: Sequence[str]) -> tuple[str, ...]:
    cells = row.cells[names[0]] if len(names) == 1 else [row.cells[name] for name in names]
    options = tuple(str(cell).strip() for cell in cells or () if cell is not None and str(cell).strip())
    if len(options) < 2:
        raise InputError(f"{row.place} has {len(options)} options; a choice needs two or more")
    return options


def _option(row: Row, name: str, options: Sequence[str]) -> int:
    """Which option is right: by its number from 0, its letter, or its text."""
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


def _question(row: Row, key: str, texts: Sequence[str], name: str) -> Question:
    cell = row.cells[name]
    if isinstance(cell, list):  # [{"text", "answer_start"}, ...] as in SQuAD's own files
        cell = {"text": [one.get("text") for one in cell], "answer_start": [one.get("answer_start") for one in cell]}
    if not isinstance(cell, dict) or not isinstance(cell.get("text"), list) or len(texts) != 2:
        raise InputError(f'{row.place}: {name} must be {{"text": [...], "answer_start": [...]}}')
    passage, question = texts[0], texts[1]
    starts = cell.get("answer_start") or [0] * len(cell["text"])
    answers = []
    for text, start in zip(cell["text"], starts, strict=False):
        place = find_answer(passage, str(text), int(start))
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


def split_files(folder: Path) -> dict[str, Path]:
    """The files of a folder that are named train, dev (or valid) and test."""
    names = {"train": ("train", "training"), "dev": ("dev", "valid", "validation", "val"), "test": ("test",)}
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        words = path.name.lower().replace("-", " ").replace("_", " ").replace(".", " ").split()
        for split, spellings in names.items():
            if kind_of(path) in SUFFIXES and any(word in spellings for word in words):
                if split in found:
                    raise InputError(
                        f"{folder} has {found[split].name} and {path.name}; name one with --data and --dev"
                    )
                found[split] = path
    if "train" not in found and "dev" not in found:
        raise InputError(f"{folder} holds no file named train or dev ({', '.join(SUFFIXES)}); name a file with --data")
    return found
