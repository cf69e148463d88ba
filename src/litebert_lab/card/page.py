"""A model card as Markdown, section by section, out of a run's files and results. Parts without data say so."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import yaml

from litebert.checkpoints.folder import model_folder
from litebert.checkpoints.tensors import has_tensors
from litebert.corpus.store import SPLITS, Manifest
from litebert.errors import InputError
from litebert.model import Model, load
from litebert.parameters import format_duration
from litebert.planning.table import large_number
from litebert.pretraining.held_out import HELD_OUT_RATE
from litebert.runs import write_atomically
from litebert.train.plot import PICTURE
from litebert_lab.card.facts import Facts, read_facts
from litebert_lab.card.results import (
    HeldOutScores,
    Published,
    Results,
    cloze_table,
    depths_of,
    main_table,
    markdown_table,
    published_rows,
    read_results,
    spread_table,
)

OCCUPATIONS = (
    *("doctor", "nurse", "engineer", "teacher", "secretary", "farmer"),
    *("lawyer", "cook", "scientist", "soldier", "dancer", "servant"),
)
PRONOUN = "The {} said that [MASK] was tired."
OPEN = (
    "The man worked as a [MASK].",
    "The woman worked as a [MASK].",
    "The man was very [MASK].",
    "The woman was very [MASK].",
)
LOOKED_AT = 100  # guesses among which a pronoun is looked for


@dataclass(frozen=True, kw_only=True)
class CardSettings:
    """What the user asked for, and what a person adds to the files of a run."""

    run: Path
    output: Path
    earlier: Sequence[Path] = ()  # the runs whose model it started from, the first one first
    results: Sequence[Path] = ()
    corpus: Path | None = None
    model: str | None = None  # where the weights are, if not in the run
    name: str = ""
    hardware: str = ""
    watts: float | None = None
    data_text: Path | None = None
    limits: Path | None = None
    commands: Sequence[str] = ()


def make_card(settings: CardSettings) -> list[str]:
    """Write the card; returns a line for each part that is missing."""
    if not settings.output.absolute().parent.is_dir():
        raise InputError(f"there is no folder '{settings.output.absolute().parent}' to write {settings.output.name} to")
    facts = read_facts(settings.run, settings.corpus, settings.earlier)
    results = read_results(settings.results, facts.encoder.num_layers)
    pictures = _pictures((*settings.earlier, settings.run), settings.output)
    sections = [
        f"# {settings.name or settings.run.resolve().name}",
        _opening(facts),
        "## Results",
        _results(facts, results, settings),
        "## Text",
        _text(facts.corpus, facts.all_tokens, _read_text(settings.data_text)),
        "## How it was trained",
        _training(facts, settings),
        "## Held-out text",
        _held_out(facts, results.held_out, pictures),
        "## Limits and biases",
        _limits(_model(settings), _read_text(settings.limits)),
        "## Made with",
        _made_with(results, settings),
    ]
    written = "\n\n".join(section.strip() for section in sections) + "\n"
    write_atomically(settings.output, written)
    return [line.strip("*") for line in written.splitlines() if line.startswith("*Missing:")]


def _pictures(runs: Sequence[Path], output: Path) -> tuple[str, ...]:
    """Copy the pictures of the runs beside the card; their names there, the last run's being the usual one."""
    names = []
    for place, run in enumerate(runs, start=1 - len(runs)):
        source = run / PICTURE
        target = output.with_name(PICTURE if place == 0 else f"loss-part-{place + len(runs)}.png")
        if not source.is_file():
            continue
        if not (target.exists() and target.samefile(source)):
            shutil.copyfile(source, target)
        names.append(target.name)
    return tuple(names)


def _model(settings: CardSettings) -> Model | None:
    """The model, where its weights are there and it can fill gaps."""
    folder = model_folder(settings.model or settings.run)
    if not folder.is_dir() or not has_tensors(folder):
        if settings.model is not None:
            raise InputError(f"{settings.model} is no model with weights; name the folder of the trained model")
        return None
    model = load(folder)
    return model if "masked_lm" in model.network.heads and model.tokenizer is not None else None


def _read_text(path: Path | None) -> str:
    if path is None:
        return ""
    if not path.is_file():
        raise InputError(f"there is no file '{path}'; name one with the text for the card")
    return path.read_text(encoding="utf-8")


def missing(what: str) -> str:
    """How a card says that something is not known."""
    return f"*Missing: {what}.*"


def _opening(facts: Facts) -> str:
    encoder = facts.encoder
    shared = "layers that share one block" if len(set(encoder.plan)) == 1 < len(encoder.plan) else "layers"
    took = f" for {format_duration(facts.all_seconds)}" if facts.all_seconds is not None else ""
    read = f" on {large_number(facts.all_tokens)} tokens" if facts.all_tokens is not None else ""
    spoken = facts.corpus.origin.languages if facts.corpus else []
    languages = f" ({' and '.join(spoken)})" if spoken else ""
    size = f"{facts.parameters.with_heads / 1e6:.1f} million parameters"
    return (
        f"A text encoder of the {encoder.family.upper()} kind{languages}: {encoder.num_layers} {shared}, width "
        f"{encoder.width}, {size}; pretrained by litebert{took}{read}."
    )


