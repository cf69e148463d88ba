"""The measurement of building: it counts the same text on both sides, and the bound that the project sets itself."""

import shutil
from pathlib import Path

import pytest

from litebert.text.documents import documents
from litebert.text.train import TrainSettings, train_tokenizer
from litebert_lab.bench.corpus import BUILD_TARGET, BuildFigures, bench_build


@pytest.fixture(scope="module")
def albert(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("albert")
    shutil.copy(shared_data / "vocab" / "albert-30k.model", folder / "spiece.model")
    return folder


def measure(albert: Path, shared_data: Path, megabytes: float, rounds: int) -> BuildFigures:
    corpus = [str(shared_data / "corpus" / "en-wiki.txt.xz")]
    return bench_build(corpus, albert, workers=2, megabytes=megabytes, rounds=rounds)


@pytest.mark.shared
def test_same_text_on_both_sides(albert: Path, shared_data: Path) -> None:
    figures = measure(albert, shared_data, 0.5, 1)
    assert figures.text_bytes >= 500_000
    # Sentences are texts of their own, which changes a token here and there at their ends.
    assert figures.paragraphs.tokens == figures.documents.tokens
    assert figures.build.tokens == pytest.approx(figures.documents.tokens, rel=0.001)
    library = min(figures.paragraphs.seconds, figures.documents.seconds)
    assert figures.ratio == pytest.approx(library / figures.build.seconds), "the faster of the two counts"
    assert f"{figures.ratio:.2f}" in str(figures.table().rows)


@pytest.mark.shared
@pytest.mark.slow
def test_building_keeps_up_with_the_library(albert: Path, shared_data: Path) -> None:
    assert measure(albert, shared_data, 24, 2).ratio >= BUILD_TARGET


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize(("text", "language"), [("ja-aozora", "ja"), ("ko-wiki", "ko"), ("zh-wiki", "zh")])
def test_building_keeps_up_where_sentences_are_short(
    text: str, language: str, tmp_path: Path, shared_data: Path
) -> None:
    corpus = [str(shared_data / "corpus" / f"{text}.txt.xz")]
    lines = (document.text for document in documents(corpus))
    train_tokenizer(lines, TrainSettings(vocab_size=8000)).save(tmp_path)
    # By the processor: four megabytes take too little time for the clock, where other work runs beside.
    assert bench_build(corpus, tmp_path, languages=[language], workers=2, rounds=3).processor_ratio >= BUILD_TARGET
