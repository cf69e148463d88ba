"""The queue of work: what requests wait for, in tokens, and the threads that do it.

A request is a ``Job``. Its first piece of work is to tokenise its texts, then each text is a piece of its own, so that
several threads can work on one request. Jobs take turns piece by piece: one with many texts does not hold up one with a
single text. On a CPU a thread per core runs one text at a time, so an answer cannot depend on what else is there. On a
GPU one thread runs batches of pieces that want the same thing, up to a number of tokens.

What waits is bounded in tokens, and by the time it will take: a request that would be answered too late is refused at
once. Jobs of clients that left, and those past their deadline, give their place back. Nothing here knows of HTTP.
"""

import logging
import math
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from litebert.errors import InputError
from litebert.serving.messages import Refusal, defect

CPU, GPU = "cpu", "gpu"
GPU_TOKENS = 16_384  # of a batch on a GPU
SMOOTHING = 0.05  # the weight of the latest run in the average speed
MARGIN = 0.8  # of the time that a request has: what must not be used up by waiting

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Piece:
    """A text of a request, tokenised: what to run, and how many tokens it has."""

    payload: Any
    tokens: int


class Question(ABC):
    """What a request asks of a model. ``group``: questions that are equal in it can be run together."""

    model: str
    lane: str = CPU
    group: Hashable = None

    @abstractmethod
    def estimate(self) -> int:
        """About how many tokens it will be, before anything is tokenised."""

    @abstractmethod
    def prepare(self, wanted: Callable[[], bool]) -> list[Piece]:
        """Tokenise; stop where it is no longer wanted."""

    @abstractmethod
    def run(self, payloads: Sequence[Any]) -> list[Any]:
        """What the model gives for some pieces."""

    @abstractmethod
    def write(self, result: Any, number: int) -> Any:
        """The result of a piece in a small form."""

    @abstractmethod
    def close(self, results: Sequence[Any], tokens: int) -> bytes:
        """The body of the answer."""

    @abstractmethod
    def cost(self, tokens: int) -> float:
        """How long it takes to run these tokens, in seconds of a thread."""

    @abstractmethod
    def observe(self, tokens: int, seconds: float) -> None:
        """Learn from a run how long tokens take."""


@dataclass(eq=False)
class Job:
    """A question on its way. ``done`` is called once, in the thread that finished it, with a body or a refusal."""

    question: Question
    deadline: float  # by time.monotonic()
    done: Callable[["Job", bytes | Refusal], None]
    begun: float = field(default_factory=time.monotonic)
    started: float = 0.0  # when it left the queue for the first time
    prepared: float = 0.0
    ended: float = 0.0
    tokens: int = 0
    texts: int = 0
    held: int = 0  # tokens that count as waiting or running
    seconds: float = 0.0  # estimated time of what it holds
    pieces: list[Piece] | None = None
    next: int = 0
    left: int = 0  # pieces that are not finished
    results: list[Any] = field(default_factory=list)
    over: bool = False


Taken = tuple[Job, int]  # a job and the number of its piece; -1: tokenise it


