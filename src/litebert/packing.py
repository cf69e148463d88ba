"""Which texts go together: batches of a bounded number of tokens, long texts with long ones."""

from collections.abc import Sequence


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """The indices of all sequences in batches of at most ``budget`` tokens (a longer one stands alone), longest first.

    Neighbours of one length come out side by side, which the CPU's attention turns into one dense call.
    """
    batches: list[list[int]] = []
    room = 0
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if lengths[index] > room or not batches:
            batches.append([])
            room = budget
        batches[-1].append(index)
        room -= lengths[index]
    return batches
