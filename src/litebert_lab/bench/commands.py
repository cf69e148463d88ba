"""The ``bench`` commands: measurements side by side with other libraries, in one run, as ratios. Light at import."""

from pathlib import Path
from typing import Annotated

import typer

from litebert.commands.show import show_report
from litebert.errors import InputError

Device = Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")]
On = Annotated[str, typer.Option(help="Where runs go: here, ray or ray://HOST:PORT.")]
Cores = Annotated[
    int, typer.Option(min=0, help="Cores of a run, where several run at once; 0: all of a machine. A GPU has one run.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")]

app = typer.Typer(help="Measure against other libraries, side by side in one run.", no_args_is_help=True)


def usable_device(device: str) -> str:
    """The device to run on; torch is imported when a command runs."""
    from litebert.system import usable_device as usable

    return usable(device)


@app.command()
def start(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each; the fastest counts.")] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Time to start: import litebert, and litebert --help, each in a new process."""
    import dataclasses
    import json as json_module

    from litebert_lab.bench.start import bench_start

    rows = bench_start(runs)
    if json:
        typer.echo(json_module.dumps([dataclasses.asdict(row) for row in rows], indent=2))
        return
    for row in rows:
        typer.echo(f"{row.what:26} {row.seconds:6.3f} s" + (f"   (aim: {row.wanted} s)" if row.wanted else ""))


@app.command()
def forward(
    model: Annotated[str, typer.Argument(help="A preset or a model folder.")] = "albert-base-v2",
    texts: Annotated[
        Path | None, typer.Option(help="A file of texts, one a line; else random ids of mixed length.")
    ] = None,
    count: Annotated[int, typer.Option(help="Number of texts.")] = 128,
    mean: Annotated[float, typer.Option(help="Mean length of random texts, in tokens.")] = 25,
    batch: Annotated[int, typer.Option(help="Texts in a padded batch.")] = 32,
    device: Device = "auto",
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="Time torch.compile, too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Inference on texts of mixed length: tokens per second next to transformers, same weights."""
    from litebert_lab.bench.forward import bench_forward

    lines = None
    if texts is not None:
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()][:count]
        if not lines:
            raise InputError(f"{texts} holds no text")
    where = usable_device(device)
    show_report(
        bench_forward(model, texts=lines, count=count, mean=mean, batch=batch, device=where, compiled=compiled), as_json
    )


@app.command()
def pretrain(
    model: Annotated[
        str | None, typer.Argument(help="A preset or a folder.  [default: albert-small, on a GPU albert-base-v2]")
    ] = None,
    corpus: Annotated[Path | None, typer.Option(help="A token store; else random text of mixed lengths.")] = None,
    device: Device = "auto",
    tokens: Annotated[int | None, typer.Option(help="Tokens of a step.  [default: 4096, on a GPU 65536]")] = None,
    length: Annotated[int | None, typer.Option(help="Maximum tokens of an input.  [default: 128, 512]")] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="Time torch.compile, too; on a GPU by default.")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="Seconds for one engine on one text, compiling included.  [default: 600, 75]")
    ] = None,
    precision: Annotated[str | None, typer.Option(help="bf16, fp16 or fp32.  [default: fp32, bf16]")] = None,
    optimiser: Annotated[str, typer.Option(help="adamw, lamb or muon; others than adamw with --profile.")] = "adamw",
    profile: Annotated[
        bool, typer.Option("--profile", help="Not next to transformers: where the time of our own step goes.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """A pretraining step: tokens per second, memory and share of the peak next to transformers, same weights."""
    from litebert_lab.bench.pretrain import bench_pretrain, choose_setting, profile_pretrain

    setting = choose_setting(
        model,
        store=corpus,
        device=usable_device(device),
        tokens=tokens,
        length=length,
        compiled=compiled,
        numbers=precision,
        optimiser=optimiser,
    )
    show_report(profile_pretrain(setting) if profile else bench_pretrain(setting, limit), as_json)


@app.command()
def finetune(
    model: Annotated[str, typer.Argument(help="The folder of a pretrained model.")],
    data: Annotated[Path, typer.Option(help="The folder of GLUE with the task's own folder in it.")],
    task: Annotated[str, typer.Option(help="Whose texts to train on.")] = "sst2",
    device: Device = "auto",
    batch: Annotated[list[int] | None, typer.Option(help="Examples of a step.  [default: 32 and 128]")] = None,
    steps: Annotated[int, typer.Option(help="Steps that are timed; 0: by device.")] = 0,
    turns: Annotated[int, typer.Option(help="Times each engine is timed, the best counting; 0: by device.")] = 0,
    quality: Annotated[
        bool, typer.Option("--quality", help="Not how fast but how good: seeds of MRPC, RTE, CoLA and STS-B.")
    ] = False,
    tasks: Annotated[str, typer.Option(help="With --quality: which of them.")] = "mrpc,rte,cola,stsb",
    seeds: Annotated[int, typer.Option(help="With --quality: number of seeds.")] = 5,
    first_seed: Annotated[int, typer.Option(help="With --quality: the first of them.")] = 0,
    epochs: Annotated[float, typer.Option(help="With --quality: passes over the data.")] = 4.0,
    side: Annotated[str, typer.Option(help="With --quality: ours or theirs alone.")] = "",
    results: Annotated[
        Path | None, typer.Option(help="With --quality: a folder for what is done, which is not done again.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Fine-tuning steps a second next to Hugging Face's Trainer, same weights and texts; or scores next to theirs."""
    where = usable_device(device)
    if quality:
        from litebert_lab.bench.finetune import SIDES, QualitySettings, bench_quality, quality_report

        if side not in ("", *SIDES):
            raise InputError(f"--side is '{side}' but must be ours or theirs")
        found = bench_quality(
            QualitySettings(model=model, device=where, epochs=epochs),
            data,
            tasks=tasks.split(","),
            sides=[name for name in SIDES if side in ("", name)],
            seeds=range(first_seed, first_seed + seeds),
            results=results,
        )
        show_report(quality_report(found), as_json)
        return
    from litebert_lab.bench.finetune import BATCHES, bench_finetune

    batches = batch or BATCHES
    show_report(
        bench_finetune(model, data, task=task, device=where, batches=batches, steps=steps, turns=turns), as_json
    )


@app.command()
def finetune_time(
    model: Annotated[str, typer.Argument(help="A pretrained model.")],
    data: Annotated[Path, typer.Option(help="A table to fine-tune on.")],
    text: Annotated[str | None, typer.Option(help="The column with the text.")] = None,
    label: Annotated[str | None, typer.Option(help="The column with the label.")] = None,
    batch: Annotated[int, typer.Option(help="Examples a step.")] = 32,
    steps: Annotated[int, typer.Option(help="Steps that are timed.")] = 10,
    repeats: Annotated[int, typer.Option(help="How often each part is timed, the fastest counting.")] = 2,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Where the time of fine-tuning goes: steps, scoring dev, and the matrix products alone."""
    from litebert_lab.bench.finetune_time import bench_finetune_time

    where = usable_device(device)
    found = bench_finetune_time(
        model, data, text=text, label=label, device=where, steps=steps, repeats=repeats, batch=batch
    )
    show_report(found, as_json)


@app.command()
def exits(
    model: Annotated[
        str, typer.Argument(help="A model with shared layers, or with exits and --texts.")
    ] = "litebert-en",
    texts: Annotated[
        Path | None, typer.Option(help="Texts for a model with exits, one a line; else random ids.")
    ] = None,
    count: Annotated[int, typer.Option(help="How many texts.  [default: 96, on a GPU 60000]")] = 0,
    mean: Annotated[float, typer.Option(help="Mean length of random texts, in tokens.")] = 26,
    mean_depth: Annotated[float, typer.Option(help="Without --texts: the mean depth at which they leave.")] = 4.5,
    device: Annotated[str, typer.Option(help="auto (a GPU if there is one), cpu or cuda.")] = "auto",
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="On a GPU: with torch.compile.")] = False,
    repeats: Annotated[int, typer.Option(help="How often each engine is timed, the best counting.")] = 3,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Early exits next to all layers: texts per second, and p50 and p99 of a request."""
    import dataclasses
    import json as json_module

    from litebert_lab.bench.exits import bench_exits, table

    lines = None
    if texts is not None:
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise InputError(f"{texts} holds no text")
    report = bench_exits(
        model,
        texts=lines,
        count=count,
        mean=mean,
        mean_depth=mean_depth,
        device=usable_device(device),
        compiled=compiled,
        repeats=repeats,
    )
    typer.echo(json_module.dumps(dataclasses.asdict(report), indent=2) if json else table(report))


@app.command()
def corpus(
    corpus: Annotated[list[str], typer.Argument(help="Text files, as for litebert corpus build.")],
    tokenizer: Annotated[Path, typer.Option("--tokenizer", "-t", help="Folder with the tokenizer.")],
    language: Annotated[list[str] | None, typer.Option("--language", "-l", help="As for corpus build.")] = None,
    workers: Annotated[int, typer.Option(help="Processes; 0 for one a core.")] = 0,
    megabytes: Annotated[float, typer.Option(help="Megabytes of the text to measure with.")] = 20,
    length: Annotated[int, typer.Option(help="Maximum tokens of an input.")] = 512,
    budget: Annotated[int, typer.Option(help="Maximum tokens of a batch.")] = 65_536,
    as_json: AsJson = False,
) -> None:
    """Building a store and making batches: speed next to the tokenizer library and to transformers' collator."""
    import tempfile

    from litebert_lab.bench.corpus import bench_batches, bench_build, corpus_report

    with tempfile.TemporaryDirectory(prefix="litebert-bench-") as name:
        store = Path(name) / "store"
        build = bench_build(
            corpus, tokenizer, languages=language or (), workers=workers or None, megabytes=megabytes, keep=store
        )
        show_report(corpus_report(build, bench_batches(store, length=length, budget=budget)), as_json)


@app.command()
def inference(
    model: Annotated[str, typer.Argument(help="A name or the folder of a model.")],
    texts: Annotated[Path | None, typer.Option(help="A file of texts, one a line; else random words.")] = None,
    count: Annotated[int | None, typer.Option(help="How many texts.  [default: 96, on a GPU 8192]")] = None,
    depths: Annotated[str, typer.Option(help="Depths of our runtime, beside the model's own.")] = "12,6,3",
    engines: Annotated[str, typer.Option(help="Names of engines, separated by commas.  [default: all]")] = "",
    rounds: Annotated[int, typer.Option(help="How often each engine is asked.")] = 5,
    python_of: Annotated[
        list[str] | None, typer.Option(help="ENGINE=PATH: the interpreter of an engine that needs other versions.")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu, or cuda: packed beside padded batches.")] = "cpu",
    compiled: Annotated[bool, typer.Option("--compile/--no-compile", help="On a GPU, time torch.compile, too.")] = True,
    as_json: AsJson = False,
) -> None:
    """Texts in, vectors out: our runtime beside transformers, ONNX Runtime, OpenVINO, CTranslate2 and others."""
    from litebert_lab.bench.inference import (
        InferenceSettings,
        bench_gpu,
        bench_inference,
        gpu_report,
        inference_report,
        parse_pythons,
    )

    lines = None
    if texts is not None:
        lines = [line for line in texts.read_text(encoding="utf-8").splitlines() if line.strip()]
        if not lines:
            raise InputError(f"{texts} holds no text")
    if usable_device(device) != "cpu":
        report = gpu_report(bench_gpu(model, texts=lines, count=count or 8192, rounds=rounds, compiled=compiled))
    else:
        numbers = [word.strip() for word in depths.split(",") if word.strip()]
        if not all(word.isdecimal() for word in numbers):
            raise InputError(f"depths is '{depths}' but must be numbers separated by commas, such as 12,6,3")
        settings = InferenceSettings(
            count=count or 96,
            depths=tuple(map(int, numbers)),
            engines=tuple(name.strip() for name in engines.split(",") if name.strip()),
            rounds=rounds,
            pythons=parse_pythons(python_of or []),
        )
        report = inference_report(bench_inference(model, settings, lines))
    show_report(report, as_json)


@app.command()
def page(
    model: Annotated[str, typer.Argument(help="A name or the folder of a model.")] = "litebert-en",
    depths: Annotated[str, typer.Option(help="Depths to measure.")] = "12,6,3",
    starts: Annotated[int, typer.Option(min=1, help="How often the page is opened.")] = 5,
    rounds: Annotated[int, typer.Option(min=1, help="Timed texts of each length and depth.")] = 15,
    as_json: AsJson = False,
) -> None:
    """A page in Chromium: its size, its start, and the time of a text by depth, beside the runtime in Python."""
    from litebert_lab.bench.serving.page import bench_page, page_report

    numbers = [word.strip() for word in depths.split(",") if word.strip()]
    if not numbers or not all(word.isdecimal() and int(word) for word in numbers):
        raise InputError(f"depths is '{depths}' but must be numbers separated by commas, such as 12,6,3")
    show_report(page_report(bench_page(model, depths=tuple(map(int, numbers)), starts=starts, rounds=rounds)), as_json)


@app.command()
def serve(
    model: Annotated[str, typer.Argument(help="A name or the folder of a model.")] = "litebert-en",
    depths: Annotated[str, typer.Option(help="Depths to measure.")] = "12,6,3",
    seconds: Annotated[float, typer.Option(help="Seconds of each measurement.")] = 15.0,
    rounds: Annotated[int, typer.Option(min=1, help="How often each is repeated.")] = 3,
    overload: Annotated[float, typer.Option(help="Seconds of three times too many requests; 0: none.")] = 60.0,
    lengths: Annotated[float, typer.Option(help="Seconds of texts of random lengths; 0: none.")] = 60.0,
    lengths_rate: Annotated[
        float, typer.Option(min=0, help="Requests a second of them; 0: as many as are answered.")
    ] = 0.0,
    minilm: Annotated[
        str, typer.Option(help="A sentence-transformers folder to serve beside other servers; empty: none.")
    ] = "",
    peers: Annotated[
        str, typer.Option(help="Other servers: fastapi, litserve, infinity.")
    ] = "fastapi,litserve,infinity",
    python_of: Annotated[
        list[str] | None, typer.Option(help="SERVER=PATH: the interpreter that has a server installed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Requests a second and how soon, overload, memory over time, SIGTERM; and the same MiniLM behind other servers."""
    from litebert_lab.bench.inference import parse_pythons
    from litebert_lab.bench.serving.peers import PEERS
    from litebert_lab.bench.serving.serve import ServeSettings, bench_serve, serve_report

    numbers = [word.strip() for word in depths.split(",") if word.strip()]
    if not all(word.isdecimal() and int(word) for word in numbers):
        raise InputError(f"depths is '{depths}' but must be numbers separated by commas, such as 12,6,3")
    settings = ServeSettings(
        depths=tuple(map(int, numbers)),
        seconds=seconds,
        rounds=rounds,
        overload=overload,
        lengths=lengths,
        lengths_rate=lengths_rate,
        minilm=minilm,
        peers=tuple(name.strip() for name in peers.split(",") if name.strip()),
        pythons=parse_pythons(python_of or [], PEERS),
    )
    show_report(serve_report(bench_serve(model, settings)), as_json)


@app.command()
def learning(
    corpus: Annotated[Path, typer.Option(help="A token store with held-out text, the same for all rows.")],
    budget: Annotated[str, typer.Option(help="Time to train each model for.")] = "330s",
    rows: Annotated[
        list[str] | None,
        typer.Option("--row", help="NAME=WORDS: a row of ours with these fields, corpus=STORE for other text."),
    ] = None,
    theirs: Annotated[bool, typer.Option("--theirs/--no-theirs", help="Plain transformers code, too.")] = True,
    preset: Annotated[str, typer.Option(help="The model of our rows.")] = "albert-base",
    start: Annotated[str | None, typer.Option("--from", help="A trained model that our rows start from.")] = None,
    compiling: Annotated[
        str, typer.Option(help="inside or outside of the budget, as all that precedes a step.")
    ] = "inside",
    seeds: Annotated[int, typer.Option(min=1, help="Models of each row; each task is fine-tuned once for each.")] = 3,
    blimp: Annotated[Path | None, typer.Option(help="Folder with BLiMP's .jsonl files.")] = None,
    pairs: Annotated[int, typer.Option(help="Pairs of each BLiMP paradigm; 0: all.")] = 0,
    glue: Annotated[Path | None, typer.Option(help="Folder of GLUE's tasks.")] = None,
    tasks: Annotated[
        list[str] | None, typer.Option("--task", help="Tasks; default: cola, stsb, sst2 and mrpc.")
    ] = None,
    plain: Annotated[
        str, typer.Option(help="JSON with other settings of the plain code, its model's among them.")
    ] = "{}",
    finetune_words: Annotated[
        list[str] | None, typer.Option("--finetune", help="FIELD=VALUE of fine-tuning, for all rows.")
    ] = None,
    limit: Annotated[
        str | None,
        typer.Option(help="Stop before a piece of work that would not end in this time; repeat to continue."),
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the models.")] = False,
    device: Device = "auto",
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder of models and results.")] = Path("learning"),
    as_json: AsJson = False,
) -> None:
    """What is learnt in the same minutes: plain transformers code next to ours, or rows of ours next to each other."""
    import json

    from litebert.parameters import parse_duration
    from litebert.report import to_json
    from litebert.runs import write_atomically
    from litebert_lab.bench.learning import TASKS, LearningSettings, bench_learning

    if compiling not in ("inside", "outside"):
        raise InputError(f"--compiling is '{compiling}' but must be inside or outside")
    named = dict(row.partition("=")[::2] for row in rows or ["litebert="])
    if odd := [name for name in named if not name or "/" in name or name == "transformers"]:
        raise InputError(f"--row is '{odd[0]}=...' but must be NAME=WORDS, such as 'masked=objective=masked'")
    settings = LearningSettings(
        corpus=str(corpus),
        seconds=parse_duration(budget),
        compiling=compiling,  # type: ignore[arg-type]
        rows={name: words.split() for name, words in named.items()},
        theirs=theirs,
        preset=preset,
        source=start,
        plain=json.loads(plain),
        seeds=seeds,
        blimp=str(blimp) if blimp else None,
        pairs=pairs,
        glue=str(glue) if glue else None,
        tasks=tasks or list(TASKS),
        finetune=finetune_words or [],
        device=usable_device(device),
    )
    out.mkdir(parents=True, exist_ok=True)
    seconds = parse_duration(limit) if limit else None
    report = bench_learning(settings, out, seconds, keep=keep)
    write_atomically(out / "learning.json", to_json(report) + "\n")
    show_report(report, as_json)


@app.command()
def compiling(
    words: Annotated[
        list[str] | None, typer.Argument(metavar="FIELD=VALUE...", help="Fields of the model or recipe.")
    ] = None,
    corpus: Annotated[Path, typer.Option(help="A token store.")] = Path("store"),
    model: Annotated[str, typer.Option(help="A preset.")] = "albert-base",
    ways: Annotated[
        list[str] | None, typer.Option("--way", help="whole (a graph for each depth), layers (one a layer), none.")
    ] = None,
    starts: Annotated[int, typer.Option(min=1, help="Starts of each way; the first has nothing cached.")] = 2,
    steps: Annotated[int, typer.Option(min=20, help="Steps of each run.")] = 180,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Start, compile, train a little: seconds to the first step of pretraining and speed, by way to compile."""
    from litebert_lab.bench.compiling import bench_compiling

    chosen, where = ways or ["whole", "layers"], usable_device(device)
    show_report(
        bench_compiling(model, corpus, words or [], ways=chosen, starts=starts, steps=steps, device=where), as_json
    )


@app.command()
def attention(
    model: Annotated[str, typer.Argument(help="A preset or a model folder.")] = "albert-base",
    sparse: Annotated[
        str, typer.Option("--attention", help="What tokens see, beside full attention.")
    ] = "local(256)+global",
    lengths: Annotated[str, typer.Option(help="Lengths of texts in tokens.")] = "512,1024,2048,4096",
    precision: Annotated[str, typer.Option(help="Of inference: fp32 or bf16; training has its default.")] = "fp32",
    repeats: Annotated[int, typer.Option(min=1, help="Readings of each length; the fastest counts.")] = 3,
    steps: Annotated[int, typer.Option(min=1, help="Training steps that are timed, after one to warm up.")] = 2,
    training: Annotated[bool, typer.Option("--train/--no-train", help="Also time and measure training steps.")] = True,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Long texts: time of a token by length with sparse and full attention, time and memory of training."""
    from litebert_lab.bench.attention import bench_attention

    words = [word.strip() for word in lengths.split(",")]
    if not all(word.isdecimal() and int(word) for word in words):
        raise InputError(f"lengths is '{lengths}' but must be numbers such as 512,1024,2048,4096")
    if precision not in ("fp32", "bf16"):
        raise InputError(f"precision is '{precision}' but must be fp32 or bf16")
    show_report(
        bench_attention(
            model,
            attention=sparse,
            lengths=[int(word) for word in words],
            device=usable_device(device),
            precision="bf16" if precision == "bf16" else "fp32",
            repeats=repeats,
            steps=steps,
            training=training,
        ),
        as_json,
    )


@app.command()
def ranks(
    models: Annotated[list[str] | None, typer.Argument(help="Presets.  [default: albert-base bert-base]")] = None,
    count: Annotated[int, typer.Option("--ranks", min=2, help="Processes to start, where torchrun has not.")] = 2,
    tokens: Annotated[int, typer.Option(min=1, help="Tokens of each process in a step.")] = 512,
    length: Annotated[int, typer.Option(min=1, help="Tokens of an input.")] = 128,
    steps: Annotated[int, typer.Option(min=1, help="Steps of each kind that are timed.")] = 5,
    link: Annotated[
        float | None, typer.Option(min=1e-9, help="Speed of the network in GB/s, where known; else it is measured.")
    ] = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Several processes: bytes of gradients of a step, counted, and the time of their exchange beside the plan's."""
    import os

    from litebert.train.parallel import end_rank
    from litebert_lab.bench.ranks import bench_ranks, start_ranks

    if "RANK" not in os.environ:
        raise typer.Exit(start_ranks(count))
    report = bench_ranks(
        models or ["albert-base", "bert-base"],
        device=usable_device(device),
        tokens=tokens,
        length=length,
        steps=steps,
        link=link,
    )
    if report:
        show_report(report, as_json)
    end_rank()


@app.command()
def versions(
    before: Annotated[Path, typer.Argument(metavar="SRC", help="The src folder of another checkout of litebert.")],
    command: Annotated[
        str, typer.Argument(help="What comes after litebert, in quotes; {out} is a new path for what it writes.")
    ],
    turns: Annotated[int, typer.Option(min=1, help="How often each version runs it.")] = 5,
    as_json: AsJson = False,
) -> None:
    """One command with this code and with another checkout's, in turns: time, memory, and whether the bytes differ."""
    from litebert_lab.bench.versions import bench_versions

    show_report(bench_versions(before, command, turns), as_json)
