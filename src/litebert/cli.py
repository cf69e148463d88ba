"""The command line. It imports nothing heavy: each verb imports what it needs when it runs.

A room with several verbs keeps them in its own ``verb.py`` (light at import, too) and is mounted here.
"""

import sys

import typer

from litebert.errors import InputError

app = typer.Typer(
    name="litebert",
    help="Train, fine-tune, shrink and ship BERT-class text encoders with little compute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run a verb; a mistake of the user's becomes one sentence on standard error and exit code 2."""
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
