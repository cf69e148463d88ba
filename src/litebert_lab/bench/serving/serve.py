"""Serving: how many requests a second ours answers and how soon, what overload, random lengths and SIGTERM do to it,
and the same MiniLM behind other servers.

Servers and load generator (``load.py``) are processes of their own on this machine, so what is measured includes
the client's share of the cores. Servers are asked in turns, round by round; figures to compare are ratios within a
round, of which the median counts.
"""

import json
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import litebert
from litebert.errors import InputError, nearest
from litebert.report import Report, Section, Table, notes
from litebert.text.tokenizer import Tokenizer
from litebert_lab.bench.inference import texts_of_lengths
from litebert_lab.bench.serving.load import Load
from litebert_lab.bench.serving.peers import PEERS

MB = 1e6
TEXTS = 200
START = 120.0  # seconds that a server may take to start
OURS = "litebert"

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ServeSettings:
    """What to measure, each part for so many seconds; 0 leaves a part out."""

    depths: tuple[int, ...] = (12, 6, 3)
    seconds: float = 15.0
    rounds: int = 3
    connections: int = 16
    tokens: int = 26
    overload: float = 60.0
    lengths: float = 60.0
    lengths_rate: float = 0.0  # requests a second of them; 0: as many as it answers
    minilm: str = ""  # the folder of a sentence-transformers model to serve by all; empty: none
    peers: tuple[str, ...] = tuple(PEERS)
    pythons: Mapping[str, str] | None = None


