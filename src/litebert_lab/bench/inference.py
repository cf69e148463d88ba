"""Inference beside other engines: texts in, vectors out, the same texts for all, in one run.

The model is exported, then every engine is started in a process of its own (``inference_engines.py``). All stay alive
and are asked in turns, round by round, so that a busy machine is as busy for each: figures to compare are ratios within
a round, of which the median counts. Vectors are means over all tokens, and their difference is that from our torch
model in fp32 at the same depth. On a GPU, packed batches are timed beside padded ones, in this process.
"""

import json
import logging
import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import litebert
from litebert.checkpoints.folder import save_model
from litebert.errors import InputError, nearest
from litebert.model import Model, load
from litebert.report import Report, Section, Table, notes
from litebert.text.tokenizer import Tokenizer
from litebert_lab.bench.inference_engines import ENGINES, EngineRequest, Vectors, command_of
from litebert_lab.bench.random_batches import mixed_lengths

MEAN = 26  # tokens of a text, as sentences have
SHORT, LONG = 16, 128  # tokens of a single text; fixed batches have the longer
ROWS = 8  # texts of the fixed length
Run = Callable[[list[list[int]]], Vectors]
WAIT = 600.0  # seconds that an engine has for an answer
PAUSE = 0.2  # seconds before one is asked: the threads of onnxruntime stay awake, on the others' cores, for 26 ms
BASE, FP32 = "transformers", "ort-fp32"
UNBOUNDED = 512  # tokens at which texts are cut where a model has no maximum

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class InferenceSettings:
    """What to measure: depths (those the model has count), engines by name (none: all), rounds, interpreters."""

    count: int = 96
    depths: tuple[int, ...] = (12, 6, 3)
    engines: tuple[str, ...] = ()
    rounds: int = 5
    threads: int | None = None
    pythons: Mapping[str, str] | None = None  # the interpreter of an engine that needs other versions


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Texts that are encoded together, and how often in a round."""

    name: str
    texts: list[str]
    repeats: int = 1


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What was measured of an engine; ``missing`` says why where nothing was."""

    engine: str
    name: str
    depth: int
    missing: str = ""
    texts_per_second: float = 0.0  # mixed lengths
    processor_ms: float = 0.0  # processor time of a text of mixed lengths
    to_transformers: float | None = None
    to_ort_fp32: float | None = None
    short_ms: float = 0.0
    long_ms: float = 0.0
    fixed_per_second: float = 0.0
    fixed_processor_ms: float = 0.0
    fixed_to_ort_fp32: float | None = None
    size: int = 0
    resident: int = 0
    mean_difference: float = 0.0
    worst_difference: float = 0.0


@dataclass(frozen=True, kw_only=True)
class InferenceResult:
    """All engines on the same texts."""

    model: str
    texts: int
    mean_tokens: float
    threads: int
    rounds: int
    load: float  # processes that waited for a core on average while it ran; more than the cores: a busy machine
    rows: tuple[Figures, ...]


def texts_of_lengths(tokenizer: Tokenizer, lengths: Sequence[int], seed: int = 0) -> list[str]:
    """Texts of these lengths in tokens, special ones included, of words that are one token each."""
    random = np.random.default_rng(seed)
    around = len(tokenizer.encode("").ids)
    words: list[str] = []
    for number in random.permutation(tokenizer.vocab_size).tolist():
        word = tokenizer.decode([number]).strip()
        # Twice, as a piece that is one token alone may be part of another beside itself.
        if word and " " not in word and tokenizer.ids(f"{word} {word}") == [number, number]:
            words.append(word)
        if len(words) == 2000:
            break
    if not words:
        raise InputError("no piece of this model's vocabulary is a word of its own; give texts with --texts")
    return [" ".join(random.choice(words, max(1, length - around))) for length in lengths]


