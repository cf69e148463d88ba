"""A card from the files of a run: what is known is there, what is not is said to be missing, and nothing is made up."""

import dataclasses
import json
import shutil

import pytest
import torch

from litebert.checkpoints.folder import save_model
from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.config import family_config
from litebert.nn.network import pretraining_network
from litebert.planning.arithmetic import flops_per_token, head_flops
from litebert.pretraining.recipe import BatchPlan, Growth, Recipe
from litebert.runs import parent_of, write_run
from litebert.text.tokenizer_files import read_tokenizer
from litebert_lab.card.facts import arithmetic, held_out_by_depth
from litebert_lab.card.page import flop_in_words
from litebert_lab.card.results import published_rows, read_results, read_seeds

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "he", "she", "was", "tired", "man", "woman", "doctor", "."]
RECIPE = Recipe(
    about="made up",
    growth=Growth(depths=((0.0, 2), (0.5, 4))),
    batches=BatchPlan(lengths=((0.0, 64),)),
    mask_rate=0.2,
    steps=10,
)
HELD_OUT = {"held_out_mlm_loss": 2.5, "held_out_mlm_accuracy": 0.537, "held_out_order_accuracy": 0.81}


@pytest.fixture(scope="module")
def encoder():
    sizes = {"vocab_size": len(WORDS), "width": 16, "embedding_width": 8, "num_heads": 2, "num_layers": 4}
    return family_config({"feed_forward_width": 32, "max_positions": 64, **sizes})


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n")
    return read_tokenizer(folder, "albert"), folder


@pytest.fixture(scope="module")
def store(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("store")
    (folder / "text.txt").write_text("\n\n".join(["The man was tired. She was tired. The doctor was tired."] * 20))
    settings = BuildSettings(held_out=0.1, deduplicate=False)
    build_store([str(folder / "text.txt")], tokenizer[1], folder / "store", settings, workers=1)
    return folder / "store"


@pytest.fixture
def run(tmp_path, encoder, store):
    """A run as `litebert pretrain` leaves it, without weights."""
    folder = tmp_path / "run"
    folder.mkdir()
    settings = {
        "encoder": dataclasses.asdict(encoder),
        "recipe": dataclasses.asdict(RECIPE),
        "device": "cuda",
        "precision": "bf16",
        "seed": 3,
    }
    result = {"step": 2, "tokens": 2000, "seconds": 1800.0, "held_out_depth": 4, "held_out_loss": 3.0, **HELD_OUT}
    result |= {"held_out_depth_2_mlm_accuracy": 0.333, "notes": ["the loss is nan at step 1; went back to step 0"]}
    write_run(folder, "pretrain", settings, parents=[parent_of("corpus", store)], result=result)
    rows = [
        {"step": 1, "tokens": 1000, "progress": 0.4, "mfu": 0.4},
        {"step": 2, "tokens": 2000, "progress": 1.0, "mfu": 0.5},
    ]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, [*rows, {"step": 2, "split": "held_out"}])))
    (folder / "loss.png").write_bytes(b"a picture")
    return folder


def results_file(folder):
    figure = {"median": 0.5, "lowest": 0.4, "highest": 0.625}
    rows = [
        {"task": task, "depth": depth, "seeds": 5, "metrics": {metric: figure}}
        for task, metric in (("cola", "matthews"), ("sst2", "accuracy"), ("mrpc", "f1"), ("stsb", "pearson"))
        for depth in (4, 2)
    ]
    rows.append({"task": "rte", "depth": 4, "seeds": 5, "metrics": {"accuracy": {**figure, "median": 0.6}}})
    path = folder / "results.json"
    path.write_text(json.dumps({"commands": ["python results.py"], "results": rows}))
    return path


