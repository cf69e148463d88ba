"""How the results of the public functions are printed. Light at import: what a command needs, it imports itself."""

import json
import os
import sys
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from litebert.parameters import PICTURE, Param

if TYPE_CHECKING:
    from litebert.analyse.measure import ModelFigures
    from litebert.api import Converted, HeldOutScores, Run
    from litebert.corpus.look import Look
    from litebert.corpus.store import Store
    from litebert.early_exits.heads import ExitReport
    from litebert.exporting.folder import Exported
    from litebert.pages.single import Page
    from litebert.planning.plan import Plan
    from litebert.report import Report
    from litebert.runs import RunInfo
    from litebert.shrinking.choose import DropReport
    from litebert.shrinking.search import TaskReport
    from litebert.tasks.score import Evaluation
    from litebert.text.tokenizer import Tokenizer

AsJson = Annotated[bool, Param("Print JSON.", option="json")]
Html = Annotated[str | None, Param("Write a page with everything to this file.", metavar="FILE")]

STOPPED = os.EX_TEMPFAIL  # exit code of a run that is to be continued, where torchrun does that
RESUME = "run the same command with --resume to continue"


def show_json(value: Any) -> None:
    """Plain values, indented."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def show_report(report: "Report", as_json: bool = False, html: str | None = None, png: str | None = None) -> None:
    """A report on the terminal or as JSON, and as a page or a picture where a file is named."""
    from litebert.report import print_report, to_html, to_json, write_png
    from litebert.runs import write_atomically

    if html is not None:
        write_atomically(Path(html), to_html(report))
    if png is not None:
        write_png(report, Path(png))
    if as_json:
        typer.echo(to_json(report))
    else:
        print_report(report)
    for path in filter(None, (html, png)):
        typer.echo(f"wrote {path}", err=as_json)


def _show_end(run: "Run", lines: Iterable[str] = (), rest: str = "", what: str = "model") -> None:
    """How a run ended, what more there is to know, how to resume it, and where its model is."""
    typer.echo(f"{run.status} after {run.steps:,} steps{rest}")
    for line in lines:
        typer.echo(line)
    if run.status == "stopped":
        typer.echo(RESUME)
    if (run.folder / "model").is_dir():  # a dry run leaves nothing
        typer.echo(f"the {what} is in {run.folder / 'model'}")


def show_finetune(run: "Run") -> None:
    """How a fine-tuning run ended."""
    from litebert.tasks.finetune import SeedsResult

    if isinstance(run.details, SeedsResult):
        typer.echo(run.details.describe())
        typer.echo(f"the best model is in {run.folder / 'model'}")
        return
    attempts = (
        f"an attempt with seed {attempt['seed']} and learning rate {attempt['rate']:g} {attempt['verdict']}"
        for attempt in run.details.attempts
    )
    figures = ", ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in run.scores.items())
    _show_end(run, attempts, f"; dev at step {run.details.best_step:,}: {figures}" if figures else "")


def show_pretrain(run: "Run") -> None:
    """How a pretraining run ended, and the held-out scores at every depth that was scored."""
    from litebert.train.console import in_words
    from litebert.train.parallel import end_rank, restartable_job

    stopped = STOPPED if run.status == "stopped" and restartable_job() else 0  # torchrun takes 0 for the end of the job
    if os.environ.get("RANK", "0") != "0":
        end_rank(stopped)  # under torchrun the first rank prints for all
    by_depth: dict[str, dict[str, float]] = {}  # depth_3_mlm_loss is the mlm_loss of depth 3
    for name, value in run.scores.items():
        depth, part = name.split("_", 2)[1:] if name.startswith("depth_") else ("", name)
        by_depth.setdefault(depth, {})[part] = value
    whole = in_words(by_depth.pop("", {})) or "nothing"
    shallower = (f"  at depth {depth}: {in_words(figures)}" for depth, figures in by_depth.items())
    _show_end(run, [f"held out: {whole}", *shallower])
    end_rank(stopped)


def show_lengthened(run: "Run") -> None:
    """Where a lengthened model is, and how it was trained."""
    if run.details is not None:
        show_pretrain(run)
        return
    typer.echo(f"the model is in {run.folder / 'model'}; no long text has trained it yet (name a store as --corpus)")


def show_distill(run: "Run") -> None:
    """How a distillation ended and how close the student is to its teacher."""
    _show_end(run, run.details.sentences() if run.details else (), what="student")


def show_store(store: "Store") -> None:
    """The counts of a finished store."""
    from litebert.corpus.look import store_report

    show_report(store_report(store))


def show_verified(store: "Store") -> None:
    """That every checksum is right."""
    shards = len(store.manifest.shards)
    typer.echo(f"{store.folder} is intact: {shards} shard{'s' if shards != 1 else ''} match the checksums")


def show_look(found: "Look", *, as_json: AsJson = False, html: Html = None) -> None:
    """What is in a store and its batches."""
    from litebert.corpus.look import look_report

    show_report(look_report(found), as_json, html)


def show_tokenizer(tokenizer: "Tokenizer") -> None:
    """What a new vocabulary is."""
    typer.echo(f"{tokenizer.vocab_size:,} pieces, fingerprint {tokenizer.fingerprint[:12]}")


def show_evaluation(found: "Evaluation | HeldOutScores", *, as_json: AsJson = False, html: Html = None) -> None:
    """Scores of a task, or of held-out text by depth."""
    from litebert.api import HeldOutScores
    from litebert.pretraining.held_out import HELD_OUT_RATE
    from litebert.tasks.report import evaluation_report

    if not isinstance(found, HeldOutScores):
        show_report(evaluation_report(found), as_json, html)
        return
    if as_json:
        facts = {name: getattr(found, name) for name in ("model", "corpus", "tokens", "length", "order")}
        show_json({"held_out": [{"depth": one.depth, **one.figures} for one in found.depths], **facts})
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


def show_shrunk(found: "DropReport | TaskReport", *, as_json: AsJson = False) -> None:
    """What was dropped and what it cost."""
    from litebert.shrinking.choose import DropReport, report_lines
    from litebert.shrinking.report import found_report

    if isinstance(found, DropReport):
        if as_json:
            show_json(asdict(found))
            return
        for line in report_lines(found):
            typer.echo(line)
        if found.output is not None:
            readers = "and transformers load" if found.loads_in_transformers else "loads (convert --to hf for others)"
            typer.echo(f"wrote {found.output}, which litebert {readers}")
        return
    show_report(found_report(found), as_json)
    if as_json:
        return
    if found.dropped:
        typer.echo(f"the fine-tuned model is in {Path(found.output) / 'model'}")
    typer.echo(f"wrote {Path(found.output) / 'found.html'}, a page with every candidate")


def show_layers(
    found: "list[ModelFigures]",
    *,
    as_json: AsJson = False,
    html: Annotated[str | None, Param("Write a page with plots to this file.", metavar="FILE")] = None,
    png: Annotated[
        str | None, Param("Write the plots to this file (.png, .svg or .pdf).", metavar="FILE", form=PICTURE)
    ] = None,
) -> None:
    """A table per model, and plots where a file is named."""
    from litebert.analyse.measure import short_names
    from litebert.analyse.report import layers_report

    show_report(layers_report(found, short_names([one.model for one in found])), as_json, html, png)


def show_plans(plans: "Plan | list[Plan]", *, as_json: AsJson = False) -> None:
    """Plans side by side."""
    from rich.console import Console

    from litebert.planning.table import as_plain, print_plans

    listed = plans if isinstance(plans, list) else [plans]
    if as_json:
        show_json([as_plain(one) for one in listed])
    else:
        print_plans(listed, Console())


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


def show_page(found: "Page") -> None:
    """The page that was written, and how to use it."""
    typer.echo(f"wrote {found.file}, {found.size / 1e6:.1f} MB: open it in a browser, or mail it")


def show_runs(runs: "list[RunInfo]", *, as_json: AsJson = False) -> None:
    """The runs as a tree, or as JSON with settings and all figures."""
    from litebert.runs import described, parents_among, tree

    if as_json:
        parents = parents_among(runs)
        show_json([described(run, parents) for run in runs])
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
