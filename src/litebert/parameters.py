"""Parameters of the public functions, declared once: what each means and which values it takes.

A public function annotates its parameters with ``Param`` and is decorated with ``@checked``, which refuses a wrong
value with one sentence that names the parameter. The command line makes its options out of the same declarations.
Durations are written as people do: ``90s``, ``20m``, ``1h30m`` in; ``1.5 hours`` out.
"""

import functools
import inspect
import math
import os
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar

from litebert.errors import InputError, nearest

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

PathLike = str | os.PathLike[str]
# A table of rows: a file, a dict of columns, a DataFrame, a datasets.Dataset, a list of rows or tuples.
Table = str | os.PathLike[str] | Mapping[str, Any] | Iterable[Any]
# Fields of a recipe or a model: {"epochs": 3} or ["epochs=3"].
Fields = Mapping[str, Any] | Iterable[str]
LARGEST = 2**63 - 1
UNNAMED = {"model", "exported", "onnx", ""}  # folders whose parent has the better name
LONGEST = 100 * 365.25 * 86400  # seconds of a duration
SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([smhdw])")
_NAMED = (("year", 365.25 * 86400), ("day", 86400.0), ("hour", 3600.0), ("minute", 60.0))


@dataclass(frozen=True)
class Param:
    """A parameter: a sentence of help, the range of a number, and how the command line spells it.

    Choices are the ``Literal`` strings of the parameter's type.
    """

    help: str
    low: float | None = None
    high: float | None = None
    form: "Form | None" = None  # what a text must be that is read as something else, such as a duration
    option: str = ""  # the name on the command line, where it is not the parameter's own
    short: str = ""  # a letter, such as -o
    metavar: str = ""
    positional: bool = False  # an argument on the command line, not an option
    python_only: bool = False  # has no place on a command line

    def check(self, name: str, value: Any, hint: Any) -> None:
        """Raise an InputError if a value is not one that was declared."""
        if value is None:
            if not allows(hint, type(None)):
                raise InputError(f"{name} is missing; {_lower(self.help)}", parameter=name)
            return
        self._check_texts(name, value, hint)
        choices = choices_of(hint)
        if choices and value not in choices:
            raise InputError(f"{name} is {shown(value)} but must be one of {', '.join(choices)}", parameter=name)
        wants_number = allows(hint, int) or allows(hint, float)
        if wants_number and not (isinstance(value, str) and allows(hint, str)):
            self._check_number(name, value, hint)
        if hint in (PathLike, PathLike | None) and not isinstance(value, str | os.PathLike):
            raise InputError(f"{name} is {shown(value)} but must be a name or a path", parameter=name)
        if self.form is not None and isinstance(value, str):
            self.form.check(name, value)

    def _check_texts(self, name: str, value: Any, hint: Any) -> None:
        """Refuse texts that nothing can be made of: half characters and zeros, and names of files that are blank."""
        names_files = hint in (PathLike, PathLike | None, Table, Table | None)
        for one in value if isinstance(value, list | tuple) else (value,):
            if not isinstance(one, str):
                continue
            if self.positional and isinstance(value, list | tuple) and not one.strip():
                raise InputError(f"{name} is {shown(one)} in one place; leave it out", parameter=name)
            if names_files and not one.strip():
                raise InputError(f"{name} is {shown(one)} but must be a name or a path", parameter=name)
            if not one.isascii() and any("\ud800" <= sign <= "\udfff" for sign in one):
                raise InputError(
                    f"{name} is {shown(one)}, which is not valid Unicode; write it in UTF-8", parameter=name
                )
            if "\0" in one and (names_files or not isinstance(value, list | tuple)):
                raise InputError(f"{name} is {shown(one)}, which holds a zero byte; leave it out", parameter=name)

    def _check_number(self, name: str, value: Any, hint: Any) -> None:
        if isinstance(value, bool) and allows(hint, bool):
            return
        whole = not allows(hint, float)
        kind = "a whole number" if whole else "a number"
        try:
            number = value.__index__() if whole and not isinstance(value, bool) else float(value)
        except (TypeError, ValueError, AttributeError, OverflowError):
            raise InputError(f"{name} is {shown(value)} but must be {kind}", parameter=name) from None
        outside = (self.low is not None and number < self.low) or (self.high is not None and number > self.high)
        too_large = abs(number) > LARGEST
        if isinstance(value, str | bool) or outside or too_large or math.isnan(number):
            most = f", at most {LARGEST:.2g}" if too_large and self.high is None else ""
            raise InputError(f"{name} is {shown(value)} but must be {kind}{self.range()}{most}", parameter=name)

    def range(self) -> str:
        """The range in words, to follow "a number"."""
        bounds = (self.low, self.high)
        low, high = (None if one is None else f"{one:,.0f}" if one == int(one) else f"{one:,g}" for one in bounds)
        if low is not None and high is not None:
            return f" from {low} to {high}"
        if low is not None:
            return f", {low} or more"
        return f", {high} or less" if high is not None else ""


