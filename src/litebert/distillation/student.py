"""What becomes a student: a preset with new weights, or a model folder. Both must read what the teacher reads."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from litebert.checkpoints.folder import Loaded, model_folder
from litebert.distillation.teacher import Teacher
from litebert.errors import InputError
from litebert.families import FAMILIES
from litebert.nn.config import preset_config
from litebert.nn.network import Network, NetworkConfig
from litebert.tasks.prepare import load_source


def load_student(name: str, fields: Sequence[str], teacher: Teacher, seed: int) -> Loaded:
    """The student of this name; ``fields`` (``num_layers=4``) change a preset."""
    if not model_folder(name).is_dir():
        return _new_student(name, fields, teacher, seed)
    if fields:
        raise InputError(f"{name} is a trained model: fields such as student.{fields[0]} can only change a preset")
    loaded = load_source(name)
    assert loaded.tokenizer is not None
    if loaded.tokenizer.fingerprint != teacher.tokenizer.fingerprint:
        raise InputError(
            f"{name} and its teacher {teacher.folder} have different tokenizers, so they cannot read one batch; name a "
            "preset as the student, or a model made from the teacher (`litebert shrink`)"
        )
    return loaded


def _new_student(name: str, fields: Sequence[str], teacher: Teacher, seed: int) -> Loaded:
    """A preset with new weights and the teacher's vocabulary."""
    theirs = teacher.network.config.encoder
    encoder = replace(preset_config(name, fields), vocab_size=theirs.vocab_size, pad_id=theirs.pad_id)
    if FAMILIES[encoder.family].layout != FAMILIES[teacher.tokenizer.family].layout:
        raise InputError(
            f"{name} is a {encoder.family} model, whose inputs are laid out in another way than those of the teacher "
            f"({teacher.tokenizer.family}); choose another preset"
        )
    torch.manual_seed(seed)
    network = Network(NetworkConfig(encoder=encoder))
    return Loaded(network.eval(), teacher.tokenizer, [f"{Path(name).name} is a preset: its weights are new"])
