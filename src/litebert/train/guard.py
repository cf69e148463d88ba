"""Watching over a run: has it diverged, or is it stuck at what word frequencies alone would give?

Both are told in a sentence. Divergence ends in a rollback; being stuck is the commonest complaint of people who
pretrain a model with shared layers, and is theirs to act on.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from litebert.corpus.store import Split, Store
from litebert.errors import InputError

CHUNK = 1 << 20  # tokens counted at a time
LOOK_EVERY = 0.1  # share of the run between looks at whether the masked-LM loss falls


@dataclass(frozen=True, kw_only=True)
class GuardSettings:
    """When to raise the alarm. Losses are compared with the lowest smoothed loss so far."""

    patience: int = 8  # steps in a row that must be far above
    rise: float = 0.25  # far above: by this share of the lowest loss,
    rise_least: float = 0.5  # by this much,
    rise_noise: float = 4.0  # and by this many times the usual distance between one loss and the next
    first: int = 10  # steps before the lowest loss is taken
    smoothing: float = 0.9
    stuck_after: float = 0.35  # share of the run after which a loss at word-frequency level is called stuck
    stuck_margin: float = 0.1  # how far below that level a loss must be, as a share of it
    stuck_fall: float = 0.03  # a loss that falls by this share of the level in a tenth of the run is given time,
    stuck_late: float = 0.75  # until this share of the run is over

    def __post_init__(self) -> None:
        if self.patience < 1 or self.first < 1:
            raise InputError(f"patience ({self.patience}) and first ({self.first}) must be 1 step or more")
        if min(self.rise, self.rise_least, self.rise_noise) < 0:
            raise InputError("rise, rise_least and rise_noise must be 0 or more")
        for name in ("smoothing", "stuck_after", "stuck_margin", "stuck_fall", "stuck_late"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} is {getattr(self, name)} but must lie from 0 to below 1")


class Guard:
    """Told of every step, it says when something is wrong, and nothing else."""

    def __init__(self, settings: GuardSettings | None = None) -> None:
        self.settings = settings or GuardSettings()
        self.reset()
        self._masked: float | None = None  # the smoothed masked-LM loss
        self._looked: tuple[float, float] | None = None  # progress and that loss, less than a tenth of the run ago
        self._falling = True  # whether it fell in the tenth before
        self._said_stuck = False

    def reset(self) -> None:
        """Forget the losses seen: call it where they are meant to change (a new loss, a deeper network)."""
        self._seen = 0
        self._smooth = 0.0
        self._last = 0.0
        self._noise = 0.0
        self._lowest = math.inf
        self._above = 0

    def observe(self, step: int, loss: float, gradient_norm: float | None = None) -> str | None:
        """A sentence if the run has diverged. Leave ``gradient_norm`` out of steps that loss scaling skipped."""
        if not math.isfinite(loss):
            return f"the loss is {loss} at step {step}"
        if gradient_norm is not None and not math.isfinite(gradient_norm):
            return f"the gradient is {gradient_norm} at step {step}"
        settings = self.settings
        allowed = max(settings.rise * self._lowest, settings.rise_least, settings.rise_noise * self._noise)
        if loss > self._lowest + allowed:  # never before the lowest loss is known: that is infinite
            # Losses far above teach neither the level nor the noise, or the alarm would move away with them.
            self._above += 1
            if self._above >= settings.patience:
                return (
                    f"the loss has exploded: {loss:.3f} at step {step}, and for {self._above} steps far above "
                    f"the {self._lowest:.3f} that it had reached"
                )
            return None
        self._above = 0
        self._learn(loss)
        return None

    def _learn(self, loss: float) -> None:
        """Take a usual loss into the level, the noise and the lowest level."""
        # Plain means at first, so that the very first losses do not weigh for long.
        self._seen += 1
        self._smooth += max(1 - self.settings.smoothing, 1 / self._seen) * (loss - self._smooth)
        # Between neighbours, and slowly: a loss that climbs must not pass for a noisy one.
        distance = abs(loss - self._last) if self._seen > 1 else 0.0
        self._noise += max((1 - self.settings.smoothing) / 5, 1 / self._seen) * (distance - self._noise)
        self._last = loss
        if self._seen >= self.settings.first:
            self._lowest = min(self._lowest, self._smooth)

    def stuck(self, mlm_loss: float, unigram_entropy: float, progress: float) -> str | None:
        """A sentence, once, if the masked-LM loss stays at word-frequency level; call it with every loss there is.

        A tenth of the chosen tokens are left as they are, so a model that knows frequencies and copies gets a tenth
        below the entropy. That is the second plateau people report (6.6 after 7.2), and is still not reading context.
        """
        settings = self.settings
        if not math.isfinite(mlm_loss):
            return None
        before = mlm_loss if self._masked is None else self._masked
        self._masked = settings.smoothing * before + (1 - settings.smoothing) * mlm_loss
        self._look(self._masked, unigram_entropy, progress)
        level = unigram_entropy * (1 - settings.stuck_margin)
        if self._said_stuck or progress < settings.stuck_after or min(self._masked, mlm_loss) < level:
            return None
        if self._falling and progress < settings.stuck_late:  # short runs leave the level late
            return None
        self._said_stuck = True
        return (
            f"after {progress:.0%} of the run the masked-LM loss is {self._masked:.2f}, where word frequencies alone "
            f"give {unigram_entropy:.2f}: the model has not begun to use context. Try the budget recipe, "
            "shorter inputs first, another rate (three times lower, then higher; lower for the shared blocks than for "
            "the embeddings), layers that start shallow and grow or start unshared, or the order loss only later"
        )

    def _look(self, masked: float, unigram_entropy: float, progress: float) -> None:
        """Once in a tenth of the run: is the loss falling?"""
        if self._looked is None:
            self._looked = (progress, masked)
        elif progress - self._looked[0] >= LOOK_EVERY:
            self._falling = self._looked[1] - masked > self.settings.stuck_fall * unigram_entropy
            self._looked = (progress, masked)

    def state_dict(self) -> dict[str, float | int | bool | None]:
        """Everything it remembers, as plain numbers."""
        return {
            "seen": self._seen,
            "smooth": self._smooth,
            "last": self._last,
            "noise": self._noise,
            "lowest": self._lowest if math.isfinite(self._lowest) else None,  # JSON has no infinity
            "above": self._above,
            "masked": self._masked,
            "looked_at": self._looked[0] if self._looked else None,
            "looked": self._looked[1] if self._looked else None,
            "falling": self._falling,
            "said_stuck": self._said_stuck,
        }

    def load_state_dict(self, state: dict[str, float | int | bool | None]) -> None:
        """Put it back."""
        self._seen, self._above = int(state["seen"] or 0), int(state["above"] or 0)
        self._smooth, self._last = float(state["smooth"] or 0), float(state["last"] or 0)
        self._noise = float(state["noise"] or 0)
        self._lowest = math.inf if state["lowest"] is None else float(state["lowest"])
        self._masked = None if state["masked"] is None else float(state["masked"])
        at, loss = state.get("looked_at"), state.get("looked")  # states of older versions have neither
        self._looked = None if at is None or loss is None else (float(at), float(loss))
        self._falling = bool(state.get("falling", True))
        self._said_stuck = bool(state["said_stuck"])


def unigram_entropy(store: Store, *, most: int = 100_000_000) -> float:
    """Nats a token of word frequencies learnt from the training text, on the held-out text (add-one, no specials).

    At most about ``most`` training tokens are counted, spread evenly over the text. Without held-out text the training
    text is its own judge.
    """
    special = sorted(set(store.special_ids.values()))
    trained = _counts(store.split("train"), store.vocab_size, special, most)
    held_out = _counts(store.split("held_out"), store.vocab_size, special, most)
    judge = held_out if held_out.any() else trained
    if not judge.any():
        raise InputError(f"{store.folder} has no text; build the store again from more")
    return -float(judge @ _log_frequencies(trained, len(special))) / int(judge.sum())


def log_frequencies(store: Store, *, most: int = 100_000_000) -> npt.NDArray[np.float64]:
    """The logarithm of each id's share of the training text (add-one; special tokens as if never seen)."""
    special = sorted(set(store.special_ids.values()))
    return _log_frequencies(_counts(store.split("train"), store.vocab_size, special, most), len(special))


def _log_frequencies(counts: npt.NDArray[np.int64], num_special: int) -> npt.NDArray[np.float64]:
    return np.log(counts + 1.0) - math.log(int(counts.sum()) + len(counts) - num_special)


def _counts(split: Split, vocab_size: int, special: list[int], most: int) -> npt.NDArray[np.int64]:
    """How often each id occurs in the chunks of a split that are read."""
    counts = np.zeros(vocab_size, np.int64)
    every = max(1, -(-split.num_tokens // most))
    for shard in split.shards:
        for begin in range(0, shard.num_tokens, CHUNK * every):
            counts += np.bincount(shard.tokens[begin : begin + CHUNK], minlength=vocab_size)
    counts[special] = 0
    return counts
