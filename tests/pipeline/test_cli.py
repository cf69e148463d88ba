"""The command line as a user meets it: light to start, and a sentence instead of a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


@pytest.mark.parametrize(
    "code", ["import litebert", "import litebert.cli", "from litebert.nn.config import preset_config"]
)
def test_nothing_heavy_is_imported_before_it_is_needed(code):
    heavy = "{'torch', 'numba', 'transformers', 'tokenizers', 'numpy', 'matplotlib', 'rich.console'}"
    check = f"{code}; import sys; print(sorted({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], capture_output=True, text=True).stdout == "[]\n"


def test_a_process_of_its_own_gives_the_code_and_the_sentence():
    """The other tests call the command line in their own process, which saves its start."""
    done = subprocess.run([sys.executable, "-m", "litebert", "plan", "albert-bsae"], capture_output=True, text=True)
    assert done.returncode == 2 and not done.stdout
    assert "did you mean 'albert-base'?" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_help_goes_from_text_to_a_model_to_answers(litebert):
    code, text, _ = litebert("--help")
    assert code == 0 and all(verb in text for verb in ("ls", "show", "convert", "plan"))
    places = [
        text.index(f"\u2502 {verb} ") for verb in ("tokenizer", "corpus", "pretrain", "finetune", "predict", "shrink")
    ]
    assert places == sorted(places)


def test_the_version_is_told(litebert):
    from litebert.version import __version__

    assert litebert("--version")[1] == f"litebert {__version__}\n"


@pytest.mark.parametrize(
    "verb",
    [
        *(["tokenizer", "train"], ["corpus", "build"], ["pretrain"], ["finetune"], ["predict"]),
        *(["shrink"], ["distill"], ["exits"], ["card"]),
    ],
)
def test_where_a_verb_writes_to_is_said_in_the_same_way_everywhere(verb):
    import typer

    from litebert.cli import app

    command = typer.main.get_command(app)
    for word in verb:
        command = command.commands[word]
    names = {name for option in command.params for name in option.opts}
    assert {"--out", "-o"} <= names


def test_ls_and_show(litebert):
    names = [line.split()[0] for line in litebert("ls")[1].splitlines()]
    assert "albert-xxlarge-v2" in names and "xlnet-large" in names
    shown = yaml.safe_load(litebert("show", "albert-base", "share=attention", "embedding_width=64")[1])
    assert (shown["share"], shown["embedding_width"], shown["width"]) == ("attention", 64, 768)
    assert shown["plan"].startswith("0-0 0-1 0-2")


def test_ls_fits_the_window_of_a_person(monkeypatch, capsys):
    from litebert import api
    from litebert.commands.show import show_models

    monkeypatch.setenv("COLUMNS", "80")
    for watched in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda watched=watched: watched)
        show_models(api.models())
        lines = capsys.readouterr().out.splitlines()
        assert (max(map(len, lines)) <= 80) == watched  # a program gets a line an entry


def test_recipes_are_listed_and_shown_resolved(litebert):
    names = [line.split()[0] for line in litebert("ls")[1].splitlines()]
    assert names[-3:] == ["budget", "lengthen", "paper"]
    paper = yaml.safe_load(litebert("show", "paper", "mask_rate=0.2")[1])
    optimiser = paper["optimiser"]
    assert (optimiser["name"], paper["batches"]["lengths"], paper["mask_rate"]) == ("lamb", [[0.0, 512]], 0.2)
    assert optimiser["muon_momentum"] == 0.95 and optimiser["part_rates"] == []  # also what the file leaves out


def test_convert_there_and_back(tmp_path, litebert):
    code, out, err = litebert("convert", "albert-tiny", tmp_path / "one")
    assert code == 0 and "transformers" in out and "its weights are new" in err
    assert litebert("convert", tmp_path / "one", tmp_path / "two", "--to", "hf")[0] == 0
    code, _, err = litebert("convert", "albert-small", tmp_path / "two")
    assert code == 2 and "overwrite" in err
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("one", "two"))
    assert first == second
    run = json.loads((tmp_path / "two" / "run.json").read_text())
    assert run["verb"] == "convert" and run["settings"]["source"] == str(tmp_path / "one")
    first = json.loads((tmp_path / "one" / "run.json").read_text())
    assert first["parents"] == []  # a preset is no folder
    [parent] = run["parents"]
    assert parent["role"] == "source" and parent["fingerprint"] == first["fingerprint"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["show", "albert-bsae"],
            "'albert-bsae' is not a folder, a preset or a recipe; did you mean 'albert-base'?",
        ),
        (["show", "papre"], "'papre' is not a folder, a preset or a recipe; did you mean 'paper'?"),
        (["show", "budget", "mask_rat=0.3"], "unknown field 'mask_rat'; did you mean 'mask_rate'?"),
        (["show", "albert-base", "widht=3"], "unknown field 'widht'; did you mean 'width'?"),
        (["show", "no/such/folder"], "'no/such/folder' is not a folder with a model"),
        (["convert", "no/such/folder", "out"], "'no/such/folder' is not a folder with a model"),
        (["convert", "albert-tiny", "out", "--to", "onnx"], "--to is 'onnx' but must be one of litebert, hf"),
        (["plan", "albert-bsae"], "did you mean 'albert-base'?"),
        (["finetune", "x", "--epochs", "-3"], "--epochs is -3 but must be a number, 0 or more"),
        (["finetune", "x", "epochs=nan"], "--epochs is nan but must be a number, 0 or more"),
        (
            ["pretrain", "albert-tiny", "--step", "3"],
            "has a field 'step'; did you mean 'steps'?",
        ),
        (["finetune", "x", "--seeds", "0"], "--seeds is 0 but must be a whole number from 1 to 1,000"),
        (["finetune", "x", "--precision", "fp8"], "--precision is 'fp8' but must be one of bf16, fp16, fp32"),
        (["plan", "albert-base", "widht=3"], "did you mean 'width'?"),
        (["bench", "forward", "--texts", "x"], "litebert-lab bench forward --texts x"),
        (["study", "--help"], "litebert-lab study --help"),
        (["shrink", "x", "--compare", "--drop", "2,4"], "litebert-lab compare MODEL --drop 2,4,6"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(words, said, tmp_path, monkeypatch, litebert):
    monkeypatch.chdir(tmp_path)
    code, _, err = litebert(*words)
    assert code == 2
    assert said in err and "Traceback" not in err
    assert len(err.strip().splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_ours_is_one_sentence_and_a_file(monkeypatch, capsys):
    from litebert import cli

    def broken() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr("sys.argv", ["litebert", "plan", "albert-base"])
    with pytest.raises(SystemExit) as ended:
        cli.run(broken)
    said = capsys.readouterr().err
    assert ended.value.code == 70
    assert "unexpected error in plan albert-base: ZeroDivisionError: a defect" in said and said.count("\n") == 1
    file = Path(said.split()[-1])
    assert "Traceback" in file.read_text() and "plan albert-base" in file.read_text()
    file.unlink()
    monkeypatch.setenv("LITEBERT_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        cli.run(broken)
