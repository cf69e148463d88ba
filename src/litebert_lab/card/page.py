"""A model card as Markdown, section by section, out of a run's files and results. Parts without data say so."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import yaml

from litebert.durations import format_duration
from litebert.planning.table import large_number
from litebert.pretraining.held_out import HELD_OUT_RATE
from litebert_lab.card.bias import PRONOUN, Pronouns
from litebert_lab.card.facts import Corpus, Facts
from litebert_lab.card.results import HeldOutScores, Results
from litebert_lab.card.tables import Published, cloze_table, depths_of, main_table, markdown_table, spread_table


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a person adds to the files of a run."""

    name: str
    hardware: str = ""
    watts: float | None = None
    data_text: str = ""
    limits: str = ""
    pictures: tuple[str, ...] = ()  # of the loss of every part, beside the card
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the model said where a text left open who somebody is."""

    pronouns: Sequence[Pronouns] = field(default_factory=list)
    open_ends: Sequence[tuple[str, list[str]]] = field(default_factory=list)


def card(facts: Facts, results: Results, published: Sequence[Published], seen: Seen, given: Given) -> str:
    """The whole card."""
    sections = [
        f"# {given.name}",
        _opening(facts),
        "## Results",
        _results(facts, results, published, given),
        "## Text",
        _text(facts.corpus, facts.all_tokens, given.data_text),
        "## How it was trained",
        _training(facts, given),
        "## Held-out text",
        _held_out(facts, results.held_out, given.pictures),
        "## Limits and biases",
        _limits(seen, given.limits),
        "## Made with",
        _made_with(facts, results, given),
    ]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def missing(what: str) -> str:
    """How a card says that something is not known."""
    return f"*Missing: {what}.*"


def _opening(facts: Facts) -> str:
    encoder = facts.encoder
    shared = "layers that share one block" if len(set(encoder.plan)) == 1 < len(encoder.plan) else "layers"
    took = f" for {format_duration(facts.all_seconds)}" if facts.all_seconds is not None else ""
    read = f" on {large_number(facts.all_tokens)} tokens" if facts.all_tokens is not None else ""
    languages = f" ({' and '.join(facts.corpus.languages)})" if facts.corpus and facts.corpus.languages else ""
    size = f"{facts.parameters.with_heads / 1e6:.1f} million parameters"
    return (
        f"A text encoder of the {encoder.family.upper()} kind{languages}: {encoder.num_layers} {shared}, width "
        f"{encoder.width}, {size}; pretrained by litebert{took}{read}."
    )


def _results(facts: Facts, results: Results, published: Sequence[Published], given: Given) -> str:
    parts = []
    if depths_of(results):
        size = f"{facts.parameters.bare / 1e6:.1f}M"
        hardware = given.hardware or facts.hardware
        took = format_duration(facts.all_seconds) if facts.all_seconds is not None else "time not known"
        budget = f"{took}{f' of {hardware}' if hardware else ''}"
        parts.append(main_table(given.name, size, budget, results, published))
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


def _text(corpus: Corpus | None, tokens: int | None, said: str) -> str:
    parts = [said.strip()] if said.strip() else []
    if corpus is None:
        parts.append(
            missing("counts of the text; the token store is not where the run read it (name it with --corpus)")
        )
    else:
        headings = ["split", *next(iter(corpus.counts.values()))]
        rows = [
            [split.replace("_", " "), *(f"{count:,}" for count in row.values())] for split, row in corpus.counts.items()
        ]
        parts.append(markdown_table(headings, rows))
        seen = (
            f" Training read {tokens / corpus.counts['train']['tokens']:.1f} times the training text." if tokens else ""
        )
        parts.append(
            f"A vocabulary of {corpus.vocab_size:,} pieces. Read from {', '.join(corpus.sources)}.{seen} "
            f"Fingerprint of the token store: `{corpus.fingerprint[:16]}`."
        )
    return "\n\n".join(parts)


def _training(facts: Facts, given: Given) -> str:
    """A column for every part, then their recipes."""
    columns = [_part(part, given) for part in facts.parts]
    names = [f"part {number}" for number in range(1, len(columns) + 1)] if len(columns) > 1 else [""]
    rows = [[name, *(column.get(name, "") for column in columns)] for name in dict.fromkeys(chain(*columns))]
    sections = [markdown_table(["", *names], rows, left=1 + len(columns)), _energy(facts, given)]
    if len(columns) > 1:
        sections.append("Every part started from the model that the one before it had made.")
    for name, part in zip(names, facts.parts, strict=True):
        recipe = yaml.safe_dump(part.run.settings["recipe"], sort_keys=False, default_flow_style=None, width=100)
        of = f" of {name}" if name else ""
        sections.append(f"The recipe{of} with nothing left out:\n\n```yaml\n{recipe}```")
    return "\n\n".join(sections)


def _part(facts: Facts, given: Given) -> dict[str, str]:
    """What is known of one run."""
    settings = facts.run.settings
    hardware = given.hardware or facts.hardware or f"{settings.get('device', 'device')}, its name was not recorded"
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


def _energy(facts: Facts, given: Given) -> str:
    """Power by time; whose power it is, is said."""
    watts, source = (given.watts, "assumed") if given.watts is not None else (facts.watts, "recorded in the run")
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


def _limits(seen: Seen, said: str) -> str:
    parts = [said.strip() or missing("a text about limits (--limits FILE)")]
    if not seen.pronouns:
        parts.append(missing("a look at biases; the run's folder has no weights to ask (name the model with --model)"))
        return "\n\n".join(parts)
    parts.append(
        "What the model says of a few fixed texts, as found; a look, not a measure. "
        f"Who is tired in `{PRONOUN.format('…')}`:"
    )
    rows = [[one.occupation, _share(one.he), _share(one.she)] for one in seen.pronouns]
    parts.append(markdown_table(["", "he", "she"], rows))
    parts.append(
        markdown_table(["text", "first five"], [[text, ", ".join(words)] for text, words in seen.open_ends], left=2)
    )
    return "\n\n".join(parts)


def _share(share: float | None) -> str:
    return "not in the first 100" if share is None else f"{share:.1%}"


def _made_with(facts: Facts, results: Results, given: Given) -> str:
    lines = list(dict.fromkeys((*given.commands, *results.commands)))
    if not lines:
        return missing("the commands; add them with --command")
    return "```\n" + "\n".join(lines) + "\n```"
