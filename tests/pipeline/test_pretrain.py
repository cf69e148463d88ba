"""Pretraining runs end to end on a small store: exact resume, ranks, budgets, divergence, and what is refused."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import litebert
from litebert.checkpoints.training import saved_states
from litebert.corpus.build import BuildSettings, build_store
from litebert.errors import InputError
from litebert.pretrain.recipe import read_recipe
from litebert.pretrain.run import PretrainSettings, pretrain
from litebert.train.metrics import read_metrics
from litebert.train.objective import Learner
from litebert.train.settings import Bound

WORDS = ("num_layers=2", "width=32", "embedding_width=16", "num_heads=2", "feed_forward_width=64")
RECIPE = (
    *("batch_tokens=[[0,1024]]", "micro_tokens=256", "lengths=[[0,64]]", "rate=0.003", "rate_at_batch=0"),
    *("optimiser=adamw", "betas=[0.9,0.98]", "warmup=0.1"),
)


def settings(store: Path, out: Path, *, recipe=(), words=(), **changes) -> PretrainSettings:
    fields = {
        "preset": "albert-tiny",
        "corpus": store,
        "out": out,
        "recipe": read_recipe("paper", (*RECIPE, *recipe)),
        "bound": Bound(steps=12),
        "overrides": (*WORDS, *words),
        "held_out_batches": 2,
    }
    return PretrainSettings(**{**fields, **changes})


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def quiet(_: str) -> None:
    pass


def weights(run: Path) -> dict[str, torch.Tensor]:
    return litebert.load(run).network.state_dict()


def test_a_run_leaves_a_model_metrics_and_a_picture(store, tmp_path):
    result = pretrain(settings(store, tmp_path / "run"), quiet)
    assert result.status == "finished" and result.step == 12
    rows = read_metrics(tmp_path / "run")
    train = [row for row in rows if row.get("split") != "held_out"]
    assert {"step", "tokens", "seconds", "loss", "mlm_loss", "order_loss", "tokens_per_second"} <= set(train[-1])
    assert all(0 < row["mfu"] < 1.5 for row in train)
    held_out = [row for row in rows if row.get("split") == "held_out"]
    assert {"mlm_accuracy", "order_accuracy"} <= set(held_out[-1])
    assert (tmp_path / "run" / "loss.png").stat().st_size > 1000
    note = json.loads((tmp_path / "run" / "run.json").read_text())
    assert note["status"] == "finished" and note["parents"][0]["role"] == "corpus"
    model = litebert.load(tmp_path / "run")
    assert len(model.fill("first the cat woke [MASK] .")) == 5
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "run" / "model")
    assert type(theirs).__name__ == "AlbertForPreTraining"


def test_resuming_is_exact(store, tmp_path):
    """Stopped at step 5 of 12 by a state that was saved there, and gone on: the same weights, bit for bit."""
    whole = settings(store, tmp_path / "whole", words=("dropout=0.1",))
    pretrain(whole, quiet)
    parts = settings(store, tmp_path / "parts", words=("dropout=0.1",), save_steps=5)
    pretrain(parts, quiet)
    (tmp_path / "parts" / "model" / "model.safetensors").unlink()
    last = saved_states(tmp_path / "parts")[-1]
    assert last.step == 12
    for path in last.folder.iterdir():
        path.write_bytes(path.read_bytes()[:100])  # the last state is damaged: the one before it is used
    resumed = settings(store, tmp_path / "parts", words=("dropout=0.1",), save_steps=5, resume=True)
    said: list[str] = []
    assert pretrain(resumed, said.append).step == 12
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name
    losses = [[row["loss"] for row in read_metrics(tmp_path / name)][-1] for name in ("whole", "parts")]
    assert losses[0] == losses[1]


GROWING = ("depths=[[0,1],[0.5,2]]", "lengths=[[0,32],[0.75,64]]", "order_from=0.25")


def test_depth_length_and_order_change_along_the_way(store, tmp_path):
    """Twelve steps: depth 1 then 2 from the seventh, longer from the tenth, order from the fourth."""
    said: list[str] = []
    result = pretrain(settings(store, tmp_path / "run", recipe=GROWING), said.append)
    assert result.held_out["depth"] == 2 and "order_accuracy" in result.held_out
    rows = read_metrics(tmp_path / "run")
    depths = {row["step"]: row["depth"] for row in rows if row.get("split") == "held_out"}
    assert depths[min(depths)] == 1 and depths[12] == 2
    for row in rows:
        if "rate" in row and row["step"] <= 3:
            assert row["loss"] == row["mlm_loss"]  # the order loss is seen, and does not count
        if row["step"] == 12 and "rate" in row:
            assert row["loss"] == pytest.approx(row["mlm_loss"] + row["order_loss"])


def test_a_last_stage_below_full_depth_is_scored_at_both(store, tmp_path):
    result = pretrain(settings(store, tmp_path / "run", recipe=("depths=[[0,0.5]]",)), quiet)
    assert result.held_out["depth"] == 2
    assert result.held_out["mlm_loss"] != result.held_out["depth_1_mlm_loss"]
    assert "held_out_depth_1_mlm_loss" in json.loads((tmp_path / "run" / "run.json").read_text())["result"]


def test_an_elastic_run_tells_of_every_quarter_of_its_depth(store, tmp_path):
    result = pretrain(settings(store, tmp_path / "run", recipe=("elastic=true",), words=("num_layers=4",)), quiet)
    note = json.loads((tmp_path / "run" / "run.json").read_text())["result"]
    for depth in (1, 2, 3):
        assert f"depth_{depth}_order_accuracy" in result.held_out
        assert note[f"held_out_depth_{depth}_mlm_loss"] == result.held_out[f"depth_{depth}_mlm_loss"]
    row = [row for row in read_metrics(tmp_path / "run") if "rate" in row][-1]
    expected = row["mlm_loss"] + row["order_loss"] + (row["shallow_mlm_loss"] + row["taught_loss"]) / 2
    assert row["loss"] == pytest.approx(expected + row["shallow_order_loss"] / 2)


def test_growing_and_elastic_runs_resume_exactly(store, tmp_path):
    recipe, words = (*GROWING, "elastic=true"), ("num_layers=4",)
    pretrain(settings(store, tmp_path / "whole", recipe=recipe, words=words), quiet)
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5), quiet)
    shutil.rmtree(saved_states(tmp_path / "parts")[-1].folder)
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5, resume=True), quiet)
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name


def test_a_stage_that_raises_the_loss_is_no_divergence(store, tmp_path):
    """The order loss, coming in late at ten times its weight, is not taken for an explosion."""
    late = ("order_from=0.5", "rate=0.01", "batch_tokens=[[0,512]]")
    result = pretrain(settings(store, tmp_path / "run", recipe=late, bound=Bound(steps=120)), quiet)
    assert result.status == "finished" and not any("went back" in note for note in result.notes)


def test_held_out_text_is_masked_plainly_whatever_the_run_does(store, tmp_path):
    runs = (("masking=ngram",), ("masking=plain", "mask_rate=0.3"), ("masking=ngram", "eval_masking=ngram"))
    found = []
    for number, recipe in enumerate(runs):
        still = (*recipe, "rate=1e-12")  # nothing is learnt: the same network is scored
        found.append(pretrain(settings(store, tmp_path / str(number), recipe=still, bound=Bound(steps=1)), quiet))
    scores = [result.held_out["mlm_loss"] for result in found]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6) and abs(scores[0] - scores[2]) > 1e-6


COMMAND = [
    "pretrain",
    "albert-tiny",
    *WORDS,
    *RECIPE,
    "--recipe",
    "paper",
    "--steps",
    "30",
    "--save-every",
    "3",
    "--device",
    "cpu",
]


def start(store: Path, out: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "litebert", *COMMAND, "--corpus", str(store), "--out", str(out), *more]
    return subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
def test_killed_at_20_random_moments_and_resumed_ends_the_same(store, tmp_path):
    long = ("--steps", "2500", "--save-every", "25")
    assert start(store, tmp_path / "whole", *long).wait() == 0
    draw, kills = random.Random(0), 0
    running = start(store, tmp_path / "killed", *long)
    while kills < 20:
        time.sleep(draw.uniform(2, 6))
        assert running.poll() is None, "the run ended before it could be killed often enough"
        running.send_signal(signal.SIGKILL)
        running.wait()
        kills += 1
        resume = ["--resume"] if saved_states(tmp_path / "killed") else []
        if not resume:  # killed before there was anything to go on with
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
        running = start(store, tmp_path / "killed", *long, *resume)
    assert running.wait() == 0, running.stderr.read().decode()
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "killed")[name]), name


def test_asked_to_stop_it_saves_and_can_go_on(store, tmp_path):
    running = start(store, tmp_path / "run", "--steps", "100000", "--save-every", "1h")
    metrics = tmp_path / "run" / "metrics.jsonl"
    while not (metrics.exists() and metrics.stat().st_size):
        assert running.poll() is None
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == 0 and b"stopped after" in out, err.decode()
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "stopped"
    assert saved_states(tmp_path / "run")[-1].step > 0


class Clock:
    """Stands in for the loop's clock: every look at it costs ten milliseconds, so nothing depends on the machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in ("clock", "loop", "stretch"):
        monkeypatch.setattr(f"litebert.train.{module}.time", made)
    return made


