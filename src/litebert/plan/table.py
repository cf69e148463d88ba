"""A plan for people: one column a model, one row a question, and a sentence a model below."""

from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

from litebert.durations import format_duration
from litebert.plan.answer import Answer, gib, large_number, sentence

Row = tuple[str, Callable[[Answer], str]]


def print_answers(answers: Sequence[Answer], console: Console) -> None:
    """The table, what its figures rest on, and the sentences."""
    asked = answers[0].asked
    how: list[str] = [asked.precision]
    if asked.purpose != "infer":
        how += [asked.optimiser, *["checkpointing"] * asked.checkpointing]
    how += ["compiled"] * asked.compiled
    table = Table(title=f"{asked.tokens:,} tokens at once, {', '.join(how)}", title_justify="left")
    table.add_column("")
    for answer in answers:
        table.add_column(answer.model, justify="right")
    for section in (_parameters(), _arithmetic(), _memory(), _time(answers)):
        for label, cell in section:
            table.add_row(label, *(cell(answer) for answer in answers))
        table.add_section()
    console.print(table)
    console.print(f"{asked.device.label}: {asked.device.figures}.", style="dim", highlight=False)
    for answer in answers:
        console.print(sentence(answer), highlight=False, soft_wrap=not console.is_terminal)


def _parameters() -> list[Row]:
    return [
        ("parameters, encoder and pooler", lambda a: f"{a.parameters.bare:,}"),
        ("  embeddings", lambda a: f"{a.parameters.embeddings:,}"),
        ("  attention", lambda a: f"{a.parameters.attention:,}"),
        ("  feed-forward", lambda a: f"{a.parameters.feed_forward:,}"),
        ("  pooler", lambda a: f"{a.parameters.pooler:,}"),
        ("with pretraining heads", lambda a: f"{a.parameters.with_heads:,}"),
    ]


def _arithmetic() -> list[Row]:
    return [
        ("length of a sequence", lambda a: str(a.length)),
        ("MFLOP a token: inference", lambda a: f"{a.flops['infer'] / 1e6:,.0f}"),
        ("  fine-tuning", lambda a: f"{a.flops['finetune'] / 1e6:,.0f}"),
        ("  pretraining", lambda a: f"{a.flops['pretrain'] / 1e6:,.0f}"),
    ]


def _memory() -> list[Row]:
    return [
        ("memory: inference", lambda a: gib(a.memory["infer"].total)),
        ("  fine-tuning", lambda a: gib(a.memory["finetune"].total)),
        ("  pretraining", lambda a: gib(a.memory["pretrain"].total)),
        ("the peak comes at", lambda a: a.peak.at),
        ("  weights", lambda a: gib(a.peak.weights + a.peak.half_weights)),
        ("  gradients, optimiser", lambda a: gib(a.peak.gradients + a.peak.optimiser)),
        ("  activations", lambda a: gib(a.peak.activations + a.peak.passing + a.peak.gaps)),
        ("  vocabulary scores", lambda a: gib(a.peak.head)),
        ("  Python and torch", lambda a: gib(a.peak.runtime)),
    ]


def _time(answers: Sequence[Answer]) -> list[Row]:
    rows: list[Row] = []
    if answers[0].measured:
        rows.append(("measured peak memory", lambda a: gib(a.measured.memory_bytes) if a.measured else ""))
        rows.append(("  predicted / measured", lambda a: f"{a.peak.total / _measured_bytes(a):.2f}"))
    rows += [
        ("fits", lambda a: "yes" if a.fits else "NO"),
        ("most tokens at once that fit", lambda a: f"{a.largest_tokens:,}"),
        ("tokens a second" + (" (measured)" if answers[0].measured else ""), lambda a: f"{a.tokens_per_second:,.0f}"),
        ("  share of the device's rate", lambda a: f"{a.share:.0%}"),
    ]
    if answers[0].budget_tokens is not None:
        rows.append(("tokens in the budget", lambda a: large_number(a.budget_tokens or 0.0)))
        if answers[0].asked.purpose != "infer":
            rows.append(("  steps", lambda a: f"{(a.budget_tokens or 0.0) / a.asked.tokens:,.0f}"))
    if answers[0].asked.purpose == "pretrain":
        rows.append(("the paper's full run", lambda a: format_duration(a.paper_seconds)))
    return rows


def _measured_bytes(answer: Answer) -> float:
    return float(answer.measured.memory_bytes) if answer.measured else float("nan")
