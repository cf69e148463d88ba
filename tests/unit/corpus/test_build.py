"""Building a store: what goes in comes out, whatever the number of workers and wherever it was interrupted."""

import dataclasses
import errno
import json
import os
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus import shards
from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.selection import SeenDocuments, split_of
from litebert.corpus.sentences import sentence_splitter, split_document
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.text.tokenizers import read_tokenizer

WORDS = ("the", "cat", "sat", "on", "a", "mat", "and", "dog", "ran", "to", "see", "big", "red", "house", "by", "river")


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wordpiece vocabulary that knows a few words and every letter."""
    folder = tmp_path_factory.mktemp("tokenizer")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    pieces = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        *WORDS,
        ".",
        "!",
        "?",
        *letters,
        *("##" + x for x in letters),
    ]
    (folder / "vocab.txt").write_text("\n".join(dict.fromkeys(pieces)) + "\n")
    return folder


def document(number: int) -> str:
    """Paragraphs of made-up sentences; every number gives another text."""
    draw = random.Random(number)
    lines = []
    for _ in range(draw.randint(1, 4)):
        sentences = [" ".join(draw.choices(WORDS, k=draw.randint(2, 12))) for _ in range(draw.randint(1, 5))]
        lines.append(" ".join(sentence.capitalize() + "." for sentence in sentences))
    return f"Number {number}.\n" + "\n".join(lines)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(map(document, range(300))))
    return path


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a store."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


SMALL = BuildSettings(shard_tokens=2000, held_out=0.1)


def test_text_comes_back(corpus: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    store = build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1)
    tokenizer = read_tokenizer(store.tokenizer_folder)
    expected, segment = {}, sentence_splitter()
    for number in range(300):
        sentences = split_document(document(number), "en", segment)
        expected[tuple(tuple(tokenizer.ids(sentence)) for sentence in sentences)] = number
    order: dict[str, list[int]] = {}
    for name in ("train", "held_out"):
        order[name] = []
        for shard in store.split(name).shards:
            assert shard.num_tokens <= SMALL.shard_tokens
            assert shard.sentences[-1] == shard.num_tokens
            assert shard.documents[-1] == shard.num_sentences
            for first, last in pairwise(shard.documents):
                bounds = shard.sentences[first : last + 1]
                found = tuple(tuple(shard.tokens[a:b].tolist()) for a, b in pairwise(bounds))
                order[name].append(expected.pop(found))
            pieces = [tokenizer.piece(index) for index in shard.tokens]
            assert shard.word_starts.tolist() == [int(not piece.startswith("##")) for piece in pieces]
    assert not expected
    assert order["train"] == sorted(order["train"])
    assert 10 < len(order["held_out"]) < 60
    assert len(store.split("train").shards) > 5
    store.verify()


def test_counts(corpus: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    corpus.write_text(
        "One sentence only.\n\nTwo here. The cat.\n\nOne sentence only.\n\n\u200b\u200b\n\nTwo here. The cat."
    )
    store = build_store([str(corpus)], tokenizer_folder, tmp_path / "store", BuildSettings(held_out=0), workers=1)
    train = store.split("train")
    manifest = store.manifest
    assert (manifest.documents_read, manifest.duplicates, manifest.empty) == (5, 2, 1)
    assert (train.num_documents, train.num_sentences, train.num_one_sentence) == (2, 3, 1)
    assert train.num_characters == len("One sentence only.") + len("Two here. The cat.")
    keep = BuildSettings(held_out=0, deduplicate=False)
    kept = build_store([str(corpus)], tokenizer_folder, tmp_path / "kept", keep, workers=1)
    assert kept.split("train").num_documents == 4


def test_special_tokens_in_a_text_are_not_real(tokenizer_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The [MASK] cat [SEP] sat. [CLS] [PAD] on")
    store = build_store(
        [str(tmp_path / "a.txt")], tokenizer_folder, tmp_path / "s", BuildSettings(held_out=0), workers=1
    )
    tokens = store.split("train").shards[0].tokens
    assert not set(tokens.tolist()) & {0, 2, 3, 4}
    assert (tokens == store.special_ids["unk"]).sum() == 4


def test_workers_change_nothing(corpus: Path, tokenizer_folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("litebert.corpus.selection.BATCH", 1000)
    one, two = tmp_path / "one", tmp_path / "two"
    build_store([str(corpus)], tokenizer_folder, one, SMALL, workers=1)
    monkeypatch.setattr("litebert.corpus.selection.BATCH", 3333)
    build_store([str(corpus)], tokenizer_folder, two, SMALL, workers=3)
    assert contents(one) == contents(two)


def test_split_does_not_depend_on_order(corpus: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
    def held_out(numbers: list[int], folder: str, seed: int = 0) -> set[bytes]:
        corpus.write_text("\n\n".join(map(document, numbers)))
        settings = dataclasses.replace(SMALL, seed=seed)
        store = build_store([str(corpus)], tokenizer_folder, tmp_path / folder, settings, workers=1)
        found = set()
        for shard in store.split("held_out").shards:
            bounds = shard.sentences[shard.documents]
            found |= {shard.tokens[a:b].tobytes() for a, b in pairwise(bounds)}
        return found

    forward = held_out(list(range(200)), "forward")
    assert forward == held_out(list(reversed(range(200))), "backward")
    assert forward > held_out(list(range(100)), "half") > set()
    assert forward != held_out(list(range(200)), "seeded", seed=1)


def test_share_held_out() -> None:
    names = [split_of(os.urandom(16), 0.25, 3) for _ in range(4000)]
    assert 0.2 < names.count("held_out") / 4000 < 0.3
    assert {split_of(os.urandom(16), 0.0, 3) for _ in range(100)} == {"train"}


def test_large_document_has_a_shard_to_itself(tokenizer_folder: Path, tmp_path: Path) -> None:
    texts = ["The cat. " * 10, "The dog ran. " * 100, "A mat. " * 10]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = BuildSettings(shard_tokens=50, held_out=0)
    store = build_store([str(tmp_path / "a.jsonl")], tokenizer_folder, tmp_path / "s", settings, workers=1)
    assert [shard.num_tokens for shard in store.split("train").shards] == [30, 400, 30]


class Killed(BaseException):
    """Stands for the end of the process: no code of ours may catch it and tidy up."""


def interrupt_at(moment: int, monkeypatch, name: str, owner: object) -> Callable[[], int]:
    """From the call number ``moment`` of ``owner.name`` on, nothing reaches the disk any more."""
    original = getattr(owner, name)
    calls = 0

    def replacement(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls >= moment:
            raise Killed
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, replacement)
    return lambda: calls


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (shards.ShardWriter, "add")])
def test_killed_at_every_step(corpus, tokenizer_folder, tmp_path, monkeypatch, owner, name) -> None:
    """A build stopped at each of its steps in turn, and gone on with, ends with the same bytes."""
    corpus.write_text("\n\n".join(map(document, range(40))))
    settings = BuildSettings(shard_tokens=700, held_out=0.1)
    monkeypatch.setattr("litebert.corpus.selection.BATCH", 1000)
    whole = tmp_path / "whole"
    build_store([str(corpus)], tokenizer_folder, whole, settings, workers=1)
    expected = contents(whole)
    for moment in range(1, 1000):
        folder = tmp_path / f"killed{moment}"
        with monkeypatch.context() as patch:
            patch.setattr(shards.ShardWriter, "discard", lambda self: None)  # a killed process tidies nothing
            patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
            interrupt_at(moment, patch, name, owner)
            try:
                build_store([str(corpus)], tokenizer_folder, folder, settings, workers=1)
                finished = True
            except Killed:
                finished = False
        if not finished:
            if (folder / "store.json").is_file():
                partial = Store.open(folder, partial=True)
                partial.verify()
                if not partial.manifest.complete:
                    with pytest.raises(InputError, match="not finished"):
                        Store.open(folder)
            build_store([str(corpus)], tokenizer_folder, folder, settings, workers=1)
        assert contents(folder) == expected, f"killed at {name} {moment}"
        if finished:
            break
    assert moment > 10


def test_goes_on_without_tokenising_again(corpus, tokenizer_folder, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "store"
    monkeypatch.setattr("litebert.corpus.selection.BATCH", 1000)
    with monkeypatch.context() as patch:
        interrupt_at(7, patch, "close", shards.ShardWriter)
        with pytest.raises(Killed):
            build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)
    done = Store.open(folder, partial=True)
    assert len(done.manifest.shards) == 6
    reports = []
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1, report=reports.append)
    assert reports[-1].passed_over == sum(done.split(name).num_documents for name in ("train", "held_out"))
    before = contents(folder)
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1, report=lambda _: pytest.fail("ran again"))
    assert contents(folder) == before


def test_changed_corpus_is_noticed(corpus, tokenizer_folder, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "store"
    monkeypatch.setattr("litebert.corpus.selection.BATCH", 1000)
    with monkeypatch.context() as patch:
        interrupt_at(4, patch, "close", shards.ShardWriter)
        with pytest.raises(Killed):
            build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)
    text = corpus.read_text()
    corpus.write_text(text.replace("Number 3.", "Nomber 3."))  # of the same size
    with pytest.raises(InputError, match="not the one that this build began with"):
        build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)
    corpus.write_text(text)
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"seed": 5}, "seed is 0 there and 5 here"),
        ({"languages": ("de",)}, "the language is en there and de here"),
        ({"held_out": 0.2}, "held_out is 0.1 there and 0.2 here"),
        ({"normalisation": "nfkc"}, "the normalisation is none there and nfkc here"),
    ],
)
def test_other_settings(corpus, tokenizer_folder, tmp_path, change, said) -> None:
    corpus.write_text("A cat. A dog.")
    build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1)
    with pytest.raises(InputError, match=said):
        build_store(
            [str(corpus)], tokenizer_folder, tmp_path / "store", dataclasses.replace(SMALL, **change), workers=1
        )
    corpus.write_text("A cat. A dog. More.")
    with pytest.raises(InputError, match=r"the size of the files is \[13\] there and \[19\] here"):
        build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1)


def test_output_that_is_something_else(corpus, tokenizer_folder, tmp_path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    with pytest.raises(InputError, match="not empty and is no token store"):
        build_store([str(corpus)], tokenizer_folder, tmp_path / "mine", workers=1)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "dear"
    with pytest.raises(InputError, match="is a file"):
        build_store([str(corpus)], tokenizer_folder, corpus, workers=1)


def test_full_disk(corpus, tokenizer_folder, tmp_path, monkeypatch) -> None:
    """What is listed stays valid, nothing else is left, and with room the build goes on to the same bytes."""
    monkeypatch.setattr("litebert.corpus.selection.BATCH", 1000)
    build_store([str(corpus)], tokenizer_folder, tmp_path / "whole", SMALL, workers=1)
    folder = tmp_path / "store"
    original, calls = shards.ShardWriter._append, 0

    def append(self, name, values) -> None:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(self, name, values)

    with monkeypatch.context() as patch:
        patch.setattr(shards.ShardWriter, "_append", append)
        with pytest.raises(InputError, match=r"no room left to write .*; [1-9]\d* shards with [\d,]+ tokens are whole"):
            build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)
    partial = Store.open(folder, partial=True)
    partial.verify()
    assert {path.name for path in folder.iterdir()} == {
        "store.json",
        "tokenizer",
        *(entry.name for entry in partial.manifest.shards),
    }
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)
    assert contents(folder) == contents(tmp_path / "whole")


def test_bad_input(tokenizer_folder: Path, tmp_path: Path) -> None:
    def build(name: str, data: bytes, **changes) -> Store:
        path = tmp_path / name
        path.write_bytes(data)
        return build_store(
            [str(path)], tokenizer_folder, tmp_path / "s", BuildSettings(held_out=0, **changes), workers=1
        )

    with pytest.raises(InputError, match=r"latin\.txt, line 2 is not UTF-8"):
        build("latin.txt", "The cat.\nna\xefve dog.".encode("latin-1"))
    with pytest.raises(InputError, match="the corpus is empty"):
        build("empty.txt", b"\n\n\n")
    with pytest.raises(InputError, match="none of its 1 documents has a token"):
        build("invisible.txt", "\u200b".encode())
    with pytest.raises(InputError, match="no field 'text'"):
        build("other.jsonl", b'{"body": "The cat."}')
    # None of these stands in the way of a build into the same folder.
    store = build("latin.txt", "The cat.\nna\xefve dog.".encode("latin-1"), errors="replace")
    assert store.split("train").num_sentences == 2


def test_parquet_without_the_column(tokenizer_folder: Path, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(arrow.table({"body": ["The cat. A dog."]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"has no column 'text'; it has body"):
        build_store([str(tmp_path / "a.parquet")], tokenizer_folder, tmp_path / "s", workers=1)
    settings = BuildSettings(field="body", held_out=0)
    store = build_store([str(tmp_path / "a.parquet")], tokenizer_folder, tmp_path / "s", settings, workers=1)
    assert store.split("train").num_sentences == 2


def test_two_builds_at_once(corpus, tokenizer_folder, tmp_path) -> None:
    def again(_) -> None:
        with pytest.raises(InputError, match="another build is writing"):
            build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1)
        seen.append(1)

    seen: list[int] = []
    build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1, report=again)
    assert seen


@pytest.mark.parametrize(("name", "value"), [("held_out", 1.0), ("held_out", -0.1), ("shard_tokens", 0)])
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} is"):
        BuildSettings(**{name: value})


def test_seen_documents(monkeypatch) -> None:
    monkeypatch.setattr(SeenDocuments, "RECENT", 7)
    draw = random.Random(0)
    keys = [draw.randrange(1 << 64) for _ in range(300)] + [0, (1 << 64) - 1]
    seen, known = SeenDocuments(), set()
    for key in draw.choices(keys, k=3000):
        assert seen.add(key) == (key not in known)
        known.add(key)
    assert len(seen._sorted) < 10


def test_long_paragraphs_in_chunks(tokenizer_folder: Path, tmp_path: Path) -> None:
    """A document of many chunks gives what its sentences give one by one."""
    text = "\n".join(document(number) for number in range(2000))
    (tmp_path / "a.txt").write_text(text)
    store = build_store(
        [str(tmp_path / "a.txt")], tokenizer_folder, tmp_path / "s", BuildSettings(held_out=0), workers=1
    )
    tokenizer = read_tokenizer(tokenizer_folder)
    (shard,) = store.split("train").shards
    assert shard.num_documents == 1
    assert shard.tokens.tolist() == [index for line in text.splitlines() for index in tokenizer.ids(line)]
    assert np.all(np.diff(shard.sentences.astype(int)) > 0)
