"""What a study is: rows, each a pretraining run, and findings, each a claim about figures of rows. No torch here.

A row may also be another row's model, scored at a smaller depth.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

STUDIES = ("embedding", "sharing", "order", "depth", "width", "dropout", "time", "recipe", "elastic")

CHANCE = 0.5
UNEVEN = 0.02  # how much more than half of the pairs that are scored may have one answer; always giving it is no skill


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
    model: str = ""  # the row whose model this is, where it has none of its own
    depth: int | None = None  # layers after which the model is scored; None: all
    beside: str = ""  # the row that its loss is compared with in the table


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
    whose: str = "paper"  # whose they are, if not the paper's
    needs: tuple["Finding", ...] = ()
    words: tuple[str, str] = ("reproduced", "not reproduced")  # where it holds, and where it does not


@dataclass(frozen=True, kw_only=True)
class Study:
    """A table of the paper and what it found."""

    name: str
    about: str
    table: str  # which of the paper's it is; empty: none
    rows: tuple[Row, ...]
    findings: tuple[Finding, ...]
    metrics: tuple[str, ...] = ("mlm_loss", "mlm_accuracy", "sop_accuracy")
    recipe_words: tuple[str, ...] = ()  # fields of the recipe that every row of the study needs
    axis: str = ""  # of the plot; empty: bars
    ranked: bool = False  # the order of the rows is of interest
    notes: tuple[str, ...] = ()

    @property
    def trained(self) -> tuple[Row, ...]:
        """The rows that are runs of their own."""
        return tuple(row for row in self.rows if not row.model)

    def row(self, name: str) -> Row:
        """The row of a name."""
        return next(row for row in self.rows if row.name == name)


def worse(text: str, worse_row: str, better_row: str, *, paper: str = "") -> Finding:
    """The claim that one row loses more than another."""
    return Finding(text=text, weights={worse_row: 1.0, better_row: -1.0}, paper=paper)


def above_chance(text: str, row: str, metric: str, *, paper: str = "") -> Finding:
    """The claim that a row answers a question of two answers better than by guessing."""
    return Finding(text=text, weights={row: 1.0}, metric=metric, constant=-CHANCE - UNEVEN, paper=paper)
