"""``litebert corpus look``: figures that agree with the text, examples that can be read, JSON and a page."""

import json
import random
import shutil
from html.parser import HTMLParser

import pytest
from rich.console import Console
from typer.testing import CliRunner

from litebert.cli import app
from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.look import look, look_report
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.report import print_report, to_html
from litebert.text.train import TrainSettings, train_tokenizer

WORDS = ("the", "old", "ship", "sailed", "past", "a", "quiet", "harbour", "while", "seven", "gulls", "watched", "from")


def sentence(random):
    return " ".join(random.choices(WORDS, k=random.randint(4, 14))) + "."


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory):
    """A store built the way a user would: text, a tokenizer trained on it, a build."""
    folder = tmp_path_factory.mktemp("look")
    source = random.Random(0)
    documents = [" ".join(sentence(source) for _ in range(40)) for _ in range(120)]
    documents += [sentence(source) for _ in range(10)]
    text = folder / "text.txt"
    text.write_text("\n\n".join(documents), encoding="utf-8")
    train_tokenizer(documents, TrainSettings(vocab_size=50)).save(folder / "tokenizer")
    build_store([str(text)], folder / "tokenizer", folder / "store", BuildSettings(held_out=0.1), workers=1)
    return folder / "store"


@pytest.fixture(scope="module")
def found(store_folder):
    return look(Store.open(store_folder), BatchSettings(length=64, budget=1024))


def test_figures_agree_with_the_text(found, store_folder):
    train = found.splits["train"]
    split = Store.open(store_folder).split("train")
    assert train.documents == split.num_documents
    assert train.one_sentence_documents == split.num_one_sentence > 0
    assert sum(train.sentence_histogram) == train.sentences
    assert sum(size * count for size, count in enumerate(train.sentence_histogram)) == train.tokens
    assert sum(train.document_histogram) == train.documents
    assert train.tokens_per_word == pytest.approx(train.tokens / train.words)
    assert train.sentence_percentiles[1] <= train.sentence_percentiles[50] <= train.sentence_percentiles[99]
    assert train.unknown == 0


def test_batches_are_measured(found):
    figures = found.batches
    assert figures.masked == pytest.approx(0.15, abs=0.003)
    assert figures.fill > 0.99
    assert sum(figures.ngrams_expected) == pytest.approx(1)
    assert figures.shown_as_mask + figures.shown_as_random + figures.shown_as_is == pytest.approx(1)
    assert sum(figures.lengths) == figures.in_order + figures.swapped + figures.unlabelled
    assert any("of one sentence are used for masking only" in note for note in found.notes)


def test_examples_read_as_text(found, store_folder):
    batches = Batches(Store.open(store_folder), "train", BatchSettings(length=64, budget=1024))
    labels = set(batches.batch(0, 0).order_labels.tolist())
    assert len({example.label for example in found.examples}) == min(3, len(labels))
    shown = set()
    for example in found.examples:
        assert len(example.segments) == (1 if example.label == "no pair" else 2)
        for segment in example.segments:
            shown |= {part.shown for part in segment}
            text = "".join(part.text for part in segment).strip()
            assert text.endswith(".")
            assert {word.strip(".") for word in text.split()} <= set(WORDS)
    assert "mask" in shown


def test_terminal_shows_it(found):
    console = Console(width=120, record=True, file=None, quiet=True)
    console.quiet = False
    with console.capture() as capture:
        print_report(look_report(found), console)
    text = capture.get()
    for word in ("tokens per word", "fill", "words of a span", "[MASK: ", "[SEP]"):
        assert word in text


def test_it_fits_a_terminal_of_80_columns(found, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    print_report(look_report(found))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.split()[:4] == ["50%", "have", "at", "most"] for line in lines)


def test_only_the_label_of_an_example_is_bold(found):
    example = look_report(found).sections[-1].items[0]
    bold = [text for text, style in example.spans if style == "strong"]
    assert bold[0] == f"({found.examples[0].label}) " and all(part.strip() == "[SEP]" for part in bold[1:])


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.links = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in ("src", "href") and not value.startswith("#")]


def test_page_is_whole_and_needs_nothing_else(found):
    parser = Tags()
    page = to_html(look_report(found))
    parser.feed(page)
    assert [link for link in parser.links if "://" in link or link.endswith((".js", ".css", ".png"))] == []
    assert "[MASK: " in page


def test_a_store_too_small_for_a_batch_is_still_shown(store_folder):
    found = look(Store.open(store_folder), BatchSettings(length=512, budget=1 << 20))
    assert found.batches is None
    assert any("too small for one batch" in note for note in found.notes)
    assert "tokens per word" in to_html(look_report(found))


def test_verb(store_folder, tmp_path):
    page = tmp_path / "look.html"
    arguments = ["corpus", "look", str(store_folder), "--length", "64", "--budget", "1024", "--order", "nsp"]
    result = CliRunner().invoke(app, [*arguments, "--html", str(page), "--json"])
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["settings"]["order"] == "nsp"
    assert told["splits"]["train"]["tokens"] > 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    result = CliRunner().invoke(app, arguments)
    assert "random" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--split", "foo"], "split is 'foo' but must be one of train, held_out"),
        (["--html", "nowhere/look.html"], "nowhere"),
    ],
)
def test_mistakes_are_errors_and_not_notes(store_folder, arguments, message):
    result = CliRunner().invoke(app, ["corpus", "look", str(store_folder), *arguments])
    assert isinstance(result.exception, InputError)
    assert message in str(result.exception)


def test_verify_finds_a_damaged_shard(store_folder, tmp_path):
    copy = tmp_path / "store"
    shutil.copytree(store_folder, copy)
    result = CliRunner().invoke(app, ["corpus", "verify", str(copy)])
    assert result.exit_code == 0 and "is intact" in result.stdout
    tokens = copy / "train-00000" / "tokens.bin"
    data = tokens.read_bytes()
    tokens.write_bytes(data[:1000] + bytes([data[1000] ^ 1]) + data[1001:])
    result = CliRunner().invoke(app, ["corpus", "verify", str(copy)])
    assert "train-00000 is damaged" in str(result.exception)
    tokens.write_bytes(data[:1000])
    result = CliRunner().invoke(app, ["corpus", "look", str(copy), "--budget", "1024", "--length", "64"])
    assert "train-00000 is damaged" in str(result.exception), "a short file is noticed by anyone"
