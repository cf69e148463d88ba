"""A load generator for HTTP servers, in a process of its own: it prints what came back, and how soon, as JSON.

``closed``: each connection sends its next request when the last is answered, which finds the most that a server does.
``open``: requests begin at constant intervals whatever became of those before, on as many connections as that takes;
times count from when a request was due, so that a server that stalls is seen to stall. Beside both, ``/health`` is
asked on a connection of its own. Standard library only, so that any interpreter can run it.
"""

import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MOST = 1000  # connections
PATIENCE = 60.0  # seconds for an answer


@dataclass(frozen=True, kw_only=True)
class Load:
    """What to send: ``bodies`` in turn; ``rate`` requests a second where the mode is open."""

    port: int
    path: str
    bodies: Sequence[str]
    mode: str = "closed"
    seconds: float = 10.0
    connections: int = 16
    rate: float = 0.0
    health: str = ""  # a route to ask ten times a second


@dataclass
class Tally:
    """What came back."""

    statuses: Counter[str] = field(default_factory=Counter)
    times: dict[str, list[float]] = field(default_factory=dict)
    health: list[float] = field(default_factory=list)
    unanswered: int = 0  # requests that were sent in full, and whose connection ended without an answer
    most_connections: int = 0

    def add(self, status: str, seconds: float) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        self.times.setdefault(status, []).append(seconds)


class Connection:
    """HTTP/1.1 on one connection, a request at a time."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.reader: asyncio.StreamReader | None = None
        self.writer: asyncio.StreamWriter | None = None

    async def ask(self, head: bytes, body: bytes) -> str:
        """Send a request and read all of its answer: the status."""
        if self.writer is None or self.writer.is_closing() or (self.reader and self.reader.at_eof()):
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        assert self.reader is not None
        self.writer.write(head + body)
        heading = await self.reader.readuntil(b"\r\n\r\n")
        lines = heading.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
        if any(line.startswith(b"transfer-encoding: chunked") for line in lines):
            await self._chunks()
        else:
            await self.reader.readexactly(length)
        if b"connection: close" in lines:
            self.close()
        return heading[9:12].decode()

    async def _chunks(self) -> None:
        assert self.reader is not None
        while size := int(await self.reader.readline(), 16):
            await self.reader.readexactly(size + 2)
        await self.reader.readline()

    def close(self) -> None:
        """End it; the next request opens another."""
        if self.writer is not None:
            self.writer.close()
        self.writer = None


class Generator:
    """Sends a load."""

    def __init__(self, load: Load) -> None:
        self.load, self.tally = load, Tally()
        self.bodies = [body.encode() for body in load.bodies]
        self.sent = 0

    def head(self, method: str, path: str, length: int) -> bytes:
        """The headers of a request."""
        return (
            f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {length}\r\n\r\n"
        ).encode()

    async def one(self, connection: Connection, due: float) -> bool:
        """Send the next request; whether the server is still there."""
        body = self.bodies[self.sent % len(self.bodies)]
        self.sent += 1
        try:
            async with asyncio.timeout(PATIENCE):
                status = await connection.ask(self.head("POST", self.load.path, len(body)), body)
        except ConnectionRefusedError:
            self.tally.statuses["refused"] += 1
            return False
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            connection.close()
            self.tally.unanswered += 1
            self.tally.statuses[type(error).__name__] += 1
            return True
        self.tally.add(status, time.perf_counter() - due)
        return True

    async def closed(self) -> None:
        """As many requests as the connections can."""
        until = time.perf_counter() + self.load.seconds

        async def client() -> None:
            connection = Connection(self.load.port)
            while (now := time.perf_counter()) < until and await self.one(connection, now):
                pass
            connection.close()

        await asyncio.gather(*(client() for _ in range(self.load.connections)))

    async def open(self) -> None:
        """Requests at a constant rate."""
        free: list[Connection] = []
        running: set[asyncio.Task[None]] = set()
        begun = time.perf_counter()

        async def client(due: float) -> None:
            connection = free.pop() if free else Connection(self.load.port)
            await self.one(connection, due)
            free.append(connection)

        for number in range(int(self.load.seconds * self.load.rate)):
            due = begun + number / self.load.rate
            if (early := due - time.perf_counter()) > 0:
                await asyncio.sleep(early)
            if len(running) >= MOST:
                self.tally.statuses["not sent"] += 1
                continue
            task = asyncio.create_task(client(due))
            running.add(task)
            task.add_done_callback(running.discard)
            self.tally.most_connections = max(self.tally.most_connections, len(running))
        await asyncio.gather(*running)

    async def watch(self) -> None:
        """Ask for the health of the server ten times a second."""
        connection = Connection(self.load.port)
        while True:
            begun = time.perf_counter()
            try:
                status = await connection.ask(self.head("GET", self.load.health, 0), b"")
                self.tally.health.append(time.perf_counter() - begun if status == "200" else PATIENCE)
            except (OSError, asyncio.IncompleteReadError):
                connection.close()
            await asyncio.sleep(max(0.0, 0.1 - (time.perf_counter() - begun)))

    async def run(self) -> dict[str, Any]:
        """Send everything; the figures."""
        watcher = asyncio.create_task(self.watch()) if self.load.health else None
        begun = time.perf_counter()
        await (self.open() if self.load.mode == "open" else self.closed())
        seconds = time.perf_counter() - begun
        if watcher is not None:
            watcher.cancel()
        good = self.tally.times.get("200", [])
        return {
            "seconds": seconds,
            "per_second": len(good) / seconds,
            "statuses": dict(self.tally.statuses),
            "answered": spread(good),
            "refused": spread(self.tally.times.get("429", [])),
            "health": spread(self.tally.health),
            "unanswered": self.tally.unanswered,
            "most_connections": self.tally.most_connections,
        }


def spread(times: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and the longest, in milliseconds; empty of none."""
    if not times:
        return {}
    ordered = sorted(times)

    def at(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"p50": at(0.5), "p99": at(0.99), "longest": 1000 * ordered[-1]}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(Generator(Load(**json.loads(sys.stdin.read()))).run())))