def test_a_card_says_what_is_known(run, tmp_path, litebert_lab, encoder, tokenizer, store):
    torch.manual_seed(0)
    save_model(run / "model", pretraining_network(encoder), tokenizer[0], verb="test")
    (tmp_path / "limits.md").write_text("It is small.")
    (tmp_path / "cloze.json").write_text(
        json.dumps(
            {"cloze": "a.jsonl", "depth": 4, "top": 5, "scores": {"all": {"items": 56, "first": 0.5, "top": 0.75}}}
        )
    )
    out = tmp_path / "out"
    out.mkdir()
    words = (
        "--results",
        results_file(tmp_path),
        "--results",
        tmp_path / "cloze.json",
        "--limits",
        tmp_path / "limits.md",
    )
    code, _, err = litebert_lab(
        "card", run, "-o", out / "README.md", "--name", "little", "--hardware", "one GPU", "--watts", "600", *words
    )
    text = (out / "README.md").read_text()
    assert code == 0 and "Missing" not in text and err == "", err
    assert (out / "loss.png").read_bytes() == b"a picture" and "(loss.png)" in text
    lines = text.splitlines()
    row = next(line for line in lines if line.startswith("| **little**, depth 4"))
    assert "30 minutes of one GPU" in row and "| 50.0 | 50.0 | 50.0 | 50.0 | 60.0 | 52.0 | – | – | – |" in row
    assert "| 50.0 | – | – | – | – | – |" in next(line for line in lines if line.startswith("| **little**, depth 2"))
    assert "| cola | Matthews | 2 | 50.00 | 40.00 to 62.50 | 5 |" in lines
    assert any(line.startswith("| ALBERT-base v1 | 12M |") and "| 90.3 |" in line for line in lines)
    assert "| a.jsonl | all | 4 | 56 | 50.0 | 75.0 |" in lines
    assert "about 0.30 kWh, 600 W (assumed) for 30.0 minutes" in text
    assert "| 4 | 2.500 | 53.7% | 81.0% |" in lines and "| 2 | – | 33.3% | – |" in lines
    assert "It is small." in text and any(line.startswith("| doctor |") and line.count("%") == 2 for line in lines)
    assert "mask_rate: 0.2" in text and "python results.py" in text
    assert "| on the way | the loss is nan at step 1; went back to step 0 |" in lines
    train = Store.open(store).split("train")
    counts = (train.num_documents, train.num_sentences, train.num_words, train.num_tokens)
    assert f"| train | {' | '.join(map(str, counts))} |" in lines and train.num_tokens > 100
    assert "Read from text.txt." in text and str(tmp_path) not in text


def test_a_run_that_went_on_with_the_model_of_another_counts_both(run, tmp_path, litebert_lab):
    first = tmp_path / "first"
    shutil.copytree(run, first)
    note = json.loads((first / "run.json").read_text())
    note["result"] |= {"seconds": 5400.0, "tokens": 6_000_000, "notes": []}
    note["settings"]["recipe"]["mask_rate"] = 0.4
    (first / "run.json").write_text(json.dumps(note))
    (first / "loss.png").write_bytes(b"another picture")
    out = tmp_path / "out"
    out.mkdir()
    words = ("--results", results_file(tmp_path), "--watts", "600")
    code, _, _ = litebert_lab("card", run, "--after", first, "-o", out / "README.md", "--name", "little", *words)
    text = (out / "README.md").read_text()
    assert code == 0 and "for 2 hours on 6 million tokens" in text and "| 2 hours |" in text
    assert "about 1.20 kWh, 600 W (assumed) for 120.0 minutes" in text
    assert "| time | 90.0 minutes | 30.0 minutes |" in text
    assert "| on the way |  | the loss is nan at step 1; went back to step 0 |" in text
    assert text.index("mask_rate: 0.4") < text.index("mask_rate: 0.2")
    assert "(loss-part-1.png)" in text and (out / "loss-part-1.png").read_bytes() == b"another picture"
    assert "(loss.png)" in text and (out / "loss.png").read_bytes() == b"a picture"
    del note["result"]["seconds"]
    (first / "run.json").write_text(json.dumps(note))
    litebert_lab("card", run, "--after", first, "-o", out / "README.md", "--name", "little", *words)
    text = (out / "README.md").read_text()
    assert "time not known" in text and "kWh" not in text  # half of the time would be a wrong figure


def test_depths_that_were_scored_afterwards_stand_beside_those_of_the_run(run, tmp_path, litebert_lab):
    rows = [{"depth": depth, "mlm_loss": 9.0, "mlm_accuracy": 0.125} for depth in (4, 3)]
    (tmp_path / "held.json").write_text(json.dumps({"held_out": rows, "tokens": 65536, "length": 64}))
    code, _, _ = litebert_lab("card", run, "-o", tmp_path / "CARD.md", "--results", tmp_path / "held.json")
    lines = (tmp_path / "CARD.md").read_text().splitlines()
    assert code == 0 and "| 4 | 9.000 | 12.5% |" in lines and "| 3 | 9.000 | 12.5% |" in lines
    assert "| 4 | 2.500 | 53.7% | 81.0% |" in lines  # the run's own figures stay apart: they are of other batches
    assert any("on 65,536 tokens of that text in inputs of up to 64" in line for line in lines)


def test_what_is_not_known_is_missing(run, tmp_path, litebert_lab, store):
    (run / "loss.png").unlink()
    code, _, err = litebert_lab("card", run, "-o", tmp_path / "CARD.md")
    text = (tmp_path / "CARD.md").read_text()
    assert code == 0 and err.count("Missing:") == text.count("*Missing:") == 7
    assert "no power was recorded" in text and "its name was not recorded" in text
    assert "on 2 thousand tokens" in text
    assert "kWh" not in text and "BERT-base" not in text  # without results of ours there is nothing to compare


