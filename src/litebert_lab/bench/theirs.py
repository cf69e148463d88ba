"""The same network in ``transformers``, and a pretraining step as its users take one: padded, with its own loss."""

import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from litebert.checkpoints.folder import save_model
from litebert.corpus.batches import Batch
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.network import Network
from litebert.pretraining.vocabulary_loss import IGNORED
from litebert.text.tokenizer import Tokenizer
from litebert.train import precision
from litebert.train.settings import OptimiserSettings, Precision

ORDER_KEYS = {"albert": "sentence_order_label", "bert": "next_sentence_label"}
MULTIPLE = 64  # of which padded lengths are multiples, so that compiled code meets few of them

# Takes a step on a batch; asked to look, it says what it lost (which waits for the device and costs time).
Step = Callable[[int, bool], float]


def transformers() -> ModuleType:
    """The library, or a sentence on how to install it."""
    try:
        import transformers as library
    except ImportError:
        raise InputError("this compares with transformers; install it: pip install 'litebert[lab]'") from None
    library.utils.logging.disable_progress_bar()
    library.utils.logging.set_verbosity_error()
    return library


def their_model(network: Network, kind: str, tokenizer: Tokenizer | None = None) -> nn.Module:
    """The same weights in their class: ``AutoModel``, ``AutoModelForPreTraining``."""
    library = transformers()
    with tempfile.TemporaryDirectory() as folder:
        save_model(folder + "/model", network, tokenizer, verb="bench", written_out=True)
        model: nn.Module = getattr(library, kind).from_pretrained(folder + "/model")
        return model


class TheirPretraining:
    """A model of theirs in training, as their users do it: padded, logits at every position, their own loss."""

    def __init__(
        self,
        model: nn.Module,
        config: EncoderConfig,
        device: torch.device,
        numbers: Precision,
        compiled: bool,
        optimiser: OptimiserSettings,
        rows_at_once: int,
    ) -> None:
        self.model, self.device, self.compiled, self.settings = model.to(device).train(), device, compiled, optimiser
        self.config, self.numbers, self.rows_at_once = config, numbers, rows_at_once
        self.weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        self.compiled_for: dict[bool, Callable[..., Any]] = {}  # by whether shapes change

    def step_on(self, batches: Sequence[Batch], clip: float) -> Step:
        """Steps on these batches, padded before the clock starts, from the first weights on."""
        multiple = MULTIPLE if self.compiled else 1
        chunks = [padded_chunks(batch, self.config, self.rows_at_once, multiple) for batch in batches]
        model, kind = self.model, self.numbers
        model.load_state_dict(self.weights)
        run: Callable[..., Any] = model
        if self.compiled:
            shapes = {chunk["input_ids"].shape for batch in chunks for chunk in batch}
            # Told at once that shapes change, it compiles once for all of them instead of once for each of the first.
            run = self._compiled(len(shapes) > 1)
        rate, betas, eps = self.settings.rate, self.settings.betas, self.settings.eps
        assert rate is not None
        optimiser = torch.optim.AdamW(decaying_groups(model, self.settings.weight_decay), rate, betas, eps, fused=True)
        scaler = precision.scaler(kind, self.device)

        def step(index: int, look: bool) -> float:
            sums = torch.zeros(2, 2)
            for chunk in chunks[index]:
                inputs = {name: tensor.to(self.device, non_blocking=True) for name, tensor in chunk.items()}
                with precision.cast(kind, self.device):
                    out = run(**inputs)
                scaler.scale(out.loss / len(chunks[index])).backward()
                if look:
                    sums += _lost(out, inputs)
                del out
            scaler.unscale_(optimiser)
            nn.utils.clip_grad_norm_(model.parameters(), clip)
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
