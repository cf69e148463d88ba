"""Normalisation of a line of text, by name: the rules of the ALBERT paper's English models, and a default for all.

``nfkc`` (the default) composes: full-width letters become plain ones, ｶﾞ becomes ガ, and が stays が. The English rules,
``albert``, decompose and drop the marks, which is how é becomes e, but also how が becomes か and 한글 loses its
syllables; they are right for the released models and for no Japanese or Korean. ``none`` leaves the text as it is.
Each exists twice, in Python for whoever prepares text and as a part of a tokenizer for whoever uses it.
"""

import re
import unicodedata
from typing import Any, Literal, get_args

from litebert.errors import InputError, nearest

Rules = Literal["nfkc", "albert", "none"]

# Characters that print nothing and mean nothing in running text: controls that are no white space, soft hyphens,
# zero-width spaces, marks of direction and of byte order. Zero-width joiners stay: emoji and several scripts need them.
# Spelled as the characters themselves, because the two libraries of regular expressions read escapes differently.
INVISIBLE = (
    "[\x00-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\xad\u200b\u200e\u200f\u202a-\u202e\u2060\u2066-\u2069\ufeff\ufff9-\ufffb]"
)
_INVISIBLE = re.compile(INVISIBLE)


def normalise(line: str, rules: Rules = "nfkc", lowercase: bool = False) -> str:
    """``line`` by the named rules; white space, line ends too, becomes single spaces unless they are ``none``.

    The rules of ALBERT include lower case, whatever ``lowercase`` says.
    """
    check_rules(rules)
    if rules == "none":
        return line.lower() if lowercase else line
    if rules == "albert":
        return _albert(line)
    line = _INVISIBLE.sub("", line)
    if not line.isascii():
        line = unicodedata.normalize("NFKC", line)
    line = " ".join(line.split())
    return line.lower() if lowercase else line


def _albert(line: str) -> str:
    """As the released program prepares English text, step by step."""
    line = " ".join(line.split())
    line = line.replace("``", '"').replace("''", '"')
    line = unicodedata.normalize("NFKD", line)
    line = "".join(character for character in line if not unicodedata.combining(character))
    return line.lower()


def backend_normaliser(rules: Rules = "nfkc", lowercase: bool = False) -> Any:
    """The rules as a normaliser of the ``tokenizers`` library, or None where there is nothing to do.

    White space is left to the splitting into words. For ``albert`` the steps are those of transformers' class, whose
    stripping takes a few Indic vowel signs that the released program keeps.
    """
    from tokenizers import Regex, normalizers

    check_rules(rules)
    steps: list[Any] = []
    if rules == "nfkc":
        steps = [normalizers.Replace(Regex(INVISIBLE), ""), normalizers.NFKC()]
    elif rules == "albert":
        steps = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if lowercase or rules == "albert":
        steps.append(normalizers.Lowercase())
    return normalizers.Sequence(steps) if steps else None


def check_rules(rules: str) -> None:
    """Refuse a name that is not one of the rules."""
    if rules not in get_args(Rules):
        raise InputError(f"there are no normalisation rules '{rules}'{nearest(rules, get_args(Rules))}")
