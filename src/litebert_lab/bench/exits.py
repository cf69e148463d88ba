"""Early exits against all layers, same weights and texts, in one run: texts per second, and how long a request waits.

On a CPU: packed batches through all layers, one text at a time through all, and one at a time with exits. On a GPU:
packed batches through all layers, continuous depth batching in which nothing leaves, and with exits; then requests
arrive at an even rate, a share of what packed batches can bear, and the time from arrival to answer is taken.

A fine-tuned model with exits runs by its own rule on texts of a file. Any other model gets a head of random weights and
random texts, and each text leaves at a depth that is drawn beforehand: the same work, at the mean depth asked for.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from litebert.early_exits.continuous import ContinuousBatcher, Decides, can_run_continuously, fitting_size
from litebert.early_exits.heads import FEATURES, ExitReport, Exits, Flags, Integers, Leaver, Point
from litebert.early_exits.predict import ExitPredictor
from litebert.errors import InputError
from litebert.model import Model, load
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.encoding import Inputs
from litebert.tasks.examples import Example, TaskSpec
from litebert.tasks.predicting import Predictor
from litebert.train.precision import default_precision
from litebert_lab.bench.random_batches import mixed_lengths

COUNT = {"cpu": 96, "cuda": 60_000}
LOAD = 0.8  # of what packed batches can bear, while requests are timed
LOAD_SECONDS = 2.0

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ExitRow:
    """One engine: its speed, the layers it ran, and how long requests took, in milliseconds."""

    engine: str
    texts_per_second: float
    mean_depth: float
    p50: float | None = None
    p99: float | None = None


@dataclass(frozen=True)
class ExitBench:
    """All engines on the same texts; ``rate`` is the number of requests a second that latencies are for."""

    model: str
    device: str
    texts: int
    tokens: int
    rule: str
    rate: float
    rows: tuple[ExitRow, ...]


class Drawn:
    """Lets each row leave at a depth that was drawn beforehand, whatever its scores are."""

    def __init__(self, depths: Integers) -> None:
        self.depths = depths

    def leave(self, rows: Integers, scores: npt.NDArray[Any], depths: Integers) -> Flags:
        return np.asarray(depths >= self.depths[rows], np.bool_)


@dataclass(frozen=True)
class _Subject:
    """What is timed: a predictor with exits, its inputs, and how rows leave."""

    predictor: ExitPredictor
    inputs: Inputs
    rule: str
    leavers: Callable[[Integers], Decides]  # for the rows of some inputs, by their number


def bench_exits(
    source: str,
    *,
    texts: Sequence[str] | None = None,
    count: int = 0,
    mean: float = 26,
    mean_depth: float = 4.5,
    device: str = "cpu",
    compiled: bool = False,
    repeats: int = 3,
) -> ExitBench:
    """Time every engine; without ``texts``, on random ones of mixed length that leave at depths drawn at random."""
    count = count or COUNT[device]
    model = load(source, device=device)
    if texts is not None:
        subject = _own(model, texts, count)
    else:
        subject = _drawn(model, count, mean, mean_depth)
    subject.predictor.compiled = compiled
    rows, rate = _on_gpu(subject, repeats) if device == "cuda" else (_on_cpu(subject, repeats), 0.0)
    inputs = subject.inputs
    return ExitBench(source, device, len(inputs), len(inputs.ids), subject.rule, rate, rows)


def table(report: ExitBench) -> str:
    """The report as text."""
    lines = [
        f"{report.model} on {report.device}: {report.texts:,} texts, {report.tokens:,} tokens; {report.rule}",
        f"{'engine':44} {'texts/s':>10} {'ratio':>6} {'depth':>6} {'p50 ms':>8} {'p99 ms':>8}",
    ]
    base = report.rows[0].texts_per_second
    for row in report.rows:
        waits = "".join(f" {one:8.2f}" if one is not None else f" {'':8}" for one in (row.p50, row.p99))
        ratio = row.texts_per_second / base
        lines.append(f"{row.engine:44} {row.texts_per_second:10,.1f} {ratio:6.2f} {row.mean_depth:6.2f}{waits}")
    if report.rate:
        lines.append(
            f"p50 and p99: from arrival to answer, {report.rate:,.0f} requests a second for {LOAD_SECONDS:g} s"
        )
    return "\n".join(lines)


def _own(model: Model, texts: Sequence[str], count: int) -> _Subject:
    """A fine-tuned model with its own exits, on real texts, repeated until there are enough."""
    if model.exits is None or model.task is None:
        raise InputError(f"{model.name} has no early exits; add them with `litebert exits`, or leave out --texts")
    predictor = model.predictor(exits=True)
    assert isinstance(predictor, ExitPredictor)
    items = [Example(key=str(number), first=texts[number % len(texts)]) for number in range(count)]
    inputs = predictor.kind.encode(items, predictor.tokenizer, predictor.note.encoding())
    rule, kind, last = predictor.rule, predictor.note.kind, model.exits.report.depths
    named = f"its own rule ({rule.rule} {rule.value:g})"
    return _Subject(predictor, inputs, named, lambda rows: Leaver(rule, kind, last, len(rows)))


def _drawn(model: Model, count: int, mean: float, mean_depth: float) -> _Subject:
    """The encoder with a head of random weights, on random texts that leave at random depths."""
    encoder = model.config
    if not 1 <= mean_depth <= encoder.num_layers:
        raise InputError(f"--mean-depth is {mean_depth:g} but the model has depths 1 to {encoder.num_layers}")
    torch.manual_seed(0)
    network = Network(NetworkConfig(encoder=encoder, heads=HeadsConfig(names=("classify",)))).eval()
    network.load_state_dict(model.network.state_dict(), strict=False)
    spec = TaskSpec(kind="classify", labels=("0", "1"))
    exits = _random_exits(network, mean_depth).to(model.device)
    predictor = ExitPredictor(
        network.to(model.device),
        cast(Any, model.tokenizer),  # a preset has none; inputs are ids
        spec,
        model.device,
        precision=default_precision(model.device),
        exits=exits,
        rule=exits.report.exit_rule,
    )
    generator = np.random.default_rng(1)
    lengths = np.array(mixed_lengths(count, mean, min(encoder.max_positions or 512, 512)), np.int64)
    ids = generator.integers(min(10, encoder.vocab_size - 1), encoder.vocab_size, lengths.sum()).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    inputs = Inputs(ids, np.zeros_like(ids), starts, np.arange(count), np.empty((0, 2), np.int32))
    depths = drawn_depths(count, mean_depth, encoder.num_layers)
    return _Subject(
        predictor, inputs, f"depths drawn, {depths.mean():.2f} on average", lambda rows: Drawn(depths[rows])
    )


def drawn_depths(count: int, mean: float, deepest: int) -> Integers:
    """Depths with this mean: most texts leave soon, some stay to the end."""
    draw = np.random.default_rng(2).random(count)
    low, high = 1e-6, 1e3
    for _ in range(60):  # the scale of an exponential whose cut and rounded values have the mean
        scale = (low * high) ** 0.5
        depths = np.clip(np.ceil(-scale * np.log1p(-draw)), 1, deepest)
        low, high = (scale, high) if depths.mean() < mean else (low, scale)
    return depths.astype(np.int64)


def _random_exits(network: Network, mean_depth: float) -> Exits:
    depths, width = network.config.encoder.num_layers, network.config.encoder.width
    full = Point(rule="depth", value=depths, mean_depth=depths, metrics={"accuracy": 0.0})
    report = ExitReport(
        model="",
        task="",
        kind="classify",
        metric="accuracy",
        features=FEATURES,
        rule="patience",
        value=depths,
        tolerance=0.0,
        depths=depths,
        max_loss=0.0,
        full_score=0.0,
        score=0.0,
        checked_loss=0.0,
        mean_depth=mean_depth,
        trained_on=0,
        rows=0,
        points=(full,),
    )
    return Exits(weight=torch.randn(depths, 2 * width, 2), bias=torch.zeros(depths, 2), report=report)


def _on_cpu(subject: _Subject, repeats: int) -> tuple[ExitRow, ...]:
    """Packed, one at a time, and with exits, in turns; the best turn of each counts."""
    exits, inputs = subject.predictor, subject.inputs
    last = exits.exits.report.depths
    packed = Predictor(exits.network, exits.tokenizer, exits.note, exits.device, precision=exits.precision)
    each = [some(inputs, row, row + 1) for row in range(len(inputs))]
    every = np.arange(len(inputs))
    best = {"packed": np.inf, "alone": np.inf, "exits": np.inf}
    waits: dict[str, list[float]] = {}
    depths = np.zeros(0)
    packed.scores(some(inputs, 0, min(8, len(inputs))))
    for _ in range(repeats):
        begun = time.perf_counter()
        packed.scores(inputs)
        best["packed"] = min(best["packed"], time.perf_counter() - begun)
        for name, leaver in (("alone", Drawn(np.full(len(inputs), last))), ("exits", subject.leavers(every))):
            taken, ran = [], []
            for row, one in enumerate(each):
                begun = time.perf_counter()
                ran.append(exits.run_one(one, _Shifted(leaver, row)))
                taken.append(1e3 * (time.perf_counter() - begun))
            if sum(taken) / 1e3 < best[name]:
                best[name], waits[name] = sum(taken) / 1e3, taken
            depths = np.array(ran) if name == "exits" else depths
    count = len(inputs)
    return (
        ExitRow(f"packed, depth {last}", count / best["packed"], last),
        ExitRow(f"one at a time, depth {last}", count / best["alone"], last, *_percentiles(waits["alone"])),
        ExitRow("one at a time, exits", count / best["exits"], float(depths.mean()), *_percentiles(waits["exits"])),
    )


@dataclass(frozen=True)
class _Shifted:
    """Decides for inputs of which the first has this number."""

    decides: Decides
    first: int

    def leave(self, rows: Integers, scores: npt.NDArray[Any], depths: Integers) -> Flags:
        return self.decides.leave(rows + self.first, scores, depths)


def _on_gpu(subject: _Subject, repeats: int) -> tuple[tuple[ExitRow, ...], float]:
    exits, inputs = subject.predictor, subject.inputs
    if not can_run_continuously(exits.network, exits.device, exits.precision):
        raise InputError("continuous depth batching needs one block that all depths share, and half precision")
    last, count = exits.exits.report.depths, len(inputs)
    packed = Predictor(exits.network, exits.tokenizer, exits.note, exits.device, precision=exits.precision)
    if exits.compiled:
        exits.network.encoder.compile(dynamic=True)
    log.info("recording the buffer's step%s", " (compiled)" if exits.compiled else "")
    engine = ContinuousBatcher(
        exits.network, exits.exits, exits.note.kind, fitting_size(inputs), exits.precision, compiled=exits.compiled
    )
    every = np.arange(count)
    whole = Drawn(np.full(count, last))

    def through(decides: Decides) -> Callable[[], float]:
        return lambda: sum(float(depths.sum()) for _, _, depths in engine.run(inputs, decides)) / count

    def packed_run() -> float:
        packed.scores(inputs)
        return last

    ways: list[tuple[str, Callable[[], float]]] = [
        (f"packed batches, depth {last}", packed_run),
        (f"continuous buffer, depth {last}", through(whole)),
        ("continuous buffer, exits", lambda: through(subject.leavers(every))()),
    ]
    rows = [ExitRow(name, *_timed(run, count, repeats)) for name, run in ways]
    rate = LOAD * rows[0].texts_per_second
    load = some(inputs, 0, min(count, int(LOAD_SECONDS * rate)))
    log.info("timing requests")
    waits = [
        _latencies(rate, load, lambda arrived: _serve_packed(packed, load, arrived)),
        _latencies(rate, load, lambda arrived: (one[0] for one in engine.run(load, whole, arrived))),
        _latencies(
            rate,
            load,
            lambda arrived: (one[0] for one in engine.run(load, subject.leavers(every[: len(load)]), arrived)),
        ),
    ]
    timed = [replace(row, p50=p50, p99=p99) for row, (p50, p99) in zip(rows, map(_percentiles, waits), strict=True)]
    return tuple(timed), rate


def _timed(run: Callable[[], float], count: int, repeats: int) -> tuple[float, float]:
    """Texts a second in the best of some turns, after one to warm up, and the mean depth."""
    best, depth = np.inf, run()
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        depth = run()
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return float(count / best), depth


def _latencies(rate: float, inputs: Inputs, serve: Callable[[Callable[[], int]], Iterator[Integers]]) -> list[float]:
    """Milliseconds from the arrival of each input to its answer; one arrives every 1 / ``rate`` seconds."""
    begun = time.perf_counter()
    found = np.zeros(len(inputs))

    def arrived() -> int:
        return min(len(inputs), int((time.perf_counter() - begun) * rate))

    for rows in serve(arrived):
        found[rows] = 1e3 * (time.perf_counter() - begun - (rows + 1) / rate)
    return found.tolist()


def _serve_packed(predictor: Predictor, inputs: Inputs, arrived: Callable[[], int]) -> Iterator[Integers]:
    """What has arrived goes into the next batch, up to the tokens that one takes."""
    done, budget = 0, 65_536
    while done < len(inputs):
        there = arrived()
        fits = int(np.searchsorted(inputs.starts, inputs.starts[done] + budget, side="right")) - 1
        until = min(there, fits)
        if until > done:
            predictor.scores(some(inputs, done, until))
            yield np.arange(done, until)
            done = until


def some(inputs: Inputs, first: int, last: int) -> Inputs:
    """The inputs from one number up to another."""
    begin, end = inputs.starts[first], inputs.starts[last]
    starts = inputs.starts[first : last + 1] - begin
    return Inputs(inputs.ids[begin:end], inputs.segments[begin:end], starts, np.arange(last - first), inputs.characters)


def _percentiles(waits: Sequence[float]) -> tuple[float, float]:
    return float(np.percentile(waits, 50)), float(np.percentile(waits, 99))
