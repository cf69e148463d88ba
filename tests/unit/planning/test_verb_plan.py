"""The plan verb from the command line: its answers as JSON and as a table, and its answers to mistakes."""

import json
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from typer.testing import CliRunner

from litebert.cli import app
from litebert.errors import InputError
from litebert.nn.config import preset_config
from litebert.planning.count import record_step
from litebert.planning.devices import GIB, NAMED
from litebert.planning.plan import Plan, make_plan
from litebert.planning.step import OPTIMISERS, StepSettings


def plans(*words: str) -> list[dict[str, Any]]:
    """What ``litebert plan ... --json`` gives."""
    result = CliRunner().invoke(app, ["plan", *words, "--json"])
    assert result.exit_code == 0, result.output + str(result.exception)
    return json.loads(result.stdout)


def refusal(*words: str) -> str:
    """The sentence that refuses ``litebert plan ...``."""
    result = CliRunner().invoke(app, ["plan", *words])
    assert isinstance(result.exception, InputError), result.output
    return str(result.exception)


def test_json_has_what_scripts_need() -> None:
    base, bert = plans("albert-base", "bert-base", "--device", "h200", "--budget", "2h")
    assert (base["model"], base["parameters"], base["parameters_with_heads"]) == ("albert-base", 11_683_584, 11_813_810)
    assert bert["parameters"] == 109_482_240
    assert base["flops_per_token"] == pytest.approx(570.4e6, rel=1e-3)
    assert base["memory_bytes"] == base["memory_bytes_by_purpose"]["pretrain"]
    assert sum(v for k, v in base["memory_by_part"].items() if k != "at") == pytest.approx(base["memory_bytes"], abs=9)
    assert base["budget"]["tokens"] == pytest.approx(7200 * base["tokens_per_second"], rel=1e-6)
    assert base["budget"]["steps"] == base["budget"]["tokens"] // base["tokens"]
    assert base["budget"]["epochs"] is None
    assert base["paper_run_seconds"] == pytest.approx(125_000 * 4096 * 512 / base["tokens_per_second"])
    assert bert["memory_bytes"] > base["memory_bytes"]  # the optimiser's state is not shared


def test_the_function_gives_what_the_command_prints() -> None:
    found = make_plan("albert-tiny", device="t4", budget="2h", corpus_tokens=1e9)
    (printed,) = plans("albert-tiny", "--device", "t4", "--budget", "2h", "--corpus-tokens", "1e9")
    assert isinstance(found, Plan) and found.fits and found.budget is not None
    assert (found.parameters.bare, found.largest_tokens) == (printed["parameters"], printed["largest_tokens"])
    assert found.peak.total == pytest.approx(printed["memory_bytes"], abs=1)
    assert found.budget.epochs == printed["budget"]["epochs"] == pytest.approx(found.budget.tokens / 1e9, rel=1e-6)
    assert found.flops_per_step == found.tokens * found.flops_per_token["pretrain"]


def test_three_models_fit_a_terminal_and_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["plan", "albert-tiny", "albert-small", "bert-base", "--device", "cpu"]).stdout
    table = shown.partition("a CPU with")[0]
    assert "…" not in table and max(map(len, table.splitlines())) <= 80
    assert all(name in table for name in ("albert-tiny", "albert-small", "bert-base"))


def test_purposes_differ() -> None:
    memory = [
        plans("bert-base", "--device", "h200", "--for", purpose)[0]["memory_bytes"]
        for purpose in ("infer", "finetune", "pretrain")
    ]
    assert memory == sorted(memory) and len(set(memory)) == 3


def test_overrides_apply_to_all() -> None:
    shallow = plans("albert-base", "bert-base", "num_layers=6", "--device", "h200")
    assert shallow[0]["parameters"] == 11_683_584
    assert round(shallow[1]["parameters"] / 1e6, 2) == 66.96


@pytest.mark.parametrize("more", [[], ["--checkpointing"], ["--for", "infer"], ["--compile"], ["--mixed"]])
@pytest.mark.parametrize("device", ["h200", "t4", "cpu"])
def test_the_largest_batch_is_the_largest(device: str, more: list[str]) -> None:
    model = ["albert-large", "num_layers=3"]  # the batches are larger, the count takes an eighth of the time
    (found,) = plans(*model, "--device", device, *more)
    usable, largest = found["device"]["usable_bytes"], found["largest_tokens"]
    assert plans(*model, "--device", device, "--tokens", str(largest), *more)[0]["memory_bytes"] <= usable
    over = plans(*model, "--device", device, "--tokens", str(largest + 512), *more)[0]
    assert over["memory_bytes"] > usable and not over["fits"]
    assert "does not fit" in over["answer"]