class Child:
    """An engine in its process."""

    def __init__(self, request: EngineRequest, python: str) -> None:
        self.request, self.missing = request, ""
        self.errors = Path(request.scratch) / "errors.txt"
        here = str(Path(litebert.__file__).parents[1])
        before = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([here, *([before] if before else [])]),
            "OMP_NUM_THREADS": str(request.threads),
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "true",
        }
        with self.errors.open("wb") as errors:
            self.process = subprocess.Popen(
                command_of(request, python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment,
            )
        self.size = int(self._read().get("size", 0))

    def ask(self, workload: Workload, vectors: Path | None = None, repeats: int | None = None) -> dict[str, Any]:
        """Encode a workload; empty where the engine failed."""
        assert self.process.stdin is not None
        asked = {
            "texts": workload.texts,
            "repeats": repeats or workload.repeats,
            "vectors": None if vectors is None else str(vectors),
        }
        try:
            self.process.stdin.write(json.dumps(asked).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self.missing = self.missing or self._last_words()
            return {}
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready = select.select([self.process.stdout], [], [], WAIT)[0]
        line = self.process.stdout.readline() if ready else b""
        if not line:
            self.missing = self._last_words() if ready else f"no answer in {WAIT:.0f} seconds"
            return {}
        found: dict[str, Any] = json.loads(line)
        self.missing = found.get("missing", "")
        return found

    def _last_words(self) -> str:
        lines = self.errors.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line.strip()[:160] for line in reversed(lines) if line.strip()), "it ended without a word")

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def bench_inference(source: str, settings: InferenceSettings, texts: Sequence[str] | None = None) -> InferenceResult:
    """Export a model and measure every engine on it."""
    wrong = [name for name in settings.engines if name not in ENGINES]
    if wrong:
        raise InputError(f"there is no engine '{wrong[0]}'{nearest(wrong[0], ENGINES)}")
    if settings.rounds < 1 or settings.count < 1 or any(depth < 1 for depth in settings.depths):
        raise InputError("rounds, count and depths must be 1 or more")
    model = load(source, device="cpu")
    if model.tokenizer is None:
        raise InputError(f"{source} has no tokenizer, so texts cannot be encoded")
    longest = model.max_positions or UNBOUNDED
    work = workloads(model.tokenizer, settings.count, longest, texts)
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="litebert-bench-")))
        requests = _requests(model, settings, longest, place)
        children: list[Child] = []
        for request in requests:
            log.info(f"starting {_name(request, model)} ...")
            python = (settings.pythons or {}).get(request.engine, sys.executable)
            children.append(Child(request, python))
            stack.callback(children[-1].close)
        rows = _measure(model, children, work, settings.rounds, place)
    lengths = [len(ids) for ids in model.tokenizer.ids_batch(work[0].texts)]
    around = len(model.tokenizer.encode("").ids)
    return InferenceResult(
        model=source,
        texts=len(work[0].texts),
        mean_tokens=float(np.minimum(np.array(lengths) + around, longest).mean()),
        threads=requests[0].threads,
        rounds=settings.rounds,
        load=os.getloadavg()[0],
        rows=tuple(rows),
    )


def workloads(tokenizer: Tokenizer, count: int, longest: int, texts: Sequence[str] | None = None) -> list[Workload]:
    """Mixed lengths, single texts of two lengths, and a batch of one length."""
    mixed = list(texts)[:count] if texts else texts_of_lengths(tokenizer, mixed_lengths(count, MEAN, longest))
    long = min(LONG, longest)
    return [
        Workload(name="mixed", texts=mixed),
        Workload(name="short", texts=texts_of_lengths(tokenizer, [min(SHORT, longest)], seed=1), repeats=5),
        Workload(name="long", texts=texts_of_lengths(tokenizer, [long], seed=2), repeats=3),
        Workload(name="fixed", texts=texts_of_lengths(tokenizer, [long] * ROWS, seed=3)),
    ]


