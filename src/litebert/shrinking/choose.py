"""From a request to a smaller model: which layers go, by number, by rule, or by what they do to a text, and a report.

Greedy dropping is guided by the loss on masked tokens, or, for models without a masked-LM head, by how far the final
states move. Both are measured on one fixed sample with one fixed set of masks, so that candidates differ in their
layers only.
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from litebert.analyse.inputs import Inputs, batches, count_texts, first_tokens, text_lines, tokenizer_for
from litebert.analyse.layer_statistics import contribution
from litebert.analyse.measure import with_progress
from litebert.checkpoints.folder import Loaded, check_no_model, load_model, model_config, model_folder, save_model
from litebert.checkpoints.huggingface import is_native
from litebert.errors import InputError
from litebert.nn.attention_pattern import Pattern, kept_words, patterns_of
from litebert.nn.config import EncoderConfig, Plan
from litebert.nn.encoder import Encoder
from litebert.nn.network import Network, NetworkConfig
from litebert.runs import parent_of
from litebert.shrinking.drop import count_parameters, drop_layers, kept_plan, same_model, sharing, shrunk_config
from litebert.shrinking.strategies import (
    NEEDS_TEXT,
    Layers,
    Strategy,
    check_count,
    drop_fixed,
    drop_greedily,
    drop_similar,
    kept_of,
    layers_in_words,
    parse_kept,
    parse_strategy,
    ranges,
)
from litebert.system import usable_device
from litebert.tasks.predicting import TASK_FILE
from litebert.terminal import progress
from litebert.text.tokenizer import Tokenizer

GREEDY_TOKENS = 16_384  # every candidate runs all of them
MASKED = 0.15
SEED = 0


@dataclass(frozen=True, kw_only=True)
class DropRequest:
    """What to drop: layers to keep, or a number and a strategy."""

    keep: str | None = None
    drop: int | None = None
    strategy: str | None = None
    text: tuple[str, ...] = ()
    most_texts: int | None = None
    tokenizer: Path | None = None
    device: str = "cpu"


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The layers kept; ``scores`` are what decided it, one for each layer or each step."""

    strategy: Strategy | None
    depth: int
    kept: Layers
    measure: str = ""
    scores: list[dict[str, float]] = field(default_factory=list)

    @property
    def dropped(self) -> Layers:
        return kept_of(self.depth, self.kept)


@dataclass(frozen=True, kw_only=True)
class DropReport:
    """A choice of layers and its effect on the model."""

    model: str
    strategy: str
    layers: int
    dropped: list[int]
    kept: list[int]
    parameters_before: int
    parameters_after: int
    measure: str
    scores: list[dict[str, float]]
    loads_in_transformers: bool
    notes: list[str]
    output: str | None = None  # the folder that was written


def check_request(request: DropRequest) -> Strategy | None:
    """Errors that show before a model is read; returns the strategy, or None for layers named one by one."""
    if (request.keep is None) == (request.drop is None):
        raise InputError("give either drop, the number of layers to drop, or keep, the layers to keep such as 1,2,5,9")
    if request.keep is not None:
        if request.strategy is not None:
            raise InputError("keep names the layers itself; leave out strategy")
        return None
    strategy = parse_strategy(request.strategy or "top")
    if strategy in NEEDS_TEXT and not request.text:
        raise InputError(f"strategy {strategy} measures what the layers do to a text; set text to a file")
    return strategy


def choose(request: DropRequest, config: EncoderConfig, load: Callable[[], Loaded]) -> Choice:
    """The choice for a model of this shape; weights are loaded only where the strategy needs them."""
    strategy = check_request(request)
    depth = config.num_layers
    if strategy is None:
        kept = parse_kept(request.keep or "", depth)
        return Choice(strategy=None, depth=depth, kept=kept)
    count = request.drop or 0
    check_count(depth, count)
    if strategy not in NEEDS_TEXT or sharing(config.plan) == "all":
        rule = strategy if strategy not in NEEDS_TEXT else "top"  # all layers are the same: nothing to measure
        return Choice(strategy=strategy, depth=depth, kept=kept_of(depth, drop_fixed(rule, depth, count)))
    loaded = load()
    tokenizer = tokenizer_for("the model", loaded.tokenizer, request.tokenizer, config.family)
    lines = text_lines(request.text, request.most_texts)
    if strategy == "contribution":
        inputs = batches(lines, tokenizer, config, device=request.device)
        total = count_texts(request.text, request.most_texts)
        cosines = contribution(loaded.network.encoder, with_progress(inputs, "contribution", total))
        scores = [{"layer": layer, "cls_cosine": cosine} for layer, cosine in enumerate(cosines, start=1)]
        kept, measure = kept_of(depth, drop_similar(cosines, count)), "mean [CLS] cosine, input to output"
        return Choice(strategy=strategy, depth=depth, kept=kept, measure=measure, scores=scores)
    sample = first_tokens(lines, tokenizer, GREEDY_TOKENS)
    criterion = Criterion(loaded.network, tokenizer, list(batches(sample, tokenizer, config, device=request.device)))
    before = criterion(range(1, depth + 1))
    total = sum(range(depth - count + 1, depth + 1))
    with progress() as show:
        candidates = itertools.count(1)

        def loss(kept: Layers) -> float:
            show(f"candidate {next(candidates)} of {total}")
            return criterion(kept)

        dropped, order = drop_greedily(depth, count, loss)
    scores = [{"layer": 0, "score": before}, *({"layer": layer, "score": value} for layer, value in order)]
    kept = kept_of(depth, dropped)
    return Choice(strategy=strategy, depth=depth, kept=kept, measure=criterion.name, scores=scores)


