"""The Python API: ``load`` a model, then ask it for states, vectors, missing words or the order of texts."""

import os
import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import overload

import numpy as np
import torch
from torch import Tensor

from litebert.checkpoints.folder import load_model, save_model
from litebert.errors import InputError, nearest
from litebert.filling import Guess, best_pieces, gap_places, guess_at
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import Network
from litebert.tasks.batches import token_batches
from litebert.text.pairs import Encoded
from litebert.text.tokenizer import Tokenizer

__all__ = ["Guess", "Model", "load"]

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}


class Model:
    """A network with its tokenizer, ready to use. ``network`` is the torch module, for training or gradients."""

    def __init__(self, network: Network, tokenizer: Tokenizer | None, notes: Sequence[str] = ()) -> None:
        self.network = network
        self.tokenizer = tokenizer
        self.notes = list(notes)

    @property
    def config(self) -> EncoderConfig:
        return self.network.config.encoder

    @property
    def device(self) -> torch.device:
        return self.network.encoder.embeddings.token.weight.device

    @torch.no_grad()
    def states(
        self,
        ids: Sequence[Sequence[int]],
        segments: Sequence[Sequence[int]] | None = None,
        depth: int | None = None,
    ) -> list[Tensor]:
        """One packed (tokens, width) tensor for every depth, 0 being the embeddings, of all sequences end to end."""
        flat, layout, kinds = self._pack(ids, segments)
        return self.network.encoder.states(flat, layout, kinds, depth=depth)

    @torch.no_grad()
    def encode(
        self,
        texts: Sequence[str],
        pairs: Sequence[str] | None = None,
        *,
        depth: int | None = None,
        max_length: int | None = None,
        batch_tokens: int = 8192,
    ) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
        """One pooled vector a text (or pair of texts) as a float32 array; ``max_length`` cuts longer texts."""
        if isinstance(texts, str):
            raise InputError("encode takes a list of texts; put the one text in a list")
        if pairs is not None and len(pairs) != len(texts):
            raise InputError(f"{len(texts)} texts but {len(pairs)} pairs; give one for each text")
        encoded = self._tokenizer().encode_batch(list(texts), None if pairs is None else list(pairs), max_length)
        vectors = np.empty((len(encoded), self.config.width), dtype=np.float32)
        for batch in token_batches([len(one.ids) for one in encoded], batch_tokens):
            flat, layout, kinds = self._pack_encoded([encoded[index] for index in batch])
            states = self.network.encoder(flat, layout, kinds, depth=depth)
            vectors[batch] = self.network.pooled(states, layout).float().cpu().numpy()
        return vectors

    @overload
    def fill(  # type: ignore[overload-overlap]  # a str is a sequence of strs, too
        self, texts: str, top: int = 5, *, depth: int | None = None
    ) -> list[Guess] | list[list[Guess]]: ...

    @overload
    def fill(self, texts: Sequence[str], top: int = 5, *, depth: int | None = None) -> list[list[list[Guess]]]: ...

    def fill(
        self, texts: str | Sequence[str], top: int = 5, *, depth: int | None = None
    ) -> list[Guess] | list[list[Guess]] | list[list[list[Guess]]]:
        """The ``top`` likeliest words for the masks in texts: for each text a list for each of its masks.

        For a single text: the list for its mask; with several masks, such a list for each.
        """
        tokenizer = self._tokenizer()
        if isinstance(texts, str):
            found = self.fill_encoded([tokenizer.encode(texts)], top, depth=depth)[0]
            return found[0] if len(found) == 1 else found
        return self.fill_encoded(tokenizer.encode_batch(list(texts)), top, depth=depth)

    @torch.no_grad()
    def fill_encoded(
        self, inputs: Sequence[Encoded], top: int = 5, *, depth: int | None = None, batch_tokens: int = 8192
    ) -> list[list[list[Guess]]]:
        """``fill`` for inputs that are ids already."""
        tokenizer = self._tokenizer()
        if "masked_lm" not in self.network.heads:
            raise InputError(
                "this model has no masked-LM head, so it cannot fill gaps; load one that was saved with it"
            )
        if top < 1:
            raise InputError(f"{top} guesses asked for; ask for 1 or more")
        gaps = [gap_places(one.ids, tokenizer) for one in inputs]
        for number, places in enumerate(gaps, 1):
            if not places:
                which = "the text" if len(inputs) == 1 else f"text {number}"
                raise InputError(f"there is no {tokenizer.mask_token} in {which}; put one where a word is missing")
        found: list[list[list[Guess]]] = [[] for _ in inputs]
        for batch in token_batches([len(one.ids) for one in inputs], batch_tokens):
            packed = self._pack_encoded([inputs[index] for index in batch])
            starts = accumulate((len(inputs[index].ids) for index in batch), initial=0)
            owners = [
                (index, place, start + place)
                for index, start in zip(batch, starts, strict=False)
                for place in gaps[index]
            ]
            flat = torch.tensor([place for _, _, place in owners], device=self.device)
            best = best_pieces(self.network, packed, flat, top, depth)
            for (index, place, _), pieces in zip(owners, best, strict=True):
                ids = inputs[index].ids
                found[index].append([guess_at(ids, place, id, share, tokenizer) for id, share in pieces])
        return found

    @torch.no_grad()
    def order(
        self, pairs: Sequence[tuple[str, str]], *, depth: int | None = None, batch_tokens: int = 8192
    ) -> list[float]:
        """For each pair of texts how likely they stand in the right order, by the sentence-order head.

        The head is asked about both orders and what it says is averaged, so a pair and its reverse add up to one.
        """
        if "order" not in self.network.heads:
            raise InputError(
                "this model has no sentence-order head; load one that was pretrained with it and not tuned"
            )
        if any(isinstance(pair, str) or len(pair) != 2 for pair in pairs):
            raise InputError("order takes a list of pairs of texts, such as [('First.', 'Second.')]")
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs]
        limit = self.config.max_positions or None
        encoded = self._tokenizer().encode_batch([*firsts, *seconds], [*seconds, *firsts], limit)
        shares = torch.empty(len(encoded))
        for batch in token_batches([len(one.ids) for one in encoded], batch_tokens):
            flat, layout, kinds = self._pack_encoded([encoded[index] for index in batch])
            states = self.network.encoder(flat, layout, kinds, depth=depth)
            scores = self.network.heads["order"](self.network.pooled(states, layout))
            shares[batch] = scores.float().softmax(-1)[:, 0].cpu()
        as_given, reversed_ = shares.split(len(pairs)) if pairs else (shares, shares)
        return ((as_given + 1 - reversed_) / 2).tolist()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write a model folder that litebert loads, and ``transformers`` too wherever it has a class for the plan."""
        save_model(folder, self.network, self.tokenizer, verb="save")

    def _tokenizer(self) -> Tokenizer:
        if self.tokenizer is None:
            raise InputError(
                "this model has no tokenizer, so it takes ids only; load a folder that holds tokenizer.json"
            )
        return self.tokenizer

    def _pack_encoded(self, encoded: Sequence[Encoded]) -> tuple[Tensor, Layout, Tensor | None]:
        return self._pack([one.ids for one in encoded], [one.segments for one in encoded])

    def _pack(
        self, ids: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None
    ) -> tuple[Tensor, Layout, Tensor | None]:
        """Flat ids, their layout and flat segments on the model's device, checked."""
        if not ids:
            raise InputError("there are no sequences; give at least one list of token ids")
        lengths = [len(sequence) for sequence in ids]
        limit = self.config.max_positions if self.config.positions == "absolute" else max(lengths)
        for number, length in enumerate(lengths):
            if length == 0:
                raise InputError(f"sequence {number} is empty")
            if length > limit:
                raise InputError(
                    f"sequence {number} has {length} tokens but the model has {limit} positions; cut it (max_length="
                    f"{limit}) or split it"
                )
        flat = torch.tensor([id for sequence in ids for id in sequence], dtype=torch.long)
        outside = (flat < 0) | (flat >= self.config.vocab_size)
        if outside.any():
            raise InputError(
                f"id {int(flat[outside][0])} is outside the vocabulary of {self.config.vocab_size}; was the text "
                "tokenised for another model?"
            )
        kinds = None
        if segments is not None:
            if [len(sequence) for sequence in segments] != lengths:
                raise InputError("segments and ids differ in length; give one segment id for each token")
            kinds = torch.tensor([kind for sequence in segments for kind in sequence], dtype=torch.long)
            known = self.config.num_segments or int(kinds.max()) + 1  # relative segments are only compared
            if int(kinds.min()) < 0 or int(kinds.max()) >= known:
                raise InputError(f"segment {int(kinds.max())} is outside the model's {known} segments")
            kinds = kinds.to(self.device)
        return flat.to(self.device), Layout.of(lengths, self.device), kinds


def load(
    source: str | os.PathLike[str],
    device: str = "cpu",
    dtype: str = "float32",
    *,
    tokenizer: Tokenizer | None = None,
    overrides: Sequence[str] = (),
) -> Model:
    """A model by its shipped name, from a folder (ours or Hugging Face's) or a preset; what is new is warned of."""
    if dtype not in DTYPES:
        raise InputError(f"dtype is '{dtype}'{nearest(dtype, DTYPES)}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise InputError("there is no CUDA device here; use device='cpu'")
    loaded = load_model(source, overrides=overrides, device=device, dtype=DTYPES[dtype])
    for note in loaded.notes:
        warnings.warn(note, stacklevel=2)
    return Model(loaded.network, tokenizer or loaded.tokenizer, loaded.notes)
