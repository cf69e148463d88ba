"""What was kept and what was left out, by source and reason, with a few of each to look at."""

import json
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from litebert_lab.card.results import markdown_table

KEPT = "kept"
SAMPLES = 40  # of each reason
NOTHING = {"documents": 0, "paragraphs": 0, "characters": 0}


@dataclass
class Count:
    """How much went one way."""

    documents: int = 0
    paragraphs: int = 0
    characters: int = 0
    samples: list[str] = field(default_factory=list)
    offered: int = 0  # to the samples


class Tally:
    """Counts of one source by reason; ``kept`` is one of the reasons."""

    def __init__(self, seed: int = 0) -> None:
        self.counts: dict[str, Count] = defaultdict(Count)
        self._draws = random.Random(seed)

    def paragraph(self, reason: str, text: str) -> None:
        """One paragraph, or a line that is none."""
        count = self.counts[reason]
        count.paragraphs += 1
        count.characters += len(text)
        self._sample(count, text[:600])

    def document(self, reason: str, paragraphs: list[str]) -> None:
        """A whole document."""
        count = self.counts[reason]
        count.documents += 1
        count.paragraphs += len(paragraphs)
        count.characters += sum(map(len, paragraphs))
        self._sample(count, "\n".join(paragraphs)[:1500])

    def _sample(self, count: Count, text: str) -> None:
        """Keep a fair draw of all that were offered."""
        count.offered += 1
        if len(count.samples) < SAMPLES:
            count.samples.append(text)
        elif (place := self._draws.randrange(count.offered)) < SAMPLES:
            count.samples[place] = text

    def figures(self) -> dict[str, dict[str, int]]:
        """The counts alone, the largest first."""
        ordered = sorted(self.counts.items(), key=lambda item: (item[0] != KEPT, -item[1].characters))
        return {reason: {name: getattr(count, name) for name in NOTHING} for reason, count in ordered}


def write_tallies(tallies: dict[str, Tally], folder: Path) -> None:
    """``counts.json`` with all figures, and ``samples/SOURCE.txt`` to read."""
    figures = {name: tally.figures() for name, tally in tallies.items()}
    (folder / "counts.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    (folder / "samples").mkdir(exist_ok=True)
    for name, tally in tallies.items():
        parts = [
            f"######## {reason}\n" + "\n----\n".join(count.samples) for reason, count in sorted(tally.counts.items())
        ]
        (folder / "samples" / f"{name}.txt").write_text("\n\n".join([*parts, ""]), encoding="utf-8")


def as_table(figures: dict[str, dict[str, dict[str, int]]]) -> str:
    """The figures as a Markdown table, a column a source: documents or paragraphs, and millions of characters."""
    reasons = {reason for counts in figures.values() for reason in counts}
    size = {reason: sum(counts.get(reason, NOTHING)["characters"] for counts in figures.values()) for reason in reasons}
    rows = [
        [reason, *(_cell(**counts.get(reason, NOTHING)) for counts in figures.values())]
        for reason in sorted(reasons, key=lambda reason: (reason != KEPT, -size[reason], reason))
    ]
    return markdown_table(["", *(f"`{source}`" for source in figures)], rows, left=1 + len(figures))


def _cell(documents: int, paragraphs: int, characters: int) -> str:
    """``1,230 documents (1.4)``."""
    number = f"{documents:,} documents" if documents else f"{paragraphs:,}" if paragraphs else ""
    return number + (f" ({characters / 1e6:.1f})" if characters >= 50_000 else "")
