"""The command line. It imports nothing heavy: each verb imports what it needs when it runs.

A room with several verbs keeps them in its own ``verb.py`` (light at import, too) and is mounted here.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from litebert.analyse.verb import layers
from litebert.bench.verb import app as bench_app
from litebert.card.verb import card
from litebert.corpus.verb import app as corpus_app
from litebert.errors import InputError
from litebert.exits.verb import exits
from litebert.fill_verb import fill, order
from litebert.lineage import runs_verb
from litebert.plan.verb import plan
from litebert.pretrain.verb import pretrain
from litebert.shrink.distill_verb import distill
from litebert.shrink.verb import shrink
from litebert.study.verb import study
from litebert.tasks.evaluate_verb import evaluate
from litebert.tasks.finetune_verb import finetune
from litebert.tasks.predict_verb import predict
from litebert.text.verb import app as tokenizer_app

TEXT, TASKS, SMALLER, MODELS, FIGURES = (
    "From text to a model",
    "From a model to answers",
    "Smaller models",
    "Models and their files",
    "Measured beside others",
)


class InOrder(TyperGroup):
    """Verbs in the order in which a person comes to need them; left alone, groups of verbs would come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, those of the first panel first."""
        first = ("ls", "plan", "tokenizer", "corpus", "pretrain")
        return [*first, *(name for name in super().list_commands(ctx) if name not in first)]


class WithFields(TyperCommand):
    """A verb that takes ``field=value`` words: who writes ``--epochs 3`` is told to write ``epochs=3``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of the command line, taken apart."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # typer has an error class of its own for this, in a place that moves
            option = getattr(error, "option_name", None)
            if option is None or type(error).__name__ != "NoSuchOption":
                raise
            near = " or ".join(getattr(error, "possibilities", None) or ())
            field = option.lstrip("-").replace("-", "_")
            raise InputError(
                f"there is no option {option}{f' (but {near})' if near else ''}; a field is written as a word: "
                f"{field}=VALUE"
            ) from None


