"""The shipped model exported: in integers it predicts missing words of real text as well as in fp32."""

import lzma
from pathlib import Path

import numpy as np
import pytest
import torch

import litebert
from litebert.model import load
from litebert.nn.layout import Layout

pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
pytest.importorskip("onnx", reason="litebert[export] is not installed")

MASKS = 120
MOST_BYTES = 12_000_000


@pytest.fixture(scope="module")
def model():
    return load("litebert-en", device="cpu")


@pytest.fixture(scope="module")
def masked(model, shared_data: Path) -> list[tuple[list[int], int, int]]:
    """Paragraphs of Wikipedia with one masked token each: ids, the place, the token that was there."""
    random = np.random.default_rng(0)
    found: list[tuple[list[int], int, int]] = []
    with lzma.open(shared_data / "corpus" / "en-wiki.txt.xz", "rt", encoding="utf-8") as lines:
        for line in lines:
            if 80 < len(line) < 300 and random.random() < 0.05:
                ids = model.tokenizer.encode(line.strip(), max_length=64).ids
                place = int(random.integers(1, len(ids) - 1))
                found.append(([*ids[:place], model.tokenizer.mask_id, *ids[place + 1 :]], place, ids[place]))
            if len(found) == MASKS:
                return found
    raise AssertionError("the corpus is too short")


@pytest.fixture(scope="module")
@torch.no_grad()
def in_fp32(model, masked) -> np.ndarray:
    found = []
    for ids, place, target in masked:
        states = model.network.encoder(torch.tensor(ids), Layout.of([len(ids)]), torch.zeros(len(ids)).long())
        found.append(_loss(model.network.masked_lm(states, torch.tensor([place]))[0].numpy(), target))
    return np.array(found)


def _loss(logits: np.ndarray, target: int) -> float:
    scores = logits.astype(np.float64) - logits.max()
    return float(np.log(np.exp(scores).sum()) - scores[target])


@pytest.mark.shared
@pytest.mark.parametrize(
    ("settings", "allowed"),
    [({}, 0.01), ({"per_tensor": True}, 0.03), ({"bits": 4}, 0.3)],
    ids=["int8 by token", "int8 by tensor", "int4"],
)
def test_masked_words_in_integers(settings, allowed, model, masked, in_fp32, tmp_path):
    made = model.export(tmp_path / "out", standard=False, **settings)
    assert made.files["litebert.onnx"] <= MOST_BYTES
    runtime = litebert.Runtime(made.folder, activation_bits=8)
    found = []
    for ids, place, target in masked:
        [logits] = runtime._run(
            runtime._sessions.one, ["tokens"], ids, [0] * len(ids), None, positions=np.array([place])
        )
        found.append(_loss(logits[0], target))
    assert in_fp32.mean() < 6  # it has learnt something: a guess costs log(30,000) = 10.3
    assert abs(np.mean(found) - in_fp32.mean()) < allowed


@pytest.mark.shared
def test_long_texts_have_the_same_bits_alone_and_among_others(model, masked, tmp_path):
    runtime = litebert.load(model.export(tmp_path / "out", standard=False).folder, threads=2)
    texts = [model.tokenizer.decode(ids) for ids, _, _ in masked[:6]]
    together = runtime.encode(texts, pooling="mean")
    for text, vector in zip(texts, together, strict=True):
        assert (runtime.encode(text, pooling="mean") == vector).all()
