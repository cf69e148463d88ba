"""The model of the Python API on torch: ``load`` one, then ask it for vectors, predictions, scores, missing words or
the order of texts (``TextModel``), or make another model of it.

Whatever it runs is packed: texts are sorted by length into batches of a bounded number of tokens, without padding, and
results come in the order of the texts.
"""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from litebert.checkpoints.folder import load_model, model_folder, save_model
from litebert.config import preset_names
from litebert.distillation.run import read_for
from litebert.early_exits.calibrate import MOST, make_exits
from litebert.early_exits.heads import Exits, read_exits
from litebert.early_exits.predict import EngineCache, ExitPredictor
from litebert.errors import InputError, nearest
from litebert.fill import Guess, best_pieces
from litebert.hub import hub_folder, is_hub_name
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.planning.count import SHORT
from litebert.pooling import Pooling, SentenceSettings, pool, read_sentence_settings
from litebert.pretraining.memory import longest_that_fits
from litebert.runtime import is_exported
from litebert.tasks.columns import Names
from litebert.tasks.encoding import Inputs, token_batches
from litebert.tasks.examples import TASK_FILE, Prediction, TaskData, TaskSpec
from litebert.tasks.kinds import HeadScores
from litebert.tasks.predicting import Predictor, find_spec, spec_of_heads
from litebert.text.tokenizer import Encoded, Tokenizer
from litebert.text_model import Report, TextModel, Vectors, is_whole
from litebert.train.precision import default_precision, has_bf16

if TYPE_CHECKING:
    from litebert.exporting.folder import Exported

