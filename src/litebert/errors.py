"""The one exception meant for people: a mistake in what they gave us, told in a sentence that says what to do."""

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something the user gave cannot be used; the command line prints it without a traceback and exits with 2."""


def nearest(word: str, options: Iterable[str]) -> str:
    """A hint for a mistyped word: ``; did you mean 'x'?`` or, where nothing is close, the list of what exists."""
    options = sorted(options)
    close = difflib.get_close_matches(word, options, n=1, cutoff=0.5)
    return f"; did you mean '{close[0]}'?" if close else f"; there is {', '.join(options)}"
