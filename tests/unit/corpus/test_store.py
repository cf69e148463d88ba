"""The token store: what is written is what is read, only what is listed exists, and damage is named."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus.store import FORMAT, Manifest, Origin, Store
from litebert.corpus.store_writer import ShardWriter
from litebert.errors import InputError

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}


def write_shard(folder: Path, number: int = 0, vocab_size: int = 100, shift: int = 0):
    """Two documents: sentences of 3 and 2 tokens, then one of 4."""
    writer = ShardWriter(folder, "train", number, vocab_size=vocab_size, unknown_id=1)
    for tokens, starts, sentences in (([5, 6, 7, 8, 1], [1, 0, 1, 1, 1], [0, 3]), ([9, 10, 11, 12], [1, 0, 0, 1], [0])):
        writer.add(
            np.array(tokens) + shift,
            np.array(starts, np.uint8),
            np.array(sentences),
            np.array([0]),
            20,
        )
    return writer


def make_origin() -> Origin:
    return Origin(
        tokenizer="t",
        normalisation="n",
        languages=["en"],
        settings={"seed": 0},
        sources=["a.txt"],
        source_bytes=[9],
        content="c",
    )


def write_store(folder: Path, *, complete: bool = True, vocab_size: int = 100, shift: int = 0) -> Manifest:
    entry = write_shard(folder, vocab_size=vocab_size, shift=shift).close(2, "digest")
    origin = make_origin()
    manifest = Manifest(
        format=FORMAT,
        complete=complete,
        fingerprint=origin.fingerprint() if complete else "",
        origin=origin,
        vocab_size=vocab_size,
        special_ids=SPECIAL,
        documents_read=2,
        duplicates=0,
        empty=0,
        shards=(entry,),
    )
    manifest.write(folder)
    return manifest


def test_what_is_written_is_read(tmp_path: Path) -> None:
    manifest = write_store(tmp_path)
    store = Store.open(tmp_path)
    assert store.manifest == manifest
    train = store.split("train")
    (shard,) = train.shards
    assert shard.tokens.dtype == np.uint16
    assert shard.tokens.tolist() == [5, 6, 7, 8, 1, 9, 10, 11, 12]
    assert shard.word_starts.tolist() == [1, 0, 1, 1, 1, 1, 0, 0, 1]
    assert shard.sentences.tolist() == [0, 3, 5, 9]
    assert shard.documents.tolist() == [0, 2, 3]
    assert (train.num_tokens, train.num_words, train.num_sentences, train.num_documents) == (9, 6, 3, 2)
    assert (train.num_one_sentence, train.num_unknown, train.num_characters) == (1, 1, 40)
    assert store.split("held_out").shards == []
    store.verify()


def test_arrays_are_read_only(tmp_path: Path) -> None:
    write_store(tmp_path)
    with pytest.raises(ValueError, match="read-only"):
        Store.open(tmp_path).split("train").shards[0].tokens[0] = 1


def test_large_vocabulary_takes_four_bytes(tmp_path: Path) -> None:
    write_store(tmp_path, vocab_size=250_000, shift=200_000)
    shard = Store.open(tmp_path).split("train").shards[0]
    assert shard.tokens.dtype == np.uint32
    assert shard.tokens[0] == 200_005


def test_half_written_shard_is_not_listed(tmp_path: Path) -> None:
    write_store(tmp_path)
    half = write_shard(tmp_path, number=1)
    assert len(Store.open(tmp_path).split("train").shards) == 1
    half.close(2, "digest")  # whole but not listed: still not there
    assert len(Store.open(tmp_path).split("train").shards) == 1


def test_unfinished_store_needs_partial(tmp_path: Path) -> None:
    write_store(tmp_path, complete=False)
    with pytest.raises(InputError, match="not finished: it has 1 shards with 9 tokens"):
        Store.open(tmp_path)
    assert Store.open(tmp_path, partial=True).split("train").num_tokens == 9


@pytest.mark.parametrize("name", ["tokens", "word_starts", "sentences", "documents"])
def test_damage_is_found_and_named(tmp_path: Path, name: str) -> None:
    write_store(tmp_path)
    path = tmp_path / "train-00000" / f"{name}.bin"
    data = bytearray(path.read_bytes())
    data[3] ^= 1
    path.write_bytes(data)
    with pytest.raises(InputError, match=rf"shard train-00000 is damaged: .*{name}\.bin"):
        Store.open(tmp_path).verify()
    path.write_bytes(data[:-1])
    with pytest.raises(InputError, match=rf"{name}\.bin has \d+ bytes instead of"):
        getattr(Store.open(tmp_path).split("train").shards[0], name)
    path.unlink()
    with pytest.raises(InputError, match="is missing"):
        Store.open(tmp_path).verify()


def test_folder_without_store(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a token store"):
        Store.open(tmp_path)


def test_other_format_and_broken_file(tmp_path: Path) -> None:
    manifest = dataclasses.asdict(write_store(tmp_path))
    (tmp_path / "store.json").write_text(json.dumps({**manifest, "format": 99}))
    with pytest.raises(InputError, match="has format 99"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text(json.dumps({**manifest, "shards": [{"name": "x"}]}))
    with pytest.raises(InputError, match=r"store.json (is|holds)"):
        Store.open(tmp_path)
    (tmp_path / "store.json").write_text("{")
    with pytest.raises(InputError, match=r"store.json (is|holds)"):
        Store.open(tmp_path)


def test_unknown_split(tmp_path: Path) -> None:
    write_store(tmp_path)
    with pytest.raises(InputError, match="no split 'test'"):
        Store.open(tmp_path).split("test")


def test_fingerprint_follows_every_part_of_the_origin() -> None:
    origin = Origin(
        tokenizer="t",
        normalisation="n",
        languages=["en"],
        settings={"seed": 0},
        sources=["a"],
        source_bytes=[9],
        content="c",
    )
    others = [
        dataclasses.replace(origin, tokenizer="u"),
        dataclasses.replace(origin, normalisation="m"),
        dataclasses.replace(origin, languages=["ja"]),
        dataclasses.replace(origin, settings={"seed": 1}),
        dataclasses.replace(origin, sources=["b"]),
        dataclasses.replace(origin, source_bytes=[10]),
        dataclasses.replace(origin, content="d"),
    ]
    assert len({item.fingerprint() for item in [origin, *others]}) == 8
