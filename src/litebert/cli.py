"""The command line. It imports nothing heavy: each verb imports what it needs when it runs.

A room with several verbs keeps them in its own ``verb.py`` (light at import, too) and is mounted here.
"""

import sys
from typing import Annotated, Any

import typer

from litebert.analyse.verb import layers
from litebert.bench.verb import app as bench_app
from litebert.card.verb import card
from litebert.corpus.verb import app as corpus_app
from litebert.errors import InputError
from litebert.exits.verb import exits
from litebert.infer.verb import fill, order
from litebert.lineage import runs_verb
from litebert.plan.verb import plan
from litebert.pretrain.verb import pretrain
from litebert.shrink.distill_verb import distill
from litebert.shrink.verb import shrink
from litebert.study.verb import study
from litebert.tasks.evaluate_verb import evaluate
from litebert.tasks.finetune_verb import finetune
from litebert.tasks.predict_verb import predict
from litebert.text.verb import app as tokenizer_app

app = typer.Typer(
    name="litebert",
    help="Train, fine-tune, shrink and ship BERT-class text encoders with little compute.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(bench_app, name="bench")
app.command()(pretrain)
app.command()(finetune)
app.command()(evaluate)
app.command()(predict)
app.command()(fill)
app.command()(order)
app.add_typer(corpus_app, name="corpus")
app.command("runs")(runs_verb)
app.add_typer(tokenizer_app, name="tokenizer")
app.command()(plan)
app.command()(shrink)
app.command()(distill)
app.command()(exits)
app.command()(layers)
app.command()(study)
app.command()(card)


@app.command()
def ls() -> None:
    """List the models that are shipped, the presets of models, then the recipes of pretraining."""
    from litebert.checkpoints.shipped import shipped_about, shipped_names
    from litebert.config import preset_names, read_preset

    for name in shipped_names():
        typer.echo(f"{name:20} trained, comes with litebert: {shipped_about(name)}")
    for kind in ("models", "recipes"):
        for name in preset_names(kind):
            typer.echo(f"{name:20} {'recipe: ' if kind == 'recipes' else ''}{read_preset(kind, name)['about']}")


@app.command()
def show(
    model: Annotated[str, typer.Argument(help="A preset, a recipe, a litebert folder or a Hugging Face folder.")],
    overrides: Annotated[list[str] | None, typer.Argument(metavar="FIELD=VALUE...")] = None,
) -> None:
    """Print the configuration of a model, or a recipe, with nothing left out, as YAML."""
    import dataclasses
    import os
    from pathlib import Path

    from litebert.checkpoints.shipped import shipped_folder, shipped_names
    from litebert.config import preset_names
    from litebert.errors import nearest

    models, recipes = preset_names("models"), preset_names("recipes")
    if Path(model).is_dir() or shipped_folder(model):
        from litebert.checkpoints.folder import model_config

        encoder = model_config(model, overrides or ()).encoder
    elif model in recipes:
        from litebert.pretrain.recipe import read_recipe

        _echo_yaml(dataclasses.asdict(read_recipe(model, overrides or ())))
        return
    elif model not in models and os.sep not in model:
        known = nearest(model, [*models, *recipes, *shipped_names()])
        raise InputError(f"'{model}' is neither a folder nor a preset nor a recipe{known}")
    else:
        from litebert.nn.families import preset_config

        encoder = preset_config(model, overrides or ())
    fields = dataclasses.asdict(encoder) | {"plan": " ".join(f"{a}-{f}" for a, f in encoder.plan)}
    fields["custom_plan"] = [list(pair) for pair in encoder.custom_plan]
    _echo_yaml(fields)


def _echo_yaml(fields: dict[str, Any]) -> None:
    import json

    import yaml

    plain = json.loads(json.dumps(fields))  # YAML has no tuples
    typer.echo(yaml.safe_dump(plain, sort_keys=False, default_flow_style=None, width=120), nl=False)


@app.command()
def convert(
    source: Annotated[str, typer.Argument(help="A preset, a litebert folder or a Hugging Face folder.")],
    folder: Annotated[str, typer.Argument(metavar="DST", help="The model folder to write.")],
    to: Annotated[
        str,
        typer.Option(help="litebert: shared blocks stored once; hf: written out so that transformers loads any plan."),
    ] = "litebert",
    dtype: Annotated[
        str, typer.Option(help="Numbers of the weights: float32, or bfloat16 for half the bytes.")
    ] = "float32",
) -> None:
    """Write a model as a folder of safetensors that litebert loads, and transformers wherever it can."""
    if to not in ("litebert", "hf"):
        raise InputError(f"--to is '{to}' but must be litebert or hf")
    if dtype not in ("float32", "bfloat16", "float16"):
        raise InputError(f"--dtype is '{dtype}' but must be float32, bfloat16 or float16")
    from pathlib import Path

    import torch

    from litebert.checkpoints.folder import load_model, save_model
    from litebert.checkpoints.huggingface import is_native
    from litebert.runs import parent_of

    loaded = load_model(source, dtype=getattr(torch, dtype))
    for note in loaded.notes:
        typer.echo(f"note: {note}", err=True)
    settings = {"source": str(source), "to": to, "dtype": dtype}
    parents = [parent_of("source", Path(source))] if Path(source).is_dir() else []
    save_model(
        folder,
        loaded.network,
        loaded.tokenizer,
        verb="convert",
        settings=settings,
        parents=parents,
        written_out=to == "hf",
    )
    readable = to == "hf" or is_native(loaded.network.config.encoder)
    typer.echo(
        f"wrote {folder}, which litebert {'and transformers load' if readable else 'loads (--to hf for others)'}"
    )


def main() -> None:
    """Run a verb; a mistake of the user's becomes one sentence on standard error and exit code 2."""
    try:
        app()
    except InputError as error:
        fail(str(error))
    except BrokenPipeError:
        sys.exit(141)
    except OSError as error:
        fail(f"{error.filename or 'the system'}: {error.strerror or error}")


def fail(sentence: str) -> None:
    """Say what is wrong and leave with exit code 2."""
    print(f"litebert: {sentence}", file=sys.stderr)
    sys.exit(2)
