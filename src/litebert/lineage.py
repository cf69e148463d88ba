"""``litebert runs``: the runs below a folder as a tree, each under what it came from. Light: it reads notes only."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.runs import MODEL_FOLDER, Parent, RunInfo, standing
from litebert.terminal import text_width

HEADINGS = ("run", "verb", "model", "made (UTC)", "status", "steps", "held-out loss")
RIGHT = 5  # columns from here on hold numbers
SHORT = 14  # characters of a model's name in a narrow window


def described(run: RunInfo, parents: Mapping[Path, list[RunInfo]]) -> dict[str, Any]:
    """A run as JSON has it; ``came_from`` are the folders of those parents that are in the list themselves."""
    return {
        **asdict(run),
        "folder": str(run.folder),
        "model": run.model,
        "status": standing(run),
        "came_from": [str(parent.folder) for parent in parents[run.folder]],
    }


def parents_among(runs: Sequence[RunInfo]) -> dict[Path, list[RunInfo]]:
    """For each run, by its folder, those of its parents that are runs of the list."""
    by_folder = {run.folder.resolve(): run for run in runs}
    by_fingerprint: dict[str, RunInfo] = {}
    for run in runs:
        by_fingerprint.setdefault(run.fingerprint, run)

    def find(parent: Parent) -> RunInfo | None:
        folder = Path(parent.folder).resolve()
        named = by_folder.get(folder.parent if folder.name == MODEL_FOLDER else folder)
        # The fingerprint moves with a run; but copies share it, and of those the one that was named is meant.
        if not parent.fingerprint or (named and named.fingerprint == parent.fingerprint):
            return named
        return by_fingerprint.get(parent.fingerprint)

    found = {run.folder: [find(parent) for parent in run.parents] for run in runs}
    return {run.folder: [parent for parent in found[run.folder] if parent and parent is not run] for run in runs}


def tree(runs: Sequence[RunInfo]) -> str:
    """Runs as lines of text; what they came from, where it is no run itself, heads its own group."""
    parents = parents_among(runs)
    children: dict[Path, list[RunInfo]] = defaultdict(list)
    groups: dict[str, list[RunInfo]] = defaultdict(list)
    for run in runs:
        if parents[run.folder] and not _in_a_circle(run, parents):
            children[parents[run.folder][0].folder].append(run)
        else:
            groups[_outside(run)].append(run)
    rows: list[tuple[str, ...]] = [HEADINGS]
    for heading, members in groups.items():
        if heading:
            rows.append((heading,))
        for index, run in enumerate(members):
            last = index == len(members) - 1
            _add(rows, run, children, _lines("", last) if heading else ("", ""))
    wide = _aligned(rows)
    return wide if max(map(len, wide.splitlines())) <= text_width() else _aligned([_narrow(row) for row in rows])


def _narrow(row: tuple[str, ...]) -> tuple[str, ...]:
    """The same row for a narrow window: the end of a long name, no year, the first word of a verb."""
    if len(row) < len(HEADINGS):
        return row
    name, verb, model, made, status, step, loss = row
    if row == HEADINGS:
        return (name, verb, model, made, status, step, "held out")
    short = model if len(model) <= SHORT else f"…{model[1 - SHORT :]}"
    return (name, verb.partition(" ")[0], short, made.partition("-")[2], status, step, loss)


def _in_a_circle(run: RunInfo, parents: Mapping[Path, list[RunInfo]]) -> bool:
    """Whether a run descends from itself, as notes edited by hand may say."""
    seen: set[Path] = set()
    current = run
    while parents[current.folder] and current.folder not in seen:
        seen.add(current.folder)
        current = parents[current.folder][0]
    return current is run


def _outside(run: RunInfo) -> str:
    """What a run came from, in words, where that is no run of the list."""
    if not run.parents:
        return ""
    parent = run.parents[0]
    mark = f" {parent.fingerprint[:8]}" if parent.fingerprint else ""
    return f"{parent.folder} ({parent.role}{mark})"


def _lines(before: str, last: bool) -> tuple[str, str]:
    """What is drawn before a run's own name, and before those of its children."""
    return (f"{before}└─ ", f"{before}   ") if last else (f"{before}├─ ", f"{before}│  ")


def _add(
    rows: list[tuple[str, ...]], run: RunInfo, children: Mapping[Path, list[RunInfo]], lines: tuple[str, str]
) -> None:
    """Append a run and all that came from it."""
    step, loss = run.result.get("step"), run.result.get("held_out_loss")
    rows.append(
        (
            f"{lines[0]}{run.folder}",
            run.verb,
            run.model,
            run.made[:16].replace("T", " "),
            standing(run),
            f"{step:,}" if isinstance(step, int) else "",
            f"{loss:.3f}" if isinstance(loss, int | float) else "",
        )
    )
    members = children.get(run.folder, [])
    for index, child in enumerate(members):
        _add(rows, child, children, _lines(lines[1], index == len(members) - 1))


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[place]) for row in rows if len(row) > 1) for place in range(len(HEADINGS))]
    lines = []
    for row in rows:
        cells = zip(row, widths, range(len(row)), strict=False)
        line = "  ".join(cell.rjust(width) if place >= RIGHT else cell.ljust(width) for cell, width, place in cells)
        lines.append(line.rstrip())
    return "\n".join(lines)
