"""A card from a run: its files are read, its model is asked a few things, the Markdown and the loss curve written."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.checkpoints.folder import model_folder
from litebert.checkpoints.tensors import has_tensors
from litebert.errors import InputError
from litebert.model import load
from litebert.runs import write_atomically
from litebert.train.plot import PICTURE
from litebert_lab.card.bias import open_ends, pronouns
from litebert_lab.card.facts import read_facts
from litebert_lab.card.page import Given, Seen, card
from litebert_lab.card.results import read_results
from litebert_lab.card.tables import published_rows


@dataclass(frozen=True, kw_only=True)
class CardSettings:
    """What the user asked for."""

    run: Path
    output: Path
    earlier: Sequence[Path] = ()  # the runs whose model it started from, the first one first
    results: Sequence[Path] = ()
    corpus: Path | None = None
    model: str | None = None  # where the weights are, if not in the run
    name: str = ""
    hardware: str = ""
    watts: float | None = None
    data_text: Path | None = None
    limits: Path | None = None
    commands: Sequence[str] = ()


def make_card(settings: CardSettings) -> list[str]:
    """Write the card; which of its parts are missing."""
    if not settings.output.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{settings.output.absolute().parent}' to write {settings.output.name} to")
    facts = read_facts(settings.run, settings.corpus, settings.earlier)
    results = read_results(settings.results, facts.encoder.num_layers)
    texts = [_text_of(path) for path in (settings.data_text, settings.limits)]
    given = Given(
        name=settings.name or settings.run.resolve().name,
        hardware=settings.hardware,
        watts=settings.watts,
        data_text=texts[0],
        limits=texts[1],
        pictures=_pictures((*settings.earlier, settings.run), settings.output),
        commands=tuple(settings.commands),
    )
    written = card(facts, results, published_rows(), _seen(settings), given)
    write_atomically(settings.output, written)
    return [line.strip("*") for line in written.splitlines() if line.startswith("*Missing:")]


def _pictures(runs: Sequence[Path], output: Path) -> tuple[str, ...]:
    """Copy the pictures of the runs beside the card; their names there, the last run's being the usual one."""
    names = []
    for place, run in enumerate(runs, start=1 - len(runs)):
        source = run / PICTURE
        target = output.with_name(PICTURE if place == 0 else f"loss-part-{place + len(runs)}.png")
        if not source.is_file():
            continue
        if not (target.exists() and target.samefile(source)):
            shutil.copyfile(source, target)
        names.append(target.name)
    return tuple(names)


def _seen(settings: CardSettings) -> Seen:
    """What the model says of fixed texts, where its weights are there and it can fill gaps."""
    folder = model_folder(settings.model or settings.run)
    if not folder.is_dir() or not has_tensors(folder):
        if settings.model is not None:
            raise InputError(f"{settings.model} is no model with weights; name the folder of the trained model")
        return Seen()
    model = load(folder)
    if "masked_lm" not in model.network.heads or model.tokenizer is None:
        return Seen()
    return Seen(pronouns=pronouns(model), open_ends=open_ends(model))


def _text_of(path: Path | None) -> str:
    if path is None:
        return ""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; name one with the text for the card")
    return path.read_text(encoding="utf-8")
