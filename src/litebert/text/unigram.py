"""Training a unigram vocabulary with the sentencepiece library, in a process of its own.

Its own process because the library keeps Python from running while it works, prints what it does instead of telling,
and takes a gigabyte that should be given back.
"""

import json
import math
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from litebert.errors import InputError
from litebert.text.sentencepiece_model import SentencePieceModel, read_sentencepiece_model

# The result depends on how sums are split among threads, so their number does not follow the machine.
THREADS = 4
PROGRAM = "import json, sys, sentencepiece; sentencepiece.SentencePieceTrainer.train(**json.loads(sys.argv[1]))"


def train_unigram(
    lines: Iterable[str],
    folder: Path,
    *,
    vocab_size: int,
    special: tuple[str, ...],
    coverage: float,
    byte_pieces: bool,
    report: Callable[[str], None],
) -> SentencePieceModel:
    """A model of ``vocab_size`` pieces from normalised lines; ``special`` are pad, unknown and the control tokens."""
    pad, unknown, *control = special
    with (folder / "sample.txt").open("w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)
    settings = {
        "input": str(folder / "sample.txt"),
        "model_prefix": str(folder / "unigram"),
        "model_type": "unigram",
        "vocab_size": vocab_size,
        "character_coverage": coverage,
        "byte_fallback": byte_pieces,
        # With these a text that spells out a byte piece, <0x41>, can be told apart from the piece.
        "required_chars": "<>0123456789ABCDEFx" if byte_pieces else "",
        "normalization_rule_name": "identity",  # the lines are normalised, and the tokenizer brings its own rules
        "max_sentence_length": 1 << 20,  # longer lines would be left out; ours are cut before
        "pad_id": 0,
        "unk_id": 1,
        "bos_id": -1,
        "eos_id": -1,
        "pad_piece": pad,
        "unk_piece": unknown,
        "control_symbols": control,
        "num_threads": THREADS,
    }
    command = [sys.executable, "-c", PROGRAM, json.dumps(settings)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, errors="replace") as process:
        assert process.stderr is not None
        try:
            tail = _follow(process.stderr, vocab_size, report)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise _failure(tail, vocab_size)
    return read_sentencepiece_model(folder / "unigram.model")


def _follow(output: Iterable[str], vocab_size: int, report: Callable[[str], None]) -> str:
    """Turn the library's log into progress; its last words are kept in case it fails."""
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


def _failure(output: str, vocab_size: int) -> Exception:
    """The library's complaint as a sentence, where it is about what the user gave."""
    if match := re.search(r"Vocabulary size too high.*<= (\d+)", output):
        return InputError(
            f"the corpus is too small for a vocabulary of {vocab_size:,} pieces; "
            f"give more text or --vocab-size {int(match[1])} or less"
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", output):
        return InputError(
            f"a vocabulary of {vocab_size:,} pieces is too small: single characters and special tokens alone "
            f"take {int(match[1]):,}; give a larger --vocab-size"
        )
    last = output.strip().splitlines()[-1:] or ["it said nothing"]
    return RuntimeError(f"training with sentencepiece failed: {last[0]}")
