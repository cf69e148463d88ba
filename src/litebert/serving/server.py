"""A running server: the socket, connections with limits of their own, log lines that never block, and a quiet end.

uvicorn does the rest. On SIGTERM the server says at ``/ready`` that it is leaving, keeps answering for a moment while
load balancers notice, refuses new work, finishes all it has accepted, and ends. A second signal ends it at once.
"""

import asyncio
import gc
import logging
import logging.handlers
import os
import queue
import resource
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from litebert.errors import InputError
from litebert.serving.app import Service, access, make_app
from litebert.serving.messages import Limits
from litebert.serving.served import Models
from litebert.serving.work import GPU, Workers, WorkQueue
from litebert.system import available_cores

KEY_VARIABLE = "LITEBERT_KEY"
LOG_LINES = 10_000  # that wait for whoever reads the log; more are dropped
SWITCH = 0.001  # seconds that a thread may keep the interpreter while another waits; the default is 5 times that
NEW_OBJECTS = 100_000  # after which Python looks for cycles: more than belong to the requests that can wait
BACKLOG = 2048
LAST_WORDS = 0.5  # seconds that connections have to ask something after no more are taken

log = logging.getLogger(__name__)


class Connection(HttpToolsProtocol):
    """A connection that is closed where headers take too long or too much room; uvicorn waits for both forever."""

    limits = Limits()

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._header_bytes = 0
        self._in_headers = True
        self._watch: asyncio.TimerHandle | None = self.loop.call_later(self.limits.idle, self._give_up)

    def data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
        before = self._in_headers
        super().data_received(data)
        if before and self._in_headers and self._header_bytes > self.limits.headers:
            self.transport.abort()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["abort"] = self.transport.abort  # type: ignore[typeddict-unknown-key]

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._stop_watch()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers = True

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self.transport.is_closing():
            self._stop_watch()
            self._watch = self.loop.call_later(self.limits.idle, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_watch()
        super().connection_lost(exc)

    def _stop_watch(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _give_up(self) -> None:
        """Close a connection on which no request has begun, or none has come further than its headers."""
        if self.cycle is None or self.cycle.response_complete:
            self.transport.abort()


class DrainingServer(uvicorn.Server):
    """uvicorn's server with an end that loses nothing."""

    def __init__(self, config: uvicorn.Config, service: Service, listening: socket.socket, grace: float) -> None:
        super().__init__(config)
        self.service, self.grace = service, grace
        self._door = listening.dup()  # the loop closes the other
        self._door.setblocking(False)
        self._leaving_since: float | None = None
        self._door_closed_at: float | None = None

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin to leave; at a second signal, leave."""
        if self._leaving_since is None:
            self._leaving_since = time.monotonic()
            self.service.ready = False
        elif time.monotonic() - self._leaving_since > 0.5:  # a terminal and a parent may both send the first
            self.should_exit = self.force_exit = True

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second: leave once nothing is left to do."""
        if self._leaving_since is not None and not self.should_exit:
            gone = time.monotonic() - self._leaving_since
            if gone >= self.grace:
                self.service.accepting = False
                if self.service.in_progress == 0 or gone > self.grace + self._longest():
                    await self._close_door()
        return await super().on_tick(counter)

    async def _close_door(self) -> None:
        """Take no more connections; those just taken may still ask, and are answered that the server is stopping."""
        now = time.monotonic()
        if self._door_closed_at is None:
            self._door_closed_at = now
            for server in self.servers:
                server.close()
            await self._let_in_who_waits()
        elif now - self._door_closed_at > LAST_WORDS or not self.server_state.connections:
            self.should_exit = True

    async def _let_in_who_waits(self) -> None:
        """Take the connections that the system took for us already; it would cut them off with the socket."""

        def protocol() -> Connection:
            return Connection(self.config, self.server_state, self.lifespan.state)

        with self._door, suppress(OSError):  # BlockingIOError: there are no more
            while True:
                taken, _ = self._door.accept()
                taken.setblocking(False)
                await asyncio.get_running_loop().connect_accepted_socket(protocol, taken)

    def _longest(self) -> float:
        """The longest that an accepted request can take."""
        limits = self.service.limits
        return limits.receive + limits.timeout + limits.send


class QueuedHandler(logging.handlers.QueueHandler):
    """Hands log lines to a thread; drops them where nobody reads, so that a full pipe stops no request."""

    def __init__(self, lines: "queue.Queue[Any]", service: Service) -> None:
        super().__init__(lines)
        self.service = service

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put a line into the queue if there is room."""
        try:
            self.queue.put_nowait(record)
        except queue.Full:
            self.service.metrics.dropped_logs += 1


def serve_models(
    models: Models,
    *,
    host: str,
    port: int,
    threads: int | None,
    limits: Limits,
    key: str | None,
    origins: tuple[str, ...],
    grace: float,
    reuse_port: bool,
    log_requests: bool,
) -> None:
    """Serve until a signal comes."""
    on_gpu = any(one.lane == GPU for one in models)
    count = threads or available_cores()
    work = WorkQueue(limits.queue_tokens, count)
    service = Service(models, work, Workers(work, count, gpu=on_gpu), limits)
    listening = open_socket(host, port, reuse_port)
    lines = start_log(service, log_requests)
    Connection.limits = limits
    config = uvicorn.Config(
        make_app(service, key=key, origins=origins),
        http=Connection,
        ws="none",
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(limits.idle),
        timeout_graceful_shutdown=int(limits.timeout + limits.send),
        backlog=BACKLOG,
    )
    sys.setswitchinterval(SWITCH)
    search_less_for_garbage()
    raise_open_files()
    address, number = listening.getsockname()[:2]
    shown = f"[{address}]" if ":" in address else address
    log.info(f"serving {', '.join(one.name for one in models)} on http://{shown}:{number} with {count} threads")
    try:
        DrainingServer(config, service, listening, grace).run(sockets=[listening])
        log.info("all requests are answered")
    finally:
        lines.stop()


def open_socket(host: str, port: int, reuse_port: bool) -> socket.socket:
    """The socket to listen on; port 0 is a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG, reuse_port=reuse_port)
    except OSError as error:
        raise InputError(
            f"port is {port} but it cannot be listened on at {host} ({error.strerror or error}); choose another",
            parameter="port",
        ) from None
    except (TypeError, ValueError):  # of characters that no name has
        raise InputError(
            f"host is '{host}' but must be the name or address of this machine", parameter="host"
        ) from None


def start_log(service: Service, log_requests: bool) -> logging.handlers.QueueListener:
    """One JSON line for each request on standard error, written by a thread of its own."""
    lines: queue.Queue[Any] = queue.Queue(LOG_LINES)
    writer = logging.StreamHandler(sys.stderr)
    writer.setFormatter(logging.Formatter("%(message)s"))
    access.handlers, access.propagate = [QueuedHandler(lines, service)], False
    access.setLevel(logging.INFO if log_requests else logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)  # bad requests are no news; ours are logged here
    listener = logging.handlers.QueueListener(lines, writer)
    listener.start()
    return listener


def search_less_for_garbage() -> None:
    """Let Python look for cycles of objects seldom, and not among what is loaded.

    The event loop stands still meanwhile, for 30 to 90 ms where many requests wait. Requests leave no cycles, whatever
    becomes of them (see tests), so what is found is little; memory stays bounded if one day they do.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS)


def raise_open_files() -> None:
    """Allow as many connections as the system does; the default is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def read_key(path: str | os.PathLike[str] | None) -> str | None:
    """The bearer key from a file, or from the environment; never from the command line, which others can see."""
    if path is None:
        key = os.environ.get(KEY_VARIABLE, "").strip()
        return key or None
    try:
        key = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeError):
        raise InputError(f"key_file is '{path}' but it cannot be read", parameter="key_file") from None
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise InputError(f"key_file is '{path}' but it must hold one key of printable ASCII", parameter="key_file")
    return key
