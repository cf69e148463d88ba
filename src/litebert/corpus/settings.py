"""The settings of batches, checked when they are made."""

from dataclasses import dataclass
from typing import Literal

from litebert.corpus.masking import MASKINGS, Masking
from litebert.corpus.pairs import ORDER_CODES, Order
from litebert.errors import InputError, nearest

WINDOW_TOKENS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How batches are made."""

    length: int = 512  # the most tokens of an input
    budget: int = 65_536  # the most tokens of a batch
    order: Order = "sop"
    masking: Masking = "ngram"
    rate: float = 0.15  # the share of tokens to predict
    edges: Literal["masking", "pairs"] = "masking"  # under sop, what the beginning and end of a document are for
    seed: int = 0
    fixed: bool = False  # pad every array to one shape, for compiled training
    max_sequences: int | None = None  # with fixed: the most sequences of a batch; found from the text when not given
    window: int = WINDOW_TOKENS  # tokens of text that inputs are shuffled and packed within

    def __post_init__(self) -> None:
        if self.order not in ORDER_CODES:
            raise InputError(f"there is no order loss '{self.order}'{nearest(self.order, ORDER_CODES)}")
        if self.masking not in MASKINGS:
            raise InputError(f"there is no masking '{self.masking}'{nearest(self.masking, MASKINGS)}")
        if self.edges not in ("masking", "pairs"):
            raise InputError(f"edges is '{self.edges}' but must be masking or pairs")
        if self.length < 8:
            raise InputError(f"length is {self.length} but an input needs 8 tokens or more")
        if self.budget < self.length:
            raise InputError(f"budget is {self.budget} but a batch must hold an input of {self.length} tokens")
        if not 0 < self.rate < 1:
            raise InputError(f"rate is {self.rate} but must lie between 0 and 1, such as 0.15")
        if self.window < 1:
            raise InputError(f"window is {self.window} but must be a number of tokens")
