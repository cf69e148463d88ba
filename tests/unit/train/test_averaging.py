"""An average of the weights: what it averages, that training does not notice, and that it is put back exactly."""

import pytest
import torch
from toy_trainer import make, same

from litebert.errors import InputError
from litebert.train.averaging import WeightAverage
from litebert.train.callbacks import Callback, SaveStates
from litebert.train.settings import AverageSettings

BIAS = "pooler.dense.bias"


class Seen(Callback):
    """Remembers the bias that is trained after each step."""

    def __init__(self):
        self.biases = []

    def on_step(self, trainer):
        self.biases.append(trainer.network.state_dict()[BIAS].clone())


def averaged(trainer, average) -> dict[str, torch.Tensor]:
    with average.in_place():
        return {name: tensor.clone() for name, tensor in trainer.network.state_dict().items()}


def trained(kind: str, span: float, *callbacks, steps=6):
    seen = Seen()
    trainer = make(seen, *callbacks, steps=steps)
    average = WeightAverage(trainer.network, AverageSettings(kind=kind, span=span))
    trainer.callbacks.append(average)
    return trainer, average, seen


def test_a_uniform_average_is_the_mean_of_the_last_steps():
    trainer, average, seen = trained("uniform", 0.5)
    trainer.fit()
    torch.testing.assert_close(averaged(trainer, average)[BIAS], torch.stack(seen.biases[3:]).mean(0))


def test_an_exponential_one_forgets_at_its_span():
    trainer, average, seen = trained("ema", 0.25)
    trainer.fit()
    kept, expected = float(torch.exp(torch.tensor(-1 / 6 / 0.25))), seen.biases[0]
    for bias in seen.biases[1:]:
        expected = kept * expected + (1 - kept) * bias
    torch.testing.assert_close(averaged(trainer, average)[BIAS], expected)


def test_training_does_not_notice():
    trainer, average, _ = trained("ema", 0.2)
    plain = make()
    plain.fit()
    for _ in trainer:
        averaged(trainer, average)
    assert same(plain, trainer)
    averages = averaged(trainer, average)
    assert not torch.equal(averages[BIAS], trainer.network.state_dict()[BIAS])


@pytest.mark.parametrize("kind", ["ema", "uniform"])
def test_it_continues_exactly(kind, tmp_path):
    whole, average, _ = trained(kind, 0.6)
    whole.fit()
    cut, _, _ = trained(kind, 0.6, SaveStates(tmp_path, {}, seconds=1e9))
    for step in cut:
        if step.step == 4:
            break
    saver = SaveStates(tmp_path, {}, seconds=1e9)
    rest, again, _ = trained(kind, 0.6, saver)
    assert saver.restore(rest) and rest.state.step == 4
    rest.fit()
    ours, theirs = averaged(whole, average), averaged(rest, again)
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_scores_have_both():
    trainer, average, _ = trained("ema", 0.5)

    def evaluate(sums, objective):
        return {"loss": float(trainer.network.state_dict()[BIAS].sum()), "depth": 3}

    trainer.evaluate = average.scored_too(evaluate)
    assert set(trainer.evaluate(None, None)) == {"loss", "depth"}
    result = trainer.fit()
    assert set(result.held_out) == {"loss", "depth", "averaged_loss"}
    assert result.held_out["averaged_loss"] == pytest.approx(float(averaged(trainer, average)[BIAS].sum()))
    assert result.held_out["averaged_loss"] != result.held_out["loss"]


@pytest.mark.parametrize("fields", [{"kind": "emma"}, {"kind": "ema", "span": 0.0}, {"kind": "ema", "span": 1.5}])
def test_settings_are_checked(fields):
    with pytest.raises(InputError, match="averaging"):
        AverageSettings(**fields)
