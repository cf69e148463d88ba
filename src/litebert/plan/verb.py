"""``litebert plan``: what a model will cost, before it is run. Light at import; the work is in ``answer.py``."""

from typing import Annotated, TypeVar

import typer

from litebert.errors import InputError

Choice = TypeVar("Choice", bound=str)


def plan(
    words: Annotated[
        list[str], typer.Argument(metavar="MODEL... [FIELD=VALUE...]", help="Presets or folders; fields change all.")
    ],
    device: Annotated[str, typer.Option(help="h200, a100, t4, cpu, or here: this machine, measured.")] = "here",
    purpose: Annotated[str, typer.Option("--for", help="infer, finetune or pretrain.")] = "pretrain",
    tokens: Annotated[
        int | None, typer.Option(help="Tokens in a batch.  [default: 16384 on a GPU, 4096 on a CPU]")
    ] = None,
    length: Annotated[int | None, typer.Option(help="Tokens in a sequence.  [default: 512]")] = None,
    mixed: Annotated[bool, typer.Option("--mixed", help="Sequences of mixed lengths, up to --length.")] = False,
    precision: Annotated[
        str | None, typer.Option(help="fp32, bf16 or fp16.  [default: half on a GPU, fp32 on a CPU]")
    ] = None,
    optimiser: Annotated[str, typer.Option(help="adamw, lamb, muon or sgd.")] = "adamw",
    checkpointing: Annotated[
        bool, typer.Option("--checkpointing", help="Compute activations twice instead of keeping them.")
    ] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="With torch.compile.")] = False,
    budget: Annotated[str | None, typer.Option(help="Time you have, such as 20m or 2h: how much does it buy?")] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Take real pretraining steps here and go by them.")
    ] = False,
    steps: Annotated[int, typer.Option(help="How many steps --measure takes.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")] = False,
) -> None:
    """Parameters, arithmetic, memory and time of models, side by side, before anything is run."""
    from litebert.durations import parse_duration
    from litebert.plan.arithmetic import PURPOSES
    from litebert.plan.work import OPTIMISERS, PRECISIONS

    models = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    if not models:
        raise InputError(f"{overrides[0]} changes a field, but of which model? Name one, such as albert-base")
    chosen_purpose = _choice("--for", purpose, PURPOSES)
    chosen_optimiser = _choice("--optimiser", optimiser, OPTIMISERS)
    chosen_precision = None if precision is None else _choice("--precision", precision, PRECISIONS)
    for name, value in (("--tokens", tokens), ("--length", length), ("--steps", steps)):
        if value is not None and value < 1:
            raise InputError(f"{name} is {value} but must be 1 or more")
    budget_seconds = None if budget is None else parse_duration(budget)
    if measure and (chosen_purpose != "pretrain" or chosen_optimiser != "adamw"):
        raise InputError("--measure takes pretraining steps with adamw; leave out --for and --optimiser")

    from litebert.checkpoints.folder import model_config
    from litebert.plan.answer import USUAL_TOKENS, Asked, answer, as_plain
    from litebert.plan.devices import find_device

    configs = {model: model_config(model, overrides).encoder for model in models}
    found = find_device(device, chosen_precision)
    chosen_precision = chosen_precision or found.usual_precision
    if chosen_precision not in found.flops:
        raise InputError(f"{found.label} has no {chosen_precision}; use --precision {found.usual_precision}")
    if measure and device not in ("here", "cpu"):
        raise InputError(f"--measure runs on this machine, not on {found.label}; use --device here")
    asked = Asked(
        purpose=chosen_purpose,
        device=found,
        precision=chosen_precision,
        tokens=tokens or USUAL_TOKENS[found.kind],
        length=length,
        mixed=mixed,
        optimiser=chosen_optimiser,
        checkpointing=checkpointing,
        compiled=compiled,
        budget_seconds=budget_seconds,
        measure_steps=steps if measure else 0,
    )
    answers = [answer(model, config, asked) for model, config in configs.items()]
    if as_json:
        import json

        typer.echo(json.dumps([as_plain(found) for found in answers], indent=2))
        return
    from rich.console import Console

    from litebert.plan.table import print_answers

    print_answers(answers, Console())


def _choice(option: str, value: str, allowed: tuple[Choice, ...]) -> Choice:
    for one in allowed:
        if one == value:
            return one
    raise InputError(f"{option} is '{value}' but must be one of {', '.join(allowed)}")
