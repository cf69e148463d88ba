"""Tables as a task, and as texts to predict: rows become items, the label column becomes targets, and what was done is
noted.

Columns are found once, in the training rows, and every split is read alike. Rows without any text are left out, with a
note; everything else that cannot be right (an unknown label, a target that is no number, a missing option) is an error
that names the line. Of texts to predict nothing is read ahead but the rows that columns are guessed from, and every
row gives one item, in order.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

from litebert.data.files import STANDARD_INPUT, find_files, kind_of, text_lines
from litebert.data.separated import Cell, has_content
from litebert.data.tables import SUFFIXES, RowStream, Source, Table, json_objects, stream_rows
from litebert.errors import InputError
from litebert.tasks.columns import (
    ID_SHARE,
    Columns,
    Names,
    TableRow,
    cell_labels,
    check_columns,
    find_columns,
    has_decimal_comma,
    is_missing,
    label_text,
    number_in,
)
from litebert.tasks.examples import Example, Item, Kind, Question, TaskData, TaskSpec
from litebert.tasks.kinds import KINDS
from litebert.tasks.passages import is_squad_file, read_questions

SPLITS: Mapping[str, tuple[str, ...]] = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
GUESSED_FROM = 100  # rows of texts to predict that columns are guessed from
PLAIN = ("", ".txt", ".text")
FEW = 0.1  # of the cells of a column of numbers that are words, for these to be mistakes


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
    kind_of_task = KINDS[columns.kind]
    if columns.kind == "regress" and any(map(has_decimal_comma, main.column(columns.labels[0]))):
        notes.append(f"numbers in {columns.labels[0]} have decimal commas")
    known = tuple(labels) if labels and kind_of_task.has_classes else find_labels(main, columns)
    splits = {
        split: make_items(table, columns, known, notes, labelled=split != "test") for split, table in tables.items()
    }
    unanswered = (item for items in splits.values() for item in items if isinstance(item, Question) and item.impossible)
    return TaskData(
        name=name,
        kind=columns.kind,
        labels=known,
        metrics=kind_of_task.metrics_for(columns),
        train=splits.get("train", ()),
        dev={"dev": splits["dev"]} if "dev" in splits else {},
        test={"test": splits["test"]} if "test" in splits else {},
        notes=tuple(notes),
        has_null=next(unanswered, None) is not None,
        text=columns.text_parts,
        label=",".join(columns.labels),
    )


def find_labels(table: Table, columns: Columns) -> tuple[str, ...]:
    """The classes that occur in a table, in a stable order."""
    kind = KINDS[columns.kind]
    if not kind.has_classes:
        return ()
    if len(columns.labels) > 1:
        return columns.labels
    name = columns.labels[0]
    cells = table.column(name)
    if not kind.single_label:
        words = {word for cell in cells for word in cell_labels(cell, columns.separator)}
        if not words:
            raise InputError(f"no row of {table.source} has a label in {name}; choose another column with label=")
        return tuple(sorted(words))
    missing = [row for row, cell in enumerate(cells) if is_missing(cell) and has_content(table.rows[row])]
    if missing:
        more = f", nor have {len(missing) - 1} more rows" if len(missing) > 1 else ""
        raise InputError(f"{table.place(missing[0])} has no {name}{more}; fill or remove {'them' if more else 'it'}")
    _check_numbers(table, name)
    return _class_names([label_text(cell) for cell in cells if not is_missing(cell)], table, name)


def _check_numbers(table: Table, column: str) -> None:
    """An error where a column is one of many numbers, but for a few cells."""
    cells = table.column(column)
    words = [row for row, cell in enumerate(cells) if number_in(cell) is None and not is_missing(cell)]
    different = {number_in(cell) for row, cell in enumerate(cells)} - {None}
    if words and len(words) <= FEW * len(cells) and len(different) > len(cells) * ID_SHARE:
        raise InputError(
            f"{table.place(words[0])} has the {column} '{cells[words[0]]}', where other rows have numbers; correct or "
            f"empty it{f', and {len(words) - 1} more' if len(words) > 1 else ''}"
        )


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
    if columns.key not in table.columns:
        columns = replace(columns, key=None)
    kind, known = KINDS[columns.kind], {name: index for index, name in enumerate(labels)}
    # Pairs that belong together need no column that says so.
    has_labels = bool(columns.labels or kind.compares) and all(name in table.columns for name in columns.labels)
    items: list[Item] = []
    empty: list[int] = []
    blank = 0  # rows without any content, as spreadsheets write them below a table
    for number, cells in enumerate(table.rows):
        row = TableRow(dict(zip(table.columns, cells, strict=True)), number, table.place(number))
        if any(row.texts(columns)):
            items.append(kind.item_of_row(row, columns, known, labelled=has_labels))
        elif has_content(cells):
            empty.append(number)
        else:
            blank += 1
    if len(empty) * 2 > len(table.rows):
        raise InputError(
            f"{table.source} has no text in {len(empty):,} of {len(table.rows):,} rows, first in "
            f"{table.unit} {table.lines[empty[0]]}; is it the right column? Choose with text="
        )
    if empty:
        notes.append(f"left out {len(empty):,} rows without any text, first {table.place(empty[0])}")
    if blank:
        notes.append(f"left out {blank:,} blank rows")
    return tuple(items)


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


# --- texts to predict


def read_inputs(
    source: Source | None, spec: TaskSpec, *, text: Names = None, header: bool | None = None
) -> Iterator[Item]:
    """The items in files, in rows in memory, or on standard input where there is no source (or ``-``).

    Of several files, the first decides what the columns are; rows without a key of their own are counted over all.
    """
    if source is None or isinstance(source, str | Path):
        number = 0
        for path in input_files(source):
            number, text = yield from _file_items(path, spec, text, header, number)
    else:
        yield from _items(stream_rows(source, header=header, labelled=False), spec, text)


def input_files(source: Source | None) -> list[Path]:
    """The files that a file, a folder, a glob or a URL of texts names; none for rows in memory."""
    if source is None:
        return [STANDARD_INPUT]
    if not isinstance(source, str | Path):
        return []
    found = find_files(str(source), (*SUFFIXES, ".txt"), f"{', '.join(SUFFIXES)}, .txt", ignored=(".", "_"))
    for path in found:
        if path != STANDARD_INPUT and not path.is_file():  # a pipe or a device may never end
            raise InputError(f"there is no file '{path}'; give - for what comes through a pipe")
    return found


ItemsOfFile = Generator[Item, None, tuple[int, Names]]  # ends with the rows so far and the columns of texts


def _file_items(path: Path, spec: TaskSpec, text: Names, header: bool | None, number: int) -> ItemsOfFile:
    if path == STANDARD_INPUT or kind_of(path) in PLAIN:
        return (yield from _plain(path, spec, text, number))
    if is_squad_file(path):
        questions = read_questions(path, [])
        yield from questions
        return number + len(questions), text
    return (yield from _items(stream_rows(str(path), header=header, labelled=False), spec, text, number))


def _plain(path: Path, spec: TaskSpec, text: Names, number: int) -> ItemsOfFile:
    """One text a line; of a pair, the second behind a tab. A first line that is a JSON object makes all of them so."""
    typed = path == STANDARD_INPUT
    lines = ((line, at) for line, at, _ in text_lines(path, errors="replace" if typed else "strict", western=not typed))
    first = next(lines, None)
    if first is None:
        return number, text
    every = chain([first], lines)
    name = "standard input" if typed else str(path)
    if first[0].lstrip().startswith("{"):
        stream = RowStream(source=name, unit="line", rows=json_objects(every, name))
        return (yield from _items(stream, spec, text, number))
    if KINDS[spec.kind].needs_rows:
        raise InputError(f"{name} has plain lines, but this model needs a question and more; give JSON lines")
    for line, at in every:
        line = line.rstrip("\r\n")
        before, tab, after = line.partition("\t") if spec.pairs else (line, "", "")
        if spec.pairs and not tab:
            raise InputError(f"{name}, line {at}: this model reads pairs; put a tab between the two texts")
        yield Example(key=str(number), first=before, second=after if spec.pairs else None)
        number += 1
    return number, text


def _items(stream: RowStream, spec: TaskSpec, text: Names, number: int = 0) -> ItemsOfFile:
    """Rows as items; the columns are those named, else those of the training file, else guessed from some rows."""
    first = list(islice(stream.rows, GUESSED_FROM))
    if not first:
        return number, text
    kind, columns = KINDS[spec.kind], _columns(first, stream, spec, text)
    for cells, line in chain(first, stream.rows):
        row = TableRow(cells, number, stream.place(line))
        number += 1
        try:
            if kind.needs_rows and not any(row.texts(columns)):
                raise InputError(f"{row.place} has no text; fill or remove it")
            yield kind.item_of_row(row, columns, {}, labelled=False)
        except KeyError as missing:
            raise InputError(f"{row.place} has no {missing}, which rows before it have") from None
    return number, columns.text_parts


def _columns(
    first: Sequence[tuple[Mapping[str, Cell], int]], stream: RowStream, spec: TaskSpec, text: Names
) -> Columns:
    names, parts, of_texts = tuple(first[0][0]), 1 + spec.pairs, not KINDS[spec.kind].needs_rows
    if not stream.named and not text and of_texts and len(names) == parts:
        text = names  # without names, the only columns there are
    rows = [(tuple(cells.values()), line) for cells, line in first if tuple(cells) == names]
    cells, lines = zip(*rows, strict=True)
    table = Table(source=stream.source, unit=stream.unit, columns=names, rows=cells, lines=lines)
    columns = find_columns(table, text=text or spec.text, kind=spec.kind, labelled=False)
    check_columns(table, columns, labelled=False)
    if of_texts and len(columns.texts) != parts:
        wanted = "two texts" if spec.pairs else "one text"
        raise InputError(
            f"this model reads {wanted} but {stream.source} gives {len(columns.texts)}; choose columns with text="
        )
    return columns
