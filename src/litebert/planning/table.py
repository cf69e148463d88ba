"""A plan for people: a table with a column for each model, a sentence for each below it; and a plan as plain values."""

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from litebert.parameters import format_duration
from litebert.planning.count import SHORT
from litebert.planning.devices import GIB
from litebert.planning.nodes import Links, PaperRun
from litebert.planning.plan import PAPER_TOKENS, Plan

if TYPE_CHECKING:
    from rich.console import Console

DOING = {"infer": "inference on", "finetune": "a fine-tuning step on", "pretrain": "a pretraining step on"}


def print_plans(plans: Sequence[Plan], console: "Console") -> None:
    """The table, what its figures rest on, and the sentences."""
    from rich.table import Table

    first = plans[0]
    step = first.step
    how: list[str] = [step.precision]
    if step.trains:
        how += [step.optimiser, *["checkpointing"] * step.checkpointing]
    how += ["compiled"] * step.compiled
    table = Table(title=f"{first.tokens:,} tokens in a batch, {', '.join(how)}", title_justify="left")
    table.add_column("")
    for plan in plans:
        table.add_column(plan.model, justify="right")
    columns = [_rows(plan) for plan in plans]
    for section in zip(*columns, strict=True):
        for label in section[0]:
            table.add_row(label, *(column[label] for column in section))
        table.add_section()
    console.print(table)
    console.print(f"{first.device.label}: {first.device.figures}.", style="dim", highlight=False)
    if first.paper_run:
        console.print(f"{_assumed(first.paper_run.links)}.", style="dim", highlight=False)
    for plan in plans:
        console.print(sentence(plan), highlight=False, soft_wrap=not console.is_terminal)


def _rows(plan: Plan) -> list[dict[str, str]]:
    """The sections of a model's column; plans that are shown together have the same rows."""
    counts, memory, peak, speed = plan.parameters, plan.memory, plan.peak, plan.speed
    parameters = {
        "parameters, encoder and pooler": counts.bare,
        "  embeddings": counts.embeddings,
        "  attention": counts.attention,
        "  feed-forward": counts.feed_forward,
        "  pooler": counts.pooler,
        "with pretraining heads": counts.with_heads,
    }
    arithmetic = {
        "sequence length": str(plan.step.length),
        "MFLOP per token: inference": f"{plan.flops_per_token['infer'] / 1e6:,.0f}",
        "  fine-tuning": f"{plan.flops_per_token['finetune'] / 1e6:,.0f}",
        "  pretraining": f"{plan.flops_per_token['pretrain'] / 1e6:,.0f}",
    }
    by_part = {
        "memory: inference": gib(memory["infer"].total),
        "  fine-tuning": gib(memory["finetune"].total),
        "  pretraining": gib(memory["pretrain"].total),
        "the peak comes in": peak.at,
        "  weights": gib(peak.weights + peak.half_weights),
        "  gradients, optimiser": gib(peak.gradients + peak.optimiser),
        "  activations": gib(peak.activations + peak.temporary + peak.gaps),
        "  vocabulary scores": gib(peak.scores),
        "  Python and torch": gib(peak.runtime),
    }
    time = {}
    if plan.measured:
        time["measured peak memory"] = gib(plan.measured.memory_bytes)
        time["  predicted / measured"] = f"{peak.total / plan.measured.memory_bytes:.2f}"
    time["fits"] = "yes" if plan.fits else "NO"
    time["largest batch that fits, tokens"] = f"{plan.largest_tokens:,}"
    time["longest text that fits, tokens: inference"] = f"{plan.longest['infer']:,}"
    time["  fine-tuning"] = f"{plan.longest['finetune']:,}"
    time["tokens/s" + (" (measured)" if plan.measured else "")] = f"{speed.tokens_per_second:,.0f}"
    time["  share of the device's rate"] = f"{speed.share_of_device:.0%}"
    if plan.budget:
        time["tokens in the budget"] = large_number(plan.budget.tokens)
        if plan.step.trains:
            time["  steps"] = f"{plan.budget.steps:,}"
        if plan.budget.epochs is not None:
            time["  epochs"] = f"{plan.budget.epochs:.3g}"
    if plan.step.purpose == "pretrain":
        time["the paper's full run"] = format_duration(speed.paper_run_seconds)
    sections = [{label: f"{count:,}" for label, count in parameters.items()}, arithmetic, by_part, time]
    return [*sections, *([_many(plan.paper_run)] if plan.paper_run else [])]