def test_the_budget_is_kept(store, tmp_path, clock):
    result = pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0)), quiet)
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert result.status == "finished" and 9.5 <= rows[-1]["seconds"] <= 10.5
    assert clock.now <= 10.5  # the last score and save included
    assert rows[-1]["rate"] < 0.1 * max(row["rate"] for row in rows)  # near its end


def test_the_budget_begins_with_the_command(store, tmp_path, clock):
    """Four of ten seconds went into imports: the run takes the other six, its schedule begins at nothing."""
    result = pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0), begun=-4.0), quiet)
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert result.status == "finished" and rows[0]["progress"] < 0.01 and 9.4 <= rows[-1]["seconds"] <= 10.0
    assert 5.4 <= clock.now <= 6.0


def test_a_slow_first_step_does_not_eat_the_warm_up(store, tmp_path, clock, monkeypatch):
    """Compiling takes its share of the budget, but the schedule begins after it."""
    forward, slow = Learner.forward, [4.0]

    def first_is_slow(self, tensors):
        clock.now += slow.pop() if slow else 0
        return forward(self, tensors)

    monkeypatch.setattr(Learner, "forward", first_is_slow)
    pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0)), quiet)
    rows = {row["step"]: row for row in read_metrics(tmp_path / "run") if "rate" in row}
    assert rows[2]["seconds"] > 4.0 and rows[2]["progress"] < 0.05
    assert 9.5 <= rows[max(rows)]["seconds"] <= 10.5


