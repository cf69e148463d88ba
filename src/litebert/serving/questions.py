"""What each route asks of a model: how its texts become inputs, what is run, and how the answer is written.

Texts are checked here: how many there are and how long, in characters before they are tokenised, in tokens after. A
refusal names the field and the number of the text. Nothing is cut unless the request asks for it.
"""

import base64
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec
import numpy as np

from litebert.errors import InputError
from litebert.fill import gap_places
from litebert.pooling import pooling_named
from litebert.serving.messages import (
    EmbeddingsRequest,
    FillRequest,
    Limits,
    ModelRequest,
    OrderRequest,
    PredictRequest,
    Refusal,
    Request,
    RerankRequest,
    TokenizeRequest,
    encode,
    wrong_field,
)
from litebert.serving.served import Models, Served
from litebert.serving.work import CPU, Piece, Question
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Choice, EncodingSettings, Item, ItemPrediction, Prediction
from litebert.tasks.kinds import KINDS
from litebert.text.tokenizer import Encoded
from litebert.text_model import items_of

Asked = TypeVar("Asked", bound=Request)
CHARACTERS = 3  # of a token, for a first estimate
SPECIAL = 3  # tokens around a text or two
MOST_OPTIONS = 32  # of a multiple choice: each is an input of its own
UNCUT = 1 << 30  # a length that no text has
QUIET: Callable[[Any], None] = lambda _: None  # noqa: E731
Text = str | list[int]


