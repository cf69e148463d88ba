"""What a server refuses and how: keys, sizes, counts, times, overload; and what clients that misbehave cannot do."""

import asyncio
import gc
import http.client
import json
import random
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import litebert
from litebert.serving.app import Service, make_app
from litebert.serving.messages import Limits
from litebert.serving.served import Models, Served
from litebert.serving.work import CPU, Workers, WorkQueue

MB = 1 << 20


@pytest.mark.parametrize(
    ("path", "content", "status", "code", "param", "index", "words"),
    [
        ("/fill", b"{", 400, "bad_json", None, None, "JSON"),
        ("/fill", b"\xff\xfe", 400, "bad_json", None, None, "JSON"),
        ("/fill", b"{" + b'"a":{' * 3000, 422, "bad_field", "a", None, "'a'"),
        ("/fill", [], 422, "bad_field", None, None, "object"),
        ("/fill", {}, 422, "bad_field", None, None, "inputs"),
        ("/fill", {"inputs": 3}, 422, "bad_field", "inputs", None, "inputs"),
        ("/fill", {"inputs": ["the [MASK]", 3]}, 422, "bad_field", "inputs", 1, "str"),
        ("/fill", {"inputs": "the [MASK]", "dept": 3}, 422, "bad_field", "dept", None, "dept"),
        ("/fill", {"inputs": "the [MASK]", "depth": 4}, 422, "bad_field", "depth", None, "depth is 4"),
        ("/fill", {"inputs": "the [MASK]", "depth": 0}, 422, "bad_field", "depth", None, "depth"),
        ("/fill", {"inputs": "the [MASK]", "depth": True}, 422, "bad_field", "depth", None, "depth"),
        ("/fill", {"inputs": "the [MASK]", "top": 101}, 422, "bad_field", "top", None, "100"),
        ("/fill", {"inputs": ["the [MASK]", "the"]}, 422, "bad_field", "inputs", 1, "[MASK]"),
        ("/fill", {"inputs": "[MASK] " * 17}, 422, "bad_field", "inputs", 0, "17 masks"),
        ("/fill", {"inputs": []}, 422, "bad_field", "inputs", None, "empty"),
        ("/fill", {"inputs": "the [MASK]", "model": "no"}, 404, "no_such_model", "model", None, "'no'"),
        ("/fill", {"inputs": "the [MASK]", "model": "labels"}, 422, "not_able", "model", None, "labels cannot fill"),
        ("/fill", {"inputs": ["the [MASK]"] * 21}, 422, "too_many_texts", "inputs", 20, "21"),
        ("/fill", {"inputs": ["the [MASK]", "x" * 2001]}, 422, "text_too_long", "inputs", 1, "2,001 characters"),
        ("/fill", {"inputs": "x" * 20_001}, 413, "payload_too_large", None, None, "20,000"),
        ("/fill", {"inputs": "x" * 900_000}, 413, "payload_too_large", None, None, "20,000"),
        ("/v1/embeddings", {"input": "a", "model": "unrolled", "depth": 2}, 422, "bad_field", "depth", None, "always"),
        ("/v1/embeddings", {"input": [["a"]]}, 422, "bad_field", "input", 0, "int"),
        ("/v1/embeddings", {"input": [1, "a"]}, 422, "bad_field", "input", 0, "mixes"),
        ("/v1/embeddings", {"input": [1, 99]}, 422, "bad_field", "input", 0, "99"),
        ("/v1/embeddings", {"input": [[1], []]}, 422, "bad_field", "input", 1, "no token ids"),
        ("/v1/embeddings", {"input": [5] * 100}, 422, "text_too_long", "input", 0, "102 tokens"),
        ("/v1/embeddings", {"input": "a", "dimensions": 8}, 422, "bad_field", "dimensions", None, "64"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "x"}, 422, "bad_field", "encoding_format", None, "x"),
        ("/predict", {"inputs": "a", "model": "score"}, 422, "bad_field", "inputs", 0, "pair"),
        ("/predict", {"inputs": ["a", ["a"]], "model": "labels"}, 422, "bad_field", "inputs", 1, "two"),
        ("/predict", {"inputs": {"a": "b"}, "model": "labels"}, 422, "bad_field", "inputs", 0, "object"),
        ("/predict", {"inputs": {"body": "b"}, "model": "tickets"}, 422, "bad_field", "inputs", 0, "subject"),
        ("/predict", {"inputs": "a", "model": "labels", "exits": True}, 422, "bad_field", "exits", None, "no early"),
        ("/predict", {"inputs": {"question": "a"}, "model": "choice"}, 422, "bad_field", "inputs", 0, "options"),
        ("/predict", {"inputs": {"question": "a", "options": ["b"] * 33}, "model": "choice"}, 422, "bad_field",
         "inputs", 0, "33 options"),
        ("/predict", {"inputs": "a", "model": "span"}, 422, "bad_field", "inputs", 0, "question"),
        ("/order", {"inputs": ["a", "b"]}, 422, "bad_field", "inputs", 0, "array"),
        ("/order", {"inputs": [["a", "b"], ["a"]]}, 422, "bad_field", "inputs", 1, "two"),
        ("/rerank", {"query": "a", "documents": ["b"], "model": "labels", "label": "x"}, 422, "bad_field", "label",
         None, "no, yes, maybe"),
        ("/tokenize", {"inputs": [["a"]]}, 422, "bad_field", "inputs", 0, "two"),
        ("/nothing", {"inputs": "a"}, 404, "no_such_route", None, None, "/docs"),
        ("/fill/", {"inputs": "a"}, 404, "no_such_route", None, None, "/docs"),
        ("/fill", None, 405, "bad_method", None, None, "/docs"),
    ],
)  # fmt: skip
def test_refusals_name_what_is_wrong(server, path, content, status, code, param, index, words):
    answer = server.ask(path, content)
    assert (answer.status, answer.error["code"]) == (status, code), answer.body
    assert (answer.error["param"], answer.error["index"]) == (param, index), answer.body
    assert words in answer.error["message"]


