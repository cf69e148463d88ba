"""Tensors on disk: one safetensors file, shards with an index, or an old pickle, read without running its code."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from litebert.data.files import read_object
from litebert.errors import InputError

SAFETENSORS = "model.safetensors"
SAFETENSORS_INDEX = "model.safetensors.index.json"
PICKLE = "pytorch_model.bin"
PICKLE_INDEX = "pytorch_model.bin.index.json"


def has_tensors(folder: Path) -> bool:
    """Whether a folder holds weights in a form that can be read."""
    return _weights_file(folder) is not None


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors of a model folder, on the CPU."""
    found = _weights_file(folder)
    if found is None:
        raise InputError(f"{folder} holds no weights: expected {SAFETENSORS}, {SAFETENSORS_INDEX} or {PICKLE} there")
    return _read_shards(found) if found.suffix == ".json" else _read_file(found)


def tensor_names(folder: Path) -> list[str]:
    """The names of the tensors of a model folder, none where it has no weights; the weights themselves stay unread."""
    found = _weights_file(folder)
    if found is None:
        return []
    if found.suffix == ".json":
        return list(_shard_index(found))
    if found.suffix == ".safetensors":
        try:
            with safe_open(found, "pt") as file:
                return list(file.keys())
        except SafetensorError as error:
            raise InputError(f"{found} is damaged or cut short ({error}); copy it again") from None
    with torch.serialization.skip_data():  # a pickle that torch wrote before 1.6 is read nevertheless
        return list(_read_file(found))


def _weights_file(folder: Path) -> Path | None:
    names = (SAFETENSORS, SAFETENSORS_INDEX, PICKLE, PICKLE_INDEX)
    return next((folder / name for name in names if (folder / name).is_file()), None)


def write_tensors(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write ``model.safetensors``; the caller makes the folder appear at once."""
    whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
    try:
        save_file(whole, folder / SAFETENSORS, {"format": "pt"})
    except SafetensorError as error:  # how the library reports a full disk
        reason = str(error).rpartition("error: ")[2]
        raise InputError(
            f"the model cannot be written to {folder.parent} ({reason}); free some space and run the command again, a "
            "run with --resume"
        ) from None


def _shard_index(index: Path) -> dict[str, str]:
    """The shard of each tensor, by the tensor's name."""
    try:
        names = read_object(index, "copy the checkpoint again")["weight_map"]
        return {str(name): str(shard) for name, shard in names.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"{index} is not an index of weight files; copy the checkpoint again") from None


def _read_shards(index: Path) -> dict[str, Tensor]:
    names = _shard_index(index)
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(names.values())):
        path = index.parent / Path(shard).name
        if not path.is_file():
            raise InputError(f"{index.name} names {shard}, which is not in {index.parent}; copy the checkpoint again")
        tensors |= _read_file(path)
    missing = sorted(set(names) - set(tensors))
    if missing:
        raise InputError(f"the weight files of {index.parent} lack {missing[0]}, which {index.name} names")
    return tensors


def _read_file(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors":
        return _read_pickle(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        raise InputError(f"{path} is damaged or cut short ({error}); copy it again") from None


def _read_pickle(path: Path) -> dict[str, Tensor]:
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if "Weights only load failed" in str(error) and "GLOBAL" in str(error).upper():
            raise InputError(
                f"{path} carries code besides tensors and was not loaded; convert it to safetensors where you trust it"
            ) from None
        raise InputError(f"{path} is damaged or no torch file; copy it again") from None
    except (RuntimeError, EOFError, ValueError, OSError, KeyError) as error:
        raise InputError(f"{path} is damaged or cut short ({str(error).splitlines()[0]}); copy it again") from None
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise InputError(f"{path} holds no table of tensors; expected the state dict of a model")
    return loaded
