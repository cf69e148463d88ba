"""Work for processes that may be killed while they do it, for tests of clusters."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from litebert.errors import InputError


@dataclass
class KilledOnce:
    """Does its work, but the process that gets a given call is killed with SIGKILL, the first time."""

    work: Callable[[Any], Any]
    mark: Path  # a file that says it has happened
    at: int = 2
    calls: int = 0

    def __call__(self, item: Any) -> Any:
        self.calls += 1
        if self.calls == self.at:
            try:
                self.mark.touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.work(item)


def double(number: int) -> int:
    return 2 * number


def slow_double(number: int) -> int:
    time.sleep(0.05)
    return 2 * number


def process(_: Any) -> int:
    return os.getpid()


def refuse(number: int) -> int:
    raise InputError(f"number is {number} but must be another", parameter="number")


def die(_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Run:
    """A run that is killed the first time, halfway; what it had done then is not done again."""

    folder: Path
    number: int
    kills: bool = False

    def __call__(self) -> int:
        steps = self.folder / f"{self.number}.steps"
        for step in range(len(steps.read_text()) if steps.is_file() else 0, 4):
            with steps.open("a") as file:
                file.write(str(step))
            if self.kills and step == 1 and not (self.folder / "killed").exists():
                (self.folder / "killed").touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return self.number**2


@dataclass
class KilledInStep:
    """A training run whose process is killed in a step, the first time; it was to save its state before."""

    run: Callable[[], Any]
    mark: Path
    step: int

    def __call__(self) -> Any:
        from litebert.train.trainer import Trainer

        real, this = Trainer._step, self

        def step(trainer: Trainer, *arguments: Any) -> Any:
            if trainer.state.step == this.step and not this.mark.exists():
                this.mark.write_text(str(os.getpid()))
                os.kill(os.getpid(), signal.SIGKILL)
            return real(trainer, *arguments)

        Trainer._step = step  # type: ignore[method-assign]
        try:
            return self.run()
        finally:
            Trainer._step = real  # type: ignore[method-assign]


def kill_first(run_all: Callable[..., Any], mark: Path, step: int) -> Callable[..., Any]:
    """``run_all`` whose first job's process is killed in a step."""

    def run(jobs: Any, **how: Any) -> Any:
        return run_all([KilledInStep(jobs[0], mark, step), *jobs[1:]] if jobs else jobs, **how)

    return run
