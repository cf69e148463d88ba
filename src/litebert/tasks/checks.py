"""Checks of a task's data: what will make a model learn badly or score too well, each in a sentence.

Before training the data is looked at; before scoring, rows are compared with fingerprints of some training rows that
a model remembers.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Sequence

from litebert.tasks.examples import Example, Item, Question, TaskData, text_key
from litebert.tasks.kinds import KINDS

UNEVEN = 0.8  # a share of the rows above which one class makes accuracy uninformative
FEW = 10  # fewer examples of a class than this are hard to learn from
LONG_CHARACTERS = 100_000
PIECES_PER_WORD = 1.3
REMEMBERED = 64  # fingerprints: half of the rows known would show as about 32 of them
FINGERPRINT = 8  # hexadecimal digits
WORDS = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff]|[^\W\d_]+|\d|[^\w\s]")


def look_at(data: TaskData, *, max_length: int = 512) -> list[str]:
    """Warnings about the data; none where all is well."""
    dev = [item for items in data.dev.values() for item in items]
    return [
        *_spellings(data.labels),
        *_balance(data, dev),
        *_lengths(data.train, max_length),
        *_duplicates(data.train),
        *_leak(data.train, dev),
    ]


def num_characters(item: Item) -> int:
    """Characters of an item's text, of the longest option where there are some."""
    return sum(map(len, item.texts[:2])) + max(map(len, item.texts[2:]), default=0)


def estimated_pieces(item: Item) -> int:
    """About how many tokens an item is, options left out: words and signs, with something for cut words."""
    return int(PIECES_PER_WORD * sum(len(WORDS.findall(text)) for text in item.texts[:2])) + 3


def fingerprint(item: Item) -> str:
    """A short hash of what is read of an item, its answer left out."""
    return hashlib.sha256("\x1f".join(item.texts).encode()).hexdigest()[:FINGERPRINT]


def remember(items: Sequence[Item]) -> tuple[str, ...]:
    """Fingerprints of some items, from the first to the last."""
    step = max(1, len(items) // REMEMBERED)
    return tuple(fingerprint(item) for item in items[::step][:REMEMBERED])


def seen_warning(seen: Sequence[str], scored: Iterable[Item]) -> str | None:
    """A sentence where some of the rows that are scored were trained on."""
    found = set(seen) & {fingerprint(item) for item in scored}
    if not found:
        return None
    share = f"{len(found)} of {len(set(seen))} training rows that the model remembers are"
    return f"{share} among the rows scored here: it has seen such rows with their answers, so the figures flatter it"


def _spellings(labels: Sequence[str]) -> list[str]:
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(" ".join(label.casefold().split()), []).append(label)
    doubled = [" and ".join(f"'{name}'" for name in group) for group in groups.values() if len(group) > 1]
    return [f"labels that differ only in case or spaces: {_few(doubled)}; are they one?"] if doubled else []


def _balance(data: TaskData, dev: Sequence[Item]) -> list[str]:
    kind, counts, in_dev = KINDS[data.kind], _class_counts(data.train), _class_counts(dev)
    if not kind.has_classes or not counts:
        return []
    found = []
    common = [(data.labels[index], count) for index, count in counts.most_common()]
    (first, most), total = common[0], len(data.train)
    if kind.single_label and most > UNEVEN * total:
        found.append(
            f"{most / total:.0%} of the training rows are '{first}': predicting that for all rows is as accurate, so "
            "look at macro F1 or Matthews"
        )
    rare = [f"'{name}' ({count})" for name, count in common if count < FEW]
    if rare:
        found.append(f"few training rows of {_few(rare)}: fewer than {FEW} examples are hard to learn from")
    absent = [f"'{name}'" for index, name in enumerate(data.labels) if not counts[index]]
    if absent:
        found.append(f"no training rows of {_few(absent)}: the model will never predict it")
    untested = [f"'{data.labels[index]}'" for index in counts if dev and not in_dev[index]]
    if untested:
        found.append(f"no dev rows of {_few(untested)}: nothing will be known about them")
    return found


def _class_counts(items: Sequence[Item]) -> Counter[int]:
    """How often each label is a target, in the order in which they first occur."""
    targets = [item.target for item in items if isinstance(item, Example)]
    sets = [target if isinstance(target, tuple) else (target,) for target in targets]
    return Counter(label for labels in sets for label in labels if isinstance(label, int))


def _lengths(train: Sequence[Item], max_length: int) -> list[str]:
    if not train:
        return []
    found = []
    longest = max(train, key=num_characters)
    if num_characters(longest) >= LONG_CHARACTERS:
        found.append(
            f"row '{longest.key}' has {num_characters(longest):,} characters: only its beginning will be read; is it "
            "one text, or a file that was pasted in?"
        )
    if not isinstance(longest, Question):  # a long passage is read in windows, nothing is lost
        cut = sum(num_characters(item) > max_length and estimated_pieces(item) > max_length for item in train)
        if cut > 0.02 * len(train):
            share = f"{cut / len(train):.0%}"
            found.append(f"about {share} of the training rows are longer than {max_length} tokens and are cut")
    return found


def _duplicates(train: Sequence[Item]) -> list[str]:
    groups: dict[tuple[str, ...], list[Item]] = {}
    for item in train:
        groups.setdefault(text_key(item), []).append(item)
    repeated = len(train) - len(groups)
    different = [
        group for group in groups.values() if len({item.target for item in group if not isinstance(item, Question)}) > 1
    ]
    found = []
    if repeated > 0.01 * len(train):
        found.append(f"{repeated:,} of {len(train):,} training rows repeat the text of another")
    if different:
        keys = ", ".join(f"'{item.key}'" for item in different[0][:3])
        found.append(
            f"{len(different):,} texts have more than one label, such as rows {keys}: at most one of them can be learnt"
        )
    return found


def _leak(train: Sequence[Item], dev: Sequence[Item]) -> list[str]:
    known = {text_key(item) for item in train}
    seen = [item for item in dev if text_key(item) in known]
    if not seen:
        return []
    return [
        f"{len(seen):,} of {len(dev):,} dev rows ({len(seen) / len(dev):.1%}) are in the training data, too, such as "
        f"'{seen[0].key}': their scores measure memory"
    ]


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
