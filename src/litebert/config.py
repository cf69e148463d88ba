"""Settings as frozen dataclasses: read from YAML presets that hold differences only, changed with ``name=value`` words.

A preset may say ``base: OTHER`` and then only what differs. An unknown field is an error that names the nearest one.
"""

import contextlib
import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import yaml

from litebert.errors import InputError, nearest

PRESETS = Path(__file__).parent / "presets"

Config = TypeVar("Config")


def preset_names(kind: str) -> list[str]:
    """The presets of one kind (``models``, ...), in a stable order."""
    return sorted(path.stem for path in (PRESETS / kind).glob("*.yaml"))


def read_preset(kind: str, name: str) -> dict[str, Any]:
    """The fields of a preset with its bases merged in, the nearest winning."""
    path = PRESETS / kind / f"{name}.yaml"
    if not path.is_file():
        raise InputError(f"there is no preset '{name}'{nearest(name, preset_names(kind))}")
    fields: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    base = fields.pop("base", None)
    return {**read_preset(kind, base), **fields} if base else fields


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """``["width=256", "share=attention"]`` as a mapping; values are read as YAML."""
    fields = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise InputError(f"'{word}' is not of the form field=value, such as embedding_width=64")
        fields[name.strip()] = yaml.safe_load(value)
    return fields


def build(cls: type[Config], fields: Mapping[str, Any]) -> Config:
    """A config of class ``cls`` from plain values, each checked against the field's type."""
    hints = typing.get_type_hints(cls)
    known = {field.name for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for name in fields:
        if name not in known:
            raise InputError(f"unknown field '{name}'{nearest(name, known)}")
    return cls(**{name: _convert(name, value, hints[name]) for name, value in fields.items()})


def _convert(name: str, value: Any, hint: Any) -> Any:
    """``value`` as the type a field asks for, or an error that names the field."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        if value not in arguments:
            raise InputError(f"{name} is '{value}' but must be one of {', '.join(map(str, arguments))}")
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        return _convert_any(name, value, [a for a in arguments if a is not type(None)])
    if origin is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"{name} is '{value}' but must be a list")
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(inner) != len(value):
            raise InputError(f"{name} is '{value}' but must have {len(inner)} items")
        return tuple(_convert(name, item, kind) for item, kind in zip(value, inner, strict=True))
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            return float(value)  # YAML reads 1e-12 as a string
        except ValueError:
            raise InputError(f"{name} is '{value}' but must be a number") from None
    if hint is bool and isinstance(value, bool):
        return value
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    raise InputError(f"{name} is '{value}' but must be of type {getattr(hint, '__name__', hint)}")


def _convert_any(name: str, value: Any, kinds: Sequence[Any]) -> Any:
    """``value`` as the first of several types that takes it."""
    for kind in kinds[:-1]:
        with contextlib.suppress(InputError):
            return _convert(name, value, kind)
    return _convert(name, value, kinds[-1])


def parse_share(text: str, option: str) -> float:
    """``1%`` or ``0.01``, as a person gave it to an option, as a number."""
    try:
        share = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        raise InputError(f"{option} is '{text}' but must be a share such as 1% or 0.01") from None
    if not 0 <= share < 1:
        meant = "" if text.endswith("%") or not 1 <= share < 100 else f"; for {text} in a hundred write {text}%"
        raise InputError(f"{option} is '{text}' but must be from 0 to below 100%{meant}")
    return share
