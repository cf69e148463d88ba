"""Models and a text in, figures out: what ``litebert layers`` does, for Python, too. Models are read one by one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from litebert.analyse.inputs import batches, counted, text_lines, tokenizer_for
from litebert.analyse.measure import ModelFigures, measure
from litebert.checkpoints.folder import Loaded, load_model, model_folder
from litebert.errors import InputError
from litebert.nn.encoder import Encoder
from litebert.nn.network import HeadsConfig, Network
from litebert.train.precision import usable_device

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """Which models to look at, and with what text."""

    models: tuple[str, ...]
    text: tuple[str, ...]
    against: str | None = None
    untrained: bool = False
    most_texts: int | None = None
    max_length: int = 512
    tokenizer: Path | None = None
    device: str = "cpu"


def analyse(asked: Asked, say: Say = lambda _: None, note: Say = lambda _: None) -> list[ModelFigures]:
    """The figures of every model asked for, in that order."""
    usable_device(asked.device)
    if "-" in asked.text and len(asked.models) + asked.untrained > 1:
        raise InputError("standard input can be read for one model only; put the text into a file")
    other = None if asked.against is None else _load(asked.against, asked)
    found = []
    for index, model in enumerate(asked.models):
        loaded = _load(model, asked)
        if not model_folder(model).is_dir():
            note(f"{model} is a preset: its weights are new")
        found.append(_figures(model, loaded, asked, say, other))
        if asked.untrained and index == 0:
            loaded.network = _untrained(loaded.network).to(asked.device)
            found.append(_figures(f"{model} untrained", loaded, asked, say, None))
    return found


def _load(model: str, asked: Asked) -> Loaded:
    return load_model(model, heads=HeadsConfig(), device=asked.device)


def _untrained(network: Network) -> Network:
    torch.manual_seed(0)
    return Network(network.config).eval()


def _figures(name: str, loaded: Loaded, asked: Asked, say: Say, other: Loaded | None) -> ModelFigures:
    encoder: Encoder = loaded.network.encoder
    tokenizer = tokenizer_for(name, loaded.tokenizer, asked.tokenizer, encoder.config.family)
    theirs = None if other is None or asked.tokenizer is not None else other.tokenizer
    if theirs is not None and theirs.fingerprint != tokenizer.fingerprint:
        raise InputError(
            f"--against {asked.against} has another tokenizer than {name}, so their tokens cannot be compared; if one "
            "will do for both, name it with --tokenizer"
        )
    lines = text_lines(asked.text, asked.most_texts)
    inputs = batches(lines, tokenizer, encoder.config, max_length=asked.max_length, device=asked.device)
    return measure(
        name,
        encoder,
        counted(inputs, lambda done: say(f"{name}: {done:,} texts")),
        other=None if other is None else other.network.encoder,
        other_name=asked.against or "",
    )


def short_names(models: Sequence[str]) -> list[str]:
    """Names for a plot: the last part of each path, or as many parts as it takes to tell them apart."""
    parts = [tuple(Path(model).parts) for model in models]
    for length in range(1, max(map(len, parts)) + 1):
        names = ["/".join(one[-length:]) for one in parts]
        if len(set(names)) == len(set(models)) and not any(name == "model" for name in names):
            return names
    return list(models)
