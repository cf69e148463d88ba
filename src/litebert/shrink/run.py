"""A model in, a smaller one out: what ``litebert shrink`` does, for Python, too."""

import dataclasses
import os
from functools import cache
from pathlib import Path

from litebert.checkpoints.folder import Loaded, check_no_model, load_model, model_config, model_folder, save_model
from litebert.errors import InputError
from litebert.runs import parent_of
from litebert.shrink.choose import Asked, Say, choose
from litebert.shrink.drop import drop_layers
from litebert.shrink.report import Report, make_report
from litebert.tasks.predicting import TASK_FILE
from litebert.train.precision import usable_device


def shrink_model(
    model: str, asked: Asked, output: Path | None, say: Say = lambda _: None, *, overwrite: bool = True
) -> Report:
    """Choose layers, drop them and write the model that is left; without ``output`` only say what would go."""
    folder = model_folder(model)
    if output is not None and output.is_dir() and folder.is_dir() and output.samefile(folder):
        raise InputError(f"-o {output} is the model itself; name another folder, so that the whole one stays")
    if output is not None:
        check_no_model(output, overwrite)
    usable_device(asked.device)

    @cache
    def load() -> Loaded:
        return load_model(model, device=asked.device)

    config = load().network.config if output is not None else model_config(model)
    choice = choose(asked, config.encoder, load, say)
    report = make_report(model, config, choice)
    if output is None:
        return report
    loaded = load()
    source = [parent_of("source", Path(os.path.normpath(folder)))] if folder.is_dir() else []
    settings = {
        "source": model,
        **{key: value for key, value in dataclasses.asdict(asked).items() if value not in (None, ())},
        "strategy": report.strategy,
        "dropped": choice.dropped,
        "kept": choice.kept,
    }
    small = drop_layers(loaded.network, choice.kept)
    task = folder / TASK_FILE  # of a fine-tuned model: it answers the same questions with fewer layers
    files = {TASK_FILE: task.read_text(encoding="utf-8")} if task.is_file() else {}
    save_model(output, small, loaded.tokenizer, verb="shrink", settings=settings, parents=source, files=files)
    return dataclasses.replace(report, notes=[*loaded.notes, *report.notes])
