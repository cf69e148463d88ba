"""The criterion of greedy dropping: real losses of the layers kept, the same masks every time."""

import pytest
import torch
import torch.nn.functional as F

from litebert.analyse.inputs import batches, text_lines
from litebert.checkpoints.folder import load_model
from litebert.shrinking.choose import Criterion
from litebert.shrinking.drop import drop_layers


@pytest.fixture
def made(model_folder, text):
    """A criterion for a model of a family, with what it was made of."""

    def make(family: str, **how: object):
        loaded = load_model(model_folder(family, **how))
        config = loaded.network.config.encoder
        sample = list(batches(text_lines([str(text)]), loaded.tokenizer, config))
        return Criterion(loaded.network, loaded.tokenizer, sample), loaded, sample

    return make


@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "distilbert", "xlnet"])
def test_only_layers_that_do_something_change_the_loss(family, made):
    criterion, _, _ = made(family, idle=(2, 5), share="none")
    assert criterion.predicts
    whole = criterion(range(1, 7))
    assert criterion((1, 3, 4, 6)) == pytest.approx(whole, abs=1e-4)
    for busy in (1, 3, 4, 6):
        assert abs(criterion([layer for layer in range(1, 7) if layer != busy]) - whole) > 1e-3


def test_the_loss_is_that_of_the_written_model(made):
    criterion, loaded, sample = made("bert")
    again = Criterion(loaded.network, loaded.tokenizer, sample)
    small = drop_layers(loaded.network, (1, 4, 6))
    total, count = 0.0, 0
    with torch.no_grad():
        for inputs, places, targets in criterion._masked:
            states = small.encoder(inputs.ids, inputs.layout, inputs.segments)
            total += float(F.cross_entropy(small.masked_lm(states, places), targets, reduction="sum"))
            count += len(targets)
    assert criterion((1, 4, 6)) == again((1, 4, 6)) == pytest.approx(total / count, rel=1e-5)


def test_masks_are_a_share_of_the_text_and_never_special_tokens(made):
    criterion, loaded, sample = made("bert")
    special = {loaded.tokenizer.cls_id, loaded.tokenizer.sep_id}
    tokens = sum(len(one.ids) - 2 * one.texts for one in sample)
    masked = sum(len(targets) for _, _, targets in criterion._masked)
    assert not special & {int(id) for _, _, targets in criterion._masked for id in targets}
    assert 0.1 * tokens < masked < 0.2 * tokens
    for inputs, places, _ in criterion._masked:
        assert set(inputs.ids[places].tolist()) == {loaded.tokenizer.mask_id}


def test_equal_models_are_measured_once(made):
    criterion, loaded, _ = made("albert", num_groups=2)
    runs = 0
    forward = loaded.network.encoder.forward

    def counting(*arguments, **named):
        nonlocal runs
        runs += 1
        return forward(*arguments, **named)

    loaded.network.encoder.forward = counting
    first = criterion((1, 2, 4))
    before = runs
    assert criterion((2, 3, 6)) == first and runs == before
    assert criterion((1, 4, 5)) != first and runs > before
