"""A model's predictions or vectors of tables of any size: rows are read in portions, answered by worker processes on
this machine or on a Ray cluster, and written in order, each exactly once.

Workers get items and return what is to be written, formatted already; where they run changes nothing. No torch here.
"""

import csv
import hashlib
import io
import json
import logging
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from litebert.cluster import HERE, map_stream, place_device
from litebert.data.files import arrow_library
from litebert.data.output import Output, Portion, Target, open_output, portions
from litebert.runs import RUN_FILE
from litebert.runtime import is_exported
from litebert.shipped_models import shipped_folder
from litebert.system import available_cores
from litebert.tasks.columns import Names
from litebert.tasks.examples import Item, ItemPrediction, TaskSpec
from litebert.tasks.kinds import KINDS
from litebert.tasks.tables import input_files, read_inputs
from litebert.terminal import progress
from litebert.text_model import LongTexts, Report, TextModel
from litebert.version import __version__

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Written:
    """What was written: where, how many rows in how many files, and how many of the rows were there already."""

    out: str
    what: str  # predictions or vectors
    rows: int
    files: int
    skipped: int = 0


def _silent(_: int) -> None:
    pass


@dataclass(kw_only=True)
class Work(ABC):
    """What a worker does with items. It loads the model at its first call, and keeps it."""

    formats: ClassVar[tuple[str, ...]]
    what: ClassVar[str]

    load: Callable[..., TextModel]
    source: str
    depth: int | None = None
    windows: bool = False  # read long texts in windows instead of cutting them
    device: str = "auto"
    form: str = ""
    threads: int = 0  # that a worker may use; 0: as many as there are
    report: Report | None = None  # takes the number of items done, where the worker is this process itself
    _model: TextModel | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_model": None, "report": None}

    @property
    def model(self) -> TextModel:
        """The model, loaded now if it was not yet."""
        if self._model is None:
            exported = {"threads": self.threads or None} if is_exported(Path(self.source)) else {}
            if self.threads:
                os.environ["TOKENIZERS_PARALLELISM"] = "false"
            self._model = self.load(self.source, device=self.device, depth=self.depth, **exported)
            if self.threads and "torch" in sys.modules:
                sys.modules["torch"].set_num_threads(self.threads)
        return self._model

    @abstractmethod
    def __call__(self, items: Sequence[Item]) -> tuple[Any, LongTexts]:
        """What is to be written of items, and which of their texts were too long."""

    @abstractmethod
    def spec(self) -> TaskSpec:
        """How rows are read."""

    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """What decides the answers beside the model and its depth."""

    def head(self) -> str:
        """The first line of a file."""
        return ""


@dataclass(kw_only=True)
class Labels(Work):
    """Predictions of a fine-tuned model."""

    formats = ("jsonl", "csv", "tsv", "parquet")
    what = "predictions"

    exits: bool = False

    def __call__(self, items: Sequence[Item]) -> tuple[Any, LongTexts]:
        found = self.model.predict_items(items, report=self.report or _silent, exits=self.exits, windows=self.windows)
        make = label_table if self.form == "parquet" else label_lines
        return make(items, found, self.spec(), self.form), self.model.long_texts(found)

    def spec(self) -> TaskSpec:
        return self.model.required_task("predict")

    def settings(self) -> dict[str, Any]:
        return {"exits": self.exits}

    def head(self) -> str:
        return label_head(self.spec(), self.form)


@dataclass(kw_only=True)
class Vectors(Work):
    """Vectors of texts."""

    formats = ("parquet", "npy", "jsonl")
    what = "vectors"

    pooling: str | None = None
    normalize: bool | None = None
    max_length: int | None = None

    def __call__(self, items: Sequence[Item]) -> tuple[Any, LongTexts]:
        texts = [item.texts[0] for item in items]
        vectors, long = self.model.encode_texts(
            texts, report=self.report or _silent, windows=self.windows, **self.settings()
        )
        return _vectors_as(self.form, [item.key for item in items], vectors), long

    def spec(self) -> TaskSpec:
        """One text, from the column of the training data where the model has one."""
        task = self.model.task
        return TaskSpec(text=task.text if task is not None and len(task.text) == 1 else ())

    def settings(self) -> dict[str, Any]:
        return {"pooling": self.pooling, "normalize": self.normalize, "max_length": self.max_length}


def _vectors_as(form: str, keys: Sequence[str], vectors: npt.NDArray[np.float32]) -> Any:
    """Vectors as they are written: an array, a table of Arrow, or lines of JSON (nine digits lose nothing)."""
    if form == "npy":
        return vectors
    if form == "jsonl":
        shown = (", ".join(f"{number:.9g}" for number in row) for row in vectors.tolist())
        named = (json.dumps(key, ensure_ascii=False) for key in keys)
        return "".join(f'{{"key": {key}, "vector": [{row}]}}\n' for key, row in zip(named, shown, strict=True))
    arrow = arrow_library()
    column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors.reshape(-1)), vectors.shape[1])
    return arrow.table({"key": arrow.array(keys, arrow.string()), "vector": column})


# --- predictions as they are written


def label_head(spec: TaskSpec, form: str) -> str:
    """The first line of a file of predictions, where its format has one."""
    if form not in ("csv", "tsv"):
        return ""
    return _cells([["key", "label", *KINDS[spec.kind].probability_names(spec)]], form)


