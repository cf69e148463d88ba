"""A pretraining run from a preset (or a shallower model), a token store and a recipe to a model folder."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from litebert.checkpoints.folder import Loaded, load_model, model_folder, save_model
from litebert.corpus.frequencies import unigram_entropy
from litebert.corpus.store import Store
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.families import preset_config
from litebert.nn.network import HeadName, HeadsConfig, Network, NetworkConfig
from litebert.plan.product import product_rate
from litebert.pretrain.fits import check_memory
from litebert.pretrain.initial import set_initial_values
from litebert.pretrain.recipe import Recipe
from litebert.pretrain.stages import held_out_scores, pretraining_stages
from litebert.pretrain.time_rule import as_noted, fitted, in_words
from litebert.pretrain.warm_start import check_vocabulary, going_on, warm_start
from litebert.runs import MODEL_FOLDER, RUN_FILE, RunLock, check_run_folder, parent_of, read_run, write_run
from litebert.text.tokenizers import read_tokenizer
from litebert.train.guard import StuckWatch
from litebert.train.loop import Loop, Result
from litebert.train.parallel import Ranks, whole_weights
from litebert.train.persistence import Saver
from litebert.train.precision import training_precision
from litebert.train.settings import Bound, Precision, TrainSettings
from litebert.train.watch import Watch

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class PretrainSettings:
    """What the user asked for."""

    preset: str
    corpus: Path
    out: Path
    recipe: Recipe
    bound: Bound
    fixed: frozenset[str] = frozenset()  # fields of the recipe to leave as they are, whatever the time
    fit_to: Bound | None = None  # the time that the recipe is fitted to where that is not the bound: in a dry run
    overrides: tuple[str, ...] = ()  # of the model
    source: str | None = None  # a model to start from
    seed: int = 0
    resume: bool = False
    device: str = "cpu"
    precision: Precision | None = None
    compiled: bool | None = None
    checkpointing: bool = False
    sharded: bool = False
    micro_tokens: int = 0
    save_seconds: float = 300.0
    save_steps: int | None = None
    held_out_batches: int = 16
    sinks: tuple[str, ...] = ()
    begun: float | None = None  # the monotonic clock when the command was given: a budget counts from there


def pretrain(settings: PretrainSettings, say: Say) -> Result:
    """Train, resume or refuse; the run folder tells the rest."""
    ranks = Ranks.join(settings.device)
    try:
        if not ranks.first:
            return _pretrain(settings, ranks, lambda _: None)
        check_run_folder(settings.out, settings.resume)
        with RunLock(settings.out):
            return _pretrain(settings, ranks, say)
    finally:
        ranks.leave()


def _pretrain(settings: PretrainSettings, ranks: Ranks, say: Say) -> Result:
    store = Store.open(settings.corpus)
    config = network_config(settings, store)
    precision = settings.precision or training_precision(ranks.device, config.encoder.width)
    peak = ranks.total([product_rate(ranks.device, precision) if ranks.first else 0.0])[0]
    source = _source(settings, store)
    trained = source.network.config.encoder.num_layers if source else None
    asked = settings.recipe
    settings = replace(settings, recipe=_recipe(settings, config.encoder, peak * ranks.world, trained))
    train = train_settings(settings, ranks, precision, config.encoder.width)
    stages = pretraining_stages(settings.recipe, config.encoder, store, train)
    check_memory(settings.preset, config.encoder, settings.recipe, train, ranks)
    network = _network(settings, config, store, ranks, source, say)
    unigram = unigram_entropy(store)
    watch = None
    if ranks.first:
        if not settings.resume:
            _note(settings, config.encoder, train, ranks)
        watch = _watch(settings, unigram)
        say = watch.say
        if changed := in_words(asked, settings.recipe):
            say(f"the recipe, fitted to this run: {changed}")
    stuck = StuckWatch(unigram, settings.recipe.when_stuck())
    saver = Saver(settings.out, train.keep, _facts(settings, store, config.encoder, train), {"stuck": stuck})
    layers, most = config.encoder.num_layers, settings.held_out_batches
    loop = Loop(
        network,
        stages,
        train,
        ranks,
        saver=saver,
        watch=watch,
        evaluate=held_out_scores(settings.recipe, layers, store, train, ranks, last=stages[-1], most=most),
        say=say,
        begun=settings.begun,
        peak=peak if ranks.first else 0.0,
    )

    def observe(_step: int, row: Mapping[str, float]) -> None:
        sentence = stuck.observe(row["mlm_loss"], loop.progress()) if "mlm_loss" in row else None
        if sentence:
            loop.note(sentence)

    loop.observe = observe
    if settings.resume and not saver.restore(loop):
        raise InputError(f"{settings.out} holds no saved state to resume; leave --resume out to begin")
    result = loop.run()
    if result.status == "diverged":
        saver.restore_weights(network)
    if ranks.first or train.sharded:
        _save_model(settings, network, store, ranks)
    return result


def _source(settings: PretrainSettings, store: Store) -> Loaded | None:
    """The model to start from, where one is named."""
    if settings.source is None:
        return None
    found = load_model(settings.source)
    ours = read_tokenizer(store.tokenizer_folder, found.network.config.encoder.family)
    check_vocabulary(found.tokenizer, ours, settings.source, str(settings.corpus))
    return found


def _network(
    settings: PretrainSettings, config: NetworkConfig, store: Store, ranks: Ranks, source: Loaded | None, say: Say
) -> Network:
    """The network to train, with its first weights."""
    torch.manual_seed(settings.seed)
    network = Network(config).to(ranks.device)
    if source:
        say(warm_start(network, source.network))
    else:
        set_initial_values(network, settings.recipe, store)
    if "order" not in network.heads and network.pooler is not None:
        network.pooler.requires_grad_(False)  # nothing reads it
    return network


def _recipe(settings: PretrainSettings, encoder: EncoderConfig, peak: float, trained: int | None) -> Recipe:
    """The recipe for the time there is and the layers that are ``trained``; a resumed run goes on as it began."""
    recipe = settings.recipe
    if trained is not None:
        recipe = going_on(recipe, encoder.num_layers, trained, settings.fixed)
    if settings.resume:
        return as_noted(recipe, read_run(settings.out), settings.fixed)
    return fitted(recipe, encoder, settings.fit_to or settings.bound, peak, settings.fixed)


def network_config(settings: PretrainSettings, store: Store) -> NetworkConfig:
    """The network for a preset, a recipe and the store's vocabulary."""
    words = (*settings.recipe.model, *settings.overrides)
    encoder = preset_config(settings.preset, (f"vocab_size={store.vocab_size}", *words))
    if encoder.positions != "absolute":
        raise InputError(f"{settings.preset} is a permutation language model; pretrain an albert or bert preset")
    if encoder.vocab_size != store.vocab_size:
        raise InputError(
            f"vocab_size is {encoder.vocab_size} but {settings.corpus} was made with a tokenizer of "
            f"{store.vocab_size} pieces; leave vocab_size out or build the store again"
        )
    longest = max(length for _, length in settings.recipe.lengths)
    if longest > encoder.max_positions:
        raise InputError(
            f"inputs of {longest} tokens do not fit the model's {encoder.max_positions} positions; choose shorter "
            "lengths or more max_positions"
        )
    names: tuple[HeadName, ...] = ("masked_lm",) if settings.recipe.order == "none" else ("masked_lm", "order")
    names += ("replaced",) if settings.recipe.objective == "replaced" else ()
    return NetworkConfig(encoder=encoder, heads=HeadsConfig(names=names))


