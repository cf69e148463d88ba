"""Building a store: what goes in comes out, whatever the number of workers and the order of documents."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
from toy_corpus import SMALL, contents, document

from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.sentences import sentence_splitter, split_document
from litebert.text.tokenizer_files import read_tokenizer


def test_text_can_be_decoded_from_the_store(corpus: Path, tokenizer_folder: Path, tmp_path: Path) -> None:
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


def test_special_tokens_in_a_text_become_unknown(tokenizer_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("The [MASK] cat [SEP] sat. [CLS] [PAD] on")
    store = build_store(
        [str(tmp_path / "a.txt")], tokenizer_folder, tmp_path / "s", BuildSettings(held_out=0), workers=1
    )
    tokens = store.split("train").shards[0].tokens
    assert not set(tokens.tolist()) & {0, 2, 3, 4}
    assert (tokens == store.special_ids["unk"]).sum() == 4


def test_workers_change_nothing(corpus: Path, tokenizer_folder: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    one, two = tmp_path / "one", tmp_path / "two"
    build_store([str(corpus)], tokenizer_folder, one, SMALL, workers=1)
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 3333)
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


def test_large_document_has_a_shard_to_itself(tokenizer_folder: Path, tmp_path: Path) -> None:
    texts = ["The cat. " * 10, "The dog ran. " * 100, "A mat. " * 10]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    settings = BuildSettings(shard_tokens=50, held_out=0)
    store = build_store([str(tmp_path / "a.jsonl")], tokenizer_folder, tmp_path / "s", settings, workers=1)
    assert [shard.num_tokens for shard in store.split("train").shards] == [30, 400, 30]


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
