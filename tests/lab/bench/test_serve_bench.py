"""The load generator counts every request once, whatever a server does, and keeps the client's lateness apart."""

import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from litebert_lab.bench.serving.load import Generator, Load, spread


class Odd(BaseHTTPRequestHandler):
    """Answers by what the body says: with a status, in chunks, with an end of the connection, or not at all."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[Counter[str]] = Counter()

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.seen[asked] += 1
        if asked == "hang up":
            self.close_connection = True
            return
        self.send_response(int(asked) if asked.isdecimal() else 200)
        if asked == "chunks":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"3\r\nabc\r\n0\r\n\r\n")
            return
        if asked == "close":
            self.send_header("Connection", "close")
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"{ }\n")

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        """Nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    Odd.seen.clear()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Odd)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_address[1]
    server.shutdown()
    server.server_close()


BODIES = ["200", "429", "chunks", "close", "hang up"]


@pytest.mark.parametrize("mode", ["open", "closed"])
def test_every_request_is_counted_once(port, mode):
    found = Generator(
        Load(port=port, path="/", bodies=BODIES, mode=mode, seconds=0.5, rate=100, connections=3, health="/health")
    ).run()
    statuses, served = found["statuses"], Odd.seen
    assert statuses["200"] == served["200"] + served["chunks"] + served["close"]
    assert statuses["429"] == served["429"] > 0
    assert found["unanswered"] == statuses["ConnectionError"] == served["hang up"] > 0
    assert sum(statuses.values()) == served.total()
    if mode == "open":
        assert served.total() == 50
        assert found["health"]["p50"] > 0


def test_lateness_of_the_client_is_apart_from_the_time_of_the_server(port):
    generator = Generator(Load(port=port, path="/", bodies=["200"], mode="open", seconds=0.2, rate=100))
    generator.run()
    times = generator.main.times["200"]
    assert len(times.server) == len(times.send_late) == len(times.read_late) == 20
    assert min(times.server + times.send_late) >= 0 and max(times.server) > 0  # two clocks, which may differ a little
    assert any(times.read_late)  # the system said when answers came
    assert times.spreads()["p50"] == spread(times.server)["p50"] < times.spreads()["seen"]["longest"]


def test_a_port_that_nobody_listens_on_ends_the_load():
    with ThreadingHTTPServer(("127.0.0.1", 0), Odd) as server:
        closed = server.server_address[1]
    found = Generator(Load(port=closed, path="/", bodies=["200"], seconds=60.0)).run()
    assert found["statuses"] == {"refused": 1} and found["per_second"] == 0
