"""Damaged and hostile model folders: refused in a sentence, noticed by a checksum, or working; none runs code."""

import json
import os
import random
import shutil
from pathlib import Path

import pytest
import torch
import toy_tasks as toy

from litebert.checkpoints.folder import load_model
from litebert.errors import InputError
from litebert.shipped_models import CHECKSUMS

VALUES = (None, -1, 0, 10**30, 1.5, float("inf"), "x", "", [], {}, [[]], True, "<script>", "\ud800", 10**9)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return toy.make_model(tmp_path_factory.mktemp("made"))


@pytest.fixture
def copy(model, tmp_path) -> Path:
    shutil.copytree(model, tmp_path / "model")
    return tmp_path / "model"


def refused(folder: Path) -> str:
    """The sentence a folder is refused with; nothing if it loads."""
    try:
        load_model(folder)
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_a_flipped_bit_is_noticed(copy, name):
    assert not refused(copy)
    path = copy / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    said = refused(copy)
    assert f"{name} is damaged or was changed" in said and f"delete {copy / CHECKSUMS}" in said


def test_a_folder_that_was_changed_on_purpose_loads_without_its_checksums(copy):
    config = copy / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "hidden_dropout_prob": 0.25}))
    assert load_model(copy).network.config.encoder.dropout == 0.25
    tokenizer = copy / "tokenizer.json"
    tokenizer.write_text(json.dumps(json.loads(tokenizer.read_text())))
    assert refused(copy)
    (copy / CHECKSUMS).unlink()
    assert not refused(copy)


def test_every_field_of_a_config_with_a_hostile_value(copy):
    (copy / CHECKSUMS).unlink()
    path = copy / "config.json"
    fields = json.loads(path.read_text())
    for name in fields:
        for value in VALUES:
            path.write_text(json.dumps({**fields, name: value}))
            assert "\n" not in refused(copy), (name, value)  # anything but an InputError fails the test


def test_damaged_weights_at_random_places(copy):
    (copy / CHECKSUMS).unlink()
    path, draw = copy / "model.safetensors", random.Random(0)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    for number in range(200):
        content = bytearray(whole)
        content[draw.randrange(header)] ^= 1 << draw.randrange(8)
        path.write_bytes(content if number % 2 else content[: draw.randrange(len(content))])
        assert "\n" not in refused(copy)


def test_damaged_tokenizers(copy):
    (copy / CHECKSUMS).unlink()
    path, draw = copy / "tokenizer.json", random.Random(0)
    whole = path.read_bytes()
    for content in (b"", b"{}", b"[" * 100_000, b"null", b'{"model": {"type": "BPE"}}', whole[:-20], bytes(1000)):
        path.write_bytes(content)
        assert "tokenizer.json" in refused(copy), content[:20]
    for _ in range(100):
        damaged = bytearray(whole)
        damaged[draw.randrange(len(whole))] ^= 1 << draw.randrange(7)
        path.write_bytes(damaged)
        assert "\n" not in refused(copy)


class Trap:
    """Runs a command where a pickle of it is loaded carelessly."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self):
        return os.system, (f"touch {self.file}",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.safetensors"])
def test_a_pickle_never_runs(copy, tmp_path, name):
    for path in (copy / "model.safetensors", copy / CHECKSUMS):
        path.unlink()
    torch.save({"weights": Trap(tmp_path / "ran")}, copy / name)
    assert name in refused(copy) and not (tmp_path / "ran").exists()
