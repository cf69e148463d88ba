"""Small pretraining runs: settings for seconds of work on a toy store, and a forward pass that goes wrong."""

from pathlib import Path

import torch

import litebert
from litebert.pretraining.recipe import read_recipe
from litebert.pretraining.run import PretrainSettings
from litebert.train.objective import Learner
from litebert.train.settings import Bound

WORDS = ("num_layers=2", "width=32", "embedding_width=16", "num_heads=2", "feed_forward_width=64")
RECIPE = (
    *(
        "batches.tokens=[[0,1024]]",
        "batches.micro_tokens=256",
        "batches.lengths=[[0,64]]",
        "optimiser.rate=0.003",
        "optimiser.rate_at_batch=0",
    ),
    *("optimiser.name=adamw", "optimiser.betas=[0.9,0.98]", "schedule.warmup=0.1"),
)


def settings(store: Path, out: Path, *, recipe=(), words=(), **changes) -> PretrainSettings:
    fields = {
        "preset": "albert-tiny",
        "corpus": (store,),
        "out": out,
        "recipe": read_recipe("paper", (*RECIPE, *recipe)),
        "bound": Bound(steps=12),
        "overrides": (*WORDS, *words),
        "held_out_batches": 2,
    }
    return PretrainSettings(**{**fields, **changes})


def weights(run: Path) -> dict[str, torch.Tensor]:
    return litebert.load(run, device="cpu").network.state_dict()


def lose_everything_once(monkeypatch, call: int) -> None:
    """The forward pass of this number, in training, gives no number."""
    forward, calls = Learner.forward, iter(range(1, 1 << 30))

    def now_and_then(self, tensors):
        sums = forward(self, tensors)
        if not self.network.training or next(calls) != call:
            return sums
        return {name: (loss * float("nan"), right) for name, (loss, right) in sums.items()}

    monkeypatch.setattr(Learner, "forward", now_and_then)
