"""``litebert corpus build`` from the outside: killed at random moments, memory, a full disk, real text."""

import json
import lzma
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import unicodedata
from itertools import pairwise
from pathlib import Path

import numpy as np
import psutil
import pytest

from litebert.corpus.store import Store
from litebert.text.tokenizer_files import read_tokenizer

LITEBERT = [str(Path(sys.executable).parent / "litebert")]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
SYLLABLES = ["ka", "lo", "mi", "ner", "pol", "qua", "rin", "sta", "tu", "vel", "wor", "zen"]


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wordpiece vocabulary of syllables and letters."""
    folder = tmp_path_factory.mktemp("tokenizer")
    letters = "abcdefghijklmnopqrstuvwxyz0123456789"
    parts = [*SYLLABLES, *letters]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *parts, *("##" + part for part in parts)]
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n")
    return folder


def write_corpus(path: Path, size: int, seed: int = 0) -> None:
    """About ``size`` bytes of made-up documents of some hundred words."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(5000)]
    written = 0
    with path.open("w") as file:
        while written < size:
            lines = []
            for _ in range(draw.randint(1, 8)):
                sentences = [" ".join(draw.choices(words, k=draw.randint(3, 20))).capitalize() for _ in range(5)]
                lines.append(". ".join(sentences) + ".")
            written += file.write("\n".join(lines) + "\n\n")


def start(corpus: Path, tokenizer: Path, store: Path, *options: str) -> subprocess.Popen[str]:
    command = [*LITEBERT, "corpus", "build", str(corpus), "-t", str(tokenizer), "-o", str(store), *options]
    return subprocess.Popen(
        command,
        env=ENVIRONMENT,
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background jobs ignore it
    )


def build(corpus: Path, tokenizer: Path, store: Path, *options: str) -> str:
    process = start(corpus, tokenizer, store, *options)
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return output


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_killed_at_ten_random_moments(tmp_path: Path, tokenizer_folder: Path) -> None:
    """The whole process group is killed ten times, then the build is left alone: the bytes are the same."""
    corpus, options = tmp_path / "corpus.txt", ("--workers", "2", "--shard-tokens", "20000", "--held-out", "5%")
    write_corpus(corpus, 2_000_000)
    build(corpus, tokenizer_folder, tmp_path / "whole", *options)
    expected = contents(tmp_path / "whole")
    assert len(expected) > 40
    draw = random.Random(time.time_ns())
    killed, sizes, store = 0, set(), tmp_path / "store"
    shards = len(Store.open(tmp_path / "whole").manifest.shards)
    for goal in sorted(draw.randrange(shards) for _ in range(10)):  # a moment while that shard is written
        process = start(corpus, tokenizer_folder, store, *options)
        while process.poll() is None and sum(1 for _ in store.glob("*-?????")) < goal:
            time.sleep(0.002)
        time.sleep(draw.uniform(0, 0.05))
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate()
        if (store / "store.json").is_file():
            partial = Store.open(store, partial=True)
            partial.verify()
            sizes.add(len(partial.manifest.shards))
            if partial.manifest.complete:  # it was quicker
                assert contents(store) == expected
                shutil.rmtree(store)
    build(corpus, tokenizer_folder, store, *options)
    assert contents(store) == expected
    assert killed > 5, "the build was over before it could be killed"
    assert len(sizes) > 2, f"the moments were not spread over the build: {sizes}"


def start_and_wait(tmp_path: Path, tokenizer: Path) -> tuple[subprocess.Popen[str], list[psutil.Process], Path]:
    """A build that has written its first shard, and its workers."""
    corpus, store = tmp_path / "corpus.txt", tmp_path / "store"
    write_corpus(corpus, 6_000_000)
    process = start(corpus, tokenizer, store, "--workers", "2", "--shard-tokens", "20000")
    while process.poll() is None and not (store / "train-00000").exists():
        time.sleep(0.02)
    children = psutil.Process(process.pid).children(recursive=True)
    workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
    assert len(workers) == 2
    return process, workers, store


