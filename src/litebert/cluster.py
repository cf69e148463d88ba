"""Work spread over processes of this machine or over a Ray cluster: a stream of items (``map_stream``), or runs that
take minutes to days (``run_all``). The result is the same on both, whatever the number of workers.

Ray decides where work is placed; here is only what order, bounded memory and lost workers need. Nothing of Ray is
imported for work on this machine.
"""

import contextlib
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from io import FileIO, TextIOWrapper
from multiprocessing.connection import wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

from litebert.errors import InputError
from litebert.parameters import CLUSTER
from litebert.system import available_cores, look_for_garbage_less_often, usable_device
from litebert.terminal import progress

Item = TypeVar("Item")
Result = TypeVar("Result")

HERE = "here"
RETRIES = 3  # times that a piece of work may lose its worker
POLL = 1.0  # seconds between checks that all processes are alive
IN_FLIGHT = 3  # items per process: one at work, one waiting, one whose result is waiting
ON_ACTOR = 2  # items that a worker on Ray has at a time: one at work, one on the way
GRACE = 20.0  # seconds in which runs that are stopped may save their state


def map_stream(
    function: Callable[[Any], Result],
    items: Iterable[Item],
    *,
    on: str = HERE,
    workers: int = 0,
    gpus: float = 0,
    sent: Callable[[Item], Any] = lambda item: item,
) -> Generator[tuple[Item, Result]]:
    """Each item with its result, in order; an item is taken from ``items`` only when there is room for it.

    Every worker gets ``function`` once and calls it with what ``sent`` makes of an item, so it can keep what it loads.
    ``workers`` 0: one per core or GPU. A single worker here is this process itself; on Ray each has a core and GPUs.
    The items of a worker that dies go to another one. Closing the generator, or Ctrl-C, ends the workers.
    """
    if on == HERE and (workers or available_cores()) == 1:
        for item in items:
            yield item, function(sent(item))
        return
    pool: _Workers = _Processes(function, workers) if on == HERE else _Actors(function, on, workers, gpus)
    waiting: deque[tuple[Item, Any]] = deque()
    try:
        for item in items:
            while len(waiting) >= pool.most:
                first, ticket = waiting.popleft()
                yield first, pool.result(ticket)
            waiting.append((item, pool.submit(sent(item))))
        while waiting:
            first, ticket = waiting.popleft()
            yield first, pool.result(ticket)
    finally:
        pool.stop()


class _Workers(Protocol):
    """What ``map_stream`` needs of its workers."""

    @property
    def most(self) -> int:
        """How many items may be with them at a time, or have results that wait."""

    def submit(self, item: Any) -> Any:
        """Give an item to a worker; returns its ticket."""

    def result(self, ticket: Any) -> Any:
        """The result for a ticket."""

    def stop(self) -> None:
        """End the workers."""


def _died(times: int) -> InputError:
    return InputError(
        f"a worker process died {times} times with the same work, most likely for lack of memory; run the same command "
        "again with fewer workers to resume"
    )


# --- a stream on this machine


@dataclass(eq=False)
class _Ticket:
    """An item that was submitted."""

    item: Any
    lost: int = 0  # times that its worker died
    future: "Future[Any] | None" = None  # here
    done: bool = False  # on Ray
    value: Any = None
    error: BaseException | None = None


