"""The command line: each command is a public function and a way to print its result.

Options come from the functions' signatures (``commands/from_signature.py``). Nothing heavy is imported until a command
runs.
"""

import errno
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from litebert import api
from litebert.commands import show
from litebert.commands.from_signature import add_command
from litebert.commands.serve import serve
from litebert.commands.texts import fill, order, predict, show_written
from litebert.commands.tokenizer import show_fertility, try_tokenizer
from litebert.errors import InputError, as_option
from litebert.system import look_for_garbage_less_often
from litebert.terminal import log_to_terminal, visible

TEXT, TASKS, SMALLER, MODELS = (
    "From text to a model",
    "From a model to answers",
    "Smaller models",
    "Models and their files",
)
OUTPUT = {"--output": "--out"}  # options that were renamed keep their old names for one release
HELD_OUT = {"--hold-out": "--held-out"}


class InOrder(TyperGroup):
    """Commands in the order in which they are needed; by default, groups would come last."""

    def list_commands(self, ctx: Any) -> list[str]:
        """The names, those of the first panel first."""
        first = ("ls", "plan", "tokenizer", "corpus", "pretrain")
        return [*first, *(name for name in super().list_commands(ctx) if name not in first)]


def _nothing(result: None) -> None:
    """For commands that print as they go."""


app = typer.Typer(
    name="litebert",
    cls=InOrder,
    help="Train, fine-tune, shrink and ship BERT-class text encoders with little compute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tokenizer = typer.Typer(help="Train, try and compare tokenizers.", no_args_is_help=True)
add_command(tokenizer, api.train_tokenizer, show.show_tokenizer, name="train", renamed=OUTPUT | HELD_OUT)
add_command(tokenizer, try_tokenizer, _nothing, name="try")
add_command(tokenizer, api.fertility, show_fertility, renamed=HELD_OUT)
corpus = typer.Typer(help="Build, inspect and verify token stores.", no_args_is_help=True)
add_command(corpus, api.build_corpus, show.show_store, name="build", renamed=OUTPUT)
add_command(
    corpus,
    api.look_corpus,
    show.show_look,
    name="look",
    renamed={"--budget": "--batch-tokens", "--rate": "--mask-rate"},
)
add_command(corpus, api.verify_corpus, show.show_verified, name="verify")

add_command(app, api.models, show.show_models, name="ls", panel=TEXT)
add_command(app, api.plan, show.show_plans, panel=TEXT)
app.add_typer(tokenizer, name="tokenizer", rich_help_panel=TEXT)
app.add_typer(corpus, name="corpus", rich_help_panel=TEXT)
add_command(app, api.pretrain, show.show_pretrain, panel=TEXT)
add_command(app, api.lengthen, show.show_lengthened, panel=TEXT)
add_command(app, api.list_runs, show.show_runs, name="runs", panel=TEXT)
add_command(app, api.finetune, show.show_finetune, panel=TASKS, renamed={"--settings": "--recipe"})
add_command(app, api.evaluate, show.show_evaluation, panel=TASKS)
add_command(app, predict, _nothing, panel=TASKS)
add_command(app, api.encode, show_written, panel=TASKS)
add_command(app, serve, _nothing, panel=TASKS, ends=False)
add_command(app, fill, _nothing, panel=TASKS)
add_command(app, order, _nothing, panel=TASKS)
add_command(
    app,
    api.shrink,
    show.show_shrunk,
    panel=SMALLER,
    renamed=OUTPUT | {"--columns": "--text"},
    moved={"--compare": "litebert-lab compare MODEL --drop 2,4,6 makes the tables"},
)
add_command(app, api.distill, show.show_distill, panel=SMALLER, renamed=OUTPUT)
add_command(app, api.exits, show.show_exits, panel=SMALLER, renamed=OUTPUT)
add_command(app, api.layers, show.show_layers, panel=SMALLER, renamed={"--text": "--texts"})
add_command(app, api.config, show.show_config, name="show", panel=MODELS)
add_command(app, api.convert, show.show_converted, panel=MODELS)
add_command(app, api.export, show.show_exported, panel=SMALLER)
add_command(app, api.page, show.show_page, panel=SMALLER)
add_command(app, api.card, show.show_card, panel=MODELS)


def _moved(name: str) -> None:
    """A command that is now one of ``litebert-lab``: an error with the new command, whatever its arguments are."""

    def moved(words: Annotated[list[str] | None, typer.Argument()] = None) -> None:
        raise InputError(f"{name} is now a command of litebert-lab: litebert-lab {' '.join([name, *(words or ())])}")

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, hidden=True, context_settings=anything)(moved)


for _name in ("bench", "study"):
    _moved(_name)


def _print_version(asked: bool) -> None:
    if asked:
        from litebert.version import __version__

        typer.echo(f"litebert {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of litebert itself."""


def main() -> None:
    """Run a command; a mistake of the user's becomes one sentence on standard error and exit code 2."""
    run(app)


def run(commands: Callable[[], None], program: str = "litebert") -> None:
    """Run a command line with the messages and exit codes of litebert."""
    log_to_terminal()
    look_for_garbage_less_often()
    try:
        commands()
    except InputError as error:
        fail(as_option(error), program)
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        fail(_in_words(error), program)
    except MemoryError:
        fail("there is not enough memory for this; choose a smaller model, batch or length", program)
    except Exception as error:
        if os.environ.get("LITEBERT_DEBUG"):
            raise
        _report_defect(error, program)


ADVICE = {
    errno.ENOSPC: "free some space, or name a folder on another disk",
    errno.EDQUOT: "free some space, or name a folder on another disk",
    errno.EFBIG: "free some space, or name a folder on another disk",
    errno.EACCES: "choose a place that you may use",
    errno.EPERM: "choose a place that you may use",
    errno.EROFS: "choose a place that can be written to",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOENT: "check the name",
    errno.ENOTDIR: "check the name",
    errno.ELOOP: "it is a link to itself; name another",
    errno.EEXIST: "choose another name",
    errno.EBUSY: "it is in use; choose another name",
}


def _in_words(error: OSError) -> str:
    """An error of the system as a sentence with the file and what to do."""
    place = "the system" if error.filename is None else f"'{os.fsdecode(error.filename)}'"
    advice = ADVICE.get(error.errno or 0, "")
    return f"{place}: {error.strerror or error}{f'; {advice}' if advice else ''}"


def _report_defect(error: Exception, program: str) -> NoReturn:
    """An error that is ours: one sentence, the traceback in a file, exit code 70."""
    import tempfile
    import traceback

    with tempfile.NamedTemporaryFile(
        "w", prefix="litebert-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
    ) as file:
        file.write(f"{program} {' '.join(sys.argv[1:])}\n\n{''.join(traceback.format_exception(error))}")
    command = " ".join(word for word in sys.argv[1:3] if not word.startswith("-")) or program
    reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    print(
        f"{program}: unexpected error in {command}: {reason}; please report it with {file.name}",
        file=sys.stderr,
    )
    sys.exit(70)


def fail(sentence: str, program: str = "litebert") -> NoReturn:
    """Print what is wrong and exit with code 2."""
    print(f"{program}: {visible(sentence)}", file=sys.stderr)
    sys.exit(2)
