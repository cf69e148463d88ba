"""What a build refuses, in a sentence: other settings, other folders, texts it cannot read."""

import dataclasses
from pathlib import Path

import pytest
from toy_corpus import SMALL

from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.store import Store
from litebert.errors import InputError


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
    with pytest.raises(InputError, match="not empty and not a token store"):
        build_store([str(corpus)], tokenizer_folder, tmp_path / "mine", workers=1)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "dear"
    with pytest.raises(InputError, match="is a file"):
        build_store([str(corpus)], tokenizer_folder, corpus, workers=1)


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


@pytest.mark.parametrize(("name", "value"), [("held_out", 1.0), ("held_out", -0.1), ("shard_tokens", 0)])
def test_settings_out_of_range(name: str, value: float) -> None:
    with pytest.raises(InputError, match=f"{name} is"):
        BuildSettings(**{name: value})
