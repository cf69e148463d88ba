"""Makes a Typer command out of a public function: its options are the function's parameters, its help their help.

A command is a function and a ``show`` that prints the result; keyword-only parameters of ``show`` (``as_json``,
``html``) become further options. Words of the form ``field=value``, and options that no parameter explains
(``--patience 3``), go to the function's ``settings``.
"""

import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer.core import TyperCommand

from litebert.errors import InputError
from litebert.parameters import Param, allows, choices_of, declarations, shown
from litebert.terminal import heartbeat

log = logging.getLogger(__name__)

SETTINGS = "settings"
Show = Callable[..., None]


def add_command(
    app: typer.Typer,
    function: Callable[..., Any],
    show: Show,
    *,
    name: str = "",
    panel: str | None = None,
    renamed: Mapping[str, str] | None = None,
    moved: Mapping[str, str] | None = None,
    ends: bool = True,
) -> None:
    """Mount ``function`` as a command of ``app``; one that ``ends`` says that it works while it prints nothing.

    For one release, ``renamed`` maps old options to new ones, and ``moved`` old options to what to do instead.
    """
    own, printed = declarations(function), declarations(show)
    extra = [n for n, p in inspect.signature(show).parameters.items() if p.kind is p.KEYWORD_ONLY]
    parameters = [
        *_options(function, own),
        *(one for one in _options(show, printed) if one.name in extra),
    ]
    takes_settings = SETTINGS in own
    command = name or function.__name__.replace("_", "-")

    def run(**values: Any) -> None:
        printing = {key: _value(key, values.pop(key), *printed[key]) for key in extra}
        for key, value in printing.items():  # before any work is done
            param, hint = printed[key]
            param.check(key, value, hint)
            if param.metavar == "FILE" and value is not None:
                _check_output(key, value)
        if takes_settings:
            _place_words(values, own)
        arguments = {key: _value(key, value, *own[key]) for key, value in values.items()}
        beats = ends and sys.stderr is sys.__stderr__ and os.environ.get("LITEBERT_HEARTBEAT") != "off"
        try:
            with heartbeat(lambda: f"{command}: working") if beats else nullcontext():
                result = function(**arguments)
            show(result, **printing)
        except KeyboardInterrupt as error:
            typer.echo(f"litebert: {str(error) or 'stopped'}", err=True)
            raise SystemExit(130) from None

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__doc__ = inspect.getdoc(function)
    run.__litebert_function__ = function  # type: ignore[attr-defined]
    kept = {"renamed": dict(renamed or {}), "moved": dict(moved or {}), "takes_settings": takes_settings}
    cls = type("Command", (SignatureCommand,), kept)
    app.command(command, cls=cls, rich_help_panel=panel)(run)


