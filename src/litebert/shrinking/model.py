"""A model in, a smaller one out: what ``litebert shrink --drop`` does, usable from Python, and a report on it."""

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from litebert.checkpoints.folder import Loaded, check_no_model, load_model, model_config, model_folder, save_model
from litebert.checkpoints.huggingface import is_native
from litebert.errors import InputError
from litebert.nn.network import NetworkConfig
from litebert.runs import parent_of
from litebert.shrinking.choose import Choice, DropRequest, choose
from litebert.shrinking.drop import count_parameters, drop_layers, same_model, sharing, shrunk_config
from litebert.shrinking.strategies import layers_in_words, ranges
from litebert.tasks.predicting import TASK_FILE
from litebert.train.precision import usable_device


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

    def as_plain(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


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
        **{key: value for key, value in dataclasses.asdict(request).items() if value not in (None, ())},
        "strategy": report.strategy,
        "dropped": choice.dropped,
        "kept": choice.kept,
    }
    small = drop_layers(loaded.network, choice.kept)
    task = folder / TASK_FILE  # of a fine-tuned model, which keeps its task with fewer layers
    files = {TASK_FILE: task.read_text(encoding="utf-8")} if task.is_file() else {}
    save_model(output, small, loaded.tokenizer, verb="shrink", settings=settings, parents=source, files=files)
    return dataclasses.replace(report, notes=[*loaded.notes, *report.notes], output=str(output))


def _make_report(model: str, config: NetworkConfig, choice: Choice) -> DropReport:
    """The report on a choice for a model of this shape."""
    small = dataclasses.replace(config, encoder=shrunk_config(config.encoder, choice.kept))
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
    notes = [_what_is_left(config, small)]
    others = [name for name in same_model(plan, choice.kept) if name != choice.strategy]
    if others:
        notes.append(f"layers share blocks, so {' and '.join(others)} would leave the same model")
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
    return f"layers share blocks here: {' and '.join(parts)} stay, the others are no longer run and are removed"


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
