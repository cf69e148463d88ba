"""The model folder, which every command reads and writes: config.json, model.safetensors, tokenizer.json, run.json.

Wherever ``transformers`` has a class for the plan, the folder is one that it loads as it is. Other plans are kept in
our own names under ``"model_type": "litebert"``.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from litebert.checkpoints.huggingface import (
    expected_shapes,
    guess_family,
    heads_present,
    is_native,
    read_encoder_config,
    read_heads,
    read_theirs,
    unrolled,
    why_not_native,
    with_modern_names,
    write_config,
    write_theirs,
)
from litebert.checkpoints.tensors import read_tensors, tensor_names, write_tensors
from litebert.config import build, parse_overrides, preset_names
from litebert.data.files import read_object
from litebert.errors import InputError, nearest
from litebert.families import FAMILIES
from litebert.nn.config import EncoderConfig, preset_config
from litebert.nn.network import PRETRAINING_HEADS, HeadsConfig, Network, NetworkConfig
from litebert.runs import CHECKPOINTS, STORE_FILE, Parent, write_run
from litebert.shipped_models import check_model, shipped_folder, shipped_names, write_model_checksums
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import read_tokenizer

CONFIG = "config.json"
TOKENIZER_FILES = ("tokenizer.json", "spiece.model", "vocab.txt", "vocab.json")


@dataclass
class Loaded:
    """A model as read: the network, its tokenizer where there is one, and what the reader should know."""

    network: Network
    tokenizer: Tokenizer | None
    notes: list[str] = field(default_factory=list)


def load_model(
    source: str | os.PathLike[str],
    *,
    overrides: Sequence[str] = (),
    heads: HeadsConfig | None = None,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Loaded:
    """A model from a preset, a litebert folder, a Hugging Face folder or the name of a shipped model.

    ``heads`` selects the heads; by default a folder gives those it has and a preset the pretraining ones.
    """
    folder = model_folder(source)
    if folder.is_dir():
        if overrides:
            raise InputError(f"{folder} is a trained model: fields such as {overrides[0]} can only change a preset")
        check_model(folder)
        loaded = _read_folder(folder, heads)
    else:
        config = model_config(source, overrides)
        loaded = Loaded(Network(replace(config, heads=heads) if heads else config), None)
        loaded.notes.append(f"{source} is a preset: its weights are new")
    loaded.network.to(device=device, dtype=dtype).eval()
    return loaded


def check_no_model(folder: Path, overwrite: bool) -> None:
    """Refuse to replace a model unless ``overwrite`` is set."""
    if not overwrite and (folder / CONFIG).is_file():
        raise InputError(f"{folder} holds a model; name another folder, or pass overwrite to replace that one")


def model_folder(source: str | os.PathLike[str]) -> Path:
    """The folder that holds the model: the one named, ``model`` inside it where that is a run, or a shipped one."""
    folder = Path(source)
    if not folder.is_dir():
        return shipped_folder(source) or folder
    inside = folder / "model"
    return inside if (inside / CONFIG).is_file() and not (folder / CONFIG).is_file() else folder


def model_config(source: str | os.PathLike[str], overrides: Sequence[str] = ()) -> NetworkConfig:
    """The shape of a model, without its weights."""
    folder = model_folder(source)
    if folder.is_dir():
        theirs = _read_json(folder)
        if theirs.get("model_type") == "litebert":
            config = _own_config(theirs, folder)
        else:
            config = _their_config(theirs, tensor_names(folder), folder, None)
        changes = parse_overrides(overrides)
        encoder = build(EncoderConfig, {**dataclasses.asdict(config.encoder), **changes}) if changes else config.encoder
        return replace(config, encoder=encoder)
    name, names = str(source), [*preset_names("models"), *shipped_names()]
    if name not in names and os.sep not in name:
        folders = [path.name for path in Path().iterdir() if path.is_dir() and (model_folder(path) / CONFIG).is_file()]
        raise InputError(
            f"'{name}' is neither a folder nor a preset nor a shipped model{nearest(name, names + folders)}"
        )
    return NetworkConfig(encoder=preset_config(name, overrides), heads=HeadsConfig(names=PRETRAINING_HEADS))


def save_model(
    folder: str | os.PathLike[str],
    network: Network,
    tokenizer: Tokenizer | None,
    *,
    verb: str,
    settings: Mapping[str, Any] | None = None,
    parents: Sequence[Parent] = (),
    written_out: bool = False,
    files: Mapping[str, str] | None = None,
) -> None:
    """Write a model folder, all or nothing; ``written_out`` copies shared blocks so transformers loads any plan.

    ``files`` are texts by name that belong to the model, too.
    """
    tensors: dict[str, Tensor] = {name: tensor.detach().cpu() for name, tensor in network.state_dict().items()}
    config = network.config
    if written_out and not is_native(config.encoder):
        tensors, config = unrolled(tensors, config)
    native = is_native(config.encoder)
    dtype = str(next(iter(tensors.values())).dtype).removeprefix("torch.")
    with _new_folder(Path(folder)) as temporary:
        write_tensors(temporary, write_theirs(tensors, config) if native else tensors)
        if tokenizer is not None:
            tokenizer.save(temporary)
        write_run(temporary, verb, settings or {}, parents=parents)
        for name, content in (files or {}).items():
            (temporary / name).parent.mkdir(exist_ok=True)
            (temporary / name).write_text(content, encoding="utf-8")
        (temporary / CONFIG).write_text(config_text(config, dtype), encoding="utf-8")
        write_model_checksums(temporary)


def config_text(config: NetworkConfig, dtype: str = "float32") -> str:
    """The config.json of a network: as transformers has it, or our own where transformers cannot express the plan."""
    own = {"encoder": dataclasses.asdict(config.encoder), "heads": dataclasses.asdict(config.heads)}
    if is_native(config.encoder):
        described = write_config(config)
    else:
        note = f"{why_not_native(config.encoder)}; litebert.load reads this folder"
        described = {"model_type": "litebert", "note": note, "litebert": own}
    return json.dumps(described | {"dtype": dtype}, indent=2, ensure_ascii=False, sort_keys=True) + "\n"


def _read_folder(folder: Path, wanted: HeadsConfig | None) -> Loaded:
    theirs = _read_json(folder)
    tensors = read_tensors(folder)
    notes: list[str] = []
    if theirs.get("model_type") == "litebert":
        config = _own_config(theirs, folder)
        config = replace(config, heads=wanted) if wanted else config
        found = {name: tensors[name] for name in expected_shapes(config) if name in tensors}
        _check_shapes(found, config)
        missing = [name for name in expected_shapes(config) if name not in tensors]
    else:
        config = _their_config(theirs, tensors, folder, wanted)
        reading = read_theirs(with_modern_names(tensors, config.encoder.family), config)
        found, missing = reading.tensors, reading.missing
        if reading.unused:
            notes.append(f"not used from {folder.name}: {_few(reading.unused)}")
    lost = [name for name in missing if name.startswith("encoder.")]
    if lost:
        raise InputError(
            f"{folder} lacks {_few(lost)}, which its config.json asks for: config.json and the weights do not match, "
            "or the file was cut short"
        )
    new = sorted({".".join(name.split(".")[: 2 if name.startswith("heads") else 1]) for name in missing})
    notes += [f"{folder.name} has no {part.removeprefix('heads.')} weights: they are new" for part in new]
    network = _filled(config, found, missing)
    has_tokenizer = any((folder / name).is_file() for name in TOKENIZER_FILES)
    tokenizer = read_tokenizer(folder, config.encoder.family) if has_tokenizer else None
    return Loaded(network, tokenizer, notes)


def _filled(config: NetworkConfig, tensors: dict[str, Tensor], missing: list[str]) -> Network:
    """A network with these tensors; only where some are missing is anything initialised."""
    if missing:
        network = Network(config)
    else:
        with torch.device("meta"):
            network = Network(config)
    # Copies, because a mapped file leaves tensors unaligned, and products of those differ in their last bits.
    copies = {name: x.to(torch.float32, copy=True).contiguous() for name, x in tensors.items()}
    network.load_state_dict(copies, strict=False, assign=True)
    return network


def _their_config(
    theirs: Mapping[str, Any], names: Iterable[str], folder: Path, wanted: HeadsConfig | None
) -> NetworkConfig:
    """What a Hugging Face config.json describes; the names of the tensors show which heads there are."""
    names = dict.fromkeys(names)
    family = theirs.get("model_type") or guess_family(names)
    if not isinstance(family, str) or family not in FAMILIES:
        raise InputError(f"{folder} is a '{family}' model; litebert reads {', '.join(FAMILIES)}")
    try:
        heads = wanted or read_heads(theirs, family, heads_present(with_modern_names(names, family), family))
        return NetworkConfig(encoder=read_encoder_config(theirs, family), heads=heads)
    except InputError:
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:  # fields of other types
        raise InputError(f"{folder / CONFIG} holds a field that cannot be read ({error}); copy it again") from None


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.is_file():
        raise InputError(f"{folder} is not a model folder: it has no {CONFIG}{_other_kind(folder)}")
    return read_object(path, "copy the checkpoint again")


def _other_kind(folder: Path) -> str:
    """What a folder without a model is instead, and what makes a model of it."""
    if (folder / STORE_FILE).is_file():
        return f"; it is a token store, of which `litebert pretrain albert-small --corpus {folder}` makes a model"
    if (folder / CHECKPOINTS).is_dir():
        return "; it is a run that has not saved a model yet: resume it"
    if any((folder / name).is_file() for name in TOKENIZER_FILES):
        return "; it is a tokenizer, which `litebert corpus build --tokenizer` takes"
    return "; name the folder that has one"


def _own_config(theirs: Mapping[str, Any], folder: Path) -> NetworkConfig:
    try:
        parts = theirs["litebert"]
        return NetworkConfig(encoder=build(EncoderConfig, parts["encoder"]), heads=build(HeadsConfig, parts["heads"]))
    except (KeyError, TypeError):
        raise InputError(f"{folder / CONFIG} has model_type litebert but does not describe such a model") from None


def _check_shapes(tensors: Mapping[str, Tensor], config: NetworkConfig) -> None:
    for name, expected in expected_shapes(config).items():
        if name in tensors and tensors[name].shape != expected:
            raise InputError(
                f"tensor {name} has shape {tuple(tensors[name].shape)} but config.json asks for {tuple(expected)}"
            )


def _few(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of ``folder`` when all of it is written; files of others are kept."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name a folder to write the model to")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / CONFIG).is_file():
        raise InputError(f"{folder} is not empty and holds no model; name another folder")
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
    try:
        yield temporary
        temporary.chmod(0o755)
        if not folder.is_dir():
            temporary.rename(folder)
            return
        written = {path.name for path in temporary.iterdir()} | _replaced_by(temporary)
        old = temporary.with_name(f"{temporary.name}.old")
        folder.rename(old)
        temporary.rename(folder)
        for path in old.iterdir():
            if path.name not in written:
                path.rename(folder / path.name)
        shutil.rmtree(old)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _replaced_by(temporary: Path) -> set[str]:
    """Old files that would contradict the new ones: other forms of weights or of the vocabulary, early exits."""
    weights = {"pytorch_model.bin", "model.safetensors.index.json", "pytorch_model.bin.index.json"}
    vocabulary = {"spiece.model", "vocab.txt", "vocab.json", "merges.txt"}
    exits = {"exits.json", "exits.safetensors", "exits_rows.safetensors", "exits.html"}
    return weights | exits | (vocabulary if (temporary / "tokenizer.json").exists() else set())
