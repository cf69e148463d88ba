"""The models of a server: loading them under names, what each can be asked for, and how fast it is.

An exported model is loaded for one thread, as the server has threads of its own; it needs no torch. A torch model on a
CPU computes with one thread a text as well, on a GPU in batches.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from litebert.errors import InputError
from litebert.parameters import named_source
from litebert.runtime import Runtime, is_exported
from litebert.serving.messages import ModelInfo, Refusal, TaskInfo
from litebert.serving.work import CPU, GPU, SMOOTHING
from litebert.tasks.kinds import KINDS
from litebert.text_model import TextModel

WARM_UP = "The first texts take longer, as memory is reserved and files are read; so read one before anyone asks."
FIRST_GUESS = 1e-5  # seconds of a token in a layer, until the first run

log = logging.getLogger(__name__)


class Served:
    """A model under its name."""

    def __init__(self, name: str, model: TextModel, engine: str, lane: str) -> None:
        assert model.tokenizer is not None
        self.name, self.model, self.engine, self.lane = name, model, engine, lane
        self.tokenizer = model.tokenizer
        model.name = name  # errors name it, and no client need know where it lies
        self.any_depth = model.any_depth if isinstance(model, Runtime) else True
        self.exits = model.has_exits if isinstance(model, Runtime) else getattr(model, "exits", None) is not None
        self.loaded_at = int(time.time())
        self._token_seconds = FIRST_GUESS

    @property
    def can(self) -> list[str]:
        """What it can be asked for, by the names of the routes."""
        heads, task = self.model.heads, self.model.task
        found = ["embeddings"]
        if task is not None and KINDS[task.kind].head:  # what was tuned for vectors has none
            found.append("predict")
            if task.kind in ("regress", "classify") and (task.pairs or not task.text):
                found.append("rerank")
        if "masked_lm" in heads and self.tokenizer.mask_id is not None:
            found.append("fill")
        if "order" in heads:
            found.append("order")
        return [*found, "tokenize"]

    def info(self) -> ModelInfo:
        """What ``/info`` says of it."""
        model, spec = self.model, self.model.task
        pooling, normalize = model.sentence_defaults
        task = None
        if spec is not None:
            columns = [] if KINDS[spec.kind].needs_rows else list(spec.text)
            task = TaskInfo(
                kind=spec.kind, labels=list(model.labels), columns=columns, pairs=spec.pairs, max_tokens=spec.length
            )
        return ModelInfo(
            name=self.name,
            family=self.tokenizer.family,
            engine=self.engine,
            layers=model.num_layers,
            any_depth=self.any_depth,
            width=model.width,
            max_tokens=model.max_length,
            mask_token=self.tokenizer.mask_token,
            pooling=pooling,
            normalize=normalize,
            exits=self.exits,
            can=self.can,
            task=task,
        )

    def depth(self, asked: int | None) -> int | None:
        """The depth of a request, checked."""
        if asked is None:
            return self.model.depth
        if not 1 <= asked <= self.model.num_layers:
            message = f"depth is {asked} but {self.name} has depths 1 to {self.model.num_layers}"
            raise Refusal(422, "bad_field", message, param="depth")
        if not self.any_depth and asked != self.model.num_layers:
            message = f"depth is {asked} but {self.name} always runs its {self.model.num_layers} layers; leave it out"
            raise Refusal(422, "bad_field", message, param="depth")
        return asked

    def cost(self, tokens: int, depth: int | None) -> float:
        """Seconds of a thread that some tokens take."""
        return tokens * (depth or self.model.num_layers) * self._token_seconds

    def observe(self, tokens: int, depth: int | None, seconds: float) -> None:
        """Learn from a run how long a token takes."""
        latest = seconds / max(tokens * (depth or self.model.num_layers), 1)
        self._token_seconds += SMOOTHING * (latest - self._token_seconds)

    def warm_up(self) -> None:
        """Read a text, and know from it how long a token takes."""
        self.model.encode(WARM_UP)
        begun = time.perf_counter()
        self.model.encode(WARM_UP)
        self._token_seconds = (time.perf_counter() - begun) / len(self.tokenizer.encode(WARM_UP).ids)
        self._token_seconds /= self.model.depth or self.model.num_layers


class Models:
    """All models of a server; the first is the default."""

    def __init__(self, models: Sequence[Served]) -> None:
        self._by_name = {one.name: one for one in models}

    def __iter__(self) -> Any:
        return iter(self._by_name.values())

    def named(self, name: str | None, able: str) -> Served:
        """The model of a name, if it can do what is asked."""
        found = next(iter(self)) if name is None else self._by_name.get(name)
        if found is None:
            known = ", ".join(self._by_name)
            raise Refusal(404, "no_such_model", f"there is no model '{name:.60}'; there is {known}", param="model")
        if able not in found.can:
            able_ones = [one.name for one in self if able in one.can]
            hint = f"name {' or '.join(able_ones)} in model" if able_ones else "this server has no model that can"
            raise Refusal(422, "not_able", f"{found.name} cannot {able}; {hint}", param="model")
        return found


def load_models(models: Sequence[str], *, device: str = "auto") -> Models:
    """Load models under their names: ``NAME=FOLDER``, or the name of the folder."""
    found: dict[str, Served] = {}
    for words in models:
        name, source = named_source(words)
        if name in found:
            raise InputError(f"two models are called '{name}'; name them: NAME={source}", parameter="models")
        served = _load(name, source, device)
        log.info(f"{name}: {served.model.num_layers} layers, {served.engine}; can {', '.join(served.can)}")
        found[name] = served
    if not found:
        raise InputError("models is missing; name a folder, best one that litebert export wrote", parameter="models")
    return Models(list(found.values()))


def _load(name: str, source: str, device: str) -> Served:
    if is_exported(Path(source)):
        model: TextModel = Runtime(source, threads=1, frugal=True)
        served = Served(name, model, "onnxruntime", CPU)
    else:
        if not Path(source).exists() and "/" in source and source.count("/") != 1:
            raise InputError(f"there is no folder '{source}'; check the name", parameter="models")
        try:
            from litebert.model import load
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise InputError(
                f"{source} is not an exported folder, and others need torch; export it with `litebert export`",
                parameter="models",
            ) from None
        loaded = load(source, device=device)
        if loaded.tokenizer is None:
            raise InputError(f"{source} has no tokenizer, so texts cannot be read", parameter="models")
        loaded.network.eval()
        on_gpu = loaded.device.type == "cuda"
        if not on_gpu:
            import torch

            torch.set_num_threads(1)  # the server has a thread for each core
        served = Served(name, loaded, "torch", GPU if on_gpu else CPU)
    served.warm_up()
    return served
