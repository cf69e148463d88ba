"""Training a tokenizer, and measuring how well it fits a text.

A sample of the corpus, normalised, becomes a vocabulary whose special ids are ALBERT's: unigram pieces by the
sentencepiece library, wordpieces by ``tokenizers``.
"""

import json
import math
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal, get_args

from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from litebert.errors import InputError, nearest
from litebert.families import FAMILIES
from litebert.text.documents import lines_of, sample_lines
from litebert.text.normalise import Rules, backend_normaliser, check_rules
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import mark_special_tokens

Kind = Literal["unigram", "wordpiece"]
Fallback = Literal["none", "character", "byte"]
Report = Callable[[str], None]

SPECIAL = ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")  # ids 0 to 4
COVERAGE = 0.9999  # of the characters of the text; the rest, letters seen a few times in all, are unknown
# Byte pieces stand in for unknown characters only, never for the text "<0x41>": no path through that is worse.
BYTE_SCORE = -1000.0
FEW_COPIES = 8  # of a line, which are kept even where there is no other line
# The result depends on how sums are split among threads, so their number does not follow the machine.
THREADS = 4
PROGRAM = "import json, sys, sentencepiece; sentencepiece.SentencePieceTrainer.train(**json.loads(sys.argv[1]))"


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a vocabulary is trained; every field is recorded beside it."""

    vocab_size: int = 30_000
    kind: Kind = "unigram"
    rules: Rules = "nfkc"
    lowercase: bool = False
    fallback: Fallback = "none"  # for characters too rare for the vocabulary: <unk>, a piece for every one, or bytes
    sample_bytes: int = 50_000_000
    seed: int = 0

    @property
    def coverage(self) -> float:
        """The share of the text's characters that the vocabulary knows."""
        return 1.0 if self.fallback == "character" else COVERAGE

    def __post_init__(self) -> None:
        check_rules(self.rules)
        for name, value, allowed in (("kind", self.kind, Kind), ("fallback", self.fallback, Fallback)):
            if value not in get_args(allowed):
                raise InputError(f"there is no {name} '{value}'{nearest(value, get_args(allowed))}")
        if self.vocab_size <= len(SPECIAL):
            raise InputError(f"vocab_size is {self.vocab_size} but {len(SPECIAL)} ids are special tokens")
        if self.sample_bytes < 1:
            raise InputError(f"sample_bytes is {self.sample_bytes} but must be 1 or more")
        if self.kind == "wordpiece" and self.fallback == "byte":
            raise InputError("wordpiece has no byte fallback; use fallback=character, or kind=unigram")


def train_tokenizer(texts: Iterable[str], settings: TrainSettings, report: Report = lambda message: None) -> Tokenizer:
    """A tokenizer from the documents ``texts``, which are read once; memory is bounded by ``sample_bytes``."""
    lines = sample_lines(texts, settings.sample_bytes, settings.seed, report)
    if settings.kind == "unigram":
        backend = _unigram(lines, settings, report)
    else:
        backend = _wordpiece(lines, settings, report)
    return mark_special_tokens(backend, FAMILIES["albert"])


def _unigram(lines: list[str], settings: TrainSettings, report: Report) -> Backend:
    normaliser = backend_normaliser(settings.rules, settings.lowercase)
    bytes_too = settings.fallback == "byte"
    with tempfile.TemporaryDirectory(prefix="litebert-") as folder:
        if normaliser is not None:
            lines = [" ".join(normaliser.normalize_str(line).split()) for line in lines]
        if not any(lines):
            raise _no_text()
        sample = "".join(f"{line}\n" for line in _less_repetitive(lines))
        (Path(folder) / "sample.txt").write_text(sample, encoding="utf-8", newline="")
        model = _train_unigram(Path(folder), settings, report)
    scores = [
        (model.id_to_piece(index), BYTE_SCORE if model.is_byte(index) else model.get_score(index))
        for index in range(len(model))
    ]
    backend = Backend(models.Unigram(scores, unk_id=1, byte_fallback=bytes_too))
    if normaliser is not None:
        backend.normalizer = normaliser
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always")]
    )
    spaces = decoders.Metaspace(replacement="▁", prepend_scheme="always")
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), spaces]) if bytes_too else spaces
    return backend