def _requests(model: Model, settings: InferenceSettings, longest: int, place: Path) -> list[EngineRequest]:
    """What is started: every engine once, our runtime at each depth. Writes the folders they read."""
    from litebert.exporting.network import is_loop

    config = model.config
    save_model(place / "plain", model.network, model.tokenizer, verb="bench", written_out=True)
    log.info("exporting the model ...")
    model.export(place / "exported")
    any_depth = is_loop(config)
    found = []
    chosen = [name for name in ENGINES if not settings.engines or name in settings.engines]
    depths = sorted({model.num_layers, *(d for d in settings.depths if d < model.num_layers)}, reverse=True)
    for name in chosen:
        for depth in depths if name == "runtime" else [model.num_layers]:
            exported = place / "exported"
            if depth != model.num_layers and not any_depth:
                exported = place / f"exported-{depth}"
                model.at_depth(depth).export(exported, standard=False)
            scratch = place / f"{name}-{depth}"
            scratch.mkdir()
            found.append(
                EngineRequest(
                    engine=name,
                    plain=str(place / "plain"),
                    exported=str(exported),
                    scratch=str(scratch),
                    family=config.family,
                    shared=len(set(config.plan)) < len(config.plan),
                    longest=longest,
                    width=config.width,
                    threads=settings.threads or len(os.sched_getaffinity(0)),
                    depth=depth if name == "runtime" else None,
                )
            )
    return found


def _measure(
    model: Model, children: Sequence[Child], work: Sequence[Workload], rounds: int, place: Path
) -> list[Figures]:
    mixed = work[0].texts
    vectors: dict[int, Vectors] = {}
    times: list[dict[str, list[float]]] = [{} for _ in children]
    resident = [0] * len(children)
    for number, child in enumerate(children):  # one pass of each to warm up, of which the vectors are kept
        for workload in work:
            if not child.missing:
                path = place / f"vectors-{number}.npy" if workload is work[0] else None
                answered = child.ask(workload, path, repeats=1)
                resident[number] = answered.get("resident", 0)
        if not child.missing:
            vectors[number] = np.load(place / f"vectors-{number}.npy")
    for turn in range(rounds):
        log.info(f"round {turn + 1} of {rounds} ...")
        for workload in work:
            for number, child in enumerate(children):
                if child.missing:
                    continue
                time.sleep(PAUSE)
                answered = child.ask(workload)
                if answered.get("seconds"):
                    taken = times[number]
                    taken.setdefault(workload.name, []).append(median(answered["seconds"]))
                    taken.setdefault(f"{workload.name} processor", []).append(median(answered["processor"]))
    expected = {
        depth: model.encode(mixed, pooling="mean", normalize=False, depth=depth, progress=False)
        for depth in {child.request.depth or model.num_layers for child in children if not child.missing}
    }
    base = {
        child.request.engine: taken
        for child, taken in zip(children, times, strict=True)
        if child.request.engine in (BASE, FP32) and not child.missing
    }
    rows = []
    for number, (child, taken) in enumerate(zip(children, times, strict=True)):
        depth = child.request.depth or model.num_layers
        engine, name = child.request.engine, _name(child.request, model)
        if child.missing:
            rows.append(Figures(engine=engine, name=name, depth=depth, missing=child.missing))
            continue
        apart = np.abs(vectors[number] - expected[depth])
        rows.append(
            Figures(
                engine=engine,
                name=name,
                depth=depth,
                texts_per_second=len(mixed) / median(taken["mixed"]),
                processor_ms=1000 * median(taken["mixed processor"]) / len(mixed),
                to_transformers=_ratio(base.get(BASE), taken, "mixed"),
                to_ort_fp32=_ratio(base.get(FP32), taken, "mixed"),
                short_ms=1000 * median(taken["short"]),
                long_ms=1000 * median(taken["long"]),
                fixed_per_second=ROWS / median(taken["fixed"]),
                fixed_processor_ms=1000 * median(taken["fixed processor"]) / ROWS,
                fixed_to_ort_fp32=_ratio(base.get(FP32), taken, "fixed"),
                size=child.size,
                resident=resident[number],
                mean_difference=float(apart.mean()),
                worst_difference=float(apart.max()),
            )
        )
    return rows


def _ratio(base: dict[str, list[float]] | None, taken: dict[str, list[float]], name: str) -> float | None:
    """How many times as fast as the base, the median over rounds."""
    return None if base is None else median(b / t for b, t in zip(base[name], taken[name], strict=True))


def _name(request: EngineRequest, model: Model) -> str:
    name = ENGINES[request.engine][0]
    return f"{name}, depth {request.depth}" if request.depth not in (None, model.num_layers) else name


