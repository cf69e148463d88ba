"""A pool of processes that returns results in the order of the tasks and never holds more than a few tasks.

Memory is bounded whatever the length of the input, and the result does not depend on the number of processes.
"""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import Any

from litebert.errors import InputError

POLL = 1.0  # seconds between checks that all processes are alive
IN_FLIGHT = 3  # tasks per process: one running, one waiting, one whose result is waiting


class OrderedPool:
    """Processes that each call ``start(argument)`` once and then ``work`` on tasks."""

    def __init__(self, workers: int, start: Callable[..., None], argument: Any, work: Callable[..., Any]) -> None:
        self._work = work
        self._most = workers * IN_FLIGHT
        self._executor = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(start, argument)
        )

    def run(self, tasks: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
        """The result of each task, in order, with the note given with it (which is not sent to the process).

        A task is taken from ``tasks`` only when there is room for it.
        """
        waiting: deque[tuple[Any, Future[Any]]] = deque()
        try:
            for note, task in tasks:
                if len(waiting) >= self._most:
                    first, future = waiting.popleft()
                    yield first, self._result(future)
                with _interrupts_deferred():  # it may start a process, which inherits the blocked signal
                    future = self._executor.submit(self._work, task)
                waiting.append((note, future))
            while waiting:
                first, future = waiting.popleft()
                yield first, self._result(future)
        except BrokenProcessPool:
            raise InputError(
                "a worker process died, most likely for lack of memory; run the same command again with fewer workers "
                "to resume"
            ) from None

    def _result(self, future: Future[Any]) -> Any:
        """The result of a task. By itself the executor waits forever for a result that a dying process sent half of."""
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
        """End the processes when their current tasks are done.

        Not immediately: a process killed while it sends a result leaves half of it, which would be waited for forever.
        """
        self._executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _interrupts_deferred() -> Iterator[None]:
    """Ctrl-C takes effect on leaving this block; processes started inside never receive it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(start: Callable[..., None], argument: Any) -> None:
    """Set up a worker that exits when its parent is killed. (Only the parent gets Ctrl-C: ``_interrupts_deferred``.)"""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    start(argument)


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