class SignatureCommand(TyperCommand):
    """A command that still understands renamed options, and takes fields of a recipe as options, too."""

    renamed: ClassVar[Mapping[str, str]] = {}
    moved: ClassVar[Mapping[str, str]] = {}
    takes_settings: ClassVar[bool] = True

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Rewrite old and unknown options, then parse as usual."""
        return super().parse_args(ctx, self._fields_as_words(self._with_new_names(args)))

    def _with_new_names(self, args: list[str]) -> list[str]:
        found = []
        for place, word in enumerate(args):
            flag, equals, value = word.partition("=")
            if flag in self.moved and "--" not in args[:place]:
                raise InputError(f"{flag} has moved: {self.moved[flag]}")
            if flag in self.renamed and "--" not in args[:place]:
                log.warning("%s is now %s; the old name will be removed in the next release", flag, self.renamed[flag])
                flag = self.renamed[flag]
            found.append(f"{flag}{equals}{value}")
        return found

    def _fields_as_words(self, args: list[str]) -> list[str]:
        """``--epochs 3`` as ``epochs=3`` where the command has no such option but takes fields."""
        if not self.takes_settings:
            return args
        known = {opt for param in self.params for opt in (*param.opts, *param.secondary_opts)} | {"--help"}
        words: list[str] = []
        rest = list(args)
        while rest:
            word = rest.pop(0)
            if word == "--":
                return [*words, word, *rest]
            flag, equals, value = word.partition("=")
            if not flag.startswith("--") or flag in known:
                words.append(word)
                continue
            if not equals:
                if not rest or rest[0].startswith("--"):
                    raise InputError(f"there is no option {flag}; litebert {self.name} --help lists them")
                value = rest.pop(0)
            words.append(f"{flag.removeprefix('--').replace('-', '_')}={value}")
        return words


def _check_output(name: str, value: str) -> None:
    """Refuse a file that cannot be written."""
    path = Path(value)
    folder = path.absolute().parent
    if not value.strip() or path.is_dir():
        raise InputError(f"{name} is '{value}' but must be the name of a file", parameter=name)
    if not folder.is_dir():
        raise InputError(f"{name} is '{value}' but there is no folder '{folder}'; make it first", parameter=name)


def _options(function: Callable[..., Any], declared: Mapping[str, tuple[Param, Any]]) -> list[inspect.Parameter]:
    """The parameters of a function as Typer reads them, arguments first."""
    found = []
    for name, parameter in inspect.signature(function).parameters.items():
        param, hint = declared.get(name, (Param(""), str))
        if param.python_only:
            continue
        default = parameter.default
        required = default is inspect.Parameter.empty
        several = param.metavar.endswith("...") and "," not in param.metavar and _is_list(hint)
        kind = list[str] if several else _cli_type(hint)
        help_text = _help(param, hint, default)
        if param.positional or name == SETTINGS:
            info: Any = typer.Argument(help=help_text, metavar=param.metavar or name.upper(), show_default=False)
        else:
            info = typer.Option(*_flags(name, param, kind, default), help=help_text, show_default=False,
                                metavar=param.metavar or _metavar(hint) or None)  # fmt: skip
        if required and not param.positional:
            default = None  # the function itself reports what is missing
        elif not required and kind is not bool and default is not None:
            default = ([default] if isinstance(default, str) else list(default)) if kind == list[str] else str(default)
        bare = required and param.positional
        shape: Any = kind if bare else kind | None
        found.append(
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=inspect.Parameter.empty if bare else default,
                annotation=Annotated[shape, info],
            )
        )
    return sorted(found, key=lambda one: one.default is not inspect.Parameter.empty)


def _cli_type(hint: Any) -> Any:
    """What Typer parses: flags are flags, lists are lists, and all else is text that ``_value`` reads."""
    if hint is bool or (allows(hint, bool) and not allows(hint, str)):
        return bool
    if not allows(hint, str) and not allows(hint, int) and not allows(hint, float) and _is_list(hint):
        return list[str]
    return str


def _is_list(hint: Any) -> bool:
    import collections.abc
    import typing

    kinds = [hint, *typing.get_args(hint)]
    lists = (list, tuple, collections.abc.Sequence, collections.abc.Iterable)
    return any((typing.get_origin(kind) or kind) in lists for kind in kinds)


def _flags(name: str, param: Param, kind: Any, default: Any) -> list[str]:
    flag = f"--{param.option or name.replace('_', '-')}"
    if kind is bool and default is not False:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    return [flag, *([f"-{param.short}"] if param.short else [])]


def _metavar(hint: Any) -> str:
    if _cli_type(hint) is not str:
        return ""
    if allows(hint, str):
        return "TEXT"
    return "NUMBER" if allows(hint, float) else "N"


def _help(param: Param, hint: Any, default: Any) -> str:
    text = param.help
    choices = choices_of(hint)
    if choices and not all(choice in text for choice in choices):
        text = f"{text} One of {', '.join(choices)}."
    if default not in (None, inspect.Parameter.empty, False, True, "", ()) and "default" not in text:
        text = f"{text.rstrip('.')} (default: {default})."
    return text


def _value(name: str, value: Any, param: Param, hint: Any) -> Any:
    """Text of the command line as the parameter's type."""
    if not isinstance(value, str) or allows(hint, str):
        return value
    for kind in (int, float):
        if allows(hint, kind):
            try:
                if value.isascii() and "_" not in value:  # Python reads 1_000 and digits of all scripts
                    return kind(value)
            except ValueError:
                continue
    if allows(hint, int) or allows(hint, float):
        kind_of_number = "a number" if allows(hint, float) else "a whole number"
        raise InputError(f"{name} is {shown(value)} but must be {kind_of_number}{param.range()}", parameter=name)
    return value


def _place_words(values: dict[str, Any], declared: Mapping[str, tuple[Param, Any]]) -> None:
    """Sort the loose words: ``field=value`` of a parameter sets it, of the recipe stays; one other word is the data."""
    rest, words = [], list(values.get(SETTINGS) or ())
    for name, value in values.items():  # an optional argument before them takes the first word
        if name != SETTINGS and declared[name][0].positional and isinstance(value, str) and "=" in value:
            words.insert(0, value)
            values[name] = None
    for word in words:
        field, equals, value = word.partition("=")
        if not equals and "data" in declared and values.get("data") is None:
            values["data"] = word
        elif not equals:
            raise InputError(f"'{word}' is not of the form field=value, such as epochs=3")
        elif field in declared and not declared[field][0].positional and field != SETTINGS:
            values[field] = value
        else:
            rest.append(word)
    values[SETTINGS] = rest
