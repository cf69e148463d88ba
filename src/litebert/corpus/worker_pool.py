"""Work spread over processes, results in the order of the tasks, and never more than a few tasks under way.

So memory is bounded whatever the length of the input, and the result does not depend on the number of processes.
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
from typing import Generic, TypeVar

from litebert.errors import InputError

Note = TypeVar("Note")
Task = TypeVar("Task")
Result = TypeVar("Result")
Start = TypeVar("Start")

LOOKING = 1.0  # seconds between two looks at whether all processes live
UNDER_WAY = 3  # tasks for each process: one at work, one waiting, one whose result is waiting


class OrderedPool(Generic[Task, Result, Start]):
    """Processes that each call ``start(argument)`` once and then ``work`` on tasks."""

    def __init__(
        self, workers: int, start: Callable[[Start], None], argument: Start, work: Callable[[Task], Result]
    ) -> None:
        self._work = work
        self._most = workers * UNDER_WAY
        self._executor = ProcessPoolExecutor(
            workers, multiprocessing.get_context("spawn"), initializer=_start, initargs=(start, argument)
        )

    def run(self, tasks: Iterable[tuple[Note, Task]]) -> Iterator[tuple[Note, Result]]:
        """The result of each task, in order, with the note that came with it (which does not travel).

        A task is taken from ``tasks`` only when there is room for it.
        """
        waiting: deque[tuple[Note, Future[Result]]] = deque()
        try:
            for note, task in tasks:
                if len(waiting) >= self._most:
                    first, future = waiting.popleft()
                    yield first, self._result(future)
                with _interrupts_wait():  # it may start a process, which has the mask from its first moment on
                    future = self._executor.submit(self._work, task)
                waiting.append((note, future))
            while waiting:
                first, future = waiting.popleft()
                yield first, self._result(future)
        except BrokenProcessPool:
            raise InputError(
                "a worker process ended by itself, most likely for want of memory; run the same command again to go "
                "on, with fewer --workers"
            ) from None

    def _result(self, future: Future[Result]) -> Result:
        """What a task gave. The executor waits for ever for a result that a dying process has sent half of."""
        processes = list((self._executor._processes or {}).values())
        dead = False  # seen before: the executor had time to notice it by itself
        while not future.done():
            with contextlib.suppress(TimeoutError):
                future.exception(timeout=LOOKING)
            if dead and not future.done():
                for process in processes:
                    process.kill()
                self._executor._result_queue._writer.close()  # type: ignore[attr-defined]  # now what is read ends
                raise BrokenProcessPool
            dead = any(not process.is_alive() for process in processes)
        return future.result()

    def stop(self) -> None:
        """End the processes when they are through with what they are at.

        Not at once: a process that dies while it sends a result leaves half of it, which is waited for for ever.
        """
        self._executor.shutdown(wait=True, cancel_futures=True)


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Ctrl-C comes when this is left; processes that are started inside never get one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(start: Callable[[Start], None], argument: Start) -> None:
    """A worker does not outlive a parent that was killed. (Ctrl-C is the parent's affair, see ``_interrupts_wait``.)"""
    threading.Thread(target=_follow_parent, daemon=True).start()
    start(argument)


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
