"""A look into a store as one HTML page that needs nothing else: tables, plots as inlined SVG, examples."""

import html
from collections.abc import Callable
from functools import partial

from matplotlib.axes import Axes

from litebert.corpus.look import BatchFigures, Example, Look, Part
from litebert.drawing import plot

_plot = partial(plot, size=(4.2, 2.7), title_size=11)

BLUE, ORANGE, GREY = "#2563a8", "#d9822b", "#b8bec7"
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1c2430; max-width: 1080px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin-bottom: 0; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.quiet { color: #5b6675; } .note { background: #fff4dd; padding: .5rem .8rem; border-radius: 4px; }
table { border-collapse: collapse; } th, td { text-align: right; padding: .15rem .9rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; } tr { border-bottom: 1px solid #e6e9ee; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(320px, 1fr)); gap: 1rem; }
.plots svg { width: 100%; height: auto; }
.example { border-left: 3px solid #b8bec7; padding-left: .8rem; margin: 1rem 0; }
.example p { margin: .2rem 0; } .mask { background: #ffe08a; } .random { background: #ffc2b8; }
.kept { background: #cdebd0; } .mask, .random, .kept { border-radius: 3px; padding: 0 .2em; }
.was { color: #5b6675; font-size: .85em; }
"""


def make_page(look: Look) -> str:
    """The page."""
    settings = look.settings
    parts = [
        f"<h1>{html.escape(look.store)}</h1>",
        f"<p class=quiet>{look.vocab_size:,} pieces, fingerprint {look.fingerprint[:12] or 'none'}</p>",
        *(f"<p class=note>{html.escape(note)}</p>" for note in look.notes),
        "<h2>Text</h2>",
        _table(_split_rows(look)),
    ]
    if look.batches:
        described = (
            f"{settings.budget:,} tokens a batch, inputs of {settings.length} at the most, order {settings.order}, "
            f"{settings.masking} masks at {settings.rate:.0%}, seed {settings.seed}"
        )
        parts += [f"<h2>Batches</h2><p class=quiet>{described}</p>", _table(_batch_rows(look, look.batches))]
    parts += ["<h2>Plots</h2><div class=plots>", *map(_plot, _plots(look)), "</div>"]
    if look.examples:
        parts += [
            "<h2>Examples</h2><p class=quiet><span class=mask>masked</span> what was there, "
            "<span class=random>replaced</span> <span class=was>what was there</span>, "
            "<span class=kept>to predict but left as it is</span></p>",
            *map(_example, look.examples),
        ]
    title = f"<title>{html.escape(look.store)}</title>"
    return f"<!doctype html><html lang=en><meta charset=utf-8>{title}<style>{STYLE}</style>{''.join(parts)}</html>\n"


def _table(rows: list[tuple[str, ...]]) -> str:
    cells = ["".join(f"<td>{html.escape(cell)}</td>" for cell in row) for row in rows]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _split_rows(look: Look) -> list[tuple[str, ...]]:
    splits = list(look.splits.values())
    return [
        ("", *look.splits),
        ("documents", *(f"{s.documents:,}" for s in splits)),
        ("of one sentence", *(f"{s.one_sentence_documents:,}" for s in splits)),
        ("sentences", *(f"{s.sentences:,}" for s in splits)),
        ("words", *(f"{s.words:,}" for s in splits)),
        ("tokens", *(f"{s.tokens:,}" for s in splits)),
        ("unknown tokens", *(f"{s.unknown / max(1, s.tokens):.3%}" for s in splits)),
        ("tokens per word", *(f"{s.tokens_per_word:.3f}" for s in splits)),
        ("characters per token", *(f"{s.characters_per_token:.2f}" for s in splits)),
    ]


def _batch_rows(look: Look, figures: BatchFigures) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        ("batches in the epoch", f"{figures.batches:,}"),
        ("looked at", f"{figures.sampled:,}"),
        ("fill", f"{figures.fill:.2%}"),
        ("mean length of an input", f"{figures.mean_length:.1f}"),
        ("masked", f"{figures.masked:.2%} of the text"),
    ]
    return rows


def _plots(look: Look) -> list[Callable[[Axes], None]]:
    """What to draw, each on its own axes."""
    split = next(iter(look.splits.values()))
    figures = look.batches

    def sentences(axes: Axes) -> None:
        counts = split.sentence_histogram[: 2 * split.sentence_percentiles[99]]
        axes.bar(range(len(counts)), counts, width=1, color=BLUE)
        axes.set(title="tokens of a sentence", ylabel="sentences")

    def documents(axes: Axes) -> None:
        counts = split.document_histogram
        axes.bar(range(len(counts)), counts, color=BLUE)
        axes.set_xticks(range(0, len(counts), 2), [f"{2**n:,}" for n in range(0, len(counts), 2)], rotation=45)
        axes.set(title="tokens of a document, in doublings", ylabel="documents")

    if figures is None:
        return [sentences, documents]
    found = figures

    def lengths(axes: Axes) -> None:
        axes.bar(range(len(found.lengths)), found.lengths, width=1, color=BLUE)
        axes.set(title="tokens of an input", ylabel="inputs")

    def ngrams(axes: Axes) -> None:
        places = range(1, len(found.ngrams) + 1)
        shares = [count / max(1, sum(found.ngrams)) for count in found.ngrams]
        axes.bar([place - 0.2 for place in places], shares, 0.4, color=BLUE, label="found")
        axes.bar([place + 0.2 for place in places], found.ngrams_expected, 0.4, color=GREY, label="drawn as")
        axes.set_xticks(list(places))
        axes.legend(frameon=False)
        axes.set(title="words of a masked span", ylabel="share of spans")

    def shown(axes: Axes) -> None:
        values = [found.shown_as_mask, found.shown_as_random, found.shown_as_is]
        axes.bar(["[MASK]", "random", "as is"], values, color=BLUE)
        axes.hlines([0.8, 0.1, 0.1], [-0.4, 0.6, 1.6], [0.4, 1.4, 2.4], color=ORANGE)
        axes.set(title="what stands at a place to predict", ylabel="share")

    def labels(axes: Axes) -> None:
        names = ("in order", "swapped") if look.settings.order == "sop" else ("next", "random")
        axes.bar([*names, "no pair"], [found.in_order, found.swapped, found.unlabelled], color=[BLUE, BLUE, GREY])
        axes.set(title="order labels", ylabel="inputs")

    plots: list[Callable[[Axes], None]] = [sentences, documents, lengths, ngrams, shown]
    if look.settings.order != "none":
        plots.append(labels)
    return plots


def _example(example: Example) -> str:
    segments = ["".join(map(_part, segment)) for segment in example.segments]
    return f"<div class=example><b>{example.label}</b>{''.join(f'<p>{segment}</p>' for segment in segments)}</div>"


def _part(part: Part) -> str:
    text = html.escape(part.text.strip() if part.shown else part.text)
    space = " " if part.shown and part.text.startswith(" ") else ""
    if part.shown == "random":
        return f"{space}<span class=random>{html.escape(part.instead)}</span> <span class=was>{text}</span>"
    return f"{space}<span class={part.shown}>{text}</span>" if part.shown else text
