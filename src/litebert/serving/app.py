"""The routes: bodies are received and checked here, on the event loop; everything else is done by ``work.py``.

The loop must never wait for anything but clients: it decodes small JSON, puts jobs into the queue and sends bytes that
threads have made. ``Front`` stands before all routes: a number for each request, times, the key, logs and figures, and
an answer for whatever goes wrong, without a traceback.
"""

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from litebert.pages.assemble import page_html
from litebert.serving import messages, questions
from litebert.serving.messages import Limits, Refusal, defect, encode
from litebert.serving.metrics import CONTENT_TYPE, Metrics
from litebert.serving.openapi import ROUTES, docs_page, openapi
from litebert.serving.served import Models
from litebert.serving.work import Job, Workers, WorkQueue, too_late
from litebert.version import __version__

OPEN = {"/", "/health", "/ready", "/docs", "/openapi.json"}  # routes that need no key: they hold no secrets
LENIENCE = 16 << 20  # bytes beyond the payload limit that are read and thrown away, so that clients see the refusal
REQUEST_ID = re.compile(r"[\w.-]{1,64}", re.ASCII)
SAFE = (b"x-content-type-options", b"nosniff")
PAGE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"

log = logging.getLogger(__name__)
access = logging.getLogger("litebert.access")

QUESTIONS: Mapping[str, type[questions.ModelQuestion[Any]]] = {
    "/v1/embeddings": questions.Embeddings,
    "/predict": questions.Predict,
    "/fill": questions.Fill,
    "/order": questions.Order,
    "/rerank": questions.Rerank,
    "/tokenize": questions.Tokenize,
}
DECODERS = {route: msgspec.json.Decoder(request) for route, (_, request, _, _) in ROUTES.items()}


class Gone(Exception):  # noqa: N818  # nobody is there to be told of an error
    """The client left before its answer was there."""


@dataclass
class Note:
    """What is known of a request for its log line and its headers."""

    id: str
    begun: float = field(default_factory=time.monotonic)
    route: str = "unknown"
    model: str = ""
    texts: int = 0
    tokens: int = 0
    status: int = 0
    code: str = ""
    times: dict[str, float] = field(default_factory=dict)  # in milliseconds


