"""Models that come with the package: found by name, checked against their checksums, listed; part of a wheel."""

import subprocess
import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import litebert as package
from litebert import shipped_models
from litebert.checkpoints.folder import load_model, model_config, model_folder, save_model
from litebert.errors import InputError
from litebert.nn.config import family_config
from litebert.nn.network import pretraining_network
from litebert.text.tokenizer_files import read_tokenizer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small(tmp_path, monkeypatch, letter_tokenizer):
    """A small model of halved numbers, shipped as ``little-en`` in a folder that stands for the package's."""
    monkeypatch.setattr(shipped_models, "SHIPPED", tmp_path / "models")
    monkeypatch.chdir(tmp_path)
    tokenizer = letter_tokenizer("albert")
    sizes = {"vocab_size": tokenizer.vocab_size, "width": 16, "embedding_width": 8, "num_heads": 2, "num_layers": 2}
    network = pretraining_network(family_config({"feed_forward_width": 32, "max_positions": 16, **sizes}))
    folder = tmp_path / "models" / "little-en"
    save_model(folder, network.to(torch.bfloat16), tokenizer, verb="test")
    (folder / "README.md").write_text("# little-en\n\nSmall and new.\n")
    shipped_models.write_checksums(folder)
    return folder


def test_a_name_stands_for_the_shipped_folder(small, litebert):
    assert model_folder("little-en") == small
    assert read_tokenizer(Path("little-en")).vocab_size == model_config("little-en").encoder.vocab_size
    model = package.load("little-en")
    assert {tensor.dtype for tensor in load_file(small / "model.safetensors").values()} == {torch.bfloat16}
    assert {parameter.dtype for parameter in model.network.parameters()} == {torch.float32}
    assert len(model.fill("ab[MASK]", 3)) == 3
    code, out, _ = litebert("ls")
    assert code == 0 and out.splitlines()[0].startswith(
        "little-en            trained, ships with litebert: Small and new."
    )
    assert "num_layers: 2" in litebert("show", "little-en")[1]
    assert litebert("shrink", "little-en", "--drop", "1", "-o", "less")[0] == 0
    assert load_model("less").network.config.encoder.num_layers == 1
    assert litebert("plan", "little-en")[0] == 0


def test_a_folder_of_the_name_comes_first(small, tmp_path):
    package.load("little-en").save("little-en")
    assert model_folder("little-en") == Path("little-en")


def test_a_wrong_name_gets_the_nearest(small, litebert):
    for words in (("show", "litle-en"), ("plan", "litle-en"), ("finetune", "litle-en", "--task", "rte")):
        code, _, err = litebert(*words, *(("--data", ROOT) if words[0] == "finetune" else ()))
        assert code == 2 and err.count("\n") == 1
    with pytest.raises(InputError, match=r"'litle-en' is neither a folder nor a preset .* did you mean 'little-en'"):
        package.load("litle-en")


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_damaged_file_is_told_in_a_sentence(small, name, litebert):
    content = bytearray((small / name).read_bytes())
    content[len(content) // 2] ^= 1
    (small / name).write_bytes(content)
    with pytest.raises(InputError, match=f"little-en is damaged: .*{name} is not the file that was shipped; install"):
        package.load("little-en")
    (small / name).unlink()
    code, _, err = litebert("fill", "little-en", "a[MASK]")
    assert code == 2 and f"{name} is missing" in err


def test_checksums_are_those_of_sha256sum(small):
    done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=small, capture_output=True, text=True)
    assert done.returncode == 0 and "model.safetensors: OK" in done.stdout


def test_a_wheel_holds_what_lies_in_the_package():
    """The builder takes every file of the package that git does not ignore."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel == {"packages": ["src/litebert", "src/litebert_lab"]}
    for name in ("model.safetensors", "tokenizer.json", "SHA256SUMS", "README.md", "loss.png"):
        path = f"src/litebert/models/litebert-en/{name}"
        assert subprocess.run(["git", "check-ignore", "-q", path], cwd=ROOT).returncode == 1