def test_only_json_is_taken(server):
    refused = server.ask("/fill", {"inputs": "the [MASK]"}, headers={"Content-Type": "text/plain"})
    assert (refused.status, refused.error["code"]) == (415, "bad_content_type")
    taken = server.ask("/fill", {"inputs": "the [MASK]"}, headers={"Content-Type": "Application/JSON; charset=utf-8"})
    assert taken.status == 200


def test_a_key(serve, folders, tmp_path):
    (tmp_path / "key").write_text("sesame\n")
    server = serve(f"en={folders['en']}", "--key-file", tmp_path / "key")
    asked = {"inputs": "the [MASK]"}
    for headers in (
        {},
        {"Authorization": "Bearer sesam"},
        {"Authorization": "Basic sesame"},
        {"Authorization": "sesame"},
    ):
        refused = server.ask("/fill", asked, headers=headers)
        assert (refused.status, refused.error["code"]) == (401, "bad_key")
        assert refused.headers["www-authenticate"] == "Bearer"
    assert server.ask("/fill", asked, headers={"Authorization": "Bearer sesame"}).status == 200
    assert server.ask("/metrics").status == 401
    assert [server.ask(path).status for path in ("/health", "/ready", "/docs")] == [200, 200, 200]


def test_a_key_from_the_environment_and_pages_of_other_origins(serve, folders):
    server = serve(f"en={folders['en']}", "--origins", "https://a.example", environment={"LITEBERT_KEY": "sesame"})
    asked = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    allowed = server.ask("/fill", headers=asked, method="OPTIONS")
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    refused = server.ask("/fill", {"inputs": "a"}, headers={"Origin": "https://a.example"})
    assert refused.status == 401 and refused.headers["access-control-allow-origin"] == "https://a.example"
    other = server.ask("/health", headers={"Origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers


def test_other_origins_are_off_by_default(server):
    assert "access-control-allow-origin" not in server.ask("/health", headers={"Origin": "https://a.example"}).headers


DEEP = {"input": ["a cat and a dog ran far away , the cat sat on a mat ."] * 16}


def test_deadlines(serve, folders):
    server = serve(f"deep={folders['deep']}", "--threads", "1", "--no-log-requests")
    late = server.ask("/v1/embeddings", DEEP | {"timeout": 0.001})
    assert (late.status, late.error["code"]) == (504, "timeout")
    until_empty(server)
    assert server.ask("/v1/embeddings", DEEP | {"timeout": 1e300}).status == 200


def until_empty(server) -> None:
    for _ in range(200):
        if "litebert_queue_tokens 0\n" in server.ask("/metrics").body.decode():
            return
        time.sleep(0.05)
    raise AssertionError(server.ask("/metrics").body.decode())


def test_overload_is_refused_at_once_and_nothing_accepted_fails(serve, folders):
    server = serve(f"deep={folders['deep']}", "--queue-tokens", "1200", "--no-log-requests")
    stop, statuses, waits = threading.Event(), [], []

    def ask(_: int) -> None:
        while not stop.is_set():
            answer = server.ask("/v1/embeddings", DEEP)
            statuses.append(answer.status)
            if answer.status == 429:
                waits.append(int(answer.headers["retry-after"]))

    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(ask, number) for number in range(12)]
        healthy = []
        for _ in range(20):
            healthy.append(server.ask("/health").status)
            time.sleep(0.05)
        stop.set()
        for one in asked:
            one.result()
    assert set(statuses) == {200, 429}
    assert waits and all(wait >= 1 for wait in waits)
    assert healthy == [200] * 20
    until_empty(server)
    assert server.ask("/v1/embeddings", {"input": DEEP["input"] * 8}).status == 413  # more than may ever wait


def test_work_of_clients_that_left_is_given_up(serve, folders):
    server = serve(f"deep={folders['deep']}", "--threads", "1")
    body = json.dumps({"input": DEEP["input"] * 8}).encode()
    head = f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    for _ in range(6):
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(head + body)
            time.sleep(0.05)
    until_empty(server)
    text = server.ask("/metrics").body.decode()
    assert 'status="499"} 6' in text
    done = [line for line in text.splitlines() if line.startswith("litebert_texts_total")]
    assert not done  # not one of them was finished


def test_a_client_that_sends_slowly_holds_up_nobody(serve, folders):
    """Half a header and half a body; both connections are closed in the end, and others are answered meanwhile."""
    script = (
        "import sys; from litebert.serving import messages; import dataclasses as d;"
        "L = messages.Limits; messages.Limits = lambda **k: L(**{**k, 'receive': 0.5, 'idle': 0.7});"
        "from litebert.api import serve; from litebert.terminal import log_to_terminal; log_to_terminal();"
        "serve([sys.argv[1]], port=0)"
    )
    server = serve(f"en={folders['en']}", program=[sys.executable, "-c", script])
    with (
        socket.create_connection(("127.0.0.1", server.port)) as headers,
        socket.create_connection(("127.0.0.1", server.port)) as body,
    ):
        headers.sendall(b"POST /fill HTTP/1.1\r\nHost")
        body.sendall(b"POST /fill HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{")
        assert server.ask("/fill", {"inputs": "the [MASK]"}).status == 200
        headers.settimeout(20), body.settimeout(20)
        assert body.recv(1000).startswith(b"HTTP/1.1 408")
        with pytest.raises(ConnectionError):
            if headers.recv(1000) == b"":
                raise ConnectionError
    assert server.ask("/health").status == 200


def test_endless_headers_are_cut_off(server):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n")
        with pytest.raises(ConnectionError):
            for number in range(10_000):
                client.sendall(b"X-%d: %s\r\n" % (number, b"x" * 1000))
            if client.recv(10) == b"":
                raise ConnectionError
    assert server.ask("/health").status == 200


def test_requests_in_one_packet_are_all_answered_in_order(server):
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(20)
        client.sendall(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\nGET /ready HTTP/1.1\r\nHost: a\r\n\r\n")
        found = b""
        while found.count(b"HTTP/1.1 200") < 2 or not found.endswith(b"}"):
            found += client.recv(1000)
    assert found.index(b'"ok"') < found.index(b'"ready"')


def test_two_processes_share_a_port(serve, folders):
    first = serve(f"en={folders['en']}", "--reuse-port")
    second = serve(f"en={folders['en']}", "--reuse-port", "--port", first.port)
    assert [first.ask("/fill", {"inputs": "the [MASK]"}).status for _ in range(40)] == [200] * 40
    assert second.stop() == 0
    assert first.ask("/fill", {"inputs": "the [MASK]"}).status == 200  # the other is gone, this one goes on
    assert first.stop() == 0
    asked = [sum('"route":"/fill"' in line for line in server.lines) for server in (first, second)]
    assert sum(asked) == 41 and all(asked)


def test_sigterm_under_load_loses_nothing(serve, folders):
    server = serve(f"deep={folders['deep']}", "--threads", "1", "--no-log-requests", "--grace", "0.3")
    statuses, lock = [], threading.Lock()

    def ask(number: int) -> None:
        connection = server.connect()
        for _ in range(1000):
            try:
                connection.request("POST", "/v1/embeddings", json.dumps({"input": DEEP["input"][:2]}))
                response = connection.getresponse()
                response.read()
            except ConnectionRefusedError:
                return
            except (ConnectionError, http.client.RemoteDisconnected):
                if is_listening(server):
                    raise
                return
            with lock:
                statuses.append((response.status, response.getheader("connection")))
            if response.status == 503:
                return

    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(ask, number) for number in range(8)]
        time.sleep(1)
        before = len(statuses)
        assert server.ask("/ready").status == 200
        assert server.stop() == 0
        for one in asked:
            one.result()
    assert before > 0 and len(statuses) > before
    assert {status for status, _ in statuses} <= {200, 503}
    assert any(connection == "close" for _, connection in statuses)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/fill", b"{", 400),
        ("POST", "/fill", b'{"inputs": 3}', 422),
        ("POST", "/fill", b'{"inputs": []}', 422),
        ("POST", "/fill", b'{"inputs": "the cat"}', 422),  # noticed in a thread, by the model
        ("POST", "/fill", b'{"inputs": "a", "model": "x"}', 404),
        ("POST", "/fill", b'{"inputs": "' + b"a" * 30_000 + b'"}', 413),
        ("POST", "/nothing", b"", 404),
        ("GET", "/fill", b"", 405),
        ("POST", "/fill", None, None),  # the client leaves
        ("POST", "/fill", b'{"inputs": "the [MASK]"}', 200),
    ],
)
def test_requests_leave_nothing_to_collect(folders, method, path, body, status):
    """What refers to itself is found by a search of all objects, during which nobody is answered."""
    models = Models([Served("en", litebert.load(folders["en"], threads=1), "onnxruntime", CPU)])
    queue = WorkQueue(1000, 1)
    workers = Workers(queue, 1)
    app = make_app(Service(models, queue, workers, Limits(payload=20_000)))
    statuses = []

    async def ask() -> None:
        messages = [] if body is None else [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict:
            if messages or body is None:
                return messages.pop() if messages else {"type": "http.disconnect"}
            return await asyncio.Future()  # it waits for its answer

        async def send(message: dict) -> None:
            statuses.append(message.get("status"))

        scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b"", "root_path": ""}
        await app(scope, receive, send)
        await asyncio.sleep(0)

    async def repeat() -> int:
        await ask()  # the first sets things up
        gc.collect()
        for _ in range(10):
            await ask()
        return gc.collect()

    gc.disable()
    try:
        found = asyncio.run(repeat())
    finally:
        gc.enable()
        workers.close()
    assert statuses[:1] == ([] if status is None else [status])
    assert found == 0


