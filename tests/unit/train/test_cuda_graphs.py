"""Passes recorded as CUDA graphs give the weights that plain passes give, whatever the shapes and the order of them."""

import copy

import pytest
import toy_tasks as toy

from litebert.checkpoints.folder import load_model
from litebert.tasks.encoding import TaskBatches
from litebert.tasks.examples import EncodingSettings
from litebert.tasks.finetune import finetune
from litebert.tasks.kinds import KINDS
from litebert.tasks.objective import TaskObjective
from litebert.tasks.prepare import start_network, task_heads
from litebert.tasks.recipes import FinetuneRecipe
from litebert.train.cuda_graphs import CudaGraphPasses
from litebert.train.objective import Stage
from litebert.train.settings import Bound, OptimiserSettings, ScheduleSettings, TrainSettings
from litebert.train.trainer import Trainer

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("passes", [1, 2])
@pytest.mark.parametrize("kind", ["classify", "span2", "choice", "embed"])
def test_recorded_steps_are_plain_steps(kind, passes, tmp_path, messages):
    source = load_model(toy.make_model(tmp_path / "model"))
    data = toy.task(kind, 90)
    inputs = KINDS[data.kind].encode(data.train, source.tokenizer, EncodingSettings(length=24, stride=8))
    targets = KINDS[data.kind].targets(data.train, inputs, len(data.labels))
    heads = task_heads(data, answerable=True)
    network, _ = start_network(source.network, heads, FinetuneRecipe(classifier_dropout=0.0), 0)
    ends = []
    for recorded in (False, True):
        mine = copy.deepcopy(network).to("cuda")
        batches = TaskBatches(inputs, targets, batch=16, passes=passes, filled=True, choosing=KINDS[data.kind].chooses)
        objective = TaskObjective(data.kind, inputs.longest, options=batches.options, answerable=heads.answerable)
        settings = TrainSettings(
            bound=Bound(steps=20),
            optimiser=OptimiserSettings(rate=1e-3),
            schedule=ScheduleSettings(),
            batch_tokens=((0.0, passes),),
            micro_tokens=1,
            precision="bf16",
            cuda_graphs=recorded,
        )
        trainer = Trainer(mine, [Stage("train", 0.0, batches, objective)], settings)
        losses = {step.step: step.loss for step in trainer}
        ends.append((losses, mine.state_dict()))
        if recorded:
            passes = trainer.stepper.parallel
            assert isinstance(passes, CudaGraphPasses) and len(passes.recordings) >= 2
    assert not messages, messages  # nothing fell back
    (plain, weights), (played, weights2) = ends
    assert plain.keys() == played.keys()
    for step, loss in plain.items():
        assert abs(loss - played[step]) < 0.02 * max(1.0, abs(loss)), step
    for name, tensor in weights.items():
        assert (tensor - weights2[name]).abs().max() < 5e-3, name


def test_a_run_on_a_gpu_learns_with_dropout(tmp_path):
    """Dropout is drawn anew at every playback, or the run would learn the noise of one draw by heart."""
    model = toy.make_model(tmp_path / "model", dropout=0.1)
    settings = toy.settings(model, tmp_path / "run", epochs=20)
    from dataclasses import replace

    result = finetune(replace(settings, device="cuda"), toy.task("classify"))
    assert result.status == "finished" and result.score > 0.9