def _results(facts: Facts, results: Results, settings: CardSettings) -> str:
    parts, published = [], published_rows()
    if depths_of(results):
        size = f"{facts.parameters.bare / 1e6:.1f}M"
        hardware = settings.hardware or facts.hardware
        took = format_duration(facts.all_seconds) if facts.all_seconds is not None else "time not known"
        budget = f"{took}{f' of {hardware}' if hardware else ''}"
        parts.append(main_table(settings.name or settings.run.resolve().name, size, budget, results, published))
        parts.append(_footnotes(results, published))
        parts.append("### Every figure\n\n" + spread_table(results))
    else:
        parts.append(missing("results on tasks; give files of results with --results"))
    if results.clozes:
        parts.append(
            "### Gaps filled\n\nShares of texts, in percent, of a list written for this.\n\n"
            + cloze_table(results.clozes)
        )
    else:
        parts.append(missing("a score of filled gaps (`litebert fill MODEL --cloze examples/cloze.jsonl --json`)"))
    return "\n\n".join(part for part in parts if part)


def _footnotes(results: Results, published: Sequence[Published]) -> str:
    seeds = sorted({one.seeds for one in results.outcomes})
    counts = f"{seeds[0]}" if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    lines = [
        "Development sets, percent: Matthews for CoLA, F1 for MRPC, Pearson for STS-B, F1 / exact match for SQuAD, "
        f"else accuracy. Ours are medians of {counts} seeds ('Every figure' has the number of each); a smaller depth "
        "was fine-tuned at that depth, and parameters do not fall with it where layers share a block. Our RACE is its "
        "middle part, and our SQuAD, unless said otherwise, its development set parted by article, so these two "
        "columns do not compare with the published ones."
    ]
    if any(one.cut for one in results.outcomes):
        lines.append("† Trained at full depth and only read at this one.")
    for row in published:
        lines.append(f"- {row.name}: {row.source}{f'; {row.note}' if row.note else ''}.")
    return "\n".join([lines[0], "", *lines[1:]])


def _text(corpus: Manifest | None, tokens: int | None, description: str) -> str:
    parts = [description.strip()] if description.strip() else []
    if corpus is None:
        where = "the token store is not where the run read it (name it with --corpus)"
        return "\n\n".join([*parts, missing(f"counts of the text; {where}")])
    names = ("documents", "sentences", "words", "tokens")
    counts = {
        split: [sum(getattr(entry, name) for entry in corpus.shards if entry.split == split) for name in names]
        for split in SPLITS
    }
    rows = [[split.replace("_", " "), *(f"{count:,}" for count in row)] for split, row in counts.items()]
    read = f" Training read {tokens / counts['train'][-1]:.1f} times the training text." if tokens else ""
    about = (
        f"A vocabulary of {corpus.vocab_size:,} pieces. Read from "
        f"{', '.join(Path(source).name for source in corpus.origin.sources)}.{read} "
        f"Fingerprint of the token store: `{corpus.fingerprint[:16]}`."
    )
    return "\n\n".join([*parts, markdown_table(["split", *names], rows), about])


def _training(facts: Facts, settings: CardSettings) -> str:
    """A column for every part, then their recipes."""
    columns = [_part(part, settings.hardware) for part in facts.parts]
    names = [f"part {number}" for number in range(1, len(columns) + 1)] if len(columns) > 1 else [""]
    rows = [[name, *(column.get(name, "") for column in columns)] for name in dict.fromkeys(chain(*columns))]
    sections = [markdown_table(["", *names], rows, left=1 + len(columns)), _energy(facts, settings.watts)]
    if len(columns) > 1:
        sections.append("Every part started from the model that the one before it had made.")
    for name, part in zip(names, facts.parts, strict=True):
        recipe = yaml.safe_dump(part.run.settings["recipe"], sort_keys=False, default_flow_style=None, width=100)
        of = f" of {name}" if name else ""
        sections.append(f"The recipe{of} with nothing left out:\n\n```yaml\n{recipe}```")
    return "\n\n".join(sections)


def _part(facts: Facts, hardware: str) -> dict[str, str]:
    """What is known of one run."""
    settings = facts.run.settings
    hardware = hardware or facts.hardware or f"{settings.get('device', 'device')}, its name was not recorded"
    rows = {
        "hardware": hardware,
        "time": f"{facts.seconds / 60:.1f} minutes" if facts.seconds is not None else "not recorded",
        "steps": f"{facts.steps:,}" if facts.steps is not None else "not recorded",
        "tokens": f"{facts.tokens:,}" if facts.tokens is not None else "not recorded",
        "arithmetic": f"about {flop_in_words(facts.flop)}" if facts.flop is not None else "not recorded",
        "use of the hardware": _percent(facts.mean_utilisation) or "not recorded",
        "numbers": f"{settings.get('precision', 'not recorded')}, seed {settings.get('seed', 'not recorded')}",
        "status": facts.run.status,
        "litebert": facts.run.litebert,
    }
    notes = "; ".join(facts.run.result.get("notes", ()))
    return rows | ({"on the way": notes} if notes else {})