def train_settings(settings: PretrainSettings, ranks: Ranks, precision: Precision, width: int) -> TrainSettings:
    """What the loop needs, with what was left open decided for the device and the width of the model."""
    recipe, device = settings.recipe, ranks.device
    smallest = min(tokens for _, tokens in recipe.batch_tokens)
    micro = settings.micro_tokens or recipe.micro_tokens
    if not micro:
        micro = min(65_536 if device.type == "cuda" else 4_096, smallest // ranks.world)
    for _, tokens in recipe.batch_tokens:
        if tokens % (micro * ranks.world):
            raise InputError(
                f"a batch of {tokens} tokens does not divide into {ranks.world} ranks of {micro} tokens; choose "
                f"batch_tokens as a multiple of {micro * ranks.world}"
            )
    return TrainSettings(
        bound=settings.bound,
        optimiser=recipe.optimiser_settings(width),
        schedule=recipe.schedule_settings(),
        batch_tokens=recipe.batch_tokens,
        micro_tokens=micro,
        precision=precision,
        narrow=True,
        compiled=device.type == "cuda" if settings.compiled is None else settings.compiled,
        checkpointing=settings.checkpointing,
        clip=recipe.clip,
        sharded=settings.sharded,
        seed=settings.seed,
        save_seconds=settings.save_seconds,
        save_steps=settings.save_steps,
    )


def _facts(settings: PretrainSettings, store: Store, encoder: EncoderConfig, train: TrainSettings) -> dict[str, Any]:
    """What must not change when a run is resumed."""
    return {
        "corpus": store.fingerprint,
        "encoder": dataclasses.asdict(encoder),
        "recipe": dataclasses.asdict(settings.recipe),
        "micro_tokens": train.micro_tokens,
        "precision": train.precision,
        "seed": settings.seed,
    }


def _watch(settings: PretrainSettings, unigram: float) -> Watch:
    """Follows the run; where a sink is refused, a new run leaves no note of itself."""
    try:
        return Watch(settings.out, total=settings.bound.steps, sinks=settings.sinks, unigram=unigram)
    except InputError:
        if not settings.resume:
            (settings.out / RUN_FILE).unlink()
        raise


def _note(settings: PretrainSettings, encoder: EncoderConfig, train: TrainSettings, ranks: Ranks) -> None:
    parents = [parent_of("corpus", settings.corpus)]
    if settings.source and model_folder(settings.source).is_dir():
        parents.append(parent_of("start", model_folder(settings.source)))
    asked = {
        "model": settings.preset,
        "encoder": dataclasses.asdict(encoder),
        "recipe": dataclasses.asdict(settings.recipe),
        "bound": dataclasses.asdict(settings.bound),
        "seed": settings.seed,
        "device": settings.device,
        "hardware": _hardware(ranks),
        "precision": train.precision,
        "compiled": train.compiled,
        "checkpointing": train.checkpointing,
        "micro_tokens": train.micro_tokens,
    }
    write_run(settings.out, "pretrain", asked, parents=parents, status="running")


def _hardware(ranks: Ranks) -> str:
    """What a run runs on, for its card."""
    on_gpu = ranks.device.type == "cuda"
    name = torch.cuda.get_device_name(ranks.device) if on_gpu else f"CPU, {torch.get_num_threads()} threads"
    return name if ranks.world == 1 else f"{ranks.world} x {name}"


def _save_model(settings: PretrainSettings, trained: Network, store: Store, ranks: Ranks) -> None:
    """The trained model as a folder that every verb and ``transformers`` load."""
    weights = whole_weights(trained)
    if not ranks.first:
        return
    network = Network(trained.config)
    network.load_state_dict(weights)
    tokenizer = read_tokenizer(store.tokenizer_folder, network.config.encoder.family)
    save_model(settings.out / MODEL_FOLDER, network, tokenizer, verb="pretrain", settings={"run": settings.out.name})
