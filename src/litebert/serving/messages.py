"""What clients send and get: the requests as msgspec types, refusals with their status, and the limits of a server.

A body is read into one of these types or refused with a sentence that names the field. The shapes are described for
people in docs/serve.md and for programs at ``/openapi.json`` (made from these types).
"""

import re
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import msgspec

Body = TypeVar("Body", bound="Request")
Result = TypeVar("Result")
_AT = re.compile(r" - at `([^`]*)`$")  # where msgspec says what is wrong
_FIELD = re.compile(r"\$\.(\w+)(?:\[(\d+)\])?")
_UNKNOWN = re.compile(r"unknown field `(.*?)`")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one request, and all that wait, may take. Sizes in bytes, times in seconds."""

    payload: int = 2 << 20
    texts: int = 256
    characters: int = 50_000  # of a text: checked before it is tokenised, which takes time and memory by its length
    queue_tokens: int = 32_768
    timeout: float = 30.0
    masks: int = 16  # of a text: each costs a probability for the whole vocabulary
    bodies: int = 64 << 20  # of all bodies that are being received
    receive: float = 15.0  # for a body to arrive
    send: float = 30.0  # for a client to take its answer
    headers: int = 32 << 10
    idle: float = 20.0  # for the headers of a request to arrive, and between requests


class Refusal(Exception):  # noqa: N818  # not a failure of the server: an answer
    """The reason sent to a client whose request is refused."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        index: int | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.param, self.index, self.retry_after = param, index, retry_after

    def body(self) -> bytes:
        """The answer in the shape of OpenAI's errors."""
        return msgspec.json.encode(
            ErrorAnswer(
                error=ErrorDetail(
                    message=self.message, type=self._type(), code=self.code, param=self.param, index=self.index
                )
            )
        )

    def _type(self) -> str:
        named = {401: "authentication_error", 404: "not_found_error", 429: "overloaded_error"}
        return named.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")


def wrong_field(param: str, message: str, index: int | None = None) -> Refusal:
    """A field with a value that cannot be used."""
    return Refusal(422, "bad_field", message, param=param, index=index)


def defect() -> Refusal:
    """An error of ours, of which a client learns nothing."""
    return Refusal(500, "defect", "something went wrong here; the server's log says more")


class ErrorDetail(msgspec.Struct, kw_only=True):
    message: str
    type: str
    code: str
    param: str | None
    index: int | None


class ErrorAnswer(msgspec.Struct, kw_only=True):
    error: ErrorDetail


class Request(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The fields of every request."""

    model: str | None = None
    truncate: bool = False


class ModelRequest(Request, kw_only=True):
    """The fields of every request that runs a model."""

    depth: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
    timeout: Annotated[float, msgspec.Meta(gt=0)] | None = None


class EmbeddingsRequest(ModelRequest, kw_only=True):
    """OpenAI's fields, and how token states become a vector."""

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    pooling: Literal["mean", "first", "pooler"] | None = None
    normalize: bool | None = None


Cell = str | int | float | bool | list[str] | None
Row = dict[str, Cell]


class PredictRequest(ModelRequest, kw_only=True):
    """Texts, pairs or rows for a fine-tuned model."""

    inputs: str | Row | list[str | Row | list[str]]
    exits: bool | float = False


class FillRequest(ModelRequest, kw_only=True):
    """Texts with masks."""

    inputs: str | list[str]
    top: Annotated[int, msgspec.Meta(ge=1, le=100)] = 5


class OrderRequest(ModelRequest, kw_only=True):
    """Pairs of texts."""

    inputs: list[list[str]]


class RerankRequest(ModelRequest, kw_only=True):
    """A query and documents to sort by it."""

    query: str
    documents: list[str]
    top_n: Annotated[int, msgspec.Meta(ge=1)] | None = None
    return_documents: bool = False
    label: str | None = None


class TokenizeRequest(Request, kw_only=True):
    """Texts and pairs."""

    inputs: str | list[str | list[str]]


class Usage(msgspec.Struct, kw_only=True):
    tokens: int


class Answer(msgspec.Struct, Generic[Result], kw_only=True):
    """Of all routes but embeddings."""

    model: str
    results: list[Result]
    usage: Usage


class Embedding(msgspec.Struct, kw_only=True):
    object: str = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingsUsage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(msgspec.Struct, kw_only=True):
    object: str = "list"
    model: str
    data: list[Embedding]
    usage: EmbeddingsUsage


class PredictResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    label: str | float | list[str]
    probability: float | None = None
    probabilities: dict[str, float] | None = None
    start: int | None = None
    end: int | None = None


class GuessResult(msgspec.Struct, kw_only=True):
    token: str
    id: int
    probability: float
    word: str


class FillResult(msgspec.Struct, kw_only=True):
    masks: list[list[GuessResult]]


class OrderResult(msgspec.Struct, kw_only=True):
    in_order: float


class Document(msgspec.Struct, kw_only=True):
    text: str


class RerankResult(msgspec.Struct, kw_only=True, omit_defaults=True):
    index: int
    relevance_score: float
    document: Document | None = None


class TokenizeResult(msgspec.Struct, kw_only=True):
    ids: list[int]
    tokens: list[str]
    segments: list[int]


class TaskInfo(msgspec.Struct, kw_only=True):
    kind: str
    labels: list[str]
    columns: list[str]
    pairs: bool
    max_tokens: int


class ModelInfo(msgspec.Struct, kw_only=True):
    name: str
    family: str
    engine: str
    layers: int
    any_depth: bool
    width: int
    max_tokens: int
    mask_token: str | None
    pooling: str
    normalize: bool
    exits: bool
    can: list[str]
    task: TaskInfo | None


class LimitsInfo(msgspec.Struct, kw_only=True):
    payload_bytes: int
    texts: int
    characters: int
    queue_tokens: int
    timeout: float


class InfoAnswer(msgspec.Struct, kw_only=True):
    version: str
    models: list[ModelInfo]
    limits: LimitsInfo


class ListedModel(msgspec.Struct, kw_only=True):
    id: str
    object: str = "model"
    created: int
    owned_by: str = "litebert"


class ModelsAnswer(msgspec.Struct, kw_only=True):
    object: str = "list"
    data: list[ListedModel]


def read_body(decoder: "msgspec.json.Decoder[Body]", body: bytes) -> Body:
    """A request from its body; a refusal that names what is wrong."""
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        raise _wrong(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError, ValueError, OverflowError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else _plain(str(error))
        raise Refusal(400, "bad_json", f"the body is not JSON in UTF-8 ({reason})") from None


def _wrong(reason: str) -> Refusal:
    """msgspec's sentence about a field in our words."""
    place = _AT.search(reason)
    field = _FIELD.match(place[1]) if place else None
    param = field[1] if field else None
    index = int(field[2]) if field and field[2] else None
    what = _plain(_AT.sub("", reason))
    unknown = _UNKNOWN.search(reason)
    if unknown:
        return Refusal(
            422, "bad_field", f"there is no field '{unknown[1][:60]}' here; see /docs", param=unknown[1][:60]
        )
    where = place[1].removeprefix("$.").removeprefix("$") if place else ""
    return Refusal(422, "bad_field", f"{where[:60] or 'the body'}: {what}", param=param, index=index)


def _plain(reason: str) -> str:
    return reason.replace("`", "'")[:200]


def encode(answer: Any) -> bytes:
    """JSON."""
    return msgspec.json.encode(answer)
