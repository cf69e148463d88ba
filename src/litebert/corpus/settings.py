"""Settings of token stores and of batches, checked when they are made. Light to import: no numba, no torch."""

from dataclasses import dataclass
from typing import Literal, get_args

from litebert.data.files import Errors
from litebert.errors import InputError, nearest
from litebert.text.normalise import Rules, check_rules

Order = Literal["sop", "nsp", "none"]
Masking = Literal["ngram", "whole-word", "plain"]
MASKINGS: tuple[Masking, ...] = get_args(Masking)

WINDOW_TOKENS = 1 << 22


@dataclass(frozen=True, kw_only=True)
class BuildSettings:
    """Everything that decides the bytes of a store, besides the text and the tokenizer."""

    languages: tuple[str, ...] = ()
    normalisation: Rules = "none"  # applied before the tokenizer's own, which a model also meets in use
    field: str = "text"
    errors: Errors = "strict"
    deduplicate: bool = True
    held_out: float = 0.01
    seed: int = 0
    shard_tokens: int = 1 << 23

    def __post_init__(self) -> None:
        check_rules(self.normalisation)
        if not 0 <= self.held_out < 1:
            raise InputError(f"held_out is {self.held_out:g} but must be from 0 to below 1 (or 0% to below 100%)")
        if not 1 <= self.shard_tokens <= 1 << 31:
            raise InputError(f"shard_tokens is {self.shard_tokens} but must be from 1 to {1 << 31}")


@dataclass(frozen=True, kw_only=True)
class BatchSettings:
    """How batches are made."""

    length: int = 512  # maximum tokens of an input
    budget: int = 65_536  # maximum tokens of a batch
    order: Order = "sop"
    masking: Masking = "ngram"
    rate: float = 0.15  # share of tokens to predict
    edges: Literal["masking", "pairs"] = "masking"  # under sop, what the beginning and end of a document are used for
    seed: int = 0
    fixed: bool = False  # pad every array to one shape, for compiled training
    max_sequences: int | None = None  # with fixed: maximum sequences of a batch; default: derived from the text
    window: int = WINDOW_TOKENS  # tokens of text that inputs are shuffled and packed within
    min_document: int = 0  # tokens of a document; shorter ones are left out

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise InputError(f"there is no order loss '{self.order}'{nearest(self.order, get_args(Order))}")
        if self.masking not in MASKINGS:
            raise InputError(f"there is no masking '{self.masking}'{nearest(self.masking, MASKINGS)}")
        if self.edges not in ("masking", "pairs"):
            raise InputError(f"edges is '{self.edges}' but must be masking or pairs")
        if self.length < 8:
            raise InputError(f"length is {self.length} but an input needs 8 tokens or more")
        if self.budget < self.length:
            raise InputError(f"batches have {self.budget} tokens but must hold an input of {self.length}; enlarge them")
        if not 0 < self.rate < 1:
            raise InputError(f"rate is {self.rate} but must lie between 0 and 1, such as 0.15")
        if self.min_document < 0:
            raise InputError(f"min_document is {self.min_document} but must be 0 or more")
        if self.window < 1:
            raise InputError(f"window is {self.window} but must be 1 token or more")