def is_listening(server) -> bool:
    """Whether a new connection is still taken."""
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
    except OSError:
        return False
    return True


GOOD = {
    "/v1/embeddings": {"input": ["the cat", "a dog"], "model": "en", "encoding_format": "float", "depth": 2},
    "/predict": {"inputs": ["the cat", "a dog"], "model": "labels", "exits": False},
    "/fill": {"inputs": "the [MASK] sat", "top": 2, "timeout": 5},
    "/order": {"inputs": [["the cat", "a dog"]]},
    "/rerank": {"query": "a", "documents": ["b", "c"], "model": "score", "top_n": 1},
    "/tokenize": {"inputs": ["the cat", ["a", "dog"]], "truncate": False},
}
ODD = [None, True, -1, 0, 3.5, 1e308, 2**70, "", "x" * 3000, [], {}, [[]], [None], {"a": []}, "\ud800", "\x00", "NaN",
       [[["a"]]], ["a"] * 30, -(2**63), "../../etc/passwd", "<script>", "${jndi}", {"": {"": ""}}]  # fmt: skip


def malformed(draw: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """A request that is wrong in some way: method, path, body and headers."""
    path, good = draw.choice(sorted(GOOD.items()))
    content = json.loads(json.dumps(good))
    method, headers = "POST", {"Content-Type": "application/json"}
    for _ in range(draw.randint(1, 3)):
        field = draw.choice([*content, "x" * draw.randint(1, 50)])
        content[field] = draw.choice(ODD)
    body = json.dumps(content, ensure_ascii=draw.random() < 0.8).encode("utf-8", "surrogatepass")
    kind = draw.randrange(8)
    if kind == 0:
        body = bytes(draw.randrange(256) for _ in range(draw.randrange(200)))
    elif kind == 1:
        place = draw.randrange(len(body))
        body = body[:place] + bytes([draw.randrange(256)]) + body[place + draw.randrange(3) :]
    elif kind == 2:
        body = body[: draw.randrange(len(body))]
    elif kind == 3:
        body = draw.choice([b"[", b'{"a":', b'"']) * draw.choice([10, 1000, 6000])
    elif kind == 4:
        body = (
            b'{"inputs": ' + draw.choice([b"1e999", b"-" * 50, b"9" * 6000, b"nan", b'"\\ud800"', b'"\\u0000"']) + b"}"
        )
    elif kind == 5:
        headers |= {draw.choice(["Content-Type", "X-Request-Id", "Authorization", "Accept", "Host", "Expect"]): "".join(
            chr(draw.randrange(32, 256)) for _ in range(draw.randrange(300)))}  # fmt: skip
    elif kind == 6:
        method = draw.choice(["GET", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW"])
        path = draw.choice([path, "/", "//", "/../..", "/%00", "/%ff%fe", "/docs/x", "*", "/" + "a" * 3000])
    elif kind == 7:
        body += b" " * draw.choice([0, 20_000, 150_000])
    return method, path, body, headers


def fuzz(server, count: int, seed: int) -> list[int]:
    """Malformed requests one after the other; no answer may be the server's fault or show its inside."""
    draw, statuses = random.Random(seed), []
    for number in range(count):
        method, path, body, headers = malformed(draw)
        try:
            answer = server.ask(path, body, headers, method)
        except (http.client.HTTPException, ConnectionError) as error:
            raise AssertionError((number, method, path, body[:300], headers)) from error
        assert answer.status < 500, (number, method, path, body[:300], headers, answer.body)
        assert b"Traceback" not in answer.body and b"site-packages" not in answer.body and b"/tmp/" not in answer.body
        if answer.body and answer.status >= 400 and answer.headers["content-type"] == "application/json":
            assert answer.error["message"] and answer.error["code"]
        statuses.append(answer.status)
    return statuses


def test_malformed_requests(server):
    statuses = fuzz(server, 300, seed=0)
    assert {400, 404, 405, 413, 415, 422} <= set(statuses)
    assert server.ask("/fill", GOOD["/fill"]).status == 200
    assert not any("Traceback" in line for line in server.lines)


@pytest.mark.slow
def test_ten_thousand_malformed_requests_leave_no_trace(server):
    fuzz(server, 1000, seed=1)
    before = server.resident()
    fuzz(server, 10_000, seed=2)
    assert server.resident() - before < 20 * MB
    assert not any("Traceback" in line for line in server.lines)
    assert server.ask("/fill", GOOD["/fill"]).status == 200
