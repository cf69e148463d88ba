"""A pretraining run from a preset (or a shallower model), a token store and a recipe to a model folder."""

import dataclasses
import logging
import shutil
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

import torch

from litebert.checkpoints.folder import Loaded, load_model, model_folder, save_model
from litebert.config import current_name, flat, nearest_field, parse_overrides, preset_names
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig, preset_config
from litebert.nn.network import HeadName, HeadsConfig, Network, NetworkConfig
from litebert.parameters import parse_duration, parse_period
from litebert.planning.devices import product_rate
from litebert.pretraining.fitting import as_recorded, describe_changes, fitted, recipe_for_warm_start
from litebert.pretraining.held_out import held_out_scores
from litebert.pretraining.initial import Stretch, check_vocabulary, set_initial_values, warm_start
from litebert.pretraining.memory import check_memory
from litebert.pretraining.parts import PARTS_FOLDER, open_text, write_note
from litebert.pretraining.recipe import RECIPE_FIELDS, Recipe, is_recipe_word, read_recipe, with_suitable_growth
from litebert.pretraining.stages import pretraining_stages, with_shapes
from litebert.runs import (
    AVERAGED_FOLDER,
    LAST_FOLDER,
    MODEL_FOLDER,
    RUN_FILE,
    RunLock,
    check_run_folder,
    parent_of,
    read_run,
    update_run,
    write_run,
)
from litebert.system import usable_device
from litebert.text.tokenizer_files import read_tokenizer
from litebert.train.averaging import PREFIX, WeightAverage
from litebert.train.callbacks import Callback, DivergenceGuard, SaveStates, StuckWatch, changed_fact
from litebert.train.console import ConsoleLine
from litebert.train.metrics import MetricsFile, RunRecord, Sinks
from litebert.train.parallel import NOT_SHARED, Ranks, full_weights, restartable_job
from litebert.train.plot import Plot
from litebert.train.precision import training_precision
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.trainer import Trainer, TrainResult

log = logging.getLogger(__name__)

PATIENCE = 0.2  # seconds for the process that has the run folder to end
RESTART_PATIENCE = 60.0  # the same where that process was killed, perhaps on another node
SHARING_SECONDS = 10.0  # until a file that one node has written is seen by all


@dataclass(frozen=True, kw_only=True)
class PretrainSettings:
    """What the user asked for."""

    preset: str
    corpus: tuple[Path, ...]  # token stores, each read in its share of the run
    out: Path
    recipe: Recipe
    bound: Bound
    fixed: frozenset[str] = frozenset()  # fields of the recipe that the user set: they are not fitted
    fit_to: Bound | None = None  # the time that the recipe is fitted to where that is not the bound: in a dry run
    overrides: tuple[str, ...] = ()  # of the model
    source: str | None = None  # a model to start from
    encoder: EncoderConfig | None = None  # the model's shape where it is not that of ``preset``
    positions: Stretch = "tiled"  # how the positions of ``source`` are stretched where it has fewer
    seed: int = 0
    resume: bool = False
    device: str = "cpu"
    precision: Precision | None = None
    compiled: bool | None = None
    graph_per_layer: bool = False
    checkpointing: bool = False
    sharded: bool = False
    micro_tokens: int = 0
    save_seconds: float = 300.0
    save_steps: int | None = None
    held_out_batches: int = 16
    sinks: tuple[str, ...] = ()
    temporary: bool = False  # the run folder is thrown away: a dry run
    begun: float | None = None  # the monotonic clock when the command was given: a budget counts from there


def pretrain(settings: PretrainSettings, callbacks: Sequence[Callback] = ()) -> TrainResult:
    """Train, resume or refuse; the run folder has the rest. ``callbacks`` come after those of every run."""
    ranks = Ranks.join(settings.device)
    try:
        with ranks.one_error():
            # A job that torchrun restarts continues what it has begun.
            restarted = ranks.from_first(_was_begun_by_this_job(settings.out))
            settings = replace(settings, resume=settings.resume or restarted)
            if not ranks.first:
                return _pretrain(settings, ranks, callbacks)
            if restarted:
                log.info("restarted: continuing the run in %s", settings.out)
            check_run_folder(settings.out, settings.resume)
            with RunLock(settings.out, RESTART_PATIENCE if restarted else PATIENCE):
                return _pretrain(settings, ranks, callbacks)
    finally:
        ranks.leave()


