"""What a study is: rows, each a pretraining run, and findings, each a claim about figures of rows. No torch here."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of a table of the paper, at the user's scale."""

    name: str  # of its folder
    label: str
    words: tuple[str, ...]  # fields of the model and of the recipe that make this row
    paper: Mapping[str, str] = field(default_factory=dict)  # what the paper has in that line, by column
    start: str = ""  # the row whose model this one starts from
    place: float | None = None  # on the horizontal axis of the plot, where there is one
    line: str = ""  # which line of the plot it is on


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim of the paper as a number that is above zero where it holds: ``constant`` + the sum of weight x figure.

    ``needs`` are claims that must hold for this one to mean anything.
    """

    text: str
    weights: Mapping[str, float]  # by row
    metric: str = "mlm_loss"
    constant: float = 0.0
    paper: str = ""  # the paper's own figures for it
    needs: tuple["Finding", ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table of the paper and what it found."""

    name: str
    about: str
    table: str  # which of the paper's it is
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    metrics: tuple[str, ...] = ("mlm_loss", "mlm_accuracy", "sop_accuracy")
    recipe_words: tuple[str, ...] = ()  # fields of the recipe that every row of the study needs
    axis: str = ""  # of the plot; empty: bars
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """The row of a name."""
        return next(row for row in self.rows if row.name == name)


def worse(text: str, worse_row: str, better_row: str, *, paper: str = "") -> Finding:
    """The claim that one row loses more than another."""
    return Finding(text=text, weights={worse_row: 1.0, better_row: -1.0}, paper=paper)
