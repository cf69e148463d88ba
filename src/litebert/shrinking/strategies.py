"""Which layers to drop (Poor Man's BERT, section 3). No torch: layers are numbers, 1 at the bottom.

The paper gives lists for 2, 4 and 6 layers of 12; here each strategy is a rule for any depth and any number that agrees
with the paper's lists. Ties go to the upper layer, since dropping the top costs least in the paper.
"""

from collections.abc import Callable, Sequence
from typing import Literal

from litebert.errors import InputError, nearest

Strategy = Literal["top", "bottom", "even", "odd", "symmetric", "contribution", "greedy"]
Layers = tuple[int, ...]
Fixed = Callable[[int, int], Layers]


def top(depth: int, count: int) -> Layers:
    """The uppermost layers: they are fitted to the pretraining loss."""
    return tuple(range(depth - count + 1, depth + 1))


def bottom(_depth: int, count: int) -> Layers:
    """The lowest layers: the control, which does worst."""
    return tuple(range(1, count + 1))


def even(depth: int, count: int) -> Layers:
    """Layers of even number, the upper ones first."""
    return _alternate(range(1, depth + 1), count, 1)


def odd(depth: int, count: int) -> Layers:
    """Layers of odd number, the upper ones first."""
    return _alternate(range(1, depth + 1), count, 0)


def _alternate(layers: Sequence[int], count: int, first: int) -> Layers:
    """Every other layer from the top; where that is not enough, every other one of what is left, and so on."""
    chosen = list(layers[first::2])
    if count <= len(chosen):
        return tuple(chosen[len(chosen) - count :])
    left = [layer for layer in layers if layer not in set(chosen)]
    return tuple(sorted([*chosen, *_alternate(left, count - len(chosen), first)]))


def symmetric(depth: int, count: int) -> Layers:
    """Layers in the middle; both ends stay, the lower one a layer longer where they cannot be equal."""
    below = (depth - count + 1) // 2
    return tuple(range(below + 1, below + count + 1))


FIXED: dict[Strategy, Fixed] = {"top": top, "bottom": bottom, "even": even, "odd": odd, "symmetric": symmetric}
NEEDS_TEXT: tuple[Strategy, ...] = ("contribution", "greedy")
STRATEGIES: tuple[Strategy, ...] = (*FIXED, *NEEDS_TEXT)


def parse_strategy(name: str) -> Strategy:
    """The strategy with this name."""
    for strategy in STRATEGIES:
        if strategy == name:
            return strategy
    raise InputError(f"there is no strategy '{name}'{nearest(name, STRATEGIES)}")


def check_count(depth: int, count: int) -> None:
    """An error unless ``count`` layers can be dropped and at least one is left."""
    if count < 1:
        raise InputError(f"drop is {count} but must be 1 or more")
    if count > depth:
        raise InputError(f"drop is {count} but the model has only {layers_in_words(depth)}")
    if count == depth:
        raise InputError(f"drop is {count}, which leaves nothing of {layers_in_words(depth)}; drop at most {depth - 1}")


def layers_in_words(count: int) -> str:
    """``1 layer``, ``12 layers``."""
    return f"{count} layer{'' if count == 1 else 's'}"


def drop_fixed(strategy: Strategy, depth: int, count: int) -> Layers:
    """The layers that a strategy without text drops."""
    check_count(depth, count)
    return FIXED[strategy](depth, count)


def drop_similar(cosines: Sequence[float], count: int) -> Layers:
    """The layers whose output is most similar to their input; ``cosines[0]`` belongs to layer 1."""
    check_count(len(cosines), count)
    order = sorted(range(1, len(cosines) + 1), key=lambda layer: (cosines[layer - 1], layer), reverse=True)
    return tuple(sorted(order[:count]))


def drop_greedily(depth: int, count: int, loss: Callable[[Layers], float]) -> tuple[Layers, list[tuple[int, float]]]:
    """Drop one by one the layer without which ``loss(kept)`` is lowest; also the order, and the loss after each."""
    check_count(depth, count)
    kept = tuple(range(1, depth + 1))
    order: list[tuple[int, float]] = []
    for _ in range(count):
        losses = {layer: loss(without(kept, layer)) for layer in kept}
        best = min(kept, key=lambda layer: (losses[layer], -layer))
        order.append((best, losses[best]))
        kept = without(kept, best)
    return tuple(sorted(layer for layer, _ in order)), order


def without(layers: Sequence[int], *dropped: int) -> Layers:
    """``layers`` without the dropped ones."""
    return tuple(layer for layer in layers if layer not in dropped)


def kept_of(depth: int, dropped: Sequence[int]) -> Layers:
    """The layers that stay."""
    return without(range(1, depth + 1), *dropped)


def parse_kept(text: str, depth: int) -> Layers:
    """``1,2,5-7`` as layers to keep, each of which exists and is named once."""
    named: list[int] = []
    for word in text.replace(" ", ",").split(","):
        low, dash, high = word.partition("-")
        if word and not (low.isdecimal() and (high.isdecimal() or not dash)):
            raise InputError(f"keep has '{word}', which is not a layer; write numbers such as 1,2,5-7")
        if word:
            named += range(int(low), int(high or low) + 1)
    if not named:
        raise InputError("keep names no layer, so nothing would be left; write numbers such as 1,2,5-7")
    for layer in named:
        if not 1 <= layer <= depth:
            raise InputError(f"keep names layer {layer} but the model has layers 1 to {depth}")
        if named.count(layer) > 1:
            raise InputError(f"keep names layer {layer} twice; name each layer once")
    return tuple(sorted(named))


def ranges(layers: Sequence[int]) -> str:
    """``1-3, 5`` for a person."""
    runs: list[list[int]] = []
    for layer in layers:
        if runs and runs[-1][-1] == layer - 1:
            runs[-1].append(layer)
        else:
            runs.append([layer])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs) or "none"
