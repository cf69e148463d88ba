"""A public test of long texts: retold stories with quotations, put together from RACE, an encyclopedia and novels.

A text retells a story (sentences of one or more passages of RACE) and quotes in between, from an encyclopedia or from
novels. It ends on one of the two, and which of them is its label. The beginning says little, as in long reviews that
weigh both sides before their verdict: of the quotations in the first two thirds three in five are of the kind that the
text ends on, of those after that all are. So who reads the beginning alone is often wrong about a long one. Rows are
a function of the data and the seed; nothing of the data is stored here.
"""

import json
import math
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path

import numpy as np

import litebert
from litebert.errors import InputError
from litebert.report import Report, Section, Table, note, notes
from litebert.runs import read_run, write_atomically
from litebert.tasks.examples import Choice
from litebert.tasks.sources import read_task
from litebert.text.documents import is_held_out, read_documents

LABELS = ("encyclopedia", "novel")
QUOTED_WORDS = (8, 30)  # of a quotation: the fewest and the most
DOCUMENTS = 400  # read of each kind
HELD_OUT = 0.2  # of these, for the rows to score
HESITANT = 2 / 3  # of a text, in which
AGREEING = 0.6  # of the quotations are of the kind that it ends on
PARTS = (2, 20)  # of a text, each a piece of the story and a quotation: the fewest and the most
SENTENCES = (2, 3)  # of the story in a part
SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
FIFTHS = 5
WITHIN = 3.0  # points between the shortest and the longest fifth that nobody minds

Row = tuple[str, str]  # text, label


def long_rows(
    encyclopedia: Path, novels: Path, race: Path, count: int, *, split: str = "train", seed: int = 0
) -> list[Row]:
    """``count`` texts from one split of the data, about half with either label, of evenly spread lengths."""
    quotations = _quotations(encyclopedia, split), _quotations(novels, split)
    stories = _stories(race, split)
    draw = random.Random(f"{split} {seed}")
    low, high = (math.log(parts) for parts in PARTS)
    rows = []
    for number in range(count):
        parts = round(math.exp(low + (high - low) * (number + 0.5) / count))
        label = draw.randrange(2)
        rows.append((_text(draw, quotations, stories, label, parts), LABELS[label]))
    draw.shuffle(rows)
    return rows


def _text(
    draw: random.Random, quotations: Sequence[Sequence[str]], stories: Sequence[Sequence[str]], label: int, parts: int
) -> str:
    story = _story(draw, stories)
    words = []
    for part in range(parts):
        agrees = part >= HESITANT * (parts - 1) or draw.random() < AGREEING
        words += [next(story) for _ in range(draw.randint(*SENTENCES))]
        words.append(draw.choice(quotations[label if agrees else 1 - label]))
    return " ".join(words)


def _story(draw: random.Random, stories: Sequence[Sequence[str]]) -> Iterator[str]:
    """Sentences of one passage after another."""
    while True:
        yield from draw.choice(stories)


def _quotations(path: Path, split: str) -> list[str]:
    """Sentences of a file of documents; those to score with are of documents that none to learn from is of."""
    fewest, most = QUOTED_WORDS
    found = []
    for document in islice(read_documents(path), DOCUMENTS):
        if is_held_out(document.text, HELD_OUT) == (split != "train"):
            sentences = SENTENCE_END.split(" ".join(document.text.split()))
            found += [one for one in sentences if fewest <= len(one.split()) <= most and one[-1] in ".!?"]
    if not found:
        raise InputError(f"{path} has no sentences for the {split} rows; name a file with a hundred documents or more")
    return found


def _stories(race: Path, split: str) -> list[list[str]]:
    """The sentences of RACE's passages, without repeats."""
    data = read_task("race", race)
    items = data.train if split == "train" else [item for part in data.dev.values() for item in part]
    passages = dict.fromkeys(item.passage for item in items if isinstance(item, Choice))
    return [SENTENCE_END.split(" ".join(passage.split())) for passage in passages]


