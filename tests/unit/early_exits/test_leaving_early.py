"""Answers of inputs that leave early: alone, in batches that shrink, and in a buffer where every row has its depth."""

import random

import numpy as np
import pytest
import torch

import litebert as library
from litebert.early_exits import predict as predict_module
from litebert.early_exits.continuous import BufferSize, ContinuousBatcher, fitting_size
from litebert.early_exits.heads import ExitRule, Leaver
from litebert.early_exits.predict import ExitPredictor
from litebert.nn.layout import Layout
from litebert.tasks.encoding import token_batches
from litebert.tasks.examples import Example
from litebert.tasks.kinds import KINDS

LAST = 4
NOISE = {"atol": 2e-4, "rtol": 2e-4}


def texts_of(count: int, longest: int = 12) -> list[str]:
    draw = random.Random(3)
    return ["".join(draw.choice("abcdefgh") for _ in range(draw.randint(1, longest))) for _ in range(count)]


@pytest.fixture
def predictor(model, toy_exits):
    """A predictor with heads of random weights that leave at all depths."""

    def make(kind: str = "classify", family: str = "albert", rule: ExitRule | None = None) -> ExitPredictor:
        loaded = library.load(model(kind, family), device="cpu")
        loaded.exits = toy_exits(kind)
        found = loaded.predictor(exits=True)
        assert isinstance(found, ExitPredictor)
        found.rule = (
            rule
            or {
                "classify": ExitRule(rule="confidence", value=0.97),
                "multilabel": ExitRule(rule="confidence", value=0.75),
                "regress": ExitRule(rule="patience", value=2, tolerance=10.0 if family == "bert" else 4.0),
            }[kind]
        )
        return found

    return make


def encoded(predictor, texts):
    items = [Example(key=str(number), first=text) for number, text in enumerate(texts)]
    return KINDS[predictor.note.kind].encode(items, predictor.tokenizer, predictor.note.encoding())


def answers_by_hand(predictor, texts):
    """Scores and depths from all states of one text after another."""
    inputs = encoded(predictor, texts)
    network, exits = predictor.network, predictor.exits
    found, depths = [], []
    for row in range(len(inputs)):
        at = slice(inputs.starts[row], inputs.starts[row + 1])
        ids, segments = (torch.from_numpy(part[at]).long() for part in (inputs.ids, inputs.segments))
        layout = Layout.of([len(ids)])
        with torch.no_grad():
            states = network.encoder.states(ids, layout, segments)[1:]
            own = network.heads["classify"](network.pooled(states[-1], layout))[0]
        pooled = -1 if network.config.encoder.pooled_token == "last" else 0
        seen = [torch.cat([one[pooled], one.mean(0)]) for one in states[:-1]]
        scores = [x @ weight + bias for x, weight, bias in zip(seen, exits.weight, exits.bias, strict=False)] + [own]
        leaver = Leaver(predictor.rule, predictor.note.kind, LAST, 1)
        depth = next(
            depth
            for depth in range(1, LAST + 1)
            if leaver.leave(np.array([0]), scores[depth - 1][None].numpy(), np.array([depth]))[0]
        )
        found.append(scores[depth - 1])
        depths.append(depth)
    return torch.stack(found), depths


@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "xlnet"])
@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
def test_an_input_leaves_where_its_states_say(predictor, kind, family):
    asked, texts = predictor(kind, family), texts_of(40)
    scores, depths = answers_by_hand(asked, texts)
    found = asked.scores(encoded(asked, texts)).scores
    assert asked.depths.tolist() == depths and len(set(depths)) > 1
    torch.testing.assert_close(torch.from_numpy(found), scores, **NOISE)


@pytest.mark.parametrize("family", ["albert", "bert"])
def test_on_a_cpu_an_answer_has_the_same_bits_alone_and_among_others(predictor, family):
    asked, texts = predictor(family=family), texts_of(30)
    together = asked.scores(encoded(asked, texts)).scores
    depths = asked.depths.copy()
    for number, text in enumerate(texts):
        alone = asked.scores(encoded(asked, [text])).scores
        assert np.array_equal(alone[0], together[number]) and asked.depths[0] == depths[number]


def test_an_input_that_never_leaves_has_the_answer_of_the_whole_model(model, toy_exits):
    loaded = library.load(model(), device="cpu")
    loaded.exits = toy_exits()
    texts = texts_of(8)
    assert [loaded.predict(text, exits=LAST) for text in texts] == [loaded.predict(text) for text in texts]


