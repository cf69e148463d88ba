"""Text and stores on other file systems, through fsspec: the memory of this process stands for a bucket."""

import gzip

import pytest
from toy_corpus import SMALL, contents

from litebert.corpus import build
from litebert.corpus.build import build_store
from litebert.errors import InputError
from litebert.text.documents import documents, expand

fsspec = pytest.importorskip("fsspec")
pytest.importorskip("upath", reason="needs universal-pathlib")


@pytest.fixture
def bucket():
    system = fsspec.filesystem("memory")
    system.store.clear()
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def text(bucket, corpus, monkeypatch) -> str:
    """The corpus in a bucket."""
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    bucket.pipe_file("/text/a.txt", corpus.read_bytes())
    return "memory://text/a.txt"


def stored(bucket, root: str) -> dict[str, bytes]:
    return {name.removeprefix(f"/{root}/"): bucket.cat_file(name) for name in bucket.find(f"/{root}")}


def test_every_kind_of_file_is_read(bucket, tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    bucket.pipe_file("/in/a.txt", b"one\n\ntwo\n")
    bucket.pipe_file("/in/b.txt.gz", gzip.compress(b"three\n"))
    bucket.pipe_file("/in/c.jsonl", b'{"text": "four"}\n')
    bucket.pipe_file("/in/.hidden.txt", b"no\n")
    pq.write_table(pa.table({"text": ["five"]}), tmp_path / "d.parquet")
    bucket.pipe_file("/in/d.parquet", (tmp_path / "d.parquet").read_bytes())
    assert [one.text for one in documents(["memory://in"])] == ["one", "two", "three", "four", "five"]
    assert [one.text for one in documents(["memory://in/*.txt*"])] == ["one", "two", "three"]
    assert [one.text for one in documents([f"file://{tmp_path}/d.parquet"])] == ["five"]
    assert [str(path) for path in expand(["memory://in/a.txt"])] == ["memory://in/a.txt"]


def test_a_store_in_a_bucket_has_the_bytes_of_one_on_disk(bucket, text, tokenizer_folder, tmp_path):
    build_store([text], tokenizer_folder, tmp_path / "store", SMALL, workers=1)
    store = build_store([text], tokenizer_folder, "memory://out/store", SMALL, workers=1)
    assert store.manifest.complete and store.split("train").num_tokens > 1000
    assert stored(bucket, "out/store") == contents(tmp_path / "store")


def test_a_stopped_build_in_a_bucket_resumes(bucket, text, tokenizer_folder, tmp_path):
    def stop(progress: build.Progress) -> None:
        if progress.documents > 150:
            raise KeyboardInterrupt

    arguments = ([text], tokenizer_folder, "memory://out/store", SMALL)
    build_store([text], tokenizer_folder, tmp_path / "store", SMALL, workers=1)
    with pytest.raises(KeyboardInterrupt):
        build_store(*arguments, workers=1, report=stop)
    begun = stored(bucket, "out/store")
    assert "store.json" in begun and begun.keys() < contents(tmp_path / "store").keys()
    reports: list[build.Progress] = []
    build_store(*arguments, workers=1, report=reports.append)
    assert reports[-1].skipped > 0
    assert stored(bucket, "out/store") == contents(tmp_path / "store")


def test_what_cannot_be_used_is_said(bucket, text, tokenizer_folder):
    bucket.pipe_file("/out/mine.txt", b"precious")
    with pytest.raises(InputError, match="memory://out is not empty and not a token store"):
        build_store([text], tokenizer_folder, "memory://out", SMALL, workers=1)
    with pytest.raises(InputError, match=r"memory://text/b\.txt"):
        expand(["memory://text/b.txt"])
    with pytest.raises(InputError, match=r"nosuch://a/b\.txt cannot be opened"):
        expand(["nosuch://a/b.txt"])
