"""litebert: train, fine-tune, shrink and ship BERT-class text encoders with little compute.

``import litebert`` is light; torch is imported when a model is loaded.
"""

from typing import TYPE_CHECKING, Any

from litebert.version import __version__

if TYPE_CHECKING:
    from litebert.model import Model, load

__all__ = ["Model", "__version__", "load"]


def __getattr__(name: str) -> Any:
    if name in ("load", "Model"):
        from litebert import model

        return getattr(model, name)
    raise AttributeError(f"module 'litebert' has no attribute '{name}'")
