"""The measured step next to transformers: both lose the same at the first step, on full and on mixed lengths."""

import pytest
import torch

from litebert.bench.pretrain import bench_pretrain, table
from litebert.errors import InputError

pytest.importorskip("transformers")


@pytest.mark.parametrize("model", ["albert-tiny", "bert"])
def test_both_lose_the_same_on_made_up_text(model, tmp_path):
    if model == "bert":
        from litebert.checkpoints.folder import save_model
        from litebert.nn.families import preset_config
        from litebert.nn.network import pretraining_network

        words = ["num_layers=2", "width=32", "embedding_width=32", "num_heads=2", "feed_forward_width=64"]
        save_model(tmp_path / "bert", pretraining_network(preset_config("bert-base", words)), None, verb="test")
        model = str(tmp_path / "bert")
    report = bench_pretrain(model, tokens=512, length=32)
    assert [case.text for case in report.cases] == ["full-length inputs", "mixed lengths"]
    for case in report.cases:
        theirs, ours = case.rows
        assert theirs.first_loss == pytest.approx(ours.first_loss, abs=2e-5) and theirs.first_loss > 1
        assert min(theirs.tokens_per_second, ours.tokens_per_second, ours.mfu) > 0 and theirs.ratio == 1.0
    assert report.cases[0].padding == 0 and 0.1 < report.cases[1].padding < 0.9
    assert "litebert" in table(report) and "first loss" in table(report)


def test_a_store_gives_its_own_lengths_and_masks(store):
    report = bench_pretrain("albert-tiny", store=store, tokens=512, length=64)
    theirs, ours = report.cases[1].rows
    assert report.cases[1].text == "the store's own lengths" and report.cases[1].mean_length < 64
    assert theirs.first_loss == pytest.approx(ours.first_loss, abs=2e-5)


def test_mistakes_get_a_sentence():
    with pytest.raises(InputError, match="name an albert or bert model"):
        bench_pretrain("xlnet-base")
    with pytest.raises(InputError, match="--length is 1024"):
        bench_pretrain("albert-tiny", length=1024)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="use --device cpu"):
            bench_pretrain("albert-tiny", device="cuda")