app = typer.Typer(
    name="litebert",
    cls=InOrder,
    help="Train, fine-tune, shrink and ship BERT-class text encoders with little compute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command(rich_help_panel=TEXT)(plan)
app.add_typer(tokenizer_app, name="tokenizer", rich_help_panel=TEXT)
app.add_typer(corpus_app, name="corpus", rich_help_panel=TEXT)
app.command(cls=WithFields, rich_help_panel=TEXT)(pretrain)
app.command("runs", rich_help_panel=TEXT)(runs_verb)
app.command(cls=WithFields, rich_help_panel=TASKS)(finetune)
app.command(rich_help_panel=TASKS)(evaluate)
app.command(rich_help_panel=TASKS)(predict)
app.command(rich_help_panel=TASKS)(fill)
app.command(rich_help_panel=TASKS)(order)
app.command(cls=WithFields, rich_help_panel=SMALLER)(shrink)
app.command(cls=WithFields, rich_help_panel=SMALLER)(distill)
app.command(rich_help_panel=SMALLER)(exits)
app.command(rich_help_panel=SMALLER)(layers)
app.add_typer(bench_app, name="bench", rich_help_panel=FIGURES)
app.command(cls=WithFields, rich_help_panel=FIGURES)(study)
app.command(rich_help_panel=MODELS)(card)


def _say_version(asked: bool) -> None:
    if asked:
        from litebert.version import __version__

        typer.echo(f"litebert {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of litebert itself."""


@app.command(rich_help_panel=TEXT)
def ls() -> None:
    """List the models that are shipped, the presets of models, then the recipes of pretraining."""
    from litebert.config import preset_names, read_preset
    from litebert.shipped import shipped_about, shipped_names

    for name in shipped_names():
        _echo_entry(name, f"trained, comes with litebert: {shipped_about(name)}")
    for kind in ("models", "recipes"):
        for name in preset_names(kind):
            _echo_entry(name, f"{'recipe: ' if kind == 'recipes' else ''}{read_preset(kind, name)['about']}")


def _echo_entry(name: str, about: str) -> None:
    """A line for a program; for a person as many as the window needs."""
    line = f"{name:20} {about}"
    if sys.stdout.isatty():
        import textwrap

        from litebert.terminal import text_width

        line = textwrap.fill(line, text_width(), subsequent_indent=21 * " ")
    typer.echo(line)


@app.command(rich_help_panel=MODELS)
def show(
    model: Annotated[str, typer.Argument(help="A preset, a recipe, a litebert folder or a Hugging Face folder.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="FIELD=VALUE...")] = None,
) -> None:
    """Print the configuration of a model, or a recipe, with nothing left out, as YAML."""
    import dataclasses
    import os
    from pathlib import Path

    from litebert.config import preset_names
    from litebert.errors import nearest
    from litebert.shipped import shipped_folder, shipped_names

    models, recipes = preset_names("models"), preset_names("recipes")
    if Path(model).is_dir() or shipped_folder(model):
        from litebert.checkpoints.folder import model_config

        encoder = model_config(model, overrides or ()).encoder
    elif model in recipes:
        from litebert.pretrain.recipe import read_recipe

        _echo_yaml(dataclasses.asdict(read_recipe(model, overrides or ())))
        return
    elif model not in models and os.sep not in model:
        known = nearest(model, [*models, *recipes, *shipped_names()])
        raise InputError(f"'{model}' is neither a folder nor a preset nor a recipe{known}")
    else:
        from litebert.nn.families import preset_config

        encoder = preset_config(model, overrides or ())
    fields = dataclasses.asdict(encoder) | {"plan": " ".join(f"{a}-{f}" for a, f in encoder.plan)}
    fields["custom_plan"] = [list(pair) for pair in encoder.custom_plan]
    _echo_yaml(fields)


def _echo_yaml(fields: dict[str, Any]) -> None:
    import json

    import yaml

    plain = json.loads(json.dumps(fields))  # YAML has no tuples
    typer.echo(yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=120), nl=False)


@app.command(rich_help_panel=MODELS)
def convert(
    source: Annotated[str, typer.Argument(help="A preset, a litebert folder or a Hugging Face folder.")],
    folder: Annotated[str, typer.Argument(metavar="DST", help="The model folder to write.")],
    to: Annotated[
        str,
        typer.Option(help="litebert: shared blocks stored once; hf: written out so that transformers loads any plan."),
    ] = "litebert",
    dtype: Annotated[
        str, typer.Option(help="Numbers of the weights: float32, or bfloat16 for half the bytes.")
    ] = "float32",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a model in the folder.")] = False,
) -> None:
    """Write a model as a folder of safetensors that litebert loads, and transformers wherever it can."""
    if to not in ("litebert", "hf"):
        raise InputError(f"--to is '{to}' but must be litebert or hf")
    if dtype not in ("float32", "bfloat16", "float16"):
        raise InputError(f"--dtype is '{dtype}' but must be float32, bfloat16 or float16")
    from pathlib import Path

    import torch

    from litebert.checkpoints.folder import check_no_model, load_model, save_model
    from litebert.checkpoints.huggingface import is_native
    from litebert.runs import parent_of

    check_no_model(Path(folder), overwrite)
    loaded = load_model(source, dtype=getattr(torch, dtype))
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    settings = {"source": str(source), "to": to, "dtype": dtype}
    parents = [parent_of("source", Path(source))] if Path(source).is_dir() else []
    save_model(
        folder,
        loaded.network,
        loaded.tokenizer,
        verb="convert",
        settings=settings,
        parents=parents,
        written_out=to == "hf",
    )
    readable = to == "hf" or is_native(loaded.network.config.encoder)
    typer.echo(
        f"wrote {folder}, which litebert {'and transformers load' if readable else 'loads (--to hf for others)'}"
    )


def main() -> None:
    """Run a verb; a mistake of the user's becomes one sentence on standard error and exit code 2."""
    from litebert.terminal import log_to_terminal

    log_to_terminal()
    try:
        app()
    except InputError as error:
        fail(str(error))
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'the system'}: {error.strerror or error}")


def fail(sentence: str) -> None:
    """Say what is wrong and leave with exit code 2."""
    print(f"litebert: {sentence}", file=sys.stderr)
    sys.exit(2)
