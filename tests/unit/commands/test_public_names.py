"""Every command does what a public name does: a function of ``litebert`` or ``litebert.api``, or a method of an object
that one of these returns."""

from collections.abc import Iterator

import pytest
import typer

import litebert
from litebert import api
from litebert.cli import app
from litebert.text.tokenizer import Tokenizer

# Commands that read texts as they come have a function of their own; this is what it prints the result of.
METHODS = {
    "predict": litebert.Model.predict,
    "fill": litebert.Model.fill,
    "order": litebert.Model.order,
    "tokenizer try": Tokenizer.encode,
}


def commands(group: typer.core.TyperGroup, before: str = "") -> Iterator[tuple[str, typer.core.TyperCommand]]:
    """All commands that are listed, by their full names."""
    for name, command in group.commands.items():
        if isinstance(command, typer.core.TyperGroup):
            yield from commands(command, f"{before}{name} ")
        elif not command.hidden:
            yield f"{before}{name}", command


FOUND = dict(commands(typer.main.get_command(app)))


@pytest.mark.parametrize("name", FOUND)
def test_a_public_function_is_behind_every_command(name):
    if name in METHODS:
        assert callable(METHODS[name]) and METHODS[name].__doc__
        return
    function = FOUND[name].callback.__litebert_function__
    public = getattr(api, function.__name__)
    assert public in (function, getattr(function, "__wrapped__", None))  # serve makes way for a process of its own
    assert function.__doc__ and not function.__name__.startswith("_")


def test_what_most_people_need_is_in_the_package_itself():
    needed = {
        "load",
        "Model",
        "Prediction",
        "finetune",
        "pretrain",
        "distill",
        "build_corpus",
        "train_tokenizer",
        "plan",
    }
    assert needed | {"InputError"} <= set(litebert.__all__)
    assert {"finetune", "corpus build", "tokenizer train", "predict"} <= set(FOUND)