def shrink_model(model: str, request: DropRequest, output: Path | None, *, overwrite: bool = True) -> DropReport:
    """Choose layers, drop them and write the smaller model; without ``output`` only report what would be dropped."""
    folder = model_folder(model)
    if output is not None and output.is_dir() and folder.is_dir() and output.samefile(folder):
        raise InputError(f"out is {output}, the model itself; choose another folder, so that the whole model stays")
    if output is not None:
        check_no_model(output, overwrite)
    usable_device(request.device)

    @cache
    def load() -> Loaded:
        return load_model(model, device=request.device)

    config = load().network.config if output is not None else model_config(model)
    choice = choose(request, config.encoder, load)
    report = _make_report(model, config, choice)
    if output is None:
        return report
    loaded = load()
    source = [parent_of("source", Path(os.path.normpath(folder)))] if folder.is_dir() else []
    settings = {
        "source": model,
        **{key: value for key, value in asdict(request).items() if value not in (None, ())},
        "strategy": report.strategy,
        "dropped": choice.dropped,
        "kept": choice.kept,
    }
    small = drop_layers(loaded.network, choice.kept)
    task = folder / TASK_FILE  # of a fine-tuned model, which keeps its task with fewer layers
    files = {TASK_FILE: task.read_text(encoding="utf-8")} if task.is_file() else {}
    save_model(output, small, loaded.tokenizer, verb="shrink", settings=settings, parents=source, files=files)
    return replace(report, notes=[*loaded.notes, *report.notes], output=str(output))


def _make_report(model: str, config: NetworkConfig, choice: Choice) -> DropReport:
    """The report on a choice for a model of this shape."""
    small = replace(config, encoder=shrunk_config(config.encoder, choice.kept))
    before, after = count_parameters(config), count_parameters(small)
    return DropReport(
        model=model,
        strategy=choice.strategy or "keep",
        layers=config.encoder.num_layers,
        dropped=list(choice.dropped),
        kept=list(choice.kept),
        parameters_before=before,
        parameters_after=after,
        measure=choice.measure,
        scores=choice.scores,
        loads_in_transformers=is_native(small.encoder),
        notes=_notes(config, small, choice),
    )


def _notes(config: NetworkConfig, small: NetworkConfig, choice: Choice) -> list[str]:
    plan, count = config.encoder.plan, len(choice.dropped)
    if not count:
        return ["nothing is dropped: the model is unchanged"]
    kind = sharing(plan)
    if kind == "none":
        return []
    if kind == "all":
        return [
            f"all {len(plan)} layers are one shared block, so every strategy that drops {count} gives this same model: "
            f"it runs {layers_in_words(len(choice.kept))} instead of {len(plan)} and takes less time, but has the "
            "same number of parameters",
            f"this needs no new model: the whole model can be called with depth={len(choice.kept)}",
        ]
    old, new = config.encoder, small.encoder
    counts = (
        ("attention", new.num_attention_blocks, old.num_attention_blocks),
        ("feed-forward", new.num_feed_forward_blocks, old.num_feed_forward_blocks),
    )
    left = " and ".join(f"{left} of {all_} {kind} block{'' if all_ == 1 else 's'}" for kind, left, all_ in counts)
    notes = [f"layers share blocks here: {left} stay, the others are no longer run and are removed"]
    others = [name for name in same_model(plan, choice.kept) if name != choice.strategy]
    if others:
        notes.append(f"layers share blocks, so {' and '.join(others)} would leave the same model")
    return notes


