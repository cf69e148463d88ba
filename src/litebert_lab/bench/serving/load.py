"""A load generator for HTTP servers, in a process of its own: it prints what came back, and how soon, as JSON.

``closed``: each connection sends its next request when the last is answered, which finds the most that a server does.
``open``: requests begin at constant intervals whatever became of those before, on as many connections as that takes.
Beside both, ``/health`` is asked on a connection of its own. Standard library only, so that any interpreter can run it.

Client and server share the cores, so each can make the other late. A server's time counts from when a request is sent
(or its new connection begun) until the last byte of the answer reaches the socket, which Linux notes for every packet;
for how long the answer then lies there does not count. How late this process is itself is reported beside it:
``send_late`` against the schedule, ``read_late`` after the answer was there; ``seen`` is all of it, from due to read.
"""

import json
import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

MOST = 1000  # connections
PATIENCE = 60.0  # seconds for an answer
TIMESTAMP = getattr(socket, "SO_TIMESTAMPNS", 35)  # Linux: when a packet came, by the clock of the day
STAMP = struct.Struct("ll")
HEALTH_EACH = 0.1  # seconds


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
class Times:
    """Of answers of a kind, in seconds: what the server took, how late the client was, and both."""

    server: list[float] = field(default_factory=list)
    send_late: list[float] = field(default_factory=list)
    read_late: list[float] = field(default_factory=list)

    def spreads(self) -> dict[str, Any]:
        """The spread of each, the server's at the top; empty of no answers."""
        if not self.server:
            return {}
        seen = [sum(parts) for parts in zip(self.server, self.send_late, self.read_late, strict=True)]
        late = {"send_late": self.send_late, "read_late": self.read_late, "seen": seen}
        return spread(self.server) | {name: spread(times) for name, times in late.items()}


class Connection:
    """HTTP/1.1 on one connection, a request at a time."""

    def __init__(self, port: int, poll: select.epoll) -> None:
        self.poll = poll
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)
        self.number = self.socket.fileno()
        poll.register(self.number, select.EPOLLIN)
        self.kind: Kind | None = None  # of the request that is not answered yet
        self.due = self.sent = 0.0
        self.received = b""

    def send(self, request: bytes, kind: "Kind", due: float, sent: float) -> None:
        """Send a request."""
        self.kind, self.due, self.sent, self.received = kind, due, sent, b""
        self.socket.sendall(request)

    def receive(self) -> tuple[str, float] | None:
        """Read what is there: the status, and for how long the answer lay there; None where it is not whole."""
        data, notes, _, _ = self.socket.recvmsg(1 << 18, 64)
        today = time.time()
        if not data:
            raise ConnectionError("closed")
        self.received += data
        heading, end, body = self.received.partition(b"\r\n\r\n")
        lines = heading.lower().split(b"\r\n")
        length = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), None)
        whole = body.endswith(b"0\r\n\r\n") if length is None else len(body) >= length
        if not (end and whole):
            return None
        if b"connection: close" in lines:
            self.close()
        stamps = [STAMP.unpack(note[: STAMP.size]) for level, _, note in notes if level == socket.SOL_SOCKET]
        lain = max(today - stamps[0][0] - stamps[0][1] / 1e9, 0.0) if stamps else 0.0
        return heading[9:12].decode(), lain

    @property
    def is_open(self) -> bool:
        """Whether it can be used again."""
        return self.socket.fileno() >= 0

    def close(self) -> None:
        """End it; the poll forgets it by itself."""
        self.socket.close()


@dataclass
class Kind:
    """Requests that are counted together, and their connections that are free."""

    requests: Sequence[bytes]
    times: dict[str, Times] = field(default_factory=dict)  # by status
    free: list[Connection] = field(default_factory=list)
    sent: int = 0

    def next(self) -> bytes:
        """The next request, in turn."""
        self.sent += 1
        return self.requests[(self.sent - 1) % len(self.requests)]


