"""What a fine-tuned model says of items: inputs sorted into batches of so many tokens, answers in the order asked."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from litebert.checkpoints.folder import load_model, model_folder
from litebert.config import build
from litebert.errors import InputError
from litebert.nn.network import Network, NetworkConfig
from litebert.tasks.batches import gather
from litebert.tasks.encoding import EncodingSettings, Inputs, encode
from litebert.tasks.examples import Item, Kind, Prediction, Question, TaskData
from litebert.tasks.objective import HEADS, PROBLEMS, device_tensors, run_head
from litebert.tasks.spans import SpanAnswer, best_answers, decide
from litebert.text.tokenizer import Tokenizer
from litebert.train import precision
from litebert.train.precision import usable_device
from litebert.train.settings import Precision

TASK_FILE = "task.json"
BUDGET = {"cpu": 4096, "cuda": 65_536}  # tokens of a forward pass
CHUNK = 4096  # items encoded and answered at once

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class TaskNote:
    """What a model folder remembers of its task, beside what its config.json says."""

    task: str = ""
    kind: Kind = "classify"
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    length: int = 128
    stride: int = 128
    has_null: bool = False
    null_threshold: float = 0.0  # odds of no answer above which there is none
    text: tuple[str, ...] = ()  # columns of the user's own files
    label: str = ""
    pairs: bool = False  # whether an input is two texts
    seen: tuple[str, ...] = ()  # prints of some training rows, to say so when they are scored

    def encoding(self) -> EncodingSettings:
        """How inputs were cut in training."""
        return EncodingSettings(length=self.length, stride=self.stride)

    def text_of_file(self) -> str:
        """The file as it is written."""
        return json.dumps(asdict(self), indent=2, ensure_ascii=False) + "\n"


@dataclass(frozen=True)
class Scores:
    """What a head said of every input; for spans of every token."""

    scores: Floats
    ends: Floats
    answerable: Floats


@dataclass
class Predictor:
    """A network with its tokenizer and its task, ready to answer."""

    network: Network
    tokenizer: Tokenizer
    note: TaskNote
    device: torch.device
    depth: int | None = None
    budget: int = 0
    kind_of_numbers: Precision = "fp32"

    def predict(self, items: Sequence[Item], progress: Callable[[int], None] = lambda _: None) -> list[Prediction]:
        """Predictions in the order of the items; ``progress`` is told how many are done."""
        found: list[Prediction] = []
        for first in range(0, len(items), CHUNK):
            some = items[first : first + CHUNK]
            inputs = encode(some, self.tokenizer, self.note.encoding())
            found += self.predict_encoded(some, inputs, _counted(progress, len(found), len(some)))
        return found

    def predict_encoded(
        self, items: Sequence[Item], inputs: Inputs, progress: Callable[[float], None] = lambda _: None
    ) -> list[Prediction]:
        """The same for items that are encoded already; ``progress`` is told what share of them is done."""
        if not items:
            return []
        scores = self.scores(inputs, progress)
        kind = self.note.kind
        if kind == "span":
            return [decide(answer, self.note) for answer in self.answers(items, inputs, scores)]
        if kind == "choice":
            bounds = inputs.of_items(len(items))
            return [
                _chosen(item.key, _softmax(scores.scores[begin:end, 0]))
                for item, begin, end in zip(items, bounds[:-1], bounds[1:], strict=True)
            ]
        return [self._labelled(item.key, row) for item, row in zip(items, scores.scores, strict=True)]

    def answers(self, items: Sequence[Item], inputs: Inputs, scores: Scores) -> Iterator[SpanAnswer]:
        """The best answers of questions, before it is decided whether there is one."""
        questions = [item for item in items if isinstance(item, Question)]
        return best_answers(questions, inputs, scores.scores, scores.ends, scores.answerable)

    def scores(self, inputs: Inputs, progress: Callable[[float], None] = lambda _: None) -> Scores:
        """What the head says of every input; ``progress`` is told what share of them is done."""
        spans = self.note.kind == "span"
        size = len(inputs.ids) if spans else len(inputs)
        found = np.zeros((size, 1 if spans else self._columns()), np.float32)
        ends = np.zeros(size if spans else 0, np.float32)
        sure = np.zeros(0, np.float32)
        done, was_training = 0, self.network.training
        self.network.eval()
        with torch.no_grad(), precision.cast(self.kind_of_numbers, self.device):
            for rows in self._batches(inputs):
                progress(done / len(inputs))
                done += len(rows)
                batch = gather(inputs, rows)
                tensors = device_tensors(batch, self.device)
                outputs = run_head(self.network, self.note.kind, tensors, batch.longest, self.depth)
                if not spans:
                    found[rows] = outputs.scores.cpu().numpy()
                    continue
                assert outputs.ends is not None
                places = np.concatenate([np.arange(inputs.starts[row], inputs.starts[row + 1]) for row in rows])
                found[places, 0], ends[places] = outputs.scores.cpu().numpy(), outputs.ends.cpu().numpy()
                if outputs.answerable is not None:
                    sure = sure if len(sure) else np.zeros(len(inputs), np.float32)
                    sure[rows] = outputs.answerable.cpu().numpy()
        self.network.train(was_training)
        return Scores(found[:, 0] if spans else found, ends, sure)

    def _columns(self) -> int:
        return 1 if self.note.kind == "choice" else len(self.network.config.heads.labels)

    def _batches(self, inputs: Inputs) -> Iterator[npt.NDArray[np.int64]]:
        """The numbers of all inputs, the longest first, so many tokens at a time."""
        lengths = inputs.lengths
        order = np.argsort(-lengths, kind="stable")
        budget = self.budget or BUDGET.get(self.device.type, BUDGET["cpu"])
        begin, room = 0, budget
        for place, length in enumerate(lengths[order]):
            if length > room and place > begin:
                yield order[begin:place]
                begin, room = place, budget
            room -= length
        yield order[begin:]

    def _labelled(self, key: str, row: Floats) -> Prediction:
        if self.note.kind == "regress":
            return Prediction(key=key, label=float(row[0]))
        if self.note.kind == "multilabel":
            shares = 1 / (1 + np.exp(-row.astype(np.float64)))
            labels = tuple(int(label) for label in np.flatnonzero(shares > 0.5))
            return Prediction(key=key, label=labels, probabilities=tuple(map(float, shares)))
        return _chosen(key, _softmax(row))


def _counted(progress: Callable[[int], None], before: int, items: int) -> Callable[[float], None]:
    """Hears what share of some items is done and says how many are, with those before them."""
    return lambda share: progress(before + int(share * items))


def predict_items(
    folder: Path | str,
    data: TaskData,
    items: Sequence[Item],
    *,
    depth: int | None = None,
    progress: Callable[[int], None] = lambda _: None,
    device: str = "",
) -> list[Prediction]:
    """What the model in ``folder`` says of items of a task, in their order; ``depth`` uses that many layers."""
    predictor = load_predictor(folder, device=device, depth=depth)
    check_fits(predictor.note, data, folder)
    return predictor.predict(items, progress)


def load_predictor(folder: Path | str, *, device: str = "", depth: int | None = None) -> Predictor:
    """A fine-tuned model, on a GPU where there is one."""
    where = torch.device(usable_device(device))
    if not model_folder(folder).is_dir():
        raise InputError(f"there is no folder '{folder}'; name a model that `litebert finetune` made")
    loaded = load_model(folder, device=str(where))
    if loaded.tokenizer is None:
        raise InputError(f"{folder} has no tokenizer, so texts cannot be read; copy the model's tokenizer.json to it")
    note = read_note(folder, loaded.network.config)
    limit = loaded.network.config.encoder
    if depth is not None and not 1 <= depth <= limit.num_layers:
        raise InputError(f"--depth is {depth} but {folder} has depths 1 to {limit.num_layers}")
    numbers = precision.default_precision(where)
    return Predictor(loaded.network, loaded.tokenizer, note, where, depth, kind_of_numbers=numbers)


def read_note(folder: Path | str, config: NetworkConfig) -> TaskNote:
    """The task of a model folder: as it was noted, else as far as its heads tell (a folder of others' making)."""
    path = model_folder(folder) / TASK_FILE
    if path.is_file():
        try:
            return build(TaskNote, json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise InputError(f"{path} cannot be used ({error}); remove it and name the task yourself") from None
    heads = config.heads
    kinds = [kind for kind, head in HEADS.items() if head in heads.names]
    if not kinds:
        raise InputError(f"{folder} has no head for a task; make one with `litebert finetune {folder} ...`")
    kind = next((kind for kind in kinds if PROBLEMS.get(kind) == heads.problem), kinds[0])
    length = min(512, config.encoder.max_positions) if config.encoder.positions == "absolute" else 512
    return TaskNote(kind=kind, labels=heads.labels, length=length, has_null=heads.answerable)


def check_fits(note: TaskNote, data: TaskData, folder: Path | str) -> None:
    """An error where a model answers another kind of question, or knows other labels, than a task has."""
    if note.kind != data.kind:
        raise InputError(f"{folder} was made for {_said(note.kind)}, but {data.name} is {_said(data.kind)}")
    if data.kind in ("classify", "multilabel") and len(note.labels) != len(data.labels):
        raise InputError(
            f"{folder} knows {len(note.labels)} labels ({_few(note.labels)}) but {data.name} has {len(data.labels)} "
            f"({_few(data.labels)}); name the task that it was fine-tuned for"
        )


def _said(kind: Kind) -> str:
    said: dict[Kind, str] = {
        "classify": "classification",
        "multilabel": "several labels a text",
        "regress": "regression",
        "choice": "multiple choice",
        "span": "answers out of a passage",
    }
    return said[kind]


def _few(labels: Sequence[str]) -> str:
    return ", ".join(labels[:4]) + (", ..." if len(labels) > 4 else "")


def _softmax(row: Floats) -> npt.NDArray[np.float64]:
    away = np.exp(row.astype(np.float64) - float(row.max()))
    shares: npt.NDArray[np.float64] = away / away.sum()
    return shares


def _chosen(key: str, shares: npt.NDArray[Any]) -> Prediction:
    return Prediction(key=key, label=int(shares.argmax()), probabilities=tuple(map(float, shares)))