def label_lines(items: Sequence[Item], found: Sequence[ItemPrediction], spec: TaskSpec, form: str) -> str:
    """Predictions as lines of JSON or of cells."""
    kind = KINDS[spec.kind]
    names = kind.probability_names(spec)
    labels = [kind.written(one.label, item, spec.labels) for item, one in zip(items, found, strict=True)]
    if form != "jsonl":
        return _cells(
            (
                [one.key, ";".join(label) if isinstance(label, list) else label]
                + [f"{share:.6f}" for share in one.probabilities[: len(names)]]
                for one, label in zip(found, labels, strict=True)
            ),
            form,
        )
    lines = []
    for one, label in zip(found, labels, strict=True):
        row: dict[str, Any] = {"key": one.key, "label": label}
        if one.cut:
            row["cut"] = True
        if one.windows > 1:
            row["windows"] = one.windows
        shares = [round(share, 6) for share in one.probabilities]
        if shares:
            row["probabilities"] = dict(zip(names, shares, strict=False)) if names else shares
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    return "".join(lines)


def _cells(rows: Iterable[Sequence[Any]], form: str) -> str:
    text = io.StringIO()
    csv.writer(text, delimiter="\t" if form == "tsv" else ",", lineterminator="\n").writerows(rows)
    return text.getvalue()


def label_table(items: Sequence[Item], found: Sequence[ItemPrediction], spec: TaskSpec, _: str) -> Any:
    """Predictions as a table of Arrow: key, label, whether the text was cut, the windows it was read in, and, where
    there are any, probabilities by label or as a list."""
    arrow = arrow_library()
    kind = KINDS[spec.kind]
    names = kind.probability_names(spec)
    labels = [kind.written(one.label, item, spec.labels) for item, one in zip(items, found, strict=True)]
    columns = {"key": arrow.array([one.key for one in found], arrow.string())}
    listed = isinstance(labels[0], list)
    columns["label"] = arrow.array(labels, arrow.list_(arrow.string()) if listed else None)
    columns["cut"] = arrow.array([one.cut for one in found], arrow.bool_())
    columns["windows"] = arrow.array([one.windows for one in found], arrow.int32())
    shares = [one.probabilities for one in found]
    if names:
        by_label = [arrow.array(list(column), arrow.float32()) for column in zip(*shares, strict=True)]
        columns["probabilities"] = arrow.StructArray.from_arrays(by_label, list(names))
    elif shares[0]:
        columns["probabilities"] = arrow.array(shares, arrow.list_(arrow.float32()))
    return arrow.table(columns)


# --- the run


def answer_table(
    work: Work,
    data: Any,
    out: str | os.PathLike[str],
    *,
    text: Names = None,
    form: str | None = None,
    shard_rows: int | None = None,
    workers: int = 0,
    on: str = HERE,
) -> Written:
    """Answer every row of a table, and write the answers in order to a file or a folder of shards.

    ``workers`` 0 is this process itself here, and one for each core or GPU on Ray.
    """
    files = input_files(data)
    target = Target.of(os.fspath(out), form, work.formats, shard_rows, like=files)
    count = workers or (1 if on == HERE else 0)
    first = work = replace(work, form=target.form)
    if (on, count) != (HERE, 1):
        exported = is_exported(Path(work.source))
        threads = max(1, available_cores() // count) if on == HERE else 1
        device = work.device if on == HERE or exported else place_device(on, work.device)
        first, work = replace(work, device="auto" if exported else "cpu"), replace(work, device=device, threads=threads)
    head, spec = first.head(), first.spec()
    del first  # its model checked the settings; workers elsewhere load it themselves
    about = {
        "litebert": __version__,
        "command": work.what,
        "model": work.source,
        "the files of the model": _digest_of_model(work.source) if target.shard_rows else "",
        "depth": work.depth,
        "windows": work.windows,
        **work.settings(),
        "data": [str(path) for path in files] or "rows in memory",
        "text": list(text) if isinstance(text, list | tuple) else text,
    }
    try:
        with open_output(target, head=head, about=about) as output:
            found = portions(read_inputs(data, spec, text=text), _texts, target.shard_rows)
            rows = _answer(work, found, output, on, count)
            return Written(target.out, work.what, rows, output.finish(), output.skipped)
    except KeyboardInterrupt:
        again = f"stopped; run the same command again to resume {out}" if target.shard_rows else "stopped"
        raise KeyboardInterrupt(again) from None


def _answer(work: Work, found: Iterable[Portion[Item]], output: Output, on: str, workers: int) -> int:
    """Answer portions and write the answers; returns the number of rows, those that were there included."""
    rows, long = 0, None
    begun = time.monotonic()
    gpus = int(on != HERE and work.device == "cuda")
    with progress() as show:
        if (on, workers) == (HERE, 1):
            work = replace(work, report=lambda done: show(f"{output.skipped + rows + done:,} {work.what}"))
        missing = output.missing(found)
        stream = map_stream(work, missing, on=on, workers=workers, gpus=gpus, sent=attrgetter("items"))
        with closing(stream) as answers:
            for portion, (piece, too_long) in answers:
                output.add(portion, piece)
                rows += len(portion.items)
                if long is None:
                    long = too_long
                else:
                    long.merge(too_long)
                rate = rows / max(time.monotonic() - begun, 1e-3)
                there = f" ({output.skipped:,} more were there)" if output.skipped else ""
                show(f"{rows:,} {work.what}, {rate:,.0f} a second{there}")
    if long is not None:
        long.report()
    return rows + output.skipped


def _texts(item: Item) -> Sequence[str]:
    return item.key, *item.texts


def _digest_of_model(source: str) -> str:
    """A digest of the files of a model, to notice that it is another one under the same name."""
    folder = shipped_folder(source) or Path(source)
    if (folder / "model").is_dir():
        folder = folder / "model"
    whole = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in folder.rglob("*") if path.is_file() and path.name != RUN_FILE):
        whole.update(str(path.relative_to(folder)).encode())
        with path.open("rb") as file:
            whole.update(hashlib.file_digest(file, "blake2b").digest())
    return whole.hexdigest()