@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "xlnet"])
def test_batches_that_shrink_give_the_same_within_noise(predictor, family, monkeypatch):
    asked, texts = predictor(family=family), texts_of(40)
    inputs = encoded(asked, texts)
    alone, depths = asked.scores(inputs).scores, asked.depths.copy()
    monkeypatch.setattr(predict_module, "_batches", lambda inputs, device: token_batches(inputs.lengths, 100))
    packed = asked.scores(inputs).scores
    assert asked.depths.tolist() == depths.tolist() and len(set(depths)) > 1
    torch.testing.assert_close(torch.from_numpy(packed), torch.from_numpy(alone), **NOISE)


@pytest.mark.parametrize(
    "size",
    [
        BufferSize(tokens=40, entering=16, rows=5, longest=16),
        BufferSize(tokens=64, entering=64, rows=2, longest=16),
        BufferSize(tokens=16, entering=16, rows=9, longest=16),
        BufferSize(tokens=2048, entering=1024, rows=128, longest=64),
    ],
)
@pytest.mark.parametrize("kind", ["classify", "regress"])
def test_a_buffer_gives_the_same_as_one_at_a_time(predictor, kind, size):
    asked, texts = predictor(kind), texts_of(60)
    inputs = encoded(asked, texts)
    alone, depths = asked.scores(inputs).scores, asked.depths.copy()
    engine = ContinuousBatcher(asked.network, asked.exits, kind, size)
    for _ in range(2):  # an engine can be used again
        found, left = np.zeros_like(alone), np.zeros_like(depths)
        for rows, scores, layers in engine.run(inputs, Leaver(asked.rule, kind, LAST, len(inputs))):
            assert not left[rows].any()
            found[rows], left[rows] = scores, layers
        assert left.tolist() == depths.tolist() and len(set(depths)) > 1
        torch.testing.assert_close(torch.from_numpy(found), torch.from_numpy(alone), **NOISE)


def test_in_half_precision_a_buffer_gives_the_same_within_noise(predictor):
    asked = predictor()
    inputs = encoded(asked, texts_of(60))
    exact, depths = asked.scores(inputs).scores, asked.depths.copy()
    engine = ContinuousBatcher(asked.network, asked.exits, "classify", fitting_size(inputs), "bf16")
    assert all(lane.states.dtype == torch.bfloat16 for lane in engine.lanes)
    assert {parameter.dtype for parameter in asked.network.parameters()} == {torch.float32}  # it has a copy
    for rows, scores, layers in engine.run(inputs, Leaver(asked.rule, "classify", LAST, len(inputs))):
        same = layers == depths[rows]
        assert same.mean() > 0.8 and np.abs(scores[same] - exact[rows[same]]).max() < 0.5


def test_rows_enter_a_buffer_in_their_order_once_they_have_arrived(predictor):
    asked = predictor(rule=ExitRule(rule="depth", value=2))
    inputs = encoded(asked, texts_of(30))
    engine = ContinuousBatcher(
        asked.network, asked.exits, "classify", BufferSize(tokens=32, entering=16, rows=3, longest=16)
    )
    there, asks = 0, 0

    def arrived() -> int:
        nonlocal there, asks
        asks += 1
        there = min(30, asks // 3)
        return there

    order: list[int] = []
    for rows, _, layers in engine.run(inputs, Leaver(asked.rule, "classify", LAST, 30), arrived):
        assert rows.max() < there and (layers == 2).all()
        order += rows.tolist()
    assert sorted(order) == list(range(30)) and asks > 60
    late = [number - place for place, number in enumerate(order)]
    assert max(late) <= 6  # nobody overtakes more than the other lane's rows


def test_sizes_of_buffers_are_few_and_fit(predictor):
    asked = predictor()
    sizes = {fitting_size(encoded(asked, texts_of(count))) for count in (1, 10, 100, 3000, 4000)}
    assert len(sizes) <= 3 and all(size.longest >= 14 and size.tokens >= 1024 for size in sizes)


@pytest.mark.gpu
def test_on_a_gpu_a_recorded_buffer_gives_the_same_within_noise(predictor):
    asked = predictor()
    asked.network.to("cuda")
    asked.device, asked.exits = torch.device("cuda"), asked.exits.to("cuda")
    inputs = encoded(asked, texts_of(500))
    exact = asked.scores(inputs).scores  # fp32: packed batches that shrink
    depths = asked.depths.copy()
    asked.precision = "bf16"
    for compiled in (False, True):
        asked.compiled, asked.cache = compiled, predict_module.EngineCache()
        found = asked.scores(inputs).scores
        assert len(asked.cache.engines) == 1  # it did run in a buffer
        same = asked.depths == depths
        assert same.mean() > 0.9 and len(set(depths)) > 1
        assert np.abs(found[same] - exact[same]).mean() < 0.1
        again = asked.scores(inputs).scores
        assert np.array_equal(found, again)
