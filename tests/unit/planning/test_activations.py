"""What plan counts on a step without data against what autograd keeps of a real one, each storage counted once."""

import pytest
import torch

from litebert.nn.config import EncoderConfig, preset_config
from litebert.nn.network import pretraining_network
from litebert.planning.count import record_step
from litebert.planning.step import StepSettings, lengths_for, random_batch
from litebert.pretraining.objective import Pretraining
from litebert.train.settings import Precision

SMALL = ["width=96", "num_heads=4", "feed_forward_width=320", "vocab_size=500"]
VARIANTS = [
    ("albert-base-v2", []),
    ("albert-base", []),
    ("albert-base", ["attention_dropout=0.0"]),
    ("bert-base", ["attention_dropout=0.0", "activation=relu"]),
    ("bert-base", []),
    ("roberta-base", ["activation_dropout=0.1"]),
    ("distilbert-base", []),
    ("xlnet-base", []),
    ("xlnet-base", ["attention_dropout=0.0"]),
]


def settings_for(precision: Precision, mixed: bool = False, half_residual: bool = False) -> StepSettings:
    return StepSettings(
        kind="cpu", length=40, mixed=mixed, precision=precision, half_residual=half_residual, logit_chunk=0
    )


def saved_bytes(config: EncoderConfig, tokens: int, settings: StepSettings) -> int:
    """Bytes that autograd keeps from one forward pass, parameters and their half copies not counted."""
    batch = random_batch(config, lengths_for(tokens, 40, settings.mixed), round(settings.mask_rate * tokens))
    network = pretraining_network(config).train()
    network.encoder.half_residual(bool(settings.half_residual))
    shapes = {tuple(weight.shape) for weight in network.parameters() if weight.dim() == 2}
    shapes |= {shape[::-1] for shape in shapes}
    addresses = {weight.untyped_storage().data_ptr() for weight in network.parameters()}
    sizes: dict[int, int] = {}
    alive: list[torch.Tensor] = []  # or a freed storage's address could come again

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        is_copy = tensor.dtype == torch.bfloat16 and tuple(tensor.shape) in shapes
        if storage.data_ptr() not in addresses and not is_copy:
            sizes[storage.data_ptr()] = storage.nbytes()
            alive.append(tensor)
        return tensor

    objective = Pretraining(batch.longest)
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", dtype=torch.bfloat16, enabled=settings.is_half),
    ):
        objective.parts(network, objective.tensors(batch, torch.device("cpu")))
    return sum(sizes.values())


def config_of(name: str, changes: list[str], layers: int) -> EncoderConfig:
    size = ["embedding_width=32"] if name.startswith("albert") else []
    return preset_config(name, [*SMALL, *size, *changes, f"num_layers={layers}"])


@pytest.mark.parametrize("name", ["albert-base", "bert-base"])
def test_count_of_a_half_precision_residual_stream(name: str) -> None:
    config = config_of(name, ["attention_dropout=0.0"], 3)
    settings = settings_for("bf16", half_residual=True)
    scores = 4 * round(0.15 * 400) * config.vocab_size
    counted = record_step(config, settings).kept_bytes(400) + scores
    assert counted == pytest.approx(saved_bytes(config, 400, settings), rel=0.01)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize(
    "name,changes", VARIANTS, ids=lambda value: "-".join(value) if isinstance(value, list) else value
)
def test_count_is_what_autograd_keeps(name: str, changes: list[str], precision: Precision) -> None:
    settings, tokens = settings_for(precision), 240
    shallow, deep = (config_of(name, changes, layers) for layers in (2, 3))
    kept = {config.num_layers: saved_bytes(config, tokens, settings) for config in (shallow, deep)}
    counted = {config.num_layers: record_step(config, settings).kept_bytes(tokens) for config in (shallow, deep)}
    assert counted[3] - counted[2] == pytest.approx(kept[3] - kept[2], rel=0.01)
    scores = 4 * round(0.15 * tokens) * deep.vocab_size  # the logarithms of the softmax
    assert counted[3] + scores == pytest.approx(kept[3], rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_count_is_what_autograd_keeps_of_mixed_lengths(precision: Precision) -> None:
    config, settings = config_of("albert-base", ["attention_dropout=0.0"], 3), settings_for(precision, mixed=True)
    scores = 4 * round(0.15 * 360) * config.vocab_size
    counted = record_step(config, settings).kept_bytes(360) + scores
    assert counted == pytest.approx(saved_bytes(config, 360, settings), rel=0.02)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_count_is_a_bound_where_dropout_meets_mixed_lengths(precision: Precision) -> None:
    """Attention with dropout pads in groups of about one length; plan pads all of them together."""
    settings = settings_for(precision, mixed=True)
    shallow, deep = (config_of("bert-base", [], layers) for layers in (2, 3))
    kept = saved_bytes(deep, 720, settings) - saved_bytes(shallow, 720, settings)
    counted = record_step(deep, settings).kept_bytes(720) - record_step(shallow, settings).kept_bytes(720)
    assert kept <= counted <= 1.5 * kept


def test_sharing_saves_no_activations() -> None:
    settings = StepSettings(kind="cuda", length=512, precision="bf16")
    shared, written_out = (
        preset_config("albert-base", ["num_layers=3", f"share={share}"]) for share in ("all", "none")
    )
    kept = [record_step(config, settings).kept_bytes(4096) for config in (shared, written_out)]
    assert kept[0] == pytest.approx(kept[1], rel=1e-6)


def test_fused_attention_keeps_nothing_quadratic() -> None:
    config = preset_config("albert-base-v2", ["num_layers=3"])
    kept = [
        record_step(config, StepSettings(kind="cuda", length=length, precision="bf16")).kept_bytes(8192)
        for length in (64, 512)
    ]
    assert kept[0] == pytest.approx(kept[1], rel=0.01)  # the pooler's output is one token of a sequence


def test_counting_draws_no_random_numbers() -> None:
    state = torch.get_rng_state()
    record_step(preset_config("albert-tiny"), StepSettings(kind="cpu", length=24, precision="fp32"))
    assert torch.equal(state, torch.get_rng_state())
