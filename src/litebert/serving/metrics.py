"""Figures for Prometheus: what was answered and refused, how long it took, and what waits, in its text format.

Labels are routes, models and statuses that exist here, never text from a client, so that their number is bounded.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

import msgspec

from litebert.serving.served import Models
from litebert.serving.work import WorkQueue

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)  # seconds
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
PAGE = 4096


class Histogram:
    """How many times were at most so long, by label."""

    def __init__(self) -> None:
        self._counts: dict[str, list[int]] = {}
        self._sums: Counter[str] = Counter()

    def add(self, label: str, seconds: float) -> None:
        """Count a time."""
        self._counts.setdefault(label, [0] * (len(BOUNDS) + 1))[bisect_left(BOUNDS, seconds)] += 1
        self._sums[label] += seconds  # type: ignore[assignment]

    def lines(self, name: str, label: str) -> Iterator[str]:
        """The lines of Prometheus' format."""
        for value, counts in sorted(self._counts.items()):
            total = 0
            for bound, count in zip((*BOUNDS, "+Inf"), counts, strict=True):
                total += count
                yield f'{name}_bucket{{{label}={quoted(value)},le="{bound}"}} {total}'
            yield f"{name}_sum{{{label}={quoted(value)}}} {self._sums[value]:.6f}"
            yield f"{name}_count{{{label}={quoted(value)}}} {total}"


class Metrics:
    """What a server counts."""

    def __init__(self, models: Models, queue: WorkQueue) -> None:
        self._models, self._queue, self._lock = models, queue, Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._tokens: Counter[str] = Counter()
        self._texts: Counter[str] = Counter()
        self._seconds, self._waits, self._runs = Histogram(), Histogram(), Histogram()
        self.dropped_logs = 0

    def answered(self, route: str, model: str, status: int, seconds: float) -> None:
        """Count a request."""
        with self._lock:
            self._requests[route, model, status] += 1
            self._seconds.add(route, seconds)

    def worked(self, model: str, texts: int, tokens: int, waited: float, ran: float) -> None:
        """Count the work of a request."""
        with self._lock:
            self._texts[model] += texts
            self._tokens[model] += tokens
            self._waits.add(model, waited)
            self._runs.add(model, ran)

    def text(self, in_progress: int) -> str:
        """Everything, as Prometheus reads it."""
        with self._lock:
            return "\n".join(self._lines(in_progress)) + "\n"

    def _lines(self, in_progress: int) -> Iterator[str]:
        yield from _head("litebert_requests_total", "counter", "Requests by route, model and status.")
        for (route, model, status), count in sorted(self._requests.items()):
            labels = f'route={quoted(route)},model={quoted(model)},status="{status}"'
            yield f"litebert_requests_total{{{labels}}} {count}"
        for name, what, counts in (
            ("litebert_texts_total", "Texts that were answered.", self._texts),
            ("litebert_tokens_total", "Tokens that were answered.", self._tokens),
        ):
            yield from _head(name, "counter", what)
            for model, count in sorted(counts.items()):
                yield f"{name}{{model={quoted(model)}}} {count}"
        yield from _head("litebert_request_seconds", "histogram", "Time from a request's headers to its answer.")
        yield from self._seconds.lines("litebert_request_seconds", "route")
        yield from _head("litebert_wait_seconds", "histogram", "Time that answered requests waited in the queue.")
        yield from self._waits.lines("litebert_wait_seconds", "model")
        yield from _head("litebert_run_seconds", "histogram", "Time that the model took for answered requests.")
        yield from self._runs.lines("litebert_run_seconds", "model")
        gauges = (
            ("litebert_queue_tokens", "Tokens that wait or run.", self._queue.tokens),
            ("litebert_queue_requests", "Requests that wait or run.", self._queue.jobs),
            ("litebert_queue_seconds", "Estimated time until all of them are done.", round(self._queue.wait, 3)),
            ("litebert_requests_in_progress", "Requests that are not answered yet.", in_progress),
            ("litebert_resident_bytes", "Memory in use.", resident_bytes()),
            ("litebert_dropped_log_lines", "Log lines that nobody took in time.", self.dropped_logs),
        )
        for name, what, value in gauges:
            yield from _head(name, "gauge", what)
            yield f"{name} {value}"
        yield from _head("litebert_model_info", "gauge", "The models, each with the value 1.")
        for one in self._models:
            labels = f'model={quoted(one.name)},engine="{one.engine}",layers="{one.model.num_layers}"'
            yield f"litebert_model_info{{{labels}}} 1"


def resident_bytes() -> int:
    """The memory of this process that is in use; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE
    except OSError:
        return 0


def quoted(value: str) -> str:
    """A label's value in quotation marks."""
    return msgspec.json.encode(value).decode()


def _head(name: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"