class _Processes:
    """Processes of this machine, started anew where one dies."""

    def __init__(self, function: Callable[[Any], Any], workers: int) -> None:
        self._workers = workers or available_cores()
        self.most = self._workers * IN_FLIGHT
        self._pending: list[_Ticket] = []
        # In a file without a name: a pipe holds 64 kB, so a larger function sent by one would let a process begin only
        # when the one before it is up and reads.
        self._function = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as workers may start)
        pickle.dump(function, self._function)
        self._function.flush()
        self._executor = self._start()

    def _start(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        path = f"/proc/{os.getpid()}/fd/{self._function.fileno()}"
        return ProcessPoolExecutor(self._workers, context, initializer=_begin, initargs=(path,))

    def submit(self, item: Any) -> _Ticket:
        ticket = _Ticket(item)
        self._pending.append(ticket)
        try:
            self._send(ticket)
        except BrokenProcessPool:
            self._replace()
        return ticket

    def _send(self, ticket: _Ticket) -> None:
        with _interrupts_deferred():  # it may start a process, which inherits the blocked signal
            ticket.future = self._executor.submit(_call, ticket.item)

    def result(self, ticket: _Ticket) -> Any:
        while True:
            assert ticket.future is not None
            try:
                value = self._wait(ticket.future)
            except BrokenProcessPool:
                ticket.lost += 1  # the oldest item without a result: of those at work, the likeliest cause
                if ticket.lost >= RETRIES:
                    raise _died(ticket.lost) from None
                self._replace()
                continue
            self._pending.remove(ticket)
            return value

    def _replace(self) -> None:
        """New processes instead of those of which one died, for all that has no result yet."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._executor = self._start()
        for ticket in self._pending:
            future = ticket.future
            if future is None or future.cancelled() or isinstance(future.exception(), BrokenProcessPool):
                self._send(ticket)

    def _wait(self, future: "Future[Any]") -> Any:
        """The result of a call. By itself the executor waits forever for a result that a dying process sent half of."""
        processes = list((self._executor._processes or {}).values())
        dead = False  # at the last check: since then the executor had time to notice by itself
        while not future.done():
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=POLL)
            if dead and not future.done():
                for process in processes:
                    process.kill()
                self._executor._result_queue._writer.close()  # type: ignore[attr-defined]  # ends the read
                raise BrokenProcessPool
            dead = any(not process.is_alive() for process in processes)
        return future.result()

    def stop(self) -> None:
        """End them after their current items: one killed while it sends leaves half a result, waited for forever."""
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._function.close()


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Ctrl-C takes effect on leaving this block; processes started inside never receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_function: Callable[[Any], Any] | None = None


def _begin(path: str) -> None:
    """Set up a worker that exits when its parent is killed. (Only the parent gets Ctrl-C: ``_interrupts_deferred``.)"""
    global _function
    _exit_with_parent()
    look_for_garbage_less_often()
    with Path(path).open("rb") as file:
        _function = pickle.load(file)


def _call(item: Any) -> Any:
    assert _function is not None
    return _function(item)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()

    def watch() -> None:
        assert parent is not None
        wait([parent.sentinel])
        os._exit(1)

    if parent is not None:
        threading.Thread(target=watch, daemon=True).start()


# --- a stream on Ray


class _Worker:
    """A worker on Ray."""

    def __init__(self, function: Callable[[Any], Any], folder: str) -> None:
        _enter(folder)
        self._function = function

    def is_ready(self) -> bool:
        return True

    def work(self, item: Any) -> Any:
        return self._function(item)


@dataclass
class _Actors:
    """Workers on Ray. Only those that run get items, so that nothing waits for a node that is gone for good."""

    function: Callable[[Any], Any]
    on: str
    workers: int
    gpus: float
    _load: dict[Any, int] = field(default_factory=dict)  # items at each worker that runs
    _starting: dict[Any, Any] = field(default_factory=dict)  # workers by the promise that they run
    _calls: dict[Any, tuple[Any, _Ticket]] = field(default_factory=dict)
    _queue: deque[_Ticket] = field(default_factory=deque)
    _failed_starts: int = 0

    def __post_init__(self) -> None:
        self._ray = connect(self.on)
        self.workers = self.workers or _room(self._ray, 1, self.gpus)
        self.most = self.workers * IN_FLIGHT
        self._sent = self._ray.put(self.function)
        self._class = self._ray.remote(num_cpus=1, num_gpus=self.gpus, max_restarts=0)(_Worker)
        for _ in range(self.workers):
            self._start()

    def _start(self) -> None:
        actor = self._class.remote(self._sent, str(Path.cwd()))
        self._starting[actor.is_ready.remote()] = actor

    def submit(self, item: Any) -> _Ticket:
        ticket = _Ticket(item)
        self._queue.append(ticket)
        self._step(0)
        return ticket

    def result(self, ticket: _Ticket) -> Any:
        while not ticket.done:
            self._step(POLL)
        if ticket.error is not None:
            raise ticket.error
        return ticket.value

    def _step(self, timeout: float) -> None:
        """Give out what waits, then take in what is ready."""
        while self._queue and self._load and (actor := min(self._load, key=self._load.__getitem__)) is not None:
            if self._load[actor] >= ON_ACTOR:
                break
            self._load[actor] += 1
            ticket = self._queue.popleft()
            self._calls[actor.work.remote(ticket.item)] = actor, ticket
        refs = [*self._starting, *self._calls]
        ready, _ = self._ray.wait(refs, num_returns=len(refs) if timeout == 0 else 1, timeout=timeout)
        for ref in ready:
            if ref in self._starting:
                self._welcome(ref)
            elif ref in self._calls:  # or it was with a worker that an earlier one of these showed to be lost
                self._take(ref)

    def _welcome(self, ref: Any) -> None:
        actor = self._starting.pop(ref)
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError as error:
            self._failed_starts += 1
            if self._failed_starts > RETRIES and not self._load:
                raise InputError(f"no worker starts on the Ray cluster: {_reason(error)}") from None
            self._start()
        else:
            self._load[actor], self._failed_starts = 0, 0

    def _take(self, ref: Any) -> None:
        actor, ticket = self._calls[ref]
        try:
            ticket.value = self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:  # of the function itself
            ticket.error = _own(error)
        except self._ray.exceptions.RayError:  # the process, its node or the result is lost
            self._lose(actor)
            return
        del self._calls[ref]
        self._load[actor] -= 1
        ticket.done = True

    def _lose(self, actor: Any) -> None:
        """Its items to other workers, and another one in its place."""
        lost = [ref for ref, (other, _) in self._calls.items() if other is actor]
        tickets = [self._calls.pop(ref)[1] for ref in lost]
        for ticket in tickets[:1]:
            ticket.lost += 1
            if ticket.lost >= RETRIES:
                raise _died(ticket.lost)
        self._queue.extendleft(reversed(tickets))
        self._load.pop(actor, None)
        self._ray.kill(actor)
        self._start()

    def stop(self) -> None:
        for actor in (*self._load, *self._starting.values()):
            self._ray.kill(actor)


# --- runs


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Where runs go and how many are at work at once: one for each GPU, or for some cores (``place_runs``)."""

    on: str = HERE
    device: str = "cpu"
    at_once: int = 1
    cores: int = 0  # of a run; 0: all of a machine, divided among the runs at once
    apart: bool = False  # each in a process of its own, even if there is one at a time

    @property
    def is_in_turn(self) -> bool:
        """Whether runs follow each other in this process."""
        return self.on == HERE and self.at_once == 1 and not self.apart


IN_TURN = Placement()


class Stopped(InputError):  # noqa: N818
    """Runs were asked to stop; those that had begun have saved their state."""


def place_runs(on: str = HERE, device: str = "auto", cores: int = 0) -> Placement:
    """Room for runs: one for each GPU, or, without GPUs, for ``cores`` cores (0: all of a machine)."""
    CLUSTER.check("on", on)
    device = place_device(on, device)
    gpus = 1 if device == "cuda" else 0
    if on == HERE:
        if cores > available_cores():
            raise InputError(f"cores is {cores} but this machine has {available_cores()}", parameter="cores")
        fitting = [available_cores() // cores] if cores else []
        at_once = min([_visible_gpus(), *fitting] if gpus else fitting or [1])
        return Placement(device=device, at_once=at_once, cores=cores)
    ray = connect(on)
    cores = cores or _cores_of_a_run(ray, gpus)
    return Placement(on=on, device=device, at_once=_room(ray, cores, gpus), cores=cores)


def _visible_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def run_all(
    jobs: Sequence[Callable[[], Result]],
    *,
    on: str | Placement = HERE,
    needs: Mapping[int, Sequence[int]] | None = None,
    finished: Callable[[int, Result], None] = lambda index, result: None,
    what: str = "runs",
    stop: object = False,
) -> list[Result]:
    """The results of all jobs, in order; ``finished`` gets each with its number when it is there.

    Here they run one after the other in this process, or several at once in processes of their own. On Ray each has a
    process of its own, as many at once as there is room for. Where a process dies, its job is called again in another:
    it must resume what the earlier try has left. ``needs`` are the jobs, before it in the list, that must end before a
    job begins. The first error, Ctrl-C, or ``stop`` becoming true (then ``Stopped`` is raised), stops all others.
    """
    needs = needs or {}
    assert all(other < index for index, others in needs.items() for other in others)
    place = place_runs(on, "cpu") if isinstance(on, str) else on
    if place.on != HERE:
        return _run_on_ray(jobs, place, needs, finished, what, stop)
    if place.apart or (place.at_once > 1 and len(jobs) > 1):
        return _run_at_once(jobs, place, needs, finished, what, stop)
    results = []
    for index, job in enumerate(jobs):
        _check_stop(stop)
        results.append(job())
        finished(index, results[-1])
    return results


def _check_stop(stop: object) -> None:
    if stop:
        raise Stopped("stopped; run the same command again with resume to continue")


def _run_at_once(
    jobs: Sequence[Callable[[], Result]],
    place: Placement,
    needs: Mapping[int, Sequence[int]],
    finished: Callable[[int, Result], None],
    what: str,
    stop: object,
) -> list[Result]:
    runs = _Runs(place)
    with ThreadPoolExecutor(place.at_once) as pool, progress() as show:
        futures: list[Future[Result]] = []
        for index, job in enumerate(jobs):
            # Earlier jobs begin earlier, so that what is needed is at work already: no wait is for ever.
            before = [futures[other] for other in needs.get(index, ())]
            futures.append(pool.submit(runs.run, job, before))
        left = set(futures)
        try:
            while left:
                _check_stop(stop)
                show(f"{len(jobs) - len(left)} of {len(jobs)} {what} done, {len(runs.running)} at work")
                done, left = wait_for(left, timeout=POLL, return_when=FIRST_COMPLETED)
                for index in sorted(futures.index(future) for future in done):
                    finished(index, futures[index].result())
        except BaseException:
            runs.stop(futures)
            raise
    return [future.result() for future in futures]


class _Runs:
    """Runs in processes of this machine; those that have a GPU see no other."""

    def __init__(self, place: Placement) -> None:
        self.running: set[multiprocessing.process.BaseProcess] = set()
        self._threads = place.cores or max(1, available_cores() // place.at_once)
        self._stopped = threading.Event()
        named = [word for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if word]
        gpus = (named or [str(number) for number in range(_visible_gpus())]) if place.device == "cuda" else [""]
        self._gpus: SimpleQueue[str] = SimpleQueue()
        for number in range(place.at_once):
            self._gpus.put(gpus[number % len(gpus)])

    def run(self, job: Callable[[], Any], before: Sequence["Future[Any]"]) -> Any:
        """Run a job in a process of its own and wait for it; again where the process is lost."""
        wait_for(before)
        gpu = self._gpus.get()
        try:
            for _ in range(RETRIES):
                if self._stopped.is_set():
                    raise KeyboardInterrupt("stopped")
                answer = self._try(job, gpu)
                if answer is not None:
                    break
            else:
                raise KeyboardInterrupt("stopped") if self._stopped.is_set() else _died(RETRIES)
        finally:
            self._gpus.put(gpu)
        succeeded, value = answer
        if succeeded:
            return value
        raise value

    def _try(self, job: Callable[[], Any], gpu: str) -> tuple[bool, Any] | None:
        """Whether a job ended as it should, with its result or its error; None: the process died."""
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe(duplex=False)
        # As bytes: torch has processes share the memory of tensors that are sent, of which there may be little.
        process = context.Process(target=_run_and_send, args=(pickle.dumps(job), self._threads, gpu, theirs))
        with _interrupts_deferred():
            process.start()
        self.running.add(process)
        if self._stopped.is_set():
            process.terminate()
        theirs.close()
        try:
            answer: tuple[bool, Any] = ours.recv()
        except EOFError:
            return None
        finally:
            process.join()
            self.running.discard(process)
        return answer

    def stop(self, futures: Sequence["Future[Any]"]) -> None:
        """Ask all to save their state and end; a second Ctrl-C ends them at once."""
        self._stopped.set()
        for process in list(self.running):
            process.terminate()
        try:
            wait_for(futures)
        except KeyboardInterrupt:
            for process in list(self.running):
                process.kill()
            raise


class _NoTerminal(TextIOWrapper):
    """The standard error of one of several processes, none of which draws on the terminal."""

    def isatty(self) -> bool:
        return False


def _run_and_send(job: bytes, threads: int, gpu: str, connection: Any) -> None:
    _exit_with_parent()
    os.environ.setdefault("OMP_NUM_THREADS", str(threads))
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if gpu:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu
    sys.stderr = _NoTerminal(FileIO(2, "w", closefd=False), write_through=True)
    try:
        connection.send((True, pickle.loads(job)()))
    except Exception as error:
        connection.send((False, error))


def _run_there(jobs: Sequence[Callable[[], Any]], index: int, folder: str, *_needed: Any) -> Any:
    _enter(folder)
    return jobs[index]()


def _run_on_ray(
    jobs: Sequence[Callable[[], Result]],
    place: Placement,
    needs: Mapping[int, Sequence[int]],
    finished: Callable[[int, Result], None],
    what: str,
    stop: object,
) -> list[Result]:
    ray = connect(place.on)
    # A process runs one job: what a run leaves behind in memory, or on a GPU, never meets the next one.
    gpus = 1 if place.device == "cuda" else 0
    run = ray.remote(num_cpus=place.cores, num_gpus=gpus, max_retries=RETRIES, max_calls=1)(_run_there)
    every = ray.put(list(jobs))  # at once: what they share, such as data, is there once
    refs: list[Any] = []
    for index in range(len(jobs)):
        refs.append(run.remote(every, index, str(Path.cwd()), *(refs[other] for other in needs.get(index, ()))))
    left = list(refs)
    results: dict[int, Result] = {}
    try:
        with progress() as show:
            while left:
                _check_stop(stop)
                show(f"{len(results)} of {len(jobs)} {what} done, up to {place.at_once} at once on {place.on}")
                ready, left = ray.wait(left, num_returns=1, timeout=POLL)
                for ref in ready:
                    index = refs.index(ref)
                    results[index] = _value_of(ray, ref)
                    finished(index, results[index])
    except BaseException:
        _cancel(ray, left)
        raise
    return [results[index] for index in range(len(jobs))]


def _value_of(ray: Any, ref: Any) -> Any:
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        raise _own(error) from None
    except ray.exceptions.RayError as error:
        raise InputError(f"a run died on the Ray cluster ({_reason(error)}); the same command resumes") from None


def _cancel(ray: Any, refs: Sequence[Any]) -> None:
    """Ask runs to stop, as Ctrl-C does, so that they save their state; end those that take too long."""
    refs = list(refs)
    for ref in refs:
        ray.cancel(ref)
    with contextlib.suppress(KeyboardInterrupt):  # a second Ctrl-C
        _, refs = ray.wait(refs, num_returns=len(refs), timeout=GRACE) if refs else ((), ())
    for ref in refs:
        ray.cancel(ref, force=True)


# --- Ray itself


def connect(on: str) -> Any:
    """The Ray library, connected to the cluster at ``on``; ``ray`` is that of this machine, begun if there is none."""
    try:
        import ray
    except ImportError:
        raise InputError(f"on is '{on}', which needs Ray; install it with pip install 'litebert[ray]'") from None
    if ray.is_initialized():
        return ray
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no word about this work leaves the machine
    try:
        if on == "ray":
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        else:
            ray.init(on, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, TimeoutError, RuntimeError) as error:
        raise InputError(f"on is '{on}', where no Ray cluster answers ({_reason(error)})", parameter="on") from None
    return ray


def place_device(on: str, device: str) -> str:
    """The device of work here, or on Ray: auto is a GPU where this machine, or the cluster, has one."""
    if on == HERE:
        return usable_device(device)
    has_gpus = any(node.get("GPU") for node in _nodes(connect(on)))
    if device == "cuda" and not has_gpus:
        raise InputError(f"device is cuda, but the Ray cluster ('{on}') has no GPU", parameter="device")
    return ("cuda" if has_gpus else "cpu") if device == "auto" else device


def _nodes(ray: Any) -> list[dict[str, float]]:
    """What each living node of the cluster has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _room(ray: Any, cores: float, gpus: float) -> int:
    """How many workers fit on the cluster at once."""
    room = 0
    for node in _nodes(ray):
        room += int(min(node.get("CPU", 0) // cores, node.get("GPU", 0) // gpus if gpus else float("inf")))
    if not room:
        wanted = f"{cores:g} core{'s' if cores != 1 else ''}{f' and {gpus:g} GPU' if gpus else ''}"
        raise InputError(f"no node of the Ray cluster has {wanted}; add nodes, or ask for fewer cores")
    return room


def _cores_of_a_run(ray: Any, gpus: float) -> int:
    """The cores of the smallest node, divided by its GPUs where runs have one."""
    nodes = [node for node in _nodes(ray) if node.get("CPU") and (node.get("GPU") or not gpus)]
    return max(1, min((int(node["CPU"] // (node["GPU"] if gpus else 1)) for node in nodes), default=1))


def _enter(folder: str) -> None:
    """Relative paths mean the same on a node as where the command was given, if the folder is there (a shared disk)."""
    if Path(folder).is_dir():
        os.chdir(folder)


def _own(error: Any) -> BaseException:
    """The error of the function itself; mistakes of people stay one sentence."""
    cause = error.cause
    return cause if isinstance(cause, InputError) else error.as_instanceof_cause()


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:300]
