"""Training a tokenizer: a sample of the corpus, normalised, to a vocabulary whose special ids are ALBERT's."""

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers

from litebert.errors import InputError, nearest
from litebert.text.documents import sample_lines
from litebert.text.families import ALBERT
from litebert.text.normalise import Rules, backend_normaliser, check_rules
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizers import mark_special_tokens
from litebert.text.unigram import train_unigram
from litebert.text.wordpiece import train_wordpiece

Kind = Literal["unigram", "wordpiece"]
Fallback = Literal["none", "character", "byte"]
Report = Callable[[str], None]

SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
COVERAGE = 0.9999  # of the characters of the text; the rest, letters seen a few times in all, are unknown
# Byte pieces stand in for unknown characters only, never for the text "<0x41>": no path through that is worse.
BYTE_SCORE = -1000.0


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """What a vocabulary is trained for; every field is written down beside it."""

    vocab_size: int = 30_000
    kind: Kind = "unigram"
    rules: Rules = "nfkc"
    lowercase: bool = False
    fallback: Fallback = "none"  # for characters too rare for the vocabulary: <unk>, a piece for every one, or bytes
    sample_bytes: int = 50_000_000
    seed: int = 0

    def __post_init__(self) -> None:
        check_rules(self.rules)
        for name, value, allowed in (("kind", self.kind, Kind), ("fallback", self.fallback, Fallback)):
            if value not in get_args(allowed):
                raise InputError(f"there is no {name} '{value}'{nearest(value, get_args(allowed))}")
        if self.vocab_size <= len(SPECIAL):
            raise InputError(f"--vocab-size is {self.vocab_size} but {len(SPECIAL)} ids are special tokens")
        if self.sample_bytes < 1:
            raise InputError("the sample must be of at least one byte")
        if self.kind == "wordpiece" and self.fallback == "byte":
            raise InputError("wordpiece has no byte fallback; use --fallback character, or --kind unigram")


def train_tokenizer(texts: Iterable[str], settings: TrainSettings, report: Report = lambda message: None) -> Tokenizer:
    """A tokenizer from the documents ``texts``, which are read once; memory is bounded by ``sample_bytes``."""
    lines = sample_lines(texts, settings.sample_bytes, settings.seed, report)
    if settings.kind == "unigram":
        backend = _unigram(lines, settings, report)
    else:
        backend = _wordpiece(lines, settings, report)
    return mark_special_tokens(backend, ALBERT)


def _unigram(lines: list[str], settings: TrainSettings, report: Report) -> Backend:
    normaliser = backend_normaliser(settings.rules, settings.lowercase)
    with tempfile.TemporaryDirectory(prefix="litebert-") as folder:
        model = train_unigram(
            (line if normaliser is None else " ".join(normaliser.normalize_str(line).split()) for line in lines),
            Path(folder),
            vocab_size=settings.vocab_size,
            special=SPECIAL,
            coverage=1.0 if settings.fallback == "character" else COVERAGE,
            byte_pieces=settings.fallback == "byte",
            report=report,
        )
    byte_kind = 6  # SentencePiece.Type.BYTE
    scores = [(piece.text, BYTE_SCORE if piece.kind == byte_kind else piece.score) for piece in model.pieces]
    backend = Backend(models.Unigram(scores, unk_id=1, byte_fallback=settings.fallback == "byte"))
    if normaliser is not None:
        backend.normalizer = normaliser
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    spaces = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    bytes_too = settings.fallback == "byte"
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), spaces]) if bytes_too else spaces
    return backend


def _wordpiece(lines: list[str], settings: TrainSettings, report: Report) -> Backend:
    """Pieces of words as BERT splits them, every Han character a word; accents go only where the rules say so."""
    steps = [backend_normaliser(settings.rules)] if settings.rules != "none" else []
    lowercase = settings.lowercase or settings.rules == "albert"
    steps.append(normalizers.BertNormalizer(strip_accents=settings.rules == "albert", lowercase=lowercase))
    normaliser, pre_tokenizer = normalizers.Sequence(steps), pre_tokenizers.BertPreTokenizer()
    vocabulary = train_wordpiece(
        (normaliser.normalize_str(line) for line in lines),
        pre_tokenizer,
        vocab_size=settings.vocab_size,
        special=SPECIAL,
        coverage=1.0 if settings.fallback == "character" else COVERAGE,
        report=report,
    )
    backend = Backend(models.WordPiece(vocabulary, unk_token=SPECIAL[1]))
    backend.normalizer = normaliser
    backend.pre_tokenizer = pre_tokenizer
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend
