"""The shape of a model is read from config.json and the names of its tensors; weights stay on the disk."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.checkpoints import tensors
from litebert.checkpoints.folder import load_model, model_config, save_model
from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network
from litebert.shipped_models import CHECKSUMS


@pytest.fixture(params=["safetensors", "shards", "pickle"])
def folder(request, tmp_path):
    """A model folder whose config.json says nothing about heads, with its weights in each of the usual forms."""
    folder = tmp_path / "model"
    save_model(folder, pretraining_network(preset_config("albert-tiny", ["vocab_size=40"])), None, verb="test")
    config = folder / "config.json"
    config.write_text(config.read_text().replace("AlbertForPreTraining", "AlbertModel").replace("litebert", "unknown"))
    (folder / CHECKSUMS).unlink()
    file = folder / "model.safetensors"
    weights = load_file(file)
    if request.param == "shards":
        file.rename(folder / "model-00001-of-00001.safetensors")
        index = {"weight_map": dict.fromkeys(weights, "model-00001-of-00001.safetensors")}
        (folder / "model.safetensors.index.json").write_text(str(index).replace("'", '"'))
    if request.param == "pickle":
        torch.save(weights, folder / "pytorch_model.bin")
        file.unlink()
    if request.param == "safetensors":
        save_file(weights, file)
    return folder


def test_config_of_a_folder_reads_no_weights(folder, monkeypatch):
    expected = load_model(folder).network.config
    assert set(expected.heads.names) == {"masked_lm", "order"}

    def refuse(*_):
        raise AssertionError("weights were read")

    monkeypatch.setattr(tensors, "load_file", refuse)
    assert model_config(folder) == expected