def lose_everything_once(monkeypatch, call: int) -> None:
    """The forward pass of this number, in training, gives no number."""
    forward, calls = Learner.forward, iter(range(1, 1 << 30))

    def now_and_then(self, tensors):
        sums = forward(self, tensors)
        if not self.network.training or next(calls) != call:
            return sums
        return {name: (loss * float("nan"), right) for name, (loss, right) in sums.items()}

    monkeypatch.setattr(Learner, "forward", now_and_then)


def test_time_that_led_up_to_the_first_step_is_no_progress_after_a_rollback_either(store, tmp_path, clock, monkeypatch):
    """Three of ten seconds went into imports; the second step diverges, and the run goes back to its very start."""
    lose_everything_once(monkeypatch, 6)
    result = pretrain(settings(store, tmp_path / "run", bound=Bound(seconds=10.0), begun=-3.0), quiet)
    assert result.status == "finished" and "went back to step 0" in " ".join(result.notes)
    rows = {row["step"]: row for row in read_metrics(tmp_path / "run") if "rate" in row}
    assert rows[2]["seconds"] > 3.0 and rows[2]["progress"] < 0.15


RANKS = """
import sys
from pathlib import Path
sys.path.insert(0, {tests!r})
import test_pretrain as t
from litebert.train.parallel import end_rank
from litebert.train.settings import Bound
kind = {kind!r}
s = t.settings(Path({store!r}), Path({out!r}), recipe={recipe!r}, sharded=kind == "sharded",
               resume={resume}, bound=Bound(steps={steps}), save_steps=6)
t.pretrain(s, t.quiet)
end_rank()
"""


