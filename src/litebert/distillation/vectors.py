"""A student learns the vectors of a teacher: sentence vectors from texts alone, by regression and in-batch contrast.

The teacher reads every text once, before training: its vectors, less their mean, are targets like any other, and it may
have another tokenizer, another width or another family than the student. The student's vectors are compared with the
teacher's in a space that a fixed rotation joins (orthogonal Procrustes on the student's first vectors), so cosines are
learnt as they are and nothing is left behind in the model. Texts that come as pairs are also told from the other pairs
of their batch (``litebert.tasks.objective``). Dev is texts that were set apart, and measures whether the student's
cosines sort them as the teacher's do.

T tokens, S sequences, R inputs, U units, O texts of a unit, H width of the student, D of the teacher.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.checkpoints.folder import Loaded, load_model, model_folder
from litebert.data.files import kind_of, text_lines
from litebert.data.tables import Source, read_table
from litebert.errors import InputError
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.pooling import Pooling, pool, read_sentence_settings
from litebert.runs import Parent, parent_of
from litebert.tasks.columns import Names, TableRow, find_columns
from litebert.tasks.encoding import IGNORED, Inputs, TaskBatch, gather, token_batches
from litebert.tasks.examples import EncodingSettings, Example, TaskData
from litebert.tasks.finetune import FinetuneResult, FinetuneSettings, check_folder, finetune, prepare
from litebert.tasks.kinds import KINDS
from litebert.tasks.kinds.embed import TOGETHER
from litebert.tasks.objective import TaskObjective, by_unit, device_tensors, head_outputs, pair_loss, takes_segments
from litebert.tasks.predicting import BUDGET
from litebert.tasks.tables import PLAIN
from litebert.terminal import ProgressBar
from litebert.text.tokenizer import Tokenizer
from litebert.train import precision
from litebert.train.objective import Objective, Part

log = logging.getLogger(__name__)

MOST_DEV = 1000  # lines that are set apart
ALIGNED = 4096  # texts by which the student's space is turned into the teacher's
VECTORS = "vectors"  # file of the teacher's vectors in the run folder, kept until the run is finished
Halves = npt.NDArray[np.float16]


@dataclass(frozen=True, kw_only=True)
class VectorSettings:
    """The parts of the loss, beside the teacher's vectors, whose weight is 1."""

    contrast: float = 0.05  # weight of telling pairs apart

    def __post_init__(self) -> None:
        if self.contrast < 0:
            raise InputError(f"contrast is {self.contrast:g} but must be 0 or more", parameter="contrast")


@dataclass(frozen=True)
class VectorTeacher:
    """A model whose vectors are learnt."""

    folder: str
    network: Network
    tokenizer: Tokenizer
    pooling: Pooling
    length: int

    @classmethod
    def load(cls, folder: str) -> "VectorTeacher":
        """Any encoder with a tokenizer; pooled as its sentence-transformers files say, else by the mean."""
        loaded = load_model(folder)
        if loaded.tokenizer is None or not model_folder(folder).is_dir():
            raise InputError(
                f"{folder} has no weights or no tokenizer; the teacher is a trained model that reads texts"
            )
        settings, notes = read_sentence_settings(model_folder(folder))
        for note in notes:
            log.warning(note)
        encoder = loaded.network.config.encoder
        most = encoder.max_positions if encoder.positions == "absolute" else 512
        pooling, length = (settings.pooling, settings.max_length) if settings else (None, None)
        network = loaded.network.eval().requires_grad_(False)
        return cls(folder, network, loaded.tokenizer, pooling or "mean", min(length or most, most))

    @torch.no_grad()
    def vectors(self, items: Sequence[Example], device: torch.device, length: int | None) -> Halves:
        """(R, D) the vectors of all texts, of length 1 after their mean was taken away."""
        settings = EncodingSettings(length=min(length or self.length, self.length))
        inputs = KINDS["embed"].encode(items, self.tokenizer, settings)
        network, width = self.network.to(device), self.network.config.encoder.width
        found = np.empty((len(inputs), width), np.float32)
        arithmetic, done = precision.training_precision(device, width), 0
        with (
            precision.cast(arithmetic, device),
            ProgressBar("the teacher reads the texts", len(inputs)) as bar,
        ):
            for rows in token_batches(inputs.lengths, BUDGET[device.type]):
                tensors = device_tensors(batch := gather(inputs, rows), device)
                layout = Layout(tensors["starts"], tensors["positions"], batch.longest)
                segments = tensors["segments"] if takes_segments(network) else None
                states = network.encoder(tensors["ids"], layout, segments)
                found[rows] = F.normalize(pool(network, states, layout, self.pooling)).cpu().numpy()
                bar.update(done := done + len(rows))
        self.network.to("cpu")
        found -= found.mean(0)
        found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-6)
        return found.astype(np.float16)

    def digest(self) -> str:
        """Of the weights."""
        digest = hashlib.sha256()
        for name, tensor in self.network.state_dict().items():
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()[:16]


