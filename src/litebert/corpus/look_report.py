"""A look into a store as a report: counts, batches, masks, and inputs as a person would read them."""

import dataclasses

from litebert.corpus.look import BatchFigures, Example, Look, Part
from litebert.report import Item, Note, Report, Section, Style, Table, note, notes

STYLES: dict[str, Style] = {"": "", "mask": "warning", "random": "bad", "kept": "good"}


def look_report(look: Look) -> Report:
    """All of it."""
    counts = f"{look.vocab_size:,} pieces, fingerprint {look.fingerprint[:12] or '-'}"
    text: list[Item] = [note(counts, "quiet"), *notes(look.notes, "warning"), Table(rows=_split_rows(look))]
    sections = [Section(items=text)]
    if look.batches:
        settings = look.settings
        described = (
            f"{settings.budget:,} tokens, inputs of at most {settings.length}, order {settings.order}, "
            f"{settings.masking} masks at {settings.rate:.0%}, seed {settings.seed}"
        )
        rows = Table(rows=_batch_rows(look, look.batches), heading=False, left=(0, 1))
        sections.append(Section(title="Batches", items=[note(described, "quiet"), rows]))
    if look.examples:
        sections.append(Section(title="Examples", items=[_example(example) for example in look.examples]))
    return Report(title=look.store, sections=sections, data=dataclasses.asdict(look))


def _split_rows(look: Look) -> list[list[str]]:
    """Counts and lengths, a column for each split."""
    splits = list(look.splits.values())
    rows = [
        ["", *look.splits],
        ["documents", *(f"{s.documents:,}" for s in splits)],
        ["  of one sentence", *(f"{s.one_sentence_documents:,}" for s in splits)],
        ["sentences", *(f"{s.sentences:,}" for s in splits)],
        ["words", *(f"{s.words:,}" for s in splits)],
        ["tokens", *(f"{s.tokens:,}" for s in splits)],
        ["  unknown", *(f"{s.unknown:,} ({s.unknown / max(1, s.tokens):.3%})" for s in splits)],
        ["tokens per word", *(f"{s.tokens_per_word:.3f}" for s in splits)],
        ["characters per token", *(f"{s.characters_per_token:.2f}" for s in splits)],
    ]
    for unit in ("sentence", "document"):
        found = [getattr(split, f"{unit}_percentiles") for split in splits]
        rows.append([f"tokens of a {unit}", *("" for _ in splits)])
        rows += [[f"  {percent}% have at most", *(f"{each[percent]:,}" for each in found)] for percent in (10, 50, 90)]
    return rows


def _batch_rows(look: Look, figures: BatchFigures) -> list[list[str]]:
    total = figures.in_order + figures.swapped + figures.unlabelled
    rows = [
        ["batches in the epoch", f"{figures.batches:,} ({figures.sampled:,} looked at)"],
        ["fill", f"{figures.fill:.2%}"],
        ["input length", f"mean {figures.mean_length:.1f}, longest {figures.longest:,}"],
    ]
    if look.settings.order != "none":
        names = ("in order", "swapped") if look.settings.order == "sop" else ("next", "random")
        pairs = max(1, figures.in_order + figures.swapped)
        shares = f"{figures.in_order / pairs:.1%} {names[0]}, {figures.swapped / pairs:.1%} {names[1]}"
        rows.append(["order labels", f"{shares}; {figures.unlabelled / total:.1%} of inputs have none"])
    spans = max(1, sum(figures.ngrams))
    counted = zip(figures.ngrams, figures.ngrams_expected, strict=True)
    words = [f"{n}: {count / spans:.2%} ({share:.2%} drawn)" for n, (count, share) in enumerate(counted, 1)]
    shown = (figures.shown_as_mask, figures.shown_as_random, figures.shown_as_is)
    return [
        *rows,
        ["masked", f"{figures.masked:.2%} of the text"],
        ["  shown as", "[MASK] {:.1%}, random {:.1%}, unchanged {:.1%}".format(*shown)],
        ["  words of a span", ", ".join(words)],
    ]


def _example(example: Example) -> Note:
    """``[MASK: what was there]``, ``[wrong: right]`` and ``[= kept]`` in the text."""
    spans: list[tuple[str, Style]] = [(f"({example.label}) ", "strong")]
    for number, segment in enumerate(example.segments):
        if number:
            spans.append(("\n[SEP] ", "strong"))
        spans += [_span(part) for part in segment]
    return Note(tuple(spans), "example")


def _span(part: Part) -> tuple[str, Style]:
    if not part.shown:
        return part.text, ""
    space = " " if part.text.startswith(" ") else ""
    shown = {"mask": "MASK: ", "random": f"{part.instead}: ", "kept": "= "}[part.shown]
    return f"{space}[{shown}{part.text.strip()}]", STYLES[part.shown]
