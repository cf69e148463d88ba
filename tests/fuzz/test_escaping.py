"""What a person's data, names and paths hold is text in every page and card, never markup."""

import html
import re
import shutil
from pathlib import Path

import pytest

from litebert.report import Plot, Report, Section, Table, note, to_html, to_markdown

BAD = "<script>alert(1)</script>"


def test_a_report_escapes_everything_it_is_given():
    rows = [[BAD, BAD], [BAD, BAD]]
    report = Report(title=BAD, sections=[Section(title=BAD, items=[note(BAD), Table(rows=rows)])], data={BAD: BAD})
    page = to_html(report)
    assert BAD not in page and html.escape(BAD, quote=False) in page
    assert BAD not in to_markdown(report)


def test_a_plot_escapes_everything_it_is_given():
    def draw(axes):
        axes.plot([0, 1], label=BAD)
        axes.set(title=BAD, xlabel=BAD)
        axes.set_xticks([0, 1], [BAD, BAD])
        axes.legend()

    page = to_html(Report(title="a", sections=[Section(items=[Plot(title=BAD, draw=draw, reading=BAD)])]))
    assert "<svg" in page and "<script>alert" not in page


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
    assert code == 0, said
    with_exits = f"exits{out}"
    code, _, said = litebert("exits", out, "--data", world / "bad.csv", "--items", "20", "-o", with_exits)
    assert code == 0, said
    shutil.copytree(world / "store", f"store{out}")
    code, _, said = litebert("corpus", "look", f"store{out}", "--length", "32", "--html", "look.html")
    assert code == 0, said
    found = [tmp_path / name for name in ("page.html", "layers.html", f"{with_exits}/exits.html", "look.html")]
    for text in (*map(Path.read_text, found), re.sub("```.*?```", "", card, flags=re.DOTALL)):  # Markdown shows code
        assert not re.search(r"(?<!\\)<script>(alert|0|1)\(", text)  # in Markdown a backslash escapes it


@pytest.mark.slow
def test_the_page_of_a_search(world, tmp_path, monkeypatch, litebert):
    monkeypatch.chdir(tmp_path)
    out = f"a{BAD.replace('/', '')}"
    words = ["--tolerance", "50%", "--seeds", "1", "--strategy", "top", "steps=1", "scores=1", "batch=4"]
    code, _, said = litebert("shrink", world / "model", "--data", world / "bad.csv", "-o", out, *words)
    assert code == 0, said
    assert "<script>alert" not in (tmp_path / out / "found.html").read_text()


@pytest.mark.slow
def test_pages_of_the_lab(world, tmp_path, monkeypatch, litebert_lab):
    monkeypatch.chdir(tmp_path)
    out = f"a{BAD.replace('/', '')}"
    shutil.copytree(world / "store", f"store{out}")
    code, _, said = litebert_lab("leaks", f"store{out}", "--length", "32", "--budget", "256", "--html", "leaks.html")
    assert code == 0, said
    assert "<script>alert" not in (tmp_path / "leaks.html").read_text()
