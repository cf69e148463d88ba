"""The parts of the loss of a student, against formulas written out plainly, and that filling counts for nothing."""

import numpy as np
import pytest
import torch

from litebert.distillation.objective import DistillObjective, DistillSettings, make_projection, mapped_depths
from litebert.nn.config import family_config
from litebert.nn.layout import Layout
from litebert.nn.network import HeadsConfig, Network, NetworkConfig
from litebert.tasks.encoding import Inputs, Targets, TaskBatches
from litebert.tasks.objective import TaskObjective
from litebert.train import precision

LENGTHS = [5, 3, 7, 1]


def network(layers: int, width: int = 16, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    shape = {"vocab_size": 20, "width": width, "num_heads": 2, "feed_forward_width": 16, "num_layers": layers}
    config = family_config({"family": "bert", "max_positions": 16, "dropout": 0.0, "attention_dropout": 0.0, **shape})
    made = Network(NetworkConfig(encoder=config, heads=HeadsConfig(names=("classify",), labels=("a", "b", "c"))))
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "norm" not in name:
                parameter.normal_(std=0.5)
    return made.eval()


def batch(filled: bool, kind: str = "classify"):
    starts = np.concatenate([[0], np.cumsum(LENGTHS)])
    ids = np.random.default_rng(0).integers(5, 20, starts[-1]).astype(np.int32)
    inputs = Inputs(ids, np.zeros_like(ids), starts, np.arange(4), np.empty((0, 2), np.int32))
    labels = np.array([0, 2, 1, 1]) if kind == "classify" else np.empty(0, np.int64)
    values = np.empty(0, np.float32)
    if kind == "multilabel":
        values = np.eye(3, dtype=np.float32)[[0, 2, 1, 1]]
    targets = Targets(np.arange(5), labels, values=values)
    return TaskBatches(inputs, targets, batch=4, filled=filled).batch(0, 0)


def losses(settings: DistillSettings, student: Network, teacher: Network, *, filled: bool, kind: str = "classify"):
    objective = DistillObjective(TaskObjective(kind, 7), teacher, settings)
    one = batch(filled, kind)
    parts = objective.parts(student, objective.tensors(one, torch.device("cpu")))
    return {name: float(part.loss.detach()) / objective.counts(one)[name] for name, part in parts.items()}


@pytest.mark.parametrize("states", ["none", "final", "depths"])
@pytest.mark.parametrize("kind", ["classify", "multilabel"])
def test_filling_counts_for_nothing_and_a_twin_has_nothing_to_learn(states, kind):
    settings, student, teacher = DistillSettings(states=states), network(2), network(4, seed=1)
    plain, filled = (losses(settings, student, teacher, filled=filled, kind=kind) for filled in (False, True))
    assert plain.keys() == settings.weights().keys()
    for name, value in plain.items():
        assert value == pytest.approx(filled[name], rel=1e-5) and value > 1e-4
    twin = losses(settings, teacher, teacher, filled=True, kind=kind)
    if kind == "classify":
        assert twin["soft"] == pytest.approx(0, abs=1e-6)
    assert twin.get("states", 0) == pytest.approx(0, abs=1e-6)


def test_the_parts_are_what_the_papers_say():
    student, teacher, heat = network(2), network(4, seed=1), 3.0
    found = losses(DistillSettings(states="depths", temperature=heat), student, teacher, filled=False)
    final = losses(DistillSettings(states="final", temperature=heat), student, teacher, filled=False)
    one = batch(False)
    layout = Layout.of([int(size) for size in np.diff(one.starts)], "cpu")
    ids, segments = torch.from_numpy(one.ids), torch.from_numpy(one.segments)
    soft, kept = [], []
    with torch.no_grad():
        for each in (student, teacher):
            states = each.encoder.states(ids, layout, segments)
            kept.append(states)
            soft.append((each.heads["classify"](each.pooled(states[-1], layout)) / heat).softmax(-1))
    apart = (soft[1] * (soft[1].log() - soft[0].log())).sum(-1).mean() * heat**2
    assert found["soft"] == pytest.approx(float(apart), rel=1e-4)
    shares = [
        float((kept[0][s] - kept[1][t]).square().mean() / kept[1][t].var(0, correction=0).mean())
        for s, t in ((0, 0), (1, 2), (2, 4))
    ]
    assert found["states"] == pytest.approx(sum(shares) / 3, rel=1e-4)
    cosines = torch.nn.functional.cosine_similarity(kept[0][-1], kept[1][-1], dim=-1)
    assert final["states"] == pytest.approx(float(1 - cosines.mean()), rel=1e-4)


def test_depths_are_spread_evenly_and_projections_are_made_only_where_widths_differ():
    assert mapped_depths(4, 12) == [0, 3, 6, 9, 12] and mapped_depths(5, 6) == [0, 1, 2, 4, 5, 6]
    depths = DistillSettings(states="depths")
    assert make_projection(network(2), network(4), depths) is None
    assert set(make_projection(network(2, 8), network(4), depths)) == {"embeddings", "layers"}
    assert make_projection(network(2, 8), network(4), DistillSettings()) is None


@pytest.mark.gpu
@pytest.mark.parametrize("states", ["none", "final", "depths"])
def test_parts_on_a_gpu_are_those_of_a_cpu(states):
    settings, student, teacher = DistillSettings(states=states), network(2), network(4, seed=1)
    here = losses(settings, student, teacher, filled=True)
    device = torch.device("cuda")
    objective = DistillObjective(TaskObjective("classify", 7), teacher.to(device), settings)
    one = batch(True)
    with precision.cast("bf16", device):
        parts = objective.parts(student.to(device), objective.tensors(one, device))
    counts = objective.counts(one)
    for name, value in here.items():
        assert float(parts[name].loss.detach()) / counts[name] == pytest.approx(value, rel=0.1), name
