"""Reports: one description, four forms; whatever users wrote stays text in all of them."""

import json
from functools import partial
from xml.etree import ElementTree

import pytest
from rich.console import Console

from litebert.report import (
    Note,
    Plot,
    Report,
    Section,
    Table,
    note,
    print_report,
    to_html,
    to_json,
    to_markdown,
    write_png,
)

BAD = "<script>alert('x')</script>"
MATRIX = Table(rows=[["", "a", "b"], ["a", "9", "1"], ["b", "·", "5"]], shades=[[0.9, -0.1], [0, 1.0]])


def draw(label: str, axes) -> None:
    axes.plot([1, 2], [3, 4], label=label)
    axes.plot([1, 2], [4, 3], label="costs $5 or $10")
    axes.set_xlabel(label)


def report(word: str) -> Report:
    """A report with a word of a user's wherever there is text."""
    table = Table(rows=[[word, "items"], [word, "3"]], title=word)
    spans = Note(((word, "good"), (f" and {word}", "")), "example")
    plot = Plot(title=word, reading=word, draw=partial(draw, word))
    items = [note(word), note(word, "warning"), note(word, "code"), spans, table, plot]
    return Report(title=word, sections=[Section(title=word, items=items), Section(items=[MATRIX])])


def test_html_escapes_all_that_users_wrote_and_needs_nothing_else():
    page = to_html(report(BAD))
    assert "<script" not in page and page.count("&lt;script&gt;") >= 12
    assert page.count("<svg") == 1 and "src=" not in page and "<link" not in page
    svg = page[page.index("<svg") : page.index("</svg>") + 6]
    ElementTree.fromstring(svg)  # whole, whatever the labels are


def test_markdown_escapes_all_that_users_wrote():
    text = to_markdown(report(f"{BAD} *a* | b"))
    outside = text.split("```")[::2]
    assert all("<script" not in part.replace("\\<script", "") for part in outside)
    assert "\\*a\\* \\| b" in text and "| a | 9 | 1 |" in text and "|---|---:|---:|" in text


def test_a_terminal_shows_text_as_it_is(capsys):
    print_report(report("[bold]<b>[/bold]"))
    out = capsys.readouterr().out
    assert out.count("[bold]<b>[/bold]") == 10 and "note: [bold]" in out


@pytest.mark.parametrize("wide", [False, True])
def test_tables_fit_a_terminal_and_are_whole_in_a_pipe(monkeypatch, capsys, wide):
    rows = [["name", *(f"a long column {number}" for number in range(12))], ["x", *("1" for _ in range(12))]]
    monkeypatch.delenv("COLUMNS", raising=False) if wide else monkeypatch.setenv("COLUMNS", "80")
    print_report(Report(title="t", sections=[Section(items=[Table(rows=rows)])]))
    lines = capsys.readouterr().out.splitlines()
    assert (max(map(len, lines)) <= 80) != wide and (len(lines) == 3) == wide


def test_a_brief_section_is_cut_on_a_terminal_only():
    items = [note(f"{number}\n{'long ' * 200}") for number in range(9)]
    found = Report(title="t", sections=[Section(title="many", items=items, brief=2)])
    console = Console(width=400, highlight=False)
    with console.capture() as capture:
        print_report(found, console)
    lines = capture.get().strip().splitlines()
    assert lines[:3] == ["t", "", "many"] and len(lines) == 5 and all(len(line) <= 240 for line in lines)
    assert to_html(found).count("<p>") == 9


def test_json_is_the_data_or_else_notes_and_tables():
    found = json.loads(to_json(report("word")))
    assert found["title"] == "word" and found["sections"][1]["tables"][0][1] == ["a", "9", "1"]
    assert json.loads(to_json(Report(title="t", sections=[], data={"é": [1]}))) == {"é": [1]}


def test_shares_colour_cells_and_all_plots_are_one_picture(tmp_path):
    page = to_html(report("word"))
    assert page.count("rgba(37, 99, 168") == 2 and page.count("rgba(217, 90, 43") == 1
    write_png(report("costs $5 or $10"), tmp_path / "plots.png")
    assert (tmp_path / "plots.png").read_bytes().startswith(b"\x89PNG")