def _was_begun_by_this_job(run: Path) -> bool:
    """Whether the run in a folder was begun by the processes that torchrun has restarted as ours."""
    info, job = read_run(run), restartable_job()
    return bool(job) and info is not None and info.settings.get("job") == job


def _check_same(settings: PretrainSettings, facts: Mapping[str, Any], ranks: Ranks) -> None:
    """Refuse ranks that were started with other settings or text, and run folders that the nodes do not share."""
    if changed := changed_fact(ranks.from_first(facts), facts):
        raise InputError(
            f"rank {ranks.rank} and rank 0 differ: {changed}; start all nodes with the same command and text"
        )
    if settings.temporary:
        return
    info = read_run(settings.out)
    wanted = ranks.from_first(info.fingerprint if info else "")
    deadline = time.monotonic() + SHARING_SECONDS
    while info is None or info.fingerprint != wanted:
        if time.monotonic() > deadline:
            host = socket.gethostname()
            raise InputError(f"{settings.out} on {host} (rank {ranks.rank}) is not the folder of rank 0; {NOT_SHARED}")
        time.sleep(0.1)
        info = read_run(settings.out)


def _pretrain(settings: PretrainSettings, ranks: Ranks, callbacks: Sequence[Callback]) -> TrainResult:
    text = open_text(settings.corpus, settings.recipe.batches.parts, settings.out if settings.resume else None)
    store = text.first
    config = network_config(settings, store)
    precision = settings.precision or training_precision(ranks.device, config.encoder.width)
    peak = ranks.total([product_rate(ranks.device, precision) if ranks.first else 0.0])[0]
    source = _source(settings, store)
    trained = source.network.config.encoder.num_layers if source else None
    asked = settings.recipe
    settings = replace(settings, recipe=_recipe(settings, config.encoder, peak * ranks.world, trained))
    train = train_settings(settings, ranks, precision, config.encoder.width)
    text = with_shapes(text, settings.recipe, train)
    stages = pretraining_stages(settings.recipe, config.encoder, text, train)
    check_memory(settings.preset, config.encoder, settings.recipe, train, ranks)
    network = _network(settings, config, store, ranks, source)
    facts = _facts(settings, store, config.encoder, train)
    saver = SaveStates(
        settings.out,
        facts,
        seconds=settings.save_seconds,
        steps=settings.save_steps,
        read_facts=_current_facts,
    )
    every_rank: list[Callback] = [saver, DivergenceGuard(saver), StuckWatch(text.unigram, settings.recipe.when_stuck())]
    on_first: list[Callback] = []
    if ranks.first:
        run = settings.out
        if not settings.resume:
            _write_run(settings, config.encoder, train, ranks)
        if len(text.parts) > 1:
            write_note(run, text)
        try:
            sinks = Sinks(settings.sinks, run)
        except InputError:
            if not settings.resume:  # a new run that is refused leaves no record
                (run / RUN_FILE).unlink()
                shutil.rmtree(run / PARTS_FOLDER, ignore_errors=True)
            raise
        on_first = [MetricsFile(run), sinks, ConsoleLine(), RunRecord(run), Plot(run, unigram=text.unigram)]
        if changed := describe_changes(asked, settings.recipe):
            log.info("the recipe, fitted to this run: %s", changed)
    if ranks.world > 1:
        _check_same(settings, facts, ranks)
    most = settings.held_out_batches
    evaluate = held_out_scores(settings.recipe, config.encoder, store, train, ranks, last=stages[-1], most=most)
    average = None
    if settings.recipe.averaging.kind != "none":
        average = WeightAverage(network, settings.recipe.averaging)
        every_rank.append(average)
        evaluate = evaluate and average.scored_too(evaluate)
    trainer = Trainer(
        network,
        stages,
        train,
        [*every_rank, *on_first, *callbacks],
        ranks=ranks,
        evaluate=evaluate,
        begun=settings.begun,
        peak=peak if ranks.first else 0.0,
    )
    if settings.resume and not saver.restore(trainer):
        log.info("no state was saved in %s; the run begins again", settings.out)
    if missing := trainer.stage_at(trainer.progress()).missing:
        raise InputError(missing)
    result = trainer.fit()
    if result.status == "diverged":
        saver.restore_weights(network, ranks)
    if ranks.first or train.sharded:
        _save_models(settings, network, store, ranks, average, result)
    return result


