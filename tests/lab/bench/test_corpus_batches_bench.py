"""The measurement of batch making, and the bounds that the project sets itself: speed, and memory that stays."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from litebert.corpus.build import BuildSettings, build_store
from litebert.text.documents import documents
from litebert_lab.bench import corpus
from litebert_lab.bench.corpus import BATCH_TARGET, bench_batches

PROGRAM = """
import itertools, sys
from litebert.corpus.batches import Batches, BatchSettings
from litebert.corpus.store import Store
from litebert.system import peak_resident_bytes
batches = Batches(Store.open(sys.argv[1]), "train", BatchSettings(length=128, budget=8192, window=1 << 18))
for batch in itertools.islice(batches.stream(workers=2), batches.len(0) + 3):
    pass
print(peak_resident_bytes())
"""


@pytest.fixture(scope="module")
def store_folder(tmp_path_factory: pytest.TempPathFactory, shared_data: Path) -> Path:
    folder = tmp_path_factory.mktemp("batches")
    (folder / "tokenizer").mkdir()
    shutil.copy(shared_data / "vocab" / "albert-30k.model", folder / "tokenizer" / "spiece.model")
    size = 0
    with (folder / "text.txt").open("w", encoding="utf-8") as file:
        for document in documents([str(shared_data / "corpus" / "en-wiki.txt.xz")]):
            size += file.write(document.text + "\n\n")
            if size > 2_000_000:
                break
    build_store([str(folder / "text.txt")], folder / "tokenizer", folder / "store", BuildSettings(), workers=1)
    return folder / "store"


@pytest.mark.shared
def test_both_make_the_same_batches(store_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus, "MOST_TOKENS", 100_000)
    speeds = bench_batches(store_folder, length=128, budget=16_384, rounds=1)
    assert 80_000 < speeds.tokens < 100_000 and speeds.fill > 0.98
    assert min(speeds.collator_lists, speeds.collator_tensors, speeds.litebert, speeds.first_batch) > 0
    assert f"{speeds.ratio:.1f}" in str(speeds.table().rows)


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("length", [128, 512])
def test_batches_are_made_five_times_faster_than_by_the_collator(store_folder: Path, length: int) -> None:
    speeds = bench_batches(store_folder, length=length, budget=16_384)
    assert speeds.ratio > BATCH_TARGET
    assert speeds.fill > 0.99


def repeat(store: Path, times: int) -> Path:
    """A store with the train shards of another, so many times."""
    target = store.parent / f"repeated-{times}"
    shutil.copytree(store / "tokenizer", target / "tokenizer")
    manifest = json.loads((store / "store.json").read_text(encoding="utf-8"))
    shards = [entry for entry in manifest["shards"] if entry["split"] == "train"]
    manifest["shards"] = []
    for _ in range(times):
        for entry in shards:
            name = f"train-{len(manifest['shards']):05d}"
            shutil.copytree(store / entry["name"], target / name)
            manifest["shards"].append({**entry, "name": name})
    (target / "store.json").write_text(json.dumps(manifest), encoding="utf-8")
    return target


@pytest.mark.shared
def test_memory_does_not_grow_with_the_corpus(store_folder: Path) -> None:
    def peak(folder: Path) -> int:
        done = subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], capture_output=True, text=True, check=True)
        return int(done.stdout)

    once, ten = repeat(store_folder, 1), repeat(store_folder, 10)
    peak(once)  # the first run may compile, which takes memory of its own
    assert peak(ten) < 1.1 * peak(once)
    assert peak(ten) < 1_000_000_000
