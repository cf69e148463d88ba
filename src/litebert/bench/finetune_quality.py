"""Is it as good? The same small tasks fine-tuned here and by ``transformers``, several seeds each, same settings.

Both train for the same number of steps and are scored once, at the end, by the same metrics on all of dev.
"""

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from litebert.bench.trainer import has_trainer, their_model, their_rows, their_scores, train_theirs
from litebert.errors import InputError
from litebert.tasks.examples import Prediction
from litebert.tasks.find import read_task
from litebert.tasks.finetuning import FinetuneSettings, Prepared, finetune, prepare
from litebert.tasks.recipes import FinetuneRecipe
from litebert.tasks.score import compute_metrics
from litebert.tasks.starting import start_network, task_heads

TASKS = ("mrpc", "rte", "cola", "stsb")


@dataclass(frozen=True)
class Quality:
    """The scores of several seeds on both sides; ``difference`` is of the medians, in points."""

    task: str
    metric: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    our_seconds: float
    their_seconds: float
    engine: str

    @property
    def difference(self) -> float:
        return 100 * (statistics.median(self.ours) - statistics.median(self.theirs))


def quality_table(found: Sequence[Quality]) -> str:
    """The figures as lines of text."""
    lines = [f"{'task':8} {'metric':10} {'litebert':>20} {'transformers':>20} {'points':>7} {'seconds':>15}"]
    for one in found:
        ours, theirs = (
            f"{100 * statistics.median(scores):.1f} ({100 * min(scores):.1f} to {100 * max(scores):.1f})"
            for scores in (one.ours, one.theirs)
        )
        seconds = f"{one.our_seconds:.0f} and {one.their_seconds:.0f}"
        lines.append(f"{one.task:8} {one.metric:10} {ours:>20} {theirs:>20} {one.difference:+7.2f} {seconds:>15}")
    if found:
        lines.append(f"medians (lowest to highest) of {len(found[0].ours)} seeds; theirs by {found[0].engine}")
    return "\n".join(lines)


def bench_quality(
    model: str,
    data: Path,
    *,
    tasks: Sequence[str] = TASKS,
    seeds: int = 5,
    epochs: float = 4.0,
    rate: float = 5e-5,
    batch: int = 32,
    device: str = "cpu",
    say: Callable[[str], None] = lambda _: None,
) -> list[Quality]:
    """Fine-tune both with every seed on every task."""
    if seeds < 1:
        raise InputError(f"--seeds is {seeds} but must be 1 or more")
    recipe = FinetuneRecipe(rate=rate, batch=batch, epochs=epochs, length=128, warmup=0.1, scores=1, restarts=0)
    found = []
    for task in tasks:
        read = read_task(task, data)
        if read.kind not in ("classify", "regress"):
            raise InputError(f"{task} is not one that both sides train here; choose among {', '.join(TASKS)}")
        with tempfile.TemporaryDirectory() as folder:
            settings = FinetuneSettings(
                model=model, out=Path(folder) / "none", recipe=recipe, device=device, watched=False
            )
            prepared = prepare(settings, read)
            found.append(_task(settings, prepared, seeds, say))
    return found


def _task(settings: FinetuneSettings, prepared: Prepared, seeds: int, say: Callable[[str], None]) -> Quality:
    ours, theirs, our_seconds, their_seconds = [], [], 0.0, 0.0
    data, engine = prepared.data, "a plain loop" if not has_trainer() else "Trainer"
    metric = data.metrics[0]
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            mine = FinetuneSettings(
                model=settings.model,
                out=Path(folder) / "run",
                recipe=settings.recipe,
                device=settings.device,
                seed=seed,
                watched=False,
            )
            result = finetune(mine, data, lambda _: None, prepared)
        ours.append(result.score)
        our_seconds += result.seconds
        score, seconds = _their_score(settings, prepared, seed)
        theirs.append(score)
        their_seconds += seconds
        say(f"{data.name} seed {seed}: {metric} {ours[-1]:.4f}, theirs {theirs[-1]:.4f}")
    return Quality(data.name, metric, tuple(ours), tuple(theirs), our_seconds, their_seconds, engine)


def _their_score(settings: FinetuneSettings, prepared: Prepared, seed: int) -> tuple[float, float]:
    """Their model after the same number of steps, with a head of its own from the same seed."""
    data, pad = prepared.data, prepared.tokenizer.pad_id or 0
    network, _ = start_network(prepared.source.network, task_heads(data, answerable=False), prepared.recipe, seed)
    model = their_model(network, prepared.tokenizer)
    rows = their_rows(prepared.inputs, prepared.targets)
    timed = train_theirs(model, rows, prepared.recipe, device=settings.device, seed=seed, pad_id=pad)
    part = prepared.dev[0]
    logits = their_scores(model, part.inputs, device=settings.device, pad_id=pad)
    said = [
        Prediction(key=item.key, label=float(row[0]) if data.kind == "regress" else int(np.argmax(row)))
        for item, row in zip(part.items, logits, strict=True)
    ]
    return compute_metrics(data, part.items, said)[data.metrics[0]], timed.seconds
