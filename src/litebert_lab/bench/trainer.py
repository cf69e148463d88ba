"""Fine-tuning as Hugging Face's users do it: their ``Trainer``, their model, dynamic padding; for benchmarks only.

A plain loop over their model does the same steps without the Trainer's own overhead: it is the harder one to beat.
"""

import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.recipes import FinetuneRecipe
from litebert_lab.bench.theirs import decaying_groups

CLASS = "AutoModelForSequenceClassification"
Row = dict[str, Any]
Moment = tuple[float, float]  # the wall clock, and the processor time of this process
Span = tuple[float, float]  # between two of them


@dataclass(frozen=True)
class Timed:
    """Seconds of the steps after the warm-up, and what their inputs held."""

    engine: str
    seconds: float
    processor: float  # seconds of all cores, which others on the machine do not change much
    steps: int
    tokens: int  # without padding
    padded: int


def their_rows(inputs: Inputs, targets: Targets | None) -> list[Row]:
    """Inputs as a list of examples, tokenised before the clock starts, as their map() leaves them."""
    rows: list[Row] = []
    for number in range(len(inputs)):
        at = slice(inputs.starts[number], inputs.starts[number + 1])
        row: Row = {"input_ids": inputs.ids[at].tolist(), "token_type_ids": inputs.segments[at].tolist()}
        row["attention_mask"] = [1] * len(row["input_ids"])
        if targets is not None:
            row["labels"] = int(targets.labels[number]) if len(targets.labels) else float(targets.values[number])
        rows.append(row)
    return rows


class Padding:
    """Their dynamic padding: to the longest of the batch. It counts what it makes."""

    def __init__(self, pad_id: int) -> None:
        self.pad_id = pad_id
        self.tokens = self.padded = 0

    def __call__(self, rows: Sequence[Row]) -> dict[str, Tensor]:
        longest = max(len(row["input_ids"]) for row in rows)
        self.tokens += sum(len(row["input_ids"]) for row in rows)
        self.padded += longest * len(rows)

        def column(name: str, filler: int) -> Tensor:
            return torch.tensor([row[name] + [filler] * (longest - len(row[name])) for row in rows])

        batch = {
            "input_ids": column("input_ids", self.pad_id),
            "token_type_ids": column("token_type_ids", 0),
            "attention_mask": column("attention_mask", 0),
        }
        if "labels" in rows[0]:
            batch["labels"] = torch.tensor([row["labels"] for row in rows])
        return batch


def train_theirs(
    model: nn.Module,
    rows: list[Row],
    recipe: FinetuneRecipe,
    *,
    device: str,
    seed: int,
    pad_id: int,
    warm: int = 0,
    plain: bool = False,
) -> Timed:
    """Train their model in place; ``warm`` steps are not timed. ``plain`` leaves out their Trainer."""
    assert recipe.steps is not None and recipe.optimiser.rate is not None
    padding = Padding(pad_id)
    train = _plain if plain else _with_trainer
    seconds, processor = train(model, rows, recipe, device, seed, padding, warm)
    name = "transformers, plain loop" if plain else "transformers Trainer"
    return Timed(name, seconds, processor, recipe.steps - warm, padding.tokens, padding.padded)


def _with_trainer(
    model: nn.Module, rows: list[Row], recipe: FinetuneRecipe, device: str, seed: int, padding: Padding, warm: int
) -> Span:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    marks: dict[int, Moment] = {}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (warm, recipe.steps):
                marks[state.global_step] = now(device)

    assert recipe.steps is not None and recipe.optimiser.rate is not None
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=recipe.batch,
            learning_rate=recipe.optimiser.rate,
            max_steps=recipe.steps,
            warmup_steps=round(recipe.schedule.warmup * recipe.steps),
            lr_scheduler_type="linear",
            weight_decay=recipe.optimiser.weight_decay,
            adam_beta1=recipe.optimiser.betas[0],
            adam_beta2=recipe.optimiser.betas[1],
            adam_epsilon=recipe.optimiser.eps,
            max_grad_norm=recipe.optimiser.clip,
            bf16=device == "cuda",
            use_cpu=device == "cpu",
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,
            data_collator=padding,
            callbacks=[Clock()],
        )
        trainer.remove_callback(PrinterCallback)  # it would print among our figures
        marks[0] = now(device)
        trainer.train()
    return since(marks[warm], marks[recipe.steps])


def _plain(
    model: nn.Module, rows: list[Row], recipe: FinetuneRecipe, device: str, seed: int, padding: Padding, warm: int
) -> Span:
    """The steps of their Trainer written out."""
    from transformers import get_linear_schedule_with_warmup

    assert recipe.steps is not None and recipe.optimiser.rate is not None
    torch.manual_seed(seed)
    model.to(device).train()
    groups = decaying_groups(model, recipe.optimiser.weight_decay)
    optimiser = torch.optim.AdamW(
        groups, lr=recipe.optimiser.rate, betas=recipe.optimiser.betas, eps=recipe.optimiser.eps, fused=True
    )
    schedule = get_linear_schedule_with_warmup(optimiser, round(recipe.schedule.warmup * recipe.steps), recipe.steps)
    begun = now(device)
    for step, chosen in enumerate(islice(_orders(len(rows), recipe.batch, seed), recipe.steps), start=1):
        batch = {name: tensor.to(device) for name, tensor in padding([rows[int(n)] for n in chosen]).items()}
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.optimiser.clip)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step == warm:
            begun = now(device)
    return since(begun, now(device))


def _orders(items: int, batch: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    for epoch in count():
        order = np.random.default_rng([seed, epoch]).permutation(items)
        yield from (order[first : first + batch] for first in range(0, items, batch))


def since(begun: Moment, ended: Moment) -> Span:
    """Seconds between two moments, by both clocks."""
    return ended[0] - begun[0], ended[1] - begun[1]


def now(device: str) -> Moment:
    """This moment, when everything asked of the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter(), time.process_time()


@torch.no_grad()
def their_scores(model: nn.Module, inputs: Inputs, *, device: str, pad_id: int, batch: int = 64) -> npt.NDArray[Any]:
    """Their logits for every input, in order."""
    model.to(device).eval()
    rows, padding = their_rows(inputs, None), Padding(pad_id)
    found = []
    for first in range(0, len(rows), batch):
        inside = {name: tensor.to(device) for name, tensor in padding(rows[first : first + batch]).items()}
        found.append(model(**inside).logits.float().cpu().numpy())
    return np.concatenate(found)