def _many(run: PaperRun) -> dict[str, str]:
    """The rows of the paper's run on many devices."""
    links = run.links
    rows = {
        f"the paper's run on {counted(links.gpus, 'device')}": format_duration(run.seconds),
        "  tokens of each in a step": f"{run.tokens_per_gpu:,.0f}",
        "  gradients exchanged in a step": f"{run.gradient_bytes / 1e6:,.1f} MB",
        "  arithmetic of a step": f"{run.arithmetic_seconds:.3g} s",
        "  communication of a step": f"{run.communication_seconds:.3g} s",
        "  share of communication": f"{run.communication_share:.1%}",
        "  hours of a device": f"{run.gpu_hours:,.0f}",
    }
    return rows if run.cost is None else {**rows, "  cost": f"{run.cost:,.0f}"}


def counted(number: int, what: str) -> str:
    """A number and what there is of it: ``1 node``, ``8 nodes``."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _assumed(links: Links) -> str:
    """The speeds that a plan for many devices takes for granted."""
    return (
        f"{counted(links.gpus, 'device')} on {counted(links.nodes, 'node')}: "
        f"{links.node_link / 1e9:g} GB/s within a node "
        f"(--node-link), {links.link / 1e9:g} GB/s between nodes (--link), taken as stated; no overlap with arithmetic"
    )


def sentence(plan: Plan) -> str:
    """The answer in a sentence or two."""
    device, step = plan.device, plan.step
    memory = f"{gib(plan.peak.total)} of {gib(device.memory_bytes)}"
    size = f"{DOING[step.purpose]} {plan.tokens:,} tokens takes {memory}"
    if not plan.fits:
        largest = f"the largest batch that fits has {plan.largest_tokens:,} tokens"
        limit = largest if plan.largest_tokens else "no batch fits"
        more = "" if step.checkpointing or not step.trains else "; checkpointing takes less"
        return f"{plan.model} does not fit on {device.label}: {size}; {limit}{more}."
    how = "measured" if plan.measured else "expected"
    text = f"{plan.model} fits on {device.label}: {size} (up to {plan.largest_tokens:,} tokens fit)"
    text += f", at {plan.speed.tokens_per_second:,.0f} tokens per second ({how})"
    if plan.budget:
        steps = f" in {plan.budget.steps:,} steps" if step.trains else ""
        epochs = f", {plan.budget.epochs:.3g} epochs" if plan.budget.epochs is not None else ""
        text += f"; {format_duration(plan.budget.seconds)} see {large_number(plan.budget.tokens)} tokens{steps}{epochs}"
    if plan.longest["infer"] > SHORT:
        longest = plan.longest
        text += f"; it can read texts of {longest['infer']:,} tokens and learn from {longest['finetune']:,}"
    if step.purpose == "pretrain":
        text += f"; the paper's full run ({large_number(PAPER_TOKENS)} tokens) would take "
        text += format_duration(plan.speed.paper_run_seconds)
    if run := plan.paper_run:
        text += f", on {run.links.gpus} of them {format_duration(run.seconds)}, {run.communication_share:.1%} of it "
        text += "communication"
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
    counts, step, purpose = plan.parameters, plan.step, plan.step.purpose
    peak = dataclasses.asdict(plan.peak)
    speed = dataclasses.asdict(plan.speed)
    paper_run_seconds = speed.pop("paper_run_seconds")
    return {
        "model": plan.model,
        "parameters": counts.bare,
        "parameters_with_heads": counts.with_heads,
        "parameters_by_part": dataclasses.asdict(counts),
        "purpose": purpose,
        "tokens": plan.tokens,
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
        "device": {**dataclasses.asdict(plan.device), "usable_bytes": plan.device.usable_bytes},
        "fits": plan.fits,
        "largest_tokens": plan.largest_tokens,
        "longest_text": dict(plan.longest),
        **speed,
        "budget": dataclasses.asdict(plan.budget) if plan.budget else None,
        "paper_run_seconds": paper_run_seconds if purpose == "pretrain" else None,
        "measured": dataclasses.asdict(plan.measured) if plan.measured else None,
        "paper_run": _plain_run(plan.paper_run) if plan.paper_run else None,
        "answer": sentence(plan),
    }


def _plain_run(run: PaperRun) -> dict[str, Any]:
    derived = ("communication_share", "seconds", "gpu_hours", "cost")
    return {**dataclasses.asdict(run), **{name: getattr(run, name) for name in derived}}