def _current_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a state with the recipe's fields under their names of today, and fields that came later at default."""
    recipe = {current_name(Recipe, name, value): value for name, value in facts["recipe"].items()}
    return {**facts, "recipe": {**flat(Recipe()), **recipe}}


def _source(settings: PretrainSettings, store: Store) -> Loaded | None:
    """The model to start from, where one is named."""
    if settings.source is None:
        return None
    found = load_model(settings.source)
    ours = read_tokenizer(store.tokenizer_folder, found.network.config.encoder.family)
    check_vocabulary(found.tokenizer, ours, settings.source, str(store.folder))
    return found


def _network(
    settings: PretrainSettings, config: NetworkConfig, store: Store, ranks: Ranks, source: Loaded | None
) -> Network:
    """The network to train, with its first weights."""
    torch.manual_seed(settings.seed)
    network = Network(config).to(ranks.device)
    if source:
        copied = warm_start(network, source.network, settings.positions)
        if ranks.first:
            log.info("%s", copied)
    else:
        set_initial_values(network, settings.recipe, store)
    if "order" not in network.heads and network.pooler is not None:
        network.pooler.requires_grad_(False)  # nothing reads it
    return network


def _recipe(settings: PretrainSettings, encoder: EncoderConfig, peak: float, trained: int | None) -> Recipe:
    """The recipe for the time there is and the layers that are ``trained``; a resumed run keeps its own."""
    recipe = settings.recipe
    if trained is not None:
        recipe = recipe_for_warm_start(recipe, encoder.num_layers, trained, settings.fixed)
    if settings.resume:
        return as_recorded(recipe, read_run(settings.out), settings.fixed)
    return fitted(recipe, encoder, settings.fit_to or settings.bound, peak, settings.fixed)


def network_config(settings: PretrainSettings, store: Store) -> NetworkConfig:
    """The network for a preset, a recipe and the store's vocabulary."""
    words = (*settings.recipe.model, *settings.overrides)
    encoder = settings.encoder or preset_config(settings.preset, (f"vocab_size={store.vocab_size}", *words))
    _check_positions(settings, encoder)
    if encoder.vocab_size != store.vocab_size:
        raise InputError(
            f"vocab_size is {encoder.vocab_size} but {store.folder} was made with a tokenizer of "
            f"{store.vocab_size} pieces; leave vocab_size out or build the store again"
        )
    longest = max(length for _, length in settings.recipe.batches.lengths)
    if encoder.positions == "absolute" and longest > encoder.max_positions:
        raise InputError(
            f"inputs of {longest} tokens do not fit the model's {encoder.max_positions} positions; choose shorter "
            "lengths or more max_positions"
        )
    names: tuple[HeadName, ...] = ("masked_lm",) if settings.recipe.order == "none" else ("masked_lm", "order")
    names += ("replaced",) if settings.recipe.objective == "replaced" else ()
    return NetworkConfig(encoder=encoder, heads=HeadsConfig(names=names))


def _check_positions(settings: PretrainSettings, encoder: EncoderConfig) -> None:
    """Refuse an objective that the model's positions are not made for."""
    objective = settings.recipe.objective
    if encoder.positions == "relative" and objective != "permutation":
        raise InputError(
            f"{settings.preset} is a permutation language model and the objective is '{objective}'; add "
            "objective=permutation, or pretrain an albert or bert preset"
        )
    if encoder.positions != "relative" and objective == "permutation":
        raise InputError(
            f"objective=permutation needs relative positions, which {settings.preset} does not have; use xlnet-small "
            "or another xlnet preset"
        )


