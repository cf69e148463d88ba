"""Updates at a rate that is read from the device are the optimiser's own; where nothing can be recorded they go on."""

import copy

import pytest
import torch

from litebert.nn.config import EncoderConfig
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.train.cuda_graphs import WARM_UP, CudaGraphUpdate
from litebert.train.optimisers import build_optimiser
from litebert.train.precision import scaler
from litebert.train.settings import OptimiserSettings


class InPlace:
    """Gradients that are where a recording would have put them, and a recorder that finds no device to record."""

    def gradients_in_place(self) -> bool:
        return True

    def capture(self, graph, work):
        raise RuntimeError("nothing to record on")


def small_network() -> Network:
    torch.manual_seed(0)
    encoder = EncoderConfig(
        vocab_size=50, width=16, embedding_width=8, num_layers=2, num_heads=2, feed_forward_width=32, max_positions=32
    )
    return Network(NetworkConfig(encoder=encoder, heads=HeadsConfig(names=("classify",), labels=("a", "b"))))


@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_updates_are_those_of_the_optimiser(name, messages):
    ours = small_network()
    plain = copy.deepcopy(ours)
    settings = OptimiserSettings(name=name, rate=1e-2, part_rates=(("heads", 3.0),))
    optimisers = [build_optimiser(network, settings) for network in (ours, plain)]
    update = CudaGraphUpdate(optimisers[0], InPlace())  # type: ignore[arg-type]
    still = scaler("fp32", torch.device("cpu"))
    for step in range(WARM_UP + 3):
        generator = torch.Generator().manual_seed(step)
        for one, other in zip(ours.parameters(), plain.parameters(), strict=True):
            one.grad = torch.randn(one.shape, generator=generator)
            other.grad = one.grad.clone()
        for optimiser in optimisers:
            optimiser.set_rate(1 / (step + 1))
        norms = (update(still, 1.0), optimisers[1].update(still, 1.0))
        assert torch.equal(*norms) and norms[0] > 1.0
        assert all(parameter.grad is None for parameter in ours.parameters())
        assert optimisers[0].rates() == optimisers[1].rates()  # numbers again, for the figures
    for (key, one), other in zip(ours.state_dict().items(), plain.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-6, atol=1e-7, msg=key)
    # AdamW is recorded after the warm-up, which cannot be here, and says so once; LAMB never is.
    assert len(messages) == (name == "adamw")
