"""A look into a store as text for the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from litebert.corpus.look import BatchFigures, Example, Look, Part
from litebert.terminal import text_width

BARS = " ▁▂▃▄▅▆▇█"
STYLES = {"mask": "bold yellow", "random": "bold red", "kept": "green"}


def print_look(look: Look, console: Console | None = None) -> None:
    """Print all of it."""
    console = console or Console(width=text_width(), highlight=False)
    console.print(f"[bold]{look.store}[/bold]  {look.vocab_size:,} pieces, fingerprint {look.fingerprint[:12] or '-'}")
    console.print(split_table(look))
    if look.batches:
        print_batches(look, look.batches, console)
    for note in look.notes:
        console.print(f"[yellow]note:[/yellow] {note}")
    for example in look.examples:
        console.print()
        console.print(example_text(example))


def split_table(look: Look) -> Table:
    """Counts and lengths, a column a split."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in look.splits:
        table.add_column(name, justify="right")
    splits = list(look.splits.values())

    def row(name: str, *values: str) -> None:
        table.add_row(name, *values)

    row("documents", *(f"{s.documents:,}" for s in splits))
    row("  of one sentence", *(f"{s.one_sentence_documents:,}" for s in splits))
    row("sentences", *(f"{s.sentences:,}" for s in splits))
    row("words", *(f"{s.words:,}" for s in splits))
    row("tokens", *(f"{s.tokens:,}" for s in splits))
    row("  unknown", *(f"{s.unknown:,} ({s.unknown / max(1, s.tokens):.3%})" for s in splits))
    row("tokens per word", *(f"{s.tokens_per_word:.3f}" for s in splits))
    row("characters per token", *(f"{s.characters_per_token:.2f}" for s in splits))
    for kind, name in (("sentence", "tokens of a sentence"), ("document", "tokens of a document")):
        found = [getattr(split, f"{kind}_percentiles") for split in splits]
        row(name)
        for percent in (10, 50, 90):
            row(f"  {percent}% have at most", *(f"{percentiles[percent]:,}" for percentiles in found))
    return table


def print_batches(look: Look, figures: BatchFigures, console: Console) -> None:
    """Batches, labels and masks."""
    settings = look.settings
    console.print(
        f"\n[bold]batches[/bold] of {settings.budget:,} tokens, inputs of {settings.length} at the most, order "
        f"{settings.order}, {settings.masking} masks at {settings.rate:.0%}, seed {settings.seed}"
    )
    table = Table(box=None, pad_edge=False, show_header=False)
    total = figures.in_order + figures.swapped + figures.unlabelled
    table.add_row("batches in the epoch", f"{figures.batches:,} ({figures.sampled:,} looked at)")
    table.add_row("fill", f"{figures.fill:.2%}")
    table.add_row("input length", f"mean {figures.mean_length:.1f}  {bars(figures.lengths)}  1 to {settings.length}")
    if settings.order != "none":
        names = ("in order", "swapped") if settings.order == "sop" else ("next", "random")
        pairs = max(1, figures.in_order + figures.swapped)
        table.add_row(
            "order labels",
            f"{figures.in_order / pairs:.1%} {names[0]}, {figures.swapped / pairs:.1%} {names[1]}; "
            f"{figures.unlabelled / total:.1%} of inputs have none",
        )
    table.add_row("masked", f"{figures.masked:.2%} of the text")
    table.add_row(
        "  shown as",
        f"[MASK] {figures.shown_as_mask:.1%}, random {figures.shown_as_random:.1%}, as is {figures.shown_as_is:.1%}",
        style=None,
    )
    spans = max(1, sum(figures.ngrams))
    table.add_row(
        "  words of a span",
        ", ".join(
            f"{n + 1}: {count / spans:.2%} ({share:.2%} drawn)"
            for n, (count, share) in enumerate(zip(figures.ngrams, figures.ngrams_expected, strict=True))
        ),
    )
    console.print(table)


def bars(counts: list[int], width: int = 32) -> str:
    """A histogram in one line."""
    size = max(1, -(-(len(counts) - 1) // width))
    sums = [sum(counts[1 + first : 1 + first + size]) for first in range(0, len(counts) - 1, size)]
    most = max([*sums, 1])
    return "".join(BARS[-(-value * (len(BARS) - 1) // most)] for value in sums)


def example_text(example: Example) -> Text:
    """``[MASK: what was there]``, ``[wrong: right]`` and ``[= kept]`` in the text."""
    text = Text().append(f"({example.label}) ", style="bold")
    for number, segment in enumerate(example.segments):
        if number:
            text.append("\n  [SEP] ", style="bold")
        for part in segment:
            text.append(*styled(part))
    return text


def styled(part: Part) -> tuple[str, str]:
    """A part of an example and its style."""
    if not part.shown:
        return part.text, ""
    space = " " if part.text.startswith(" ") else ""
    shown = {"mask": "MASK: ", "random": f"{part.instead}: ", "kept": "= "}[part.shown]
    return f"{space}[{shown}{part.text.strip()}]", STYLES[part.shown]
