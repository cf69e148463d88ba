"""Other places where the figures of a run can go, beside ``metrics.jsonl``: TensorBoard, Weights & Biases, MLflow.

Each is an extra, imported where it is used, behind the two methods of ``Sink``.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from litebert.errors import InputError, nearest
from litebert.train.metrics import HELD_OUT, Row


class Sink(Protocol):
    """Something that takes rows of figures."""

    def log(self, step: int, row: Row) -> None: ...
    def close(self) -> None: ...


def open_sinks(names: Sequence[str], run: Path, *, begin: int = 0) -> list[Sink]:
    """The sinks of these names for a run whose next step is after ``begin``."""
    unknown = next((name for name in names if name not in SINKS), None)
    if unknown is not None:
        raise InputError(f"figures cannot go to '{unknown}'{nearest(unknown, SINKS)}")
    return [SINKS[name](run, begin) for name in names]


def _missing(name: str) -> InputError:
    return InputError(f"{name} is not installed; install it with pip install 'litebert[{name}]', or do without it")


def numbers(row: Row) -> dict[str, float]:
    """The finite figures of a row, named after the split: ``train/loss``, ``held_out/loss``."""
    split = HELD_OUT if row.get("split") == HELD_OUT else "train"
    return {
        f"{split}/{name}": float(value)
        for name, value in row.items()
        if name != "step" and isinstance(value, int | float) and abs(value) < float("inf")
    }


class TensorBoard:
    """Event files in RUN/tensorboard."""

    def __init__(self, run: Path, begin: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        # What a run that went back had logged of later steps is not shown.
        self._writer: Any = SummaryWriter(str(run / "tensorboard"), purge_step=begin + 1 if begin else None)

    def log(self, step: int, row: Row) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; where to and as whom is up to its own settings (WANDB_PROJECT, WANDB_MODE...)."""

    def __init__(self, run: Path, begin: int) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("wandb") from None
        run.mkdir(parents=True, exist_ok=True)
        self._run: Any = wandb.init(name=run.name, dir=str(run), reinit="create_new")
        # Its own counter only goes up, and a run that is rolled back does not.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, row: Row) -> None:
        self._run.log({"step": step, **numbers(row)})

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run of MLflow; the server is the one that MLFLOW_TRACKING_URI names."""

    def __init__(self, run: Path, begin: int) -> None:
        try:
            import mlflow
        except ImportError:
            raise _missing("mlflow") from None
        self._client: Any = mlflow.MlflowClient()
        name = "litebert"
        experiment = self._client.get_experiment_by_name(name)
        self._experiment = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self._run: str = self._client.create_run(self._experiment, run_name=run.name).info.run_id

    def log(self, step: int, row: Row) -> None:
        for name, value in numbers(row).items():
            self._client.log_metric(self._run, name, value, step=step)

    def close(self) -> None:
        self._client.set_terminated(self._run)


SINKS: dict[str, Callable[[Path, int], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
