"""Where the time of fine-tuning goes: steps, scoring dev, and the bare products of matrices that both need.

An epoch of steps and one pass over dev are timed as ``litebert finetune`` does them, and beside them the products of
the encoder's linear layers alone, of the same sizes and in the same precision. What a pass over dev costs is shown for
both precisions: scores on the way are taken in that of training, the last ones in that of ``litebert evaluate``.
"""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from litebert.nn.config import EncoderConfig
from litebert.report import Report, Section, note, table_of
from litebert.tasks.encoding import TaskBatches
from litebert.tasks.finetune import FinetuneSettings, prepare
from litebert.tasks.objective import TaskObjective
from litebert.tasks.predicting import Predictor
from litebert.tasks.prepare import Prepared, start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe
from litebert.tasks.sources import read_task
from litebert.train.objective import Stage
from litebert.train.precision import cast, default_precision, training_precision
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.trainer import Trainer

WARM = 2  # steps before the clock starts
COLUMNS = {
    "part": "{0.part}",
    "precision": "{0.precision}",
    "tokens": "{0.tokens:,}",
    "seconds": "{0.seconds:.2f}",
    "products alone": "{0.products:.2f}",
    "share": "{0.share:.0%}",
}


@dataclass(frozen=True)
class Row:
    """A part of a run: its seconds, and those of its matrix products alone."""

    part: str
    precision: Precision
    tokens: int
    seconds: float
    products: float

    @property
    def share(self) -> float:
        """Of the time, what products alone take."""
        return self.products / self.seconds


def bench_finetune_time(
    model: str,
    data: Path,
    *,
    text: str | None = None,
    label: str | None = None,
    device: str = "cpu",
    steps: int = 10,
    repeats: int = 2,
    batch: int = 32,
) -> Report:
    """Time ``steps`` training steps and the scoring of dev, with the bare products of each."""
    where = torch.device(device)
    recipe = FinetuneRecipe(steps=WARM + steps, batch=batch)
    read = read_task(None, data, text=text, label=label)
    prepared = prepare(FinetuneSettings(model=model, out=Path("unused"), recipe=recipe, device=device), read)
    encoder = prepared.source.network.config.encoder
    numbers = training_precision(where, encoder.width)
    rows = [_train(prepared, where, numbers, repeats)]
    for precision in dict.fromkeys((numbers, default_precision(where))):
        rows.append(_score(prepared, where, precision, repeats))
    lengths = prepared.inputs.lengths
    title = f"{model} on {data.name}, {device} ({torch.get_num_threads()} threads): {lengths.mean():.0f} tokens a text"
    about = (
        "Products alone: those of the linear layers, three for each in training; attention, norms, dropout, the "
        "optimiser and the embeddings are the rest."
    )
    facts = {"threads": torch.get_num_threads(), "mean_length": float(lengths.mean())}
    shown = [{**asdict(row), "share": row.share} for row in rows]
    return Report(
        title=title, sections=[Section(items=[table_of(rows, COLUMNS), note(about)])], data={**facts, "rows": shown}
    )


def _train(prepared: Prepared, where: torch.device, numbers: Precision, repeats: int) -> Row:
    """Steps of the one trainer, after a warm-up; the fastest of the repeats."""
    recipe, data = prepared.recipe, prepared.data
    assert recipe.steps is not None
    batches = TaskBatches(prepared.inputs, prepared.targets, batch=min(recipe.batch, len(prepared.targets)), seed=0)
    settings = TrainSettings(
        bound=Bound(steps=recipe.steps),
        optimiser=recipe.optimiser,
        schedule=recipe.schedule,
        batch_tokens=((0.0, 1),),
        micro_tokens=1,
        precision=numbers,
        held_out_every=0.0,
        log_every=1,
    )
    best, tokens = float("inf"), 0
    for _ in range(repeats):
        network, _notes = start_network(prepared.source.network, task_heads(data, answerable=False), recipe, 0)
        objective = TaskObjective(data.kind, prepared.inputs.longest)
        trainer = Trainer(network.to(where), [Stage("train", 0.0, batches, objective)], settings)
        begun, before = 0.0, 0
        for step in trainer:
            assert step.loss is not None  # read, so the step is done
            if step.step == WARM:
                begun, before = time.perf_counter(), trainer.state.tokens
        best, tokens = min(best, time.perf_counter() - begun), trainer.state.tokens - before
    encoder, count = prepared.source.network.config.encoder, recipe.steps - WARM
    products = count * _products(encoder, tokens // count, where, numbers, backward=True, repeats=repeats)
    return Row(f"{count} steps", numbers, tokens, best, products)


def _score(prepared: Prepared, where: torch.device, numbers: Precision, repeats: int) -> Row:
    """One pass over dev."""
    network, _notes = start_network(
        prepared.source.network, task_heads(prepared.data, answerable=False), prepared.recipe, 0
    )
    predictor = Predictor(network.to(where), prepared.tokenizer, prepared.note, where, precision=numbers)
    inputs = prepared.dev[0].inputs
    seconds = _fastest(lambda: predictor.scores(inputs), repeats)
    tokens = len(inputs.ids)
    encoder = prepared.source.network.config.encoder
    return Row("dev", numbers, tokens, seconds, _products(encoder, tokens, where, numbers, repeats=repeats))


def _products(
    encoder: EncoderConfig,
    tokens: int,
    where: torch.device,
    numbers: Precision,
    *,
    backward: bool = False,
    repeats: int = 2,
) -> float:
    """Seconds of the products of all layers for a number of tokens, and of those of their gradients."""
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[numbers]
    width, inner = encoder.width, encoder.feed_forward_width
    seconds = 0.0
    for rows, columns, count in ((width, width, 4), (width, inner, 1), (inner, width, 1)):
        states, weight = torch.randn(tokens, rows).to(where, kind), torch.randn(rows, columns).to(where, kind)
        grads = torch.randn(tokens, columns).to(where, kind)
        calls: list[Callable[[], object]] = [lambda states=states, weight=weight: states @ weight]  # type: ignore[misc]
        if backward:
            calls += [
                lambda grads=grads, weight=weight: grads @ weight.T,  # type: ignore[misc]
                lambda states=states, grads=grads: states.T @ grads,  # type: ignore[misc]
            ]
        with cast("fp32", where):
            seconds += count * sum(_fastest(call, repeats) for call in calls)
    return encoder.num_layers * seconds


def _fastest(call: Callable[[], object], repeats: int) -> float:
    call()
    best = float("inf")
    for _ in range(repeats):
        begun = time.perf_counter()
        call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begun)
    return best