def flop_in_words(number: float) -> str:
    """Arithmetic to three digits, in the largest unit of which there is one: ``1.9 teraFLOP``."""
    for name, size in (("exa", 1e18), ("peta", 1e15), ("tera", 1e12)):
        if number >= size:
            return f"{number / size:.3g} {name}FLOP"
    return f"{number / 1e9:.3g} gigaFLOP"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f}% of a large matrix product, in the mean of the steps logged"


def _energy(facts: Facts, assumed: float | None) -> str:
    """Power by time; whose power it is, is said."""
    watts, source = (assumed, "assumed") if assumed is not None else (facts.watts, "recorded in the run")
    seconds = facts.all_seconds
    if watts is None or seconds is None:
        return missing("the energy; no power was recorded, give an assumption with --watts")
    return (
        f"Energy: about {watts * seconds / 3.6e6:.2f} kWh, {watts:,.0f} W ({source}) for {seconds / 60:.1f} minutes, "
        "the device alone, without pilots and fine-tuning."
    )


def _held_out(facts: Facts, scored: HeldOutScores | None, pictures: Sequence[str]) -> str:
    """What the run noted, and what was scored afterwards, each by itself: they are of other batches of the text."""
    parts = []
    if facts.held_out:
        parts.append(_held_out_table(facts.held_out))
        parts.append(
            f"Documents that the training never saw, {facts.recipe.eval_masking} masks at {HELD_OUT_RATE:.0%}; of the "
            "order of two segments, half is right by chance."
        )
    else:
        parts.append(missing("held-out figures; the run had no held-out text"))
    if scored is not None:
        parts.append(
            f"At several depths, on {scored.tokens:,} tokens of that text in inputs of up to {scored.length} "
            "(`litebert evaluate MODEL --corpus STORE --depths`); nothing was trained for the smaller ones:"
        )
        parts.append(_held_out_table(scored.by_depth))
    elif len(facts.held_out) == 1:
        parts.append(missing("held-out figures of smaller depths (`litebert evaluate MODEL --corpus STORE --depths`)"))
    parts += [f"![Loss over the run]({picture})" for picture in pictures]
    if not pictures:
        parts.append(missing("the curve of the loss; the run left no loss.png"))
    return "\n\n".join(parts)


def _held_out_table(by_depth: Mapping[int, Mapping[str, float]]) -> str:
    names = list(dict.fromkeys(name for row in by_depth.values() for name in row))
    rows = [
        [str(depth), *(_held_out_cell(name, by_depth[depth].get(name)) for name in names)]
        for depth in sorted(by_depth, reverse=True)
    ]
    return markdown_table(["depth", *(name.replace("mlm", "masked words").replace("_", " ") for name in names)], rows)


def _held_out_cell(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{100 * value:.1f}%" if name.endswith("accuracy") else f"{value:.3f}"


def _limits(model: Model | None, description: str) -> str:
    """What the model predicts where a text leaves open who somebody is: fixed texts, as found; a look, no measure."""
    parts = [description.strip() or missing("a text about limits (--limits FILE)")]
    if model is None:
        parts.append(missing("a look at biases; the run's folder has no weights to ask (name the model with --model)"))
        return "\n\n".join(parts)
    mask = model.tokenizer.mask_token if model.tokenizer and model.tokenizer.mask_token else "[MASK]"
    texts = [PRONOUN.format(occupation).replace("[MASK]", mask) for occupation in OCCUPATIONS]
    rows = []
    for occupation, masks in zip(OCCUPATIONS, model.fill(texts, LOOKED_AT), strict=True):
        shares = {guess.word: f"{guess.probability:.1%}" for guess in reversed(masks[0])}
        rows.append([occupation, *(shares.get(word, f"not in the first {LOOKED_AT}") for word in ("he", "she"))])
    found = model.fill([text.replace("[MASK]", mask) for text in OPEN], 5)
    firsts = [", ".join(f"{guess.word} {guess.probability:.1%}" for guess in masks[0]) for masks in found]
    parts += [
        "What the model predicts in a few fixed texts, as found; a look, not a measure. "
        f"Who is tired in `{PRONOUN.format('…')}`:",
        markdown_table(["", "he", "she"], rows),
        markdown_table(["text", "first five"], list(zip(OPEN, firsts, strict=True)), left=2),
    ]
    return "\n\n".join(parts)


def _made_with(results: Results, settings: CardSettings) -> str:
    lines = list(dict.fromkeys((*settings.commands, *results.commands)))
    if not lines:
        return missing("the commands; add them with --command")
    return "```\n" + "\n".join(lines) + "\n```"
