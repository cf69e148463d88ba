"""Mixing litebert-en's sources and packing its store: equal halves, one order, and parts that are stores."""

import subprocess
import tarfile

import pytest

from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.text.train import TrainSettings, train_tokenizer
from litebert_lab.litebert_en import mix, pack


def document(word: str, number: int, size: int) -> str:
    """A document that can be told from all others."""
    return "\n".join(f"The {word} number {number} has a line number {line}." for line in range(size)) + "\n\n"


@pytest.fixture(scope="module")
def clean(tmp_path_factory):
    """A folder as clean.py leaves it: more books than Wikipedia."""
    folder = tmp_path_factory.mktemp("clean")
    for name, count in (("wiki-long", 30), ("wiki-short", 60), ("books", 20), ("gutenberg", 400)):
        size = 2 if name == "wiki-short" else 6
        text = "".join(document(name, number, size) for number in range(count))
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def mixed(clean, tmp_path_factory):
    """The text, and the documents in its order."""
    by_source = {path.stem: mix.spans(path) for path in clean.glob("*.txt")}
    order = mix.halves(by_source, 0)
    path = tmp_path_factory.mktemp("mixed") / "en.txt"
    return path, order, mix.write(clean, order, path, None)


def test_half_is_wikipedia_and_half_is_books(mixed):
    path, order, figures = mixed
    wikipedia = figures["wiki-long"]["bytes"] + figures["wiki-short"]["bytes"]
    books = figures["books"]["bytes"] + figures["gutenberg"]["bytes"]
    assert abs(wikipedia - books) <= 300
    assert path.stat().st_size == wikipedia + books
    assert [figures[name]["documents"] for name in ("wiki-long", "wiki-short", "books")] == [30, 60, 20]
    first = order[: len(order) // 2]
    assert len({span.source for span in first}) == 4  # no source waits for the end


def test_every_document_is_whole_and_there_once(mixed, clean):
    path, order, _ = mixed
    found = path.read_text(encoding="utf-8").split("\n\n")[:-1]
    there = {text for source in clean.glob("*.txt") for text in source.read_text(encoding="utf-8").split("\n\n")}
    assert len(found) == len(set(found)) == len(order)
    assert set(found) <= there


def test_the_seed_decides_the_order(clean):
    by_source = {path.stem: mix.spans(path) for path in clean.glob("*.txt")}
    assert mix.halves(by_source, 1) == mix.halves(by_source, 1)
    assert mix.halves(by_source, 1) != mix.halves(by_source, 2)


def test_shares_take_so_much_of_each_source(clean, tmp_path):
    names = ["books", "wiki-short"]
    by_source = {name: mix.spans(clean / f"{name}.txt") for name in names}
    order = mix.shares(by_source, {"books": 1000, "wiki-short": 10**9}, 0)
    figures = mix.write(clean, order, tmp_path / "en.txt", None)
    largest = max(span.size for span in by_source["books"])
    assert 1000 <= figures["books"]["bytes"] < 1000 + largest
    assert figures["wiki-short"]["documents"] == 60
    assert [span.source for span in order] != sorted(span.source for span in order)


def test_paragraphs_with_a_sentence_of_a_test_set_are_left_out(clean, tmp_path):
    (tmp_path / "glue").mkdir()
    cell = "So it goes. THE books number 3 - has a line number 4!"
    (tmp_path / "glue" / "dev.tsv").write_text(f"id\ttext\n1\t{cell}\n", encoding="utf-8")
    without = mix.sentences_of_tests([tmp_path / "glue"], clean / "books.txt")
    order = mix.spans(clean / "books.txt")
    figures = mix.write(clean, order, tmp_path / "en.txt", without)
    left = (tmp_path / "en.txt").read_text(encoding="utf-8")
    assert figures["books"]["paragraphs_of_tests"] == 1
    assert "number 3 has a line number 4." not in left
    assert "number 3 has a line number 3." in left and "number 4 has a line number 4." in left


@pytest.fixture(scope="module")
def store(mixed, tmp_path_factory):
    """A store of several shards."""
    folder = tmp_path_factory.mktemp("store")
    text = mixed[0].read_text(encoding="utf-8")
    train_tokenizer([text], TrainSettings(vocab_size=120, kind="wordpiece", sample_bytes=100_000)).save(
        folder / "tokenizer"
    )
    settings = BuildSettings(held_out=0.1, shard_tokens=2000)
    build_store([str(mixed[0])], folder / "tokenizer", folder / "store", settings, workers=1)
    return folder / "store"


def test_the_first_parts_are_a_store_and_all_are_the_store(store, tmp_path):
    whole = Store.open(store)
    shards = len(whole.split("train").shards)
    assert shards > 3
    parts = pack.pack(store, tmp_path / "parts", [1])  # so small that each has one shard
    assert len(parts) == shards
    fingerprints = set()
    for count, part in enumerate(parts, 1):
        subprocess.run(["tar", "-xJf", str(part), "-C", str(tmp_path)], check=True)
        opened = Store.open(tmp_path)
        opened.verify()
        assert len(opened.split("train").shards) == count
        assert opened.split("held_out").num_tokens == whole.split("held_out").num_tokens
        fingerprints.add(opened.fingerprint)
    assert len(fingerprints) == shards
    assert opened.manifest == whole.manifest


def test_parts_are_filled_up_to_their_size(store, tmp_path):
    [part] = pack.pack(store, tmp_path / "parts", [1 << 20])
    with tarfile.open(part) as file:
        names = file.getnames()
    assert names[-1] == "store.json"
    assert len({name.split("/")[0] for name in names if name.startswith("train-")}) == len(
        Store.open(store).split("train").shards
    )


def test_parts_may_be_stores_by_themselves(store, tmp_path):
    whole = Store.open(store)
    parts = pack.pack(store, tmp_path / "parts", [1, 1 << 20], apart=True)
    assert len(parts) == 2
    shards, fingerprints = [], set()
    for part in parts:
        folder = tmp_path / part.name.partition(".")[0]
        folder.mkdir()
        subprocess.run(["tar", "-xJf", str(part), "-C", str(folder)], check=True)
        opened = Store.open(folder)
        opened.verify()
        shards += [shard.name for shard in opened.split("train").shards]
        assert opened.split("held_out").num_tokens == whole.split("held_out").num_tokens
        fingerprints.add(opened.fingerprint)
    assert shards == [shard.name for shard in whole.split("train").shards]
    assert len({*fingerprints, whole.fingerprint}) == 3


def test_a_part_that_is_missing_is_noticed(store, tmp_path):
    parts = pack.pack(store, tmp_path / "parts", [1])
    for part in (parts[0], parts[2]):
        subprocess.run(["tar", "-xJf", str(part), "-C", str(tmp_path)], check=True)
    with pytest.raises(InputError, match="train-00001"):
        Store.open(tmp_path).verify()