def report_lines(report: DropReport) -> list[str]:
    """The report as lines for a terminal."""
    how = "" if report.strategy == "keep" else f" ({report.strategy})"
    share = report.parameters_after / report.parameters_before
    lines = [
        f"dropped{how}: {ranges(report.dropped)}; kept: {ranges(report.kept)} of {layers_in_words(report.layers)}",
        f"parameters: {report.parameters_before:,} before, {report.parameters_after:,} after ({share:.0%})",
    ]
    if report.scores:
        lines.append(f"by {report.measure}: {_scores(report.scores)}")
    return lines + [f"note: {note}" for note in report.notes]


def _scores(scores: Sequence[dict[str, float]]) -> str:
    if "cls_cosine" in scores[0]:
        return ", ".join(f"{one['layer']}: {one['cls_cosine']:.4f}" for one in scores)
    return f"{scores[0]['score']:.4f} whole; " + ", ".join(
        f"without {one['layer']:.0f}: {one['score']:.4f}" for one in scores[1:]
    )


# --- what guides greedy dropping


@contextmanager
def with_plan(encoder: Encoder, plan: Plan, patterns: Sequence[Pattern] | None = None) -> Iterator[None]:
    """Run the encoder with another plan, and with what tokens see in its layers, inside this block."""
    own = encoder.plan, encoder.patterns
    encoder.plan, encoder.patterns = plan, own[1] if patterns is None else tuple(patterns)
    try:
        yield
    finally:
        encoder.plan, encoder.patterns = own


class Criterion:
    """Call it with the layers kept: lower is better. Where shared blocks make candidates equal, one run serves all."""

    def __init__(self, network: Network, tokenizer: Tokenizer, sample: Sequence[Inputs]) -> None:
        self._network = network
        self._plan, self._config = network.encoder.plan, network.config.encoder
        self._known: dict[tuple[Plan, tuple[Pattern, ...]], float] = {}
        self.predicts = "masked_lm" in network.heads and tokenizer.mask_id is not None
        if self.predicts:
            generator = torch.Generator().manual_seed(SEED)
            self._masked = [_mask(one, tokenizer, generator) for one in sample]
        else:
            self._sample = list(sample)
            self._wanted = [self._states(one) for one in sample]

    @property
    def name(self) -> str:
        return "loss on masked tokens" if self.predicts else "relative change of the final states"

    @torch.no_grad()
    def __call__(self, kept: Sequence[int]) -> float:
        plan, config = kept_plan(self._plan, kept), self._config
        layers = plan, patterns_of(kept_words(config.attention, config.num_layers, tuple(kept)), len(plan))
        if layers not in self._known:
            with with_plan(self._network.encoder, *layers):
                self._known[layers] = self._loss() if self.predicts else self._distance()
        return self._known[layers]

    def _loss(self) -> float:
        total = count = 0.0
        for inputs, places, targets in self._masked:
            logits = self._network.masked_lm(self._predicting(inputs, places), places).float()
            total += float(F.cross_entropy(logits, targets, reduction="sum").double())
            count += len(targets)
        if not count:
            raise InputError("the text has no token that can be masked; give a text with words in it")
        return total / count

    def _predicting(self, inputs: Inputs, places: Tensor) -> Tensor:
        """The states that predict: in a permutation language model those of the query stream."""
        if self._network.encoder.embeddings.mask is None:
            return self._states(inputs)
        ranks = torch.full_like(inputs.ids, -1).index_fill(0, places, 0)
        return self._network.encoder.two_streams(inputs.ids, inputs.layout, ranks, inputs.segments)[1]

    def _distance(self) -> float:
        moved = size = 0.0
        for inputs, wanted in zip(self._sample, self._wanted, strict=True):
            moved += float((self._states(inputs) - wanted).double().square().sum())
            size += float(wanted.double().square().sum())
        return (moved / size) ** 0.5

    @torch.no_grad()
    def _states(self, inputs: Inputs) -> Tensor:
        states: Tensor = self._network.encoder(inputs.ids, inputs.layout, inputs.segments)
        return states


def _mask(inputs: Inputs, tokenizer: Tokenizer, generator: torch.Generator) -> tuple[Inputs, Tensor, Tensor]:
    """(masked inputs, positions, original ids); special tokens stay, and at least one position is masked."""
    special = torch.tensor([id for id in (tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id) if id is not None])
    draws = torch.rand(inputs.ids.shape, generator=generator).to(inputs.ids.device)
    draws = draws.masked_fill(torch.isin(inputs.ids, special.to(inputs.ids.device)), 1.0)
    chosen = (draws < MASKED) | ((draws == draws.min()) & (draws < 1.0))
    places = chosen.nonzero()[:, 0]
    assert tokenizer.mask_id is not None
    return replace(inputs, ids=inputs.ids.masked_fill(chosen, tokenizer.mask_id)), places, inputs.ids[places]