__all__ = ["Guess", "Model", "Prediction", "load"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
BATCH_TOKENS = 8192  # of a forward pass

log = logging.getLogger(__name__)


class Model(TextModel):
    """A torch network with its tokenizer and, where it was fine-tuned, its task.

    ``network`` is the torch module, for training or gradients; ``exits`` are its early exits, None without;
    ``notes`` the warnings from loading it.
    """

    def __init__(
        self,
        network: Network,
        tokenizer: Tokenizer | None,
        notes: Sequence[str] = (),
        *,
        task: TaskSpec | None = None,
        depth: int | None = None,
        sentence: SentenceSettings | None = None,
        exits: Exits | None = None,
        name: str = "this model",
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.notes = list(notes)
        self.task = task or spec_of_heads(network.config)
        self.depth = self._depth(depth) if depth is not None else None
        self.name = name
        self.exits = exits
        self._sentence = sentence or SentenceSettings()
        self._engines = EngineCache()
        self._compiled = False
        self._fits: int | None = None  # tokens of the longest text that there is memory for, once it was asked for

    def __repr__(self) -> str:
        config = self.config
        size = sum(parameter.numel() for parameter in self.network.parameters())
        depth = f", depth={self.depth}" if self.depth is not None else ""
        made_for = f", task={self.task.task or self.task.kind!r}" if self.task else ""
        return (
            f"Model({self.name!r}, family={config.family!r}, layers={config.num_layers}{depth}, width={config.width}, "
            f"parameters={size:,}{made_for}, device='{self.device}')"
        )

    @property
    def config(self) -> EncoderConfig:
        """The shape of the encoder."""
        return self.network.config.encoder

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.network.encoder.embeddings.token.weight.device

    @property
    def num_layers(self) -> int:  # type: ignore[override]
        """How many layers it has."""
        return self.config.num_layers

    @property
    def width(self) -> int:  # type: ignore[override]
        """The length of a vector."""
        return self.config.width

    @property
    def max_positions(self) -> int | None:  # type: ignore[override]
        """The most tokens of an input; None: any number."""
        return self.config.max_positions if self.config.positions == "absolute" else None

    @property
    def heads(self) -> tuple[str, ...]:  # type: ignore[override]
        """The heads it has."""
        return (*self.network.config.heads.names, *(("pooler",) if self.network.pooler is not None else ()))

    # What it computes

    @torch.no_grad()
    def _vectors(
        self, inputs: Sequence[Encoded], pooling: Pooling, depth: int | None, batch_tokens: int, report: Report
    ) -> Vectors:
        found = np.empty((len(inputs), self.width), np.float32)
        done = 0
        for batch, states, layout in self._batches(inputs, depth, batch_tokens):
            found[batch] = pool(self.network, states, layout, pooling).cpu().numpy()
            done += len(batch)
            report(done)
        return found

    def _head_scores(
        self, inputs: Inputs, depth: int | None, exits: bool | float, report: Callable[[float], None]
    ) -> HeadScores:
        return self.predictor(depth, exits=exits).scores(inputs, report)

    @property
    def _item_chunk(self) -> int:  # with exits a GPU's buffer should seldom run empty
        return 65_536 if self.device.type == "cuda" else super()._item_chunk

    @torch.no_grad()
    def _likeliest(
        self, inputs: Sequence[Encoded], gaps: Sequence[Sequence[int]], top: int, depth: int | None
    ) -> list[list[list[tuple[int, float]]]]:
        found: list[list[list[tuple[int, float]]]] = [[] for _ in inputs]
        for batch in token_batches([len(one.ids) for one in inputs], BATCH_TOKENS):
            packed = self._pack_encoded([inputs[index] for index in batch])
            starts = accumulate((len(inputs[index].ids) for index in batch), initial=0)
            owners = [
                (index, start + place) for index, start in zip(batch, starts, strict=False) for place in gaps[index]
            ]
            flat = torch.tensor([place for _, place in owners], device=self.device)
            for (index, _), pieces in zip(owners, best_pieces(self.network, packed, flat, top, depth), strict=True):
                found[index].append(pieces)
        return found

    @torch.no_grad()
    def _in_order(self, inputs: Sequence[Encoded], depth: int | None) -> Vectors:
        found = np.empty(len(inputs), np.float32)
        for batch, states, layout in self._batches(inputs, depth):
            scores = self.network.heads["order"](self.network.pooled(states, layout))
            found[batch] = scores.float().softmax(-1)[:, 0].cpu().numpy()
        return found

    def _batches(
        self, inputs: Sequence[Encoded], depth: int | None, batch_tokens: int = BATCH_TOKENS
    ) -> Iterator[tuple[np.ndarray, Tensor, Layout]]:
        """The states of all inputs, batch by batch, with the numbers of the inputs in each."""
        for batch in token_batches([len(one.ids) for one in inputs], batch_tokens):
            flat, layout, segments = self._pack_encoded([inputs[index] for index in batch])
            yield batch, self.network.encoder(flat, layout, segments, depth=depth), layout

    @torch.no_grad()
    def states(
        self,
        ids: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        depth: int | None = None,
    ) -> list[Tensor]:
        """A packed (tokens, width) tensor of all sequences for each depth; depth 0 is the embeddings."""
        flat, layout, packed_segments = self._pack(ids, segments)
        at = self._depth(depth)
        return self.network.encoder.states(flat, layout, packed_segments, depth=at)

    def predictor(self, depth: int | None = None, *, exits: bool | float = False) -> Predictor:
        """The object that predicts items of the task, for code that has items rather than texts."""
        at = self._depth(depth)
        whole = next(self.network.parameters()).dtype == torch.float32
        precision = default_precision(self.device) if whole else "fp32"  # no autocast for weights in half precision
        made = (self.network, self._tokenizer(), self.required_task("predict"), self.device)
        if exits is False:
            return Predictor(*made, at, precision=precision)
        if at is not None:
            raise InputError(f"depth is {at}, but with exits every text has its own depth; leave out one of them")
        if self.exits is None:
            raise InputError(f"{self.name} has no early exits; make them with add_exits or `litebert exits`")
        return ExitPredictor(
            *made,
            precision=precision,
            exits=self.exits.to(self.device),
            rule=self.exits.rule(exits),
            compiled=self._compiled,
            cache=self._engines,
        )

    def add_exits(
        self,
        data: Any,
        *,
        task: str | None = None,
        text: Names = None,
        label: Names = None,
        dev: Any = None,
        max_loss: float = 0.3,
        items: int = MOST,
    ) -> "Model":
        """Train a head for every depth and calibrate a rule for exiting early; returns the model itself.

        Heads learn from training rows of ``data`` (at most ``items``), the rule from its held-out rows, where it loses
        at most ``max_loss`` points of the task's score. ``save`` writes both, ``predict(exits=True)`` uses them.
        """
        spec = self.required_task("have exits")
        read = data if isinstance(data, TaskData) else read_for(spec, task, data, text, label, dev)
        self.exits = make_exits(self.predictor(), read, name=self.name, max_loss=max_loss, most=items)
        self._engines = EngineCache()
        return self

    def _limit(self, max_length: int | None) -> int:
        """As for every model; of one with many positions, by default no more than there is memory for."""
        found = super()._limit(max_length)
        if max_length is not None or found <= SHORT:
            return found
        if self._fits is None:
            self._fits = longest_that_fits(self.config, "infer", self.device, "fp32", BATCH_TOKENS)
        return min(found, self._fits)

    # Other models from this one

    def drop(
        self, *, layers: int | Iterable[int] | None = None, strategy: str | None = None, count: int | None = None
    ) -> "Model":
        """A new model without some layers: ``layers`` by number (1 is the lowest), or ``count`` layers by ``strategy``.

        Strategies are top (default), bottom, even, odd and symmetric. The new model shares its weights with this one.
        """
        from litebert.shrinking.drop import drop_layers
        from litebert.shrinking.strategies import NEEDS_TEXT, drop_fixed, kept_of, parse_strategy

        deepest = self.config.num_layers
        if (layers is None) == (count is None):
            raise InputError("drop takes either layers (their numbers) or count (with a strategy)")
        if layers is not None:
            if strategy is not None:
                raise InputError("layers names what to drop; leave out strategy")
            dropped = tuple(sorted({layers} if isinstance(layers, int) else set(layers)))
            wrong = [layer for layer in dropped if not 1 <= layer <= deepest]
            if wrong or not dropped or len(dropped) == deepest:
                named = f"layer {wrong[0]}" if wrong else "all layers" if dropped else "no layer"
                raise InputError(f"layers names {named}; name some, but not all, of the layers 1 to {deepest}")
        else:
            chosen = parse_strategy(strategy or "top")
            if chosen in NEEDS_TEXT:
                raise InputError(f"strategy {chosen} needs texts; use litebert.shrink with texts, or another strategy")
            assert count is not None
            dropped = drop_fixed(chosen, deepest, count)
        network = drop_layers(self.network, kept_of(deepest, dropped))
        return self._like(network, None)

    def lengthened(
        self,
        to: int = 4096,
        *,
        attention: str = "local(256)+global",
        positions: Literal["tiled", "interpolated"] = "tiled",
    ) -> "Model":
        """A new model with the same weights that reads texts of up to ``to`` tokens, with sparse attention.

        It has seen no long text yet: train it (``litebert.lengthen`` with a corpus), or fine-tune it on long texts.
        """
        from litebert.pretraining.lengthen import lengthened

        network = lengthened(self.network, to, attention, positions, self.name)
        found = self._like(network, self.depth)
        limit = self._sentence.max_length
        found._sentence = replace(self._sentence, max_length=limit and to)
        found.task = self.task and replace(self.task, length=to)
        return found

    def at_depth(self, depth: int) -> "Model":
        """A model with the same weights that by default runs only its first ``depth`` layers."""
        if not is_whole(depth) or not 1 <= depth <= self.config.num_layers:
            raise InputError(f"depth is {depth!r} but must be a whole number from 1 to {self.config.num_layers}")
        return self._like(self.network, depth)

    def _like(self, network: Network, depth: int | None) -> "Model":
        return Model(
            network,
            self.tokenizer,
            self.notes,
            task=self.task,
            depth=depth,
            sentence=self._sentence,
            exits=self.exits if network is self.network else None,
            name=self.name,
        )

    def to(self, device: str | torch.device) -> "Model":
        """Move the weights to a device (auto, cpu, cuda, cuda:1, ...); returns the model itself."""
        self.network.to(_usable(device))
        self._engines = EngineCache()
        return self

    def half(self) -> "Model":
        """Convert the weights to bfloat16, or to float16 on a GPU without bfloat16; returns the model itself."""
        old_gpu = self.device.type == "cuda" and not has_bf16(self.device)
        self.network.to(torch.float16 if old_gpu else torch.bfloat16)
        self._engines = EngineCache()
        return self

    def compile(self) -> "Model":
        """Compile the encoder with ``torch.compile`` at the next call; returns the model itself."""
        self.network.encoder.compile(dynamic=True)
        self._engines, self._compiled = EngineCache(), True
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder for litebert, and for ``transformers`` wherever it has a class for the model.

        A model from ``at_depth`` is saved with only the layers that it runs.
        """
        files = self.side_files()
        task = {name: content for name, content in files.items() if name == TASK_FILE}
        save_model(folder, self.cut_to_depth(), self.tokenizer, verb="save", files=task)
        for name, content in files.items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")
        if self.exits is not None and self.depth is None:
            self.exits.save(Path(folder))

    def export(
        self,
        folder: str | os.PathLike[str],
        *,
        bits: Literal[32, 8, 4] = 8,
        per_tensor: bool = False,
        standard: bool = True,
        overwrite: bool = False,
    ) -> "Exported":
        """Write ONNX files that run without torch: ``litebert.load(folder)`` runs them, and other programs do.

        ``bits`` are those of the weights: 8, 32 (fp32), or 4 (stored in 4 bits, computed in 8). Activations have a
        scale for each token, so that no answer depends on its neighbours; with ``per_tensor`` one for all of them,
        which browsers compute faster. ``standard`` also writes ``onnx/model.onnx`` and ``onnx/model_quantized.onnx``
        with the inputs and outputs that sentence-transformers, fastembed and transformers.js expect.
        """
        from litebert.exporting.folder import export_model

        activations: Literal["token", "tensor"] = "tensor" if per_tensor else "token"
        return export_model(
            self, Path(folder), bits=bits, activations=activations, standard=standard, overwrite=overwrite
        )

    def cut_to_depth(self) -> Network:
        """The network without the layers that the model does not run."""
        if self.depth is None or self.depth >= self.config.num_layers:
            return self.network
        from litebert.shrinking.drop import drop_layers

        return drop_layers(self.network, range(1, self.depth + 1))

    def side_files(self) -> dict[str, str]:
        """The texts that belong to its folder, by name: its task, and how texts become vectors."""
        task = {TASK_FILE: self.task.text_of_file()} if self.task else {}
        return task | self._sentence.files(self.config.width)

    # Inputs

    def _pack_encoded(self, encoded: Sequence[Encoded]) -> tuple[Tensor, Layout, Tensor | None]:
        return self._pack([one.ids for one in encoded], [one.segments for one in encoded])

    def _pack(
        self, ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None
    ) -> tuple[Tensor, Layout, Tensor | None]:
        """Flat ids, their layout and flat segments on the model's device, checked."""
        if not ids:
            raise InputError("there are no sequences; give at least one list of token ids")
        lengths = [len(sequence) for sequence in ids]
        limit = self.config.max_positions if self.config.positions == "absolute" else max(lengths)
        for number, length in enumerate(lengths):
            if length == 0:
                raise InputError(f"sequence {number} is empty")
            if length > limit:
                raise InputError(
                    f"sequence {number} has {length} tokens but the model has {limit} positions; cut or split it"
                )
        flat = torch.tensor([id for sequence in ids for id in sequence], dtype=torch.long)
        outside = (flat < 0) | (flat >= self.config.vocab_size)
        if outside.any():
            raise InputError(
                f"id {int(flat[outside][0])} is outside the vocabulary of {self.config.vocab_size}; was the text "
                "tokenised for another model?"
            )
        packed = None
        if segments is not None:
            if [len(sequence) for sequence in segments] != lengths:
                raise InputError("segments and ids differ in length; give one segment id for each token")
            packed = torch.tensor([segment for sequence in segments for segment in sequence], dtype=torch.long)
            known = self.config.num_segments or int(packed.max()) + 1  # relative segments are only compared
            if int(packed.min()) < 0 or int(packed.max()) >= known:
                raise InputError(f"segment {int(packed.max())} is outside the model's {known} segments")
            packed = packed.to(self.device)
        return flat.to(self.device), Layout.of(lengths, self.device), packed


def load(
    source: str | os.PathLike[str],
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
    depth: int | None = None,
) -> Model:
    """Load a model: a folder (litebert or Hugging Face), a shipped name, a preset (random weights) or a Hub name.

    ``device="auto"`` is a GPU if there is one; ``dtype`` defaults to float32; ``depth`` is the default number of layers
    to run. Weights that a checkpoint lacks are initialised at random, with a warning.
    """
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"source is {source!r:.80} but must be a folder, a model name or a preset")
    numbers = DTYPES.get(str(dtype or "float32").removeprefix("torch."))
    if numbers is None:
        raise InputError(f"dtype is '{dtype}'{nearest(str(dtype), DTYPES)}")
    where = _usable(device)
    folder = model_folder(source)
    if is_exported(folder):
        raise InputError(f"{source} is an exported model, which litebert.load(...) runs; name the model it was made of")
    name = str(source)
    if not folder.is_dir() and name not in preset_names("models") and is_hub_name(name):
        source = folder = hub_folder(name)
    elif not folder.is_dir() and os.sep in name:
        raise InputError(f"there is no folder '{name}'; check the name")
    loaded = load_model(source, device=str(where), dtype=numbers)
    task = find_spec(folder, loaded.network.config)
    sentence, notes = read_sentence_settings(folder)
    exits, exit_notes = read_exits(folder, loaded.network) if task is not None else (None, [])
    notes = [*loaded.notes, *notes, *exit_notes]
    for note in notes:
        log.warning(note)
    return Model(
        loaded.network,
        loaded.tokenizer,
        notes,
        task=task,
        depth=depth,
        sentence=sentence,
        exits=exits,
        name=name,
    )


def _usable(device: str | torch.device) -> torch.device:
    """A device by name; auto: a GPU if there is one."""
    if str(device) == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(device)
    except RuntimeError:
        raise InputError(f"device is '{device}' but must be auto, cpu, cuda or another name that torch knows") from None
    if found.type == "cuda" and not torch.cuda.is_available():
        raise InputError("device is cuda but there is no CUDA device here; use cpu or auto")
    return found
