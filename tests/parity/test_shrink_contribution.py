"""What layers do to a text, against a plain loop over what ``transformers`` gives out; in every family."""

from itertools import pairwise

import pytest
import torch

from litebert.analyse.inputs import Inputs
from litebert.analyse.layer_statistics import attention_weights, contribution
from litebert.checkpoints.folder import load_model
from litebert.nn.layout import Layout
from litebert.shrinking.strategies import drop_similar

FAMILIES = ["albert", "bert", "roberta", "distilbert", "xlnet"]
LENGTHS = [[5, 9], [17, 3, 3], [30]]


def some_inputs(lengths: list[int], seed: int) -> Inputs:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(7, 60, (sum(lengths),), generator=generator)
    segments = torch.cat([(torch.arange(n) >= n // 2).long() for n in lengths])
    return Inputs(ids, Layout.of(lengths), segments)


def each_text(inputs: Inputs, family: str):
    """The texts of a batch, one by one, as arguments of the reference."""
    lengths = inputs.layout.lengths.tolist()
    for ids, segments in zip(inputs.ids.split(lengths), inputs.segments.split(lengths), strict=True):
        extra = {"token_type_ids": segments[None]} if family in ("albert", "bert", "xlnet") else {}
        yield {"input_ids": ids[None], **extra}


def plain_loop(model, family: str, batches: list[Inputs]) -> list[float]:
    """The paper's measure: mean cosine of [CLS] before and after each layer, over all texts."""
    place = -1 if family == "xlnet" else 0
    rows = []
    for inputs in batches:
        for arguments in each_text(inputs, family):
            states = model(**arguments, output_hidden_states=True).hidden_states
            cls = [depth[0, place] for depth in states]
            pairs = pairwise(cls)
            rows.append([float(torch.cosine_similarity(before, after, dim=0)) for before, after in pairs])
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("family", FAMILIES)
def test_contribution_picks_the_layers_that_a_plain_loop_picks(family, reference, saved):
    depth = {"distilbert": "n_layers", "xlnet": "n_layer"}.get(family, "num_hidden_layers")
    theirs = reference(family, **{depth: 7})
    encoder = load_model(saved(theirs)).network.encoder
    batches = [some_inputs(lengths, seed) for seed, lengths in enumerate(LENGTHS)]
    if family == "roberta":
        for inputs in batches:
            inputs.segments.zero_()
    with torch.no_grad():
        expected = plain_loop(theirs, family, batches)
    found = contribution(encoder, batches)
    assert found == pytest.approx(expected, abs=1e-5)
    for count in range(1, 7):
        plain = sorted(range(1, 8), key=lambda layer: -expected[layer - 1])[:count]
        assert drop_similar(found, count) == tuple(sorted(plain))


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_weights_are_those_of_transformers(family, reference, saved):
    theirs = reference(family)
    encoder = load_model(saved(theirs)).network.encoder
    inputs = some_inputs([5, 17, 9], 0)
    if family == "roberta":
        inputs.segments.zero_()
    with torch.no_grad():
        states = encoder.states(inputs.ids, inputs.layout, inputs.segments)
        expected = [theirs(**one, output_attentions=True).attentions for one in each_text(inputs, family)]
        for depth, (block, _) in enumerate(encoder.plan):
            weights = attention_weights(encoder.attention[block], states[depth], inputs)
            for text, length in enumerate(inputs.layout.lengths.tolist()):
                found = weights[text, :, :length, :length]
                assert (found - expected[text][depth][0]).abs().max() < 1e-5, (depth, text)
                assert weights[text, :, :, length:].abs().max() == 0 if length < 17 else True
