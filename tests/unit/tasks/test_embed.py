"""Sentence vectors from pairs: columns, inputs, the contrast, ranks, and a run from pairs to a folder of vectors."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import toy_tasks as toy

import litebert
from litebert.checkpoints.folder import load_model
from litebert.errors import InputError
from litebert.tasks.columns import find_columns
from litebert.tasks.encoding import IGNORED, TaskBatches
from litebert.tasks.examples import EncodingSettings, Example, TaskSpec
from litebert.tasks.finetune import finetune
from litebert.tasks.kinds import KINDS, HeadScores
from litebert.tasks.objective import TaskObjective, pair_loss
from litebert.tasks.sources import read_task

EMBED = KINDS["embed"]
PAIRS = [("the cat", "cat was"), ("a dog", "dog in"), ("the cat", "cat then"), ("fox", "dog in"), ("hen", "the hen it")]


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return load_model(toy.make_model(tmp_path_factory.mktemp("bert")))


def examples(rows, target=1):
    return [Example(key=str(number), first=a, second=b, target=target) for number, (a, b) in enumerate(rows)]


@pytest.mark.parametrize("family", ["bert", "xlnet"])
def test_every_text_is_an_input_of_its_own(source, family):
    tokenizer = source.tokenizer
    if family == "xlnet":  # its special tokens are at the end, in a segment of their own
        from litebert.families import FAMILIES
        from litebert.text.tokenizer import Tokenizer

        tokenizer = Tokenizer(tokenizer._backend, FAMILIES["xlnet"], {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"})
    items = [*examples(PAIRS), Example(key="9", first="the " * 20, second="a", target=1, negatives=("of it", "key"))]
    inputs = EMBED.encode(items, tokenizer, EncodingSettings(length=12))
    texts = [text for item in items for text in (item.first, item.second, *item.negatives)]
    wanted = [tokenizer.encode(text, max_length=12) for text in texts]
    assert inputs.items.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 5]
    for row, one in enumerate(wanted):
        at = slice(inputs.starts[row], inputs.starts[row + 1])
        assert inputs.ids[at].tolist() == one.ids and inputs.segments[at].tolist() == one.segments


def test_the_contrast_leaves_out_what_is_neither_right_nor_wrong():
    torch.manual_seed(0)
    items = examples(PAIRS)
    items[1] = Example(key="1", first="a dog", second="dog in", target=1, negatives=("cat was", "good"))
    items[4] = Example(key="4", first="hen", target=1)  # no partner: it takes part in nothing
    counts = [2, 4, 2, 2, 1]
    inputs = type("Inputs", (), {"of_items": lambda self, n: np.cumsum([0, *counts])})()
    labels = torch.from_numpy(EMBED.targets(items, inputs, 0).labels)
    assert labels.shape == (5, 4) and labels[0, 0] == labels[2, 0] and labels[1, 1] == labels[3, 1]
    assert (labels[4] == IGNORED).tolist() == [False, True, True, True]
    vectors = F.normalize(torch.randn(5, 4, 8, dtype=torch.float32), dim=-1)
    cosines = {(a, b): 10 * float(vectors[a] @ vectors[b]) for a in np.ndindex(5, 4) for b in np.ndindex(5, 4)}
    # By hand: pairs 0 and 2 share their first text, 1 and 3 their second; "cat was" is a partner of "the cat".
    forward = {
        0: [(0, 1), (1, 1), (3, 1), (1, 3)],
        1: [(1, 1), (0, 1), (2, 1), (1, 2), (1, 3)],
        2: [(2, 1), (1, 1), (3, 1), (1, 2), (1, 3)],
        3: [(3, 1), (0, 1), (2, 1), (1, 2), (1, 3)],
    }
    back = {0: [(0, 0), (1, 0), (3, 0)], 1: [(1, 0), (0, 0), (2, 0)], 2: [(2, 0), (1, 0), (3, 0)]}
    back[3] = [(3, 0), (0, 0), (2, 0)]

    def loss(place, table):
        return sum(
            math.log(sum(math.exp(cosines[(unit, place), other]) for other in answers))
            - cosines[(unit, place), answers[0]]
            for unit, answers in table.items()
        )

    found = pair_loss(vectors, {"labels": labels}, 10.0)
    assert float(found.loss) == pytest.approx((loss(0, forward) + loss(1, back)) / 2, rel=1e-5)
    best = sum(
        max(answers, key=lambda other: cosines[(unit, 0), other]) == answers[0] for unit, answers in forward.items()
    )
    assert int(found.right) == best


def test_scores_are_a_regression_of_cosines():
    items = [Example(key=str(n), first="a", second="b", target=float(n)) for n in range(6)]
    inputs = type("Inputs", (), {"of_items": lambda self, n: np.arange(n + 1) * 2})()
    values = torch.from_numpy(EMBED.targets(items, inputs, 0).values)
    assert values.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    spec = EMBED.described_by(TaskSpec(kind="embed"), items)
    assert spec.score_range == (0.0, 5.0)
    vectors = F.normalize(torch.randn(6, 2, 4), dim=-1)
    cosines = (vectors[:, 0] * vectors[:, 1]).sum(-1)
    padded = torch.cat([values, torch.tensor([math.nan])]), torch.cat([vectors, torch.zeros(1, 2, 4)])
    found = pair_loss(padded[1], {"values": padded[0]}, 1.0)
    assert float(found.loss) == pytest.approx(float((cosines - values).square().sum()), rel=1e-5)
    predicted = EMBED.decode(items, inputs, HeadScores(vectors.view(12, 4).numpy()), spec)
    assert [one.label for one in predicted] == pytest.approx((5 * cosines).tolist(), abs=1e-5)
    assert EMBED.chance_loss(items, inputs, 0) == pytest.approx(np.var(values.numpy()))


def test_ranks_are_among_different_texts_and_other_right_answers_do_not_count():
    rng = np.random.default_rng(0)
    items = examples([(f"q{n // 2}", f"a{n % 7}") for n in range(12)])
    table = {text: rng.normal(size=6) for text in sorted({text for item in items for text in item.texts})}
    vectors = np.stack([table[text] for item in items for text in item.texts]).astype(np.float32)
    inputs = type("Inputs", (), {"of_items": lambda self, n: np.arange(n + 1) * 2})()
    found = EMBED.decode(items, inputs, HeadScores(vectors), TaskSpec(kind="embed"))
    for item, one in zip(items, found, strict=True):
        right = {other.second for other in items if other.first == item.first}
        near = {text: _cosine(table[item.first], table[text]) for text in {other.second for other in items}}
        assert one.rank == 1 + sum(near[text] > near[item.second] for text in near if text not in right)
    figures = EMBED.evaluate(EMBED.default_metrics, items, found, 0)
    ranks = [one.rank for one in found]
    assert figures["mrr"] == pytest.approx(np.mean([1 / rank for rank in ranks]))
    assert figures["recall_at_1"] == pytest.approx(np.mean([rank == 1 for rank in ranks]))


def _cosine(one, other):
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


def test_columns_of_pairs_scores_and_negatives():
    def columns(rows, **words):
        from litebert.data.tables import read_table

        return find_columns(read_table(rows), kind="embed", **words)

    two = columns({"frage": ["was", "wer"], "antwort": ["das", "der"]})
    assert two.texts == (("frage",), ("antwort",)) and not two.labels and not two.options
    scored = columns({"sentence1": ["a", "b"], "sentence2": ["c", "d"], "score": ["1.0", "2.5"]})
    assert scored.texts == (("sentence1",), ("sentence2",)) and scored.labels == ("score",)
    hard = columns({"query": ["a", "b"], "positive": ["c", "d"], "negative": ["e", "f"], "negative_2": ["g", "h"]})
    assert hard.texts == (("query",), ("positive",)) and hard.options == ("negative", "negative_2")
    named = columns({"x": ["a"], "y": ["b"], "z": ["c"], "n": [1]}, text="x,z", label="n")
    assert named.texts == (("x",), ("z",)) and named.labels == ("n",)
    with pytest.raises(InputError, match="which"):
        columns({"x": ["a b c d", "e"], "y": ["b c d e", "f"], "z": ["c d e f", "g"]})
    with pytest.raises(InputError, match="two texts"):
        columns({"x": ["a"], "y": ["b"]}, text="x")


def test_rows_that_cannot_be_pairs_are_told_which():
    with pytest.raises(InputError, match="lacks one of the two texts"):
        read_task(None, {"a": ["one", "two"], "b": ["three", ""]}, kind="embed", whole=True)
    with pytest.raises(InputError, match="not a number"):
        read_task(None, {"a": ["x"], "b": ["y"], "c": ["high"]}, text="a,b", label="c", kind="embed", whole=True)
    with pytest.raises(InputError, match="give the second ones"):
        EMBED.item_of("alone", "0", TaskSpec(kind="embed"))


def test_a_batch_has_its_units_in_order_whatever_the_lengths(source):
    items = examples([("the " * n, "a " * (9 - n)) for n in range(1, 9)])
    inputs = EMBED.encode(items, source.tokenizer, EncodingSettings(length=16))
    targets = EMBED.targets(items, inputs, 0)
    batches = TaskBatches(inputs, targets, batch=8, choosing=True)
    batch = batches.batch(0, 0)
    sizes = np.diff(batch.starts)
    assert (np.diff(sizes) <= 0).all()  # neighbours of one length, for the CPU
    grid = np.zeros(16, np.int64)
    grid[batch.cells] = sizes
    assert all(first + second == 13 for first, second in grid.reshape(8, 2))  # nine words and four special tokens


def test_from_pairs_to_a_folder_of_vectors(source, tmp_path):
    model = toy.make_model(tmp_path / "toy")
    settings = toy.settings(model, tmp_path / "run", epochs=12, scores=1, batch=64)
    data = toy.task("embed")
    result = finetune(settings, data)
    found = litebert.load(tmp_path / "run", device="cpu")
    before = EMBED.evaluate(("mrr",), data.dev["dev"], _predicted(model, data.dev["dev"]), 0)["mrr"]
    assert result.figures["mrr"] > before + 0.2, (before, result.figures)
    assert found.task.kind == "embed" and set(found.heads) <= {"pooler"}
    vectors = found.encode(["the cat dog", "cat dog was", "a fox hen"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(3), abs=1e-5)
    [one, pair] = [found.predict("the cat dog", "cat dog was"), found.predict([("the cat dog", "a fox hen")])[0]]
    assert one.label == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert pair.label == pytest.approx(float(vectors[0] @ vectors[2]), abs=1e-5)
    rows = [(item.first, item.second) for item in data.dev["dev"]]
    assert found.evaluate(rows).scores == pytest.approx(result.figures, abs=1e-6)
    scored = {"a": [a for a, _ in rows[:9]], "b": [b for _, b in rows[:9]], "n": list(range(9))}
    assert set(found.evaluate(scored, text="a,b", label="n").scores) == {"spearman", "pearson"}
    modules = json.loads((tmp_path / "run/model/modules.json").read_text())
    assert [one["type"].rpartition(".")[2] for one in modules] == ["Transformer", "Pooling", "Normalize"]
    assert json.loads((tmp_path / "run/model/1_Pooling/config.json").read_text())["pooling_mode_mean_tokens"]
    found.export(tmp_path / "small", bits=32)
    small = litebert.load(tmp_path / "small")
    assert small.predict(rows[:3])[0].label == pytest.approx(found.predict(rows[:3])[0].label, abs=1e-4)
    assert small.encode("the cat dog") == pytest.approx(vectors[0], abs=1e-4)
    litebert.api.convert(tmp_path / "run", tmp_path / "half", dtype="bfloat16")
    half = litebert.load(tmp_path / "half", device="cpu")
    assert half.task.kind == "embed" and float(half.encode("the cat dog") @ vectors[0]) > 0.99


def _predicted(model, items):
    loaded = load_model(model)
    inputs = EMBED.encode(items, loaded.tokenizer, EncodingSettings(length=32))
    found = litebert.load(model, device="cpu").encode([text for item in items for text in (item.first, item.second)])
    return EMBED.decode(items, inputs, HeadScores(found), TaskSpec(kind="embed"))


def test_transformers_makes_the_same_vectors(source, tmp_path):
    transformers = pytest.importorskip("transformers")
    settings = toy.settings(toy.make_model(tmp_path / "toy", "albert"), tmp_path / "run", steps=2, scores=1)
    finetune(settings, toy.task("embed", 64))
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "run/model").eval()
    found = litebert.load(tmp_path / "run", device="cpu")
    ids = torch.tensor([found.tokenizer.encode("the cat was good").ids])
    with torch.no_grad():
        states = theirs(ids).last_hidden_state[0].mean(0)
    assert found.encode("the cat was good") == pytest.approx(F.normalize(states, dim=0).numpy(), abs=1e-5)


def test_the_head_less_objective_counts_pairs(source):
    data = toy.task("embed", 16)
    inputs = EMBED.encode(data.train, source.tokenizer, EncodingSettings(length=32))
    targets = EMBED.targets(data.train, inputs, 0)
    batch = TaskBatches(inputs, targets, batch=16, choosing=True).batch(0, 0)
    own = TaskObjective("embed", inputs.longest, options=2)
    part = own.parts(source.network, own.tensors(batch, torch.device("cpu")))["task"]
    assert own.counts(batch) == {"task": 16}
    assert 0 < float(part.loss.detach()) / 16 < EMBED.chance_loss(data.train, inputs, 16) + 1


def test_filling_changes_neither_loss_nor_gradients(source):
    """As for CUDA graphs, whose batches have few shapes."""
    items = [
        *toy.task("embed", 20).train,
        Example(key="x", first="the cat", second="cat", target=1, negatives=("hen",)),
    ]
    inputs = EMBED.encode(items, source.tokenizer, EncodingSettings(length=32))
    targets = EMBED.targets(items, inputs, 0)
    found = []
    for filled in (False, True):
        batch = TaskBatches(inputs, targets, batch=32, seed=1, filled=filled, choosing=True).batch(0, 0)
        own = TaskObjective("embed", inputs.longest, options=3)
        source.network.zero_grad()
        part = own.parts(source.network, own.tensors(batch, torch.device("cpu")))["task"]
        part.loss.backward()
        gradient = source.network.encoder.embeddings.token.weight.grad.clone()
        found.append((float(part.loss.detach()), int(part.right), gradient))
        assert batch.num_units == 21 and (len(batch.ids) > batch.num_tokens) == filled
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-5) and found[0][1] == found[1][1]
    assert torch.allclose(found[0][2], found[1][2], atol=1e-4)
