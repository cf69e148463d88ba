"""litebert: train, fine-tune, shrink and ship BERT-class text encoders with little compute.

``load`` a model, or make one: ``train_tokenizer``, ``build_corpus``, ``pretrain``, ``finetune``, ``distill``,
``shrink``. ``plan`` estimates the cost of a run before it starts. The functions behind the other commands (``convert``,
``card``, ``list_runs``, ...) are in ``litebert.api``. Light to import: torch is imported when it is needed.
"""

from typing import TYPE_CHECKING, Any

from litebert.api import (
    build_corpus,
    distill,
    encode,
    exits,
    export,
    finetune,
    layers,
    lengthen,
    load,
    plan,
    predict,
    pretrain,
    shrink,
    train_tokenizer,
)
from litebert.errors import InputError
from litebert.version import __version__

if TYPE_CHECKING:
    from litebert.model import Model
    from litebert.runtime import Runtime
    from litebert.tasks.examples import Prediction

__all__ = [
    "InputError",
    "Model",
    "Prediction",
    "Runtime",
    "__version__",
    "build_corpus",
    "distill",
    "encode",
    "exits",
    "export",
    "finetune",
    "layers",
    "lengthen",
    "load",
    "plan",
    "predict",
    "pretrain",
    "shrink",
    "train_tokenizer",
]


_LATER = {"Model": "litebert.model", "Runtime": "litebert.runtime", "Prediction": "litebert.tasks.examples"}


def __getattr__(name: str) -> Any:
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module 'litebert' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "api"])
