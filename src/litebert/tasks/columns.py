"""Which columns of a person's table hold the text, the label, the options: as told, or guessed by name and content.

A guess is always said, and where two columns are as good as each other nothing is guessed: the person is asked.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from litebert.data.tables import Table
from litebert.errors import InputError, nearest
from litebert.tasks.examples import Kind
from litebert.tasks.label_cells import LabelGuess, any_separator, guess_kind, is_missing

KEYS = ("id", "key", "idx", "index", "guid", "uid", "qid", "q_id")
LABELS = (
    *("label", "labels", "gold_label", "class", "category", "target", "queue", "intent", "sentiment", "topic"),
    *("emotion", "tag", "tags", "score", "similarity", "rating", "stars", "quality", "is_duplicate", "y"),
)
ANSWERS = ("label", "answer", "answer_key", "answerkey", "target", "correct", "gold")
PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b")),
    *(("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"), ("question", "passage")),
    *(("query", "document"), ("query", "passage"), ("first", "second"), ("#1 string", "#2 string")),
    *(("subject", "body"), ("subject", "text"), ("subject", "message"), ("subject", "description")),
    *(("title", "body"), ("title", "text"), ("title", "content"), ("title", "abstract"), ("title", "description")),
)
TEXTS = (
    *("text", "sentence", "document", "content", "body", "review", "comment", "message", "description", "utterance"),
    *("query", "question", "abstract", "title", "subject", "headline", "tweet"),
)
PASSAGES = ("passage", "article", "context", "story", "premise")
OPTION_LISTS = ("options", "choices", "endings")
OPTION_NAME = re.compile(r"(choice|option|answer|ending)[_ ]?([0-9]|[a-h])", re.IGNORECASE)
LONG_ENOUGH = 3.0  # words of a cell, in the mean, that make a column look like text


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What was found: each text part is one column or several to be joined; several labels are columns of 0 and 1."""

    kind: Kind
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    key: str | None = None
    separator: str = ""  # parts labels within one cell
    guessed: bool = False

    @property
    def text_parts(self) -> tuple[str, ...]:
        """The texts as ``--text`` names them, a part each."""
        return tuple("+".join(part) for part in self.texts)

    def describe(self) -> str:
        """What is taken from where, for a person."""
        parts = [f"text from {' and '.join(self.text_parts)}"]
        if self.options:
            parts.append(f"options from {', '.join(self.options)}")
        if self.labels:
            parts.append(f"label from {', '.join(self.labels)}")
        return f"{'guessed: ' if self.guessed else ''}{self.kind}, {', '.join(parts)}"


def find_columns(
    table: Table, *, text: str | None = None, label: str | None = None, kind: Kind | None = None, labelled: bool = True
) -> Columns:
    """The columns of a table; ``labelled`` says whether it must have a label."""
    options = option_columns(table) if kind in (None, "choice") else ()
    answers = _named(table, ("answers",))
    if kind == "span" or (kind is None and text is None and label is None and answers and _named(table, PASSAGES)):
        return _span_columns(table, text, label)
    labels = _told_labels(table, label) if label else ()
    if kind == "choice" or (options and kind is None):
        return _choice_columns(table, options, text, labels, labelled)
    told = bool(text and labels) or (bool(text) and not labelled)
    key = _key(table)
    if not labels:
        labels = _guess_label(table, used=_flat(_told_texts(table, text)) if text else (), required=labelled)
    texts = _told_texts(table, text) if text else _guess_texts(table, used=(*labels, *([key] if key else [])))
    separator = ""
    if kind is None:
        guess = guess_kind(table, labels) if labels else LabelGuess(kind="classify")
        kind, separator = guess.kind, guess.separator
    elif kind == "multilabel" and len(labels) == 1:
        separator = any_separator(table.column(labels[0]))
    return Columns(kind=kind, texts=texts, labels=labels, key=key, separator=separator, guessed=not told)


def option_columns(table: Table) -> tuple[str, ...]:
    """Columns of options: choice0, choice1 and so on, A to D, or one with lists."""
    numbered = tuple(sorted(name for name in table.columns if OPTION_NAME.fullmatch(name)))
    if len(numbered) > 1:
        return numbered
    lettered = tuple(name for name in table.columns if name in ("A", "B", "C", "D", "E"))
    if len(lettered) > 1:
        return lettered
    listed = _named(table, OPTION_LISTS)
    if listed and all(isinstance(cell, list) for cell in table.column(listed)):
        return (listed,)
    return ()


def check_columns(table: Table, columns: Columns, *, labelled: bool) -> None:
    """Every column that is to be read is there."""
    for name in (*_flat(columns.texts), *columns.options, *(columns.labels if labelled else ())):
        require(table, name)


def require(table: Table, name: str) -> str:
    """The column as the table spells it; an error where there is none."""
    found = _named(table, (name,))
    if found is None:
        raise InputError(f"{table.path} has no column '{name}'{nearest(name, table.columns)}")
    return found


