"""A dev split where none is given: stratified by label, the same for the same seed, duplicates on one side.

What belongs together stays together: rows of the same text, questions about one passage, passages of one article. A
dev score over texts that were trained on would be a score of memory.
"""

import random
from collections.abc import Hashable, Sequence

from litebert.errors import InputError
from litebert.tasks.examples import Example, Item, Question

BINS = 10  # of the targets of a regression, to have high and low ones on both sides


def split_dev(items: Sequence[Item], *, share: float = 0.1, seed: int = 0) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """Train and dev, each in the order of ``items``."""
    if not 0 < share < 1:
        raise InputError(f"the share of the dev split is {share} but must be between 0 and 1")
    strata = _strata(items)
    groups: dict[Hashable, list[int]] = {}
    for index, key in enumerate(group_keys(items)):
        groups.setdefault(key, []).append(index)
    members: dict[Hashable, list[list[int]]] = {}
    for group in groups.values():
        members.setdefault(strata[group[0]], []).append(group)
    source = random.Random(seed)
    chosen: set[int] = set()
    owed = 0.0  # what earlier strata gave too little, so that the whole has its share
    for stratum in members.values():
        source.shuffle(stratum)
        owed += share * sum(map(len, stratum))
        for group in stratum[:-1]:  # the last one stays, or a class would be tested that was never trained
            if len(group) <= owed + 0.5:
                chosen.update(group)
                owed -= len(group)
    if not chosen or len(chosen) == len(items):
        raise InputError(
            f"{len(items)} rows ({len(groups)} different texts) are too few to set some apart for dev; give more, or a "
            "file of their own with --dev"
        )
    dev = tuple(item for index, item in enumerate(items) if index in chosen)
    return tuple(item for index, item in enumerate(items) if index not in chosen), dev


def group_keys(items: Sequence[Item]) -> list[Hashable]:
    """What each item must stay together with."""
    several_titles = len({item.title for item in items if isinstance(item, Question)}) > 1
    return [_group_key(item, several_titles) for item in items]


def text_key(item: Item) -> tuple[str, ...]:
    """The text of an item without differences of case and space: equal for duplicates."""
    if isinstance(item, Example):
        texts: tuple[str, ...] = (item.first, item.second or "")
    elif isinstance(item, Question):
        texts = (item.passage, item.question)
    else:
        texts = (item.passage, item.question, *item.options)
    return tuple(" ".join(text.casefold().split()) for text in texts)


def _group_key(item: Item, by_title: bool) -> Hashable:
    if isinstance(item, Example):
        return text_key(item)
    if isinstance(item, Question):
        return item.title if by_title else text_key(item)[0]
    return text_key(item)[0] or text_key(item)[1]


def _strata(items: Sequence[Item]) -> list[Hashable]:
    """The label of each item; of numbers, in which tenth of them it is."""
    targets: list[Hashable] = [item.target if isinstance(item, Example) else None for item in items]
    numbers = [target for target in targets if isinstance(target, float)]
    if len(numbers) < len(targets):
        return targets
    order = sorted(range(len(numbers)), key=lambda index: numbers[index])
    place = {index: rank * BINS // len(order) for rank, index in enumerate(order)}
    return [place[index] for index in range(len(targets))]
