"""What every model that reads texts can be asked for: vectors, predictions, scores, missing words, the order of texts.

``TextModel`` turns texts into inputs, and what a model computes of them into answers. What computes is left to its two
kinds: ``Model`` runs a torch network, ``Runtime`` an exported file. No torch here. Nothing is changed by a call, so any
number of threads can share a model.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from litebert.errors import InputError
from litebert.families.family import UNBOUNDED
from litebert.fill import Guess, gap_places, guess_at
from litebert.pooling import Pooling, SentenceSettings, pooling_named
from litebert.tasks.examples import Item, ItemPrediction, Prediction, TaskSpec
from litebert.tasks.kinds import KINDS, HeadScores, TaskKind, check_fits
from litebert.tasks.kinds.base import mean_scores
from litebert.terminal import ProgressBar
from litebert.text.tokenizer import Encoded, Tokenizer

if TYPE_CHECKING:
    from litebert.tasks.columns import Names
    from litebert.tasks.encoding import Inputs
    from litebert.tasks.score import Evaluation

CHUNK = 16_384  # texts tokenised and encoded at a time
ITEM_CHUNK = 4096
Vectors = npt.NDArray[np.float32]
WINDOWS = "windows reads all of them"
Report = Callable[[int], None]  # takes the number of texts done

log = logging.getLogger(__name__)


class TextModel(ABC):
    """A model with its tokenizer and, where it was fine-tuned, its task."""

    name: str
    tokenizer: Tokenizer | None
    task: TaskSpec | None  # what its ``task.json`` says; None without a head for a task
    depth: int | None  # how many layers run unless a call names another depth; None: all
    num_layers: int
    width: int
    max_positions: int | None  # None: any length
    heads: tuple[str, ...]  # the heads it has, by the names that networks give them
    _sentence: SentenceSettings

    # What computes

    @abstractmethod
    def _vectors(
        self, inputs: Sequence[Encoded], pooling: Pooling, depth: int | None, batch_tokens: int, report: Report
    ) -> Vectors:
        """(inputs, width) one vector for each input."""

    @abstractmethod
    def _head_scores(
        self, inputs: "Inputs", depth: int | None, exits: bool | float, report: Callable[[float], None]
    ) -> HeadScores:
        """What the head of the task gives, or with ``exits`` the head of the depth at which an input stops.

        ``report`` takes the share of the inputs that is done.
        """

    @property
    def _item_chunk(self) -> int:
        """How many items of a task are encoded and predicted at a time."""
        return ITEM_CHUNK

    @abstractmethod
    def _likeliest(
        self, inputs: Sequence[Encoded], gaps: Sequence[Sequence[int]], top: int, depth: int | None
    ) -> list[list[list[tuple[int, float]]]]:
        """For each gap of each input, the ``top`` likeliest ids with their probabilities."""

    @abstractmethod
    def _in_order(self, inputs: Sequence[Encoded], depth: int | None) -> Vectors:
        """(inputs) the probability that the two texts of each input are in order."""

    # What people ask for

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels it predicts, in the order of its head; empty without a task or for a task without labels."""
        return self.task.labels if self.task and KINDS[self.task.kind].has_classes else ()

    @property
    def max_length(self) -> int:
        """The most tokens of a text, at which longer ones are cut unless a call names another limit."""
        return self._limit(None)

    @property
    def sentence_defaults(self) -> tuple[Pooling, bool]:
        """How token states become a vector unless a call says otherwise, and whether it is scaled to length 1."""
        return self._sentence.pooling or "mean", self._sentence.normalize

    @property
    def lowers_case(self) -> bool:
        """Whether texts are turned into lower case before they are tokenised."""
        return self._sentence.lower_case

    def encode_inputs(self, inputs: Sequence[Encoded], *, pooling: Pooling, depth: int | None = None) -> Vectors:
        """A vector for each input that is token ids already, not scaled."""
        return self._vectors(inputs, pooling, self._depth(depth), 8192, lambda _: None)

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
        windows: bool = False,
        batch_tokens: int = 8192,
    ) -> Any:
        """One vector for a text, or an array (texts, width) for any iterable of texts, in float32.

        ``pairs`` are second texts, one for each text. ``pooling`` is how token states become one vector: ``mean``,
        ``first`` (the [CLS] token) or ``pooler``. ``normalize`` scales vectors to length 1. The defaults of both are
        those in a sentence-transformers folder, otherwise ``mean`` and False. Texts longer than ``max_length`` tokens
        (default: the model's maximum) are cut, or with ``windows`` read in overlapping windows whose vectors are
        averaged, and one message reports how many. ``progress=None`` shows a bar on a terminal or in a notebook if
        encoding takes longer than two seconds. A torch model reads about ``batch_tokens`` tokens at a time.
        """
        rows, single = texts_of(texts, "texts")
        seconds = None if pairs is None else texts_of(pairs, "pairs")[0]
        if seconds is not None and len(seconds) != len(rows):
            raise InputError(f"{len(rows)} texts but {len(seconds)} pairs; give one for each text")
        with ProgressBar("encoding texts", len(rows), progress) as bar:
            vectors, long = self.encode_texts(
                rows,
                seconds,
                pooling=pooling,
                normalize=normalize,
                depth=depth,
                max_length=max_length,
                windows=windows,
                batch_tokens=batch_tokens,
                report=bar.update,
            )
        long.report()
        if as_tensor:
            import torch

            tensor = torch.from_numpy(vectors)
            return tensor[0] if single else tensor
        return vectors[0] if single else vectors

    def encode_texts(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        depth: int | None = None,
        max_length: int | None = None,
        windows: bool = False,
        batch_tokens: int = 8192,
        report: Report = lambda _: None,
    ) -> "tuple[Vectors, LongTexts]":
        """What ``encode`` gives for a list of texts, and which were too long, for code that reports by itself."""
        way = pooling_named(pooling or self._sentence.pooling or "mean", "pooler" in self.heads)
        at, limit = self._depth(depth), self._limit(max_length)
        vectors = np.empty((len(texts), self.width), np.float32)
        long = LongTexts(limit, "" if max_length else "max_length", len(texts), asked=max_length is not None)
        for first in range(0, len(texts), CHUNK):
            some = slice(first, first + CHUNK)
            inputs = self._inputs(texts[some], None if pairs is None else pairs[some], limit, windows)
            every = [one for parts in inputs for one in parts]
            long.cut += sum(parts[0].cut for parts in inputs)
            long.in_windows += sum(len(parts) > 1 for parts in inputs)
            share = len(inputs) / max(len(every), 1)
            found = self._vectors(every, way, at, batch_tokens, _after(first, report, share))
            vectors[some] = mean_scores(found, np.cumsum([0, *map(len, inputs)]))
        if self._sentence.normalize if normalize is None else normalize:
            vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors, long

    @overload
    def predict(
        self,
        texts: str | Mapping[str, Any],
        pairs: str | None = None,
        *,
        depth: int | None = None,
        exits: bool | float = False,
        windows: bool = False,
        progress: bool | None = None,
    ) -> Prediction: ...

    @overload
    def predict(
        self,
        texts: Iterable[Any],
        pairs: Iterable[str] | None = None,
        *,
        depth: int | None = None,
        exits: bool | float = False,
        windows: bool = False,
        progress: bool | None = None,
    ) -> list[Prediction]: ...

    def predict(
        self,
        texts: str | Mapping[str, Any] | Iterable[Any],
        pairs: str | Iterable[str] | None = None,
        *,
        depth: int | None = None,
        exits: bool | float = False,
        windows: bool = False,
        progress: bool | None = None,
    ) -> Prediction | list[Prediction]:
        """The predictions of a fine-tuned model: one ``Prediction`` for a text, a list for any iterable of texts.

        A model for pairs takes the second texts as ``pairs``, or tuples of two. A model that was fine-tuned on named
        columns also takes dicts, or a DataFrame, with these columns. A multiple-choice model takes dicts with
        ``question``, ``options`` and optionally ``passage``; a question-answering model takes dicts with ``question``
        and ``context``.

        With ``exits`` each text stops at the depth where its answer is clear: True for the rule that is stored with
        the model (``add_exits``), a confidence below 1, or the number of heads in a row that must agree.

        Texts that are longer than the model reads are cut. With ``windows`` they are read in overlapping windows, and
        the scores of these are averaged. One message reports how many texts were cut or read in windows.
        """
        spec = self.required_task("predict")
        items, single = items_of(texts, pairs, spec)
        with ProgressBar("predicting", len(items), progress) as bar:
            found = self.predict_items(items, depth, bar.update, exits=exits, windows=windows)
            bar.update(len(items))
        self.long_texts(found).report()
        kind = KINDS[spec.kind]
        shown = [kind.present(item, one, spec) for item, one in zip(items, found, strict=True)]
        return shown[0] if single else shown

    def predict_items(
        self,
        items: Sequence[Item],
        depth: int | None = None,
        report: Report = lambda _: None,
        *,
        exits: bool | float = False,
        windows: bool = False,
    ) -> list[ItemPrediction]:
        """Predictions in the order of the items, for code that has items of a task rather than texts."""
        spec, tokenizer, at = self.required_task("predict"), self._tokenizer(), self._depth(depth)
        kind = KINDS[spec.kind]
        if windows and not kind.in_windows:
            raise InputError(
                f"windows is for texts to label, not for {kind.described}; leave windows out", parameter="windows"
            )
        found: list[ItemPrediction] = []
        chunk = max(1, len(items)) if kind.compares else self._item_chunk
        for first in range(0, len(items), chunk):
            some = items[first : first + chunk]
            inputs = kind.encode(some, tokenizer, spec.encoding(windows=windows))
            found += self.predict_inputs(some, inputs, at, _after(first, report), exits=exits)
        return found

    def predict_inputs(
        self,
        items: Sequence[Item],
        inputs: "Inputs",
        depth: int | None = None,
        report: Report = lambda _: None,
        *,
        exits: bool | float = False,
    ) -> list[ItemPrediction]:
        """``predict_items`` for items whose inputs are token ids already."""
        spec = self.required_task("predict")
        scores = self._head_scores(inputs, self._depth(depth), exits, lambda share: report(int(share * len(items))))
        kind = KINDS[spec.kind]
        return _with_lengths(kind.decode(items, inputs, scores, spec), inputs, kind)

    def long_texts(self, found: Sequence[ItemPrediction] = ()) -> "LongTexts":
        """A count of the texts among those predicted that were cut or read in windows."""
        spec = self.required_task("predict")
        count = LongTexts(spec.length, WINDOWS if KINDS[spec.kind].in_windows else "")
        count.add(found)
        return count

    def evaluate(
        self,
        data: Any,
        *,
        task: str | None = None,
        text: "Names" = None,
        label: "Names" = None,
        kind: str | None = None,
        split: str | None = None,
        depth: int | None = None,
        depths: Sequence[int] = (),
        windows: bool = False,
        from_hub: bool = False,
        progress: bool | None = None,
    ) -> "Evaluation":
        """The official metrics of the task on data: ``scores``, and ``per_label``, ``confusion``, ``hardest``.

        ``data`` is anything that ``finetune`` takes. ``text`` and ``label`` default to the columns of the training
        data; ``task`` names a benchmark. ``depths`` are scored as well. With ``windows`` long texts are read in
        overlapping windows instead of being cut.
        """
        from litebert.tasks.score import evaluate_model, in_order_of
        from litebert.tasks.sources import read_task

        spec = self.required_task("evaluate")
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
        count = 0

        def predict(items: Sequence[Item], at: int | None) -> list[ItemPrediction]:
            nonlocal count
            before, count = count, count + len(items)
            found = self.predict_items(items, depth if at is None else at, _after(before, bar.update), windows=windows)
            return in_order_of(found, spec.labels, read.labels)

        total = sum(len(items) for items in (*read.dev.values(), *read.test.values()))
        with ProgressBar("evaluating", (1 + len(depths)) * total, progress) as bar:
            result = evaluate_model(read, self.name, predict, split=split, depths=depths, seen=spec.seen)
        long = replace(self.long_texts(), count=result.whole.count, cut=result.cut, in_windows=result.in_windows)
        long.report()
        return result

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
        rows, single = texts_of(texts, "texts")
        found = self.fill_encoded(self._tokenizer().encode_batch(rows), top, depth=depth)
        if not single:
            return found
        return found[0][0] if len(found[0]) == 1 else found[0]

    def fill_encoded(
        self, inputs: Sequence[Encoded], top: int = 5, *, depth: int | None = None
    ) -> list[list[list[Guess]]]:
        """``fill`` for inputs that are already token ids."""
        tokenizer = self._tokenizer()
        if "masked_lm" not in self.heads:
            raise InputError(
                f"{self.name} has no masked-LM head, so it cannot fill masks; load a pretrained model that has one"
            )
        if not is_whole(top) or top < 1:
            raise InputError(f"top is {top!r} but must be a whole number, 1 or more")
        gaps = [gap_places(one.ids, tokenizer) for one in inputs]
        for number, places in enumerate(gaps, 1):
            if not places:
                which = "the text" if len(inputs) == 1 else f"text {number}"
                raise InputError(f"there is no {tokenizer.mask_token} in {which}; put one where a word is missing")
        found = self._likeliest(inputs, gaps, top, self._depth(depth))
        return [
            [
                [guess_at(one.ids, place, id, share, tokenizer) for id, share in pieces]
                for place, pieces in zip(places, rows, strict=True)
            ]
            for one, places, rows in zip(inputs, gaps, found, strict=True)
        ]

    def order(self, pairs: Iterable[tuple[str, str]], *, depth: int | None = None) -> list[float]:
        """For each pair of texts the probability that they are in the right order, by the sentence-order head.

        Both orders are scored and averaged, so the probabilities of a pair and its reverse add up to one.
        """
        if "order" not in self.heads:
            raise InputError(
                f"{self.name} has no sentence-order head; load a model that was pretrained with one and not fine-tuned"
            )
        pairs = _listed(pairs, "pairs")
        for index, pair in enumerate(pairs):
            if not (isinstance(pair, tuple | list) and len(pair) == 2 and all(isinstance(text, str) for text in pair)):
                raise InputError(f"pairs[{index}] is {pair!r:.80} but must be two texts, such as ('First.', 'Second.')")
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
        inputs = [one for [one] in self._inputs([*firsts, *seconds], [*seconds, *firsts], self._limit(None))]
        both = list(zip(inputs[: len(pairs)], inputs[len(pairs) :], strict=True))
        return self.order_inputs(both, depth=depth)

    def order_inputs(self, pairs: Sequence[tuple[Encoded, Encoded]], *, depth: int | None = None) -> list[float]:
        """``order`` for pairs whose two orders are token ids already."""
        inputs = [as_given for as_given, _ in pairs] + [turned for _, turned in pairs]
        shares = self._in_order(inputs, self._depth(depth)).astype(np.float64)
        as_given, turned = shares[: len(pairs)], shares[len(pairs) :]
        return [float(share) for share in (as_given + 1 - turned) / 2]

    # Inputs

    def _limit(self, max_length: int | None) -> int:
        """The maximum number of tokens of an input."""
        if max_length is None:
            most = UNBOUNDED if self.max_positions is None else self.max_positions
            return min(self._sentence.max_length or most, most)
        if not is_whole(max_length) or max_length < 3:
            raise InputError(f"max_length is {max_length!r} but must be a whole number, 3 or more")
        if self.max_positions is not None and max_length > self.max_positions:
            raise InputError(f"max_length is {max_length} but the model has {self.max_positions} positions")
        return max_length

    def _inputs(
        self, texts: Sequence[str], pairs: Sequence[str] | None, limit: int, windows: bool = False
    ) -> list[list[Encoded]]:
        """The inputs of each text: one, or with ``windows`` as many as it takes."""
        tokenizer = self._tokenizer()
        if self._sentence.lower_case:
            texts = [text.lower() for text in texts]
            pairs = None if pairs is None else [text.lower() for text in pairs]
        ids = tokenizer.ids_batch([*texts, *(pairs or ())])
        seconds: Sequence[list[int] | None] = [None] * len(texts) if pairs is None else ids[len(texts) :]
        both = zip(ids[: len(texts)], seconds, strict=True)
        if windows:
            return [tokenizer.lay_out_windows(first, second, limit) for first, second in both]
        return [[tokenizer.lay_out(first, second, limit)] for first, second in both]

    def _depth(self, depth: int | None) -> int | None:
        """The depth of a call: the one it names, else the model's own."""
        if depth is None:
            return self.depth
        if not (is_whole(depth) and 0 <= depth <= self.num_layers):
            raise InputError(f"depth is {depth!r} but must be a whole number from 0 to {self.num_layers}")
        return depth

    def required_task(self, wanted: str) -> TaskSpec:
        """Its task; an error where it has none."""
        if self.task is None:
            raise InputError(
                f"{self.name} has no head for a task, so it cannot {wanted}; fine-tune it first with litebert.finetune"
            )
        return self.task

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                "this model has no tokenizer, so it takes token ids only; load a folder with tokenizer.json"
            )
        if self.tokenizer.cls_id is None or self.tokenizer.sep_id is None:
            raise InputError("this model's tokenizer has no [CLS] and [SEP] tokens; use another model")
        return self.tokenizer


