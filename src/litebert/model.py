"""The model of the Python API: ``load`` one, then encode, predict, evaluate, fill masks or order texts with it.

Texts are sorted by length into batches of a bounded number of tokens, without padding; results come in the order of the
texts. No call changes the model, so any number of threads can share it.
"""

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from litebert.checkpoints.folder import load_model, model_folder, save_model
from litebert.config import preset_names
from litebert.errors import InputError, nearest
from litebert.fill import Guess, best_pieces, gap_places, guess_at
from litebert.hub import hub_folder, is_hub_name
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.pooling import SentenceSettings, check_pooling, pool, read_sentence_settings
from litebert.tasks.batches import token_batches
from litebert.tasks.columns import Names
from litebert.tasks.evaluate import Evaluation, evaluate_model, in_order_of
from litebert.tasks.examples import Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds import KINDS
from litebert.tasks.predicting import TASK_FILE, Predictor, check_fits, find_spec, spec_of_heads
from litebert.tasks.sources import read_task
from litebert.terminal import ProgressBar
from litebert.text.tokenizer import Encoded, Tokenizer
from litebert.train.precision import default_precision, has_bf16

__all__ = ["Guess", "Model", "Prediction", "load"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
CHUNK = 16_384  # texts tokenised and encoded at a time
UNBOUNDED = 512  # default maximum of tokens for models without one (XLNet); max_length can be higher
Vectors = npt.NDArray[np.float32]

log = logging.getLogger(__name__)


class Model:
    """A network with its tokenizer and, where it was fine-tuned, its task.

    ``network`` is the torch module, for training or gradients; ``task`` describes what it was fine-tuned for (None: not
    fine-tuned); ``notes`` are the warnings from loading it.
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
        name: str = "this model",
    ) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.notes = list(notes)
        self.task = task or spec_of_heads(network.config)
        self.depth = self._checked_depth(depth)
        self.name = name
        self._sentence = sentence or SentenceSettings()

    def __repr__(self) -> str:
        config = self.config
        size = sum(parameter.numel() for parameter in self.network.parameters())
        made_for = f", task={self.task.task or self.task.kind!r}" if self.task else ""
        depth = f", depth={self.depth}" if self.depth is not None else ""
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
    def labels(self) -> tuple[str, ...]:
        """The labels it predicts, in the order of its head; empty without a task or for a task without labels."""
        return self.task.labels if self.task and KINDS[self.task.kind].has_classes else ()

    # Vectors

    def encode(
        self,
        texts: str | Iterable[str],
        pairs: str | Iterable[str] | None = None,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        as_tensor: bool = False,
        progress: bool | None = None,
        depth: int | None = None,
        max_length: int | None = None,
        batch_tokens: int = 8192,
    ) -> Any:
        """One vector for a text, or an array (texts, width) for any iterable of texts, in float32.

        ``pairs`` are second texts, one for each text. ``pooling`` is how token states become one vector: ``mean``,
        ``first`` (the [CLS] token) or ``pooler``. ``normalize`` scales vectors to length 1. The defaults of both are
        those in a sentence-transformers folder, otherwise ``mean`` and False. Texts longer than ``max_length`` tokens
        (default: the model's maximum) are cut, and one warning reports how many. ``progress=None`` shows a bar on a
        terminal or in a notebook if encoding takes longer than two seconds.
        """
        rows, single = _texts(texts, "texts")
        seconds = None if pairs is None else _texts(pairs, "pairs")[0]
        if seconds is not None and len(seconds) != len(rows):
            raise InputError(f"{len(rows)} texts but {len(seconds)} pairs; give one for each text")
        way = check_pooling(pooling or self._sentence.pooling or "mean", self.network)
        scaled = self._sentence.normalize if normalize is None else normalize
        at = self.depth if depth is None else self._checked_depth(depth)
        limit = self._limit(max_length)
        vectors = torch.empty(len(rows), self.config.width)
        cut = 0
        with torch.no_grad(), ProgressBar("encoding texts", len(rows), progress) as bar:
            for first in range(0, len(rows), CHUNK):
                some = slice(first, first + CHUNK)
                encoded, shortened = self._encode_texts(rows[some], None if seconds is None else seconds[some], limit)
                cut += shortened
                done = first
                for batch in token_batches([len(one.ids) for one in encoded], batch_tokens):
                    flat, layout, segments = self._pack_encoded([encoded[index] for index in batch])
                    states = self.network.encoder(flat, layout, segments, depth=at)
                    vectors[torch.from_numpy(first + batch)] = pool(self.network, states, layout, way).cpu()
                    done += len(batch)
                    bar.update(done)
        if cut:
            log.warning(f"{cut:,} of {len(rows):,} texts are longer than {limit} tokens and were cut (max_length)")
        if scaled:
            vectors = torch.nn.functional.normalize(vectors, dim=-1)
        found = vectors if as_tensor else vectors.numpy()
        return found[0] if single else found

    def _limit(self, max_length: int | None) -> int:
        """The maximum number of tokens of an input."""
        bounded = self.config.positions == "absolute"
        if max_length is None:
            most = self.config.max_positions if bounded else UNBOUNDED
            return min(self._sentence.max_length or most, most)
        if not _is_whole(max_length) or max_length < 3:
            raise InputError(f"max_length is {max_length!r} but must be a whole number, 3 or more")
        if bounded and max_length > self.config.max_positions:
            raise InputError(f"max_length is {max_length} but the model has {self.config.max_positions} positions")
        return max_length

    def _encode_texts(self, texts: Sequence[str], pairs: Sequence[str] | None, limit: int) -> tuple[list[Encoded], int]:
        """The inputs of texts, and how many of them were cut."""
        tokenizer = self._tokenizer()
        if self._sentence.lower_case:
            texts = [text.lower() for text in texts]
            pairs = None if pairs is None else [text.lower() for text in pairs]
        ids = tokenizer.ids_batch([*texts, *(pairs or ())])
        seconds: Sequence[list[int] | None] = [None] * len(texts) if pairs is None else ids[len(texts) :]
        special = len(tokenizer.lay_out([], None if pairs is None else []).ids)
        both = list(zip(ids[: len(texts)], seconds, strict=True))
        cut = sum(len(first) + len(second or ()) + special > limit for first, second in both)
        return [tokenizer.lay_out(first, second, limit) for first, second in both], cut

    @torch.no_grad()
    def states(
        self,
        ids: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        depth: int | None = None,
    ) -> list[Tensor]:
        """A packed (tokens, width) tensor of all sequences for each depth; depth 0 is the embeddings."""
        flat, layout, packed_segments = self._pack(ids, segments)
        at = self.depth if depth is None else self._checked_depth(depth)
        return self.network.encoder.states(flat, layout, packed_segments, depth=at)

    # Predictions

    @overload
    def predict(
        self,
        texts: str | Mapping[str, Any],
        pairs: str | None = None,
        *,
        depth: int | None = None,
        progress: bool | None = None,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        texts: Iterable[Any],
        pairs: Iterable[str] | None = None,
        *,
        depth: int | None = None,
        progress: bool | None = None,
    ) -> list[Prediction]: ...

    def predict(
        self,
        texts: str | Mapping[str, Any] | Iterable[Any],
        pairs: str | Iterable[str] | None = None,
        *,
        depth: int | None = None,
        progress: bool | None = None,
    ) -> Prediction | list[Prediction]:
        """The predictions of a fine-tuned model: one ``Prediction`` for a text, a list for any iterable of texts.

        A model for pairs takes the second texts as ``pairs``, or tuples of two. A model that was fine-tuned on named
        columns also takes dicts, or a DataFrame, with these columns. A multiple-choice model takes dicts with
        ``question``, ``options`` and optionally ``passage``; a question-answering model takes dicts with ``question``
        and ``context``.
        """
        spec = self._task("predict")
        items, single = self._items(texts, pairs, spec)
        with ProgressBar("predicting", len(items), progress) as bar:
            found = self.predictor(depth).predict(items, bar.update)
            bar.update(len(items))
        kind = KINDS[spec.kind]
        shown = [kind.present(item, one, spec) for item, one in zip(items, found, strict=True)]
        return shown[0] if single else shown

    def evaluate(
        self,
        data: Any,
        *,
        task: str | None = None,
        text: Names = None,
        label: Names = None,
        kind: str | None = None,
        split: str | None = None,
        depth: int | None = None,
        depths: Sequence[int] = (),
        from_hub: bool = False,
        progress: bool | None = None,
    ) -> Evaluation:
        """The official metrics of the task on data: ``scores``, and ``per_label``, ``confusion``, ``hardest``.

        ``data`` is anything that ``finetune`` takes. ``text`` and ``label`` default to the columns of the training
        data; ``task`` names a benchmark. ``depths`` are scored as well.
        """
        spec = self._task("evaluate")
        own = task is None
        columns = own and not isinstance(data, list | tuple)  # rows without names have no columns to look for
        read = read_task(
            task,
            data,
            text=text or (spec.text if columns else None),
            label=label or (spec.label or None if columns else None),
            kind=kind or (spec.kind if own else None),
            labels=spec.labels if own else None,
            from_hub=from_hub,
            whole=True,
        )
        check_fits(spec, read, self.name)
        rounds = 1 + len(depths)
        count = 0

        def predict(items: Sequence[Item], at: int | None) -> list[ItemPrediction]:
            nonlocal count
            before, count = count, count + len(items)
            predictor = self.predictor(depth if at is None else at)
            found = predictor.predict(items, lambda done: bar.update(before + done))
            return in_order_of(found, spec.labels, read.labels)

        total = sum(len(items) for items in (*read.dev.values(), *read.test.values()))
        with ProgressBar("evaluating", rounds * total, progress) as bar:
            return evaluate_model(read, self.name, predict, split=split, depths=depths, seen=spec.seen)

    def _task(self, wanted: str) -> TaskSpec:
        if self.task is None:
            raise InputError(
                f"{self.name} has no head for a task, so it cannot {wanted}; fine-tune it first with litebert.finetune"
            )
        return self.task

    def predictor(self, depth: int | None = None) -> Predictor:
        """The object that predicts items of the task, for code that has items rather than texts."""
        at = self.depth if depth is None else self._checked_depth(depth)
        whole = next(self.network.parameters()).dtype == torch.float32
        precision = default_precision(self.device) if whole else "fp32"  # no autocast for weights in half precision
        return Predictor(self.network, self._tokenizer(), self._task("predict"), self.device, at, precision=precision)

    def _items(self, texts: Any, pairs: Any, spec: TaskSpec) -> tuple[list[Item], bool]:
        """The items to predict, and whether a single one was given."""
        kind = KINDS[spec.kind]
        takes_rows = kind.needs_rows or bool(spec.text)
        if takes_rows and _is_frame(texts):
            texts = texts.to_dict("records")
        single = isinstance(texts, str) or (takes_rows and isinstance(texts, Mapping))
        rows = [texts] if single else _listed(texts)
        named = any(isinstance(row, Mapping) for row in rows)
        if not (kind.needs_rows or (named and spec.text)):
            rows = _paired(rows, pairs)
            if spec.text and not spec.pairs and any(isinstance(row, tuple) for row in rows):
                raise InputError("this model was fine-tuned on single texts; give texts without pairs or tuples")
        elif pairs is not None:
            raise InputError("rows already hold both texts; leave out pairs")
        items = []
        for index, row in enumerate(rows):
            try:
                items.append(kind.item_of(row, str(index), spec))
            except InputError as error:
                raise InputError(f"row {index}: {error}" if named and not single else str(error)) from None
        return items, single

    # Missing words and order

    @overload
    def fill(  # type: ignore[overload-overlap]
        self, texts: str, top: int = 5, *, depth: int | None = None
    ) -> list[Guess] | list[list[Guess]]: ...

    @overload
    def fill(self, texts: Iterable[str], top: int = 5, *, depth: int | None = None) -> list[list[list[Guess]]]: ...

    def fill(
        self, texts: str | Iterable[str], top: int = 5, *, depth: int | None = None
    ) -> list[Guess] | list[list[Guess]] | list[list[list[Guess]]]:
        """The ``top`` most likely words for each mask: a list of guesses per mask, a list of those per text.

        For a single text with one mask, just the guesses.
        """
        rows, single = _texts(texts, "texts")
        found = self.fill_encoded(self._tokenizer().encode_batch(rows), top, depth=depth)
        if not single:
            return found
        return found[0][0] if len(found[0]) == 1 else found[0]

    @torch.no_grad()
    def fill_encoded(
        self, inputs: Sequence[Encoded], top: int = 5, *, depth: int | None = None, batch_tokens: int = 8192
    ) -> list[list[list[Guess]]]:
        """``fill`` for inputs that are already token ids."""
        tokenizer = self._tokenizer()
        if "masked_lm" not in self.network.heads:
            raise InputError(
                f"{self.name} has no masked-LM head, so it cannot fill masks; load a pretrained model that has one"
            )
        if not _is_whole(top) or top < 1:
            raise InputError(f"top is {top!r} but must be a whole number, 1 or more")
        at = self.depth if depth is None else self._checked_depth(depth)
        gaps = [gap_places(one.ids, tokenizer) for one in inputs]
        for number, places in enumerate(gaps, 1):
            if not places:
                which = "the text" if len(inputs) == 1 else f"text {number}"
                raise InputError(f"there is no {tokenizer.mask_token} in {which}; put one where a word is missing")
        found: list[list[list[Guess]]] = [[] for _ in inputs]
        for batch in token_batches([len(one.ids) for one in inputs], batch_tokens):
            packed = self._pack_encoded([inputs[index] for index in batch])
            starts = accumulate((len(inputs[index].ids) for index in batch), initial=0)
            owners = [
                (index, place, start + place)
                for index, start in zip(batch, starts, strict=False)
                for place in gaps[index]
            ]
            flat = torch.tensor([place for _, _, place in owners], device=self.device)
            best = best_pieces(self.network, packed, flat, top, at)
            for (index, place, _), pieces in zip(owners, best, strict=True):
                ids = inputs[index].ids
                found[index].append([guess_at(ids, place, id, share, tokenizer) for id, share in pieces])
        return found

    @torch.no_grad()
    def order(
        self, pairs: Iterable[tuple[str, str]], *, depth: int | None = None, batch_tokens: int = 8192
    ) -> list[float]:
        """For each pair of texts the probability that they are in the right order, by the sentence-order head.

        Both orders are scored and averaged, so the probabilities of a pair and its reverse add up to one.
        """
        if "order" not in self.network.heads:
            raise InputError(
                f"{self.name} has no sentence-order head; load a model that was pretrained with one and not fine-tuned"
            )
        pairs = _listed(pairs, "pairs")
        for index, pair in enumerate(pairs):
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
                raise InputError(f"pairs[{index}] is {pair!r:.80} but must be two texts, such as ('First.', 'Second.')")
        at = self.depth if depth is None else self._checked_depth(depth)
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
        encoded, _ = self._encode_texts([*firsts, *seconds], [*seconds, *firsts], self._limit(None))
        shares = torch.empty(len(encoded))
        for batch in token_batches([len(one.ids) for one in encoded], batch_tokens):
            flat, layout, segments = self._pack_encoded([encoded[index] for index in batch])
            states = self.network.encoder(flat, layout, segments, depth=at)
            scores = self.network.heads["order"](self.network.pooled(states, layout))
            shares[torch.from_numpy(batch)] = scores.float().softmax(-1)[:, 0].cpu()
        as_given, reversed_ = shares.split(len(pairs)) if pairs else (shares, shares)
        return ((as_given + 1 - reversed_) / 2).tolist()

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

    def at_depth(self, depth: int) -> "Model":
        """A model with the same weights that by default runs only its first ``depth`` layers."""
        if not _is_whole(depth) or not 1 <= depth <= self.config.num_layers:
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
            name=self.name,
        )

    def to(self, device: str | torch.device) -> "Model":
        """Move the weights to a device (auto, cpu, cuda, cuda:1, ...); returns the model itself."""
        self.network.to(_usable(device))
        return self

    def half(self) -> "Model":
        """Convert the weights to bfloat16, or to float16 on a GPU without bfloat16; returns the model itself."""
        old_gpu = self.device.type == "cuda" and not has_bf16(self.device)
        self.network.to(torch.float16 if old_gpu else torch.bfloat16)
        return self

    def compile(self) -> "Model":
        """Compile the encoder with ``torch.compile`` at the next call; returns the model itself."""
        self.network.encoder.compile(dynamic=True)
        return self

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder for litebert, and for ``transformers`` wherever it has a class for the model.

        A model from ``at_depth`` is saved with only the layers that it runs.
        """
        network = self.network
        if self.depth is not None and self.depth < self.config.num_layers:
            from litebert.shrinking.drop import drop_layers

            network = drop_layers(network, range(1, self.depth + 1))
        files = {TASK_FILE: self.task.text_of_file()} if self.task else {}
        save_model(folder, network, self.tokenizer, verb="save", files=files)
        for name, content in self._sentence.files(self.config.width).items():
            path = Path(folder) / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(content, encoding="utf-8")

    # Inputs

    def _checked_depth(self, depth: int | None) -> int | None:
        if depth is not None and not (_is_whole(depth) and 0 <= depth <= self.config.num_layers):
            raise InputError(f"depth is {depth!r} but must be a whole number from 0 to {self.config.num_layers}")
        return depth

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                "this model has no tokenizer, so it takes token ids only; load a folder with tokenizer.json"
            )
        if self.tokenizer.cls_id is None or self.tokenizer.sep_id is None:
            raise InputError("this model's tokenizer has no [CLS] and [SEP] tokens; use another model")
        return self.tokenizer

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
    name = str(source)
    if not folder.is_dir() and name not in preset_names("models") and is_hub_name(name):
        source = folder = hub_folder(name)
    elif not folder.is_dir() and os.sep in name:
        raise InputError(f"there is no folder '{name}'")
    loaded = load_model(source, device=str(where), dtype=numbers)
    task = find_spec(folder, loaded.network.config)
    sentence, notes = read_sentence_settings(folder)
    for note in (*loaded.notes, *notes):
        log.warning(note)
    return Model(
        loaded.network,
        loaded.tokenizer,
        (*loaded.notes, *notes),
        task=task,
        depth=depth,
        sentence=sentence,
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


def _texts(texts: Any, name: str) -> tuple[list[str], bool]:
    """A list of texts from one text or any iterable of texts, and whether it was a single text."""
    if isinstance(texts, str):
        return [str(texts)], True
    rows = _listed(texts, name)
    for index, row in enumerate(rows):
        if not isinstance(row, str):
            raise InputError(f"{name}[{index}] is {row!r:.80} but must be a string")
    return [str(row) for row in rows], False


def _paired(rows: Sequence[Any], pairs: Any) -> list[Any]:
    """Texts, or tuples of two, from texts and their pairs or from tuples."""
    if pairs is None and rows and all(isinstance(row, tuple) and len(row) == 2 for row in rows):
        rows, pairs = zip(*rows, strict=True)
    firsts, _ = _texts(rows, "texts")
    if pairs is None:
        return firsts
    seconds, _ = _texts(pairs, "pairs")
    if len(seconds) != len(firsts):
        raise InputError(f"{len(firsts)} texts but {len(seconds)} pairs; give one for each text")
    return list(zip(firsts, seconds, strict=True))


def _listed(rows: Any, name: str = "texts") -> list[Any]:
    """Any iterable as a list; an error for bytes, mappings and tables, which iterate over something else."""
    if isinstance(rows, bytes | bytearray | Mapping) or _is_frame(rows):
        raise InputError(f"{name} is a {type(rows).__name__} but must be a string or an iterable of strings")
    try:
        return list(rows)
    except TypeError:
        raise InputError(f"{name} is {rows!r:.80} but must be a string or an iterable of strings") from None


def _is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _is_frame(rows: Any) -> bool:
    """Whether something is a DataFrame, which iterates over its column names."""
    return hasattr(rows, "to_dict") and hasattr(rows, "columns")
