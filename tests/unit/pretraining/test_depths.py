"""Depth by stages: what a recipe may ask for, and what it means for a model."""

import warnings

import pytest
import torch

import litebert.config
from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert.pretraining.held_out import scored_depths
from litebert.pretraining.objective import AtDepths, Pretraining, batch_flops
from litebert.pretraining.recipe import depth_stages, layers_of, read_recipe
from litebert.pretraining.run import settings_from
from litebert.train.objective import Learner, prepare_compiler
from litebert_lab.bench.random_batches import random_batch

TINY = ("vocab_size=60", "num_layers=4", "width=16", "embedding_width=8", "num_heads=2", "feed_forward_width=32")


def stages(depths: str, *words: str):
    return depth_stages(
        read_recipe("budget", (f"growth.depths={depths}",)), preset_config("albert-tiny", (*TINY, *words))
    )


def test_layers_and_shares_of_all_layers():
    assert [layers_of(depth, 12) for depth in (3, 0.25, 0.5, 1.0, 1, 0.01)] == [3, 3, 6, 12, 1, 1]
    assert layers_of(0.25, 24) == 6
    assert stages("[[0, 0.25], [0.5, 4]]") == ((0.0, 1), (0.5, 4))
    assert stages("[]") == ((0.0, 4),)


@pytest.mark.parametrize(
    ("depths", "says"),
    [
        ("[[0, 5]]", "asks for 5 layers, but the model has 4; use shares"),
        ("[[0, 1.5]]", "must have layers such as 3, or shares"),
        ("[[0, 0]]", "must have layers such as 3, or shares"),
        ("[[0.1, 3]]", "depths must have a stage from 0.0 on"),
        ("[[0, deep]]", "must be a number"),
    ],
)
def test_what_is_refused(depths, says):
    with pytest.raises(InputError, match=says):
        stages(depths)


@pytest.mark.parametrize("words", [("share=none",), ("share=attention",), ("num_groups=4",)])
def test_blocks_that_would_come_in_untrained_are_refused(words):
    with pytest.raises(InputError, match="leave depths out"):
        stages("[[0, 2], [0.5, 4]]", *words)
    assert stages("[[0, 4]]", *words)


def test_groups_that_the_shallow_part_uses_are_fine():
    assert stages("[[0, 2], [0.5, 4]]", "num_groups=1", "layers_per_group=2") == ((0.0, 2), (0.5, 4))
    with pytest.raises(InputError, match="leave depths out"):
        stages("[[0, 1], [0.5, 4]]", "num_groups=1", "layers_per_group=2")


@pytest.fixture
def grown_recipe(tmp_path, monkeypatch):
    """A named recipe that has depths of its own."""
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "grown.yaml").write_text("depths: [[0, 0.5], [0.5, 1.0]]\nsteps: 5\n")
    (tmp_path / "models").symlink_to(litebert.config.PRESETS / "models")
    monkeypatch.setattr(litebert.config, "PRESETS", tmp_path)
    return "grown"


def test_a_named_recipe_grows_only_models_that_can(grown_recipe, tmp_path):
    def recipe(*words: str):
        chosen = settings_from("albert-tiny", words, tmp_path, tmp_path, bound=None, recipe=grown_recipe, device="cpu")
        return chosen.recipe

    assert recipe().growth.depths == ((0.0, 0.5), (0.5, 1.0))
    assert recipe("share=none").growth.depths == ()
    assert recipe("share=none", "growth.depths=[[0,0.5]]").growth.depths == (
        (0.0, 0.5),
    )  # asked for, and refused by the run


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return pretraining_network(preset_config("albert-tiny", TINY))


@pytest.fixture(scope="module")
def batch():
    return random_batch(preset_config("albert-tiny", TINY), [16, 9, 30], tokens=64, length=32, sequences=4)


@torch.no_grad()
def test_the_objective_runs_so_many_layers(network, batch):
    shallow = pretraining_network(preset_config("albert-tiny", (*TINY, "num_layers=2")))
    shallow.load_state_dict(network.state_dict())
    objective = Pretraining(32, depth=2)
    tensors = objective.tensors(batch, torch.device("cpu"))
    ours, theirs = objective.parts(network, tensors), Pretraining(32).parts(shallow, tensors)
    assert torch.equal(ours["mlm"].loss, theirs["mlm"].loss)
    assert torch.equal(ours["order"].loss, theirs["order"].loss)
    assert ours["mlm"].loss != Pretraining(32).parts(network, tensors)["mlm"].loss


@torch.no_grad()
def test_one_pass_scores_every_depth(network, batch):
    objective = AtDepths(32, 0, (4, 1, 3))
    tensors = objective.tensors(batch, torch.device("cpu"))
    parts = objective.parts(network, tensors)
    assert set(parts) == set(objective.counts(batch))
    for depth in (1, 3, 4):
        alone = Pretraining(32, depth=depth).parts(network, tensors)
        for name in ("mlm", "order"):
            assert torch.equal(parts[f"depth_{depth}_{name}"].loss, alone[name].loss)


def test_fewer_layers_cost_less_arithmetic(batch):
    config = preset_config("albert-tiny", TINY)
    one, two, four = (batch_flops(config, batch, depth) for depth in (1, 2, None))
    assert four - two == pytest.approx(2 * (two - one))
    grouped = preset_config("albert-tiny", (*TINY, "num_groups=2", "layers_per_group=2"))
    assert batch_flops(grouped, batch, 1) == one


def test_the_depth_in_force_is_scored_and_at_the_end_the_full_one():
    assert scored_depths(3, 12, last=False) == (3,)
    assert scored_depths(12, 12, last=True) == (12,)
    assert scored_depths(6, 12, last=True) == (12, 6)


def compiled_graphs(objectives, network, batch) -> int:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    prepare_compiler(len(objectives))
    learner, counter = Learner(network, objectives[0]), CompileCounter()
    learner.compile(backend=counter)
    for _ in range(2):
        for objective in objectives:
            learner.objective = objective
            learner(objective.tensors(batch, torch.device("cpu")))
    return counter.frame_count


def test_a_depth_is_compiled_once(network, batch):
    assert compiled_graphs([Pretraining(32, depth=depth) for depth in (1, 2, 4)], network, batch) == 3


def test_there_is_room_for_a_graph_of_every_stage():
    with torch._dynamo.config.patch(recompile_limit=8):
        prepare_compiler(9)
        assert torch._dynamo.config.recompile_limit >= 18


def test_what_torch_says_of_its_reductions_is_not_shown():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        prepare_compiler(1)
        warnings.warn("\nOnline softmax is disabled on the fly", UserWarning, stacklevel=1)
        warnings.warn("this one is shown", UserWarning, stacklevel=1)
    assert [str(warning.message) for warning in shown] == ["this one is shown"]