def train_settings(settings: PretrainSettings, ranks: Ranks, precision: Precision, width: int) -> TrainSettings:
    """What the trainer needs, with what was left open decided for the device and the width of the model."""
    recipe, device = settings.recipe, ranks.device
    smallest = min(tokens for _, tokens in recipe.batches.tokens)
    micro = settings.micro_tokens or recipe.batches.micro_tokens
    if not micro:
        micro = min(65_536 if device.type == "cuda" else 4_096, smallest // ranks.world)
        micro = max(micro, max(length for _, length in recipe.batches.lengths))
    for _, tokens in recipe.batches.tokens:
        if tokens % (micro * ranks.world):
            raise InputError(
                f"a batch of {tokens} tokens does not divide into passes of {micro} tokens (micro_tokens) on each of "
                f"{ranks.world} ranks; make batches.tokens a multiple of both"
            )
    return TrainSettings(
        bound=settings.bound,
        optimiser=recipe.optimiser_for(width),
        schedule=recipe.schedule,
        batch_tokens=recipe.batches.tokens,
        batch_rates=recipe.batch_rates(),
        micro_tokens=micro,
        precision=precision,
        half_residual=True,
        compiled=device.type == "cuda" if settings.compiled is None else settings.compiled,
        graph_per_layer=settings.graph_per_layer,
        checkpointing=settings.checkpointing,
        sharded=settings.sharded,
        seed=settings.seed,
    )


def _facts(settings: PretrainSettings, store: Store, encoder: EncoderConfig, train: TrainSettings) -> dict[str, Any]:
    """What must not change when a run is resumed."""
    return {
        "corpus": store.fingerprint,
        "encoder": dataclasses.asdict(encoder),
        "recipe": flat(settings.recipe),
        "micro_tokens": train.micro_tokens,
        "precision": train.precision,
        "seed": settings.seed,
    }


def _write_run(settings: PretrainSettings, encoder: EncoderConfig, train: TrainSettings, ranks: Ranks) -> None:
    parents = [parent_of("corpus", folder) for folder in settings.corpus]
    if settings.source and model_folder(settings.source).is_dir():
        parents.append(parent_of("start", model_folder(settings.source)))
    asked: dict[str, Any] = {
        "model": settings.preset,
        "encoder": dataclasses.asdict(encoder),
        "recipe": dataclasses.asdict(settings.recipe),
        "bound": dataclasses.asdict(settings.bound),
        "seed": settings.seed,
        "device": settings.device,
        "hardware": _hardware(ranks),
        "precision": train.precision,
        "compiled": train.compiled,
        "graph_per_layer": train.graph_per_layer,
        "checkpointing": train.checkpointing,
        "micro_tokens": train.micro_tokens,
    }
    if job := restartable_job():
        asked["job"] = job
    write_run(settings.out, "pretrain", asked, parents=parents, status="running")


def _hardware(ranks: Ranks) -> str:
    """What a run runs on, for its card."""
    on_gpu = ranks.device.type == "cuda"
    name = torch.cuda.get_device_name(ranks.device) if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    return name if ranks.world == 1 else f"{ranks.world} x {name}"


def _save_models(
    settings: PretrainSettings,
    network: Network,
    store: Store,
    ranks: Ranks,
    average: WeightAverage | None,
    result: TrainResult,
) -> None:
    """The trained model as a folder that every verb and ``transformers`` load.

    Where there is an average, too, the model is the better of both on held-out text, and the other one lies beside it:
    an average helps while the learning rate is high and hurts if it reaches back to worse steps.
    """
    for folder in (LAST_FOLDER, AVERAGED_FOLDER) if ranks.first else ():  # of the run before it was resumed
        shutil.rmtree(settings.out / folder, ignore_errors=True)
    if average is None or not average.has_begun or result.status == "diverged":
        _save_model(settings, settings.out / MODEL_FOLDER, network, store, ranks)
        if average and ranks.first:
            update_run(settings.out, result={"weights": "last"})
        return
    found = result.held_out
    is_better = found.get(f"{PREFIX}loss", 0.0) <= found.get("loss", 0.0)
    last, averaged = (LAST_FOLDER, MODEL_FOLDER) if is_better else (MODEL_FOLDER, AVERAGED_FOLDER)
    _save_model(settings, settings.out / last, network, store, ranks)
    with average.in_place():
        _save_model(settings, settings.out / averaged, network, store, ranks)
    if ranks.first:
        update_run(settings.out, result={"weights": "averaged" if is_better else "last"})


def _save_model(settings: PretrainSettings, folder: Path, trained: Network, store: Store, ranks: Ranks) -> None:
    """The weights at hand as a model folder."""
    weights = full_weights(trained)
    if not ranks.first:
        return
    network = Network(trained.config)
    network.load_state_dict(weights)
    tokenizer = read_tokenizer(store.tokenizer_folder, network.config.encoder.family)
    save_model(folder, network, tokenizer, verb="pretrain", settings={"run": settings.out.name})


def settings_from(
    preset: str,
    words: Sequence[str],
    corpus: Path | Sequence[Path],
    out: Path,
    *,
    bound: Bound | None,
    recipe: str = "budget",
    device: str = "auto",
    precision: str | None = None,
    save_every: str = "5m",
    encoder: EncoderConfig | None = None,
) -> PretrainSettings:
    """Settings, checked; fields of the recipe and of the model may stand side by side among ``words``.

    Without a bound the recipe's own number of steps counts. An ``encoder`` is the shape of a model that is no preset.
    """
    _check_words(None if encoder else preset, words)
    for_recipe = [word for word in words if is_recipe_word(word)]
    chosen = read_recipe(recipe, for_recipe)
    fixed = frozenset(current_name(Recipe, word.partition("=")[0]) for word in for_recipe)
    if chosen.growth.depths and "growth.depths" not in fixed:
        others = [word for word in words if word not in for_recipe]
        chosen = with_suitable_growth(chosen, encoder or preset_config(preset, (*chosen.model, *others)))
    if precision not in (None, *get_args(Precision)):
        raise InputError(f"precision is '{precision}' but must be bf16, fp16 or fp32", parameter="precision")
    return PretrainSettings(
        preset=preset,
        corpus=(corpus,) if isinstance(corpus, Path) else tuple(corpus),
        out=out,
        recipe=chosen,
        bound=bound or Bound(steps=chosen.steps),
        fixed=fixed,
        encoder=encoder,
        overrides=tuple(word for word in words if word not in for_recipe),
        device=usable_device(device),
        precision=cast(Precision | None, precision),
        save_seconds=parse_period(save_every)[0],
        save_steps=parse_period(save_every)[1],
    )


def bound_from(
    *, budget: str | None, steps: int | None, flops: float | None, tokens: float | None = None
) -> Bound | None:
    """How long to train; None where nothing was given."""
    seconds = None if budget is None else parse_duration(budget)
    whole = None if tokens is None else int(tokens)
    if all(value is None for value in (steps, whole, seconds, flops)):
        return None
    return Bound(steps=steps, tokens=whole, seconds=seconds, flops=flops)


def _check_words(preset: str | None, words: Sequence[str]) -> None:
    """A folder in place of a preset, and a field that neither the model nor the recipe has."""
    if preset is not None and Path(preset).is_dir() and preset not in preset_names("models"):
        raise InputError(f"'{preset}' is a folder; name a preset such as albert-small, or start --from the folder")
    known = RECIPE_FIELDS | {field.name for field in dataclasses.fields(EncoderConfig) if field.init}
    for name in parse_overrides(words):
        if name not in known:
            raise InputError(f"neither the model nor the recipe has a field '{name}'{nearest_field(name, known)}")
