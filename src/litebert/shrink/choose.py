"""From what a person asked for to the layers that go: by number, by rule, or by what the layers do to a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from litebert.analyse.inputs import batches, counted, first_tokens, text_lines, tokenizer_for
from litebert.analyse.layer_statistics import contribution
from litebert.checkpoints.folder import Loaded
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.shrink.criterion import Criterion
from litebert.shrink.drop import sharing
from litebert.shrink.strategies import (
    NEEDS_TEXT,
    Layers,
    Strategy,
    check_count,
    drop_fixed,
    drop_greedily,
    drop_similar,
    kept_of,
    parse_kept,
    parse_strategy,
)

GREEDY_TOKENS = 16_384  # every candidate runs all of them
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What to drop, as asked for: layers to keep, or a number and a strategy."""

    keep: str | None = None
    drop: int | None = None
    strategy: str | None = None
    text: tuple[str, ...] = ()
    most_texts: int | None = None
    tokenizer: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The layers that go and those that stay; ``scores`` says what it went by, one for each layer or each step."""

    strategy: Strategy | None
    dropped: Layers
    kept: Layers
    measure: str = ""
    scores: list[dict[str, float]] = field(default_factory=list)


def check_asked(asked: Asked) -> Strategy | None:
    """What is wrong before any model is read; the strategy, or None for layers named one by one."""
    if (asked.keep is None) == (asked.drop is None):
        raise InputError("say either how many layers to drop (--drop 6) or which to keep (--keep 1,2,5,9)")
    if asked.keep is not None:
        if asked.strategy is not None:
            raise InputError("--keep names the layers itself; leave out --strategy")
        return None
    strategy = parse_strategy(asked.strategy or "top")
    if strategy in NEEDS_TEXT and not asked.text:
        raise InputError(f"--strategy {strategy} goes by what the layers do to a text; name one with --text FILE")
    return strategy


def choose(asked: Asked, config: EncoderConfig, load: Callable[[], Loaded], say: Say) -> Choice:
    """The choice for a model of this shape; its weights are loaded only where the strategy looks at them."""
    strategy = check_asked(asked)
    depth = config.num_layers
    if strategy is None:
        kept = parse_kept(asked.keep or "", depth)
        return Choice(strategy=None, kept=kept, dropped=kept_of(depth, kept))
    count = asked.drop or 0
    check_count(depth, count)
    if strategy not in NEEDS_TEXT or sharing(config.plan) == "all":
        rule = strategy if strategy not in NEEDS_TEXT else "top"  # all layers are one: nothing to measure
        return _choice(strategy, drop_fixed(rule, depth, count), depth)
    loaded = load()
    tokenizer = tokenizer_for("the model", loaded.tokenizer, asked.tokenizer, config.family)
    lines = text_lines(asked.text, asked.most_texts)
    if strategy == "contribution":
        inputs = batches(lines, tokenizer, config, device=asked.device)
        cosines = contribution(loaded.network.encoder, counted(inputs, lambda done: say(f"{done:,} texts")))
        scores = [{"layer": layer, "cls_cosine": cosine} for layer, cosine in enumerate(cosines, start=1)]
        return _choice(strategy, drop_similar(cosines, count), depth, "mean [CLS] cosine, input to output", scores)
    sample = first_tokens(lines, tokenizer, GREEDY_TOKENS)
    criterion = Criterion(loaded.network, tokenizer, list(batches(sample, tokenizer, config, device=asked.device)))
    tried = 0

    def loss(kept: Layers) -> float:
        nonlocal tried
        tried += 1
        say(f"{tried} of {sum(range(depth - count + 1, depth + 1))} candidates")
        return criterion(kept)

    before = criterion(range(1, depth + 1))
    dropped, order = drop_greedily(depth, count, loss)
    scores = [{"layer": 0, "score": before}, *({"layer": layer, "score": value} for layer, value in order)]
    return _choice(strategy, dropped, depth, criterion.name, scores)


def _choice(
    strategy: Strategy, dropped: Layers, depth: int, measure: str = "", scores: Sequence[dict[str, float]] = ()
) -> Choice:
    kept = kept_of(depth, dropped)
    return Choice(strategy=strategy, dropped=dropped, kept=kept, measure=measure, scores=list(scores))
