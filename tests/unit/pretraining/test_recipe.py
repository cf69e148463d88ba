"""A recipe's optimiser: a pooler that is slow enough for its width. And its advice to a run that is stuck."""

import pytest
import torch
import torch.nn.functional as F

from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert.pretraining.recipe import read_recipe
from litebert.train.optimisers import build_optimiser

WIDTH = 768


def pooler_rate(width: int, *words: str) -> float:
    return read_recipe("budget", words).optimiser_for(width).part_rate("pooler")


def test_a_stuck_run_is_advised_what_its_recipe_has_not():
    assert "Try the budget recipe" in read_recipe("paper").when_stuck()
    said = read_recipe("budget", ("optimiser.rate=0.002", "optimiser.muon_rate=0.01")).when_stuck()
    assert "more time" in said and said.endswith("optimiser.rate=0.001 optimiser.muon_rate=0.005")


def test_the_pooler_s_rate_falls_with_the_width_unless_it_is_given():
    asked = "optimiser.pooler_rate_at_width=48"
    assert pooler_rate(WIDTH, asked) == 48 / WIDTH
    assert pooler_rate(2 * WIDTH, asked) == 24 / WIDTH
    assert pooler_rate(32, asked) == 1.0
    assert pooler_rate(WIDTH, "optimiser.pooler_rate_at_width=0") == 1.0
    assert pooler_rate(WIDTH, asked, "optimiser.part_rates=[[pooler,0.5],[heads,2]]") == 0.5
    assert read_recipe("paper").optimiser_for(WIDTH).part_rates == ()


@pytest.mark.parametrize(("words", "flat"), [((), False), (("optimiser.pooler_rate_at_width=0",), True)])
def test_a_wide_pooler_that_learns_nothing_yet_stays_where_it_can_learn(words, flat):
    """First tokens that are much alike and labels of a coin: what an order loss sees at the beginning of a run."""
    torch.manual_seed(0)
    shape = (f"width={WIDTH}", "num_layers=1", "feed_forward_width=64", "vocab_size=50", "num_heads=12")
    network = pretraining_network(preset_config("albert-base", shape))
    optimiser = build_optimiser(network, read_recipe("budget", words).optimiser_for(WIDTH))
    dense, head = network.pooler.dense, network.heads["order"]
    common = F.layer_norm(torch.randn(WIDTH), (WIDTH,))
    for _ in range(60):
        states = F.layer_norm(common + 0.2 * torch.randn(64, WIDTH), (WIDTH,))
        pooled = torch.tanh(dense(states))
        F.cross_entropy(head(pooled), torch.randint(2, (64,))).backward()
        optimiser.step()
        optimiser.zero_grad()
    stuck = float((pooled.abs() > 0.95).float().mean())
    assert (stuck > 0.3) == flat and (stuck < 0.03) == (not flat), stuck