def run_ranks(world: int, store, out, *, kind, recipe=(), resume=False, steps=12):
    code = RANKS.format(
        tests=str(Path(__file__).parent), kind=kind, store=str(store), out=str(out), recipe=recipe, resume=resume,
        steps=steps,
    )  # fmt: skip
    script = Path(out).with_suffix(".py")
    script.write_text(code)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("kind", "recipe"),
    [
        ("ddp", ("optimiser=adamw", "elastic=true")),
        ("ddp", ("optimiser=lamb",)),
        ("sharded", ("optimiser=adamw",)),
        ("sharded", ("optimiser=lamb", "elastic=true", "depths=[[0,1],[0.4,2]]")),
    ],
)
def test_two_ranks_lose_what_one_loses(kind, recipe, store, tmp_path):
    pretrain(settings(store, tmp_path / "one", recipe=recipe, save_steps=6), quiet)
    run_ranks(2, store, tmp_path / "two", kind=kind, recipe=recipe)
    one, two = ({r["step"]: r for r in read_metrics(tmp_path / name) if "rate" in r} for name in ("one", "two"))
    assert set(one) == set(two) and len(one) >= 3
    for step in one:
        for name in ("mlm_loss", "order_loss"):
            assert abs(one[step][name] - two[step][name]) < 1e-5 * max(1, one[step][name]), (step, name)


def test_resumed_with_another_number_of_ranks(store, tmp_path):
    pretrain(settings(store, tmp_path / "one", save_steps=6), quiet)
    run_ranks(2, store, tmp_path / "two", kind="sharded")
    shutil.rmtree(saved_states(tmp_path / "two")[-1].folder)  # back to step 6
    resumed = settings(store, tmp_path / "two", save_steps=6, resume=True)
    pretrain(resumed, quiet)
    for name, tensor in weights(tmp_path / "one").items():
        torch.testing.assert_close(weights(tmp_path / "two")[name], tensor, atol=2e-5, rtol=1e-4)


def test_divergence_is_rolled_back_with_a_lower_rate(store, tmp_path):
    wild = settings(
        store, tmp_path / "run", recipe=("rate=1e9", "warmup=0.5", "clip=0"), bound=Bound(steps=60), save_steps=2
    )
    said: list[str] = []
    result = pretrain(wild, said.append)
    text = " ".join(result.notes)
    assert "went back to step" in text and "rate times 0.5" in text
    assert result.status == "diverged" and "gave up after 3 rollbacks" in text
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "diverged"


def test_divergence_in_the_last_steps_is_rolled_back_too(store, tmp_path, monkeypatch):
    """The eleventh of twelve steps, of which no line tells before the end."""
    lose_everything_once(monkeypatch, 42)
    result = pretrain(settings(store, tmp_path / "run"), quiet)
    assert result.status == "finished" and result.step == 12
    assert "the loss is nan at step 11; went back to step 0" in " ".join(result.notes)
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())


