"""Exported graphs compute what the torch network computes: every family, every head, every depth, padded or not."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from litebert.early_exits.heads import ExitRule, depths_left_at
from litebert.nn.config import EncoderConfig, family_config
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.pooling import pool

ort = pytest.importorskip("onnxruntime", reason="litebert[runtime] is not installed")
pytest.importorskip("onnx", reason="litebert[export] is not installed")

from litebert.exporting.graph import Arithmetic  # noqa: E402
from litebert.exporting.network import ExitHeads, is_loop, standard_model, text_model  # noqa: E402

CLOSE = 1e-4
FAMILIES = ("albert", "bert", "roberta", "distilbert", "electra", "xlnet")
IDS = [[2, 17, 44, 5, 3], [2, 9, 60, 61, 62, 8, 30, 3], [2, 3]]
SEGMENTS = [[0, 0, 1, 1, 1], [0] * 8, [0, 1]]


def encoder_config(family: str, **fields: object) -> EncoderConfig:
    small = {"vocab_size": 70, "width": 24, "num_layers": 3, "num_heads": 3, "feed_forward_width": 40}
    widths = {"embedding_width": 16} if family in ("albert", "electra") else {}
    return family_config({"family": family, "max_positions": 20, **small, **widths, **fields})


def network_of(encoder: EncoderConfig, *names: str, labels: int = 3, answerable: bool = False) -> Network:
    torch.manual_seed(3)
    heads = HeadsConfig(names=names, labels=tuple(map(str, range(labels))), answerable=answerable)  # type: ignore[arg-type]
    network = Network(NetworkConfig(encoder=encoder, heads=heads)).eval()
    with torch.no_grad():  # so that every bias and norm counts
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return network


def weights_of(network: Network) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in network.state_dict().items()}


def session(model) -> object:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def fed(model, number: int, **more: np.ndarray) -> dict[str, np.ndarray]:
    names = {one.name for one in model.graph.input}
    inputs = {"input_ids": np.array(IDS[number]), "segments": np.array(SEGMENTS[number]), **more}
    return {name: value for name, value in inputs.items() if name in names}


def segments_of(network: Network, number: int) -> torch.Tensor | None:
    encoder = network.config.encoder
    takes = encoder.num_segments > 1 or encoder.positions == "relative"
    return torch.tensor(SEGMENTS[number]) if takes else None


@torch.no_grad()
def torch_states(network: Network, number: int, depth: int | None = None) -> tuple[torch.Tensor, Layout]:
    layout = Layout.of([len(IDS[number])])
    return network.encoder(torch.tensor(IDS[number]), layout, segments_of(network, number), depth=depth), layout


@pytest.mark.parametrize("family", FAMILIES)
@torch.no_grad()
def test_states_and_vectors_of_a_text(family):
    network = network_of(encoder_config(family))
    model = text_model(network.config, weights_of(network), Arithmetic(bits=32))
    run = session(model)
    for number in range(len(IDS)):
        states, layout = torch_states(network, number)
        found = run.run(["states", "mean", "first", "pooled"], fed(model, number))
        for one, way in zip(found[1:], ("mean", "first", "pooler"), strict=True):
            np.testing.assert_allclose(one, pool(network, states, layout, way)[0], atol=CLOSE)
        np.testing.assert_allclose(found[0], states, atol=CLOSE)


@pytest.mark.parametrize("depth", range(4))
def test_a_shared_block_runs_to_any_depth(depth):
    network = network_of(encoder_config("albert"))
    model = text_model(network.config, weights_of(network), Arithmetic(bits=32))
    assert [node.op_type for node in model.graph.node].count("Loop") == 1
    [found] = session(model).run(["states"], fed(model, 1, depth=np.array(depth)))
    np.testing.assert_allclose(found, torch_states(network, 1, depth)[0], atol=CLOSE)


@pytest.mark.parametrize(
    "fields", [{"share": "attention"}, {"share": "ffn"}, {"num_groups": 3}, {"layers_per_group": 3}], ids=str
)
def test_other_plans_store_a_shared_weight_once(fields):
    network = network_of(encoder_config("albert", **fields))
    assert not is_loop(network.config.encoder)
    model = text_model(network.config, weights_of(network), Arithmetic(bits=32))
    stored = [one.name for one in model.graph.initializer if "qkv.weight" in one.name]
    assert len(stored) == network.config.encoder.num_attention_blocks
    [found] = session(model).run(["states"], fed(model, 0))
    np.testing.assert_allclose(found, torch_states(network, 0)[0], atol=CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("head", ["classify", "choice", "order", "span", "masked_lm"])
@torch.no_grad()
def test_heads(family, head):
    network = network_of(encoder_config(family), head, answerable=head == "span")
    model = text_model(network.config, weights_of(network), Arithmetic(bits=32))
    names = {one.name for one in model.graph.output}
    if head == "masked_lm" and family == "xlnet":  # it predicts from a second stream, which is not exported
        assert "tokens" not in names
        return
    states, layout = torch_states(network, 1)
    run, part = session(model), network.heads[head]
    if head == "masked_lm":
        places = np.array([2, 5])
        [found] = run.run(["tokens"], fed(model, 1, positions=places))
        np.testing.assert_allclose(found, network.masked_lm(states, torch.from_numpy(places)), atol=CLOSE)
    elif head == "span":
        start, end, sure = run.run(["start", "end", "answerable"], fed(model, 1))
        for one, other in zip((start, end), part(states), strict=True):
            np.testing.assert_allclose(one, other, atol=CLOSE)
        np.testing.assert_allclose(sure, part.has_answer(states, layout), atol=CLOSE)
    else:
        pooled = network.pooled(states, layout)
        expected = part(pooled, 1) if head == "choice" else part(pooled)
        [found] = run.run(["order" if head == "order" else "logits"], fed(model, 1))
        np.testing.assert_allclose(found, expected[0], atol=CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_padded_batches_with_the_usual_names(family, side):
    network = network_of(encoder_config(family), "classify")
    model = standard_model(network.config, weights_of(network), Arithmetic(bits=32))
    if side == "left" and network.config.encoder.pooled_token == "first":
        return  # positions count from the first column, so padding belongs on the right of these
    longest = max(map(len, IDS))
    cells = {
        name: np.zeros((len(IDS), longest), np.int64) for name in ("input_ids", "attention_mask", "token_type_ids")
    }
    for row, ids in enumerate(IDS):
        at = slice(longest - len(ids), longest) if side == "left" else slice(0, len(ids))
        cells["input_ids"][row, at] = ids
        cells["token_type_ids"][row, at] = SEGMENTS[row]
        cells["attention_mask"][row, at] = 1
    names = {one.name for one in model.graph.input}
    states, logits = session(model).run(
        ["last_hidden_state", "logits"], {name: value for name, value in cells.items() if name in names}
    )
    for row, ids in enumerate(IDS):
        expected, layout = torch_states(network, row)
        at = slice(longest - len(ids), longest) if side == "left" else slice(0, len(ids))
        np.testing.assert_allclose(states[row, at], expected, atol=CLOSE)
        np.testing.assert_allclose(
            logits[row], network.heads["classify"](network.pooled(expected, layout))[0], atol=CLOSE
        )


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("activations", ["token", "tensor"])
def test_integers_are_close_to_the_network(bits, activations):
    network = network_of(encoder_config("albert", width=96, feed_forward_width=192, num_heads=4))
    model = text_model(network.config, weights_of(network), Arithmetic(bits=bits, activations=activations))
    [found] = session(model).run(["states"], fed(model, 1))
    expected = torch_states(network, 1)[0].numpy()
    error = np.abs(found - expected).mean() / np.abs(expected).mean()
    assert error < {8: 0.03, 4: 0.3}[bits]


def test_a_weight_of_the_loop_is_stored_once_in_integers():
    network = network_of(encoder_config("albert"))
    for bits, kind in ((8, "int8"), (4, "int4")):
        model = text_model(network.config, weights_of(network), Arithmetic(bits=bits))
        names = [one.name for one in model.graph.initializer]
        assert names.count(f"encoder.attention.0.qkv.{kind}") == 1
        assert not [name for name in names if name.endswith("qkv.weight")]


@pytest.mark.parametrize("kind", ["classify", "multilabel", "regress"])
@torch.no_grad()
def test_the_loop_ends_by_its_exit_rule(kind):
    network = network_of(encoder_config("albert", num_layers=4), "classify")
    random = np.random.default_rng(0)
    weight = random.normal(0, 0.3, (1, 48, 3)) + random.normal(0, 0.15, (4, 48, 3))  # heads that agree now and then
    heads = ExitHeads(weight=weight, bias=random.normal(0, 0.1, (4, 3)), kind=kind, tolerance=2.0)
    model = text_model(network.config, weights_of(network), Arithmetic(bits=32), heads)
    run = session(model)
    seen = set()
    for number in range(len(IDS)):
        layout = Layout.of([len(IDS[number])])
        states = network.encoder.states(torch.tensor(IDS[number]), layout, segments_of(network, number))[1:]
        scores = [
            np.concatenate([one[0].numpy(), one.mean(0).numpy()]) @ heads.weight[depth] + heads.bias[depth]
            for depth, one in enumerate(states[:-1])
        ]
        scores.append(network.heads["classify"](network.pooled(states[-1], layout))[0].numpy())
        rules = [ExitRule(rule="patience", value=value, tolerance=2.0) for value in (1, 2, 3)]
        if kind != "regress":
            rules += [ExitRule(rule="confidence", value=value) for value in (0.4, 0.6, 0.9)]
        for rule in rules:
            tolerant = rule if kind == "regress" else replace(rule, tolerance=0.0)
            [expected] = depths_left_at(np.stack(scores)[:, None], tolerant, kind)
            value = np.array(rule.value, np.float32 if rule.rule == "confidence" else np.int64)
            found = run.run(["exit_logits", "exit_depth"], fed(model, number, **{rule.rule: value}))
            assert int(found[1]) == expected
            np.testing.assert_allclose(found[0], scores[expected - 1], atol=1e-3)
            seen.add(int(expected))
        depth, every = run.run(["exit_depth", "exit_scores"], fed(model, number))
        assert int(depth) == 4  # off by default
        np.testing.assert_allclose(every[:-1], scores[:-1], atol=1e-3)
    assert len(seen) > 2


def test_rows_of_zeros_stay_zeros_in_integers():
    """Their scale is zero, and dividing by it must not reach the answer."""
    network = network_of(encoder_config("albert", width=96, feed_forward_width=192, num_heads=4))
    weights = weights_of(network)
    for part in ("weight", "bias"):  # the input of the projection is zero for every token, later states are not
        weights[f"encoder.embeddings.norm.{part}"] = np.zeros_like(weights[f"encoder.embeddings.norm.{part}"])
    model = text_model(network.config, weights, Arithmetic())
    [found] = session(model).run(["states"], fed(model, 1, depth=np.array(0)))
    np.testing.assert_array_equal(found, np.tile(weights["encoder.embeddings.projection.bias"], (len(IDS[1]), 1)))


def test_words_are_computed_only_where_they_are_asked_for():
    network = network_of(encoder_config("albert"), "masked_lm")
    model = text_model(network.config, weights_of(network), Arithmetic())
    run = session(model)
    assert run.run(["tokens"], fed(model, 1))[0].shape == (0, 70)
    assert run.run(["tokens"], fed(model, 1, positions=np.array([3])))[0].shape == (1, 70)
    products = [node.op_type for node in model.graph.node].count("MatMulIntegerToFloat")
    assert products == 2  # projection and pooler; those of the layer and of the words are in graphs of their own


SIGHTS = ["local(4)+global", "local(200)", "block(16)", "block(16)+global(3)", "local(4)+global,full,block(5)"]


@pytest.mark.parametrize("words", SIGHTS)
@pytest.mark.parametrize("family", ["albert", "bert"])
@torch.no_grad()
def test_a_layer_that_sees_its_neighbours_sees_the_same_in_a_file(words, family):
    network = network_of(encoder_config(family, attention=words, max_positions=400))
    arithmetic, weights = Arithmetic(bits=32), weights_of(network)
    alone, padded = (make(network.config, weights, arithmetic) for make in (text_model, standard_model))
    loops = [node.op_type for node in alone.graph.node].count("Loop")
    assert loops == (family == "albert" and words.startswith("local") and "," not in words)
    random = np.random.default_rng(0)
    texts = [random.integers(5, 70, size) for size in (1, 4, 17, 129, 130, 300)]
    states = [network.encoder(torch.tensor(one), Layout.of([len(one)]), None).numpy() for one in texts]
    run = session(alone)
    for one, expected in zip(texts, states, strict=True):
        [found] = run.run(["states"], {"input_ids": one, "segments": np.zeros_like(one)})
        np.testing.assert_allclose(found, expected, atol=CLOSE)
    mask = np.array([[1] * len(one) + [0] * (300 - len(one)) for one in texts])
    ids = np.array([[*one, *[0] * (300 - len(one))] for one in texts])
    given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
    [rows] = session(padded).run(["last_hidden_state"], given)
    for row, expected in zip(rows, states, strict=True):
        np.testing.assert_allclose(row[: len(expected)], expected, atol=CLOSE)
