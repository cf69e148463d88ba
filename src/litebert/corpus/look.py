"""What is in a token store and in the batches made of it: counts, lengths, masks, labels, examples, as a report.

Counts are of the whole store; what concerns batches is of the first ones of an epoch, up to a few million tokens.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from litebert.corpus.batches import Batch, Batches, BatchSettings
from litebert.corpus.masking import LONGEST_NGRAM
from litebert.corpus.pairs import UNLABELLED
from litebert.corpus.store import SPLITS, Split, Store
from litebert.corpus.windows import TooLittleTextError, opened
from litebert.errors import InputError
from litebert.report import Item, Note, Report, Section, Style, Table, note, notes
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import read_tokenizer

MOST_TOKENS = 4_000_000
MOST_DOCUMENTS = 200_000  # used for the percentiles of document lengths, from all shards
LONGEST_SENTENCE = 4096  # longer ones are counted as this long
PERCENTS = (1, 10, 50, 90, 99)
FEW = 10  # held-out documents, below which the summary warns
# What may stand in place of a token to predict, with the style it is printed in.
SHOWN: dict[str, Style] = {"mask": "warning", "random": "bad", "kept": "good"}
LABELS = {"sop": ("in order", "swapped"), "nsp": ("next", "random"), "none": ("", "")}


@dataclass(frozen=True, kw_only=True)
class SplitFigures:
    """One split of a store."""

    documents: int
    one_sentence_documents: int
    sentences: int
    words: int
    tokens: int
    unknown: int
    characters: int
    tokens_per_word: float
    characters_per_token: float
    sentence_percentiles: dict[int, int]  # tokens of a sentence
    document_percentiles: dict[int, int]  # tokens of a document
    sentence_histogram: list[int]  # sentences of 0, 1, 2, ... tokens
    document_histogram: list[int]  # documents of 1, 2-3, 4-7, ... tokens


@dataclass(frozen=True, kw_only=True)
class BatchFigures:
    """The batches of an epoch."""

    batches: int  # in the epoch
    sampled: int  # looked at
    fill: float
    mean_length: float
    longest: int
    lengths: list[int]  # inputs of 0, 1, 2, ... tokens
    in_order: int  # or next, under nsp
    swapped: int  # or random
    unlabelled: int
    masked: float  # share of the text
    ngrams: list[int]  # spans of 1, 2, 3 words
    ngrams_expected: list[float]  # their shares as drawn
    shown_as_mask: float
    shown_as_random: float
    shown_as_is: float


@dataclass(frozen=True)
class Part:
    """A stretch of an example's text: as it was, and what stands there if it is to be predicted."""

    text: str
    shown: str  # "" where the text is left alone, else "mask", "random" or "kept"
    instead: str = ""  # what stands there, where it is random


@dataclass(frozen=True)
class Example:
    """An input as a person would read it."""

    label: str
    segments: list[list[Part]]


@dataclass(frozen=True, kw_only=True)
class Look:
    """Figures of a store and its batches, and examples."""

    store: str
    fingerprint: str
    vocab_size: int
    splits: dict[str, SplitFigures]
    settings: BatchSettings
    batches: BatchFigures | None
    examples: list[Example]
    notes: list[str]


def look(
    store: Store,
    settings: BatchSettings,
    *,
    split: str = "train",
    epoch: int = 0,
    num_examples: int = 3,
    report: Callable[[str], None] = lambda _: None,
) -> Look:
    """Look into a store and the batches that ``settings`` make of it; ``say`` gets a line about what is being done."""
    found: list[str] = []
    figures = {name: measure_split(store.split(name)) for name in SPLITS if store.split(name).num_tokens}
    if not figures:
        raise InputError(f"{store.folder} holds no text")
    batch_figures, examples = None, []
    try:
        report("making batches (the first time, the code that makes them is compiled: about twenty seconds)")
        batches = Batches(store, split, settings)
        batch_figures, first = measure_batches(batches, epoch)
        examples = make_examples(first, settings, read_tokenizer(store.tokenizer_folder), num_examples)
        found += order_notes(settings, batch_figures, figures[split])
    except TooLittleTextError as error:  # a store too small for batches can still be looked at
        found.append(str(error))
    return Look(
        store=str(store.folder),
        fingerprint=store.fingerprint,
        vocab_size=store.vocab_size,
        splits=figures,
        settings=settings,
        batches=batch_figures,
        examples=examples,
        notes=found,
    )