def test_checkpointing_saves_memory_and_costs_time() -> None:
    (plain,) = plans("albert-base", "--device", "h200", "--tokens", "65536")
    (again,) = plans("albert-base", "--device", "h200", "--tokens", "65536", "--checkpointing")
    assert again["memory_bytes"] < 0.5 * plain["memory_bytes"]
    assert again["tokens_per_second"] < 0.85 * plain["tokens_per_second"]


def test_optimisers_keep_different_states() -> None:
    settings = StepSettings(kind="cuda", length=512, precision="bf16")
    state = {
        name: record_step(preset_config("bert-large"), replace(settings, optimiser=name)).memory(512).optimiser
        for name in OPTIMISERS
    }
    assert state["sgd"] == 0
    assert state["adamw"] == state["lamb"] == 8 * 336_226_108
    in_blocks = 24 * (4 * 1024**2 + 2 * 1024 * 4096)  # the matrices that Muon steps, with one number for each of theirs
    assert state["muon"] == state["adamw"] - 4 * in_blocks


@pytest.mark.parametrize(
    "name,tokens,measured",
    [
        ("albert-base-v2", 65536, 773e3),
        ("albert-large-v2", 65536, 252e3),
        ("albert-xlarge-v2", 32768, 73e3),
        ("albert-xxlarge-v2", 32768, 40e3),
    ],
)
def test_speed_is_near_what_was_measured_on_an_h200(name: str, tokens: int, measured: float) -> None:
    # The step of pretraining, rows of 512 tokens (docs/LOG.md).
    (found,) = plans(name, "--device", "h200", "--tokens", str(tokens), "--compile")
    assert found["tokens_per_second"] == pytest.approx(measured, rel=0.15)


def test_auto_measures_the_machine() -> None:
    (found,) = plans("albert-tiny", "--device", "auto", "--for", "infer")
    (rate,) = found["device"]["flops"].values()
    assert 1e9 < rate < 5e15
    assert "measured" in found["device"]["figures"]


def test_measured_steps_are_what_the_answer_goes_by() -> None:
    (found,) = plans("albert-tiny", "--device", "cpu", "--measure", "--tokens", "512", "--length", "64", "--mixed")
    measured = found["measured"]
    assert (
        found["tokens_per_second"] == measured["tokens_per_second"] == pytest.approx(512 / measured["seconds_per_step"])
    )
    assert 0.85 < found["memory_bytes"] / measured["memory_bytes"] < 1.15
    assert 5 < measured["loss"] < 20  # near log(30000) + log(2) before anything is learnt


def test_a_folder_can_be_planned_for(tmp_path: Any) -> None:
    from litebert.checkpoints.folder import load_model, save_model

    save_model(tmp_path / "model", load_model("albert-tiny").network, None, verb="test")
    (found,) = plans(str(tmp_path / "model"), "--device", "t4")
    assert found["parameters"] == plans("albert-tiny", "--device", "t4")[0]["parameters"]


def test_table_names_models_and_answers() -> None:
    result = CliRunner().invoke(app, ["plan", "albert-base", "bert-base", "--device", "t4", "--budget", "90m"])
    assert result.exit_code == 0
    assert "11,683,584" in result.stdout and "109,482,240" in result.stdout
    assert "albert-base fits on a T4" in result.stdout and "1.5 hours see" in result.stdout


@pytest.mark.parametrize(
    "words,expected",
    [
        (["albert-bse"], "albert-base"),
        (["albert-base", "embeding_width=64"], "embedding_width"),
        (["num_layers=6"], "models is missing"),
        (["albert-base", "--device", "h20"], "h200"),
        (["albert-base", "--device", "t4", "--precision", "bf16"], "precision fp16"),
        (["albert-base", "--precision", "fp8"], "fp16"),
        (["albert-base", "--for", "train"], "pretrain"),
        (["albert-base", "--optimiser", "adam"], "adamw"),
        (["albert-base", "--budget", "2x"], "2x"),
        (["albert-base", "--device", "h200", "--tokens", "100"], "less than one sequence"),
        (["albert-base", "--device", "h200", "--tokens", "-1"], "tokens is -1"),
        (["albert-base", "--device", "h200", "--length", "600"], "512 positions"),
        (["albert-base", "--device", "h200", "--measure"], "device auto"),
        (["albert-base", "--measure", "--for", "infer"], "pretraining"),
    ],
)
def test_mistakes_get_a_sentence(words: list[str], expected: str) -> None:
    assert expected in refusal(*words)


def test_a_mistake_exits_with_2() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "litebert", "plan", "albert-bse"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "albert-base" in done.stderr and "Traceback" not in done.stderr and done.stderr.count("\n") == 1


def test_devices_state_their_figures() -> None:
    assert NAMED["h200"].memory_bytes == 139 * GIB and NAMED["h200"].flops["bf16"] == 793e12
    assert all("vendor" in device.figures for device in NAMED.values())