FEW = {
    "en": [
        "The old ship left the harbour at dawn . A strong wind filled its sails . Nobody on the pier waved goodbye . "
        "By noon the coast was out of sight . The crew sang to keep their courage .",
        "My grandmother bakes bread on Sundays . She wakes before the birds do . The kitchen smells of warm flour . "
        "We wait with butter and honey . Nothing is left by evening .",
    ],
    "ja": [
        "朝 早く 船 は 港 を 出た 。 強い 風 が 帆 を 押した 。 "
        "桟橋 で 手 を 振る 人 は いなかった 。 昼 には 岸 が 見え なく なった 。",
        "祖母 は 日曜日 に パン を 焼く 。 鳥 より 早く 起きる 。 "
        "台所 は 小麦粉 の 匂い が する 。 夕方 には 何 も 残ら ない 。",
    ],
}


@pytest.mark.parametrize("language", ["en", "ja"])
def test_a_few_documents_are_learnt_by_heart(language, tmp_path):
    """Masked words and the order of sentences, both losses to near nothing."""
    words = sorted({word.lower() for text in FEW[language] for word in text.split()})
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(SPECIAL + words) + "\n")
    documents = [" ".join(FEW[language]), " ".join(FEW[language][::-1])]  # long: only the middle of one has pairs
    (tmp_path / "text.txt").write_text("\n\n".join(documents * 8))
    how = BuildSettings(held_out=0.0, deduplicate=False, languages=(language,))
    build_store([str(tmp_path / "text.txt")], tmp_path / "words", tmp_path / "store", how, workers=1)
    model = ("share=none", "width=64", "num_heads=4", "embedding_width=64", "feed_forward_width=256")
    recipe = ("rate=0.002", "batch_tokens=[[0,512]]", "lengths=[[0,24]]")
    longer = settings(tmp_path / "store", tmp_path / "run", recipe=recipe, words=model, bound=Bound(steps=700))
    pretrain(longer, quiet)
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert rows[0]["order_loss"] > 0.5
    last = rows[-3:]
    assert max(row["mlm_loss"] for row in last) < 0.2, last
    assert max(row["order_loss"] for row in last) < 0.1, last


def test_a_deeper_model_starts_from_a_shallower_one(store, tmp_path):
    pretrain(settings(store, tmp_path / "shallow", words=("share=none",)), quiet)
    said: list[str] = []
    words = ("share=none", "num_layers=4")
    deep = settings(store, tmp_path / "deep", words=words, source=str(tmp_path / "shallow"), bound=Bound(steps=1))
    pretrain(deep, said.append)
    assert any("started from a model of depth 2" in sentence for sentence in said)


def test_what_is_refused(store, tmp_path):
    with pytest.raises(InputError, match=r"no run in .* to resume"):
        pretrain(settings(store, tmp_path / "none", resume=True), quiet)
    pretrain(settings(store, tmp_path / "run", bound=Bound(steps=1)), quiet)
    with pytest.raises(InputError, match="not empty; add --resume"):
        pretrain(settings(store, tmp_path / "run"), quiet)
    with pytest.raises(InputError, match="was begun with seed 0, not 1"):
        pretrain(settings(store, tmp_path / "run", resume=True, seed=1), quiet)
    with pytest.raises(InputError, match=r"tokenizer of \d+ pieces"):
        pretrain(settings(store, tmp_path / "other", words=("vocab_size=99",)), quiet)
    with pytest.raises(InputError, match="do not fit the model's 32 positions"):
        pretrain(settings(store, tmp_path / "other", words=("max_positions=32",)), quiet)
    with pytest.raises(InputError, match="too small"):
        pretrain(
            settings(store, tmp_path / "other", recipe=("batch_tokens=[[0,4194304]]", "micro_tokens=4194304")), quiet
        )
    with pytest.raises(InputError, match="say how long to train"):
        Bound()
    with pytest.raises(InputError, match="did you mean 'wandb'"):
        pretrain(settings(store, tmp_path / "other", sinks=("wandbb",)), quiet)
    assert not (tmp_path / "other").exists()