@dataclass(frozen=True)
class Reading:
    """How a way to read long texts did: accuracy by fifth of length, the shortest first, and of all rows."""

    name: str
    by_fifth: tuple[float, ...]
    accuracy: float

    @property
    def fall(self) -> float:
        """Points from the shortest fifth to the longest."""
        return 100 * (self.by_fifth[0] - self.by_fifth[-1])


def compare_readings(
    short: str,
    longer: str,
    train: Sequence[Row],
    test: Sequence[Row],
    out: Path,
    *,
    cut: int = 512,
    settings: Sequence[str] = (),
    seed: int = 0,
) -> Report:
    """Fine-tune a model and its lengthened form on the same rows; score both, and the first in windows, too.

    The same call resumes what was stopped.
    """
    models = {
        "cut": _tuned(short, train, out / "cut", cut, settings, seed),
        "long": _tuned(longer, train, out / "long", None, settings, seed),
    }
    tokenizer = models["cut"].tokenizer
    assert tokenizer is not None
    sizes = np.array([len(ids) for ids in tokenizer.ids_batch([text for text, _ in test])])
    ways = ((f"cut at {cut}", "cut", False), ("in windows", "cut", True), ("lengthened", "long", False))
    readings = []
    for name, model, windows in ways:
        found = _predicted(models[model], test, out / f"predicted-{name.replace(' ', '-')}.json", windows=windows)
        right = np.array([one == label for one, (_, label) in zip(found, test, strict=True)])
        parts = np.array_split(np.argsort(sizes, kind="stable"), FIFTHS)
        readings.append(Reading(name, tuple(float(right[part].mean()) for part in parts), float(right.mean())))
    bounds = [int(sizes[part].max()) for part in np.array_split(np.argsort(sizes, kind="stable"), FIFTHS)]
    heading = ["", *(f"to {bound:,}" for bound in bounds), "all", "fall"]
    rows = [
        [one.name, *(f"{share:.1%}" for share in one.by_fifth), f"{one.accuracy:.1%}", f"{one.fall:.1f}"]
        for one in readings
    ]
    about = f"{len(train):,} rows to learn from, {len(test):,} to score; fifths by length in tokens, the shortest first"
    return Report(
        title=f"Long texts: {short} and {longer}",
        sections=[Section(items=[note(about), Table(rows=[heading, *rows]), *notes(_verdicts(*readings))])],
        data={
            "short": short,
            "long": longer,
            "train": len(train),
            "test": len(test),
            "longest_by_fifth": bounds,
            "readings": [asdict(one) for one in readings],
        },
    )


def _tuned(
    model: str, rows: Sequence[Row], out: Path, limit: int | None, settings: Sequence[str], seed: int
) -> litebert.Model:
    """A model fine-tuned on rows, now or in an earlier call."""
    info = read_run(out)
    if info is None or info.status != "finished":
        resume = info is not None
        run = litebert.finetune(
            model, list(rows), out=out, max_length=limit, settings=list(settings), seed=seed, resume=resume
        )
        if run.status != "finished":
            raise InputError(f"fine-tuning {model} ended as {run.status}; the same command resumes what was stopped")
    return litebert.load(out / "model")


def _predicted(model: litebert.Model, test: Sequence[Row], path: Path, *, windows: bool) -> list[str]:
    """The labels that a model gives, predicted now or in an earlier call."""
    if path.is_file():
        known: list[str] = json.loads(path.read_text(encoding="utf-8"))
        return known
    found = [str(one.label) for one in model.predict([text for text, _ in test], windows=windows)]
    write_atomically(path, json.dumps(found) + "\n")
    return found


def _verdicts(cut: Reading, windows: Reading, longer: Reading) -> list[str]:
    """What was hoped for, and whether it holds."""
    lost = cut.by_fifth[0] - cut.by_fifth[-1]
    back = windows.by_fifth[-1] - cut.by_fifth[-1]
    given = "have nothing to give back: cutting loses nothing"
    if lost > 0:
        given = f"give back {back / lost:.0%} of the {100 * lost:.1f} points that cutting loses"
    return [
        f"lengthened, the longest fifth is {longer.fall:.1f} points below the shortest "
        f"({'within' if longer.fall <= WITHIN else 'not within'} {WITHIN:g})",
        f"windows {given}",
    ]
