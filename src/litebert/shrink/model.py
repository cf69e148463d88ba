"""What dropping layers did, or would do, for a person and as JSON."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from litebert.checkpoints.huggingface import is_native
from litebert.nn.network import NetworkConfig
from litebert.shrink.choose import Choice
from litebert.shrink.drop import count_parameters, same_model, sharing, shrunk_config
from litebert.shrink.strategies import layers_in_words, ranges


@dataclass(frozen=True, kw_only=True)
class Report:
    """A choice and what it means for the model."""

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

    def as_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def make_report(model: str, config: NetworkConfig, choice: Choice) -> Report:
    """The report on a choice for a model of this shape."""
    small = dataclasses.replace(config, encoder=shrunk_config(config.encoder, choice.kept))
    before, after = count_parameters(config), count_parameters(small)
    return Report(
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
        return ["nothing is dropped: this is the model as it was"]
    kind = sharing(plan)
    if kind == "none":
        return []
    if kind == "all":
        return [
            f"all {len(plan)} layers are one shared block, so every strategy that drops {count} gives this same model: "
            f"it runs {layers_in_words(len(choice.kept))} instead of {len(plan)} and takes less time, but its "
            "parameters stay as they are",
            f"no surgery is needed for this: the whole model can be called with depth={len(choice.kept)}",
        ]
    notes = [_what_is_left(config, small)]
    others = [name for name in same_model(plan, choice.kept) if name != choice.strategy]
    if others:
        notes.append(f"layers share blocks, so {' and '.join(others)} would leave this very model")
    return notes


def _what_is_left(config: NetworkConfig, small: NetworkConfig) -> str:
    old, new = config.encoder, small.encoder
    parts = [
        f"{new_count} of {old_count} {kind} block{'' if old_count == 1 else 's'}"
        for kind, old_count, new_count in (
            ("attention", old.num_attention_blocks, new.num_attention_blocks),
            ("feed-forward", old.num_feed_forward_blocks, new.num_feed_forward_blocks),
        )
    ]
    return f"layers share blocks here: {' and '.join(parts)} stay, the others are no longer run and are gone"


def sentences(report: Report) -> list[str]:
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
