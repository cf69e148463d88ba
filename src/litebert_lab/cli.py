"""``litebert-lab``: studies, benchmarks, comparisons and long cards. Light at import, as litebert's command line is."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from litebert.commands.from_signature import SignatureCommand
from litebert.errors import InputError
from litebert_lab.bench.verb import app as bench_app
from litebert_lab.card.verb import card
from litebert_lab.compare.verb import compare
from litebert_lab.study.verb import study
from litebert_lab.suite import suite

app = typer.Typer(
    name="litebert-lab",
    help="Studies, benchmarks and comparisons that show what litebert does.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench_app, name="bench")
app.command(cls=SignatureCommand)(study)
app.command(cls=SignatureCommand)(compare)
app.command()(card)
app.command()(suite)


@app.command()
def leaks(
    folder: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of a token store.")],
    length: Annotated[int, typer.Option(help="Maximum tokens of an input.")] = 512,
    budget: Annotated[int, typer.Option(help="Maximum tokens of a batch.")] = 8192,
    order: Annotated[str, typer.Option(help="sop or nsp.")] = "sop",
    edges: Annotated[str, typer.Option(help="As for litebert corpus look: masking or pairs.")] = "masking",
    split: Annotated[str, typer.Option(help="train or held_out.")] = "train",
    seed: Annotated[int, typer.Option(help="Seed of the batches.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The first epoch to check.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page with plots to this file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check whether a bag of words can tell the order of sentence pairs: a shortcut that a model would learn."""
    from litebert.corpus.batches import Batches, BatchSettings
    from litebert.corpus.look import look
    from litebert.corpus.store import Store
    from litebert.report import to_html, to_json
    from litebert.runs import write_atomically
    from litebert_lab.leak import check_leak, store_report

    if order not in ("sop", "nsp"):
        raise InputError(f"order is '{order}' but must be sop or nsp: without pairs there is nothing to check")
    settings = BatchSettings(
        length=length,
        budget=budget,
        order=order,  # type: ignore[arg-type]  # checked above and there
        edges=edges,  # type: ignore[arg-type]
        seed=seed,
    )
    store = Store.open(folder)
    found = check_leak(Batches(store, split, settings), epoch=epoch)
    if html is not None or as_json:
        report = store_report(look(store, settings, split=split, epoch=epoch), found)
        if html is not None:
            write_atomically(html, to_html(report))
        if as_json:
            typer.echo(to_json(report))
            return
    typer.echo(str(found))


def main() -> None:
    """Run a command; a user's mistake becomes one sentence on standard error and exit code 2."""
    from litebert.terminal import log_to_terminal

    for package in ("litebert", "litebert_lab"):
        log_to_terminal(package=package)
    try:
        app()
    except InputError as error:
        sentence = str(error)
    except BrokenPipeError:
        sys.exit(141)
    except ModuleNotFoundError as error:
        if error.name not in ("scipy", "sklearn", "transformers", "accelerate", "PIL"):
            raise
        sentence = f"this needs {error.name}; install it with: pip install 'litebert[lab]'"
    except OSError as error:
        sentence = f"{error.filename or 'the system'}: {error.strerror or error}"
    print(f"litebert-lab: {sentence}", file=sys.stderr)
    sys.exit(2)
