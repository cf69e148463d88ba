"""The one exception meant for users: a mistake in what they passed, in one sentence that says what to do."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used; the command line prints it without a traceback and exits with 2.

    ``parameter`` is the parameter that the sentence begins with, which the command line shows as its option.
    """

    def __init__(self, sentence: str, *, parameter: str = "") -> None:
        super().__init__(sentence)
        self.parameter = parameter


def nearest(word: str, options: Iterable[str]) -> str:
    """A hint for a mistyped word: ``; did you mean 'x'?`` or, where nothing is close, the list of what exists."""
    options = sorted(options)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; there is {listed(options)}"


def listed(names: Iterable[object]) -> str:
    """Names one after the other; those that would not be seen are quoted, and long ones cut."""
    words = [str(name) for name in names]
    return ", ".join(word[:200] if word.strip() else repr(word) for word in words) or "none"


def as_option(error: InputError) -> str:
    """The sentence of an error with its parameter spelt as the option that it is on the command line."""
    sentence = str(error)
    if error.parameter and sentence.startswith(f"{error.parameter} is"):
        return f"--{error.parameter.replace('_', '-')}{sentence.removeprefix(error.parameter)}"
    return sentence