def read_texts(source: Source, text: Names = None) -> list[Example]:
    """Texts to learn vectors of: lines, with a tab before the second text of a pair, or one or two columns."""
    if isinstance(source, str | Path):
        path = Path(source)
        if not path.is_file():
            raise InputError(f"there is no file '{path}'; check the name")
        if kind_of(path) in PLAIN:
            lines = (line.rstrip("\r\n").split("\t") for line, _, _ in text_lines(path, western=True))
            found = [_texts_of(str(number), *parts[:2]) for number, parts in enumerate(lines) if any(parts)]
            return _enough(found, str(path))
    table = read_table(source, labelled=False)
    columns = find_columns(table, text=text, kind="classify", labelled=False)
    rows = [dict(zip(table.columns, cells, strict=True)) for cells in table.rows]
    texts = [TableRow(cells, number, "").texts(columns) for number, cells in enumerate(rows)]
    return _enough([_texts_of(str(number), *some) for number, some in enumerate(texts) if any(some)], table.source)


def _texts_of(key: str, first: str, second: str = "") -> Example:
    first, second = (first, second) if first else (second, "")
    return Example(key=key, first=first, second=second or None, target=TOGETHER)


def _enough(items: list[Example], source: str) -> list[Example]:
    if len(items) < 20:
        raise InputError(f"{source} has {len(items)} texts, too few to learn vectors from; give some thousands")
    return items


class VectorObjective:
    """1 - cosine to the teacher's vector for every text, and the task's own contrast of pairs."""

    def __init__(self, own: TaskObjective, turn: Tensor, contrast: float) -> None:
        self.own, self.turn, self.contrast = own, turn, contrast

    @property
    def _has_pairs(self) -> bool:
        return self.contrast > 0 and self.own.options > 1

    def counts(self, batch: TaskBatch) -> dict[str, int]:
        real = batch.labels != IGNORED
        counted = {"vectors": int(real.sum())}
        return {**counted, "task": int(real[:, :2].all(1).sum())} if self._has_pairs else counted

    def tensors(self, batch: TaskBatch, device: torch.device) -> dict[str, Tensor]:
        return self.own.tensors(batch, device)

    def parts(self, network: Network, tensors: Mapping[str, Tensor]) -> dict[str, Part]:
        layout = Layout(tensors["starts"], tensors["positions"], self.own.bound(tensors))
        segments = tensors["segments"] if takes_segments(network) else None
        states = network.encoder(tensors["ids"], layout, segments)
        vectors = by_unit(head_outputs(network, "embed", states, layout).scores, tensors, self.own.options)
        with torch.autocast(vectors.device.type, enabled=False):
            ours = F.normalize(vectors, dim=-1) @ self.turn  # (U, O, D)
            lost = 1 - (ours * tensors["values"].float().nan_to_num()).sum(-1)
            lost = lost.masked_fill(tensors["labels"] == IGNORED, 0.0).sum()
        parts = {"vectors": Part(lost, torch.full_like(lost.detach(), float("nan")))}
        if self._has_pairs:
            parts["task"] = pair_loss(vectors, tensors, self.own.scale)
        return parts


@dataclass(frozen=True)
class VectorTeaching:
    """The teacher's vectors as they are learnt. It fits ``litebert.tasks.prepare.Teaching``."""

    teacher: VectorTeacher
    settings: VectorSettings
    inputs: Inputs  # of the student,
    wanted: Halves  # (R, D) and the vectors that they should have
    keep: Callable[[], None]  # called when the run folder is there

    def begin(
        self, own: TaskObjective, network: Network, device: torch.device
    ) -> tuple[Objective, Mapping[str, float]]:
        self.keep()
        rows = np.unique(np.linspace(0, len(self.inputs) - 1, min(ALIGNED, len(self.inputs))).astype(np.int64))
        ours = _vectors_of(network, self.inputs, rows, device)
        turn = turned(ours, self.wanted[rows].astype(np.float64))
        objective = VectorObjective(own, torch.from_numpy(turn).to(device), self.settings.contrast)
        return objective, {"task": self.settings.contrast}

    def end(self, network: Network) -> None:
        """Nothing was added to the network."""

    def facts(self) -> dict[str, Any]:
        return {"weights": self.teacher.digest(), **asdict(self.settings)}

    def parents(self) -> list[Parent]:
        return [parent_of("teacher", Path(self.teacher.folder))]


