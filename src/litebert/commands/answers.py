"""How evaluations, early exits, looks into a corpus and plans are printed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.parameters import Param

if TYPE_CHECKING:
    from litebert.api import HeldOutScores
    from litebert.corpus.look import Look
    from litebert.corpus.store import Store
    from litebert.early_exits.heads import ExitReport
    from litebert.planning.plan import Plan
    from litebert.report import Report
    from litebert.tasks.score import Evaluation

AsJson = Annotated[bool, Param("Print everything as JSON.", option="json")]
Html = Annotated[str | None, Param("Write a page with everything to this file.", metavar="FILE")]


def show_report(report: "Report", as_json: bool, html: str | None = None) -> None:
    """A report on the terminal or as JSON, and as a page where a file is named."""
    from litebert.report import print_report, to_html, to_json
    from litebert.runs import write_atomically

    if html is not None:
        write_atomically(Path(html), to_html(report))
        typer.echo(f"wrote {html}", err=True)
    if as_json:
        typer.echo(to_json(report))
    else:
        print_report(report)


def show_evaluation(found: "Evaluation | HeldOutScores", *, as_json: AsJson = False, html: Html = None) -> None:
    """Scores of a task, or of held-out text by depth."""
    from litebert.api import HeldOutScores
    from litebert.tasks.report import evaluation_report

    if isinstance(found, HeldOutScores):
        _show_held_out(found, as_json)
    else:
        show_report(evaluation_report(found), as_json, html)


def _show_held_out(found: "HeldOutScores", as_json: bool) -> None:
    from litebert.pretraining.held_out import HELD_OUT_RATE

    if as_json:
        rows = [{"depth": one.depth, **one.figures} for one in found.depths]
        facts = {name: getattr(found, name) for name in ("model", "corpus", "tokens", "length", "order")}
        typer.echo(json.dumps({"held_out": rows, **facts}, indent=1))
        return
    how = f"inputs of up to {found.length}, {HELD_OUT_RATE:.0%} masked, order: {found.order}"
    typer.echo(f"{found.tokens:,} tokens of held-out text of {found.corpus}, {how}")
    for one in found.depths:
        parts = [
            f"{name.replace('mlm', 'masked words').replace('_', ' ')} "
            + (f"{value:.1%}" if name.endswith("accuracy") else f"{value:.3f}")
            for name, value in one.figures.items()
        ]
        typer.echo(f"depth {one.depth:>2}: {' · '.join(parts)}")


def show_exits(found: "ExitReport", *, as_json: AsJson = False) -> None:
    """Scores at every depth and with rules that exit early."""
    from litebert.early_exits.report import exit_report

    show_report(exit_report(found), as_json)


def show_look(found: "Look", *, as_json: AsJson = False, html: Html = None) -> None:
    """What is in a store and its batches."""
    from litebert.corpus.look_report import look_report

    show_report(look_report(found), as_json, html)


def show_verified(store: "Store") -> None:
    """That every checksum is right."""
    from litebert.corpus.store import SPLITS

    shards = sum(len(store.split(name).shards) for name in SPLITS)
    typer.echo(f"{store.folder} is intact: {shards} shard{'s' if shards != 1 else ''} match the checksums")


def show_plans(plans: "Plan | list[Plan]", *, as_json: AsJson = False) -> None:
    """Plans side by side."""
    from litebert.planning.table import as_plain, print_plans

    listed = plans if isinstance(plans, list) else [plans]
    if as_json:
        typer.echo(json.dumps([as_plain(one) for one in listed], indent=2))
        return
    from rich.console import Console

    print_plans(listed, Console())
