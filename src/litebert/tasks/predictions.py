"""A file of predictions, made by anyone, read so that it can be scored without a model.

Three forms: GLUE's TSV (``index`` and ``prediction``), JSON lines with ``key`` and ``label``, and SQuAD's one JSON
object of ids and texts. Labels are names, the official spelling of the task, or indices.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from litebert.data.files import kind_of, read_text
from litebert.data.separated import Cell
from litebert.data.tables import read_table
from litebert.errors import InputError
from litebert.tasks.columns import cell_labels, label_text, number_in
from litebert.tasks.examples import Choice, Item, Prediction, TaskData
from litebert.tasks.glue import GLUE, official_index

KEYS = ("key", "index", "id", "idx", "pairid", "example_id")
LABELS = ("label", "prediction", "labels", "predicted", "answer", "text", "score")


def read_predictions(path: Path, data: TaskData, items: Sequence[Item]) -> list[Prediction]:
    """The predictions in a file, for ``items`` in whatever order."""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'")
    known = {item.key: item for item in items}
    found: dict[str, Prediction] = {}
    for key, label, chances, place in _rows(path):
        if key in found:
            raise InputError(f"{place}: '{key}' is predicted a second time; are these predictions of several parts?")
        if key in known:
            found[key] = Prediction(
                key=key,
                label=_label(label, data, known[key], place),
                probabilities=_probabilities(chances, data, place),
            )
    missing = [key for key in known if key not in found]
    if missing:
        raise InputError(
            f"{path} has no prediction for {len(missing):,} of {len(items):,} items, first '{missing[0]}'; give one "
            "for each, and check --split"
        )
    return [found[item.key] for item in items]


def _rows(path: Path) -> list[tuple[str, Cell, Cell, str]]:
    """Key, label, probabilities and place of every prediction."""
    if kind_of(path) == ".json":
        try:
            content = json.loads(read_text(path))
        except (ValueError, RecursionError):
            content = None  # JSON lines under another name
        if isinstance(content, dict) and not {*content} & {"key", "label"}:
            return [(key, label, None, f"{path}, '{key}'") for key, label in content.items()]
    table = read_table(path)
    key, label = _named(table.columns, KEYS), _named(table.columns, LABELS)
    if key is None or label is None:
        raise InputError(f"{path} needs a column key (or index) and one label (or prediction), not {table.columns}")
    chances = table.column("probabilities") if "probabilities" in table.columns else [None] * len(table.rows)
    return [
        (label_text(name), cell, chance, table.place(row))
        for row, (name, cell, chance) in enumerate(zip(table.column(key), table.column(label), chances, strict=True))
    ]


def _named(columns: Sequence[str], names: Sequence[str]) -> str | None:
    folded = {name.casefold(): name for name in columns}
    return next((folded[name] for name in names if name in folded), None)


def _label(cell: Cell, data: TaskData, item: Item, place: str) -> int | float | tuple[int, ...] | str:
    if data.kind == "span":
        return "" if cell is None else str(cell)
    if data.kind == "regress":
        number = number_in(cell)
        if number is None or not math.isfinite(number):
            raise InputError(f"{place}: the prediction is '{cell}', which is not a number")
        return number
    if data.kind == "multilabel":
        separator = next((sign for sign in ";|," if isinstance(cell, str) and sign in cell), "")
        return tuple(sorted({_index(word, data, place) for word in cell_labels(cell, separator)}))
    if isinstance(item, Choice):
        return _option(cell, item, place)
    return _index(cell, data, place)


def _index(cell: Cell, data: TaskData, place: str) -> int:
    word = label_text(cell)
    if word in data.labels:
        return data.labels.index(word)
    official = official_index(GLUE[data.name], word) if data.name in GLUE else None
    if official is not None:
        return official
    if word.isdecimal() and int(word) < len(data.labels):
        return int(word)
    raise InputError(f"{place}: the prediction is '{word}' but must be one of {', '.join(data.labels)}")


def _option(cell: Cell, item: Choice, place: str) -> int:
    word = label_text(cell)
    place_of = int(word) if word.isdecimal() else "ABCDEFGH".find(word.upper()) if len(word) == 1 else -1
    if not 0 <= place_of < len(item.options):
        raise InputError(f"{place}: the prediction is '{word}' but must be an option's letter, or its number from 0")
    return place_of


def _probabilities(cell: Cell, data: TaskData, place: str) -> tuple[float, ...]:
    if cell is None or cell == "":
        return ()
    values = [cell.get(name) for name in data.labels] if isinstance(cell, Mapping) else cell
    if not isinstance(values, list) or not all(isinstance(value, int | float) for value in values):
        raise InputError(f"{place}: the probabilities are not a list of numbers, nor one number for each label")
    return tuple(map(float, values))
