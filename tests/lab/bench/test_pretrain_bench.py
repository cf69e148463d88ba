"""The measured step next to transformers: both lose the same at the first step, on full and on mixed lengths."""

import logging
import signal
import time
from pathlib import Path

import pytest
import torch

from litebert.checkpoints.folder import save_model
from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert.report import print_report, to_markdown
from litebert.train.objective import Learner
from litebert_lab.bench import pretrain
from litebert_lab.bench.pretrain import (
    Kernel,
    TooLong,
    at_most,
    bench_pretrain,
    by_kind,
    choose_setting,
    profile_pretrain,
)
from litebert_lab.bench.random_batches import mixed_batches
from litebert_lab.bench.theirs import padded_chunks

pytest.importorskip("transformers")


FEW = ["vocab_size=500"]
SMALL = ["num_layers=2", "width=32", "embedding_width=32", "num_heads=2", "feed_forward_width=64", *FEW]


def saved(preset: str, words: list[str], folder: Path) -> str:
    save_model(folder, pretraining_network(preset_config(preset, words)), None, verb="test")
    return str(folder)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    """albert-tiny with few words, whose scores would take most of the time."""
    return saved("albert-tiny", FEW, tmp_path_factory.mktemp("tiny") / "model")


@pytest.mark.parametrize("model", ["albert", "bert"])
def test_both_lose_the_same_on_made_up_text(model, tiny, tmp_path):
    model = tiny if model == "albert" else saved("bert-base", SMALL, tmp_path / "bert")
    report = bench_pretrain(choose_setting(model, tokens=512, length=32))
    cases = report.data["cases"]
    assert [case["text"] for case in cases] == ["full-length inputs", "mixed lengths"]
    for case in cases:
        theirs, ours = case["rows"]
        assert theirs["first_loss"] == pytest.approx(ours["first_loss"], abs=2e-5) and theirs["first_loss"] > 1
        assert min(theirs["tokens_per_second"], ours["tokens_per_second"], ours["mfu"]) > 0 and theirs["ratio"] == 1.0
    assert cases[0]["padding"] == 0 and 0.1 < cases[1]["padding"] < 0.9
    assert "litebert" in to_markdown(report) and "first loss" in to_markdown(report)


def test_a_store_gives_its_own_lengths_and_masks(store):
    report = bench_pretrain(choose_setting("albert-tiny", store=store, tokens=512, length=64))
    case = report.data["cases"][1]
    theirs, ours = case["rows"]
    assert case["text"] == "the store's own lengths" and case["mean_length"] < 64
    assert theirs["first_loss"] == pytest.approx(ours["first_loss"], abs=2e-5)


def test_an_engine_that_takes_too_long_is_left_behind(tiny, monkeypatch, caplog):
    """Compiling for ever costs its own figures and nobody else's; every figure is said as soon as it is there."""
    asked: list[bool] = []

    def never_ready(model, dynamic):
        asked.append(dynamic)
        return lambda **inputs: signal.raise_signal(signal.SIGALRM)  # as if the time were up

    monkeypatch.setattr(torch, "compile", never_ready)
    monkeypatch.setattr(Learner, "compile", lambda self: None)
    caplog.set_level(logging.INFO)
    setting = choose_setting(tiny, tokens=256, length=32, compiled=True)
    report = bench_pretrain(setting, limit=500)
    for case in report.data["cases"]:
        ready = {row["engine"]: not row["problem"] for row in case["rows"]}
        assert list(ready.values()) == [True, True, True, False] and "transformers, compiled" in ready
        assert case["rows"][-1]["problem"] == "not finished in 500 s"
    assert asked == [False, True]  # it is told where shapes change
    assert sum("tokens/s" in sentence for sentence in caplog.messages) == 6
    assert "not finished in 500 s" in to_markdown(report)


def test_a_profile_shows_what_a_step_spends_its_time_on(tiny, capsys):
    report = profile_pretrain(choose_setting(tiny, tokens=512, length=32))
    full, mixed = report.data
    assert (full["text"], mixed["text"]) == ("full-length inputs", "mixed lengths")
    kinds = full["kinds"]
    assert list(kinds.values()) == sorted(kinds.values(), reverse=True)
    assert {"products", "attention", "gelu", "norms", "loss"} < set(kinds)
    # Four layers of four products each, once forward and twice backward, and those of the heads.
    kernels = [Kernel(**one) for one in full["kernels"]]
    assert sum(one.count for one in kernels if by_kind([one]).keys() == {"products"}) > 4 * 4 * 3
    print_report(report)
    text = capsys.readouterr().out
    assert "of peak" in text and "products" in text and max(map(len, text.splitlines())) <= 80


def test_a_profile_in_other_numbers_and_with_another_optimiser(tiny, monkeypatch):
    monkeypatch.setattr(pretrain, "MOST_KERNELS", 1000)
    chosen = choose_setting(tiny, tokens=512, length=32, numbers="bf16", optimiser="muon")
    assert (chosen.precision, chosen.optimiser.name) == ("bf16", "muon")
    full, _ = profile_pretrain(chosen).data
    assert any("baddbmm" in kernel["name"] for kernel in full["kernels"])  # Muon's
    with pytest.raises(InputError, match="both have AdamW; --optimiser is for --profile"):
        bench_pretrain(chosen)


def test_kernels_of_a_gpu_are_known_by_name():
    names = {
        "aten::baddbmm": "products",
        "nvjet_sm90_tst_192x192_64x3_1x2_h_bz_coopB_splitK_NTN": "products",
        "_backward_keys": "attention",
        "triton_poi_fused_gelu_gelu_backward_21": "gelu",
        "triton_per_fused__to_copy_add_native_layer_norm_17": "norms",
        "triton_red_fused_sum_view_25": "sums",
        "triton_red_fused__log_softmax__to_copy_argmax_prepare_softmax_online_23": "loss",
        "Memcpy HtoD (Pinned -> Device)": "copies",
        "something_new": "other",
    }
    kernels = [Kernel(name, 1.0, 1.0) for name in names]
    assert {each.name: next(iter(by_kind([each]))) for each in kernels} == names


def test_the_alarm_rings_and_is_put_away():
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(TooLong), at_most(0.05):
        time.sleep(30)
    assert signal.getsignal(signal.SIGALRM) is before and signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_theirs_are_padded_to_few_shapes_and_all_tokens_are_there():
    config = preset_config("albert-tiny")
    for batch in mixed_batches(config, 2048, 256, 3):
        chunks = padded_chunks(batch, config, rows_at_once=8, multiple=64)
        assert all(chunk["input_ids"].shape[1] % 64 == 0 for chunk in chunks)
        assert max(map(_rows, chunks)) <= 8 and max(map(_rows, chunks)) - min(map(_rows, chunks)) < len(chunks)
        assert sum(int(chunk["attention_mask"].sum()) for chunk in chunks) == batch.num_tokens
        assert sum(int((chunk["labels"] != -100).sum()) for chunk in chunks) == batch.num_masked


def _rows(chunk):
    return chunk["input_ids"].shape[0]


def test_mistakes_get_a_sentence():
    with pytest.raises(InputError, match="name an albert or bert model"):
        choose_setting("xlnet-base")
    with pytest.raises(InputError, match="--length is 1024"):
        choose_setting("albert-tiny", length=1024)
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="use --device cpu"):
            choose_setting("albert-tiny", device="cuda")
