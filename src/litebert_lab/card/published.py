"""Published rows that a card stands next to, from ``published.yaml``, each with its budget and its source."""

from dataclasses import dataclass
from pathlib import Path

import yaml

FILE = Path(__file__).with_name("published.yaml")


@dataclass(frozen=True, kw_only=True)
class Published:
    """A model of others, with what it took and what it reached, in percent as printed there."""

    name: str
    parameters: str
    budget: str
    scores: dict[str, str]
    source: str
    note: str = ""


def published_rows() -> list[Published]:
    """All rows, in the order of the file."""
    rows = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return [Published(**row) for row in rows]
