"""The public functions: everything that litebert does, from text to a small fine-tuned model.

Each takes paths, names or in-memory data with keyword settings, and returns an object. The command line is made from
these signatures. Light to import: what a function needs, it imports when it runs.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from litebert.errors import InputError, listed
from litebert.parameters import (
    CLUSTER,
    DEVICE,
    DURATION,
    PERIOD,
    Fields,
    Param,
    PathLike,
    Table,
    checked,
    field_words,
    named_source,
    parse_duration,
    parse_period,
)

if TYPE_CHECKING:
    from litebert.analyse.measure import ModelFigures
    from litebert.batch_inference import Written
    from litebert.checkpoints.folder import Loaded
    from litebert.cluster import Placement
    from litebert.corpus.look import Look
    from litebert.corpus.store import Store
    from litebert.distillation.objective import DistillSettings
    from litebert.distillation.run import Teacher
    from litebert.distillation.vectors import VectorTeacher
    from litebert.early_exits.heads import ExitReport
    from litebert.exporting.folder import Exported
    from litebert.model import Model
    from litebert.pages.single import Page
    from litebert.planning.plan import Plan
    from litebert.pretraining.held_out import DepthScore
    from litebert.report import Report
    from litebert.runs import RunInfo
    from litebert.shrinking.choose import DropReport
    from litebert.shrinking.search import TaskReport
    from litebert.shrinking.tuning import DropSchedule
    from litebert.tasks.examples import Kind as KindName
    from litebert.tasks.examples import TaskData
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.score import Evaluation
    from litebert.text.tokenizer import Tokenizer

log = logging.getLogger(__name__)

PAPER_WIDTH = 768  # of the narrowest model that the ALBERT paper fine-tunes
OF_STUDENT = "student."  # in the settings of distill: fields of the student's preset, not of the recipe

# Parameters that several functions share.
Out = Annotated[PathLike, Param("The run folder to create; its model is in model/.", short="o")]
Device = Annotated[str, Param("auto (a GPU if there is one), cpu or cuda.", form=DEVICE)]
Seed = Annotated[int, Param("Seed for new weights, the order of examples and dropout.", low=0)]
Budget = Annotated[str | None, Param("Wall-clock time to train for, such as 20m or 2h.", metavar="TIME", form=DURATION)]
Resume = Annotated[bool, Param("Resume the run in the folder.")]
SaveEvery = Annotated[
    str, Param("How often to save the training state: a time such as 5m, or a number of steps.", form=PERIOD)
]
Precision = Annotated[
    Literal["bf16", "fp16", "fp32"] | None, Param("Arithmetic: bf16, fp16 or fp32 (default: by device).")
]
Task = Annotated[
    str | None,
    Param(
        "A benchmark task: cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli, squad1, squad2, race, race-middle or "
        "race-high. Leave it out for your own data."
    ),
]
Data = Annotated[Table | None, Param("Your own table (csv, tsv, json, jsonl, parquet, xlsx), or the task's folder.")]
Text = Annotated[
    str | Sequence[str] | None,
    Param("Columns with the text: one, a pair (subject,body), or several joined (subject+body)."),
]
Label = Annotated[str | Sequence[str] | None, Param("Column with the label; several are separated by commas.")]
Kind = Annotated[
    Literal["classify", "multilabel", "regress", "choice", "span", "embed"] | None,
    Param("Kind of task, where the guess from the data is wrong; embed (sentence vectors) is never guessed."),
]
Dev = Annotated[Table | None, Param("Data to choose the best model with (default: some training rows).")]
Settings = Annotated[
    Fields | None, Param("Fields of the recipe, such as optimiser.weight_decay=0.1.", metavar="FIELD=VALUE...")
]

On = Annotated[
    str,
    Param(
        "Where to work: here, ray (the Ray cluster of this machine, begun if there is none) or ray://HOST:PORT.",
        form=CLUSTER,
    ),
]
Cores = Annotated[
    int,
    Param(
        "Cores of a run, where several run at once; 0: all of a machine. On GPUs each run has one of them.",
        low=0,
        high=100_000,
    ),
]
Rows = Annotated[
    Table,
    Param(
        "Texts: a file, folder, glob or URL of .txt (one per line), .jsonl, .csv, .tsv, .parquet or .xlsx; - is "
        "standard input.",
        positional=True,
    ),
]
Answers = Annotated[
    PathLike,
    Param("The file to write, or (without a suffix) a folder of shards, which the same call resumes.", short="o"),
]
ShardRows = Annotated[int | None, Param("Write a folder of shards of this many rows (default: 131072).", low=1)]
Workers = Annotated[
    int, Param("Worker processes; 0: this process here, one per core or GPU on Ray.", low=0, high=100_000)
]
Windows = Annotated[bool, Param("Read long texts in overlapping windows instead of cutting them.")]
TextField = Annotated[str, Param("Field or column with the text.")]
Errors = Annotated[Literal["strict", "replace"], Param("Bytes that are not UTF-8: strict (an error) or replace.")]
Corpus = Annotated[
    Sequence[str] | str,
    Param(
        "Files, folders or globs: .txt (a blank line between documents), .jsonl, .csv, .parquet, also compressed; - is "
        "standard input.",
        positional=True,
        metavar="CORPUS...",
    ),
]


@dataclass(frozen=True)
class Run:
    """A finished or stopped run: how it ended, its scores and where its model is."""

    folder: Path
    status: str  # finished, stopped or diverged
    steps: int
    scores: dict[str, float]
    notes: tuple[str, ...] = ()
    details: Any = field(default=None, repr=False)  # the full result of the room that made it

    @cached_property
    def model(self) -> "Model":
        """The trained model, loaded when first asked for."""
        from litebert.model import load

        return load(self.folder / "model")


@checked
def load(
    source: Annotated[PathLike, Param("A folder, a shipped name, a preset or a Hub name.")],
    *,
    device: Device = "auto",
    dtype: Annotated[object, Param("float32, bfloat16 or float16.")] = None,
    depth: Annotated[int | None, Param("Run only the first layers.", low=0)] = None,
    threads: Annotated[int | None, Param("Of an exported model: texts read at a time.", low=1, high=4096)] = None,
) -> "Model":
    """A model from a folder (ours, exported, or Hugging Face's), by a shipped name, a preset or its Hub name.

    ``device`` auto is a GPU where there is one; ``dtype`` is float32 unless given; ``depth`` runs only the first layers
    unless a call names another. An exported folder gives a ``Runtime``: it answers the same questions without torch, on
    a CPU, with ``threads`` texts at a time.
    """
    from litebert.runtime import Runtime, is_exported

    if is_exported(Path(source)):
        if str(device) not in ("auto", "cpu") or dtype is not None:
            raise InputError("an exported model runs on the CPU as it was written; leave out device and dtype")
        return cast("Model", Runtime(source, depth=depth, threads=threads))
    if threads is not None:
        raise InputError(f"threads is for exported models; {source} is not one")
    from litebert.model import load as load_torch

    return load_torch(source, device=device, dtype=cast(Any, dtype), depth=depth)


@checked
def finetune(
    model: Annotated[PathLike, Param("A pretrained model: a shipped name, a folder or a Hub name.", positional=True)],
    data: Data = None,
    *,
    out: Out = "run",
    task: Task = None,
    text: Text = None,
    label: Label = None,
    kind: Kind = None,
    dev: Dev = None,
    epochs: Annotated[float | None, Param("Passes over the training data (default: by its size).", low=0)] = None,
    learning_rate: Annotated[
        float | None, Param("Peak learning rate (default: by the model's width).", low=0, high=1)
    ] = None,
    batch_size: Annotated[int | None, Param("Examples in a step (default: 32).", low=1, high=1_000_000)] = None,
    max_length: Annotated[int | None, Param("Longest input in tokens (default: by the data).", low=4)] = None,
    recipe: Annotated[
        Literal["paper", "budget"] | None, Param("paper or budget (default: paper for large models on a GPU).")
    ] = None,
    settings: Settings = None,
    budget: Budget = None,
    seed: Seed = 0,
    seeds: Annotated[int, Param("Train this many times, report the median and keep the best.", low=1, high=1000)] = 1,
    exits: Annotated[bool, Param("Train for all depths and add early exits (`litebert exits`).")] = False,
    resume: Resume = False,
    from_hub: Annotated[bool, Param("Read the task through the datasets library.")] = False,
    device: Device = "auto",
    precision: Precision = None,
    compile: Annotated[bool, Param("Use torch.compile; pays off in long runs.")] = False,
    save_every: SaveEvery = "5m",
    on: On = "here",
    cores: Cores = 0,
) -> Run:
    """Fine-tune a model on your own data or on a benchmark task."""
    from litebert.tasks.checks import look_at
    from litebert.tasks.finetune import check_folder
    from litebert.tasks.finetune import finetune as run_one
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe

    read = _read_task(task, data, text, label, kind, dev, from_hub)
    for warning in look_at(read):
        log.warning(warning)
    folder = Path(out)
    check_folder(folder, resume)
    place = _place(on, device, cores, several=seeds > 1, what="seeds")
    named = {"epochs": epochs, "optimiser.rate": learning_rate, "batch": batch_size, "length": max_length}
    words = [*field_words(settings), *(f"{name}={value}" for name, value in named.items() if value is not None)]
    save_seconds, save_steps = parse_period(save_every)
    asked = FinetuneSettings(
        model=str(model),
        out=folder,
        recipe=read_finetune_recipe(
            recipe or _usual_recipe(model, read.name, place.device), read.name, read.kind, words
        ),
        seed=seed,
        resume=resume,
        device=place.device,
        precision=precision,
        budget=None if budget is None else parse_duration(budget),
        compiled=compile,
        save_seconds=save_seconds,
        save_steps=save_steps,
    )
    if exits:
        from litebert.early_exits.training import finetune_with_exits

        if seeds > 1:
            raise InputError("seeds and exits cannot be combined; add exits to the best model afterwards")
        found = finetune_with_exits(asked, read)
        return Run(folder, found.status, found.steps, found.figures, found.notes, found)
    if seeds > 1:
        from litebert.tasks.finetune import finetune_seeds

        summary, results = finetune_seeds(asked, read, seeds, place)
        best = results[summary.best - seed]
        return Run(folder, "finished", best.steps, {**best.figures}, best.notes, summary)
    found = run_one(asked, read)
    return Run(folder, found.status, found.steps, found.figures, found.notes, found)


def _read_task(
    task: str | None,
    data: Table | None,
    text: str | Sequence[str] | None,
    label: str | Sequence[str] | None,
    kind: str | None,
    dev: Table | None,
    from_hub: bool = False,
) -> "TaskData":
    """The data of a task, with what was guessed about it logged."""
    from litebert.tasks.sources import read_task

    read = read_task(task, data, text=text, label=label, kind=kind, dev=dev, from_hub=from_hub)
    for note in read.notes:
        log.info(note)
    return read


def _usual_recipe(model: PathLike, task: str, device: str) -> Any:
    """The paper's recipe on a GPU, for the paper's tasks and for models as wide as its own."""
    from litebert.checkpoints.folder import model_config
    from litebert.config import preset_names
    from litebert.tasks.recipes import SHARED

    if device != "cuda" or SHARED.get(task, task) not in preset_names("finetune/paper"):
        return "budget"
    return "paper" if model_config(model).encoder.width >= PAPER_WIDTH else "budget"


@checked
def pretrain(
    preset: Annotated[str, Param("A model preset, such as albert-small.", positional=True)],
    corpus: Annotated[
        PathLike | Sequence[PathLike],
        Param(
            "A token store made by build_corpus (`litebert corpus build`); several are read in turn.",
            metavar="STORE...",
        ),
    ] = "store",
    *,
    out: Out = "run",
    recipe: Annotated[str, Param("A pretraining recipe: budget or paper.")] = "budget",
    settings: Annotated[
        Fields | None, Param("Fields of the recipe or of the model: mask_rate=0.2.", metavar="FIELD=VALUE...")
    ] = None,
    budget: Budget = None,
    steps: Annotated[int | None, Param("Number of steps to train for.", low=1)] = None,
    tokens: Annotated[float | None, Param("Number of tokens to train on, such as 1e8.", low=1)] = None,
    flops: Annotated[float | None, Param("Arithmetic to train for, such as 1e16.", low=1)] = None,
    start: Annotated[PathLike | None, Param("A model to start from, perhaps a shallower one.", option="from")] = None,
    seed: Annotated[int, Param("Seed for weights, batches and masks.", low=0)] = 0,
    resume: Resume = False,
    dry_run: Annotated[bool, Param("Run two steps of everything in a temporary folder.")] = False,
    device: Device = "auto",
    precision: Precision = None,
    compile: Annotated[bool | None, Param("Use torch.compile (default: on a GPU).")] = None,
    graph_per_layer: Annotated[
        bool, Param("Compile one layer for all depths instead of all layers for each: starts sooner.")
    ] = False,
    checkpointing: Annotated[bool, Param("Recompute activations: less memory, a third more time.")] = False,
    sharded: Annotated[bool, Param("FSDP2 instead of DDP, under torchrun.")] = False,
    micro_tokens: Annotated[int, Param("Tokens of one forward pass; 0: by device.", low=0)] = 0,
    save_every: SaveEvery = "5m",
    tensorboard: Annotated[bool, Param("Also write TensorBoard files.")] = False,
    log_to: Annotated[Sequence[str] | None, Param("Also log to wandb or mlflow; may be repeated.")] = None,
) -> Run:
    """Pretrain an encoder on a token store, to a budget of time, steps, tokens or arithmetic."""
    begun = time.monotonic()
    import tempfile
    from contextlib import nullcontext

    from litebert.pretraining.run import bound_from, settings_from
    from litebert.pretraining.run import pretrain as run
    from litebert.train.settings import Bound

    with tempfile.TemporaryDirectory() if dry_run else nullcontext() as temporary:
        folder = Path(temporary) / "run" if temporary else Path(out)
        bound = bound_from(budget=budget, steps=steps, tokens=tokens, flops=flops)
        read = settings_from(
            preset,
            field_words(settings),
            [Path(corpus)] if isinstance(corpus, str | os.PathLike) else [Path(part) for part in corpus],
            folder,
            bound=Bound(steps=2) if dry_run else bound,
            recipe=recipe,
            device=_device(device),
            precision=precision,
            save_every="1" if dry_run else save_every,
        )
        asked = replace(
            read,
            source=None if start is None else str(start),
            seed=seed,
            resume=resume,
            compiled=compile,
            graph_per_layer=graph_per_layer,
            checkpointing=checkpointing,
            sharded=sharded,
            micro_tokens=micro_tokens,
            fit_to=bound,
            sinks=tuple(dict.fromkeys([*(["tensorboard"] if tensorboard else []), *(log_to or [])])),
            temporary=dry_run,
            begun=begun,
        )
        found = run(asked)
    return Run(folder, found.status, found.step, dict(found.held_out), found.notes, found)


@checked
def lengthen(
    model: Annotated[PathLike, Param("A trained model: a shipped name or a folder.", positional=True)],
    *,
    to: Annotated[int, Param("Number of positions: the longest text in tokens.", low=8, high=8192)] = 4096,
    attention: Annotated[
        str, Param("What tokens see: full, local(256)+global, block(512)+global, or several for the layers in turn.")
    ] = "local(256)+global",
    positions: Annotated[
        Literal["tiled", "interpolated"],
        Param("tiled (the trained positions repeated) or interpolated (new ones between them)."),
    ] = "tiled",
    corpus: Annotated[
        PathLike | Sequence[PathLike] | None,
        Param("Token stores with long documents to train on; without, nothing is trained.", metavar="STORE..."),
    ] = None,
    out: Out = "long",
    budget: Budget = None,
    steps: Annotated[int | None, Param("Number of steps to train for.", low=1)] = None,
    settings: Annotated[
        Fields | None, Param("Fields of the recipe: optimiser.rate=5e-5.", metavar="FIELD=VALUE...")
    ] = None,
    seed: Annotated[int, Param("Seed for batches and masks.", low=0)] = 0,
    resume: Resume = False,
    device: Device = "auto",
    precision: Precision = None,
    save_every: SaveEvery = "5m",
) -> Run:
    """Make a model that reads long texts out of a trained one, and train it on the long documents of a store."""
    from litebert.model import load as load_torch

    source = load_torch(model, device="cpu")
    if corpus is None:
        wanted = {"budget": budget, "steps": steps, "resume": resume}
        given = [*(name for name, value in wanted.items() if value), *(f"'{word}'" for word in field_words(settings))]
        if given:
            need = "needs" if len(given) == 1 else "need"
            raise InputError(f"{listed(given)} {need} a corpus to train on; name a token store as corpus")
        return _stretch(source, Path(out), to, attention, positions)
    begun = time.monotonic()
    from litebert.pretraining.lengthen import lengthen_settings
    from litebert.pretraining.run import bound_from
    from litebert.pretraining.run import pretrain as run

    asked = lengthen_settings(
        str(model),
        source.network,
        to,
        attention,
        positions,
        [Path(corpus)] if isinstance(corpus, str | os.PathLike) else [Path(part) for part in corpus],
        Path(out),
        words=field_words(settings),
        bound=bound_from(budget=budget, steps=steps, flops=None),
        device=device,
        precision=precision,
        save_every=save_every,
    )
    found = run(replace(asked, seed=seed, resume=resume, begun=begun))
    return Run(Path(out), found.status, found.step, dict(found.held_out), found.notes, found)


def _stretch(
    source: "Model", folder: Path, to: int, attention: str, positions: Literal["tiled", "interpolated"]
) -> Run:
    """Write a lengthened model that was not trained since."""
    from litebert.runs import check_run_folder, parent_of, write_run

    check_run_folder(folder, False)
    longer = source.lengthened(to, attention=attention, positions=positions)
    longer.save(folder / "model")
    asked = {"model": source.name, "to": to, "attention": attention, "positions": positions}
    parents = [parent_of("source", Path(source.name))] if Path(source.name).is_dir() else []
    write_run(folder, "lengthen", asked, parents=parents)
    return Run(folder, "finished", 0, {})


@checked
def distill(
    teacher: Annotated[
        PathLike, Param("A model fine-tuned for the task; with vectors, a model of sentence vectors.", positional=True)
    ],
    student: Annotated[
        PathLike | None,
        Param("A preset or a model folder; leave it out to keep some of the teacher's layers.", positional=True),
    ] = None,
    data: Data = None,
    *,
    out: Out = "run",
    keep: Annotated[str | None, Param("Layers of the teacher that make the student: 1,3,5-7.")] = None,
    drop: Annotated[int | None, Param("Number of the teacher's layers to leave out.", low=1)] = None,
    strategy: Annotated[
        str | None, Param("Which layers to leave out: top, bottom, even, odd or symmetric (default: top).")
    ] = None,
    task: Task = None,
    text: Text = None,
    label: Label = None,
    dev: Dev = None,
    temperature: Annotated[float, Param("Softens the probabilities that are compared.", low=1e-3, high=1e3)] = 2.0,
    hard: Annotated[float, Param("Weight of the labels; the teacher has the rest.", low=0, high=1)] = 0.5,
    states: Annotated[
        Literal["none", "final", "depths"],
        Param("Also match hidden states: none, final (cosine, DistilBERT) or depths (squared, TinyBERT)."),
    ] = "none",
    states_weight: Annotated[float, Param("Weight of the hidden states.", low=0)] = 1.0,
    vectors: Annotated[bool, Param("Learn the teacher's sentence vectors; data is texts, or pairs of texts.")] = False,
    contrast: Annotated[float, Param("With vectors: weight of telling pairs of texts apart.", low=0)] = 0.05,
    settings: Annotated[
        Fields | None,
        Param("Fields of the recipe (epochs=4) or of the student (student.num_layers=4).", metavar="FIELD=VALUE..."),
    ] = None,
    budget: Budget = None,
    seed: Seed = 0,
    resume: Resume = False,
    device: Device = "auto",
    save_every: SaveEvery = "5m",
) -> Run:
    """Train a small model to reproduce the predictions of a fine-tuned one, or its sentence vectors."""
    if (student is None) == (keep is None and drop is None):
        raise InputError("name a student (a preset or a folder), or choose layers of the teacher with keep or drop")
    from litebert.distillation.objective import DistillSettings
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe

    how = DistillSettings(temperature=temperature, hard=hard, states=states, states_weight=states_weight)
    if vectors:
        if task or label or dev is not None or how != DistillSettings():
            raise InputError("with vectors there is no task: leave out task, label, dev, temperature, hard and states")
        lesson = _vector_lesson(str(teacher), data, text, contrast)
    else:
        lesson = _task_lesson(str(teacher), how, task, data, text, label, dev)
    words = field_words(settings)
    of_student = [word.removeprefix(OF_STUDENT) for word in words if word.startswith(OF_STUDENT)]
    pupil = _student(lesson.teacher, None if student is None else str(student), of_student, keep, drop, strategy, seed)
    for note in pupil.notes:
        log.info("note: %s", note)
    rest = [word for word in words if not word.startswith(OF_STUDENT)]
    save_seconds, save_steps = parse_period(save_every)
    asked = FinetuneSettings(
        model=str(student or teacher),
        out=Path(out),
        recipe=read_finetune_recipe("budget", lesson.name, lesson.kind, rest),
        seed=seed,
        resume=resume,
        device=_device(device),
        budget=None if budget is None else parse_duration(budget),
        save_seconds=save_seconds,
        save_steps=save_steps,
    )
    return lesson.run(asked, pupil)


@dataclass(frozen=True)
class _Lesson:
    """What a student learns: a teacher, the name and kind of the task, and how to run it."""

    teacher: "Teacher | VectorTeacher"
    name: str
    kind: "KindName"
    run: "Callable[[FinetuneSettings, Loaded], Run]"


def _task_lesson(
    teacher: str,
    how: "DistillSettings",
    task: str | None,
    data: Table | None,
    text: str | Sequence[str] | None,
    label: str | Sequence[str] | None,
    dev: Table | None,
) -> _Lesson:
    """A fine-tuned model's predictions for its task."""
    from litebert.distillation.run import distill, load_teacher, read_for

    master = load_teacher(teacher, how)
    read = read_for(master.note, task, data, text, label, dev)
    for note in read.notes:
        log.info(note)

    def run(settings: "FinetuneSettings", student: "Loaded") -> Run:
        found, report = distill(settings, read, master, student)
        return Run(settings.out, found.status, found.steps, found.figures, found.notes, report)

    return _Lesson(master, read.name, read.kind, run)


def _vector_lesson(teacher: str, data: Table | None, text: str | Sequence[str] | None, contrast: float) -> _Lesson:
    """A model's vectors of texts."""
    from litebert.distillation.vectors import VectorSettings, VectorTeacher, distill_vectors, read_texts

    if data is None:
        raise InputError("data is missing; name a file of texts, one on each line, or give some")
    how, items, master = VectorSettings(contrast=contrast), read_texts(data, text), VectorTeacher.load(teacher)
    name = Path(data).name if isinstance(data, str | Path) else "texts"

    def run(settings: "FinetuneSettings", student: "Loaded") -> Run:
        found = distill_vectors(settings, items, master, student, how, name)
        return Run(settings.out, found.status, found.steps, found.figures, found.notes)

    return _Lesson(master, name, "embed", run)


def _student(
    teacher: "Teacher | VectorTeacher",
    student: str | None,
    fields: list[str],
    keep: str | None,
    drop: int | None,
    strategy: str | None,
    seed: int,
) -> "Loaded":
    """A preset, a folder, or layers of the teacher (as DistilBERT begins)."""
    from litebert.distillation.run import Teacher, load_student

    if student is not None:
        if strategy is not None:
            raise InputError("strategy cannot be combined with a student; use it with drop")
        return load_student(student, fields, teacher, seed, same_tokenizer=isinstance(teacher, Teacher))
    from litebert.checkpoints.folder import Loaded
    from litebert.shrinking.choose import DropRequest, choose
    from litebert.shrinking.drop import drop_layers
    from litebert.shrinking.strategies import NEEDS_TEXT

    if fields:
        raise InputError(
            f"student.{fields[0]} changes a preset, but the student has the teacher's layers; leave it out"
        )
    if strategy in NEEDS_TEXT:
        raise InputError(f"strategy {strategy} needs texts; run shrink first and name its folder as the student")
    whole = Loaded(teacher.network, teacher.tokenizer)
    request = DropRequest(keep=keep, drop=drop, strategy=strategy)
    choice = choose(request, teacher.network.config.encoder, lambda: whole)
    return Loaded(drop_layers(teacher.network, choice.kept), teacher.tokenizer)


def _place(on: str, device: str, cores: int, *, several: bool, what: str) -> "Placement":
    """Where runs go; an error for one that is not among several."""
    from litebert.cluster import HERE, IN_TURN, place_runs

    if several:
        return place_runs(on, device, cores)
    for name, value in (("on", on if on != HERE else ""), ("cores", cores)):
        if value:
            raise InputError(f"{name} is {value}, which is for several runs; use it with {what}", parameter=name)
    return replace(IN_TURN, device=_device(device))


def _device(device: str) -> str:
    from litebert.system import usable_device

    return usable_device(device)


@checked
def shrink(
    model: Annotated[PathLike, Param("A model folder, a shipped name or a preset.", positional=True)],
    *,
    out: Annotated[PathLike | None, Param("The folder to write; not needed with dry_run.", short="o")] = None,
    drop: Annotated[int | None, Param("Number of layers to drop.", low=1)] = None,
    keep: Annotated[str | None, Param("Layers to keep instead, 1 at the bottom: 1,2,5-7.")] = None,
    strategy: Annotated[
        str | None,
        Param(
            "Which layers go: top, bottom, even, odd, symmetric; by what layers do to texts: contribution, greedy "
            "(default: top; with tolerance the best of several)."
        ),
    ] = None,
    texts: Annotated[
        Sequence[str] | None, Param("Files with a text on each line, for contribution and greedy; may be repeated.")
    ] = None,
    max_texts: Annotated[int | None, Param("Use only the first N texts.", low=1, metavar="N")] = None,
    tokenizer: Annotated[PathLike | None, Param("A tokenizer other than the model's own.")] = None,
    tolerance: Annotated[
        str | float | None,
        Param("Drop as many layers as a task allows for this loss of score: 1% is one point. Fine-tunes to find out."),
    ] = None,
    data: Data = None,
    task: Task = None,
    text: Text = None,
    label: Label = None,
    seeds: Annotated[int, Param("With tolerance: maximum number of seeds per candidate.", low=1, high=1000)] = 3,
    when: Annotated[
        Literal["before", "after", "steps"],
        Param("With tolerance: drop layers before fine-tuning, after it, or in steps."),
    ] = "before",
    recover: Annotated[bool, Param("With tolerance: also distil from the whole model.")] = False,
    settings: Settings = None,
    resume: Resume = False,
    device: Device = "auto",
    dry_run: Annotated[bool, Param("Report what would be dropped and write nothing.")] = False,
    overwrite: Annotated[bool, Param("Replace a model in the folder.")] = False,
    on: On = "here",
    cores: Cores = 0,
) -> "DropReport | TaskReport":
    """Drop layers from a model: by number, by strategy (Poor Man's BERT), or as many as a task allows."""
    place = _place(on, device, cores, several=tolerance is not None, what="tolerance")
    if tolerance is None:
        words = field_words(settings)
        if words or task or data is not None or text or label or resume or recover or when != "before":
            raise InputError(
                "data, task, text, label, when, recover, resume and settings need a tolerance, such as 1%; "
                "files of texts for a strategy are named with texts"
            )
        return _drop_by_number(
            model, out, drop, keep, strategy, tuple(texts or ()), max_texts, tokenizer, place.device, dry_run, overwrite
        )
    if out is None:
        raise InputError("out is missing; name the folder for the runs and the model")
    if drop is not None or keep is not None or dry_run or texts:
        raise InputError("tolerance cannot be combined with drop, keep, texts or dry_run")
    from litebert.config import parse_share
    from litebert.distillation.objective import DistillSettings
    from litebert.shrinking.tuning import DropSchedule, parse_when
    from litebert.tasks.prepare import FinetuneSettings
    from litebert.tasks.recipes import read_finetune_recipe

    allowed = parse_share(str(tolerance), "tolerance")
    read = _read_task(task, data, text, label, None, None)
    asked = FinetuneSettings(
        model=str(model),
        out=Path(out),
        recipe=read_finetune_recipe("budget", read.name, read.kind, field_words(settings)),
        resume=resume,
        device=place.device,
    )
    schedule = DropSchedule(when=parse_when(when), recover=DistillSettings() if recover else None)
    return _shrink_for_task(asked, read, allowed, range(seeds), strategy, schedule, place)


def _shrink_for_task(
    asked: "FinetuneSettings",
    read: "TaskData",
    tolerance: float,
    seeds: range,
    strategy: str | None,
    schedule: "DropSchedule",
    place: "Placement",
) -> "TaskReport":
    """As many layers dropped as a task allows, with a page about the search."""
    from litebert.report import to_html
    from litebert.runs import write_atomically
    from litebert.shrinking.report import found_report
    from litebert.shrinking.search import shrink_for_task
    from litebert.shrinking.strategies import parse_strategy
    from litebert.shrinking.tuning import USUAL

    named = [word for word in (strategy or "").split(",") if word]
    strategies = tuple(dict.fromkeys(map(parse_strategy, named))) or USUAL
    found = shrink_for_task(
        asked, read, tolerance=tolerance, seeds=seeds, strategies=strategies, schedule=schedule, place=place
    )
    write_atomically(asked.out / "found.html", to_html(found_report(found)))
    return replace(found, output=str(asked.out))


def _drop_by_number(
    model: PathLike,
    out: PathLike | None,
    drop: int | None,
    keep: str | None,
    strategy: str | None,
    texts: tuple[str, ...],
    max_texts: int | None,
    tokenizer: PathLike | None,
    device: str,
    dry_run: bool,
    overwrite: bool,
) -> "DropReport":
    if out is None and not dry_run:
        raise InputError("out is missing; name the folder for the smaller model, or use dry_run")
    for path in texts:
        if path.isdecimal():
            raise InputError(f"texts is '{path}' but must name files; to use only some of their texts, use max_texts")
    from litebert.shrinking.choose import DropRequest, check_request, shrink_model

    request = DropRequest(
        keep=keep,
        drop=drop,
        strategy=strategy,
        text=texts,
        most_texts=max_texts,
        tokenizer=None if tokenizer is None else Path(tokenizer),
        device=device,
    )
    check_request(request)
    return shrink_model(str(model), request, None if dry_run or out is None else Path(out), overwrite=overwrite)


@checked
def layers(
    models: Annotated[
        Sequence[str], Param("Model folders or presets, side by side.", positional=True, metavar="MODEL...")
    ],
    texts: Annotated[Sequence[str] | None, Param("Files with a text on each line; may be repeated.")] = None,
    *,
    against: Annotated[
        PathLike | None, Param("A model to compare with, such as the pretrained one of a fine-tuned model.")
    ] = None,
    untrained: Annotated[bool, Param("Also show the first model's shape with new weights.")] = False,
    max_texts: Annotated[int | None, Param("Use only the first N texts.", low=1, metavar="N")] = None,
    max_length: Annotated[int, Param("Cut longer texts to this many tokens.", low=4)] = 512,
    tokenizer: Annotated[PathLike | None, Param("A tokenizer other than the models' own.")] = None,
    device: Device = "auto",
) -> "list[ModelFigures]":
    """Measure what each layer does to texts: distance, angle, contribution, similarity, attention."""
    if not texts:
        raise InputError("texts is missing; name a file with a text on each line", parameter="texts")
    from litebert.analyse.measure import LayersRequest, analyse

    return analyse(
        LayersRequest(
            models=(models,) if isinstance(models, str) else tuple(models),
            text=(texts,) if isinstance(texts, str) else tuple(texts),
            against=None if against is None else str(against),
            untrained=untrained,
            most_texts=max_texts,
            max_length=max_length,
            tokenizer=None if tokenizer is None else Path(tokenizer),
            device=_device(device),
        )
    )


@checked
def build_corpus(
    corpus: Corpus,
    tokenizer: Annotated[PathLike, Param("A tokenizer or model folder, or a shipped model's name.", short="t")],
    out: Annotated[PathLike, Param("Folder of the store to create.", short="o")],
    *,
    language: Annotated[
        Sequence[str] | None,
        Param("Language of the text as a two-letter code (default: en); PATTERN=CODE for some files.", short="l"),
    ] = None,
    normalise: Annotated[
        Literal["none", "nfkc", "albert"], Param("Rules applied before the tokenizer's own: none, nfkc or albert.")
    ] = "none",
    held_out: Annotated[str | float, Param("Share of documents to hold out, such as 1% or 0.01.")] = "1%",
    field: TextField = "text",
    errors: Errors = "strict",
    keep_duplicates: Annotated[bool, Param("Keep documents that occur again.")] = False,
    seed: Annotated[int, Param("Decides which documents are held out.", low=0)] = 0,
    shard_tokens: Annotated[int, Param("Maximum number of tokens in a shard.", low=1, high=1 << 31)] = 1 << 23,
    workers: Annotated[int, Param("Tokenising processes; 0: one per core.", low=0, high=100_000)] = 0,
    on: On = "here",
) -> "Store":
    """Build a token store from raw text: normalised, split into sentences, tokenised, deduplicated.

    A stopped build resumes when the same call is made again, and ends with the same bytes. Text may be read from, and
    the store written to, URLs such as s3://bucket/folder.
    """
    from litebert.config import parse_share
    from litebert.corpus.build import BuildSettings, Display, build_store

    asked = BuildSettings(
        languages=tuple(language or ()),
        normalisation=normalise,
        field=field,
        errors=errors,
        deduplicate=not keep_duplicates,
        held_out=parse_share(str(held_out), "held_out"),
        seed=seed,
        shard_tokens=shard_tokens,
    )
    paths = [corpus] if isinstance(corpus, str) else [str(path) for path in corpus]
    try:
        with Display(paths) as display:
            return build_store(
                paths, Path(tokenizer), os.fspath(out), asked, workers=workers, on=on, report=display.update
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; run the same command again to resume {out}") from None


@checked
def train_tokenizer(
    corpus: Corpus,
    out: Annotated[PathLike, Param("The folder to create.", short="o")],
    *,
    vocab_size: Annotated[
        int, Param("Pieces in the vocabulary, with five special tokens.", low=6, high=10_000_000)
    ] = 30_000,
    kind: Annotated[Literal["unigram", "wordpiece"], Param("unigram or wordpiece.")] = "unigram",
    rules: Annotated[
        Literal["nfkc", "albert", "none"], Param("Normalisation: nfkc (any language), albert (English) or none.")
    ] = "nfkc",
    lowercase: Annotated[bool, Param("Convert everything to lower case.")] = False,
    fallback: Annotated[
        Literal["none", "character", "byte"], Param("Rare characters: none (<unk>), character or byte.")
    ] = "none",
    sample_megabytes: Annotated[float, Param("Train on a sample of at most this size.", low=1e-6, high=1e6)] = 50.0,
    held_out: Annotated[float, Param("Share of documents kept out of training.", low=0, high=0.9)] = 0.0,
    field: TextField = "text",
    errors: Errors = "strict",
    seed: Annotated[int, Param("Decides the sample where the corpus is larger.", low=0)] = 0,
    overwrite: Annotated[bool, Param("Replace the folder if it exists.")] = False,
) -> "Tokenizer":
    """Train a vocabulary on raw text; ids 0 to 4 are <pad> <unk> [CLS] [SEP] [MASK]."""
    from dataclasses import asdict

    from litebert.runs import new_folder, write_run
    from litebert.terminal import stages
    from litebert.text.train import TrainSettings, measure_fertility
    from litebert.text.train import train_tokenizer as train

    asked = TrainSettings(
        vocab_size=vocab_size,
        kind=kind,
        rules=rules,
        lowercase=lowercase,
        fallback=fallback,
        sample_bytes=max(1, int(sample_megabytes * 1e6)),
        seed=seed,
    )
    paths = [corpus] if isinstance(corpus, str) else [str(path) for path in corpus]
    with new_folder(Path(out), "tokenizer train", overwrite=overwrite) as folder:
        with stages() as report:
            tokenizer = train(_texts(paths, field, errors, held_out, kept=False), asked, report)
        tokenizer.save(folder)
        note = {"corpus": paths, "hold_out": held_out, **asdict(asked)}
        write_run(folder, "tokenizer train", note | {"fingerprint": tokenizer.fingerprint})
    if held_out and "-" not in paths:
        [found] = measure_fertility([tokenizer], _texts(paths, field, errors, held_out, kept=True))
        log.info(
            f"on {found.documents:,} held-out documents: {found.per_word:.4f} tokens per word, "
            f"{found.per_character:.4f} per character, {found.unknown_share:.3%} unknown"
        )
    return tokenizer


def _texts(
    paths: list[str], field: str, errors: Literal["strict", "replace"], held_out: float, *, kept: bool
) -> Iterator[str]:
    """The documents of a corpus that are held out, or the others."""
    from litebert.text.documents import documents, is_held_out

    for document in documents(paths, field=field, errors=errors):
        if is_held_out(document.text, held_out) == kept:
            yield document.text


@dataclass(frozen=True, kw_only=True)
class TokenizerFit:
    """How well a tokenizer fits a text; ``relative`` is its number of tokens over that of the last one compared."""

    tokenizer: str
    pieces: int
    documents: int
    words: int
    tokens: int
    tokens_per_word: float
    tokens_per_character: float
    unknown_share: float
    relative: float


@checked
def fertility(
    folders: Annotated[
        Sequence[str],
        Param("Tokenizer folders; figures are relative to the last.", positional=True, metavar="FOLDER..."),
    ],
    *,
    on: Annotated[Sequence[str] | None, Param("Text to measure on: a file, folder or glob; may be repeated.")] = None,
    held_out: Annotated[
        float, Param("Measure on this share of documents, which train left out.", low=0, high=0.9)
    ] = 0.0,
    field: TextField = "text",
    errors: Errors = "strict",
) -> list[TokenizerFit]:
    """Tokens per word of several tokenizers on the same text."""
    if not on:
        raise InputError("on is missing; name text to measure on", parameter="on")
    from litebert.text.documents import documents
    from litebert.text.train import measure_fertility

    folders = [folders] if isinstance(folders, str) else folders
    tokenizers = [open_tokenizer(folder) for folder in folders]
    paths = [on] if isinstance(on, str) else [str(path) for path in on]
    whole = (document.text for document in documents(paths, field=field, errors=errors))
    found = measure_fertility(tokenizers, _texts(paths, field, errors, held_out, kept=True) if held_out else whole)
    if not found[0].tokens:
        raise InputError("no document was held out, so there is nothing to measure; raise held_out or give more text")
    return [
        TokenizerFit(
            tokenizer=str(folder),
            pieces=tokenizer.vocab_size,
            documents=one.documents,
            words=one.words,
            tokens=one.tokens,
            tokens_per_word=round(one.per_word, 5),
            tokens_per_character=round(one.per_character, 5),
            unknown_share=round(one.unknown_share, 7),
            relative=round(one.tokens / found[-1].tokens, 5),
        )
        for folder, tokenizer, one in zip(folders, tokenizers, found, strict=True)
    ]


def open_tokenizer(source: PathLike) -> "Tokenizer":
    """The tokenizer of a folder or of a shipped model, with the input layout of the model in the folder, if any."""
    from litebert.data.files import read_object
    from litebert.text.tokenizer_files import read_tokenizer

    folder, family = Path(source), None
    config = folder / "config.json"
    if config.is_file():
        family = read_object(config, "copy the model again").get("model_type")
    return read_tokenizer(folder, family)


@dataclass(frozen=True)
class Converted:
    """A model folder that was written."""

    folder: Path
    loads_in_transformers: bool


@checked
def convert(
    source: Annotated[
        PathLike, Param("A preset, a shipped name, or a litebert or Hugging Face folder.", positional=True)
    ],
    out: Annotated[PathLike, Param("The model folder to write.", positional=True, metavar="OUT")],
    *,
    to: Annotated[
        Literal["litebert", "hf"],
        Param("litebert: shared blocks stored once; hf: written out so that transformers loads any plan."),
    ] = "litebert",
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16"], Param("Type of the weights: float32, bfloat16 or float16.")
    ] = "float32",
    overwrite: Annotated[bool, Param("Replace a model in the folder.")] = False,
) -> Converted:
    """Write a model as a folder of safetensors that litebert loads, and transformers wherever it can."""
    import torch

    from litebert.checkpoints.folder import check_no_model, load_model, model_folder, save_model
    from litebert.checkpoints.huggingface import is_native
    from litebert.pooling import SENTENCE_FILES
    from litebert.runs import parent_of
    from litebert.tasks.examples import TASK_FILE

    check_no_model(Path(out), overwrite)
    loaded = load_model(source, dtype=getattr(torch, dtype))
    for note in loaded.notes:
        log.info("note: %s", note)
    kept = [model_folder(source) / name for name in (TASK_FILE, *SENTENCE_FILES)]
    parents = [parent_of("source", Path(source))] if Path(source).is_dir() else []
    save_model(
        out,
        loaded.network,
        loaded.tokenizer,
        verb="convert",
        settings={"source": str(source), "to": to, "dtype": dtype},
        parents=parents,
        written_out=to == "hf",
        files={str(path.relative_to(model_folder(source))): path.read_text("utf-8") for path in kept if path.is_file()},
    )
    return Converted(Path(out), to == "hf" or is_native(loaded.network.config.encoder))


@checked
def export(
    model: Annotated[PathLike, Param("A model folder, a run, a shipped name or a Hub name.", positional=True)],
    *,
    out: Annotated[PathLike, Param("The folder to write.", short="o")],
    bits: Annotated[int, Param("Bits of a weight: 8, or 4 (stored in 4, computed in 8).", low=4, high=32)] = 8,
    int8: Annotated[bool, Param("The same as bits=8, which is the default.")] = False,
    fp32: Annotated[bool, Param("The same as bits=32: nothing is quantised.")] = False,
    per_tensor: Annotated[
        bool, Param("One scale for all activations of a product (default: one for each token).")
    ] = False,
    depth: Annotated[int | None, Param("Write only the first layers.", low=1)] = None,
    standard: Annotated[
        bool, Param("Also write onnx/model.onnx and onnx/model_quantized.onnx for other programs.")
    ] = True,
    overwrite: Annotated[bool, Param("Replace a folder that export wrote.")] = False,
) -> "Exported":
    """Write a model as ONNX files that run without torch, in 8 bits by default."""
    from litebert.model import load as load_torch

    asked = {bits} if not (int8 or fp32) else {*([8] * int8), *([32] * fp32), *([bits] if bits != 8 else [])}
    if len(asked) > 1:
        raise InputError("bits, int8 and fp32 name different precisions; give one of them")
    [chosen] = asked
    if chosen not in (4, 8, 32):
        raise InputError(f"bits is {bits} but must be 4, 8 or 32", parameter="bits")
    loaded = load_torch(model, device="cpu", depth=depth)
    return loaded.export(
        out, bits=cast(Literal[32, 8, 4], chosen), per_tensor=per_tensor, standard=standard, overwrite=overwrite
    )


@checked
def serve(
    models: Annotated[
        Sequence[str] | str,
        Param("Exported folders, or any models; the first is the default.", positional=True, metavar="[NAME=]MODEL..."),
    ],
    *,
    port: Annotated[int, Param("The port to listen on; 0: any free one.", low=0, high=65_535)] = 8000,
    host: Annotated[str, Param("The address to listen on; 0.0.0.0 is all of this machine.")] = "127.0.0.1",
    threads: Annotated[
        int | None, Param("Texts read at a time (default: one for each core).", low=1, high=4096)
    ] = None,
    queue_tokens: Annotated[int, Param("Tokens that may wait; beyond them requests get 429.", low=512)] = 32_768,
    max_texts: Annotated[int, Param("Texts in a request.", low=1, high=100_000)] = 256,
    max_characters: Annotated[int, Param("Characters of a text.", low=1)] = 50_000,
    max_bytes: Annotated[int, Param("Bytes of a request.", low=64)] = 2 << 20,
    timeout: Annotated[float, Param("Seconds that a request may take.", low=0.1, high=86_400)] = 30.0,
    key_file: Annotated[
        PathLike | None, Param("A file with the key that clients must send (default: LITEBERT_KEY, if it is set).")
    ] = None,
    origins: Annotated[str, Param("Web pages of other origins that may ask, separated by commas, or *.")] = "",
    grace: Annotated[
        float,
        Param("Seconds that requests are still accepted after SIGTERM, while load balancers notice.", low=0, high=3600),
    ] = 1.0,
    reuse_port: Annotated[bool, Param("Let several processes share the port.")] = False,
    log_requests: Annotated[bool, Param("Log a line of JSON for each request, without texts.")] = True,
    device: Device = "auto",
) -> None:
    """Serve models over HTTP: embeddings in OpenAI's shape, labels, masked words, order; see docs/serve.md."""
    import os

    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the server's threads tokenise; read when tokenizers is first used
    try:
        from litebert.serving.messages import Limits
        from litebert.serving.server import read_key, serve_models
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("starlette", "uvicorn", "httptools", "msgspec"):
            raise
        raise InputError(f"serve needs {error.name}; install it with pip install 'litebert[serve]'") from None
    from litebert.serving.served import load_models
    from litebert.system import return_large_blocks

    return_large_blocks()  # or memory would grow with the longest texts of all threads
    limits = Limits(
        payload=max_bytes,
        texts=max_texts,
        characters=max_characters,
        queue_tokens=queue_tokens,
        timeout=timeout,
        bodies=max(64 << 20, 4 * max_bytes),
    )
    key = read_key(key_file)
    serve_models(
        load_models([models] if isinstance(models, str) else list(models), device=device),
        host=host,
        port=port,
        threads=threads,
        limits=limits,
        key=key,
        origins=tuple(origin.strip() for origin in origins.split(",") if origin.strip()),
        grace=grace,
        reuse_port=reuse_port,
        log_requests=log_requests,
    )


@checked
def page(
    models: Annotated[
        Sequence[str] | str,
        Param(
            "Models, or folders that export wrote; two or more can be compared.", positional=True, metavar="MODEL..."
        ),
    ],
    *,
    out: Annotated[PathLike, Param("The HTML file to write.", short="o")] = "page.html",
    bits: Annotated[int, Param("Bits of a weight: 8, or 4 (smaller, less accurate).", low=4, high=8)] = 8,
    runtime: Annotated[
        PathLike | None, Param("The unpacked package onnxruntime-web (default: from the cache, else fetched with npm).")
    ] = None,
) -> "Page":
    """Write one HTML file with models and what runs them: it opens in a browser, without a server or a network."""
    import tempfile

    from litebert.pages.single import write_page
    from litebert.pages.web_runtime import web_runtime
    from litebert.runtime import is_exported

    if bits not in (4, 8):
        raise InputError(f"bits is {bits} but must be 4 or 8", parameter="bits")
    sources = [models] if isinstance(models, str) else [str(one) for one in models]
    if not sources:
        raise InputError("models is missing; name a model, or a folder that export wrote", parameter="models")
    file = Path(out)
    if not file.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{file.absolute().parent}' to write {file.name} to", parameter="out")
    browser = web_runtime(None if runtime is None else Path(runtime))
    with tempfile.TemporaryDirectory() as temporary:
        folders = []
        for number, (name, source) in enumerate(map(named_source, sources)):
            folder = Path(source)
            if not is_exported(folder):
                from litebert.model import load as load_torch

                folder = Path(temporary) / str(number)
                load_torch(source, device="cpu").export(folder, bits=cast(Literal[8, 4], bits), standard=False)
            folders.append((name, folder))
        return write_page(folders, file, browser)


def models() -> dict[str, str]:
    """List the shipped models and the presets, with a line about each."""
    from litebert.config import preset_names, read_preset
    from litebert.shipped_models import shipped_about, shipped_names

    shipped = {name: f"trained, ships with litebert: {shipped_about(name)}" for name in shipped_names()}
    return shipped | {name: read_preset("models", name)["about"] for name in preset_names("models")}


@checked
def config(
    model: Annotated[PathLike, Param("A preset, a shipped name, a recipe or a model folder.", positional=True)],
    settings: Annotated[Fields | None, Param("Fields to change: share=attention.", metavar="FIELD=VALUE...")] = None,
) -> dict[str, Any]:
    """Show the full configuration of a model, or a pretraining recipe."""
    import dataclasses
    import os

    from litebert.config import preset_names
    from litebert.errors import nearest
    from litebert.shipped_models import shipped_folder, shipped_names

    name, words = str(model), field_words(settings)
    presets, recipes = preset_names("models"), preset_names("recipes")
    if Path(model).is_dir() or shipped_folder(model):
        from litebert.checkpoints.folder import model_config

        encoder = model_config(model, words).encoder
    elif name in recipes:
        from litebert.pretraining.recipe import read_recipe

        return dataclasses.asdict(read_recipe(name, words))
    elif name not in presets and os.sep not in name:
        known = nearest(name, [*presets, *recipes, *shipped_names()])
        raise InputError(f"'{name}' is not a folder, a preset or a recipe{known}")
    else:
        from litebert.nn.config import preset_config

        encoder = preset_config(name, words)
    fields = dataclasses.asdict(encoder) | {"plan": " ".join(f"{a}-{f}" for a, f in encoder.plan)}
    return fields | {"custom_plan": [list(pair) for pair in encoder.custom_plan]}


@checked
def list_runs(
    folders: Annotated[
        Sequence[str] | None, Param("Where to look (default: here).", positional=True, metavar="[FOLDER]...")
    ] = None,
) -> "list[RunInfo]":
    """List the runs below a folder, with their settings, status and parents."""
    from litebert import runs

    places = [Path(folder) for folder in ([folders] if isinstance(folders, str) else folders or ["."])]
    for place in places:
        if not place.is_dir():
            raise InputError(f"{place} is not a folder; name one with runs in it")
    return runs.list_runs(places)


@checked
def card(
    model: Annotated[PathLike, Param("A model folder, a run folder or a shipped name.", positional=True)],
    *,
    name: Annotated[str, Param("What the model is called (default: the folder's name).")] = "",
) -> "Report":
    """Write a short model card: shape, training, results, how to load it (litebert-lab card writes a long one)."""
    from litebert.card import short_card

    return short_card(Path(model), name)


@checked
def evaluate(
    model: Annotated[
        PathLike | None, Param("A fine-tuned model, or with corpus a pretrained one.", positional=True)
    ] = None,
    data: Data = None,
    *,
    task: Task = None,
    text: Text = None,
    label: Label = None,
    kind: Kind = None,
    split: Annotated[str | None, Param("What to score: dev (default), test, train, or a part such as matched.")] = None,
    predictions: Annotated[
        PathLike | None, Param("Score this file instead of a model: TSV, JSON lines or SQuAD's JSON.")
    ] = None,
    depths: Annotated[
        str | Sequence[int] | None, Param("Also score at these depths: 2,4,6 or all.", metavar="N,N,...")
    ] = None,
    corpus: Annotated[
        PathLike | None, Param("Score masked words and sentence order on the held-out text of this token store.")
    ] = None,
    length: Annotated[int | None, Param("With corpus: longest input (default: the model's longest).", low=4)] = None,
    order: Annotated[
        Literal["sop", "nsp"] | None,
        Param("With corpus: sop (which text comes first, the default) or nsp (does the second follow)."),
    ] = None,
    tokens: Annotated[
        int | None, Param("With corpus: how much text (default: 65,536 tokens; a million on a GPU).", low=1)
    ] = None,
    windows: Windows = False,
    from_hub: Annotated[bool, Param("Read the task through the datasets library.")] = False,
    device: Device = "auto",
) -> "Evaluation | HeldOutScores":
    """Score a model, or a file of predictions, on a task or your own data; or a model on the text of a store."""
    if (model is None) == (predictions is None):
        raise InputError("give either a model or predictions to evaluate")
    if corpus is not None:
        if model is None or task or data is not None:
            raise InputError("corpus cannot be combined with task, data or predictions")
        return _evaluate_on_text(model, corpus, length, order or "sop", tokens, depths, device)
    if not (length is None and order is None and tokens is None):
        raise InputError("length, order and tokens need corpus; name a token store")
    if predictions is not None:
        if depths:
            raise InputError("depths needs a model; a file of predictions has only one depth")
        if windows:
            raise InputError("windows needs a model; a file of predictions is scored without one")
        from litebert.tasks.score import evaluate_file
        from litebert.tasks.sources import read_task

        read = read_task(task, data, text=text, label=label, kind=kind, from_hub=from_hub, whole=True)
        return evaluate_file(read, Path(predictions), split=split)
    assert model is not None
    loaded = load(model, device=device)
    chosen = _depths(depths, loaded.num_layers)
    return loaded.evaluate(
        data,
        task=task,
        text=text,
        label=label,
        kind=kind,
        split=split,
        depths=chosen,
        windows=windows,
        from_hub=from_hub,
    )


def _depths(depths: str | Sequence[int] | None, most: int) -> list[int]:
    """The depths to score at, checked."""
    if not depths:
        return []
    if depths == "all":
        return list(range(1, most + 1))
    try:
        chosen = sorted({int(one) for one in (depths.split(",") if isinstance(depths, str) else depths)})
    except ValueError:
        raise InputError(
            f"depths is '{depths}' but must be numbers such as 2,4,6, or all", parameter="depths"
        ) from None
    if chosen[0] < 1 or chosen[-1] > most:
        raise InputError(f"depths is '{depths}' but the model has depths 1 to {most}", parameter="depths")
    return chosen


@dataclass(frozen=True)
class HeldOutScores:
    """How a pretrained model does on held-out text: masked words and sentence order, by depth."""

    model: str
    corpus: str
    tokens: int
    length: int
    order: str
    depths: "list[DepthScore]"


def _evaluate_on_text(
    model: PathLike,
    corpus: PathLike,
    length: int | None,
    order: Literal["sop", "nsp"],
    tokens: int | None,
    depths: str | Sequence[int] | None,
    device: str,
) -> HeldOutScores:
    import torch

    from litebert.checkpoints.folder import load_model
    from litebert.corpus.store import Store
    from litebert.pretraining.held_out import held_out_settings, score_depths, scored_tokens
    from litebert.pretraining.initial import check_vocabulary
    from litebert.terminal import progress
    from litebert.text.tokenizer_files import read_tokenizer

    loaded, store, where = load_model(model), Store.open(Path(corpus)), torch.device(_device(device))
    encoder = loaded.network.config.encoder
    if "masked_lm" not in loaded.network.heads:
        raise InputError(f"{model} has no masked-LM head to score; name a pretrained model")
    check_vocabulary(loaded.tokenizer, read_tokenizer(store.tokenizer_folder, encoder.family), str(model), str(corpus))
    if length is not None and length > encoder.input_limit(length):
        raise InputError(f"length is {length} but {model} has {encoder.max_positions} positions", parameter="length")
    longest = encoder.input_limit(length)
    chosen = _depths(depths, encoder.num_layers)
    with progress() as show:
        found = score_depths(loaded.network, store, chosen, longest, order, tokens or 0, where, show)
    scored = scored_tokens(store, held_out_settings(store, longest, order), where, tokens or 0)
    return HeldOutScores(str(model), Path(corpus).name, scored, longest, order, found)


@checked
def predict(
    model: Annotated[PathLike, Param("A fine-tuned model or run folder.", positional=True)],
    data: Rows,
    out: Answers,
    *,
    text: Text = None,
    format: Annotated[
        Literal["jsonl", "csv", "tsv", "parquet"] | None,
        Param("jsonl, csv, tsv or parquet (default: by the name of out; in a folder that of the data, else jsonl)."),
    ] = None,
    shard_rows: ShardRows = None,
    depth: Annotated[int | None, Param("Use only this many layers.", low=1)] = None,
    exits: Annotated[bool, Param("Exit early by the rule stored with the model (`litebert exits`).")] = False,
    windows: Windows = False,
    device: Device = "auto",
    workers: Workers = 0,
    on: On = "here",
) -> "Written":
    """Predict labels and probabilities of a table of any size: one row per text, in the order of the texts.

    Memory does not grow with the table. A folder of shards is resumed by the same call: complete shards are kept.
    """
    from litebert.batch_inference import Labels, answer_table

    work = Labels(load=load, source=os.fspath(model), depth=depth, windows=windows, device=device, exits=exits)
    return answer_table(work, data, out, text=text, form=format, shard_rows=shard_rows, workers=workers, on=on)


@checked
def encode(
    model: Annotated[PathLike, Param("Any model: a shipped name, a folder or a Hub name.", positional=True)],
    data: Rows,
    out: Answers,
    *,
    text: Text = None,
    format: Annotated[
        Literal["parquet", "npy", "jsonl"] | None,
        Param("parquet, npy or jsonl (default: by the name of out; in a folder that of the data, else parquet)."),
    ] = None,
    shard_rows: ShardRows = None,
    pooling: Annotated[
        Literal["mean", "first", "pooler"] | None, Param("How tokens become a vector (default: as the model has it).")
    ] = None,
    normalize: Annotated[bool | None, Param("Scale vectors to length 1 (default: as the model has it).")] = None,
    max_length: Annotated[
        int | None, Param("Cut longer texts (tokens; default: what the model can read).", low=3)
    ] = None,
    windows: Windows = False,
    depth: Annotated[int | None, Param("Use only this many layers.", low=0)] = None,
    device: Device = "auto",
    workers: Workers = 0,
    on: On = "here",
) -> "Written":
    """Write one vector for each text of a table of any size, in the order of the texts.

    Parquet and jsonl have the key of the row (its id, or its number) beside the vector; npy is one array of float32.
    Memory does not grow with the table. A folder of shards is resumed by the same call: complete shards are kept.
    """
    from litebert.batch_inference import Vectors, answer_table

    work = Vectors(
        load=load,
        source=os.fspath(model),
        depth=depth,
        windows=windows,
        device=device,
        pooling=pooling,
        normalize=normalize,
        max_length=max_length,
    )
    return answer_table(work, data, out, text=text, form=format, shard_rows=shard_rows, workers=workers, on=on)


@checked
def exits(
    model: Annotated[PathLike, Param("A fine-tuned model.", positional=True)],
    data: Data = None,
    *,
    out: Annotated[
        PathLike | None, Param("Write the model with its exits here (default: add them to the model).", short="o")
    ] = None,
    task: Task = None,
    text: Text = None,
    label: Label = None,
    dev: Dev = None,
    max_loss: Annotated[float, Param("Points of the score that exiting early may cost.", low=0, high=100)] = 0.3,
    items: Annotated[int, Param("Maximum number of training rows for the heads.", low=2)] = 10_000,
    device: Device = "auto",
) -> "ExitReport":
    """Add early exits to a fine-tuned model: a head at every depth, and a rule calibrated on held-out rows."""
    from litebert.checkpoints.folder import model_folder
    from litebert.early_exits.report import save_page
    from litebert.model import load
    from litebert.runs import parent_of, write_run
    from litebert.shipped_models import shipped_folder

    source = model_folder(model)
    folder = source if out is None else Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out is {out}, a file; name a folder for the model with its exits", parameter="out")
    loaded = load(model, device=device)
    if loaded.task is None:
        raise InputError(f"{model} has no head for a task; fine-tune it first")
    if out is None and (not source.is_dir() or shipped_folder(model)):
        raise InputError(f"{model} is not a folder of yours; name one for the model with its exits", parameter="out")
    found = loaded.add_exits(data, task=task, text=text, label=label, dev=dev, max_loss=max_loss, items=items).exits
    assert found is not None
    if out is None:
        found.save(folder)
    else:
        loaded.save(folder)
        asked = {"model": str(model), "task": found.report.task, "max_loss": max_loss, "items": items}
        write_run(folder, "exits", asked, parents=[parent_of("source", source)], result=found.report.full.metrics)
    save_page(folder, found.report)
    return found.report


@checked
def look_corpus(
    store: Annotated[PathLike, Param("Folder of the token store.", positional=True)],
    *,
    length: Annotated[int, Param("Maximum number of tokens in an input.", low=4)] = 512,
    batch_tokens: Annotated[int, Param("Maximum number of tokens in a batch.", low=8)] = 8192,
    order: Annotated[Literal["sop", "nsp", "none"], Param("Task for sentence pairs: sop, nsp or none.")] = "sop",
    masking: Annotated[Literal["ngram", "whole-word", "plain"], Param("ngram, whole-word or plain.")] = "ngram",
    mask_rate: Annotated[float, Param("Share of the tokens to predict.", low=0.001, high=0.999)] = 0.15,
    edges: Annotated[
        Literal["masking", "pairs"], Param("With sop: use the edges of documents for masking only, or for pairs, too.")
    ] = "masking",
    split: Annotated[Literal["train", "held_out"], Param("train or held_out.")] = "train",
    seed: Annotated[int, Param("Seed of the draws.", low=0)] = 0,
    epoch: Annotated[int, Param("The epoch to look at.", low=0)] = 0,
    examples: Annotated[int, Param("Number of inputs to show.", low=0, high=10_000)] = 3,
    partial: Annotated[bool, Param("Accept a store whose build is not finished.")] = False,
) -> "Look":
    """Look into a store and its batches: counts, masks, labels, examples (leaks: litebert-lab leaks STORE)."""
    from litebert.corpus.look import look
    from litebert.corpus.settings import BatchSettings
    from litebert.corpus.store import Store
    from litebert.terminal import progress

    asked = BatchSettings(
        length=length, budget=batch_tokens, order=order, masking=masking, edges=edges, rate=mask_rate, seed=seed
    )
    opened = Store.open(Path(store), partial=partial)
    with progress() as report:
        return look(opened, asked, split=split, epoch=epoch, num_examples=examples, report=report)


@checked
def verify_corpus(
    store: Annotated[PathLike, Param("Folder of the token store.", positional=True)],
    *,
    partial: Annotated[bool, Param("Accept a store whose build is not finished.")] = False,
) -> "Store":
    """Read every byte of a store and compare it with the checksums; a damaged shard is an error that names it."""
    from litebert.corpus.store import Store

    opened = Store.open(Path(store), partial=partial)
    opened.verify()
    return opened


@checked
def plan(
    models: Annotated[
        Sequence[str] | str,
        Param("Presets or model folders; field=value words change all of them.", positional=True, metavar="MODEL..."),
    ],
    *,
    device: Annotated[str, Param("auto (this machine, measured), h200, a100, t4 or cpu.")] = "auto",
    purpose: Annotated[Literal["infer", "finetune", "pretrain"], Param("Purpose.", option="for")] = "pretrain",
    tokens: Annotated[int | None, Param("Tokens in a batch (default: 16,384 on a GPU, 4,096 on a CPU).", low=1)] = None,
    length: Annotated[int | None, Param("Tokens in a sequence (default: 512).", low=1)] = None,
    mixed: Annotated[bool, Param("Sequences of mixed lengths, up to length.")] = False,
    precision: Annotated[
        Literal["fp32", "bf16", "fp16"] | None, Param("fp32, bf16 or fp16 (default: half on a GPU, fp32 on a CPU).")
    ] = None,
    optimiser: Annotated[Literal["adamw", "lamb", "muon", "sgd"], Param("adamw, lamb, muon or sgd.")] = "adamw",
    checkpointing: Annotated[bool, Param("Recompute activations instead of keeping them.")] = False,
    compile: Annotated[bool, Param("With torch.compile.")] = False,
    budget: Annotated[
        str | None, Param("Time you have, such as 2h: how far does it get?", metavar="TIME", form=DURATION)
    ] = None,
    corpus_tokens: Annotated[float | None, Param("Tokens in your corpus: how many epochs?", low=1)] = None,
    measure: Annotated[bool, Param("Time real pretraining steps on this machine.")] = False,
    steps: Annotated[int, Param("Number of steps to time with measure.", low=1, high=100_000)] = 3,
    gpus: Annotated[int | None, Param("Also plan the paper's full run on this many such devices.", low=1)] = None,
    nodes: Annotated[int, Param("Number of nodes that the devices are in.", low=1)] = 1,
    node_link: Annotated[
        float, Param("GB/s that a device sends within its node; the default is NVLink 4.", low=1e-6)
    ] = 450.0,
    link: Annotated[
        float, Param("GB/s that a node sends to others; the default is a card of 400 Gbit/s.", low=1e-6)
    ] = 50.0,
    price: Annotated[float | None, Param("Price of an hour of one device, for the cost.", low=0)] = None,
    settings: Annotated[Fields | None, Param("Fields of the model to change.", python_only=True)] = None,
) -> "Plan | list[Plan]":
    """Estimate parameters, arithmetic, memory and time of a run before it starts."""
    from litebert.planning.nodes import links_between
    from litebert.planning.plan import make_plan

    if gpus is None and (nodes > 1 or price is not None):
        what = "nodes" if nodes > 1 else "price"
        raise InputError(
            f"gpus is missing, which {what} needs; give the number of devices on all nodes", parameter="gpus"
        )
    links = None if gpus is None else links_between(gpus, nodes, node_link, link)

    names = [models] if isinstance(models, str) else [name for name in models if "=" not in name]
    words = [*field_words(settings), *(name for name in models if "=" in name and not isinstance(models, str))]
    if not names:
        raise InputError("models is missing; name a preset such as albert-base", parameter="models")
    found = [
        make_plan(
            name,
            overrides=words,
            device=device,
            purpose=purpose,
            tokens=tokens,
            length=length,
            mixed=mixed,
            precision=precision,
            optimiser=optimiser,
            checkpointing=checkpointing,
            compiled=compile,
            budget=budget,
            corpus_tokens=corpus_tokens,
            measure=measure,
            steps=steps,
            links=links,
            price=price,
        )
        for name in names
    ]
    return found[0] if isinstance(models, str) else found
