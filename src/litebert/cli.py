"""The command line. It imports nothing heavy: each verb imports what it needs when it runs.

A room with several verbs keeps them in its own ``verb.py`` (light at import, too) and is mounted here.
"""

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from litebert import api
from litebert.commands.from_signature import add_command, as_option
from litebert.commands.models import show_card, show_config, show_converted, show_models, show_runs
from litebert.commands.smaller import show_layers, show_shrunk
from litebert.commands.training import show_distill, show_finetune, show_pretrain, show_store, show_tokenizer
from litebert.corpus.verb import app as corpus_app
from litebert.errors import InputError
from litebert.exits.verb import exits
from litebert.fill_verb import fill, order
from litebert.plan.verb import plan
from litebert.tasks.evaluate_verb import evaluate
from litebert.tasks.predict_verb import predict
from litebert.text.verb import app as tokenizer_app

TEXT, TASKS, SMALLER, MODELS = (
    "From text to a model",
    "From a model to answers",
    "Smaller models",
    "Models and their files",
)


class InOrder(TyperGroup):
    """Verbs in the order in which a person comes to need them; left alone, groups of verbs would come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, those of the first panel first."""
        first = ("ls", "plan", "tokenizer", "corpus", "pretrain", "runs")
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
add_command(app, api.models, show_models, name="ls", panel=TEXT)
add_command(app, api.config, show_config, name="show", panel=MODELS)
add_command(app, api.convert, show_converted, panel=MODELS)
add_command(app, api.card, show_card, panel=MODELS)
OUTPUT = {"--output": "--out"}
add_command(corpus_app, api.build_corpus, show_store, name="build", renamed=OUTPUT)
add_command(
    tokenizer_app,
    api.train_tokenizer,
    show_tokenizer,
    name="train",
    renamed={"--output": "--out", "--hold-out": "--held-out"},
)
app.add_typer(tokenizer_app, name="tokenizer", rich_help_panel=TEXT)
app.add_typer(corpus_app, name="corpus", rich_help_panel=TEXT)
add_command(app, api.pretrain, show_pretrain, panel=TEXT)
add_command(app, api.list_runs, show_runs, name="runs", panel=TEXT)
add_command(app, api.finetune, show_finetune, panel=TASKS, renamed={"--settings": "--recipe"})
app.command(rich_help_panel=TASKS)(evaluate)
app.command(rich_help_panel=TASKS)(predict)
app.command(rich_help_panel=TASKS)(fill)
app.command(rich_help_panel=TASKS)(order)
add_command(app, api.shrink, show_shrunk, panel=SMALLER, renamed={"--output": "--out", "--columns": "--text"})
add_command(app, api.distill, show_distill, panel=SMALLER, renamed=OUTPUT)
app.command(rich_help_panel=SMALLER)(exits)
add_command(app, api.layers, show_layers, panel=SMALLER, renamed={"--text": "--texts"})


def _moved(name: str) -> None:
    """A command that is now one of ``litebert-lab``: it says so, whatever its words are."""

    def moved(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise InputError(f"{name} is a command of litebert-lab now: litebert-lab {' '.join([name, *(words or ())])}")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=anything)(moved)


for _name in ("bench", "study"):
    _moved(_name)


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


def main() -> None:
    """Run a verb; a mistake of the user's becomes one sentence on standard error and exit code 2."""
    from litebert.terminal import log_to_terminal

    log_to_terminal()
    try:
        app()
    except InputError as error:
        fail(as_option(error))
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'the system'}: {error.strerror or error}")


def fail(sentence: str) -> None:
    """Say what is wrong and leave with exit code 2."""
    print(f"litebert: {sentence}", file=sys.stderr)
    sys.exit(2)