def checked(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
    """The function with its arguments checked against their declarations before it runs."""

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        signature = inspect.signature(function)
        for name in kwargs:
            if name not in signature.parameters:
                known = nearest(name, signature.parameters)
                raise InputError(f"{function.__name__} has no parameter '{name}'{known}", parameter=name)
        declared = declarations(function)
        for name, value in signature.bind(*args, **kwargs).arguments.items():
            param, hint = declared[name]
            param.check(name, value, hint)
        try:
            return function(*args, **kwargs)
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise InputError(f"{function.__name__} needs torch here; install it with pip install litebert") from None

    return call


@functools.cache
def declarations(function: Callable[..., Any]) -> dict[str, tuple[Param, Any]]:
    """For each parameter of a function its declaration and its type."""
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        hint = parameter.annotation  # evaluated already, but for results, which are quoted
        param, plain = Param(""), hint
        if typing.get_origin(hint) is typing.Annotated:
            plain, *extras = typing.get_args(hint)
            param = next((extra for extra in extras if isinstance(extra, Param)), param)
        found[name] = (param, plain)
    return found


def choices_of(hint: Any) -> tuple[str, ...]:
    """The strings that a ``Literal`` type allows; empty for other types."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return tuple(choice for one in typing.get_args(hint) for choice in choices_of(one))
    return typing.get_args(hint) if typing.get_origin(hint) is Literal else ()


def allows(hint: Any, kind: type) -> bool:
    """Whether a type, or one of the types of a union, is ``kind``."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(allows(one, kind) for one in typing.get_args(hint))
    if typing.get_origin(hint) is Literal:
        return kind is str
    return hint is kind or hint is Any


def field_words(fields: Fields | None) -> list[str]:
    """Fields of a recipe as ``field=value`` words."""
    import json

    if fields is None:
        return []
    if isinstance(fields, str):
        raise InputError(
            f"settings is '{fields}' but must be a dict or a list of field=value words", parameter="settings"
        )
    if isinstance(fields, Mapping):
        return [f"{name}={value if isinstance(value, str) else json.dumps(value)}" for name, value in fields.items()]
    return [str(word) for word in fields]


def named_source(words: str) -> tuple[str, str]:
    """The name and the source of a model from ``NAME=MODEL``, or from a model alone, which is called as its folder."""
    name, equals, source = words.partition("=")
    if equals and not Path(words).exists():
        if not name or not name.isprintable() or len(name) > 100:
            raise InputError(f"models is '{words}' but must be NAME=MODEL or MODEL", parameter="models")
        return name, source
    path = Path(words)
    place = path if path.name not in UNNAMED else path.absolute().parent
    return place.name or path.name or words, words


def shown(value: Any) -> str:
    """A value as messages have it: quoted, numbers as people write them, and cut where it is long."""
    text = f"'{value}'" if isinstance(value, str) else repr(value)
    if isinstance(value, float) and float(f"{value:g}") == value:
        text = f"{value:g}"
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]


def parse_duration(text: str) -> float:
    """``"20m"`` as 1200.0 seconds; parts add up (``1h30m``)."""
    word = text.strip().lower() if len(text) < 100 else "too long"
    seconds = sum(float(number) * SECONDS[unit] for number, unit in _PART.findall(word))
    if _PART.sub("", word).strip() or not 0 < seconds <= LONGEST:
        raise InputError(f"{shown(text)} is not a duration; write it as 90s, 20m, 2h, 1h30m or 3d")
    return seconds


def parse_period(text: str) -> tuple[float, int | None]:
    """How often to save: seconds and None for a time (``5m``), or 0 and a number of steps (``100``)."""
    if text.isascii() and text.isdecimal() and len(text) < 19:
        if int(text) < 1:
            raise InputError(f"'{text}' is not a number of steps; it must be 1 or more")
        return 0.0, int(text)
    return parse_duration(text), None


@dataclass(frozen=True)
class Form:
    """What a text must be, in words that follow "must be", and what reads it (an error: it is something else)."""

    words: str
    read: Callable[[str], object]

    def check(self, name: str, value: str) -> None:
        """Raise an InputError that names the parameter unless the text can be read."""
        try:
            self.read(value)
        except InputError:
            raise InputError(f"{name} is {shown(value)} but must be {self.words}", parameter=name) from None


def _read_device(text: str) -> str:
    if text not in ("auto", "cpu", "cuda"):
        raise InputError(f"'{text}' is no device")
    return text


def _read_place(text: str) -> str:
    if text not in ("here", "ray") and not re.fullmatch(r"ray://[^\s/]+:\d+", text):
        raise InputError(f"'{text}' is no place to work")
    return text


def _read_picture(text: str) -> str:
    if not text.lower().endswith((".png", ".svg", ".pdf")):
        raise InputError(f"'{text}' is no picture")
    return text


DURATION = Form("a duration such as 90s, 20m, 2h, 1h30m or 3d", parse_duration)
PERIOD = Form("a time such as 5m, or a number of steps", parse_period)
PICTURE = Form("a file whose name ends in .png, .svg or .pdf", _read_picture)
CLUSTER = Form("here, ray or ray://HOST:PORT", _read_place)
DEVICE = Form("auto, cpu or cuda", _read_device)


def format_duration(seconds: float) -> str:
    """A duration to two digits or so in the largest unit that fits: ``45 seconds``, ``5.5 minutes``, ``12 days``."""
    for name, size in _NAMED:
        if seconds >= size:
            number = f"{seconds / size:.2g}" if seconds < 10 * size else f"{seconds / size:,.0f}"
            return f"{number} {name}{'' if number == '1' else 's'}"
    return f"{seconds:.3g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
