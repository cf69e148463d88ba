"""What a fine-tuned model predicts of items: inputs sorted into batches of a bounded number of tokens, predictions in
the order asked; and the task that a model folder was made for."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from litebert.checkpoints.folder import load_model, model_folder
from litebert.config import build
from litebert.data.files import read_object
from litebert.errors import InputError
from litebert.nn.network import Network, NetworkConfig
from litebert.system import usable_device
from litebert.tasks.encoding import Inputs, Integers, gather, token_batches
from litebert.tasks.examples import TASK_FILE, Item, ItemPrediction, TaskSpec
from litebert.tasks.kinds import KINDS, HeadScores, TaskKind, check_fits
from litebert.tasks.kinds.base import Floats
from litebert.tasks.objective import device_tensors, run_head
from litebert.text.tokenizer import Tokenizer
from litebert.train.precision import cast, default_precision
from litebert.train.settings import Precision

__all__ = ["TASK_FILE", "Predictor", "check_fits", "find_spec", "load_predictor", "read_spec", "spec_of_heads"]

BUDGET = {"cpu": 4096, "cuda": 65_536}  # tokens of a forward pass
CHUNK = 4096  # items encoded and predicted at once


@dataclass
class Predictor:
    """A network with its tokenizer and its task, ready to predict. Of a network in training, dropout is off."""

    network: Network
    tokenizer: Tokenizer
    note: TaskSpec
    device: torch.device
    depth: int | None = None
    precision: Precision = "fp32"

    @property
    def kind(self) -> TaskKind:
        return KINDS[self.note.kind]

    def predict(self, items: Sequence[Item], progress: Callable[[int], None] = lambda _: None) -> list[ItemPrediction]:
        """Predictions in the order of the items; ``progress`` gets the number of items done."""
        found: list[ItemPrediction] = []
        chunk = max(1, len(items)) if self.kind.compares else CHUNK
        for first in range(0, len(items), chunk):
            some = items[first : first + chunk]
            inputs = self.kind.encode(some, self.tokenizer, self.note.encoding())
            before = len(found)
            found += self.predict_encoded(some, inputs, lambda share: progress(before + int(share * len(some))))  # noqa: B023
        return found

    def predict_encoded(
        self, items: Sequence[Item], inputs: Inputs, progress: Callable[[float], None] = lambda _: None
    ) -> list[ItemPrediction]:
        """The same for items that are encoded already; ``progress`` gets the share of them that is done."""
        if not items:
            return []
        return self.kind.decode(items, inputs, self.scores(inputs, progress), self.note)

    def scores(self, inputs: Inputs, progress: Callable[[float], None] = lambda _: None) -> HeadScores:
        """What the head gives for every input; ``progress`` gets the share of them that is done."""
        found = {name: np.zeros(0, np.float32) for name in ("scores", "ends", "answerable")}
        done, budget = 0, BUDGET.get(self.device.type, BUDGET["cpu"])
        with torch.no_grad(), _evaluating(self.network), cast(self.precision, self.device):
            for rows in token_batches(inputs.lengths, budget):
                progress(done / len(inputs))
                done += len(rows)
                batch = gather(inputs, rows)
                tensors = device_tensors(batch, self.device)
                outputs = run_head(self.network, self.note.kind, tensors, batch.longest, self.depth)
                tokens = inputs.tokens_of(rows) if self.kind.per_token else rows
                size = len(inputs.ids) if self.kind.per_token else len(inputs)
                found["scores"] = _put(found["scores"], outputs.scores, tokens, size)
                found["ends"] = _put(found["ends"], outputs.ends, tokens, size)
                found["answerable"] = _put(found["answerable"], outputs.answerable, rows, len(inputs))
        return HeadScores(**found)


def _put(array: Floats, values: Tensor | None, places: Integers, size: int) -> Floats:
    """An array with some values put in their places; made to its size with the first of them."""
    if values is None:
        return array
    given = values.cpu().numpy()
    if not len(array):
        array = np.zeros((size, *given.shape[1:]), np.float32)
    array[places] = given
    return array


@contextlib.contextmanager
def _evaluating(network: Network) -> Iterator[None]:
    """Dropout off for a network in training. One that is not is left alone, so that threads can share it."""
    was_training = network.training
    if was_training:
        network.eval()
    try:
        yield
    finally:
        if was_training:
            network.train()


def load_predictor(folder: Path | str, *, device: str = "auto", depth: int | None = None) -> Predictor:
    """A fine-tuned model, on a GPU where there is one."""
    where = torch.device(usable_device(device))
    if not model_folder(folder).is_dir():
        raise InputError(f"there is no folder '{folder}'; name a model that `litebert finetune` made")
    loaded = load_model(folder, device=str(where))
    if loaded.tokenizer is None:
        raise InputError(f"{folder} has no tokenizer, so texts cannot be read; copy the model's tokenizer.json to it")
    spec = read_spec(folder, loaded.network.config)
    deepest = loaded.network.config.encoder.num_layers
    if depth is not None and not 1 <= depth <= deepest:
        raise InputError(f"depth is {depth} but {folder} has depths 1 to {deepest}")
    return Predictor(loaded.network, loaded.tokenizer, spec, where, depth, precision=default_precision(where))


def read_spec(folder: Path | str, config: NetworkConfig) -> TaskSpec:
    """The task of a model folder; an error where it has no head for one."""
    spec = find_spec(folder, config)
    if spec is None:
        raise InputError(f"{folder} has no head for a task; make one with `litebert finetune {folder} ...`")
    return spec


def find_spec(folder: Path | str, config: NetworkConfig) -> TaskSpec | None:
    """The task of a model folder: as its task.json has it, else as far as its heads tell (a folder of others'
    making); None where it has no head for a task."""
    path = model_folder(folder) / TASK_FILE
    if path.is_file():
        try:
            return build(TaskSpec, read_object(path, "write the model again"))
        except ValueError as error:
            raise InputError(f"{path} cannot be used ({error}); remove it and name the task yourself") from None
    return spec_of_heads(config)


def spec_of_heads(config: NetworkConfig) -> TaskSpec | None:
    """What the heads of a network tell about its task."""
    heads = config.heads
    kinds = [kind for kind in KINDS.values() if kind.head in heads.names]
    if not kinds:
        return None
    kind = next((kind for kind in kinds if kind.problem and kind.problem == heads.problem), kinds[0])
    limit = config.encoder.input_limit()
    return TaskSpec(kind=kind.name, labels=heads.labels, length=limit, has_null=heads.answerable)