def inference_report(result: InferenceResult) -> Report:
    """The figures as tables."""
    heading = ["engine", "texts/s", "x transformers", "x ORT fp32", "CPU ms/text", f"1x{SHORT} ms", f"1x{LONG} ms"]
    heading += [f"{ROWS}x{LONG} texts/s", "x ORT fp32", "CPU ms/text", "file MB", "memory MB", "difference", "at most"]
    measured, missing = [], []
    for row in result.rows:
        if row.missing:
            missing.append(f"{row.name}: {row.missing}")
            continue
        measured.append(
            [
                row.name,
                f"{row.texts_per_second:,.1f}",
                *(_times(ratio) for ratio in (row.to_transformers, row.to_ort_fp32)),
                f"{row.processor_ms:.1f}",
                f"{row.short_ms:.1f}",
                f"{row.long_ms:.1f}",
                f"{row.fixed_per_second:,.1f}",
                _times(row.fixed_to_ort_fp32),
                f"{row.fixed_processor_ms:.1f}",
                f"{row.size / 1e6:.1f}",
                f"{row.resident / 1e6:,.0f}",
                f"{row.mean_difference:.4f}",
                f"{row.worst_difference:.3f}",
            ]
        )
    title = (
        f"{result.model}: {result.texts} texts of {result.mean_tokens:.0f} tokens on average, "
        f"{result.threads} threads, medians of {result.rounds} rounds"
    )
    busy = f"Load of the machine at the end: {result.load:.1f} on {os.cpu_count()} cores."
    sections = [
        Section(items=[Table(rows=[heading, *measured]), *notes([busy], "quiet")]),
        *([Section(title="Not measured", items=notes(missing))] if missing else []),
    ]
    return Report(title=title, sections=sections, data=asdict(result))


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


# On a GPU


@dataclass(frozen=True, kw_only=True)
class GpuFigures:
    """Texts a second of an engine: from texts to vectors, and from token ids on."""

    name: str
    texts_per_second: float
    from_ids: float
    ratio: float  # to the first engine
    worst_difference: float


@dataclass(frozen=True, kw_only=True)
class GpuResult:
    """Engines on one GPU."""

    model: str
    device: str
    texts: int
    mean_tokens: float
    rows: tuple[GpuFigures, ...]


def bench_gpu(
    source: str,
    *,
    texts: Sequence[str] | None = None,
    count: int = 8192,
    rounds: int = 5,
    device: str = "cuda",
    batch: int = 256,
    batch_tokens: int = 65_536,
    compiled: bool = True,
) -> GpuResult:
    """Packed batches beside padded ones sorted by length, in bf16, eager and compiled; best of the rounds."""
    import torch

    from litebert_lab.bench.theirs import their_model

    model = load(source, device=device)
    if model.tokenizer is None:
        raise InputError(f"{source} has no tokenizer, so texts cannot be encoded")
    tokenizer, longest = model.tokenizer, model.max_positions or UNBOUNDED
    chosen = list(texts)[:count] if texts else texts_of_lengths(tokenizer, mixed_lengths(count, MEAN, longest))
    expected = model.encode(chosen, pooling="mean", normalize=False, progress=False)
    theirs = their_model(model.network, "AutoModel").to(device, torch.bfloat16).eval()
    model.half()
    ids = [one.ids for one in tokenizer.encode_batch(chosen, max_length=longest)]
    eager: Run = lambda rows: packed_vectors(model, rows, batch_tokens)  # noqa: E731
    engines: list[tuple[str, Run]] = [
        ("transformers, sorted by length", lambda rows: padded_vectors(theirs, rows, batch, device)),
        ("litebert, packed", eager),
    ]
    found: list[tuple[str, float, float, float]] = []

    def measure(name: str, run: Run) -> None:
        log.info(f"timing {name} ...")
        vectors = run(ids)  # warms up, and compiles
        whole, inner = [], []
        for _ in range(rounds):
            start = time.perf_counter()
            rows = [one.ids for one in tokenizer.encode_batch(chosen, max_length=longest)]
            middle = time.perf_counter()
            run(rows)
            whole.append(time.perf_counter() - start)
            inner.append(time.perf_counter() - middle)
        apart = float(np.abs(vectors - expected).max())
        found.append((name, len(chosen) / min(whole), len(chosen) / min(inner), apart))

    for name, run in engines:
        measure(name, run)
    if compiled:
        fast = torch.compile(theirs, dynamic=True)
        measure("transformers compiled, sorted", lambda rows: padded_vectors(fast, rows, batch, device, 32))
        model.compile()
        measure("litebert compiled, packed", eager)
    return GpuResult(
        model=source,
        device=torch.cuda.get_device_name() if device == "cuda" else device,
        texts=len(chosen),
        mean_tokens=float(np.mean([len(row) for row in ids])),
        rows=tuple(
            GpuFigures(
                name=name,
                texts_per_second=speed,
                from_ids=inner,
                ratio=speed / found[0][1],
                worst_difference=apart,
            )
            for name, speed, inner, apart in found
        ),
    )