class Service:
    """The state of a server: its models, its queue, and whether it accepts work."""

    def __init__(self, models: Models, queue: WorkQueue, workers: Workers, limits: Limits) -> None:
        self.models, self.queue, self.workers, self.limits = models, queue, workers, limits
        self.metrics = Metrics(models, queue)
        self.in_progress = 0
        self.receiving = 0  # bytes of bodies that are being received
        self.ready, self.accepting = True, True

    # Routes

    async def ask(self, request: HttpRequest) -> Response:
        """Answer a question to a model."""
        route, note = request.url.path, request.scope["note"]
        if not self.accepting:
            raise Refusal(503, "draining", "the server is shutting down; ask another one", retry_after=1)
        body = await self._body(request)
        asked = messages.read_body(DECODERS[route], body)
        question = QUESTIONS[route](asked, self.models, self.limits)
        note.model, note.texts = question.model, len(question.texts)
        wanted = getattr(asked, "timeout", None) or self.limits.timeout
        answer, job = await self._work(question, request, min(wanted, self.limits.timeout))
        note.tokens = job.tokens
        waited, prepared, ran = job.started - job.begun, job.prepared - job.started, job.ended - job.prepared
        note.times |= {"wait": 1000 * waited, "tokenize": 1000 * prepared, "model": 1000 * ran}
        self.metrics.worked(question.model, job.texts, job.tokens, waited, ran)
        return Response(answer, media_type="application/json")

    async def _body(self, request: HttpRequest) -> bytes:
        """The body of a request, within its limits of size and time."""
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "bad_content_type", "send JSON with the header 'Content-Type: application/json'")
        most, found, size = self.limits.payload, list[bytes](), 0
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and int(declared[:19]) > most + LENIENCE * ("expect" not in request.headers):
            raise self._too_large()
        try:
            async with asyncio.timeout(self.limits.receive):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size <= most:
                        found.append(chunk)
                        self.receiving += len(chunk)
                        if self.receiving > self.limits.bodies:
                            raise Refusal(429, "overloaded", "too much is being received; try later", retry_after=1)
                    elif size > most + LENIENCE:
                        break
        except TimeoutError:
            raise Refusal(408, "slow_client", f"the body did not arrive in {self.limits.receive:g} seconds") from None
        except ClientDisconnect:
            raise Gone from None
        finally:
            self.receiving -= sum(map(len, found))
        if size > most:
            raise self._too_large()
        return b"".join(found)

    def _too_large(self) -> Refusal:
        most = self.limits.payload
        return Refusal(413, "payload_too_large", f"the body has more than {most:,} bytes; send fewer texts at once")

    async def _work(self, question: Any, request: HttpRequest, seconds: float) -> tuple[bytes, Job]:
        """Have a question answered by the threads, unless its client leaves or its time is up."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def settle(answer: bytes | Exception) -> None:
            if future.done():
                return
            if isinstance(answer, bytes):
                future.set_result(answer)
            else:
                future.set_exception(answer)

        def done(_: Job, answer: bytes | Refusal) -> None:
            loop.call_soon_threadsafe(settle, answer)

        job = Job(question, time.monotonic() + seconds, done)
        self.queue.submit(job)
        timer = loop.call_later(seconds, settle, too_late())
        watch = loop.create_task(_left(request.receive, settle))
        try:
            return await future, job
        finally:
            timer.cancel()
            watch.cancel()
            self.queue.end(job)

    async def models_list(self, _: HttpRequest) -> Response:
        """The names of the models in OpenAI's shape."""
        data = [messages.ListedModel(id=one.name, created=one.loaded_at) for one in self.models]
        return Response(encode(messages.ModelsAnswer(data=data)), media_type="application/json")

    async def info(self, _: HttpRequest) -> Response:
        """The models, what they can do, and the limits."""
        limits = messages.LimitsInfo(
            payload_bytes=self.limits.payload,
            texts=self.limits.texts,
            characters=self.limits.characters,
            queue_tokens=self.limits.queue_tokens,
            timeout=self.limits.timeout,
        )
        models = [one.info() for one in self.models]
        answer = messages.InfoAnswer(version=__version__, models=models, limits=limits)
        return Response(encode(answer), media_type="application/json")

    async def health(self, _: HttpRequest) -> Response:
        """Whether the process lives; 500 where a thread was lost, so that it is started anew."""
        alive = self.workers.alive
        return Response(
            encode({"status": "ok" if alive else "broken"}), 200 if alive else 500, media_type="application/json"
        )

    async def readiness(self, _: HttpRequest) -> Response:
        """Whether work is accepted."""
        status = "ready" if self.ready else "draining"
        return Response(encode({"status": status}), 200 if self.ready else 503, media_type="application/json")

    async def figures(self, _: HttpRequest) -> Response:
        """The figures for Prometheus."""
        return PlainTextResponse(self.metrics.text(self.in_progress), media_type=CONTENT_TYPE)


