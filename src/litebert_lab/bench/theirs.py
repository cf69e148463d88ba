"""The same network in ``transformers``, trained as its users do: padded, with its own losses.

Pretraining is a loop over their model. Fine-tuning is their ``Trainer`` with dynamic padding, or a plain loop that does
the same steps without the Trainer's own overhead: it is the harder one to beat.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.checkpoints.folder import save_model
from litebert.corpus.batches import Batch
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network
from litebert.pretraining.vocabulary_loss import IGNORED
from litebert.tasks.encoding import Inputs, Targets
from litebert.tasks.recipes import FinetuneRecipe
from litebert.text.tokenizer import Tokenizer
from litebert.train import precision

if TYPE_CHECKING:
    from litebert_lab.bench.pretrain import Setting

CLASS = "AutoModelForSequenceClassification"
ORDER_KEYS = {"albert": "sentence_order_label", "bert": "next_sentence_label"}
MULTIPLE = 64  # of which padded lengths are multiples, so that compiled code meets few of them

# Takes a step on a batch; asked to look, it returns the loss (which waits for the device and costs time).
Step = Callable[[int, bool], float]
Example = dict[str, Any]
Clocks = npt.NDArray[np.float64]  # seconds of the wall clock and of the processors


def their_model(network: Network, kind: str, tokenizer: Tokenizer | None = None) -> nn.Module:
    """The same weights in their class: ``AutoModel``, ``AutoModelForPreTraining``."""
    import transformers as library

    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder + "/model", network, tokenizer, verb="bench", written_out=True)
        model: nn.Module = getattr(library, kind).from_pretrained(folder + "/model")
        return model


class TheirPretraining:
    """A model of theirs in training, as their users do it: padded, logits at every position, their own loss."""

    def __init__(self, model: nn.Module, setting: "Setting", compiled: bool) -> None:
        self.model, self.setting, self.compiled = model.to(setting.device).train(), setting, compiled
        self.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.compiled_for: dict[bool, Callable[..., Any]] = {}  # by whether shapes change

    def step_on(self, batches: Sequence[Batch]) -> Step:
        """Steps on these batches, padded before the clock starts, from the first weights on."""
        setting, model = self.setting, self.model
        kind, device, update = setting.precision, setting.device, setting.optimiser
        rows_at_once = setting.tokens // setting.length
        multiple = MULTIPLE if self.compiled else 1
        chunks = [padded_chunks(batch, setting.config, rows_at_once, multiple) for batch in batches]
        model.load_state_dict(self.weights)
        run: Callable[..., Any] = model
        if self.compiled:
            shapes = {chunk["input_ids"].shape for batch in chunks for chunk in batch}
            # Told at once that shapes change, it compiles once for all of them instead of once for each of the first.
            run = self._compiled(len(shapes) > 1)
        assert update.rate is not None
        groups = decaying_groups(model, update.weight_decay)
        optimiser = torch.optim.AdamW(groups, update.rate, update.betas, update.eps, fused=True)
        scaler = precision.scaler(kind, device)

        def step(index: int, look: bool) -> float:
            sums = torch.zeros(2, 2)
            for chunk in chunks[index]:
                inputs = {name: tensor.to(device, non_blocking=True) for name, tensor in chunk.items()}
                with precision.cast(kind, device):
                    out = run(**inputs)
                scaler.scale(out.loss / len(chunks[index])).backward()
                if look:
                    sums += _lost(out, inputs)
                del out
            scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(model.parameters(), update.clip)
            scaler.step(optimiser)
            scaler.update()
            optimiser.zero_grad(set_to_none=True)
            return float((sums[:, 0] / sums[:, 1].clamp(min=1)).sum())

        return step

    def _compiled(self, changing: bool) -> Callable[..., Any]:
        if changing not in self.compiled_for:
            torch.compiler.reset()  # or what was compiled for one shape stands in the way
            self.compiled_for = {changing: torch.compile(self.model, dynamic=changing)}
        return self.compiled_for[changing]


def padded_chunks(batch: Batch, config: EncoderConfig, rows_at_once: int, multiple: int = 1) -> list[dict[str, Tensor]]:
    """A batch as padded rows in as few forward passes as there must be, all of about the same number of rows."""
    ids, segments = (torch.from_numpy(array).long() for array in (batch.ids, batch.segments))
    labels = torch.full_like(ids, IGNORED)
    masked = torch.from_numpy(batch.mask_positions[: batch.num_masked]).long()
    labels[masked] = torch.from_numpy(batch.mask_targets[: batch.num_masked]).long()
    order = torch.from_numpy(batch.order_labels).long()
    sequences = [slice(*pair) for pair in pairwise(batch.starts[: batch.num_sequences + 1].tolist())]
    passes = -(-len(sequences) // rows_at_once)
    rows = -(-len(sequences) // passes)
    chunks = []
    for first in range(0, len(sequences), rows):
        chosen = sequences[first : first + rows]
        longest = max(one.stop - one.start for one in chosen)
        width = min(config.max_positions, -(-longest // multiple) * multiple)
        chunks.append(
            {
                "input_ids": _rows(ids, chosen, config.pad_id, width),
                "attention_mask": _rows(torch.ones_like(ids), chosen, 0, width),
                "token_type_ids": _rows(segments, chosen, 0, width),
                "labels": _rows(labels, chosen, IGNORED, width),
                ORDER_KEYS[config.family]: order[first : first + len(chosen)],
            }
        )
    return chunks


def _rows(flat: Tensor, chosen: list[slice], filler: int, width: int) -> Tensor:
    rows = nn.utils.rnn.pad_sequence([flat[one] for one in chosen], batch_first=True, padding_value=filler)
    return F.pad(rows, (0, max(0, width - rows.shape[1])), value=filler)


def _lost(out: Any, inputs: dict[str, Tensor]) -> Tensor:
    """Sum and count of both losses from their logits; their own loss is a mean over each forward pass."""
    order = next(inputs[name] for name in ORDER_KEYS.values() if name in inputs)
    scores = out.sop_logits if "sop_logits" in out else out.seq_relationship_logits
    sums = []
    for logits, wanted in ((out.prediction_logits, inputs["labels"]), (scores, order)):
        known = wanted != IGNORED
        lost = F.cross_entropy(logits.detach()[known].float(), wanted[known], reduction="sum")
        sums.append([float(lost), float(known.sum())])
    return torch.tensor(sums)


def decaying_groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    """Norms and biases do not decay, as in ours."""
    named = list(model.named_parameters())
    plain = [p for name, p in named if name.endswith("bias") or "norm" in name.lower()]
    others = [p for name, p in named if not (name.endswith("bias") or "norm" in name.lower())]
    return [{"params": others, "weight_decay": decay}, {"params": plain, "weight_decay": 0.0}]


@dataclass(frozen=True)
class Timed:
    """Seconds of the steps after the warm-up, and what their inputs held."""

    engine: str
    clocks: Clocks  # processor time is of all cores: others on the machine do not change it much
    steps: int
    tokens: int  # without padding
    padded: int


def their_rows(inputs: Inputs, targets: Targets | None) -> list[Example]:
    """Inputs as a list of examples, tokenised before the clock starts, as their map() leaves them."""
    rows: list[Example] = []
    for number in range(len(inputs)):
        at = slice(inputs.starts[number], inputs.starts[number + 1])
        row: Example = {"input_ids": inputs.ids[at].tolist(), "token_type_ids": inputs.segments[at].tolist()}
        row["attention_mask"] = [1] * len(row["input_ids"])
        if targets is not None:
            row["labels"] = int(targets.labels[number]) if len(targets.labels) else float(targets.values[number])
        rows.append(row)
    return rows


class Padding:
    """Their dynamic padding: to the longest of the batch. It counts what it makes."""

    def __init__(self, pad_id: int) -> None:
        self.fillers = {"input_ids": pad_id, "token_type_ids": 0, "attention_mask": 0}
        self.tokens = self.padded = 0

    def __call__(self, rows: Sequence[Example]) -> dict[str, Tensor]:
        longest = max(len(row["input_ids"]) for row in rows)
        self.tokens += sum(len(row["input_ids"]) for row in rows)
        self.padded += longest * len(rows)
        batch = {
            name: torch.tensor([row[name] + [filler] * (longest - len(row[name])) for row in rows])
            for name, filler in self.fillers.items()
        }
        return batch | ({"labels": torch.tensor([row["labels"] for row in rows])} if "labels" in rows[0] else {})


def train_theirs(
    model: nn.Module,
    rows: list[Example],
    recipe: FinetuneRecipe,
    *,
    device: str,
    seed: int,
    pad_id: int,
    warm: int = 0,
    plain: bool = False,
) -> Timed:
    """Train their model in place; ``warm`` steps are not timed. ``plain`` leaves out their Trainer."""
    assert recipe.steps is not None
    padding = Padding(pad_id)
    clocks = (_plain if plain else _with_trainer)(model, rows, recipe, device, seed, padding, warm)
    name = "transformers, plain loop" if plain else "transformers Trainer"
    return Timed(name, clocks, recipe.steps - warm, padding.tokens, padding.padded)


def _with_trainer(
    model: nn.Module, rows: list[Example], recipe: FinetuneRecipe, device: str, seed: int, padding: Padding, warm: int
) -> Clocks:
    from transformers import PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    marks: dict[int, Clocks] = {}

    class Clock(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (warm, recipe.steps):
                marks[state.global_step] = now(device)

    update = recipe.optimiser
    assert recipe.steps is not None and update.rate is not None
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=recipe.batch,
            learning_rate=update.rate,
            max_steps=recipe.steps,
            warmup_steps=round(recipe.schedule.warmup * recipe.steps),
            lr_scheduler_type="linear",
            weight_decay=update.weight_decay,
            adam_beta1=update.betas[0],
            adam_beta2=update.betas[1],
            adam_epsilon=update.eps,
            max_grad_norm=update.clip,
            bf16=device == "cuda",
            use_cpu=device == "cpu",
            seed=seed,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
        )
        trainer = Trainer(model=model, args=arguments, train_dataset=rows, data_collator=padding, callbacks=[Clock()])
        trainer.remove_callback(PrinterCallback)  # it would print among our figures
        marks[0] = now(device)
        trainer.train()
    return marks[recipe.steps] - marks[warm]


def _plain(
    model: nn.Module, rows: list[Example], recipe: FinetuneRecipe, device: str, seed: int, padding: Padding, warm: int
) -> Clocks:
    """The steps of their Trainer written out."""
    from transformers import get_linear_schedule_with_warmup

    update = recipe.optimiser
    assert recipe.steps is not None and update.rate is not None
    torch.manual_seed(seed)
    model.to(device).train()
    groups = decaying_groups(model, update.weight_decay)
    optimiser = torch.optim.AdamW(groups, lr=update.rate, betas=update.betas, eps=update.eps, fused=True)
    schedule = get_linear_schedule_with_warmup(optimiser, round(recipe.schedule.warmup * recipe.steps), recipe.steps)
    begun = now(device)
    for step, chosen in enumerate(islice(_orders(len(rows), recipe.batch, seed), recipe.steps), start=1):
        batch = {name: tensor.to(device) for name, tensor in padding([rows[int(n)] for n in chosen]).items()}
        with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
            loss = model(**batch).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), update.clip)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad(set_to_none=True)
        if step == warm:
            begun = now(device)
    return now(device) - begun


def _orders(items: int, batch: int, seed: int) -> Iterator[npt.NDArray[np.int64]]:
    for epoch in count():
        order = np.random.default_rng([seed, epoch]).permutation(items)
        yield from (order[first : first + batch] for first in range(0, items, batch))


def now(device: str) -> Clocks:
    """Both clocks, when everything asked of the device is done."""
    if device == "cuda":
        torch.cuda.synchronize()
    return np.array([time.perf_counter(), time.process_time()])


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