class Running:
    """A server in its process, with the memory of all its processes over time."""

    def __init__(self, name: str, command: Sequence[str], port: int, scratch: Path) -> None:
        self.name, self.port = name, port
        here = str(Path(litebert.__file__).parents[1])
        before = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([here, *([before] if before else [])])}
        environment |= {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
        environment.pop("OMP_NUM_THREADS", None)
        self.errors = scratch / f"{name}.txt"
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=errors, env=environment, cwd=scratch, start_new_session=True
            )
        self.missing = self._wait()

    def _wait(self) -> str:
        """Why it does not answer; empty where it does."""
        until = time.monotonic() + START
        while time.monotonic() < until:
            if self.process.poll() is not None:
                lines = self.errors.read_text(errors="replace").strip().splitlines()
                return (lines or ["it ended without a word"])[-1][:160]
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                    connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
                    if b" 200 " in connection.recv(100):
                        return ""
            except OSError:
                pass
            time.sleep(0.2)
        return f"it did not answer in {START:.0f} seconds"

    def resident(self) -> float:
        """Megabytes of all its processes, memory that they share counted for each."""
        import psutil

        try:
            whole = psutil.Process(self.process.pid)
            return sum(one.memory_info().rss for one in [whole, *whole.children(recursive=True)]) / MB
        except psutil.Error:
            return 0.0

    def processor(self) -> float:
        """Seconds of processor time of all its processes."""
        import psutil

        try:
            whole = psutil.Process(self.process.pid)
            return sum(sum(one.cpu_times()[:2]) for one in [whole, *whole.children(recursive=True)])
        except psutil.Error:
            return 0.0

    def close(self) -> None:
        """End it and what it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextmanager
def memory_of(server: Running) -> Iterator[list[float]]:
    """The memory of a server once a second."""
    found, stop = [server.resident()], threading.Event()

    def sample() -> None:
        while not stop.wait(1.0):
            found.append(server.resident())

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    yield found
    stop.set()
    thread.join()
    found.append(server.resident())


def send(load: Load) -> dict[str, Any]:
    """Run a load in a process of its own."""
    program = Path(__file__).with_name("load.py")
    done = subprocess.run(
        [sys.executable, str(program)], input=json.dumps(asdict(load)), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise InputError(f"the load generator failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout)


def timed(server: Running, load: Load) -> dict[str, Any]:
    """Run a load, with the processor time that an answer took, which is the same on a busy machine."""
    before = server.processor()
    found = send(load)
    answers = max(found["statuses"].get("200", 0), 1)
    return found | {"processor_ms": 1000 * (server.processor() - before) / answers}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def our_server(exported: Path, scratch: Path, name: str = OURS) -> Running:
    """Ours with its defaults, but for its log."""
    port = free_port()
    words = ["serve", f"model={exported}", "--port", str(port), "--no-log-requests"]
    return _started(Running(name, [sys.executable, "-m", "litebert", *words], port, scratch))


def _started(server: Running) -> Running:
    if server.missing:
        raise InputError(f"{server.name} did not start: {server.missing}")
    return server


def bench_serve(source: str, settings: ServeSettings) -> dict[str, Any]:
    """Measure everything that is asked for."""
    wrong = [name for name in settings.peers if name not in PEERS]
    if wrong:
        raise InputError(f"there is no server '{wrong[0]}'{nearest(wrong[0], PEERS)}")
    found: dict[str, Any] = {"model": source, "settings": asdict(settings), "load_average": [os.getloadavg()[0]]}
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="litebert-bench-")))
        log.info("exporting the model ...")
        model = litebert.load(source, device="cpu")
        assert model.tokenizer is not None
        tokenizer, layers = model.tokenizer, model.num_layers
        model.export(scratch / "exported", standard=False)
        del model
        texts = texts_of_lengths(tokenizer, [settings.tokens] * TEXTS)
        depths = [depth for depth in settings.depths if depth <= layers]
        server = our_server(scratch / "exported", scratch)
        stack.callback(server.close)
        if settings.seconds:
            found["throughput"] = _throughput(server, texts, depths, settings)
        if settings.overload:
            found["overload"] = _overload(server, texts, settings)
        if settings.lengths:
            found["lengths"] = _lengths(server, tokenizer, settings)
        found["sigterm"] = _sigterm(server, texts, settings)
        if settings.minilm:
            found["peers"] = _peers(settings, scratch, stack)
    found["load_average"].append(os.getloadavg()[0])
    return found


def _bodies(texts: Sequence[str], **fields: Any) -> list[str]:
    return [json.dumps({"input": [text], "model": "model", **fields}) for text in texts]


def _throughput(server: Running, texts: Sequence[str], depths: Sequence[int], settings: ServeSettings) -> Any:
    """Each depth in turn, round by round: requests a second on all connections at once."""
    rounds: dict[int, list[dict[str, Any]]] = {depth: [] for depth in depths}
    send(_load(server, _bodies(texts), settings, seconds=2.0))
    for turn in range(settings.rounds):
        log.info(f"round {turn + 1} of {settings.rounds} ...")
        for depth in depths:
            bodies = _bodies(texts, depth=depth, encoding_format="base64")
            rounds[depth].append(timed(server, _load(server, bodies, settings)))
    rows = [{"depth": depth, **_middle(some)} for depth, some in rounds.items()]
    return {"rows": rows, "resident": server.resident()}


def _middle(rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Medians over rounds, and all failures."""
    failed = sum(count for one in rounds for status, count in one["statuses"].items() if status != "200")
    return {
        "per_second": median(one["per_second"] for one in rounds),
        "best": max(one["per_second"] for one in rounds),
        "p50": median(one["answered"].get("p50", 0.0) for one in rounds),
        "p99": median(one["answered"].get("p99", 0.0) for one in rounds),
        "processor_ms": median(one["processor_ms"] for one in rounds),
        "failed": failed,
    }


def _load(server: Running, bodies: Sequence[str], settings: ServeSettings, **changes: Any) -> Load:
    fields = {"seconds": settings.seconds or 5.0, "connections": settings.connections, **changes}
    return Load(port=server.port, path="/v1/embeddings", bodies=bodies, **fields)


def _overload(server: Running, texts: Sequence[str], settings: ServeSettings) -> Any:
    """Three times as many requests as it can answer, at constant intervals."""
    bodies = _bodies(texts, encoding_format="base64")
    capacity = send(_load(server, bodies, settings, seconds=5.0))["per_second"]
    log.info(f"overload: {3 * capacity:.0f} requests a second for {settings.overload:g} s ...")
    with memory_of(server) as memory:
        result = send(
            _load(server, bodies, settings, mode="open", rate=3 * capacity, seconds=settings.overload, health="/health")
        )
    return {"capacity": capacity, "rate": 3 * capacity, **result, "memory": _memory(memory)}