def packed_vectors(model: Model, rows: Sequence[Sequence[int]], batch_tokens: int) -> Vectors:
    """Means over tokens of packed batches. Nothing waits for the device until all is queued."""
    import torch

    from litebert.nn.layout import Layout
    from litebert.pooling import pool
    from litebert.tasks.encoding import token_batches

    order, parts = [], []
    with torch.inference_mode():
        for batch in token_batches([len(row) for row in rows], batch_tokens):
            flat = np.concatenate([np.asarray(rows[index]) for index in batch])
            layout = Layout.of([len(rows[index]) for index in batch], model.device)
            states = model.network.encoder(torch.from_numpy(flat).to(model.device, non_blocking=True), layout)
            parts.append(pool(model.network, states, layout, "mean"))
            order += list(batch)
        found = torch.cat(parts).float().cpu().numpy()
    vectors = np.empty_like(found)
    vectors[order] = found
    return vectors


def padded_vectors(
    model: Callable[..., Any], rows: Sequence[Sequence[int]], batch: int, device: str, multiple: int = 1
) -> Vectors:
    """Means over tokens of padded batches, the longest texts first; lengths rounded up to a multiple."""
    import torch

    order = sorted(range(len(rows)), key=lambda index: -len(rows[index]))
    parts = []
    with torch.inference_mode():
        for at in range(0, len(order), batch):
            chosen = [rows[index] for index in order[at : at + batch]]
            width = -(-len(chosen[0]) // multiple) * multiple
            ids, mask = np.zeros((2, len(chosen), width), np.int64)
            for number, row in enumerate(chosen):
                ids[number, : len(row)] = row
                mask[number, : len(row)] = 1
            there = torch.from_numpy(mask).to(device, non_blocking=True)
            states = model(input_ids=torch.from_numpy(ids).to(device, non_blocking=True), attention_mask=there)
            weights = there[..., None]
            parts.append((states.last_hidden_state * weights).float().sum(1) / weights.sum(1))
        found = torch.cat(parts).float().cpu().numpy()
    vectors = np.empty_like(found)
    vectors[order] = found
    return vectors


def gpu_report(result: GpuResult) -> Report:
    """The figures of a GPU as a table."""
    heading = ["engine", "texts/s", "x", "from ids, texts/s", "difference at most"]
    rows = [
        [row.name, f"{row.texts_per_second:,.0f}", f"{row.ratio:.2f}", f"{row.from_ids:,.0f}",
         f"{row.worst_difference:.3f}"]
        for row in result.rows
    ]  # fmt: skip
    title = (
        f"{result.model} on {result.device}: {result.texts} texts of {result.mean_tokens:.0f} tokens on average, bf16"
    )
    return Report(title=title, sections=[Section(items=[Table(rows=[heading, *rows])])], data=asdict(result))


def parse_pythons(pairs: Sequence[str], engines: Iterable[str] = ENGINES) -> dict[str, str]:
    """ENGINE=PATH of interpreters as a dict."""
    found = {}
    for pair in pairs:
        engine, _, path = pair.partition("=")
        if engine not in engines:
            raise InputError(f"--python-of is '{pair}' but there is no engine '{engine}'{nearest(engine, engines)}")
        if not Path(path).is_file():
            raise InputError(f"--python-of is '{pair}' but '{path}' is not an interpreter; give ENGINE=PATH")
        found[engine] = path
    return found
