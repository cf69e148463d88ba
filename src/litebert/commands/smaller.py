"""How the results of dropping layers, and of measuring them, are printed."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from litebert.parameters import Param

if TYPE_CHECKING:
    from litebert.analyse.measure import ModelFigures
    from litebert.shrinking.choose import DropReport
    from litebert.shrinking.search import TaskReport

AsJson = Annotated[bool, Param("Print JSON.", option="json")]


def show_shrunk(found: "DropReport | TaskReport", *, as_json: AsJson = False) -> None:
    """What was dropped and what it cost."""
    from litebert.shrinking.choose import DropReport, report_lines

    if isinstance(found, DropReport):
        if as_json:
            typer.echo(json.dumps(asdict(found), indent=2))
            return
        for line in report_lines(found):
            typer.echo(line)
        if found.output is not None:
            readers = "and transformers load" if found.loads_in_transformers else "loads (convert --to hf for others)"
            typer.echo(f"wrote {found.output}, which litebert {readers}")
        return
    from litebert.report import print_report, to_json
    from litebert.shrinking.report import found_report

    report = found_report(found)
    if as_json:
        typer.echo(to_json(report))
        return
    print_report(report)
    if found.dropped:
        typer.echo(f"the fine-tuned model is in {Path(found.output) / 'model'}")
    typer.echo(f"wrote {Path(found.output) / 'found.html'}, a page with every candidate")


def show_layers(
    found: "list[ModelFigures]",
    *,
    as_json: AsJson = False,
    html: Annotated[str | None, Param("Write a page with plots to this file.", metavar="FILE")] = None,
    png: Annotated[str | None, Param("Write the plots to this file.", metavar="FILE")] = None,
) -> None:
    """A table per model, and plots where a file is named."""
    from litebert.analyse.measure import short_names
    from litebert.analyse.report import layers_report
    from litebert.report import print_report, to_html, to_json, write_png
    from litebert.runs import write_atomically

    report = layers_report(found, short_names([one.model for one in found]))
    if html is not None:
        write_atomically(Path(html), to_html(report))
    if png is not None:
        write_png(report, Path(png))
    if as_json:
        typer.echo(to_json(report))
        return
    print_report(report)
    for path in (html, png):
        if path is not None:
            typer.echo(f"wrote {path}")
