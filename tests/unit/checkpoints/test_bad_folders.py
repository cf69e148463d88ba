"""Damaged, foreign or unsafe model folders: one sentence each, and nothing of the user's is lost."""

import json
import os

import pytest
import torch
from safetensors.torch import load_file, save_file

from litebert.checkpoints.folder import load_model, save_model
from litebert.errors import InputError
from litebert.families import FAMILIES
from litebert.nn.config import preset_config
from litebert.nn.network import pretraining_network


@pytest.fixture
def folder(tmp_path):
    save_model(tmp_path / "model", pretraining_network(preset_config("albert-tiny", ["vocab_size=40"])), None, verb="t")
    (tmp_path / "model" / "SHA256SUMS").unlink()  # or everything here would only be "changed"
    return tmp_path / "model"


def edit(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def refusal(folder):
    """The one sentence with which a folder is refused."""
    with pytest.raises(InputError) as caught:
        load_model(folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_missing_files(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    assert "not a model folder: it has no config.json" in refusal(tmp_path / "empty")
    for name, said in (("store.json", "token store"), ("vocab.txt", "tokenizer"), ("checkpoints/x", "resume it")):
        path = tmp_path / said / name
        path.parent.mkdir(parents=True)
        path.touch()
        assert said in refusal(tmp_path / said).partition("config.json")[2]  # what it is instead, and what to do
    (folder / "model.safetensors").unlink()
    assert "holds no weights: expected model.safetensors" in refusal(folder)


def test_a_misspelt_folder_is_told_from_what_is_there(folder, monkeypatch):
    monkeypatch.chdir(folder.parent)
    (folder.parent / f"{folder.name}-notes").mkdir()  # no model
    assert refusal(f"{folder.name}s").endswith(f"did you mean '{folder.name}'?")


def test_truncated_weights(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "model.safetensors is damaged or cut short" in refusal(folder)
    path.write_bytes(b"")
    assert "damaged or cut short" in refusal(folder)


def test_truncated_pickle(folder):
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert "pytorch_model.bin is damaged" in refusal(folder)
    path.write_bytes(b"not a pickle")
    assert "pytorch_model.bin is damaged" in refusal(folder)


class Trap:
    def __reduce__(self):
        return os.system, ("touch trapped",)


def test_a_pickle_with_code_is_refused_and_not_run(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"weight": Trap()}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    assert "carries code besides tensors and was not loaded" in refusal(folder)
    assert not (tmp_path / "trapped").exists()


def test_a_tensor_of_the_wrong_shape_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    name = "albert.encoder.albert_layer_groups.0.albert_layers.0.ffn.weight"
    tensors[name] = torch.zeros(512, 100)
    save_file(tensors, folder / "model.safetensors")
    assert f"tensor {name} has shape (512, 100) but config.json asks for (512, 128)" in refusal(folder)


def test_a_missing_tensor_is_named(folder):
    tensors = load_file(folder / "model.safetensors")
    del tensors["albert.embeddings.position_embeddings.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert "lacks encoder.embeddings.position.weight" in refusal(folder)


def test_a_config_that_is_not_one(folder):
    (folder / "config.json").write_text("{")
    assert "config.json is not valid JSON" in refusal(folder)
    (folder / "config.json").write_text("[1]")
    assert "holds a list" in refusal(folder)


def test_foreign_models_and_settings(folder):
    edit(folder, model_type="gpt2")
    assert f"is a 'gpt2' model; litebert reads {', '.join(FAMILIES)}" in refusal(folder)
    edit(folder, model_type="albert", hidden_act="sigmoid")
    assert "activation 'sigmoid' is not one of" in refusal(folder)
    edit(folder, hidden_act="gelu", position_embedding_type="relative_key")
    assert "position_embedding_type is 'relative_key'" in refusal(folder)


def test_a_shard_that_is_not_there(folder):
    names = dict.fromkeys(load_file(folder / "model.safetensors"), "model-00001.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    assert "names model-00001.safetensors, which is not in" in refusal(folder)
    (folder / "model.safetensors.index.json").write_text("{}")
    assert "is not an index of weight files" in refusal(folder)


def test_overrides_do_not_change_trained_models(folder):
    with pytest.raises(InputError, match="can only change a preset"):
        load_model(folder, overrides=["width=3"])


def test_saving_never_destroys_what_it_does_not_know(folder, tmp_path):
    net = load_model(folder).network
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(InputError, match="not empty and holds no model"):
        save_model(tmp_path / "thesis", net, None, verb="t")
    with pytest.raises(InputError, match="is a file"):
        save_model(tmp_path / "thesis" / "chapter.tex", net, None, verb="t")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"


def test_a_save_that_fails_leaves_the_old_model(folder, monkeypatch):
    loaded = load_model(folder)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("litebert.checkpoints.folder.write_tensors", full)
    with pytest.raises(OSError, match="No space left"):
        save_model(folder, loaded.network, None, verb="t")
    monkeypatch.undo()
    load_model(folder)
    assert [path.name for path in folder.parent.iterdir()] == ["model"]


def test_an_older_pickle_does_not_outlive_the_new_weights(folder):
    torch.save({"old": torch.zeros(1)}, folder / "pytorch_model.bin")
    save_model(folder, load_model(folder).network, None, verb="t")
    assert not (folder / "pytorch_model.bin").exists()
