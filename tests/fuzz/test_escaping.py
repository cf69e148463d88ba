"""What a person's data, names and paths hold is text in every page and card, never markup."""

import html
import re

import pytest

from litebert.report import Report, Section, Table, note, to_html, to_markdown

BAD = "<script>alert(1)</script>"


def test_a_report_escapes_everything_it_is_given():
    rows = [[BAD, BAD], [BAD, BAD]]
    report = Report(title=BAD, sections=[Section(title=BAD, items=[note(BAD), Table(rows=rows)])], data={BAD: BAD})
    page = to_html(report)
    assert BAD not in page and html.escape(BAD, quote=False) in page
    assert BAD not in to_markdown(report)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A fine-tuned model with <script> in its labels, its texts, its path and its name."""
    from fuzz_calls import make_world

    folder = make_world(tmp_path_factory.mktemp("pages") / "world")
    rows = [f"{BAD} the cat number {number},{BAD.replace('alert', str(number % 2))}" for number in range(24)]
    (folder / "bad.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder


def test_pages_and_cards_of_commands(world, tmp_path, monkeypatch, litebert):
    monkeypatch.chdir(tmp_path)
    out = f"a{BAD.replace('/', '')}"  # a path holds no slash
    code, _, said = litebert("finetune", world / "model", "--data", world / "bad.csv", "-o", out, "steps=1", "scores=1")
    assert code == 0, said
    code, _, said = litebert("evaluate", out, "--data", world / "bad.csv", "--html", "page.html")
    assert code == 0, said
    code, card, said = litebert("card", out, "--name", BAD)
    assert code == 0, said
    code, _, said = litebert("layers", out, "--texts", world / "bad.csv", "--html", "layers.html")
    pages = [path.read_text() for path in (tmp_path / "page.html", *tmp_path.glob("layers.html"))]
    for text in (*pages, re.sub("```.*?```", "", card, flags=re.DOTALL)):  # Markdown shows code as it is
        assert not re.search(r"(?<!\\)<script>(alert|0|1)\(", text)  # in Markdown a backslash escapes it