def test_interrupt_says_how_to_resume(tmp_path: Path, tokenizer_folder: Path) -> None:
    process, workers, store = start_and_wait(tmp_path, tokenizer_folder)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert errors.strip() == f"litebert: stopped; run the same command again to resume {store}"
    assert not list(store.glob("*.part"))
    _, alive = psutil.wait_procs(workers, timeout=10)
    assert not alive


def test_workers_do_not_outlive_a_killed_parent(tmp_path: Path, tokenizer_folder: Path) -> None:
    process, workers, _ = start_and_wait(tmp_path, tokenizer_folder)
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(workers, timeout=20)
    assert not alive
    process.communicate()


def test_a_killed_worker_changes_nothing(tmp_path: Path, tokenizer_folder: Path) -> None:
    process, workers, store = start_and_wait(tmp_path, tokenizer_folder)
    workers[0].kill()
    _, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors
    alone = tmp_path / "alone"
    build(tmp_path / "corpus.txt", tokenizer_folder, alone, "--workers", "1", "--shard-tokens", "20000")
    assert contents(store) == contents(alone)


def peak_memory(process: subprocess.Popen[str]) -> int:
    """The most that a process and its children held together, in bytes."""
    watched, peak = psutil.Process(process.pid), 0
    while process.poll() is None:
        try:
            peak = max(peak, sum(each.memory_info().rss for each in [watched, *watched.children(recursive=True)]))
        except psutil.Error:
            continue  # one of them has just ended
        time.sleep(0.02)
    return peak


def test_memory_does_not_grow(tmp_path: Path, tokenizer_folder: Path) -> None:
    """Ten times the text takes as much memory as once, within 10%, and under 1 GB."""
    peaks = []
    for size in (1_000_000, 10_000_000):
        corpus = tmp_path / f"{size}.txt"
        write_corpus(corpus, size)
        process = start(corpus, tokenizer_folder, tmp_path / f"store{size}", "--workers", "2")
        peaks.append(peak_memory(process))
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert peaks[1] < 1.1 * peaks[0]
    assert peaks[1] < 1e9


def test_file_that_may_not_grow(tmp_path: Path, tokenizer_folder: Path) -> None:
    """A real refusal by the system in the middle of the first shard: one sentence, and nothing is left behind."""
    corpus, store = tmp_path / "corpus.txt", tmp_path / "store"
    write_corpus(corpus, 1_000_000)
    command = [*LITEBERT, "corpus", "build", str(corpus), "-t", str(tokenizer_folder), "-o", str(store)]
    # Shards take more the longer their sentences are; only the limit on the size of a file stops them.
    result = subprocess.run(
        [*command, "--workers", "1"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert result.returncode == 2
    assert result.stderr.startswith(f"litebert: no room left to write {store}")
    assert "run the same command again to resume" in result.stderr
    assert not store.exists()


def test_standard_input_and_bad_words(tmp_path: Path, tokenizer_folder: Path) -> None:
    command = [
        *LITEBERT,
        "corpus",
        "build",
        "-",
        "-t",
        str(tokenizer_folder),
        "-o",
        str(tmp_path / "s"),
        "--workers",
        "1",
    ]
    result = subprocess.run(
        command, input="Kalo mi.\n\nStatu zen. Vel.\n", capture_output=True, text=True, env=ENVIRONMENT
    )
    assert result.returncode == 0, result.stderr
    assert "2 documents read" in result.stdout
    assert "1 documents have one sentence" in result.stdout
    for options, said in (
        (["--held-out", "lots"], "--held-out is 'lots'"),
        (["--errors", "ignore"], "--errors is 'ignore'"),
        (["--language", "jp"], "did you mean 'ja'"),
        (["--normalise", "nfc"], "--normalise is 'nfc' but must be one of"),
    ):
        result = subprocess.run([*command, *options], input="", capture_output=True, text=True, env=ENVIRONMENT)
        assert result.returncode == 2
        assert result.stderr.startswith("litebert: ")
        assert said in result.stderr
        assert result.stderr.count("\n") == 1


def train_vocabulary(text: str, folder: Path) -> None:
    """A small SentencePiece vocabulary for a language."""
    import sentencepiece

    lines = [line[:500] for line in text.splitlines() if line][:3000]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "spiece"),
        vocab_size=6000,
        character_coverage=0.999,
        hard_vocab_limit=False,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        normalization_rule_name="nfkc",
        minloglevel=2,
        num_threads=2,
    )


