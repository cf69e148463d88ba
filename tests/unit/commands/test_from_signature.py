"""Commands made from signatures: options, words, old names, and how results are printed."""

import logging
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from litebert.commands.from_signature import add_command
from litebert.errors import InputError, as_option
from litebert.parameters import Fields, Param, checked


@checked
def train(
    model: Annotated[str, Param("The model.", positional=True)],
    data: Annotated[str | None, Param("The data.")] = None,
    *,
    out: Annotated[str, Param("Where to.", short="o")] = "run",
    epochs: Annotated[float | None, Param("Passes.", low=0)] = None,
    seeds: Annotated[int, Param("Runs.", low=1)] = 1,
    heat: Annotated[Literal["low", "high"], Param("The heat.")] = "low",
    compile: Annotated[bool | None, Param("Compile.")] = None,
    quick: Annotated[bool, Param("Be quick.")] = False,
    start: Annotated[str | None, Param("A start.", option="from")] = None,
    names: Annotated[Sequence[str] | None, Param("Names.")] = None,
    settings: Annotated[Fields | None, Param("Fields.")] = None,
) -> dict[str, Any]:
    """Train something."""
    return dict(locals())


def show(result: dict[str, Any], *, as_json: Annotated[bool, Param("JSON.", option="json")] = False) -> None:
    """Print it."""
    typer.echo(repr({**result, "as_json": as_json}))


@pytest.fixture
def run():
    app = typer.Typer()
    add_command(app, train, show, renamed={"--output": "--out"})
    app.command()(lambda: None)  # a second one, so that commands are named

    def call(*words: str) -> dict[str, Any]:
        found = CliRunner().invoke(app, ["train", *words], catch_exceptions=False)
        assert found.exit_code == 0, found.output
        return eval(found.stdout)

    return call


def test_options_have_the_types_of_the_signature(run):
    found = run(
        "m", "--epochs", "3", "--seeds", "2", "--quick", "--from", "x", "--names", "a", "--names", "b", "--json"
    )
    assert (found["epochs"], found["seeds"], found["quick"], found["start"]) == (3, 2, True, "x")
    assert found["names"] == ["a", "b"] and found["as_json"] and found["compile"] is None and found["out"] == "run"
    assert run("m", "--no-compile", "-o", "there")["compile"] is False


def test_words_set_parameters_fields_and_the_data(run):
    found = run("m", "table.csv", "epochs=4", "weight_decay=0.1")
    assert (found["data"], found["epochs"], found["settings"]) == ("table.csv", 4, ["weight_decay=0.1"])


def test_unknown_options_are_fields_of_the_recipe(run):
    assert run("m", "--weight-decay", "0.1", "--betas=[0.9,0.98]")["settings"] == [
        "weight_decay=0.1",
        "betas=[0.9,0.98]",
    ]


def test_an_old_name_still_works_and_says_so(run, caplog):
    with caplog.at_level(logging.WARNING):
        assert run("m", "--output", "there")["out"] == "there"
    assert "--output is now --out" in caplog.text


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["m", "--seeds", "two"], "--seeds is 'two' but must be a whole number, 1 or more"),
        (["m", "--seeds", "0"], "--seeds is 0 but"),
        (["m", "--heat", "mild"], "--heat is 'mild' but must be one of low, high"),
        (["m", "--fast"], "--fast"),
        (["m", "a.csv", "b.csv"], "b.csv"),
    ],
)
def test_mistakes_name_the_option_and_the_value(run, words, named):
    with pytest.raises(InputError) as error:
        run(*words)
    assert named in as_option(error.value)
