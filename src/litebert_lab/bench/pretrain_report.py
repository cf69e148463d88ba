"""What ``bench pretrain`` finds: a row for each engine on each kind of text, and all of them as a table."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """One engine on one kind of text."""

    engine: str
    tokens_per_second: float = 0.0
    ratio: float = 0.0  # to transformers eager
    mfu: float = 0.0
    peak_bytes: int | None = None  # of the allocator, on a GPU
    first_loss: float = float("nan")
    ready_seconds: float = 0.0  # until the first step was done, compiling included
    problem: str = ""  # why there are no figures

    def short(self) -> str:
        """The row in a few words, to be said as soon as it is there."""
        if self.problem:
            return self.problem
        memory = "" if self.peak_bytes is None else f", {self.peak_bytes / 2**30:.1f} GiB"
        return f"{self.tokens_per_second:,.0f} tokens/s, {self.ratio:.2f} times, {self.mfu:.1%} of the peak{memory}"


@dataclass(frozen=True)
class Case:
    """All engines on the same batches."""

    text: str
    mean_length: float
    padding: float  # of the tokens that transformers computes, those that are padding
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Report:
    """What was measured."""

    model: str
    device: str
    precision: str
    tokens: int
    length: int
    product_flops: float
    cases: tuple[Case, ...]


def table(report: Report) -> str:
    """The figures as lines of text."""
    head = (
        f"{report.model} on {report.device} in {report.precision}: steps of {report.tokens:,} tokens, inputs of at "
        f"most {report.length}; a large matrix product runs at {report.product_flops / 1e12:.3g} TFLOP/s"
    )
    return "\n".join([head, *(line for case in report.cases for line in _lines(case))])


def _lines(case: Case) -> Iterator[str]:
    yield f"\n{case.text}: {case.mean_length:.0f} tokens in the mean, theirs {case.padding:.0%} padding"
    yield f"{'engine':24} {'tokens/s':>10} {'ratio':>6} {'MFU':>6} {'memory':>9} {'first loss':>10} {'ready in':>9}"
    for row in case.rows:
        if row.problem:
            yield f"{row.engine:24} {row.problem}"
            continue
        memory = "-" if row.peak_bytes is None else f"{row.peak_bytes / 2**30:.1f} GiB"
        yield (
            f"{row.engine:24} {row.tokens_per_second:10,.0f} {row.ratio:6.2f} {row.mfu:6.1%} {memory:>9} "
            f"{row.first_loss:10.5f} {row.ready_seconds:7.1f} s"
        )