def _memory(memory: Sequence[float]) -> dict[str, float]:
    return {"start": memory[0], "most": max(memory), "end": memory[-1]}


def _lengths(server: Running, tokenizer: Tokenizer, settings: ServeSettings) -> Any:
    """Texts of all lengths at several depths: whether memory grows from the first half of the time to the second."""
    rate = settings.lengths_rate
    log.info(f"random lengths for {settings.lengths:g} s{f', {rate:g} requests a second' if rate else ''} ...")
    draw = random.Random(0)
    texts = texts_of_lengths(tokenizer, [draw.randint(4, 510) for _ in range(400)], seed=1)
    bodies = [
        json.dumps(
            {"input": draw.sample(texts, draw.choice([1, 1, 1, 4])), "depth": draw.randint(1, 6), "truncate": True}
        )
        for _ in range(3000)
    ]
    mode = {"mode": "open", "rate": rate} if rate else {"connections": 4}
    with memory_of(server) as memory:
        result = send(_load(server, bodies, settings, seconds=settings.lengths, **mode))
        time.sleep(2.0)
    first, second = memory[1 : len(memory) // 2], memory[len(memory) // 2 : -1]
    halves = {"first_half": max(first), "second_half": max(second), "medians": [median(first), median(second)]}
    return {**result, "memory": {**_memory(memory), **halves, "each_minute": memory[::60]}}


def _sigterm(server: Running, texts: Sequence[str], settings: ServeSettings) -> Any:
    """SIGTERM in the middle of a load: whether all that was sent is answered, and how it ends."""
    log.info("SIGTERM under load ...")
    threading.Timer(3.0, server.process.terminate).start()
    result = send(_load(server, _bodies(texts), settings, seconds=10.0))
    return {"statuses": result["statuses"], "unanswered": result["unanswered"], "exit_code": server.process.wait(60)}


def _peers(settings: ServeSettings, scratch: Path, stack: ExitStack) -> Any:
    """The same MiniLM behind all servers, in turns."""
    model = litebert.load(settings.minilm, device="cpu")
    assert model.tokenizer is not None
    texts = texts_of_lengths(model.tokenizer, [settings.tokens] * TEXTS)
    model.export(scratch / "minilm", standard=False)
    del model
    servers = {OURS: our_server(scratch / "minilm", scratch, "litebert-minilm")}
    stack.callback(servers[OURS].close)
    missing = {}
    for name in settings.peers:
        log.info(f"starting {PEERS[name][0]} ...")
        python, port = (settings.pythons or {}).get(name, sys.executable), free_port()
        command = [
            python,
            "-m",
            "litebert_lab.bench.serving.peers",
            name,
            str(Path(settings.minilm).absolute()),
            str(port),
        ]
        running = Running(name, command, port, scratch)
        stack.callback(running.close)
        if running.missing:
            missing[name] = running.missing
        else:
            servers[name] = running
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
    opened: dict[str, list[dict[str, Any]]] = {name: [] for name in servers}
    bodies = _bodies(texts)
    for server in servers.values():
        send(_load(server, bodies, settings, seconds=3.0))
    for turn in range(settings.rounds):
        log.info(f"round {turn + 1} of {settings.rounds} ...")
        for name, server in servers.items():
            rounds[name].append(timed(server, _load(server, bodies, settings)))
        rate = 0.7 * min(some[-1]["per_second"] for some in rounds.values())
        for name, server in servers.items():
            opened[name].append(
                send(_load(server, bodies, settings, mode="open", rate=max(rate, 1.0), health="/health"))
            )
    rows = []
    for name, some in rounds.items():
        ratios = [ours["per_second"] / theirs["per_second"] for ours, theirs in zip(rounds[OURS], some, strict=True)]
        steady = [one["answered"] for one in opened[name]]
        rows.append(
            {
                "server": name,
                **_middle(some),
                "ours_to_it": median(ratios),
                "open_rate": median(one["per_second"] for one in opened[name]),
                "open_p50": median(one["p50"] for one in steady),
                "open_p99": median(one["p99"] for one in steady),
                "health_p99": median(one["health"].get("p99", 0.0) for one in opened[name]),
                "resident": servers[name].resident(),
            }
        )
    return {"rows": rows, "missing": missing}


def serve_report(found: dict[str, Any]) -> Report:
    """The figures as tables."""
    sections = []
    if "throughput" in found:
        head = ["depth", "requests/s", "best round", "p50 ms", "p99 ms", "CPU ms/request", "failed"]
        rows = [
            [
                str(row["depth"]),
                *(f"{row[key]:.1f}" for key in ("per_second", "best", "p50", "p99", "processor_ms")),
                str(row["failed"]),
            ]
            for row in found["throughput"]["rows"]
        ]
        said = notes([f"{found['throughput']['resident']:.0f} MB resident"])
        sections.append(Section(title="One text a request", items=[Table(rows=[head, *rows]), *said]))
    if "overload" in found:
        sections.append(Section(title="Overload", items=_overload_items(found["overload"])))
    if "lengths" in found:
        memory = found["lengths"]["memory"]
        lines = [
            f"{found['lengths']['seconds']:.0f} s: {found['lengths']['statuses']}",
            f"memory: {memory['start']:.0f} MB before, at most {memory['first_half']:.0f} MB in the first half and "
            f"{memory['second_half']:.0f} MB in the second (medians {memory['medians'][0]:.0f} and "
            f"{memory['medians'][1]:.0f}), {memory['end']:.0f} MB after",
        ]
        sections.append(Section(title="Random lengths", items=notes(lines)))
    ended = found["sigterm"]
    line = f"{ended['statuses']}, {ended['unanswered']} unanswered, exit code {ended['exit_code']}"
    sections.append(Section(title="SIGTERM under load", items=notes([line])))
    if "peers" in found:
        sections.append(Section(title="The same MiniLM", items=_peer_items(found["peers"])))
    loads = " and ".join(f"{one:.1f}" for one in found["load_average"])
    sections.append(Section(items=notes([f"load average before and after: {loads}"])))
    return Report(title=f"Serving {found['model']}", sections=sections, data=found)


def _overload_items(over: dict[str, Any]) -> list[Any]:
    """What the server took, from sent to there, and what its client saw, which is late itself."""
    rows = [["", "server p50 ms", "p99", "longest", "seen p50", "p99", "longest", "sent late p99", "read late p99"]]
    for name in ("answered", "refused", "health"):
        if times := over[name]:
            figures = [one[key] for one in (times, times["seen"]) for key in ("p50", "p99", "longest")]
            figures += [times[late]["p99"] for late in ("send_late", "read_late")]
            rows.append([name, *(f"{figure:.1f}" for figure in figures)])
    memory, what = over["memory"], f"{over['rate']:.0f} requests a second, 3 times what it answers"
    lines = [
        f"{what}, {over['seconds']:.0f} s: {over['statuses']}, {over['unanswered']} unanswered",
        "server: from when a request is sent until its answer is there; seen: from when it was due until it was read",
        f"the client used {over['client_cores']:.2f} of a core",
        f"memory: {memory['start']:.0f} MB, at most {memory['most']:.0f} MB, {memory['end']:.0f} MB at the end",
    ]
    return [Table(rows=rows), *notes(lines)]


def _peer_items(peers: dict[str, Any]) -> list[Any]:
    head = ["server", "requests/s", "ours to it", "p50 ms", "p99 ms", "failed", "at 70% of the slowest: p50", "p99"]
    head += ["/health p99", "CPU ms/request", "memory MB"]
    keys = (
        "per_second",
        "ours_to_it",
        "p50",
        "p99",
        "failed",
        "open_p50",
        "open_p99",
        "health_p99",
        "processor_ms",
        "resident",
    )
    names = {OURS: OURS} | {name: shown for name, (shown, _) in PEERS.items()}
    rows = [[names[row["server"]], *(f"{row[key]:.1f}" for key in keys)] for row in peers["rows"]]
    return [Table(rows=[head, *rows]), *notes(f"{names[name]}: {why}" for name, why in peers["missing"].items())]
