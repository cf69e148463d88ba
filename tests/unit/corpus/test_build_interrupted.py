"""A build that was killed or ran out of disk: its shards are valid, and resuming gives the same bytes."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_corpus import SMALL, contents, document

from litebert.corpus import store_writer
from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.store import Store
from litebert.errors import InputError


class Killed(BaseException):
    """Stands for a killed process: no code of ours may catch it and clean up."""


def interrupt_at(moment: int, monkeypatch, name: str, owner: object) -> Callable[[], int]:
    """From call number ``moment`` of ``owner.name`` on, nothing is written to disk."""
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


@pytest.mark.parametrize(("owner", "name"), [(os, "fsync"), (Path, "replace"), (store_writer.ShardWriter, "add")])
def test_killed_at_every_step(corpus, tokenizer_folder, tmp_path, monkeypatch, owner, name) -> None:
    """A build stopped at each of its steps in turn, and resumed, ends with the same bytes."""
    corpus.write_text("\n\n".join(map(document, range(40))))
    settings = BuildSettings(shard_tokens=700, held_out=0.1)
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    whole = tmp_path / "whole"
    build_store([str(corpus)], tokenizer_folder, whole, settings, workers=1)
    expected = contents(whole)
    for moment in range(1, 1000):
        folder = tmp_path / f"killed{moment}"
        with monkeypatch.context() as patch:
            patch.setattr(store_writer.ShardWriter, "discard", lambda self: None)  # a killed process cleans up nothing
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


def killed_at_shard(number: int, corpus: Path, tokenizer_folder: Path, folder: Path, monkeypatch) -> None:
    """A build that is killed before it finishes this shard."""
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    with monkeypatch.context() as patch:
        interrupt_at(number, patch, "close", store_writer.ShardWriter)
        with pytest.raises(Killed):
            build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)


def test_resume_does_not_tokenise_again(corpus, tokenizer_folder, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "store"
    killed_at_shard(7, corpus, tokenizer_folder, folder, monkeypatch)
    done = Store.open(folder, partial=True)
    assert len(done.manifest.shards) == 6
    reports = []
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1, report=reports.append)
    assert reports[-1].skipped == sum(done.split(name).num_documents for name in ("train", "held_out"))
    before = contents(folder)
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1, report=lambda _: pytest.fail("ran again"))
    assert contents(folder) == before


def test_changed_corpus_is_noticed(corpus, tokenizer_folder, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "store"
    killed_at_shard(4, corpus, tokenizer_folder, folder, monkeypatch)
    text = corpus.read_text()
    corpus.write_text(text.replace("Number 3.", "Nomber 3."))  # of the same size
    with pytest.raises(InputError, match="the corpus has changed since this build began"):
        build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)
    corpus.write_text(text)
    build_store([str(corpus)], tokenizer_folder, folder, SMALL, workers=1)


def test_full_disk(corpus, tokenizer_folder, tmp_path, monkeypatch) -> None:
    """Listed shards stay valid, nothing else is left, and with free space the build resumes to the same bytes."""
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    build_store([str(corpus)], tokenizer_folder, tmp_path / "whole", SMALL, workers=1)
    folder = tmp_path / "store"
    original, calls = store_writer.ShardWriter._append, 0

    def append(self, name, values) -> None:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(self, name, values)

    with monkeypatch.context() as patch:
        patch.setattr(store_writer.ShardWriter, "_append", append)
        message = r"no room left to write .*; [1-9]\d* shards with [\d,]+ tokens are complete"
        with pytest.raises(InputError, match=message):
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


def test_two_builds_at_once(corpus, tokenizer_folder, tmp_path) -> None:
    def again(_) -> None:
        with pytest.raises(InputError, match="another build is writing"):
            build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1)
        seen.append(1)

    seen: list[int] = []
    build_store([str(corpus)], tokenizer_folder, tmp_path / "store", SMALL, workers=1, report=again)
    assert seen