class Generator:
    """Sends a load, in one thread that waits for answers and for what is due next."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.main = Kind([_request("POST", load.path, body.encode()) for body in load.bodies])
        self.health = Kind([_request("GET", load.health, b"")])
        self.statuses: Counter[str] = Counter()
        self.unanswered = 0  # requests that were sent in full, and whose connection ended without an answer
        self.poll = select.epoll()
        self.connections: dict[int, Connection] = {}
        self.waiting = self.most_waiting = 0

    def run(self) -> dict[str, Any]:
        """Send everything; the figures."""
        begun, used = time.perf_counter(), time.process_time()
        if self.load.mode == "open":
            self._open(begun)
        else:
            self._closed(begun + self.load.seconds)
        seconds = time.perf_counter() - begun
        good = self.main.times.get("200", Times())
        return {
            "seconds": seconds,
            "per_second": len(good.server) / seconds,
            "statuses": dict(self.statuses),
            "answered": good.spreads(),
            "refused": self.main.times.get("429", Times()).spreads(),
            "health": self.health.times.get("200", Times()).spreads(),
            "unanswered": self.unanswered,
            "most_connections": self.most_waiting,
            "client_cores": (time.process_time() - used) / seconds,
        }

    def _closed(self, until: float) -> None:
        """As many requests as the connections can, until a time, or until the server takes no more connections."""
        while (now := time.perf_counter()) < until and not self.statuses["refused"]:
            while self.waiting < self.load.connections and not self.statuses["refused"]:
                self._send(self.main, now)
            self._receive(until - now)
        self._await(until + PATIENCE)

    def _open(self, begun: float) -> None:
        """Requests at a constant rate."""
        load = self.load
        checks = int(load.seconds / HEALTH_EACH) if load.health else 0
        due = [(begun + number / load.rate, self.main) for number in range(int(load.seconds * load.rate))]
        due += [(begun + number * HEALTH_EACH, self.health) for number in range(checks)]
        due.sort(key=lambda one: -one[0])
        while due:
            early = due[-1][0] - time.perf_counter()
            if early <= 0:
                at, kind = due.pop()
                if self.waiting < MOST:
                    self._send(kind, at)
                else:
                    self.statuses["not sent"] += 1
            self._receive(early)  # after each that is late, too, so that answers are not read late for it
        self._await(begun + load.seconds + PATIENCE)

    def _await(self, until: float) -> None:
        """Wait for the last answers; what has none by then never gets one."""
        while self.waiting and time.perf_counter() < until:
            self._receive(1.0)
        for connection in self.connections.values():
            if connection.kind is not None:
                self._lose(connection, TimeoutError())

    def _send(self, kind: Kind, due: float) -> None:
        sent = time.perf_counter()
        try:
            connection = kind.free.pop() if kind.free else Connection(self.load.port, self.poll)
        except ConnectionRefusedError:
            self.statuses["refused"] += 1
            return
        self.connections[connection.number] = connection
        self.waiting += 1
        self.most_waiting = max(self.most_waiting, self.waiting)
        try:
            connection.send(kind.next(), kind, due, sent)
        except OSError as error:
            self._lose(connection, error)

    def _receive(self, seconds: float) -> None:
        """Wait for answers, at most so long."""
        for number, _ in self.poll.poll(min(max(seconds, 0.0), 1.0)):
            connection = self.connections[number]
            try:
                found = connection.receive()
            except OSError as error:
                self._lose(connection, error)
            else:
                if found is not None:
                    self._count(connection, *found)

    def _count(self, connection: Connection, status: str, lain: float) -> None:
        now, kind = time.perf_counter(), connection.kind
        assert kind is not None
        connection.kind = None
        self.waiting -= 1
        if connection.is_open:
            kind.free.append(connection)
        if kind is self.main:
            self.statuses[status] += 1
        read_late = min(lain, now - connection.sent)
        times = kind.times.setdefault(status, Times())
        times.server.append(now - connection.sent - read_late)
        times.send_late.append(connection.sent - connection.due)
        times.read_late.append(read_late)

    def _lose(self, connection: Connection, error: OSError) -> None:
        """The server ended a connection, which is fine between requests."""
        connection.close()
        if connection.kind is None:
            for kind in (self.main, self.health):
                kind.free = [one for one in kind.free if one is not connection]
            return
        self.waiting -= 1
        if connection.kind is self.main:
            self.unanswered += 1
            self.statuses[type(error).__name__] += 1
        connection.kind = None


def _request(method: str, path: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def spread(times: Sequence[float]) -> dict[str, float]:
    """Median, 99th percentile and the longest, in milliseconds; empty of none."""
    if not times:
        return {}
    ordered = sorted(times)

    def at(share: float) -> float:
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    return {"p50": at(0.5), "p99": at(0.99), "longest": 1000 * ordered[-1]}


if __name__ == "__main__":
    print(json.dumps(Generator(Load(**json.loads(sys.stdin.read()))).run()))
