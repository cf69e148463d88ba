"""``litebert shrink`` as a user meets it."""

import json

import pytest

from litebert.checkpoints.folder import load_model, model_config
from litebert.runs import list_runs, parents_among

FAMILIES = ["albert", "bert", "roberta", "distilbert", "xlnet"]


def test_a_dry_run_says_what_would_go_and_writes_nothing(litebert, model_folder, tmp_path):
    model = model_folder()
    before = sorted(tmp_path.rglob("*"))
    code, out, _ = litebert("shrink", model, "--drop", 2, "--strategy", "even", "--dry-run", "--json")
    found = json.loads(out)
    assert code == 0 and (found["dropped"], found["kept"]) == ([4, 6], [1, 2, 3, 5])
    assert found["parameters_after"] < found["parameters_before"] and found["output"] is None
    assert sorted(tmp_path.rglob("*")) == before


def test_top_is_what_happens_unless_said_otherwise(litebert, model_folder, tmp_path):
    code, out, _ = litebert("shrink", model_folder(), "--drop", 2, "-o", tmp_path / "small")
    assert code == 0 and "dropped (top): 5-6; kept: 1-4 of 6 layers" in out and "transformers load" in out
    assert model_config(tmp_path / "small").encoder.num_layers == 4
    assert load_model(tmp_path / "small").tokenizer is not None


def test_what_it_came_from_is_kept(litebert, model_folder, tmp_path):
    model = model_folder()
    assert litebert("shrink", model, "--keep", "1,2,5", "-o", tmp_path / "small")[0] == 0
    assert litebert("shrink", tmp_path / "small", "--drop", "1", "-o", tmp_path / "smaller")[0] == 0
    runs = {run.folder.name: run for run in list_runs([tmp_path])}
    assert runs["small"].settings["kept"] == [1, 2, 5] and runs["smaller"].settings["strategy"] == "top"
    parents = parents_among(list(runs.values()))
    assert [parent.folder.name for parent in parents[runs["small"].folder]] == ["model"]
    assert [parent.folder.name for parent in parents[runs["smaller"].folder]] == ["small"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("strategy", ["contribution", "greedy"])
def test_layers_that_do_nothing_go_first(family, strategy, litebert, model_folder, text):
    """Greedily by the final states: a masked-LM head with random weights may like any layer gone."""
    model = model_folder(family, (2, 5), (), share="none")
    words = ["--drop", 2, "--strategy", strategy, "--texts", text, "--dry-run", "--json"]
    code, out, _ = litebert("shrink", model, *words)
    assert code == 0 and json.loads(out)["dropped"] == [2, 5]


def test_greedy_says_what_it_went_by(litebert, model_folder, text):
    words = ["--drop", 2, "--strategy", "greedy", "--texts", text, "--dry-run", "--json"]
    with_head = json.loads(litebert("shrink", model_folder(), *words)[1])
    assert with_head["measure"] == "loss on masked tokens"
    assert sorted(step["layer"] for step in with_head["scores"][1:]) == with_head["dropped"]
    without = json.loads(litebert("shrink", model_folder(idle=(3, 4), heads=(), name="bare"), *words)[1])
    assert without["measure"] == "relative change of the final states"
    assert [step["score"] < 1e-4 for step in without["scores"]] == [True] * 3


def test_dropping_shared_layers_is_explained(litebert, model_folder, text, tmp_path):
    model = model_folder("albert")
    said = set()
    for strategy in ("top", "even", "contribution", "greedy"):
        words = ["--drop", 2, "--strategy", strategy, "--texts", text, "-o", tmp_path / strategy]
        code, out, _ = litebert("shrink", model, *words)
        assert code == 0 and "every strategy that drops 2 gives this same model" in out
        assert "has the same number of parameters" in out and "depth=4" in out
        said.add((tmp_path / strategy / "model.safetensors").read_bytes())
    assert len(said) == 1


def test_only_unused_blocks_of_partly_shared_layers_are_removed(litebert, model_folder, tmp_path):
    model = model_folder("albert", share="attention")
    code, out, _ = litebert("shrink", model, "--drop", 2, "-o", tmp_path / "small")
    assert code == 0 and "1 of 1 attention block and 4 of 6 feed-forward blocks stay" in out
    assert "convert --to hf" in out
    encoder = load_model(tmp_path / "small").network.encoder
    assert (len(encoder.attention), len(encoder.feed_forward)) == (1, 4)


def test_equivalent_strategies_are_named_for_groups(litebert, model_folder):
    model = model_folder("albert", num_groups=2)
    _, out, _ = litebert("shrink", model, "--drop", 4, "--strategy", "symmetric", "--dry-run")
    assert "layers share blocks, so even and odd would leave the same model" in out
    _, out, _ = litebert("shrink", model, "--drop", 3, "--strategy", "top", "--dry-run")
    assert "1 of 2 attention blocks" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--drop", "7"], "drop is 7 but the model has only 6 layers"),
        (["--drop", "6"], "drop is 6, which leaves nothing of 6 layers; drop at most 5"),
        (["--drop", "2", "--strategy", "contribution"], "set text to a file"),
        (["--drop", "2", "--strategy", "greedy"], "set text to a file"),
        (["--keep", "1,9"], "layer 9 but the model has layers 1 to 6"),
        (["--keep", "1,1"], "layer 1 twice"),
        (["--keep", ""], "nothing would be left"),
        (["--keep", "1", "--drop", "2"], "give either drop, the number of layers"),
        (["--keep", "1", "--strategy", "top"], "leave out strategy"),
        ([], "give either drop, the number of layers"),
        (["--drop", "2", "--strategy", "botom"], "did you mean 'bottom'?"),
        (["--drop", "2", "--strategy", "greedy", "--texts", "nowhere.txt"], "there is no file or folder 'nowhere.txt'"),
        (["--drop", "2", "--device", "tpu"], "must be auto, cpu or cuda"),
    ],
)
def test_errors_are_one_line(words, said, litebert, model_folder, tmp_path):
    code, _, err = litebert("shrink", model_folder(), *words, "-o", tmp_path / "small")
    assert code == 2 and said in err and len(err.strip().splitlines()) == 1
    assert not (tmp_path / "small").exists()


def test_files_of_texts_are_not_named_by_text(litebert, model_folder, text, tmp_path):
    words = ("--drop", "2", "--strategy", "greedy", "--text", text, "-o", tmp_path / "small")
    code, _, err = litebert("shrink", model_folder(), *words)
    assert code == 2 and "texts" in err and not (tmp_path / "small").exists()
    code, _, err = litebert("shrink", model_folder(), *words[:4], "--texts", "500", "-o", tmp_path / "small")
    assert code == 2 and "'500'" in err and "max_texts" in err


def test_the_whole_model_is_never_overwritten(litebert, model_folder):
    model = model_folder()
    code, _, err = litebert("shrink", model, "--drop", 2, "-o", model)
    assert code == 2 and "the model itself" in err
    assert model_config(model).encoder.num_layers == 6
    code, _, err = litebert("shrink", model, "--drop", 2)
    assert code == 2 and "out is missing" in err


def test_another_model_is_overwritten_only_with_overwrite(litebert, model_folder, tmp_path):
    words = ("shrink", model_folder(), "-o", tmp_path / "small", "--drop")
    assert litebert(*words, 2)[0] == 0
    code, _, err = litebert(*words, 3)
    assert code == 2 and "holds a model" in err and model_config(tmp_path / "small").encoder.num_layers == 4
    assert litebert(*words, 3, "--overwrite")[0] == 0
    assert model_config(tmp_path / "small").encoder.num_layers == 3