async def _left(receive: Receive, settle: Callable[[Exception], None]) -> None:
    """Settle a request whose client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
    settle(Gone())


class Front:
    """Before all routes: ids, the key, times, logs, figures, and answers for errors."""

    def __init__(self, app: ASGIApp, service: Service, key: str | None) -> None:
        self._app, self._service = app, service
        self._key = None if key is None else _digest(key.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        service = self._service
        headers = dict(scope["headers"])
        note = Note(id=_request_id(headers.get(b"x-request-id")))
        scope["note"] = note
        if scope["path"] in ROUTE_NAMES:
            note.route = scope["path"]
        service.in_progress += 1
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started, note.status = True, message["status"]
                message["headers"] = [*message["headers"], *self._extra_headers(note)]
            async with asyncio.timeout(service.limits.send):
                await send(message)

        try:
            if self._key is not None and note.route not in OPEN:
                self._check_key(headers.get(b"authorization", b""))
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if started and not isinstance(error, Gone | TimeoutError):
                raise
            await self._failed(error, scope, note, send_with_headers)
            error.__traceback__ = None  # or it and its frames are a cycle: to look for those stops the event loop
        finally:
            service.in_progress -= 1
            self._record(scope, note)

    async def _failed(self, error: Exception, scope: Scope, note: Note, send: Send) -> None:
        """Answer what was not answered, where somebody is there to be told."""
        if isinstance(error, Gone):
            note.status, note.code = 499, "client_left"  # as nginx logs it
        elif isinstance(error, TimeoutError):
            note.code = "slow_reader"
            if "abort" in scope:
                scope["abort"]()
        else:
            refusal = _as_refusal(error)
            if error is not refusal and refusal.status == 500:
                log.error("unexpected error in request %s", note.id, exc_info=error)
            await answer_refusal(refusal, note, send)

    def _check_key(self, given: bytes) -> None:
        scheme, _, key = given.partition(b" ")
        assert self._key is not None
        if not hmac.compare_digest(_digest(key.strip()), self._key) or scheme.lower() != b"bearer":
            raise Refusal(401, "bad_key", "send the server's key in the header 'Authorization: Bearer KEY'")

    def _extra_headers(self, note: Note) -> list[tuple[bytes, bytes]]:
        note.times["total"] = 1000 * (time.monotonic() - note.begun)
        timing = ", ".join(f"{name};dur={value:.2f}" for name, value in note.times.items())
        found = [(b"x-request-id", note.id.encode()), (b"server-timing", timing.encode()), SAFE]
        if not self._service.ready:
            found.append((b"connection", b"close"))
        return found

    def _record(self, scope: Scope, note: Note) -> None:
        seconds = time.monotonic() - note.begun
        self._service.metrics.answered(note.route, note.model, note.status, seconds)
        if access.isEnabledFor(logging.INFO):
            client = scope.get("client")
            line: dict[str, Any] = {
                "time": round(time.time(), 3),
                "id": note.id,
                "client": client[0] if client else "",
                "method": scope["method"] if scope["method"] in METHODS else "other",
                "route": note.route,
                "status": note.status,
                "ms": round(1000 * seconds, 2),
            }
            if note.model:
                line |= {"model": note.model, "texts": note.texts, "tokens": note.tokens}
            if note.code:
                line["code"] = note.code
            line |= {f"{name}_ms": round(value, 2) for name, value in note.times.items() if name != "total"}
            access.info(encode(line).decode())


METHODS = {"GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH"}
ROUTE_NAMES = {*QUESTIONS, "/v1/models", "/info", "/health", "/ready", "/metrics", "/docs", "/openapi.json", "/"}


async def answer_refusal(refusal: Refusal, note: Note, send: Callable[[Message], Awaitable[None]]) -> None:
    """Send an error."""
    note.code, body = refusal.code, refusal.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refusal.status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body may still be on its way
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _as_refusal(error: Exception) -> Refusal:
    if isinstance(error, Refusal):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == 404:
            return Refusal(404, "no_such_route", "there is no such route; /docs lists them")
        if error.status_code == 405:
            return Refusal(405, "bad_method", "this route has another method; /docs lists them")
        return Refusal(error.status_code, "bad_request", "the request cannot be understood")
    return defect()


def _request_id(given: bytes | None) -> str:
    """The client's number of a request, if it is harmless, else a new one."""
    text = (given or b"").decode("ascii", "replace")
    return text if REQUEST_ID.fullmatch(text) else secrets.token_hex(8)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


async def _raise(_: HttpRequest, error: Exception) -> Response:
    """Leave an error to ``Front``."""
    raise error


def make_app(service: Service, *, key: str | None = None, origins: Sequence[str] = ()) -> ASGIApp:
    """The application: all routes behind ``Front``."""
    described = openapi(key is not None)
    described_bytes, page = encode(described), docs_page(described)

    async def home(_: HttpRequest) -> Response:
        return Response(page_html(), media_type="text/html", headers={"x-content-type-options": "nosniff"})

    async def docs(_: HttpRequest) -> Response:
        return HTMLResponse(page, headers={"content-security-policy": PAGE_POLICY})

    async def openapi_json(_: HttpRequest) -> Response:
        return Response(described_bytes, media_type="application/json")

    routes = [Route(path, service.ask, methods=["POST"]) for path in QUESTIONS]
    routes += [
        Route("/", home),
        Route("/v1/models", service.models_list),
        Route("/info", service.info),
        Route("/health", service.health),
        Route("/ready", service.readiness),
        Route("/metrics", service.figures),
        Route("/docs", docs),
        Route("/openapi.json", openapi_json),
    ]
    app: ASGIApp = Starlette(routes=routes, exception_handlers={HTTPException: _raise, Exception: _raise})
    app.router.redirect_slashes = False  # type: ignore[attr-defined]
    app = Front(app, service, key)
    if origins:  # outside, so that refusals have its headers, too, and its own requests need no key
        app = CORSMiddleware(
            app,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type"],
            expose_headers=["server-timing", "x-request-id", "retry-after"],
        )
    return app
