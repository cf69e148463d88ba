"""A plan for people: a table with a column for each model, a sentence for each below it; and a plan as plain values."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from litebert.parameters import format_duration
from litebert.planning.devices import GIB
from litebert.planning.plan import PAPER_TOKENS, Plan

if TYPE_CHECKING:
    from rich.console import Console

Row = tuple[str, Callable[[Plan], str]]
DOING = {"infer": "inference on", "finetune": "a fine-tuning step on", "pretrain": "a pretraining step on"}


def print_plans(plans: Sequence[Plan], console: "Console") -> None:
    """The table, what its figures rest on, and the sentences."""
    from rich.table import Table

    request = plans[0].request
    step = request.step
    how: list[str] = [step.precision]
    if step.trains:
        how += [step.optimiser, *["checkpointing"] * step.checkpointing]
    how += ["compiled"] * step.compiled
    table = Table(title=f"{request.tokens:,} tokens in a batch, {', '.join(how)}", title_justify="left")
    table.add_column("")
    for plan in plans:
        table.add_column(plan.model, justify="right")
    for section in (_parameters(), _arithmetic(), _memory(), _time(plans[0])):
        for label, cell in section:
            table.add_row(label, *(cell(plan) for plan in plans))
        table.add_section()
    console.print(table)
    console.print(f"{request.device.label}: {request.device.figures}.", style="dim", highlight=False)
    for plan in plans:
        console.print(sentence(plan), highlight=False, soft_wrap=not console.is_terminal)


def _parameters() -> list[Row]:
    return [
        ("parameters, encoder and pooler", lambda p: f"{p.parameters.bare:,}"),
        ("  embeddings", lambda p: f"{p.parameters.embeddings:,}"),
        ("  attention", lambda p: f"{p.parameters.attention:,}"),
        ("  feed-forward", lambda p: f"{p.parameters.feed_forward:,}"),
        ("  pooler", lambda p: f"{p.parameters.pooler:,}"),
        ("with pretraining heads", lambda p: f"{p.parameters.with_heads:,}"),
    ]


def _arithmetic() -> list[Row]:
    return [
        ("sequence length", lambda p: str(p.request.step.length)),
        ("MFLOP per token: inference", lambda p: f"{p.flops_per_token['infer'] / 1e6:,.0f}"),
        ("  fine-tuning", lambda p: f"{p.flops_per_token['finetune'] / 1e6:,.0f}"),
        ("  pretraining", lambda p: f"{p.flops_per_token['pretrain'] / 1e6:,.0f}"),
    ]


def _memory() -> list[Row]:
    return [
        ("memory: inference", lambda p: gib(p.memory["infer"].total)),
        ("  fine-tuning", lambda p: gib(p.memory["finetune"].total)),
        ("  pretraining", lambda p: gib(p.memory["pretrain"].total)),
        ("the peak comes in", lambda p: p.peak.at),
        ("  weights", lambda p: gib(p.peak.weights + p.peak.half_weights)),
        ("  gradients, optimiser", lambda p: gib(p.peak.gradients + p.peak.optimiser)),
        ("  activations", lambda p: gib(p.peak.activations + p.peak.temporary + p.peak.gaps)),
        ("  vocabulary scores", lambda p: gib(p.peak.scores)),
        ("  Python and torch", lambda p: gib(p.peak.runtime)),
    ]


def _time(first: Plan) -> list[Row]:
    rows: list[Row] = []
    if first.measured:
        rows.append(("measured peak memory", lambda p: gib(p.measured.memory_bytes) if p.measured else ""))
        rows.append(
            ("  predicted / measured", lambda p: f"{p.peak.total / p.measured.memory_bytes:.2f}" if p.measured else "")
        )
    rows += [
        ("fits", lambda p: "yes" if p.fits else "NO"),
        ("largest batch that fits, tokens", lambda p: f"{p.largest_tokens:,}"),
        ("tokens/s" + (" (measured)" if first.measured else ""), lambda p: f"{p.speed.tokens_per_second:,.0f}"),
        ("  share of the device's rate", lambda p: f"{p.speed.share_of_device:.0%}"),
    ]
    if first.budget:
        rows.append(("tokens in the budget", lambda p: large_number(p.budget.tokens) if p.budget else ""))
        if first.request.step.trains:
            rows.append(("  steps", lambda p: f"{p.budget.steps:,}" if p.budget else ""))
        if first.budget.epochs is not None:
            rows.append(("  epochs", lambda p: f"{p.budget.epochs:.3g}" if p.budget and p.budget.epochs else ""))
    if first.request.step.purpose == "pretrain":
        rows.append(("the paper's full run", lambda p: format_duration(p.speed.paper_run_seconds)))
    return rows


def sentence(plan: Plan) -> str:
    """The answer in a sentence or two."""
    request, device = plan.request, plan.request.device
    step = request.step
    memory = f"{gib(plan.peak.total)} of {gib(device.memory_bytes)}"
    size = f"{DOING[step.purpose]} {request.tokens:,} tokens takes {memory}"
    if not plan.fits:
        limit = (
            f"the largest batch that fits has {plan.largest_tokens:,} tokens"
            if plan.largest_tokens
            else ("no batch fits")
        )
        more = "" if step.checkpointing or not step.trains else "; checkpointing takes less"
        return f"{plan.model} does not fit on {device.label}: {size}; {limit}{more}."
    how = "measured" if plan.measured else "expected"
    text = f"{plan.model} fits on {device.label}: {size} (up to {plan.largest_tokens:,} tokens fit)"
    text += f", at {plan.speed.tokens_per_second:,.0f} tokens per second ({how})"
    if plan.budget:
        steps = f" in {plan.budget.steps:,} steps" if step.trains else ""
        epochs = f", {plan.budget.epochs:.3g} epochs" if plan.budget.epochs is not None else ""
        text += f"; {format_duration(plan.budget.seconds)} see {large_number(plan.budget.tokens)} tokens{steps}{epochs}"
    if step.purpose == "pretrain":
        text += f"; the paper's full run ({large_number(PAPER_TOKENS)} tokens) would take "
        text += format_duration(plan.speed.paper_run_seconds)
    return text + "."


def gib(size: float) -> str:
    """Bytes in GiB, or MiB where they are few; a dash for none."""
    if size == 0:
        return "-"
    return f"{size / GIB:.3g} GiB" if size >= GIB / 10 else f"{size / 2**20:.3g} MiB"


def large_number(number: float) -> str:
    """Three digits and a word: 4.8 million, 262 billion."""
    for name, size in (("billion", 1e9), ("million", 1e6), ("thousand", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:.0f}"


def as_plain(plan: Plan) -> dict[str, Any]:
    """A plan as plain values, for ``--json``."""
    request, counts, step = plan.request, plan.parameters, plan.request.step
    purpose = step.purpose
    peak = dataclasses.asdict(plan.peak)
    speed = dataclasses.asdict(plan.speed)
    paper_run_seconds = speed.pop("paper_run_seconds")
    return {
        "model": plan.model,
        "parameters": counts.bare,
        "parameters_with_heads": counts.with_heads,
        "parameters_by_part": dataclasses.asdict(counts),
        "purpose": purpose,
        "tokens": request.tokens,
        "length": step.length,
        "mixed": step.mixed,
        "precision": step.precision,
        "optimiser": step.optimiser,
        "checkpointing": step.checkpointing,
        "compiled": step.compiled,
        "flops_per_token": plan.flops_per_token[purpose],
        "flops_per_token_by_purpose": dict(plan.flops_per_token),
        "flops_per_step": plan.flops_per_step,
        "memory_bytes": int(plan.peak.total),
        "memory_bytes_by_purpose": {name: int(memory.total) for name, memory in plan.memory.items()},
        "memory_by_part": {name: size if isinstance(size, str) else int(size) for name, size in peak.items()},
        "device": {**dataclasses.asdict(request.device), "usable_bytes": request.device.usable_bytes},
        "fits": plan.fits,
        "largest_tokens": plan.largest_tokens,
        **speed,
        "budget": dataclasses.asdict(plan.budget) if plan.budget else None,
        "paper_run_seconds": paper_run_seconds if purpose == "pretrain" else None,
        "measured": dataclasses.asdict(plan.measured) if plan.measured else None,
        "answer": sentence(plan),
    }
