"""Documents into sentences, with the ``sentencex`` library (by Wikimedia, rules for about 300 languages).

A line is a paragraph and no sentence crosses one. Two things are added to the library: a piece without a letter or
digit (a closing bracket) is joined to the sentence before it, and long paragraphs are split window by window, because
the library's time grows with the square of the length for Japanese and Chinese (a paragraph of a million characters
took four minutes).
"""

from collections.abc import Callable, Sequence
from fnmatch import fnmatch

from litebert.errors import InputError

DEFAULT_LANGUAGE = "en"
WINDOW = 4000  # characters
LONGEST_SENTENCE = 8192  # characters; longer ones are tables or noise and cost the tokenizer much memory

# The two-letter codes of ISO 639-1. The library accepts any word as a language and falls back to English rules.
_CODES = (
    "aa ab ae af ak am an ar as av ay az ba be bg bh bi bm bn bo br bs ca ce ch co cr cs cu cv cy da de dv dz ee el en "
    "eo es et eu fa ff fi fj fo fr fy ga gd gl gn gu gv ha he hi ho hr ht hu hy hz ia id ie ig ii ik io is it iu ja jv "
    "ka kg ki kj kk kl km kn ko kr ks ku kv kw ky la lb lg li ln lo lt lu lv mg mh mi mk ml mn mr ms mt my na nb nd ne "
    "ng nl nn no nr nv ny oc oj om or os pa pi pl ps pt qu rm rn ro ru rw sa sc sd se sg si sk sl sm sn so sq sr ss st "
    "su sv sw ta te tg th ti tk tl tn to tr ts tt tw ty ug uk ur uz ve vi vo wa wo xh yi yo za zh zu"
)
CODES = frozenset(_CODES.split())
MISTAKEN = {"jp": "ja", "cn": "zh", "kr": "ko", "gb": "en", "us": "en", "ua": "uk", "cz": "cs", "dk": "da", "gr": "el"}


def sentence_splitter() -> Callable[[str, str], list[str]]:
    """The library's ``segment(language, text)``."""
    try:
        from sentencex import segment
    except ImportError:
        raise InputError("splitting sentences needs sentencex: pip install 'litebert[corpus]'") from None
    return segment


def split_document(text: str, language: str, segment: Callable[[str, str], list[str]]) -> list[str]:
    """The non-empty sentences of a document, stripped of white space."""
    sentences: list[str] = []
    for paragraph in text.splitlines():
        if paragraph and not paragraph.isspace():
            sentences += _split_paragraph(paragraph, language, segment)
    return sentences


def _split_paragraph(paragraph: str, language: str, segment: Callable[[str, str], list[str]]) -> list[str]:
    parts = segment(language, paragraph) if len(paragraph) <= WINDOW else _in_windows(paragraph, language, segment)
    joined: list[str] = []
    for part in parts:
        # The length is checked first because looking for letters is slow.
        if joined and len(part) < 8 and not any(map(str.isalnum, part)):
            joined[-1] += part
        else:
            joined.append(part)
    if any(len(part) > LONGEST_SENTENCE for part in joined):
        joined = [cut for part in joined for cut in _cut(part)]
    return [sentence for part in joined if (sentence := part.strip())]


def _cut(sentence: str) -> list[str]:
    """An overlong sentence in pieces, cut at spaces where it has any."""
    parts: list[str] = []
    while len(sentence) > LONGEST_SENTENCE:
        place = sentence.rfind(" ", 1, LONGEST_SENTENCE) + 1 or LONGEST_SENTENCE
        parts.append(sentence[:place])
        sentence = sentence[place:]
    return [*parts, sentence]


def _in_windows(paragraph: str, language: str, segment: Callable[[str, str], list[str]]) -> list[str]:
    """The sentences of a long paragraph: all of each window but the last, which may continue behind its end."""
    parts: list[str] = []
    start, size = 0, WINDOW
    while start + size < len(paragraph):
        found = segment(language, paragraph[start : start + size])
        if len(found) > 1:
            parts += found[:-1]
            start += sum(map(len, found[:-1]))
            size = WINDOW
        else:
            size *= 2  # no sentence ends here: doubling the window keeps the total time linear
    return parts + segment(language, paragraph[start:])


class Languages:
    """The language of each source: one for all, or by patterns on the path, the first that matches."""

    def __init__(self, words: Sequence[str]) -> None:
        """``words`` are codes (``ja``) or patterns with codes (``*/ja-*=ja``); the default is English."""
        self._patterns: list[tuple[str, str]] = []
        self._default = DEFAULT_LANGUAGE
        plain = 0
        for word in words:
            pattern, separator, code = word.rpartition("=")
            code = _checked(code)
            if separator:
                self._patterns.append((pattern, code))
            else:
                self._default, plain = code, plain + 1
        if plain > 1:
            raise InputError("there is more than one language for all files; give one, and others as PATTERN=CODE")

    def of(self, source: str) -> str:
        """The language of one source."""
        return next((code for pattern, code in self._patterns if fnmatch(source, pattern)), self._default)

    def listed(self) -> list[str]:
        """Patterns and default, as they are recorded in the store."""
        return [*(f"{pattern}={code}" for pattern, code in self._patterns), self._default]


def _checked(code: str) -> str:
    if code in MISTAKEN:
        raise InputError(f"'{code}' is a country, not a language; did you mean '{MISTAKEN[code]}'?")
    if code not in CODES:
        raise InputError(f"'{code}' is not a two-letter language code such as en, ja, ko, zh or de")
    return code