def _less_repetitive(lines: list[str]) -> list[str]:
    """The lines; if most of them occur again, in a mixed order, and none more often than all others together.

    The library looks at every stretch of text that occurs twice, however many lines it spans, in time that grows with
    its length: six minutes for 200 equal lines of 900 letters. The order of lines changes no more than how its sums
    are rounded.
    """
    counts = Counter(lines)
    if 2 * len(counts) > len(lines):
        return lines
    line, copies = counts.most_common(1)[0]
    allowed = max(len(lines) - copies, FEW_COPIES)
    if copies > allowed:
        counts[line] = allowed
    return random.Random(0).sample(list(counts.elements()), counts.total())


def _train_unigram(folder: Path, settings: TrainSettings, report: Report) -> Any:
    """A sentencepiece model from the normalised lines of ``sample.txt``.

    In a process of its own, because the library keeps Python from running while it works, prints its progress, and
    takes a gigabyte that should be given back.
    """
    from sentencepiece import SentencePieceProcessor

    bytes_too = settings.fallback == "byte"
    options = {
        "input": str(folder / "sample.txt"),
        "model_prefix": str(folder / "unigram"),
        "model_type": "unigram",
        "vocab_size": settings.vocab_size,
        "character_coverage": settings.coverage,
        "byte_fallback": bytes_too,
        # With these a text that spells out a byte piece, <0x41>, differs from the piece.
        "required_chars": "<>0123456789ABCDEFx" if bytes_too else "",
        "normalization_rule_name": "identity",  # the lines are normalised, and the tokenizer brings its own rules
        "max_sentence_length": 1 << 20,  # longer lines would be left out; ours are cut before
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "pad_piece": SPECIAL[0],
        "unk_piece": SPECIAL[1],
        "control_symbols": SPECIAL[2:],
        "num_threads": THREADS,
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(options)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        try:
            tail = _follow_unigram(process.stderr, settings.vocab_size, report)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise _unigram_failure(tail, settings.vocab_size)
    return SentencePieceProcessor(model_file=str(folder / "unigram.model"))


def _follow_unigram(output: Iterable[str], vocab_size: int, report: Report) -> str:
    """Turn the library's log into progress; its last lines are kept in case it fails."""
    first = 0
    tail: list[str] = []
    for line in output:
        tail = [*tail[-20:], line]
        if "Making suffix array" in line:
            report("training: finding candidate pieces")
        elif match := re.search(r"EM sub_iter=\d+ size=(\d+)", line):
            size = int(match[1])
            first = first or size
            # Candidates shrink by a quarter a round until a tenth more than wanted are left.
            rounds = math.log(first / (1.1 * vocab_size)) if first > 1.1 * vocab_size else 1.0
            done = min(1.0, math.log(first / size) / rounds) if size < first else 0.0
            report(f"training: {size:,} candidate pieces left ({done:.0%})")
    return "".join(tail)


def _unigram_failure(output: str, vocab_size: int) -> Exception:
    """The library's complaint as a sentence, where it is about what the user gave."""
    if match := re.search(r"Vocabulary size too high.*<= (\d+)", output):
        return _too_little_text(vocab_size, int(match[1]))
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", output):
        return _too_small(vocab_size, int(match[1]))
    last = output.strip().splitlines()[-1:] or ["it printed nothing"]
    return RuntimeError(f"training with sentencepiece failed: {last[0]}")


def _too_little_text(vocab_size: int, most: int) -> InputError:
    return InputError(
        f"the corpus is too small for a vocabulary of {vocab_size:,} pieces; "
        f"give more text, or a vocab_size of {most} or less"
    )


def _no_text() -> InputError:
    return InputError("the corpus has no text to train on: nothing was selected, or the rules leave nothing; give more")


def _too_small(vocab_size: int, least: int) -> InputError:
    return InputError(
        f"a vocabulary of {vocab_size:,} pieces is too small: single characters and special tokens alone "
        f"take {least:,}; give a larger vocab_size"
    )


def _wordpiece(lines: list[str], settings: TrainSettings, report: Report) -> Backend:
    """Pieces of words as BERT splits them, every Han character a word; accents are removed only by the albert rules."""
    steps = [backend_normaliser(settings.rules)] if settings.rules != "none" else []
    lowercase = settings.lowercase or settings.rules == "albert"
    steps.append(normalizers.BertNormalizer(strip_accents=settings.rules == "albert", lowercase=lowercase))
    normaliser = normalizers.Sequence(steps)
    report("training: counting words")
    words: Counter[str] = Counter()
    for line in lines:
        words.update(normaliser.normalize_str(line).split())
    if not words:
        raise _no_text()
    words = _without_rare_characters(words, settings.coverage)
    backend = Backend(models.WordPiece(_train_wordpiece(words, settings.vocab_size, report), unk_token=SPECIAL[1]))
    backend.normalizer = normaliser
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _train_wordpiece(words: Counter[str], vocab_size: int, report: Report) -> dict[str, int]:
    """A vocabulary of ``vocab_size`` pieces from counted words, special tokens first; the same one every time.

    Left to itself the library numbers continuations (``##a``) in the order of a hash table that changes from run to
    run, and ties between pairs are settled by those numbers. So every character and continuation gets its number here.
    """
    backend = Backend(models.WordPiece(unk_token=SPECIAL[1]))
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    parts = {part for word in words for part, _ in backend.pre_tokenizer.pre_tokenize_str(word)}
    alphabet = sorted({character for part in parts for character in part})
    continuations = sorted({f"##{character}" for part in parts for character in part[1:]})
    first = [*SPECIAL, *alphabet, *continuations]
    if len(first) > vocab_size:
        raise _too_small(vocab_size, len(first))
    report("training: joining pieces")
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=first, min_frequency=2, show_progress=False
    )
    backend.train_from_iterator(words.elements(), trainer)
    vocabulary: dict[str, int] = backend.get_vocab()
    if len(vocabulary) < vocab_size:
        raise _too_little_text(vocab_size, len(vocabulary))
    return vocabulary