class WorkQueue:
    """Jobs that wait, by lane, and what they hold. All methods may be called from any thread."""

    def __init__(self, most_tokens: int, threads: int) -> None:
        self.most_tokens, self.threads = most_tokens, threads
        self.tokens, self.seconds, self.jobs = 0, 0.0, 0
        self._lock = threading.Lock()
        self._rings: dict[str, deque[Job]] = {CPU: deque(), GPU: deque()}
        self._ready = {lane: threading.Condition(self._lock) for lane in self._rings}
        self._closed = False

    @property
    def wait(self) -> float:
        """Seconds until what is here now is done, by the speed so far."""
        return max(self.seconds, 0.0) / self.threads

    def submit(self, job: Job) -> None:
        """Take a job in, or refuse it."""
        tokens = job.question.estimate()
        seconds = job.question.cost(tokens)
        if tokens > self.most_tokens:
            raise Refusal(
                413,
                "payload_too_large",
                f"the request has about {tokens:,} tokens but at most {self.most_tokens:,} are taken at once; split it",
            )
        with self._lock:
            expected = (self.seconds + seconds) / self.threads
            patience = MARGIN * (job.deadline - time.monotonic())
            if self.tokens + tokens > self.most_tokens or (self.tokens and expected > patience):
                raise Refusal(
                    429,
                    "overloaded",
                    "too much is waiting; try again later",
                    retry_after=max(1, min(60, math.ceil(self.seconds / self.threads / 2))),
                )
            job.held, job.seconds = tokens, seconds
            self.tokens += tokens
            self.seconds += seconds
            self.jobs += 1
            self._append(CPU, job)

    def take(self, lane: str) -> list[Taken] | None:
        """The next pieces of work, waiting for some; -1 in place of a piece's number: tokenise. None: there is no more.

        On a CPU it is one piece; on a GPU as many as fit a batch.
        """
        with self._lock:
            while True:
                found = self._next(lane)
                if found is not None:
                    return [found] if lane == CPU else self._filled(found)
                if self._closed:
                    return None
                self._ready[lane].wait()

    def _next(self, lane: str) -> Taken | None:
        ring = self._rings[lane]
        while ring:
            job = ring.popleft()
            if job.over:
                continue
            if not job.started:
                job.started = time.monotonic()
            if job.pieces is None:
                return job, -1
            number = job.next
            job.next += 1
            if job.next < len(job.pieces):
                ring.append(job)
            return job, number
        return None

    def _filled(self, first: Taken) -> list[Taken]:
        """A batch for a GPU: further pieces that can run together with the first, of the oldest jobs first."""
        found, ring = [first], self._rings[GPU]
        room = GPU_TOKENS - _tokens_of(first)
        for job in ring:
            if job.over or job.question.group != first[0].question.group:
                continue
            while room > 0 and job.next < len(job.pieces or ()):
                found.append((job, job.next))
                room -= _tokens_of(found[-1])
                job.next += 1
                job.started = job.started or time.monotonic()
        self._rings[GPU] = deque(job for job in ring if not job.over and job.next < len(job.pieces or ()))
        return found

    def ready(self, job: Job, pieces: list[Piece], lane: str) -> Taken | None:
        """Note what a job really holds, and put it back; or give its only piece to the thread that tokenised it."""
        with self._lock:
            if job.over:
                return None
            job.prepared = time.monotonic()
            job.pieces, job.left, job.texts = pieces, len(pieces), len(pieces)
            job.results = [None] * len(pieces)
            job.tokens = sum(piece.tokens for piece in pieces)
            seconds = job.question.cost(job.tokens)
            self.tokens += job.tokens - job.held
            self.seconds += seconds - job.seconds
            job.held, job.seconds = job.tokens, seconds
            if len(pieces) == 1 and job.question.lane == lane:
                job.next = 1
                return job, 0
            self._append(job.question.lane, job)
            return None

    def finish(self, job: Job, number: int, result: Any) -> bool:
        """Keep the result of a piece; whether it was the last."""
        with self._lock:
            if job.over or job.pieces is None:
                return False
            job.results[number] = result
            job.left -= 1
            tokens = job.pieces[number].tokens
            self._release(job, tokens, job.question.cost(tokens))
            return job.left == 0

    def end(self, job: Job) -> bool:
        """Take a job out for good, so that nothing more of it is started; False where it was out already."""
        with self._lock:
            if job.over:
                return False
            job.over, job.ended = True, time.monotonic()
            self.jobs -= 1
            self._release(job, job.held, job.seconds)
            return True

    def close(self) -> None:
        """Let the threads go once nothing is left."""
        with self._lock:
            self._closed = True
            for ready in self._ready.values():
                ready.notify_all()

    def _append(self, lane: str, job: Job) -> None:
        self._rings[lane].append(job)
        if job.pieces is not None and len(job.pieces) > 1:
            self._ready[lane].notify_all()
        else:
            self._ready[lane].notify()

    def _release(self, job: Job, tokens: int, seconds: float) -> None:
        tokens, seconds = min(tokens, job.held), min(seconds, job.seconds)
        job.held -= tokens
        job.seconds -= seconds
        self.tokens -= tokens
        self.seconds -= seconds


def _tokens_of(taken: Taken) -> int:
    job, number = taken
    return job.pieces[number].tokens if job.pieces else 0


class Workers:
    """The threads: one for each core, and one for the GPU where a model is on it."""

    def __init__(self, queue: WorkQueue, threads: int, *, gpu: bool = False) -> None:
        self.queue = queue
        lanes = [CPU] * threads + [GPU] * gpu
        self._threads = [
            threading.Thread(target=self._work, args=(lane,), name=f"work-{number}", daemon=True)
            for number, lane in enumerate(lanes)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """Whether all threads are there."""
        return all(thread.is_alive() for thread in self._threads)

    def close(self) -> None:
        """Finish what is there and end the threads."""
        self.queue.close()
        for thread in self._threads:
            thread.join()

    def _work(self, lane: str) -> None:
        while (taken := self.queue.take(lane)) is not None:
            wanted = [(job, number) for job, number in taken if self._is_wanted(job)]
            try:
                if wanted and wanted[0][1] < 0:
                    self._prepare(wanted[0][0], lane)
                elif wanted:
                    self._run(wanted)
            except BaseException as error:  # one request must not end a thread
                refusal = _refusal_of(error)
                for job, _ in wanted:
                    self._close(job, refusal)
            taken = wanted = []  # a waiting thread keeps no texts

    def _is_wanted(self, job: Job) -> bool:
        if not job.over and time.monotonic() > job.deadline:
            self._close(job, too_late())
        return not job.over

    def _prepare(self, job: Job, lane: str) -> None:
        pieces = job.question.prepare(lambda: self._is_wanted(job))
        if not pieces and not job.over:
            self._close(job, job.question.close([], 0))
        elif (taken := self.queue.ready(job, pieces, lane)) is not None:
            self._run([taken])

    def _run(self, taken: Sequence[Taken]) -> None:
        pieces = [job.pieces[number] for job, number in taken if job.pieces]
        question = taken[0][0].question
        begun = time.perf_counter()
        found = question.run([piece.payload for piece in pieces])
        question.observe(sum(piece.tokens for piece in pieces), time.perf_counter() - begun)
        for (job, number), result in zip(taken, found, strict=True):
            if not job.over and self.queue.finish(job, number, job.question.write(result, number)):
                self._close(job, job.question.close(job.results, job.tokens))

    def _close(self, job: Job, answer: bytes | Refusal) -> None:
        if self.queue.end(job):
            job.done(job, answer)


def too_late() -> Refusal:
    """The deadline passed."""
    return Refusal(504, "timeout", "the deadline passed before the answer was there; try again later")


def _refusal_of(error: BaseException) -> Refusal:
    """What the client is told of an error in its work."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        return Refusal(422, "bad_field", str(error), param=error.parameter or None)
    log.error("unexpected error in a request", exc_info=error)
    return defect()