@torch.no_grad()
def _vectors_of(network: Network, inputs: Inputs, rows: npt.NDArray[np.int64], device: torch.device) -> Any:
    """(len(rows), H) what a network makes of some inputs before it is trained."""
    was_training = network.training
    network.eval()
    found = np.empty((len(rows), network.config.encoder.width), np.float64)
    with precision.cast(precision.training_precision(device, found.shape[1]), device):
        for some in token_batches(inputs.lengths[rows], BUDGET[device.type]):
            tensors = device_tensors(batch := gather(inputs, rows[some]), device)
            layout = Layout(tensors["starts"], tensors["positions"], batch.longest)
            segments = tensors["segments"] if takes_segments(network) else None
            states = network.encoder(tensors["ids"], layout, segments)
            found[some] = F.normalize(pool(network, states, layout, "mean")).cpu().numpy()
    network.train(was_training)
    return found


def turned(ours: Any, theirs: Any) -> npt.NDArray[np.float32]:
    """(H, D) with orthonormal columns: what turns vectors (R, H) nearest to others (R, D); their means do not count."""
    left, _, right = np.linalg.svd((ours - ours.mean(0)).T @ theirs, full_matrices=False)
    found: npt.NDArray[np.float32] = (left @ right).astype(np.float32)
    return found


def narrowed(vectors: Halves, width: int) -> Halves:
    """Vectors of at most ``width`` numbers: their main directions, where a student is narrower than its teacher."""
    if vectors.shape[1] <= width:
        return vectors
    sample = vectors[:: max(1, len(vectors) // 50_000)].astype(np.float64)
    _, directions = np.linalg.eigh(sample.T @ sample)  # the largest last
    found = vectors.astype(np.float32) @ directions[:, -width:].astype(np.float32)
    found /= np.maximum(np.linalg.norm(found, axis=1, keepdims=True), 1e-6)
    return found.astype(np.float16)


def dev_pairs(texts: Sequence[str], vectors: Halves, seed: int = 0) -> Iterator[Example]:
    """Each text with another, from its nearest to any, the score being the teacher's cosine."""
    draws = np.random.default_rng(seed)
    near = vectors.astype(np.float32) @ vectors.astype(np.float32).T
    for row, text in enumerate(texts):
        order = np.argsort(-near[row], kind="stable")
        order = order[order != row]
        other = int(order[int(len(order) ** draws.random()) - 1])
        yield Example(key=str(row), first=text, second=texts[other], target=float(near[row, other]))


def distill_vectors(
    settings: FinetuneSettings,
    items: Sequence[Example],
    teacher: VectorTeacher,
    student: Loaded,
    how: VectorSettings,
    name: str = "texts",
) -> FinetuneResult:
    """Train a student to make the teacher's vectors; ``settings.model`` names the student."""
    check_folder(settings.out, settings.resume)
    file = settings.out / f"{VECTORS}-{teacher.digest()}-{_digest_of(items)}.npy"
    if settings.resume and file.is_file():
        vectors: Halves = np.load(file)
    else:
        vectors = teacher.vectors(items, torch.device(settings.device), settings.recipe.length)
        vectors = narrowed(vectors, student.network.config.encoder.width)
    counts = np.asarray([1 if item.second is None else 2 for item in items])
    apart = np.zeros(len(items), bool)
    apart[np.linspace(0, len(items) - 1, min(MOST_DEV, len(items) // 10)).astype(np.int64)] = True
    of_dev = np.repeat(apart, counts)
    texts = [text for item in compress(items, apart) for text in (item.first, item.second) if text is not None]
    data = TaskData(
        name=name,
        kind="embed",
        labels=(),
        metrics=("spearman", "pearson"),
        train=tuple(compress(items, ~apart)),
        dev={"dev": tuple(dev_pairs(texts, vectors[of_dev]))},
    )
    prepared = prepare(settings, data, student)
    wanted, labels = vectors[~of_dev], prepared.targets.labels
    cells = np.full((*labels.shape, wanted.shape[1]), np.nan, np.float16)
    cells[labels != IGNORED] = wanted
    teaching = VectorTeaching(teacher, how, prepared.inputs, wanted, lambda: _keep(file, vectors))
    result = finetune(
        settings, data, replace(prepared, targets=replace(prepared.targets, values=cells), teaching=teaching)
    )
    if result.status != "stopped":
        file.unlink(missing_ok=True)
    return result


def _digest_of(items: Sequence[Example]) -> str:
    digest = hashlib.sha256()
    for item in items:
        digest.update(f"{item.first}\t{item.second}\n".encode(errors="surrogatepass"))
    return digest.hexdigest()[:16]


def _keep(file: Path, vectors: Halves) -> None:
    """Write the teacher's vectors for a resumed run, all or nothing."""
    if not file.is_file():
        temporary = file.with_suffix(".part.npy")
        np.save(temporary, vectors)
        temporary.replace(file)
