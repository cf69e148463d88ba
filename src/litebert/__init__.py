"""litebert: train, fine-tune, shrink and ship BERT-class text encoders with little compute.

``import litebert`` is light; torch is imported when a model is loaded.
"""

from typing import TYPE_CHECKING, Any

from litebert.version import __version__

if TYPE_CHECKING:
    from litebert.model import Model, Prediction, load

__all__ = ["Model", "Prediction", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in ("load", "Model", "Prediction"):
        from importlib import import_module

        return getattr(import_module("litebert.model"), name)
    raise AttributeError(f"module 'litebert' has no attribute '{name}'")
