"""How models, their configurations and runs are printed."""

import json
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.parameters import Param

if TYPE_CHECKING:
    from litebert.api import Converted
    from litebert.exporting.folder import Exported
    from litebert.report import Report
    from litebert.runs import RunInfo

AsJson = Annotated[bool, Param("Print JSON.", option="json")]


def show_models(found: dict[str, str]) -> None:
    """A line for each model, then the recipes of pretraining."""
    from litebert.config import preset_names, read_preset
    from litebert.terminal import text_width

    recipes = {name: f"recipe: {read_preset('recipes', name)['about']}" for name in preset_names("recipes")}
    for name, about in (found | recipes).items():
        line = f"{name:20} {about}"
        if sys.stdout.isatty():
            line = textwrap.fill(line, text_width(), subsequent_indent=21 * " ")
        typer.echo(line)


def show_config(fields: dict[str, Any]) -> None:
    """A configuration as YAML."""
    import yaml

    plain = json.loads(json.dumps(fields))  # YAML has no tuples
    typer.echo(yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=120), nl=False)


def show_converted(found: "Converted") -> None:
    """Who can load the folder that was written."""
    readers = "and transformers load" if found.loads_in_transformers else "loads (--to hf for others)"
    typer.echo(f"wrote {found.folder}, which litebert {readers}")


def show_exported(found: "Exported") -> None:
    """The files that were written, and how to use them."""
    for name, size in found.files.items():
        typer.echo(f"{found.folder / name}  {size / 1e6:.1f} MB")
    typer.echo(f'litebert.load("{found.folder}") runs it without torch')


def show_runs(runs: "list[RunInfo]", *, as_json: AsJson = False) -> None:
    """The runs as a tree, or as JSON with settings and all figures."""
    from litebert.runs import described, parents_among, tree

    if as_json:
        parents = parents_among(runs)
        typer.echo(json.dumps([described(run, parents) for run in runs], indent=2, ensure_ascii=False))
    else:
        typer.echo(tree(runs) if runs else "no runs here")


def show_card(
    report: "Report", *, out: Annotated[str | None, Param("Write to this file.", short="o", metavar="FILE")] = None
) -> None:
    """The card as Markdown, to a file or to the screen."""
    from litebert.report import to_markdown
    from litebert.runs import write_atomically

    text = to_markdown(report)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_atomically(Path(out), text)
        typer.echo(f"wrote {out}")
