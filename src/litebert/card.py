"""A short model card out of a folder's own files: what the model is, what made it, what it reached, how to load it.

The long card, with results on tasks beside published ones, energy and a look at biases, is `litebert-lab card`.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.checkpoints.folder import model_config, model_folder
from litebert.checkpoints.huggingface import is_native
from litebert.data.files import read_object
from litebert.planning.count import count_parameters
from litebert.report import Item, Report, Section, Table, note
from litebert.runs import RunInfo, read_run

SIMPLE = (str, int, float, bool)
LOAD = """import litebert

model = litebert.load("{name}")
model.encode(["a text", "another"])"""


def short_card(folder: Path, name: str = "") -> Report:
    """The card of a model folder or of a run; write it with ``to_markdown``."""
    inside = model_folder(folder)
    config = model_config(folder)
    encoder, parameters = config.encoder, count_parameters(config.encoder)
    run = read_run(folder) or read_run(inside)
    name = name or folder.resolve().name
    shared = len(set(encoder.plan)) == 1 < len(encoder.plan)
    about = (
        f"A text encoder of the {encoder.family.upper()} family: {encoder.num_layers} "
        f"{'layers that share one block' if shared else 'layers'}, width {encoder.width}, {encoder.num_heads} heads, "
        f"{parameters.bare:,} parameters, {encoder.vocab_size:,} tokens, inputs of up to "
        f"{encoder.max_positions} tokens."
    )
    heads = f"Heads: {', '.join(config.heads.names) or 'none'}."
    loads = "litebert and transformers load it." if is_native(encoder) else "litebert loads it."
    sections = [Section(items=[note(f"{about} {heads} {loads}"), *_task(inside)])]
    if run is not None:
        sections.append(Section(title="Training", items=_training(run)))
        scores = [[key.replace("_", " "), _number(value)] for key, value in _flat(run.result).items()]
        if scores:
            sections.append(Section(title="Results", items=[Table(rows=[["", "value"], *scores])]))
    sections.append(Section(title="Use", items=[note(LOAD.format(name=name), "code")]))
    return Report(title=name, sections=sections)


def _task(folder: Path) -> list[Item]:
    """What the model was fine-tuned for."""
    if not (folder / "task.json").is_file():
        return []
    task = read_object(folder / "task.json", "write the model again")
    labels = [str(label) for label in task.get("labels") or ()]
    named = f"; labels: {', '.join(labels[:20])}{' ...' if len(labels) > 20 else ''}" if labels else ""
    return [note(f"Fine-tuned for {task.get('task') or task.get('name', 'a task')} ({task.get('kind', '')}){named}.")]


def _training(run: RunInfo) -> list[Item]:
    """Which command made it, from what, with which settings."""
    rows = [["command", f"litebert {run.verb}"], ["version", run.litebert], ["made", run.made], ["status", run.status]]
    rows += [[parent.role, Path(parent.folder).name] for parent in run.parents]
    settings = {key: value for key, value in run.settings.items() if isinstance(value, SIMPLE) and value != ""}
    rows += [[key.replace("_", " "), _without_folders(value)] for key, value in settings.items()]
    recipe = run.settings.get("recipe")
    if isinstance(recipe, Mapping):
        rows.append(["recipe", ", ".join(f"{key}={value}" for key, value in recipe.items() if value not in (None, ""))])
    return [Table(rows=rows, heading=False, left=(0, 1))]


def _without_folders(value: Any) -> str:
    """A setting; of a path only its name, because a card is for others."""
    return Path(value).name if isinstance(value, str) and os.sep in value else str(value)


def _flat(result: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a result, and those one level below."""
    found: dict[str, float] = {}
    for key, value in result.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = value
        elif isinstance(value, Mapping):
            inner = {f"{key} {name}": one for name, one in value.items()}
            found |= {name: one for name, one in inner.items() if isinstance(one, int | float)}
    return found


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
