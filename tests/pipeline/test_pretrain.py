"""Pretraining runs end to end on a small store: what they leave and learn, exact resume, and what is refused."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from torch import nn
from toy_pretraining import settings, weights

import litebert
from litebert.checkpoints.training import load_state, save_state, saved_states
from litebert.corpus.build import BuildSettings, build_store
from litebert.errors import InputError
from litebert.pretraining.recipe import Recipe
from litebert.pretraining.run import pretrain
from litebert.shipped_models import CHECKSUMS
from litebert.train.metrics import read_metrics
from litebert.train.objective import Learner
from litebert.train.settings import Bound


def test_a_run_leaves_a_model_metrics_and_a_picture(store, tmp_path, pictures):
    result = pretrain(settings(store, tmp_path / "run"))
    assert result.status == "finished" and result.step == 12
    rows = read_metrics(tmp_path / "run")
    train = [row for row in rows if row.get("split") != "held_out"]
    assert {"step", "tokens", "seconds", "loss", "mlm_loss", "order_loss", "tokens_per_second"} <= set(train[-1])
    assert all(0 < row["mfu"] < 1.5 for row in train)
    held_out = [row for row in rows if row.get("split") == "held_out"]
    assert {"mlm_accuracy", "order_accuracy"} <= set(held_out[-1])
    assert held_out[-1]["loss"] == pytest.approx(held_out[-1]["mlm_loss"] + held_out[-1]["order_loss"])
    assert (tmp_path / "run" / "loss.png").stat().st_size > 1000
    note = json.loads((tmp_path / "run" / "run.json").read_text())
    assert note["status"] == "finished" and note["parents"][0]["role"] == "corpus"
    model = litebert.load(tmp_path / "run", device="cpu")
    assert len(model.fill("first the cat woke [MASK] .")) == 5
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "run" / "model")
    assert type(theirs).__name__ == "AlbertForPreTraining"


def test_resuming_is_exact(store, tmp_path):
    """Stopped at step 5 of 12 by a state that was saved there, and gone on: the same weights, bit for bit."""
    whole = settings(store, tmp_path / "whole", words=("dropout=0.1",))
    pretrain(whole)
    parts = settings(store, tmp_path / "parts", words=("dropout=0.1",), save_steps=5)
    pretrain(parts)
    (tmp_path / "parts" / "model" / "model.safetensors").unlink()
    last = saved_states(tmp_path / "parts")[-1]
    assert last.step == 12
    for path in last.folder.iterdir():
        path.write_bytes(path.read_bytes()[:100])  # the last state is damaged: the one before it is used
    resumed = settings(store, tmp_path / "parts", words=("dropout=0.1",), save_steps=5, resume=True)
    assert pretrain(resumed).step == 12
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name
    for split in (None, "held_out"):
        losses = [
            [row["loss"] for row in read_metrics(tmp_path / name) if row.get("split") == split][-1]
            for name in ("whole", "parts")
        ]
        assert losses[0] == losses[1]


def as_version_0_1_0(run):
    """The last state and run.json of a run as the first version wrote them: flat recipes, and other names."""
    old_names = {new: old for old, new in Recipe.RENAMED.items()}
    step, state, _ = load_state(run)
    callbacks = state.pop("callbacks")
    facts = state["facts"]
    facts["recipe"] = {old_names.get(name, name): value for name, value in facts["recipe"].items()}
    state |= {"place": state.pop("train_state"), "guard": callbacks.pop("guard"), **callbacks.pop("saver")}
    save_state(run, step, {**state, "companions": callbacks})
    note = json.loads((run / "run.json").read_text())
    note["settings"]["recipe"] = facts["recipe"]
    (run / "run.json").write_text(json.dumps(note))


def test_a_run_of_the_first_version_resumes_exactly(store, tmp_path):
    fitting = {"recipe": ("reference_steps=6",), "save_steps": 5}  # what was fitted is in run.json
    pretrain(settings(store, tmp_path / "whole", **fitting))
    pretrain(settings(store, tmp_path / "old", **fitting))
    shutil.rmtree(saved_states(tmp_path / "old")[-1].folder)
    as_version_0_1_0(tmp_path / "old")
    with pytest.raises(InputError, match="was begun with recipe mask_rate"):
        pretrain(settings(store, tmp_path / "old", recipe=("reference_steps=6", "mask_rate=0.2"), resume=True))
    with pytest.raises(InputError, match=r"was begun with recipe optimiser\.eps"):
        pretrain(settings(store, tmp_path / "old", recipe=("reference_steps=6", "optimiser.eps=0.1"), resume=True))
    assert pretrain(settings(store, tmp_path / "old", resume=True, **fitting)).step == 12
    whole, old = weights(tmp_path / "whole"), weights(tmp_path / "old")
    assert all(torch.equal(tensor, old[name]) for name, tensor in whole.items())


GROWING = ("growth.depths=[[0,1],[0.5,2]]", "batches.lengths=[[0,32],[0.75,64]]", "growth.order_from=0.25")


def test_depth_length_and_order_change_along_the_way(store, tmp_path):
    """Twelve steps: depth 1 then 2 from the seventh, longer from the tenth, order from the fourth."""
    result = pretrain(settings(store, tmp_path / "run", recipe=GROWING))
    assert result.held_out["depth"] == 2 and "order_accuracy" in result.held_out
    rows = read_metrics(tmp_path / "run")
    depths = {row["step"]: row["depth"] for row in rows if row.get("split") == "held_out"}
    assert depths[min(depths)] == 1 and depths[12] == 2
    for row in rows:
        if "rate" in row and row["step"] <= 3:
            assert row["loss"] == row["mlm_loss"]  # the order loss is seen, and does not count
        if row["step"] == 12 and "rate" in row:
            assert row["loss"] == pytest.approx(row["mlm_loss"] + row["order_loss"])


def test_what_compiles_is_told(store, tmp_path, monkeypatch, messages):
    monkeypatch.setattr(Learner, "compile", lambda learner: nn.Module.compile(learner, backend="eager"))
    pretrain(settings(store, tmp_path / "run", recipe=GROWING, compiled=True))
    told = [line.split(":")[0] for line in messages if "compiling" in line]
    assert told == [f"compiling, part {number} of 3" for number in (1, 2, 3)]
    messages.clear()
    pretrain(settings(store, tmp_path / "run", recipe=GROWING, compiled=True, resume=True))
    assert any("compiling, part 1 of 1" in line for line in messages)  # all but the last are done


def test_a_last_stage_below_full_depth_is_scored_at_both(store, tmp_path):
    result = pretrain(settings(store, tmp_path / "run", recipe=("growth.depths=[[0,0.5]]",)))
    assert result.held_out["depth"] == 2
    assert result.held_out["mlm_loss"] != result.held_out["depth_1_mlm_loss"]
    assert "held_out_depth_1_mlm_loss" in json.loads((tmp_path / "run" / "run.json").read_text())["result"]


def test_an_elastic_run_tells_of_every_quarter_of_its_depth(store, tmp_path):
    result = pretrain(settings(store, tmp_path / "run", recipe=("elastic=true",), words=("num_layers=4",)))
    note = json.loads((tmp_path / "run" / "run.json").read_text())["result"]
    for depth in (1, 2, 3):
        assert f"depth_{depth}_order_accuracy" in result.held_out
        assert note[f"held_out_depth_{depth}_mlm_loss"] == result.held_out[f"depth_{depth}_mlm_loss"]
    row = [row for row in read_metrics(tmp_path / "run") if "rate" in row][-1]
    expected = row["mlm_loss"] + row["order_loss"] + (row["shallow_mlm_loss"] + row["taught_loss"]) / 2
    assert row["loss"] == pytest.approx(expected + row["shallow_order_loss"] / 2)


def test_growing_and_elastic_runs_resume_exactly(store, tmp_path):
    recipe, words = (*GROWING, "elastic=true"), ("num_layers=4",)
    pretrain(settings(store, tmp_path / "whole", recipe=recipe, words=words))
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5))
    shutil.rmtree(saved_states(tmp_path / "parts")[-1].folder)
    pretrain(settings(store, tmp_path / "parts", recipe=recipe, words=words, save_steps=5, resume=True))
    for name, tensor in weights(tmp_path / "whole").items():
        assert torch.equal(tensor, weights(tmp_path / "parts")[name]), name


def test_held_out_text_is_masked_plainly_whatever_the_run_does(store, tmp_path):
    runs = (("masking=ngram",), ("masking=plain", "mask_rate=0.3"), ("masking=ngram", "eval_masking=ngram"))
    found = []
    for number, recipe in enumerate(runs):
        still = (*recipe, "optimiser.rate=1e-12")  # nothing is learnt: the same network is scored
        found.append(pretrain(settings(store, tmp_path / str(number), recipe=still, bound=Bound(steps=1))))
    scores = [result.held_out["mlm_loss"] for result in found]
    assert scores[0] == pytest.approx(scores[1], rel=1e-6) and abs(scores[0] - scores[2]) > 1e-6


def test_held_out_text_has_the_length_in_training(store, tmp_path, monkeypatch):
    monkeypatch.setattr("litebert.train.clock.SCORING_SHARE", 1e9)  # at every tenth of the run
    found = {}
    for name, lengths in (("both", "[[0,32],[0.5,64]]"), ("short", "32"), ("long", "64")):
        still = (f"batches.lengths={lengths}", "optimiser.rate=1e-12")  # nothing is learnt: the same network is scored
        pretrain(settings(store, tmp_path / name, recipe=still))
        rows = read_metrics(tmp_path / name)
        found[name] = {row["step"]: row["mlm_loss"] for row in rows if row.get("split") == "held_out"}
    assert found["both"][3] == pytest.approx(found["short"][3], rel=1e-6)
    assert found["both"][12] == pytest.approx(found["long"][12], rel=1e-6)
    assert abs(found["short"][3] - found["long"][3]) > 1e-4


SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
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


@pytest.mark.parametrize(("language", "rate", "steps"), [("en", 0.002, 700), ("ja", 0.004, 350)])
def test_a_few_documents_are_learnt_by_heart(language, rate, steps, tmp_path):
    """Masked words and the order of sentences, both losses to near nothing."""
    words = sorted({word.lower() for text in FEW[language] for word in text.split()})
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "vocab.txt").write_text("\n".join(SPECIAL + words) + "\n")
    documents = [" ".join(FEW[language]), " ".join(FEW[language][::-1])]  # long: only the middle of one has pairs
    (tmp_path / "text.txt").write_text("\n\n".join(documents * 8))
    how = BuildSettings(held_out=0.0, deduplicate=False, languages=(language,))
    build_store([str(tmp_path / "text.txt")], tmp_path / "words", tmp_path / "store", how, workers=1)
    model = ("share=none", "width=64", "num_heads=4", "embedding_width=64", "feed_forward_width=256")
    batches = ("batches.tokens=[[0,512]]", "batches.micro_tokens=512", "batches.lengths=[[0,24]]")
    recipe = (f"optimiser.rate={rate}", *batches)
    longer = settings(tmp_path / "store", tmp_path / "run", recipe=recipe, words=model, bound=Bound(steps=steps))
    pretrain(longer)
    rows = [row for row in read_metrics(tmp_path / "run") if "rate" in row]
    assert rows[0]["order_loss"] > 0.5
    last = rows[-3:]
    assert max(row["mlm_loss"] for row in last) < 0.2, last
    assert max(row["order_loss"] for row in last) < 0.1, last


def test_a_deeper_model_starts_from_a_shallower_one(store, tmp_path, messages):
    pretrain(settings(store, tmp_path / "shallow", words=("share=none",)))
    words = ("share=none", "num_layers=4")
    deep = settings(store, tmp_path / "deep", words=words, source=str(tmp_path / "shallow"), bound=Bound(steps=1))
    pretrain(deep)
    assert any("started from a model of depth 2" in sentence for sentence in messages)


def test_a_trained_model_goes_on_at_its_depth(store, tmp_path):
    """A fresh model would grow; one that is trained at full depth does not, and has the order loss at once."""
    growing = ("growth.depths=[[0,0.5],[0.5,1.0]]", "growth.order_from=0.5")
    pretrain(settings(store, tmp_path / "first", recipe=growing))
    words = settings(store, tmp_path / "on", recipe=growing, source=str(tmp_path / "first"), seed=1)
    for name in ("on", "again"):  # the second time it resumes where it ended, by its note
        pretrain(replace(words, resume=name == "again"))
        noted = json.loads((tmp_path / "on" / "run.json").read_text())
        assert noted["settings"]["recipe"]["growth"]["depths"] == [[0.0, 1.0]]
        assert noted["settings"]["recipe"]["growth"]["order_from"] == 0.0
    assert [parent["role"] for parent in noted["parents"]] == ["corpus", "start"]
    before, after = weights(tmp_path / "first"), weights(tmp_path / "on")
    assert any(not torch.equal(before[name], after[name]) for name in before)
    rows = [row for row in read_metrics(tmp_path / "on") if "order_loss" in row]
    assert rows[0]["step"] == 1


def test_a_store_of_another_vocabulary_is_refused_for_a_trained_model(store, tmp_path):
    """As many pieces, in another order: shapes would not tell."""
    pretrain(settings(store, tmp_path / "first", bound=Bound(steps=1)))
    model = tmp_path / "first" / "model"
    other = json.loads((model / "tokenizer.json").read_text())
    vocabulary = other["model"]["vocab"]
    names = sorted(vocabulary, key=vocabulary.get)[-2:]
    vocabulary[names[0]], vocabulary[names[1]] = vocabulary[names[1]], vocabulary[names[0]]
    (model / "tokenizer.json").write_text(json.dumps(other))
    (model / CHECKSUMS).unlink()  # the change is on purpose
    with pytest.raises(InputError, match=r"built with another vocabulary than that of .*; build it again with"):
        pretrain(settings(store, tmp_path / "on", source=str(tmp_path / "first")))
    assert not (tmp_path / "on" / "run.json").exists()


def test_a_model_is_scored_on_held_out_text_at_any_depth(store, tmp_path, litebert):
    pretrain(settings(store, tmp_path / "run", bound=Bound(steps=1)))
    run = tmp_path / "run"
    code, out, err = litebert("evaluate", run, "--corpus", store, "--depths", "1", "--length", "64", "--json")
    assert code == 0, err
    rows = json.loads(out)["held_out"]
    assert [row["depth"] for row in rows] == [2, 1]
    kept = json.loads((run / "run.json").read_text())["result"]
    for name in ("mlm_loss", "order_loss"):  # other batches of the same text, by a model that knows nothing yet
        assert rows[0][name] == pytest.approx(kept[f"held_out_{name}"], rel=0.05)
    assert rows[0]["mlm_loss"] != rows[1]["mlm_loss"]
    code, out, _ = litebert("evaluate", run, "--corpus", store, "--length", "64")
    assert code == 0 and out.count("depth") == 1 and "masked words loss" in out
    code, out, _ = litebert("evaluate", run, "--corpus", store, "--length", "64", "--order", "nsp", "--json")
    other = json.loads(out)
    assert code == 0 and other["order"] == "nsp" and other["held_out"][0]["order_loss"] != rows[0]["order_loss"]
    code, out, _ = litebert("evaluate", run, "--corpus", store, "--length", "64", "--tokens", "1000", "--json")
    fewer = json.loads(out)
    assert code == 0 and fewer["tokens"] == 1000 < other["tokens"]
    assert fewer["held_out"][0]["mlm_loss"] != rows[0]["mlm_loss"]
    code, _, err = litebert("evaluate", run, "--task", "rte", "--order", "nsp")
    assert code != 0 and "need corpus" in err
    for words, says in (
        (("--order", "none"), "must be one of sop, nsp"),
        (("--length", "4096"), "has 512 positions"),
        (("--depths", "3"), "has depths 1 to 2"),
        (("--task", "rte"), "cannot be combined with"),
    ):
        code, _, err = litebert("evaluate", run, "--corpus", store, *words)
        assert code != 0 and says in err, err


def test_what_is_refused(store, tmp_path):
    with pytest.raises(InputError, match=r"no run in .* to resume"):
        pretrain(settings(store, tmp_path / "none", resume=True))
    pretrain(settings(store, tmp_path / "run", bound=Bound(steps=1)))
    with pytest.raises(InputError, match="not empty; pass resume"):
        pretrain(settings(store, tmp_path / "run"))
    with pytest.raises(InputError, match="was begun with seed 0, not 1"):
        pretrain(settings(store, tmp_path / "run", resume=True, seed=1))
    with pytest.raises(
        InputError, match=r"was begun with recipe optimiser\.rate 0\.003, not 0\.1; resume with the same"
    ):
        pretrain(settings(store, tmp_path / "run", resume=True, recipe=("optimiser.rate=0.1",)))
    with pytest.raises(InputError, match=r"tokenizer of \d+ pieces"):
        pretrain(settings(store, tmp_path / "other", words=("vocab_size=99",)))
    with pytest.raises(InputError, match="do not fit the model's 32 positions"):
        pretrain(settings(store, tmp_path / "other", words=("max_positions=32",)))
    with pytest.raises(InputError, match="too small"):
        pretrain(
            settings(store, tmp_path / "other", recipe=("batches.tokens=[[0,4194304]]", "batches.micro_tokens=4194304"))
        )
    with pytest.raises(InputError, match="to train for"):
        Bound()
    with pytest.raises(InputError, match="did you mean 'wandb'"):
        pretrain(settings(store, tmp_path / "other", sinks=("wandbb",)))
    assert not (tmp_path / "other").exists()
