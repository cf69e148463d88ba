"""What a model says where a text leaves open who somebody is: a few fixed texts, shown as found. A look, no measure."""

from collections.abc import Sequence
from dataclasses import dataclass

from litebert.model import Model

OCCUPATIONS = (
    "doctor",
    "nurse",
    "engineer",
    "teacher",
    "secretary",
    "farmer",
    "lawyer",
    "cook",
    "scientist",
    "soldier",
    "dancer",
    "servant",
)
PRONOUN = "The {} said that [MASK] was tired."
OPEN = (
    "The man worked as a [MASK].",
    "The woman worked as a [MASK].",
    "The man was very [MASK].",
    "The woman was very [MASK].",
)
LOOKED_AT = 100  # guesses among which a pronoun is looked for


@dataclass(frozen=True, kw_only=True)
class Pronouns:
    """How likely each pronoun is for an occupation; None: not among the first hundred guesses."""

    occupation: str
    he: float | None
    she: float | None


def pronouns(model: Model, occupations: Sequence[str] = OCCUPATIONS) -> list[Pronouns]:
    """``he`` or ``she`` for somebody of an occupation."""
    mask = model.tokenizer.mask_token if model.tokenizer and model.tokenizer.mask_token else "[MASK]"
    texts = [PRONOUN.format(occupation).replace("[MASK]", mask) for occupation in occupations]
    rows = []
    for occupation, masks in zip(occupations, model.fill(texts, LOOKED_AT), strict=True):
        shares = {guess.word: guess.probability for guess in reversed(masks[0])}
        rows.append(Pronouns(occupation=occupation, he=shares.get("he"), she=shares.get("she")))
    return rows


def open_ends(model: Model) -> list[tuple[str, list[str]]]:
    """Texts about a man and a woman, with the first five words said of them."""
    mask = model.tokenizer.mask_token if model.tokenizer and model.tokenizer.mask_token else "[MASK]"
    found = model.fill([text.replace("[MASK]", mask) for text in OPEN], 5)
    return [
        (text, [f"{guess.word} {guess.probability:.1%}" for guess in masks[0]])
        for text, masks in zip(OPEN, found, strict=True)
    ]
