"""The one tokenizer class: text to ids, one or two texts to one model input, and which ids begin a word.

Whatever file it came from, it holds a ``tokenizers`` backend, so all are saved alike.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer as Backend
from tokenizers import models, processors

from litebert.errors import InputError
from litebert.families.family import Family, Role, Slot
from litebert.runs import write_atomically
from litebert.text.normalise import Rules, backend_normaliser

_STICKY = ("lstrip", "rstrip", "normalized")  # what lets an added token take from the text beside it, or change with it

Marking = Literal["metaspace", "wordpiece", "byte-level", "whole"]

# Scripts without spaces between words. Korean is not one: its words are separated by spaces.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x3007),  # 々〆〇
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han compatibility
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x20000, 0x3FFFF),  # Han extensions B and later
)


@dataclass(frozen=True, slots=True)
class Encoded:
    """One input of a model; ``segments`` has one entry a token, for single texts too."""

    ids: list[int]
    segments: list[int]
    cut: bool = False  # whether it holds less than its texts


class Tokenizer:
    """Text to ids and back, and inputs laid out as a family of models needs them."""

    def __init__(self, backend: Backend, family: Family, tokens: dict[Role, str]) -> None:
        """``tokens`` names the special tokens that the vocabulary has."""
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self._family = family
        self._tokens = tokens
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (
            self._id_of(role) for role in ("pad", "unk", "cls", "sep", "mask")
        )
        if backend.post_processor is None and self.cls_id is not None and self.sep_id is not None:
            backend.post_processor = self._template()

    def _id_of(self, role: Any) -> int | None:
        token = self._tokens.get(role)
        return None if token is None else self._backend.token_to_id(token)

    @property
    def family(self) -> str:
        """The family whose layout this tokenizer follows."""
        return self._family.name

    @property
    def vocab_size(self) -> int:
        """How many ids there are, special and added tokens included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @property
    def mask_token(self) -> str | None:
        """How the mask is written in a text."""
        return self._tokens.get("mask")

    def ids(self, text: str) -> list[int]:
        """The ids of ``text`` without special tokens; those written in it, such as [MASK], are recognised."""
        return self.ids_batch([text])[0]

    def ids_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """``ids`` of many texts, on all cores unless ``TOKENIZERS_PARALLELISM=false`` is in the environment."""
        return [encoding.ids for encoding in self._encodings(texts)]

    def _encodings(self, texts: Sequence[str]) -> list[Any]:
        texts = list(texts)
        try:
            return self._backend.encode_batch_fast(texts, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            # Halves of surrogate pairs are the one thing a str may hold that is not text.
            whole = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
            return self._backend.encode_batch_fast(whole, add_special_tokens=False)

    def encode(self, text: str, pair: str | None = None, max_length: int | None = None) -> Encoded:
        """One model input from one text or two; cut (the longer text first) only when ``max_length`` is given."""
        return self.encode_batch([text], None if pair is None else [pair], max_length)[0]

    def encode_batch(
        self, texts: Sequence[str], pairs: Sequence[str] | None = None, max_length: int | None = None
    ) -> list[Encoded]:
        """``encode`` of many texts, or of many pairs."""
        if pairs is not None and len(pairs) != len(texts):
            raise ValueError(f"there are {len(texts)} texts but {len(pairs)} to pair them with")
        if self.cls_id is None or self.sep_id is None:
            raise InputError(
                f"this vocabulary has no {self._family.tokens['cls']} or no {self._family.tokens['sep']}, "
                f"which an input of a {self.family} model needs"
            )
        count = len(texts)
        ids = self.ids_batch([*texts, *(pairs or ())])
        seconds: Sequence[list[int] | None] = [None] * count if pairs is None else ids[count:]
        return [self.lay_out(first, second, max_length) for first, second in zip(ids[:count], seconds, strict=True)]

    def lay_out(
        self, first: Sequence[int], second: Sequence[int] | None = None, max_length: int | None = None
    ) -> Encoded:
        """``encode`` for texts that are ids already: one or two, of at most ``max_length`` tokens in all."""
        assert self.cls_id is not None and self.sep_id is not None
        slots = self._family.layout.single if second is None else self._family.layout.pair
        whole = len(first) + len(second or ())
        if max_length is not None:
            room = max_length - sum(slot.part in ("cls", "sep") for slot in slots)
            if room < 0:
                raise ValueError(f"max_length is {max_length} but the special tokens alone take {max_length - room}")
            keep, keep_second = cut_pair(len(first), len(second or ()), room)
            first = first[:keep]
            second = second[:keep_second] if second is not None else None
        parts = {"A": first, "B": second or (), "cls": (self.cls_id,), "sep": (self.sep_id,)}
        ids: list[int] = []
        segments: list[int] = []
        for slot in slots:
            part = parts[slot.part]
            ids.extend(part)
            segments.extend([slot.segment] * len(part))
        return Encoded(ids, segments, cut=len(first) + len(second or ()) < whole)

    def lay_out_windows(self, first: Sequence[int], second: Sequence[int] | None, max_length: int) -> list[Encoded]:
        """``lay_out`` in as many inputs as it takes: overlapping windows of the longer text, beside all of the other.

        Windows overlap by a quarter or more, and all are full. A shorter text gets half the room at the most.
        """
        whole = self.lay_out(first, second, max_length)
        if not whole.cut:
            return [whole]
        room = max_length - len(self.lay_out([], None if second is None else []).ids)
        if second is None:
            return [self.lay_out(first[begin:end]) for begin, end in overlapping(len(first), room)]
        beside = room // 2
        if len(first) > len(second):
            second = second[:beside]
            places = overlapping(len(first), room - len(second))
            return [self.lay_out(first[begin:end], second) for begin, end in places]
        first = first[:beside]
        return [self.lay_out(first, second[begin:end]) for begin, end in overlapping(len(second), room - len(first))]

    def offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """The ids of ``text`` and, for each, the span of characters it stands for, outer white space left out."""
        encoding = self._backend.encode(text, add_special_tokens=False)
        return encoding.ids, [_without_space(text, start, end) for start, end in encoding.offsets]

    def decode(self, ids: Sequence[int], keep_special: bool = False) -> str:
        """Text from ids, special tokens left out unless they are wanted."""
        return str(self._backend.decode(list(ids), skip_special_tokens=not keep_special))

    def piece(self, index: int) -> str:
        """The piece with an id."""
        piece = self._backend.id_to_token(index) if index >= 0 else None
        if piece is None:
            raise InputError(f"the id {index} is outside the vocabulary of {self.vocab_size} pieces")
        return str(piece)

    def id(self, piece: str) -> int | None:
        """The id of a piece, or None where the vocabulary lacks it."""
        return self._backend.token_to_id(piece)

    @cached_property
    def starts_word(self) -> npt.NDArray[np.bool_]:
        """For every id, whether its piece begins a word (see ``begins_word``)."""
        special = {index for index, token in self._backend.get_added_tokens_decoder().items() if token.special}
        vocabulary = self._backend.get_vocab(with_added_tokens=True)
        table = np.zeros(max(vocabulary.values(), default=-1) + 1, dtype=np.bool_)
        for piece, index in vocabulary.items():  # special tokens stand alone, so they begin a word
            table[index] = index in special or begins_word(piece, self.marking)
        return table

    @cached_property
    def marking(self) -> Marking:
        """How its pieces mark that they begin a word."""
        kind = self.settings["model"].get("type")
        if kind == "WordPiece":
            return "wordpiece"
        if kind == "WordLevel":
            return "whole"
        return "byte-level" if "ByteLevel" in json.dumps(self.settings["pre_tokenizer"]) else "metaspace"

    @cached_property
    def separator(self) -> tuple[str, int] | None:
        """A token, with its id, that separates texts so that each has the ids it has by itself; None if there is none.

        It must always be found, wherever two texts are joined by it, and must not touch what is beside it.
        """
        added = self.settings["added_tokens"]
        if '"prepend_scheme": "first"' in json.dumps(self.settings["pre_tokenizer"]):
            return None  # only what comes first would begin with the mark of a word
        if any(token["single_word"] for token in added):
            return None  # whether such a token is one depends on its neighbours
        found = [token for token in added if token["content"] == self._tokens.get("sep")]
        if not found or any(found[0][key] for key in _STICKY):
            return None
        content, index = found[0]["content"], found[0]["id"]
        others = [token["content"] for token in added if token["id"] != index]
        overlapping = content[0] in content[1:] or any(content[0] in other[1:] for other in others)
        return None if overlapping or any(other.startswith(content) for other in others) else (content, index)

    def without_normaliser(self) -> "Tokenizer":
        """The same for texts that are normalised already."""
        backend = Backend.from_str(self._backend.to_str())
        backend.normalizer = None
        return Tokenizer(backend, self._family, self._tokens)

    def normalises_safely_by(self, rules: Rules, without: frozenset[str]) -> bool:
        """Whether its normalisation is exactly one of ours, and no added token has one of these characters."""
        ours = Backend(models.BPE())
        ours.normalizer = backend_normaliser(rules)
        added = "".join(token["content"] for token in self.settings["added_tokens"])
        same = json.loads(ours.to_str())["normalizer"] == self.settings["normalizer"]
        return bool(same) and without.isdisjoint(added)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The backend as it is saved."""
        return json.loads(self._backend.to_str())

    @cached_property
    def fingerprint(self) -> str:
        """A hash of everything that decides ids."""
        deciding = {key: self.settings[key] for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
        model = deciding["model"]
        if model.get("type") == "Unigram":  # the library's reader may change the last bit of a score
            deciding["model"] = {**model, "vocab": [(piece, f"{score:.5f}") for piece, score in model["vocab"]]}
        layout = [[[slot.part, slot.segment] for slot in slots] for slots in self.layouts()]
        text = json.dumps([deciding, layout, self._tokens], sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def layouts(self) -> tuple[tuple[Slot, ...], tuple[Slot, ...]]:
        """Where special tokens go around one text, and around two."""
        return self._family.layout.single, self._family.layout.pair

    def _template(self) -> processors.TemplateProcessing:
        """The layout as a part of the saved file, for other programs."""

        def name(slot: Slot) -> str:
            return f"${slot.part}" if slot.part == "A" or slot.part == "B" else self._tokens[slot.part]

        single, pair = (" ".join(f"{name(slot)}:{slot.segment}" for slot in slots) for slots in self.layouts())
        tokens = [(self._tokens["cls"], self.cls_id), (self._tokens["sep"], self.sep_id)]
        return processors.TemplateProcessing(single=single, pair=pair, special_tokens=tokens)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``, from which transformers makes the same tokenizer."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "tokenizer.json", self._backend.to_str(pretty=True))
        config = json.dumps(self._transformers_config(), indent=2, ensure_ascii=False)
        write_atomically(folder / "tokenizer_config.json", config + "\n")

    def _transformers_config(self) -> dict[str, Any]:
        """What transformers reads beside ``tokenizer.json``.

        The class named is the general one: it takes the file as it is, where the families' own classes build their
        normalisation anew from ``do_lower_case`` and the like (given, too, for whoever calls them).
        """
        config: dict[str, Any] = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", *(["token_type_ids"] * self._family.segments), "attention_mask"],
            "padding_side": self._family.padding_side,
            **self._family.tokenizer_options,
            **{f"{role}_token": token for role, token in self._tokens.items()},
        }
        normaliser = _flat(self.settings["normalizer"], "normalizers")
        pre_tokenizer = _flat(self.settings["pre_tokenizer"], "pretokenizers")
        if "BertNormalizer" in normaliser:
            bert = normaliser["BertNormalizer"]
            config["do_lower_case"] = bert["lowercase"]
            config["strip_accents"] = bert["strip_accents"]
            config["tokenize_chinese_chars"] = bert["handle_chinese_chars"]
        else:
            config["do_lower_case"] = "Lowercase" in normaliser
            config["keep_accents"] = "StripAccents" not in normaliser
        if "ByteLevel" in pre_tokenizer:
            config["add_prefix_space"] = pre_tokenizer["ByteLevel"]["add_prefix_space"]
        return config


def _flat(part: dict[str, Any] | None, inner: str) -> dict[str, dict[str, Any]]:
    """The steps of a saved normaliser or pre-tokenizer by their types, a sequence unrolled."""
    if part is None:
        return {}
    steps = part[inner] if part["type"] == "Sequence" else [part]
    return {step["type"]: step for step in steps}


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def overlapping(tokens: int, room: int) -> list[tuple[int, int]]:
    """Begin and end of evenly spaced windows of ``room`` tokens that overlap by a quarter or more."""
    if tokens <= room:
        return [(0, tokens)]
    step = max(1, room - room // 4)
    count = 1 + -(-(tokens - room) // step)
    begins = [(tokens - room) * number // (count - 1) for number in range(count)]
    return [(begin, begin + room) for begin in begins]


def cut_pair(first: int, second: int, room: int) -> tuple[int, int]:
    """How many tokens of two texts of these lengths to keep in ``room``: the longer is cut until they are equal.

    As transformers' ``longest_first``: where both must give way the odd token goes to the longer text, and to the
    second of two equally long ones.
    """
    if first + second <= room:
        return first, second
    short, long = min(first, second), max(first, second)
    if 2 * short > room:
        short, long = room // 2, room - room // 2
    else:
        long = room - short
    return (long, short) if first > second else (short, long)


def is_unspaced(character: str) -> bool:
    """Whether a character belongs to a script that is written without spaces."""
    point = ord(character)
    return any(first <= point <= last for first, last in _UNSPACED)


def begins_word(piece: str, marking: Marking) -> bool:
    """Whether ``piece`` begins a word, which whole-word masking needs to know.

    A tokenizer marks it ('▁' in SentencePiece, no '##' in wordpiece, 'Ġ' in byte-level); in scripts written without
    spaces every piece does: there, a word is a piece.
    """
    if marking == "whole":
        return True
    if marking == "byte-level":
        return piece.startswith(("Ġ", "Ċ", "ĉ"))  # space, newline and tab as byte-level tokenizers spell them
    if marking == "wordpiece":
        continues = piece.startswith("##") and len(piece) > 2
        return not continues or is_unspaced(piece[2])
    return piece.startswith("▁") or (piece != "" and is_unspaced(piece[0]))