class ModelQuestion(Question, Generic[Asked]):
    """A request to a model that can answer it."""

    able: ClassVar[str]  # what a model must be able to do
    field: ClassVar[str] = "inputs"  # with the texts

    def __init__(self, request: Asked, models: Models, limits: Limits) -> None:
        self.request, self.limits = request, limits
        self.served: Served = models.named(request.model, self.able)
        self.model, self.lane = self.served.name, self.served.lane
        self.depth = self.served.depth(request.depth) if isinstance(request, ModelRequest) else None
        self.texts = self.listed()
        if not self.texts:
            raise wrong_field(self.field, f"{self.field} is empty; give at least one text")
        if len(self.texts) > limits.texts:
            message = f"{self.field} has {len(self.texts):,} entries but at most {limits.texts:,} are read at once"
            raise Refusal(422, "too_many_texts", message, param=self.field, index=limits.texts)
        self.characters = [self._measure(number, text) for number, text in enumerate(self.texts)]
        self.group = (type(self), self.model, self.depth, *self.settings())

    @abstractmethod
    def listed(self) -> Sequence[Any]:
        """The inputs as a list, each of a form that can be used."""

    def settings(self) -> tuple[Any, ...]:
        """What questions must agree in to be run together, beside model and depth."""
        return ()

    def _measure(self, number: int, text: Any) -> int:
        """The characters of an input, all its texts together; a refusal where one text has too many."""
        total = 0
        for one in _strings(text):
            if len(one) > self.limits.characters:
                raise self.too_long(number, f"{len(one):,} characters", f"{self.limits.characters:,}")
            total += len(one) if isinstance(one, str) else CHARACTERS * len(one)
        return total

    def too_long(self, number: int, size: str, most: str, hint: str = "shorten it") -> Refusal:
        """A text that is longer than what is read."""
        message = f"{self.field}[{number}] has {size} but at most {most} are read; {hint}"
        return Refusal(422, "text_too_long", message, param=self.field, index=number)

    def estimate(self) -> int:
        longest = self.longest
        return sum(min(longest, size // CHARACTERS + SPECIAL) for size in self.characters)

    @property
    def longest(self) -> int:
        """The most tokens of an input."""
        return self.served.model.max_length

    def prepare(self, wanted: Callable[[], bool]) -> list[Piece]:
        found = []
        for number, text in enumerate(self.texts):
            if not wanted():
                return []
            found.append(self.piece(number, text))
        return found

    @abstractmethod
    def piece(self, number: int, text: Any) -> Piece:
        """An input, tokenised."""

    def input_of(self, number: int, first: Text, second: str | None = None) -> Encoded:
        """One or two texts as an input of at most ``longest`` tokens."""
        tokenizer = self.served.tokenizer
        texts = [text for text in (first, second) if isinstance(text, str)]
        if self.served.model.lowers_case:
            texts = [text.lower() for text in texts]
        ids = tokenizer.ids_batch(texts)
        if not isinstance(first, str):
            ids.insert(0, first)
        both = ids[0], ids[1] if second is not None else None
        whole = tokenizer.lay_out(*both)
        if len(whole.ids) <= self.longest:
            return whole
        self.check_tokens(number, len(whole.ids), self.longest)
        return tokenizer.lay_out(*both, self.longest)

    def check_tokens(self, number: int, tokens: int, most: int) -> None:
        """A refusal where an input would be cut and the request does not ask for that."""
        if tokens > most and not self.request.truncate:
            raise self.too_long(number, f"{tokens:,} tokens", f"{most:,}", "shorten it or set truncate")

    def cost(self, tokens: int) -> float:
        return self.served.cost(tokens, self.depth)

    def observe(self, tokens: int, seconds: float) -> None:
        self.served.observe(tokens, self.depth, seconds)

    def write(self, result: Any, number: int) -> Any:
        return msgspec.Raw(encode(result))

    def close(self, results: Sequence[Any], tokens: int) -> bytes:
        return encode({"model": self.model, "results": results, "usage": {"tokens": tokens}})


class Embeddings(ModelQuestion[EmbeddingsRequest]):
    """A vector for each text."""

    able, field = "embeddings", "input"

    def listed(self) -> Sequence[Text]:
        model, asked = self.served.model, self.request
        pooling, normalize = model.sentence_defaults
        try:
            self.pooling = pooling_named(asked.pooling or pooling, "pooler" in model.heads)
        except InputError as error:
            raise wrong_field("pooling", str(error)) from None
        self.normalize = normalize if asked.normalize is None else asked.normalize
        if asked.dimensions not in (None, model.width):
            raise wrong_field("dimensions", f"dimensions is {asked.dimensions} but vectors have {model.width}")
        given = asked.input
        if isinstance(given, str):
            return [given]
        if given and all(isinstance(one, int) for one in given):
            given = [cast(list[int], given)]
        for number, one in enumerate(given):
            if isinstance(one, int):
                raise wrong_field("input", "input mixes texts and token ids", number)
            if isinstance(one, list):
                wrong = next((id for id in one if not 0 <= id < self.served.tokenizer.vocab_size), None)
                if wrong is not None or not one:
                    what = "no token ids" if wrong is None else f"the token id {wrong}, which the model does not have"
                    raise wrong_field("input", f"input[{number}] has {what}", number)
        return cast(list[Text], given)

    def settings(self) -> tuple[Any, ...]:
        return (self.pooling,)

    def piece(self, number: int, text: Text) -> Piece:
        encoded = self.input_of(number, text)
        return Piece(encoded, len(encoded.ids))

    def run(self, payloads: Sequence[Encoded]) -> list[Any]:
        return list(self.served.model.encode_inputs(payloads, pooling=self.pooling, depth=self.depth))

    def write(self, result: Any, number: int) -> Any:
        if self.normalize:
            result = result / max(float(np.linalg.norm(result)), 1e-12)
        vector = result.astype("<f4", copy=False)
        if self.request.encoding_format == "base64":
            written: Any = base64.b64encode(vector.tobytes()).decode()
        else:
            written = vector.tolist()
        return super().write({"object": "embedding", "index": number, "embedding": written}, number)

    def close(self, results: Sequence[Any], tokens: int) -> bytes:
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return encode({"object": "list", "model": self.model, "data": results, "usage": usage})


class Predict(ModelQuestion[PredictRequest]):
    """What the head of a task says of each input."""

    able = "predict"

    def listed(self) -> Sequence[Item]:
        asked = self.request
        self.exits: bool | float = asked.exits
        if asked.exits is not False:
            self._check_exits(asked.exits)
        rows = asked.inputs if isinstance(asked.inputs, list) else [asked.inputs]
        return [self._item(number, row) for number, row in enumerate(rows)]

    def _check_exits(self, exits: bool | float) -> None:
        if not self.served.exits:
            raise wrong_field("exits", f"{self.model} has no early exits; leave exits out")
        if self.request.depth is not None:
            raise wrong_field("exits", "depth and exits cannot be combined; leave one of them out")
        if exits is not True and not (0 < exits < 1 or exits in range(1, 1000)):
            raise wrong_field(
                "exits", "exits must be true, a confidence below 1, or the number of heads that must agree"
            )

    def _item(self, number: int, row: Any) -> Item:
        assert self.served.model.task is not None
        spec = self.served.model.task
        if isinstance(row, list):
            check_pair(number, row)
            row = tuple(row)
        if isinstance(row, Mapping) and not (KINDS[spec.kind].needs_rows or spec.text):
            raise wrong_field("inputs", f"inputs[{number}] is an object but {self.model} reads texts or pairs", number)
        if isinstance(row, tuple) and not spec.pairs and (spec.text or KINDS[spec.kind].needs_rows):
            raise wrong_field("inputs", f"inputs[{number}] is a pair, which {self.model} does not read", number)
        try:
            item = items_of([row], None, spec)[0][0]
        except InputError as error:
            raise wrong_field("inputs", f"inputs[{number}]: {error}", number) from None
        if isinstance(item, Choice) and len(item.options) > MOST_OPTIONS:
            message = f"inputs[{number}] has {len(item.options)} options but may have {MOST_OPTIONS}"
            raise wrong_field("inputs", message, number)
        return item

    def estimate(self) -> int:
        spec = self.served.model.task
        assert spec is not None
        if KINDS[spec.kind].per_token:  # windows over a passage overlap
            overlap = max(1.0, spec.length / spec.stride)
            return sum(int(overlap * size / CHARACTERS) + spec.length for size in self.characters)
        total = 0
        for item, size in zip(self.texts, self.characters, strict=True):
            inputs = len(item.options) if isinstance(item, Choice) else 1
            total += inputs * min(spec.length, size // CHARACTERS + SPECIAL)
        return total

    def settings(self) -> tuple[Any, ...]:
        return (self.exits,)

    def piece(self, number: int, text: Item) -> Piece:
        spec, tokenizer = self.served.model.task, self.served.tokenizer
        assert spec is not None
        kind, settings = KINDS[spec.kind], spec.encoding()
        if kind.per_token:  # a passage is read in windows; only the question may be too long
            tokens = len(tokenizer.ids(cast(Any, text).question))
            self.check_tokens(number, tokens, settings.question)
            inputs = kind.encode([text], tokenizer, settings)
        else:
            inputs = kind.encode([text], tokenizer, EncodingSettings(length=UNCUT))
            if inputs.longest > settings.length:
                self.check_tokens(number, inputs.longest, settings.length)
                inputs = kind.encode([text], tokenizer, settings)
        return Piece((text, inputs), len(inputs.ids))

    def run(self, payloads: Sequence[tuple[Item, Inputs]]) -> list[Any]:
        spec = self.served.model.task
        assert spec is not None
        found = predictions(self.served, payloads, self.depth, self.exits)
        return [KINDS[spec.kind].present(item, one, spec) for (item, _), one in zip(payloads, found, strict=True)]

    def write(self, result: Prediction, number: int) -> Any:
        found: dict[str, Any] = {"label": result.label}
        if result.probability is not None:
            found["probability"] = result.probability
        if result.probabilities:
            found["probabilities"] = result.probabilities
        if result.start is not None:
            found |= {"start": result.start, "end": result.end}
        return super().write(found, number)


class Rerank(ModelQuestion[RerankRequest]):
    """Documents in the order of how well they fit a query."""

    able, field = "rerank", "documents"

    def listed(self) -> Sequence[Item]:
        asked, spec = self.request, self.served.model.task
        assert spec is not None
        self.label: int | None = None
        if spec.kind == "classify":
            if asked.label is not None and asked.label not in spec.labels:
                raise wrong_field("label", f"label is '{asked.label:.60}' but must be one of {', '.join(spec.labels)}")
            self.label = len(spec.labels) - 1 if asked.label is None else spec.labels.index(asked.label)
        elif asked.label is not None:
            raise wrong_field("label", f"{self.model} gives a score, not labels; leave label out")
        if len(asked.query) > self.limits.characters:
            raise wrong_field("query", f"query has {len(asked.query):,} characters; shorten it")
        return items_of([(asked.query, one) for one in asked.documents], None, spec)[0] if asked.documents else []

    @property
    def longest(self) -> int:
        assert self.served.model.task is not None
        return self.served.model.task.length

    def piece(self, number: int, text: Any) -> Piece:
        encoded = self.input_of(number, text.first, text.second)
        inputs = Inputs(
            np.asarray(encoded.ids, np.int32),
            np.asarray(encoded.segments, np.int32),
            np.array([0, len(encoded.ids)]),
            np.zeros(1, np.int64),
            np.empty((0, 2), np.int32),
        )
        return Piece((text, inputs), len(encoded.ids))

    def run(self, payloads: Sequence[tuple[Item, Inputs]]) -> list[Any]:
        return predictions(self.served, payloads, self.depth)

    def write(self, result: Any, number: int) -> float:
        return float(result.label if self.label is None else result.probabilities[self.label])

    def close(self, results: Sequence[float], tokens: int) -> bytes:
        asked, best = self.request, sorted(range(len(results)), key=lambda number: -results[number])
        found: list[dict[str, Any]] = [
            {"index": number, "relevance_score": results[number]} for number in best[: asked.top_n]
        ]
        if asked.return_documents:
            for one in found:
                one["document"] = {"text": asked.documents[one["index"]]}
        return super().close(found, tokens)


class Fill(ModelQuestion[FillRequest]):
    """Guesses for the masks of texts."""

    able = "fill"

    def listed(self) -> Sequence[str]:
        return [self.request.inputs] if isinstance(self.request.inputs, str) else self.request.inputs

    def settings(self) -> tuple[Any, ...]:
        return (self.request.top,)

    def piece(self, number: int, text: str) -> Piece:
        encoded = self.input_of(number, text)
        masks = len(gap_places(encoded.ids, self.served.tokenizer))
        if not masks:
            mask = self.served.tokenizer.mask_token
            raise wrong_field("inputs", f"inputs[{number}] has no {mask}; put one where a word is missing", number)
        if masks > self.limits.masks:
            raise wrong_field("inputs", f"inputs[{number}] has {masks} masks but may have {self.limits.masks}", number)
        return Piece(encoded, len(encoded.ids))

    def run(self, payloads: Sequence[Encoded]) -> list[Any]:
        return self.served.model.fill_encoded(payloads, self.request.top, depth=self.depth)

    def write(self, result: Any, number: int) -> Any:
        return super().write({"masks": result}, number)


class Order(ModelQuestion[OrderRequest]):
    """Which of two texts comes first."""

    able = "order"

    def listed(self) -> Sequence[list[str]]:
        for number, pair in enumerate(self.request.inputs):
            check_pair(number, pair)
        return self.request.inputs

    def estimate(self) -> int:
        return 2 * super().estimate()

    def piece(self, number: int, text: list[str]) -> Piece:
        first, second = text
        both = self.input_of(number, first, second), self.input_of(number, second, first)
        return Piece(both, sum(len(one.ids) for one in both))

    def run(self, payloads: Sequence[tuple[Encoded, Encoded]]) -> list[Any]:
        return [{"in_order": share} for share in self.served.model.order_inputs(payloads, depth=self.depth)]


class Tokenize(ModelQuestion[TokenizeRequest]):
    """The tokens of texts and pairs; tokenising is what it runs."""

    able = "tokenize"

    def listed(self) -> Sequence[str | list[str]]:
        self.lane = CPU
        given = [self.request.inputs] if isinstance(self.request.inputs, str) else self.request.inputs
        for number, one in enumerate(given):
            if isinstance(one, list):
                check_pair(number, one)
        return given

    @property
    def longest(self) -> int:
        return self.served.model.max_length if self.request.truncate else UNCUT

    def cost(self, tokens: int) -> float:
        return 0.0

    def observe(self, tokens: int, seconds: float) -> None:
        pass

    def piece(self, number: int, text: str | list[str]) -> Piece:
        encoded = self.input_of(number, *([text] if isinstance(text, str) else text))
        return Piece(encoded, len(encoded.ids))

    def run(self, payloads: Sequence[Encoded]) -> list[Any]:
        piece = self.served.tokenizer.piece
        return [{"ids": one.ids, "tokens": list(map(piece, one.ids)), "segments": one.segments} for one in payloads]


def predictions(
    served: Served, payloads: Sequence[tuple[Item, Inputs]], depth: int | None, exits: bool | float = False
) -> list[ItemPrediction]:
    """What the head says of some items, which are tokenised again where they make up a batch."""
    items = [item for item, _ in payloads]
    if len(payloads) == 1:
        return served.model.predict_inputs(items, payloads[0][1], depth, exits=exits)
    return served.model.predict_items(items, depth, exits=exits)


def check_pair(number: int, texts: Sequence[str]) -> None:
    """A refusal where a pair is none."""
    if len(texts) != 2:
        raise wrong_field("inputs", f"inputs[{number}] has {len(texts)} texts but a pair has two", number)


def _strings(text: Any) -> Sequence[Any]:
    """The texts of an input: one, a pair, or those of an item."""
    if isinstance(text, str):
        return (text,)
    if isinstance(text, list):
        return text if text and isinstance(text[0], str) else (text,)
    return cast(Sequence[Any], text.texts)
