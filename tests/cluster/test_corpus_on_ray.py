"""A corpus built on Ray is, byte for byte, the one that a single process builds; a killed worker changes nothing."""

from pathlib import Path

import pytest
import toy_work
from toy_corpus import SMALL, contents, document, write_tokenizer

from litebert.corpus import build
from litebert.corpus.build import build_store

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nodes")]


@pytest.fixture
def corpus(tmp_path) -> Path:
    """Files with duplicates within and between them."""
    folder = tmp_path / "corpus"
    folder.mkdir()
    for number in range(3):
        texts = [document(draw) for draw in range(number * 100, number * 100 + 150)]
        (folder / f"{number}.txt").write_text("\n\n".join([*texts, texts[0]]))
    return folder


@pytest.fixture
def expected(corpus, tmp_path, monkeypatch) -> dict[str, bytes]:
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    write_tokenizer(tmp_path / "words")
    store = build_store([str(corpus)], tmp_path / "words", tmp_path / "alone", SMALL, workers=1)
    assert store.manifest.duplicates > 90 and len(store.manifest.shards) > 5
    return contents(tmp_path / "alone")


@pytest.mark.parametrize("workers", [1, 2])
def test_the_bytes_are_those_of_one_process(workers, corpus, expected, tmp_path):
    build_store([str(corpus)], tmp_path / "words", tmp_path / "ray", SMALL, on="ray", workers=workers)
    assert contents(tmp_path / "ray") == expected


def test_a_worker_killed_midway_changes_nothing(corpus, expected, tmp_path, monkeypatch):
    class Killed:
        @staticmethod
        def of(*arguments):
            return toy_work.KilledOnce(tokenise.of(*arguments), tmp_path / "killed", at=10)

    tokenise = build.TokeniseDocuments
    monkeypatch.setattr(build, "TokeniseDocuments", Killed)
    build_store([str(corpus)], tmp_path / "words", tmp_path / "ray", SMALL, on="ray")
    assert (tmp_path / "killed").exists()
    assert contents(tmp_path / "ray") == expected


def test_a_build_that_was_stopped_resumes(corpus, expected, tmp_path):
    def stop(progress: build.Progress) -> None:
        if progress.documents > 200:
            raise KeyboardInterrupt

    arguments = ([str(corpus)], tmp_path / "words", tmp_path / "ray", SMALL)
    with pytest.raises(KeyboardInterrupt):
        build_store(*arguments, on="ray", report=stop)
    reports: list[build.Progress] = []
    build_store(*arguments, on="ray", report=reports.append)
    assert reports[-1].skipped > 0
    assert contents(tmp_path / "ray") == expected