@dataclass
class LongTexts:
    """How many of some texts are longer than a limit, and what was done about them."""

    limit: int
    remedy: str = ""  # the option that would have kept texts from being cut
    count: int = 0
    cut: int = 0
    in_windows: int = 0
    asked: bool = False  # whether the caller named the limit, so that cutting is no surprise

    def add(self, found: Sequence[ItemPrediction]) -> None:
        """Count the texts of these predictions."""
        self.count += len(found)
        self.cut += sum(one.cut for one in found)
        self.in_windows += sum(one.windows > 1 for one in found)

    def merge(self, other: "LongTexts") -> None:
        """Count those of other texts, too."""
        self.count += other.count
        self.cut += other.cut
        self.in_windows += other.in_windows

    def report(self) -> None:
        """Log a sentence, if there are any."""
        cut = f"cut ({self.remedy})" if self.remedy else "cut"
        level = logging.INFO if self.asked else logging.WARNING
        for number, done, at in ((self.cut, cut, level), (self.in_windows, "read in windows", logging.INFO)):
            if number:
                sentence = f"{number:,} of {self.count:,} texts are longer than {self.limit} tokens and were {done}"
                log.log(at, "%s", sentence)


def _with_lengths(found: Sequence[ItemPrediction], inputs: "Inputs", kind: TaskKind) -> list[ItemPrediction]:
    """Predictions that say which texts were cut, and how many windows others were read in."""
    if len(inputs.cut) != len(inputs) or not len(found):
        return list(found)
    bounds = inputs.of_items(len(found))
    sizes = np.diff(bounds) if kind.in_windows else np.ones(len(found), np.int64)
    cut, marked = np.logical_or.reduceat(inputs.cut, bounds[:-1]), list(found)
    for number in np.flatnonzero(cut | (sizes > 1)):
        marked[number] = replace(marked[number], cut=bool(cut[number]), windows=int(sizes[number]))
    return marked


def _after(before: int, report: Report, share: float = 1.0) -> Report:
    """Reports what is done of a part, each counting for a share of a text, as what is done of the whole."""
    return lambda done: report(before + int(share * done))


def items_of(texts: Any, pairs: Any, spec: TaskSpec) -> tuple[list[Item], bool]:
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


def texts_of(texts: Any, name: str) -> tuple[list[str], bool]:
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
    firsts, _ = texts_of(rows, "texts")
    if pairs is None:
        return firsts
    seconds, _ = texts_of(pairs, "pairs")
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


def is_whole(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def _is_frame(rows: Any) -> bool:
    """Whether something is a DataFrame, which iterates over its column names."""
    return hasattr(rows, "to_dict") and hasattr(rows, "columns")
