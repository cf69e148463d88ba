"""A real server on small models, in a process of its own, and a client for it."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from toy_models import pretrained_model, tuned_model, word_tokenizer

for needed in ("onnxruntime", "onnx", "starlette", "uvicorn", "httptools", "msgspec"):
    pytest.importorskip(needed, reason="litebert[serve,export] is not installed")

SOURCE = Path(__file__).parents[3] / "src"


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]


class Server:
    """A server, and requests to it."""

    def __init__(
        self, *words: str, environment: dict[str, str] | None = None, program: list[str] | None = None
    ) -> None:
        command = program or [sys.executable, "-m", "litebert", "serve"]
        self.process = subprocess.Popen(
            [*command, *words, *([] if "--port" in words else ["--port", "0"])],
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(SOURCE), **(environment or {})},
        )
        self.lines: list[str] = []
        self._listening = threading.Event()
        self.port = 0
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._listening.wait(60) and self.port, "\n".join(self.lines)

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line.decode().rstrip())
            found = re.search(r"http://\S+?:(\d+) with", self.lines[-1])
            if found:
                self.port = int(found[1])
                self._listening.set()
        self._listening.set()

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def ask(self, path: str, content: Any = None, headers: dict[str, str] | None = None, method: str = "") -> Answer:
        """One request on a connection of its own; content that is not bytes is sent as JSON."""
        body = content if isinstance(content, bytes | None) else json.dumps(content).encode()
        connection = self.connect()
        try:
            given = {"Content-Type": "application/json", **(headers or {})} if body is not None else headers or {}
            connection.request(method or ("GET" if body is None else "POST"), path, body, given)
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def resident(self) -> int:
        """Bytes of memory."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * 4096

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ask it to end and wait for that."""
        self.process.send_signal(number)
        status = self.process.wait(60)
        self._reader.join(10)
        return status

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(10)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="session")
def folders(tmp_path_factory) -> dict[str, Path]:
    """Exported models by name, and one that is not exported."""
    folder = tmp_path_factory.mktemp("served")
    tokenizer = word_tokenizer(folder / "words")
    models = {
        "en": pretrained_model(tokenizer),
        "deep": pretrained_model(tokenizer, num_layers=24, width=256, feed_forward_width=1024),
        "unrolled": pretrained_model(tokenizer, "bert"),
        "labels": tuned_model(tokenizer, "classify"),
        "tickets": tuned_model(tokenizer, "classify", text=("subject", "body"), pairs=True),
        "tags": tuned_model(tokenizer, "multilabel"),
        "score": tuned_model(tokenizer, "regress", pairs=True),
        "choice": tuned_model(tokenizer, "choice"),
        "span": tuned_model(tokenizer, "span", has_null=True),
    }
    early = tuned_model(tokenizer, "classify")
    texts = [f"the {word} {other}" for word in ("cat", "dog", "mat", "a", "on") for other in ("sat", "ran", "far", ".")]
    early.add_exits({"text": texts * 3, "label": ["no", "yes", "maybe"] * 20})
    models["early"] = early
    made = {name: model.export(folder / name, standard=False).folder for name, model in models.items()}
    models["labels"].save(folder / "torch")
    return made | {"torch": folder / "torch"}


@pytest.fixture
def serve() -> Iterator[Any]:
    """A function that starts a server, which is ended after the test."""
    running: list[Server] = []

    def start(*words: object, **settings: Any) -> Server:
        running.append(Server(*map(str, words), **settings))
        return running[-1]

    yield start
    for server in running:
        server.close()


@pytest.fixture(scope="session")
def server(folders) -> Iterator[Server]:
    """A server of all exported models with limits that tests can reach."""
    names = [f"{name}={folder}" for name, folder in folders.items() if name not in ("torch", "deep")]
    words = ["--max-texts", "20", "--max-characters", "2000", "--max-bytes", "20000", "--queue-tokens", "4000"]
    running = Server(*names, *words)
    yield running
    running.close()
