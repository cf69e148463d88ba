"""Settings as frozen dataclasses: read from YAML presets that hold differences only, changed with ``name=value`` words.

A preset may have ``base: OTHER`` and then only what differs. Settings nest, and ``optimiser.rate`` names a field inside
one. An unknown field is an error that names the nearest one. A class that has renamed fields lists them in a class
variable ``RENAMED``, from the old name to the new, and is still built from the old ones.
"""

import contextlib
import dataclasses
import logging
import math
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from litebert.errors import InputError, nearest
from litebert.parameters import LARGEST, shown

log = logging.getLogger(__name__)

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
    return merged(read_preset(kind, base), fields) if base else fields


def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings, the second winning, nested ones field by field."""
    found = dict(first)
    for name, value in second.items():
        before = found.get(name)
        both = isinstance(before, Mapping) and isinstance(value, Mapping)
        found[name] = merged(before, value) if both else value  # type: ignore[arg-type]
    return found


def parse_overrides(words: Sequence[str]) -> dict[str, Any]:
    """``["width=256", "share=attention"]`` as a mapping; values are read as YAML."""
    fields = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise InputError(f"'{word}' is not of the form field=value, such as embedding_width=64")
        fields[name.strip()] = _parse_value(name.strip(), value)
    return fields


def _parse_value(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(
            f"{name} is {shown(text)}, which cannot be read; write a number, a word or a list such as [0.9, 0.98]"
        ) from None


def current_name(cls: type[Any], name: str, value: Any = None) -> str:
    """What a field is called today; a plain value of what has become a group belongs to a field inside it."""
    return name if isinstance(value, Mapping) else getattr(cls, "RENAMED", {}).get(name, name)


def nested(cls: type[Any], fields: Mapping[str, Any], *, notice: bool = False) -> dict[str, Any]:
    """Dotted names as nested mappings and old names as new ones; ``notice``: log the old ones."""
    found: dict[str, Any] = {}
    for name, value in fields.items():
        new = current_name(cls, name, value)
        if new != name and notice:
            _notice(name, new)
        for part in reversed(new.split(".")):
            value = {part: value}
        found = merged(found, value)
    return found


@cache
def _notice(old: str, new: str) -> None:
    """Log an old name, once a process."""
    log.warning("%s is called %s now; the old name works until the next release", old, new)


def field_names(cls: type[Any], prefix: str = "") -> frozenset[str]:
    """The names of all fields of a class, with those inside nested ones dotted."""
    hints, names = typing.get_type_hints(cls), set()
    for field in dataclasses.fields(cls):
        if field.init:
            inside = field_names(hints[field.name], f"{prefix}{field.name}.") if _nests(hints[field.name]) else ()
            names |= {prefix + field.name, *inside}
    return frozenset(names)


def nearest_field(name: str, names: Iterable[str]) -> str:
    """A hint for a mistyped field; the last part of a dotted name is enough to find it by."""
    full = {each.rpartition(".")[2]: each for each in sorted(names, key=len, reverse=True)}
    hint = nearest(name.rpartition(".")[2], full)
    return next((hint.replace(f"'{last}'", f"'{each}'") for last, each in full.items() if f"'{last}'" in hint), hint)


def build(cls: type[Config], fields: Mapping[str, Any], *, prefix: str = "") -> Config:
    """A config of class ``cls`` from plain values, each checked against the field's type."""
    hints = typing.get_type_hints(cls)
    known = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in nested(cls, fields).items():
        if name not in known:
            raise InputError(f"unknown field '{prefix}{name}'{nearest_field(prefix + name, field_names(cls, prefix))}")
        if _nests(hints[name]):
            field = known[name]
            usual = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
            values[name] = _inside(usual, value, prefix + name)
        else:
            values[name] = _convert(prefix + name, value, hints[name])
    try:
        return cls(**values)
    except InputError as error:  # a field names itself; here is where it is
        raise InputError(f"{prefix}{error}" if str(error).split(" ")[0] in known else str(error)) from None


def _nests(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _inside(default: Any, fields: Any, name: str) -> Any:
    """The nested config of a field: its default with these fields changed."""
    if not isinstance(fields, Mapping):
        some = next(iter(dataclasses.fields(default))).name
        raise InputError(f"{name} is '{fields}' but has fields of its own; write {name}.{some}=...")
    usual = {field.name: getattr(default, field.name) for field in dataclasses.fields(default)}
    return build(type(default), {**usual, **fields}, prefix=f"{name}.")


def value_of(config: Any, name: str) -> Any:
    """The value of a field by its dotted name."""
    for part in name.split("."):
        config = getattr(config, part)
    return config


def changed(config: Config, values: Mapping[str, Any]) -> Config:
    """A config with other values of the fields of these dotted names."""
    for name, value in values.items():
        first, _, rest = name.partition(".")
        new = changed(getattr(config, first), {rest: value}) if rest else value
        config = dataclasses.replace(config, **{first: new})  # type: ignore[type-var]
    return config


def flat(config: Any, prefix: str = "") -> dict[str, Any]:
    """All values of a config by their dotted names."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        inside = dataclasses.is_dataclass(value)
        found |= flat(value, f"{prefix}{field.name}.") if inside else {prefix + field.name: value}
    return found


IN_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a word"}


def _list_in_words(hint: Any) -> str:
    """What a list of these may be given as."""
    return "a finite number, or a list of stages" if typing.get_args(hint)[:1] == (float,) else "a list"


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
        if isinstance(value, int | float) and typing.get_args(arguments[0])[:1] == (float,):
            value = [[0, value]]  # a plain number in place of stages is one stage, from the beginning on
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise InputError(f"{name} is {shown(value)} but must be {_list_in_words(arguments[0])}")
        inner = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(inner) != len(value):
            raise InputError(f"{name} is '{value}' but must have {len(inner)} items")
        return tuple(_convert(name, item, kind) for item, kind in zip(value, inner, strict=True))
    if hint is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)  # YAML reads 1e-12 as a string
        except (ValueError, OverflowError):
            raise InputError(f"{name} is {shown(value)} but must be a number") from None
        if not math.isfinite(number):
            raise InputError(f"{name} is {shown(value)} but must be a finite number")
        return number
    if hint is bool and isinstance(value, bool):
        return value
    if hint is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) > LARGEST:
        raise InputError(f"{name} is {value:.3g} but must be a whole number that a computer can hold")
    if isinstance(hint, type) and isinstance(value, hint) and not (hint is int and isinstance(value, bool)):
        return value
    words = "null" if value is None else shown(value)
    raise InputError(f"{name} is {words} but must be {IN_WORDS.get(hint, hint)}")


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
        raise InputError(f"{option} is '{text}' but must be a share such as 1% or 0.01", parameter=option) from None
    if not 0 <= share < 1:
        meant = "" if text.endswith("%") or not 1 <= share < 100 else f"; for {text} in a hundred write {text}%"
        raise InputError(f"{option} is '{text}' but must be from 0 to below 100%{meant}", parameter=option)
    return share
