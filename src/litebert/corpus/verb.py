"""The verbs of ``litebert corpus``. Light at import: what a verb needs, it imports when it runs."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.errors import InputError

app = typer.Typer(no_args_is_help=True, help="Turn raw text into a token store and look into one.")


@app.command("look")
def look_verb(
    folder: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the store.")],
    length: Annotated[int, typer.Option(help="The most tokens of an input.")] = 512,
    budget: Annotated[int, typer.Option(help="The most tokens of a batch.")] = 8192,
    order: Annotated[str, typer.Option(help="sop, nsp or none.")] = "sop",
    masking: Annotated[str, typer.Option(help="ngram, whole-word or plain.")] = "ngram",
    rate: Annotated[float, typer.Option(help="Share of the text to predict.")] = 0.15,
    edges: Annotated[
        str, typer.Option(help="Under sop, the edges of documents are for masking only, or for pairs, too.")
    ] = "masking",
    split: Annotated[str, typer.Option(help="train or held_out.")] = "train",
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 0,
    epoch: Annotated[int, typer.Option(min=0, help="The epoch to look at.")] = 0,
    examples: Annotated[int, typer.Option(min=0, help="How many inputs to show.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    html: Annotated[Path | None, typer.Option(help="Write a page to this file.")] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Look at a store whose build is not finished.")] = False,
) -> None:
    """Look into a store and its batches: counts, masks, labels, examples (leaks: litebert-lab leaks STORE)."""
    from litebert.corpus.batches import BatchSettings
    from litebert.corpus.look import look
    from litebert.corpus.look_report import look_report
    from litebert.corpus.store import Store
    from litebert.report import print_report, to_html, to_json
    from litebert.runs import write_atomically
    from litebert.terminal import progress

    if html is not None and not html.absolute().parent.is_dir():
        raise InputError(f"there is no folder {html.parent} to write {html.name} to; make it first")
    settings = BatchSettings(
        length=length,
        budget=budget,
        order=order,  # type: ignore[arg-type]  # checked there, as the next two
        masking=masking,  # type: ignore[arg-type]
        edges=edges,  # type: ignore[arg-type]
        rate=rate,
        seed=seed,
    )
    store = Store.open(folder, partial=partial)
    with progress() as say:
        found = look(store, settings, split=split, epoch=epoch, num_examples=examples, say=say)
    report = look_report(found)
    if html is not None:
        write_atomically(html, to_html(report))
    if json:
        print(to_json(report))
        return
    print_report(report)
    if html is not None:
        print(f"\nwrote {html}")


@app.command("verify")
def verify_verb(
    folder: Annotated[Path, typer.Argument(metavar="STORE", help="Folder of the store.")],
    partial: Annotated[bool, typer.Option("--partial", help="Also a store whose build is not finished.")] = False,
) -> None:
    """Read every byte of a store and compare it with the checksums; a damaged shard is named."""
    from litebert.corpus.store import SPLITS, Store

    store = Store.open(folder, partial=partial)
    store.verify()
    shards = sum(len(store.split(name).shards) for name in SPLITS)
    print(f"{folder} is whole: {shards} {'shards have' if shards != 1 else 'shard has'} the checksums that it lists")
