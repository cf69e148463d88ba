"""The families of models, each described in one file: ``FAMILIES`` has the ``FAMILY`` of every file here by name.

A family is data. Nothing outside this package asks for one by name where a field of ``Family`` can answer, and a new
file is all that a new family needs. No torch here, so that text can be prepared without it.
"""

from importlib import import_module
from pkgutil import iter_modules

from litebert.families.family import Family

__all__ = ["FAMILIES", "Family"]

_FILES = [import_module(f"{__name__}.{file.name}") for file in iter_modules(__path__)]
FAMILIES: dict[str, Family] = {file.FAMILY.name: file.FAMILY for file in _FILES if hasattr(file, "FAMILY")}
