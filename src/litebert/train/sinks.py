"""Other places where the figures of a run can go, beside ``metrics.jsonl``: TensorBoard, Weights & Biases, MLflow.

Each is an extra, imported where it is used, behind the one small interface ``Sink``.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from litebert.errors import InputError, nearest
from litebert.runs import Status, read_run
from litebert.train.callbacks import Callback
from litebert.train.metrics import HELD_OUT, Row, held_out_row

if TYPE_CHECKING:
    from litebert.train.trainer import Trainer

log = logging.getLogger(__name__)


class Sink(Protocol):
    """Something that takes rows of figures."""

    def log(self, step: int, row: Row) -> None: ...
    def rewind(self, step: int) -> None: ...
    def close(self) -> None: ...


class Sinks(Callback):
    """Every row to the sinks of these names; one that fails is dropped, because no run should die of a lost connection.

    Opened at once: an unknown or missing one is refused before anything begins.
    """

    def __init__(self, names: Sequence[str], run: Path) -> None:
        self._sinks = open_sinks(names, run)

    def on_start(self, trainer: "Trainer") -> None:
        if trainer.state.step:
            self.on_rollback(trainer)

    def on_log(self, trainer: "Trainer", row: Row) -> None:
        self._each(lambda sink: sink.log(trainer.state.step, row))

    def on_score(self, trainer: "Trainer", figures: Mapping[str, float]) -> None:
        self.on_log(trainer, held_out_row(trainer, figures))

    def on_rollback(self, trainer: "Trainer") -> None:
        self._each(lambda sink: sink.rewind(trainer.state.step))

    def on_end(self, trainer: "Trainer", status: Status) -> None:
        self._each(lambda sink: sink.close())

    def _each(self, action: Callable[[Sink], None]) -> None:
        for sink in list(self._sinks):
            try:
                action(sink)
            except Exception as error:
                self._sinks.remove(sink)
                log.warning("%s gets no more figures: %s", type(sink).__name__, " ".join(str(error).split()))


def open_sinks(names: Sequence[str], run: Path) -> list[Sink]:
    """The sinks of these names for a run."""
    unknown = next((name for name in names if name not in SINKS), None)
    if unknown is not None:
        raise InputError(f"figures cannot go to '{unknown}'{nearest(unknown, SINKS)}")
    return [_open(name, run) for name in names]


def _open(name: str, run: Path) -> Sink:
    try:
        return SINKS[name](run)
    except InputError:
        raise
    except Exception as error:  # no login, no server, ...: each of them has its own kinds
        raise InputError(f"{name} could not be started: {' '.join(str(error).split())}") from error


def _fingerprint(run: Path) -> str | None:
    """What a run is called for good, so that a resumed run continues its curves."""
    info = read_run(run)
    return info.fingerprint or None if info else None


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

    def __init__(self, run: Path) -> None:
        self._folder = str(run / "tensorboard")
        self._open(None)

    def _open(self, purge: int | None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise _missing("tensorboard") from None
        self._writer: Any = SummaryWriter(self._folder, purge_step=purge)

    def log(self, step: int, row: Row) -> None:
        for name, value in numbers(row).items():
            self._writer.add_scalar(name, value, step)

    def rewind(self, step: int) -> None:
        self._writer.close()
        self._open(step + 1)  # what was logged of later steps is not shown

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run of Weights & Biases; where to and as whom is up to its own settings (WANDB_PROJECT, WANDB_MODE...)."""

    def __init__(self, run: Path) -> None:
        try:
            import wandb
        except ImportError:
            raise _missing("wandb") from None
        self._run: Any = wandb.init(name=run.name, dir=str(run), id=_fingerprint(run), resume="allow")
        # Its own counter only goes up, and a run that is rolled back does not.
        self._run.define_metric("*", step_metric="step")

    def log(self, step: int, row: Row) -> None:
        self._run.log({"step": step, **numbers(row)})

    def rewind(self, step: int) -> None:
        """Nothing can be taken back; the steps done again are drawn over the old ones."""

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """A run of MLflow; the server is the one that MLFLOW_TRACKING_URI names."""

    EXPERIMENT = "litebert"

    def __init__(self, run: Path) -> None:
        try:
            from mlflow import MlflowClient
        except ImportError:
            raise _missing("mlflow") from None
        self._client: Any = MlflowClient()
        known = self._client.get_experiment_by_name(self.EXPERIMENT)
        experiment = known.experiment_id if known else self._client.create_experiment(self.EXPERIMENT)
        fingerprint = _fingerprint(run) or ""
        old = self._client.search_runs([experiment], f"tags.litebert = '{fingerprint}'") if fingerprint else []
        made = old[0] if old else self._client.create_run(experiment, run_name=run.name, tags={"litebert": fingerprint})
        self._run: str = made.info.run_id
        self._client.update_run(self._run, status="RUNNING")

    def log(self, step: int, row: Row) -> None:
        for name, value in numbers(row).items():
            self._client.log_metric(self._run, name, value, step=step)

    def rewind(self, step: int) -> None:
        """Nothing can be taken back; the steps done again are drawn over the old ones."""

    def close(self) -> None:
        self._client.set_terminated(self._run)


SINKS: dict[str, Callable[[Path], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WeightsAndBiases,
    "mlflow": MLflow,
}