def _without_rare_characters(words: Counter[str], coverage: float) -> Counter[str]:
    """The words cut apart at characters beyond the most frequent ones that make up ``coverage`` of the text."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    wanted, reached = coverage * counts.total(), 0
    rare = {}
    for character, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if reached >= wanted:
            rare[ord(character)] = " "
        reached += count
    if not rare:
        return words
    kept: Counter[str] = Counter()
    for word, count in words.items():
        for part in word.translate(rare).split():
            kept[part] += count
    return kept


@dataclass(slots=True)
class Fertility:
    """Counts over a text; words are what white space separates, which means little for Chinese and Japanese."""

    documents: int = 0
    words: int = 0
    characters: int = 0
    tokens: int = 0
    unknown: int = 0

    @property
    def per_word(self) -> float:
        """Tokens per word."""
        return self.tokens / self.words if self.words else 0.0

    @property
    def per_character(self) -> float:
        """Tokens per character, white space not counted."""
        return self.tokens / self.characters if self.characters else 0.0

    @property
    def unknown_share(self) -> float:
        """The share of tokens that are the unknown token."""
        return self.unknown / self.tokens if self.tokens else 0.0


def measure_fertility(tokenizers: list[Tokenizer], texts: Iterable[str]) -> list[Fertility]:
    """The same documents seen by each tokenizer."""
    results = [Fertility() for _ in tokenizers]
    texts = iter(texts)
    while group := list(islice(texts, 32)):
        lines = [line for text in group for line in lines_of(text)]
        words = [word for line in lines for word in line.split()]
        for tokenizer, result in zip(tokenizers, results, strict=True):
            ids = tokenizer.ids_batch(lines)
            result.documents += len(group)
            result.words += len(words)
            result.characters += sum(map(len, words))
            result.tokens += sum(map(len, ids))
            if tokenizer.unk_id is not None:
                result.unknown += sum(row.count(tokenizer.unk_id) for row in ids)
    return results