def letters(text: str) -> str:
    """What of a text survives normalisation and decoding."""
    return "".join(sign for sign in unicodedata.normalize("NFKC", text).casefold() if sign.isalnum())


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "language", "low", "high"),
    [
        ("en-wiki", "en", 1.2, 2.2),
        ("ja-aozora", "ja", 1.0, 1.15),
        ("ko-wiki", "ko", 1.8, 3.5),
        ("zh-wiki", "zh", 1.0, 1.2),
    ],
)
def test_real_text(tmp_path: Path, shared_data: Path, name: str, language: str, low: float, high: float) -> None:
    """Nothing is lost, sentences never cross paragraphs, and words are those of the language."""
    with lzma.open(shared_data / "corpus" / f"{name}.txt.xz", "rt", encoding="utf-8") as file:
        text = file.read(600_000).rpartition("\n\n")[0]
    corpus = tmp_path / f"{name}.txt"
    corpus.write_text(text, encoding="utf-8")
    if language == "en":
        shutil.copy(shared_data / "vocab" / "albert-30k.model", tmp_path / "spiece.model")
    else:
        train_vocabulary(text, tmp_path)
    keep = tmp_path / "vocabulary"
    keep.mkdir()
    (tmp_path / "spiece.model").rename(keep / "spiece.model")
    (keep / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": language == "en", "keep_accents": True}))
    build(corpus, keep, tmp_path / "store", "--language", language, "--held-out", "0", "--workers", "2")
    store = Store.open(tmp_path / "store")
    store.verify()
    train = store.split("train")
    tokenizer = read_tokenizer(store.tokenizer_folder, "albert")
    assert low < train.num_tokens / train.num_words < high
    assert train.num_unknown < 0.01 * train.num_tokens
    (shard,) = train.shards
    paragraphs = [line for line in text.splitlines() if line.strip()]
    documents = [part for part in text.split("\n\n") if part.strip()]
    assert shard.num_documents + store.manifest.duplicates == len(documents)
    assert shard.num_sentences >= len(paragraphs) * 0.99
    sentences = [shard.tokens[first:last] for first, last in pairwise(shard.sentences)]
    everything = "\n".join(letters(line) for line in paragraphs)
    draw = np.random.default_rng(0)
    for index in draw.choice(len(sentences), 200, replace=False):
        ids = sentences[index].tolist()
        if store.special_ids["unk"] in ids or language == "en":
            continue  # the English vocabulary drops accents; its ids are tested by themselves
        assert letters(tokenizer.decode(ids)) in everything
    if language == "ja":
        assert "が" in {tokenizer.piece(index) for index in shard.tokens[:20000].tolist()}
    starts = shard.word_starts.astype(bool)
    pieces = np.array([tokenizer.piece(index) for index in range(store.vocab_size)])[shard.tokens]
    marked = np.char.startswith(pieces, "▁")
    assert starts[marked].all()
    if language == "ko":
        hangul = np.array([any("가" <= sign <= "힣" for sign in piece) for piece in pieces.tolist()])
        inside = hangul & ~marked
        inside[shard.sentences[:-1]] = False
        assert not starts[inside].any()
