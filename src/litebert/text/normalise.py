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

# Characters that ``nfkc`` leaves as they are next to any other of them: no marks that would combine. All are older than
# Unicode 5, so that every library agrees on them: a normal form never changes once its characters are assigned.
_SETTLED = re.compile(
    "[ -~\xa1-\xa7\xa9\xab\xac\xae\xb0\xb1\xb6\xb7\xbb\xbf-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u0391-\u03a1"
    "\u03a3-\u03ce\u0400-\u045f\u2010\u2012-\u2015\u2018-\u2022\u2030-\u2032\u2039-\u203b\u2190-\u2193\u25a0-\u25cf\u3001-\u3029"
    "\u3041-\u3094\u309d\u309e\u30a1-\u30fe\u4e00-\u9fa5\uac00-\ud7a3]*"
)
# Those that East Asian text is full of and that it makes others. Brackets are not among them: what they enclose may be
# read as a special token once they are plain.
_WIDE = "！％（），－．／０１２３４５６７８９：；＝？～"
_WIDENED = {wide: chr(ord(wide) - 0xFEE0) for wide in _WIDE} | {"\u3000": " ", "…": "..."}
WIDENED_MEANINGS = frozenset("".join(_WIDENED.values()))


def quick_nfkc(text: str) -> str | None:
    """``text`` by the rules of ``nfkc`` where that is easily done, as in most text there is; else None."""
    if not text.isascii():
        for wide, plain in _WIDENED.items():
            text = text.replace(wide, plain)
    return text if _SETTLED.fullmatch(text) else None


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
