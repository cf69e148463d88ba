"""``litebert plan``: the command around ``make_plan``. Light at import."""

from typing import Annotated

import typer

from litebert.errors import InputError


def plan(
    words: Annotated[
        list[str], typer.Argument(metavar="MODEL... [FIELD=VALUE...]", help="Presets or folders; fields change all.")
    ],
    device: Annotated[str, typer.Option(help="h200, a100, t4, cpu, or auto: this machine, measured.")] = "auto",
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
    corpus_tokens: Annotated[
        float | None, typer.Option(help="Tokens of your corpus: how many epochs does --budget buy?")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Take real pretraining steps here and go by them.")
    ] = False,
    steps: Annotated[int, typer.Option(help="How many steps --measure takes.")] = 3,
    as_json: Annotated[bool, typer.Option("--json", help="A list of objects instead of a table.")] = False,
) -> None:
    """Parameters, arithmetic, memory and time of models, side by side, before anything is run."""
    from litebert.plan.plan import make_plan

    models = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    if not models:
        raise InputError(f"{overrides[0]} changes a field, but of which model? Name one, such as albert-base")
    plans = [
        make_plan(
            model,
            overrides=overrides,
            device=device,
            purpose=purpose,
            tokens=tokens,
            length=length,
            mixed=mixed,
            precision=precision,
            optimiser=optimiser,
            checkpointing=checkpointing,
            compiled=compiled,
            budget=budget,
            corpus_tokens=corpus_tokens,
            measure=measure,
            steps=steps,
        )
        for model in models
    ]
    from litebert.plan.table import as_plain, print_plans

    if as_json:
        import json

        typer.echo(json.dumps([as_plain(each) for each in plans], indent=2))
        return
    from rich.console import Console

    print_plans(plans, Console())