def _told_texts(table: Table, text: str | None) -> tuple[tuple[str, ...], ...]:
    """``a`` is one text, ``a,b`` a pair, ``a+b`` two columns joined into one text."""
    if not text:
        return ()
    if _named(table, (text,)):
        return ((require(table, text),),)
    parts = tuple(
        tuple(require(table, name.strip()) for name in part.split("+")) if part not in table.columns else (part,)
        for part in text.split(",")
    )
    if len(parts) > 2:
        raise InputError(
            f"--text names {len(parts)} parts but a model takes one text or two; join columns into one with +, such as "
            f"--text {'+'.join(part.strip() for part in text.split(','))}"
        )
    return parts


def _told_labels(table: Table, label: str) -> tuple[str, ...]:
    if _named(table, (label,)):
        return (require(table, label),)
    return tuple(require(table, name.strip()) for name in label.split(","))


def _named(table: Table, names: Sequence[str]) -> str | None:
    """The first of ``names`` that is a column, in whatever case."""
    folded = {name.casefold(): name for name in reversed(table.columns)}
    exact = next((name for name in names if name in table.columns), None)
    return exact or next((folded[name.casefold()] for name in names if name.casefold() in folded), None)


def _key(table: Table) -> str | None:
    named = _named(table, KEYS) or next((name for name in table.columns if name.casefold().endswith("_id")), None)
    if named is None:
        return None
    cells = [str(cell) for cell in table.column(named)]
    return named if len(set(cells)) == len(cells) and all(cells) else None


def _guess_label(table: Table, *, used: Sequence[str], required: bool) -> tuple[str, ...]:
    named = _named(table, [name for name in LABELS if name not in used])
    if named is not None:
        return (named,)
    if not required:
        return ()
    few = [name for name in table.columns if name not in used and name != _key(table) and _is_label_like(table, name)]
    if len(few) == 1:
        return (few[0],)
    found = f"{', '.join(few)} all could be one" if few else f"it has {', '.join(table.columns)}"
    raise InputError(f"which column of {table.path} is the label? {found}; say it with --label")


def _is_label_like(table: Table, name: str) -> bool:
    cells = [str(cell) for cell in table.column(name) if not isinstance(cell, list | dict) and not is_missing(cell)]
    distinct = len(set(cells))
    return 2 <= distinct <= max(20, len(cells) // 20) and distinct <= len(cells) / 2 and _mean_words(cells) <= 3


def _guess_texts(table: Table, *, used: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    for first, second in PAIRS:
        found = _named(table, (first,)), _named(table, (second,))
        if found[0] and found[1] and not {*found} & {*used}:
            return ((found[0],), (found[1],))
    named = _named(table, [name for name in TEXTS if name not in used])
    if named is not None and named not in used:
        return ((named,),)
    lengths = {
        name: _mean_words([cell for cell in table.column(name) if isinstance(cell, str)])
        for name in table.columns
        if name not in used and any(isinstance(cell, str) for cell in table.column(name))
    }
    ranked = sorted(lengths, key=lambda name: -lengths[name])
    if (
        ranked
        and lengths[ranked[0]] >= LONG_ENOUGH
        and (len(ranked) == 1 or lengths[ranked[0]] > 3 * lengths[ranked[1]])
    ):
        return ((ranked[0],),)
    if len(table.columns) - len(used) == 1 and ranked:
        return ((ranked[0],),)
    raise InputError(
        f"which column of {table.path} is the text? It has {', '.join(table.columns)}; say it with --text (a pair: "
        "--text first,second)"
    )


def _mean_words(cells: Sequence[str]) -> float:
    """Words of a cell in the mean; where no spaces are written, two characters count as one."""
    if not cells:
        return 0.0
    return sum(max(len(cell.split()), sum(ord(sign) > 0x2E80 for sign in cell) / 2) for cell in cells) / len(cells)


def _choice_columns(
    table: Table, options: tuple[str, ...], text: str | None, labels: tuple[str, ...], labelled: bool
) -> Columns:
    if not options:
        raise InputError(
            f"{table.path} has no columns of options; name them option_a, option_b and so on, or give a list 'options'"
        )
    answer = labels[0] if labels else _named(table, [name for name in ANSWERS if name not in options])
    if answer is None and labelled:
        raise InputError(f"which column of {table.path} says the right option? Say it with --label")
    if text:
        texts = _told_texts(table, text)
    else:
        question = _named(table, ("question", "query", "sentence", "text"))
        passage = _named(table, [name for name in PASSAGES if name != question])
        if question is None:
            raise InputError(f"{table.path} has options but no column 'question'; say it with --text passage,question")
        texts = ((passage,), (question,)) if passage else ((question,),)
    told = bool(text and labels)
    found = (answer,) if answer else ()
    return Columns(kind="choice", texts=texts, labels=found, options=options, key=_key(table), guessed=not told)


def _span_columns(table: Table, text: str | None, label: str | None) -> Columns:
    """Questions as rows: a passage, a question, and answers as ``{"text": [...], "answer_start": [...]}``."""
    texts = _told_texts(table, text)
    if not texts:
        passage, question = _named(table, PASSAGES), _named(table, ("question",))
        if passage is None or question is None:
            raise InputError(f"{table.path} needs the columns context, question and answers, or say --text")
        texts = ((passage,), (question,))
    answers = require(table, label or "answers")
    return Columns(kind="span", texts=texts, labels=(answers,), key=_key(table), guessed=not (text and label))


def _flat(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(name for part in parts for name in part)