def measure_split(split: Split) -> SplitFigures:
    """Counts and lengths, shard by shard."""
    sentences = np.zeros(LONGEST_SENTENCE + 1, np.int64)
    documents = np.zeros(40, np.int64)
    sizes: list[npt.NDArray[np.int64]] = []
    for shard in map(opened, split.shards):
        lengths = np.diff(shard.sentences.astype(np.int64))
        sentences += np.bincount(lengths.clip(max=LONGEST_SENTENCE), minlength=LONGEST_SENTENCE + 1)
        of_documents = np.diff(shard.sentences[shard.documents].astype(np.int64)).astype(np.int64)
        documents += np.bincount(np.log2(of_documents.clip(min=1)).astype(int), minlength=40)[:40]
        sizes.append(of_documents[: max(100, MOST_DOCUMENTS // len(split.shards))])
    return SplitFigures(
        documents=split.num_documents,
        one_sentence_documents=split.num_one_sentence,
        sentences=split.num_sentences,
        words=split.num_words,
        tokens=split.num_tokens,
        unknown=split.num_unknown,
        characters=split.num_characters,
        tokens_per_word=split.num_tokens / max(1, split.num_words),
        characters_per_token=split.num_characters / max(1, split.num_tokens),
        sentence_percentiles=dict(zip(PERCENTS, _percentiles(sentences), strict=True)),
        document_percentiles={p: int(np.percentile(np.concatenate(sizes), p)) for p in PERCENTS},
        sentence_histogram=np.trim_zeros(sentences, "b").tolist(),
        document_histogram=np.trim_zeros(documents, "b").tolist(),
    )


def _percentiles(histogram: npt.NDArray[np.int64]) -> list[int]:
    total = np.cumsum(histogram)
    return [int(np.searchsorted(total, total[-1] * percent / 100)) for percent in PERCENTS]


def measure_batches(batches: Batches, epoch: int) -> tuple[BatchFigures, Batch]:
    """The figures of the first batches of an epoch, and the first of them."""
    settings = batches.settings
    count = min(batches.len(epoch), max(1, MOST_TOKENS // settings.budget))
    lengths = np.zeros(settings.length + 1, np.int64)
    ngrams = np.zeros(LONGEST_NGRAM + 1, np.int64)
    shown = np.zeros(3, np.int64)
    labels = {0: 0, 1: 0, UNLABELLED: 0}
    used, text = 0, 0
    for index in range(count):
        batch = batches.batch(epoch, index)
        lengths += np.bincount(np.diff(batch.starts[: batch.num_sequences + 1]), minlength=settings.length + 1)
        ngrams += np.bincount(batch.ngrams, minlength=LONGEST_NGRAM + 1)
        for label in labels:
            labels[label] += int((batch.order_labels[: batch.num_sequences] == label).sum())
        kinds = _kinds(batch, batches.mask_id)
        shown += np.bincount(kinds[kinds >= 0], minlength=3)
        used += batch.num_tokens
        text += int(batches.is_text(originals(batch)).sum())
    total = max(1, int(shown.sum()))
    longest = LONGEST_NGRAM if settings.masking == "ngram" else 1
    weights = 1 / np.arange(1, longest + 1)
    figures = BatchFigures(
        batches=batches.len(epoch),
        sampled=count,
        fill=used / count / settings.budget,
        mean_length=used / int(lengths.sum()),
        longest=int(np.flatnonzero(lengths)[-1]),
        lengths=lengths.tolist(),
        in_order=labels[0],
        swapped=labels[1],
        unlabelled=labels[UNLABELLED],
        masked=total / text,
        ngrams=ngrams[1 : longest + 1].tolist(),
        ngrams_expected=(weights / weights.sum()).tolist(),
        shown_as_mask=int(shown[0]) / total,
        shown_as_random=int(shown[1]) / total,
        shown_as_is=int(shown[2]) / total,
    )
    return figures, batches.batch(epoch, 0)


def originals(batch: Batch) -> npt.NDArray[np.int32]:
    """The ids of a batch as they were before masking."""
    ids = batch.ids[: batch.num_tokens].copy()
    ids[batch.mask_positions[: batch.num_masked]] = batch.mask_targets[: batch.num_masked]
    return ids


def _kinds(batch: Batch, mask_id: int) -> npt.NDArray[np.int64]:
    """For each token, -1 where it is left alone, else the index in ``SHOWN`` of what was done with it."""
    kinds = np.full(batch.num_tokens, -1)
    positions, targets = batch.mask_positions[: batch.num_masked], batch.mask_targets[: batch.num_masked]
    now = batch.ids[positions]
    kinds[positions] = np.where(now == mask_id, 0, np.where(now == targets, 2, 1))
    return kinds


def order_notes(settings: BatchSettings, figures: BatchFigures, split: SplitFigures) -> list[str]:
    """What a user should know about inputs without an order label."""
    notes: list[str] = []
    total = figures.in_order + figures.swapped + figures.unlabelled
    if settings.order == "none" or not total:
        return notes
    if split.one_sentence_documents:
        notes.append(
            f"{split.one_sentence_documents:,} documents of one sentence are used for masking only: no pair can be made"
        )
    if figures.unlabelled > total / 2:
        where = "lie at an edge of their document or are" if settings.order == "sop" else "are"
        hint = ", or --edges pairs for labels at the edges, too" if settings.order == "sop" else ""
        notes.append(
            f"{figures.unlabelled / total:.0%} of inputs have no order label, because they {where} one sentence; with "
            f"a shorter --length than {settings.length} more have one{hint}"
        )
    return notes


def make_examples(batch: Batch, settings: BatchSettings, tokenizer: Tokenizer, count: int) -> list[Example]:
    """The first inputs of a batch, preferring one of each label."""
    names = dict(enumerate(LABELS[settings.order]))
    labels = batch.order_labels[: batch.num_sequences].tolist()
    firsts = [labels.index(label) for label in dict.fromkeys(labels)]
    chosen = [*firsts, *(number for number in range(len(labels)) if number not in firsts)][:count]
    ids = originals(batch)
    kinds = _kinds(batch, -1 if tokenizer.mask_id is None else tokenizer.mask_id)
    examples = []
    for number in chosen:
        begin, end = int(batch.starts[number]), int(batch.starts[number + 1])
        middle = begin + int((batch.segments[begin:end] == 0).sum())
        spans = [(begin + 1, middle - 1)] + ([(middle, end - 1)] if middle < end else [])
        segments = [
            _parts(ids[a:b].tolist(), batch.ids[a:b].tolist(), kinds[a:b].tolist(), tokenizer) for a, b in spans
        ]
        examples.append(Example(names.get(labels[number], "no pair"), segments))
    return examples


def _parts(ids: Sequence[int], now: Sequence[int], kinds: Sequence[int], tokenizer: Tokenizer) -> list[Part]:
    """A segment as runs of text that were treated alike."""
    parts: list[Part] = []
    for place, text in enumerate(_texts(ids, tokenizer)):
        kind = kinds[place]
        shown = list(SHOWN)[kind] if kind >= 0 else ""
        instead = tokenizer.piece(now[place]).replace("▁", " ").strip() if shown == "random" else ""
        if parts and parts[-1].shown == shown and shown != "random":
            parts[-1] = Part(parts[-1].text + text, shown)
        else:
            parts.append(Part(text, shown, instead))
    return parts


def _texts(ids: Sequence[int], tokenizer: Tokenizer) -> list[str]:
    """What each token adds to the text of those before it, spaces included."""
    texts, before = [], ""
    for place in range(len(ids)):
        after = tokenizer.decode(ids[: place + 1], keep_special=True)
        if after.startswith(before):
            texts.append(after[len(before) :])
        else:  # the decoder moved a space or joined bytes: good enough for reading
            texts.append(tokenizer.piece(ids[place]).replace("▁", " "))
        before = after
    return texts


def look_report(look: Look) -> Report:
    """Counts, batches, masks, and inputs as a person would read them."""
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
    return Report(title=look.store, sections=sections, data=asdict(look))


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
        pairs, (ordered, swapped) = max(1, figures.in_order + figures.swapped), LABELS[look.settings.order]
        shares = f"{figures.in_order / pairs:.1%} {ordered}, {figures.swapped / pairs:.1%} {swapped}"
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
    return f"{space}[{shown}{part.text.strip()}]", SHOWN[part.shown]


def store_report(store: Store) -> Report:
    """The counts of a finished store."""
    manifest, splits = store.manifest, [store.split(name) for name in SPLITS]
    rows = [["", "documents", "sentences", "words", "tokens", "shards"]]
    for split in splits:
        counts = (split.num_documents, split.num_sentences, split.num_words, split.num_tokens, len(split.shards))
        rows.append([split.name, *(f"{count:,}" for count in counts)])
    single, tokens, unknown = (
        sum(getattr(split, f"num_{name}") for split in splits) for name in ("one_sentence", "tokens", "unknown")
    )
    held_out = store.split("held_out").num_documents
    remarks = {
        f"{manifest.duplicates:,} documents occurred before and were left out": manifest.duplicates,
        f"{manifest.empty:,} documents had no text and were left out": manifest.empty,
        f"{single:,} documents have one sentence: no pair can be made of them, they serve masking only": single,
        f"{unknown / max(1, tokens):.1%} of the tokens are unknown: this tokenizer was not made for this text": (
            unknown * 100 > tokens
        ),
        "nothing is held out: the corpus is too small for the share, or the share is 0": not held_out,
        f"{held_out} held out: figures will rest on few documents; a larger --held-out takes more": 0 < held_out < FEW,
    }
    items: list[Item] = [Table(rows=rows), *notes(remark for remark, applies in remarks.items() if applies)]
    title = f"{store.folder}: {manifest.documents_read:,} documents read, fingerprint {store.fingerprint[:12]}"
    return Report(title=title, sections=[Section(items=items)])