def test_the_arithmetic_follows_depth_and_tokens(encoder):
    shallow = dataclasses.replace(encoder, num_layers=2)
    rows = [{"tokens": 1000, "progress": 0.4}, {"tokens": 3000, "progress": 1.0}]
    heads = 3 * 0.2 * head_flops(encoder)
    expected = 1000 * (flops_per_token(shallow, 64, "finetune") + heads)
    expected += 2000 * (flops_per_token(encoder, 64, "finetune") + heads)
    assert arithmetic(encoder, RECIPE, rows) == pytest.approx(expected)


def test_small_runs_have_figures_too():
    """A minute on a laptop is no 0 million tokens and no 0.0000019 exaFLOP."""
    assert [flop_in_words(number) for number in (2.1e18, 4.32e17, 1.9e12, 5e7)] == [
        *("2.1 exaFLOP", "432 petaFLOP", "1.9 teraFLOP", "0.05 gigaFLOP")
    ]


def test_held_out_figures_by_depth():
    found = held_out_by_depth(
        {"held_out_depth": 12, "held_out_mlm_loss": 2.0, "held_out_depth_6_mlm_loss": 3.0, "step": 1}
    )
    assert found == {12: {"mlm_loss": 2.0}, 6: {"mlm_loss": 3.0}}


def test_seeds_of_a_run_give_medians_of_every_metric(tmp_path):
    write_run(tmp_path, "finetune", {"task": "mrpc", "seeds": 3}, result={"seconds": 9.0})
    for seed, score in enumerate((0.7, 0.9, 0.8)):
        (tmp_path / f"seed-{seed}").mkdir()
        figures = {"loss": 0.5, "accuracy": score, "f1": score / 2}
        (tmp_path / f"seed-{seed}" / "result.json").write_text(json.dumps({"figures": figures}))
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "albert", "num_hidden_layers": 6}')
    (tmp_path / "seeds.json").write_text("{}")
    for given in (tmp_path, tmp_path / "seeds.json"):
        outcome = read_results([given], 12).outcomes[0]
        assert (outcome.task, outcome.depth, outcome.seeds) == ("mrpc", 6, 3)
        assert outcome.metrics.keys() == {"accuracy", "f1"}
        assert (outcome.metrics["f1"].median, outcome.metrics["f1"].highest) == (0.4, 0.45)
    write_run(tmp_path, "finetune", {"task": "mrpc"}, status="running")
    with pytest.raises(InputError, match="not finished"):
        read_seeds(tmp_path)


def test_an_evaluation_at_several_depths_is_marked_as_cut(tmp_path):
    content = {
        "task": "rte",
        "parts": [{"metrics": {"accuracy": 0.7}}],
        "depths": [{"depth": 3, "metrics": {"accuracy": 0.6}}],
    }
    (tmp_path / "evaluation.json").write_text(json.dumps(content))
    found = read_results([tmp_path / "evaluation.json"], 12)
    assert [(one.depth, one.cut, one.metrics["accuracy"].median) for one in found.outcomes] == [
        (12, False, 0.7),
        (3, True, 0.6),
    ]


@pytest.mark.parametrize("content", ["[1]", "{", '{"what": 1}', '{"results": [{"task": "rte"}]}'])
def test_files_that_hold_no_results_get_a_sentence(content, tmp_path):
    (tmp_path / "file.json").write_text(content)
    with pytest.raises(InputError, match=r"file\.json"):
        read_results([tmp_path / "file.json"], 12)


def test_bad_words_get_a_sentence(run, tmp_path, litebert_lab, store):
    other = json.loads((run / "run.json").read_text())
    other["parents"][0]["fingerprint"] = "0"
    (run / "run.json").write_text(json.dumps(other))
    for words, sentence in (
        ((tmp_path,), "is no pretraining run"),
        ((run, "--corpus", tmp_path), "is no token store"),
        ((run,), "is not the store of this run"),
    ):
        code, _, err = litebert_lab("card", *words, "-o", tmp_path / "CARD.md")
        assert code == 2 and sentence in err
    assert litebert_lab("card", run, "-o", tmp_path / "none" / "CARD.md")[0] == 2


def test_every_published_row_has_a_budget_and_a_source():
    rows = published_rows()
    assert [row.name for row in rows][:3] == ["BERT-base", "ALBERT-base v1", "Cramming (v1)"]
    assert all(row.budget and row.source and row.scores for row in rows)
