"""Which columns of a table hold the text, the label, the options, and what kind of task they make: named, or guessed.

Guesses go by the names of columns, then by what is in them. A guess is always reported, and where two columns are
equally good nothing is guessed: the error asks for the column.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from litebert.data.separated import Cell, has_content, is_repeated
from litebert.data.tables import Table
from litebert.errors import InputError, listed, nearest
from litebert.tasks.examples import Kind

Names = str | Sequence[str] | None  # columns as a person names them: "a", "a,b", "a+b", ["a", "b"]

KEYS = ("id", "key", "idx", "index", "guid", "uid", "qid", "q_id")
# Names of label columns, the clearest first; names on one line are equally good.
LABELS = (
    ("label",),
    ("labels",),
    ("gold_label",),
    ("class", "category", "target", "y"),
    ("label*", "labels*", "class*", "category*", "target*"),  # with anything before or after it: label3, my_label
    ("queue", "intent", "sentiment", "topic", "emotion", "tag", "tags", "is_duplicate"),
    ("score", "similarity", "rating", "stars", "quality"),
)
ANSWERS = ("label", "answer", "answer_key", "answerkey", "target", "correct", "gold")
PAIRS = (
    *(("sentence1", "sentence2"), ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b")),
    *(("premise", "hypothesis"), ("question1", "question2"), ("question", "sentence"), ("question", "passage")),
    *(("query", "document"), ("query", "passage"), ("first", "second"), ("#1 string", "#2 string")),
    *(("anchor", "positive"), ("query", "positive"), ("question", "answer"), ("query", "answer")),
    *(("subject", "body"), ("subject", "text"), ("subject", "message"), ("subject", "description")),
    *(("title", "body"), ("title", "text"), ("title", "content"), ("title", "abstract"), ("title", "description")),
)
TEXTS = (
    *("text", "sentence", "document", "content", "body", "review", "comment", "message", "description", "utterance"),
    *("query", "question", "abstract", "title", "subject", "headline", "tweet"),
)
PASSAGES = ("passage", "article", "context", "story", "premise")
QUESTIONS = ("question", "query", "sentence", "text")
OPTION_LISTS = ("options", "choices", "endings")
OPTION_NAME = re.compile(r"(choice|option|answer|ending)[_ ]?([0-9]|[a-h])", re.IGNORECASE)
NEGATIVE_NAME = re.compile(r"(hard[_ ]?)?negatives?[_ ]?[0-9]*", re.IGNORECASE)  # texts that do not belong to a pair
SEPARATORS = (";", "|", ",")  # of labels within one cell
LISTS_OF_LABELS = ("labels", "tags")  # columns whose cells may hold several, with commas between
SCORES = ("score", "similarity", "rating", "stars")  # columns whose whole numbers are measures when written 3.0
MOST_NUMBERED = 30  # more different whole numbers than this are taken as a measure, not as classes
ID_SHARE = 0.5  # a label that is new in more than half of the rows is no class
LONG_ENOUGH = 3.0  # mean words per cell that make a column look like text
# 3,5 and 1.234,5, as spreadsheets write them in most of Europe; a single comma is taken for the decimal one.
DECIMAL_COMMA = re.compile(r"\s*[+-]?(?:\d+|\d{1,3}(?:\.\d{3})+),\d+\s*", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The columns to read: a text is one column or several to be joined; several labels are columns of 0 and 1."""

    kind: Kind
    texts: tuple[tuple[str, ...], ...]
    labels: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    key: str | None = None
    separator: str = ""  # between labels within one cell
    guessed: bool = False

    @property
    def text_parts(self) -> tuple[str, ...]:
        """The texts as ``text=`` names them, one part each."""
        return tuple("+".join(part) for part in self.texts)

    def describe(self) -> str:
        """Which columns are read, in a sentence."""
        parts = [f"text from {' and '.join(self.text_parts)}"]
        if self.options:
            what = "negatives" if self.kind == "embed" else "options"
            parts.append(f"{what} from {', '.join(self.options)}")
        if self.labels:
            parts.append(f"{'score' if self.kind == 'embed' else 'label'} from {', '.join(self.labels)}")
        return f"{'guessed: ' if self.guessed else ''}{self.kind}, {', '.join(parts)}"


@dataclass(frozen=True)
class TableRow:
    """One row: its cells by column, its number from 0, and where it is for a message."""

    cells: Mapping[str, Cell]
    number: int
    place: str

    def texts(self, columns: Columns) -> list[str]:
        """The texts of the row."""
        return [joined_cells(self.cells, part) for part in columns.texts]

    def key(self, columns: Columns) -> str:
        """The row's id, or its number."""
        return str(self.number if columns.key is None else self.cells[columns.key])


def joined_cells(cells: Mapping[str, Cell], names: Sequence[str]) -> str:
    """The text of one column, or of several joined by line ends."""
    found = (cells[name] for name in names)
    return "\n".join(str(cell).strip() for cell in found if not is_null(cell) and str(cell).strip())


def find_columns(
    table: Table, *, text: Names = None, label: Names = None, kind: Kind | None = None, labelled: bool = True
) -> Columns:
    """The columns of a table; ``labelled`` says whether it must have a label."""
    options = option_columns(table) if kind in (None, "choice") else ()
    texts, labels = _named_texts(table, text), tuple(require(table, name) for name in _split_names(table, label))
    key, guessed = _key(table), not (texts and (labels or not labelled))
    if kind == "embed":
        return _pair_columns(table, texts, labels, key)
    if kind == "span" or (
        kind is None and not texts and not labels and _named(table, ("answers",)) and _named(table, PASSAGES)
    ):
        texts = texts or _passage_and_question(table, ("question",), "span")
        if not labels and (labelled or _named(table, ("answers",))):
            labels = (require(table, "answers"),)
        return Columns(kind="span", texts=texts, labels=labels[:1], key=key, guessed=guessed)
    if kind == "choice" or (options and kind is None):
        if not options:
            raise InputError(
                f"{table.source} has no columns of options; name them option_a, option_b..., or give a list 'options'"
            )
        answer = labels[0] if labels else _named(table, [name for name in ANSWERS if name not in options])
        if answer is None and labelled:
            raise InputError(f"which column of {table.source} holds the correct option? Choose with label=")
        texts = texts or _passage_and_question(table, QUESTIONS, "choice")
        found = (answer,) if answer else ()
        return Columns(kind="choice", texts=texts, labels=found, options=options, key=key, guessed=guessed)
    labels = labels or _guess_label(table, used=_flat(texts), required=labelled)
    texts = texts or _guess_texts(table, used=(*labels, *([key] if key else [])))
    separator = ""
    if kind is None:
        kind, separator = guess_kind(table, labels) if labels else ("classify", "")
    elif kind == "multilabel" and len(labels) == 1:
        words = [cell for cell in table.column(labels[0]) if isinstance(cell, str)]
        separator = next((sign for sign in SEPARATORS if any(sign in cell for cell in words)), "")
    return Columns(kind=kind, texts=texts, labels=labels, key=key, separator=separator, guessed=guessed)


def _pair_columns(
    table: Table, texts: tuple[tuple[str, ...], ...], labels: tuple[str, ...], key: str | None
) -> Columns:
    """Two texts; a score where a column is called so; else columns of negatives."""
    guessed = not texts
    used = {*_flat(texts), *labels, *([key] if key and not texts else [])}
    negatives = tuple(name for name in table.columns if NEGATIVE_NAME.fullmatch(name) and name not in used)
    free = [name for name in table.columns if name not in used and name not in negatives]
    if not labels and len(free) > (0 if texts else 2):
        named = [name for name in free if name.casefold() in SCORES]
        labels = tuple(named[:1]) if named and _is_numbers(table, named[0]) else ()
    if not texts:
        free = [name for name in free if name not in labels]
        texts = ((free[0],), (free[1],)) if len(free) == 2 else _guess_texts(table, used=(*used, *labels, *negatives))
    if len(texts) != 2:
        raise InputError(
            f"sentence vectors are learnt from two texts a row; which columns of {table.source} are they? It has "
            f"{', '.join(table.columns)}; choose with text=first,second"
        )
    options = () if labels else negatives
    return Columns(kind="embed", texts=texts, labels=labels[:1], options=options, key=key, guessed=guessed)


def _is_numbers(table: Table, name: str) -> bool:
    return all(number_in(cell) is not None for cell in table.column(name) if not is_missing(cell))


def _passage_and_question(table: Table, questions: Sequence[str], kind: Kind) -> tuple[tuple[str, ...], ...]:
    """The text of a choice or of a question about a passage, which a choice can do without."""
    question = _named(table, questions)
    passage = _named(table, [name for name in PASSAGES if name != question])
    if kind == "span" and (passage is None or question is None):
        raise InputError(
            f"{table.source} needs the columns context, question and answers; choose others with text= and label="
        )
    if question is None:
        raise InputError(f"{table.source} has options but no column 'question'; choose with text=passage,question")
    return ((passage,), (question,)) if passage else ((question,),)


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
    """The column as the table spells it; an error where there is none, or more than one."""
    found = _named(table, (name,))
    if found is None:
        raise InputError(f"{table.source} has no column '{name}'{nearest(name, table.columns)}")
    if is_repeated(found, table.columns):
        raise InputError(f"{table.source} has two columns '{found}'; rename one")
    return found


def _named_texts(table: Table, text: Names) -> tuple[tuple[str, ...], ...]:
    """``a`` is one text, ``a,b`` or a list a pair, ``a+b`` two columns joined into one text."""
    parts = tuple(
        (require(table, part),)
        if _named(table, (part,))
        else tuple(require(table, name.strip()) for name in part.split("+"))
        for part in _split_names(table, text)
    )
    if len(parts) > 2:
        names = ",".join("+".join(part) for part in parts)
        raise InputError(
            f"text names {len(parts)} parts ({names}) but a model takes one text or two; join columns into one with +, "
            f"such as {names.replace(',', '+')}"
        )
    return parts


def _split_names(table: Table, names: Names) -> list[str]:
    """Names one by one; in a string they are separated by commas, unless it belongs to the name of a column."""
    if isinstance(names, str) and names:
        names = [names] if _named(table, (names,)) else names.split(",")
    return [str(name).strip() for name in names or ()]


def _named(table: Table, names: Sequence[str]) -> str | None:
    """The first of ``names`` that is a column, in whatever case."""
    folded = {name.casefold(): name for name in reversed(table.columns)}
    exact = next((name for name in names if name in table.columns), None)
    return exact or next((folded[name.casefold()] for name in names if name.casefold() in folded), None)


def _key(table: Table) -> str | None:
    named = _named(table, KEYS) or next((name for name in table.columns if name.casefold().endswith("_id")), None)
    if named is None:
        return None
    index = table.columns.index(named)
    cells = [str(row[index]) for row in table.rows if has_content(row)]
    return named if len(set(cells)) == len(cells) and all(cells) else None


def _guess_label(table: Table, *, used: Sequence[str], required: bool) -> tuple[str, ...]:
    free = [name for name in table.columns if name not in used]
    for names in LABELS:
        found = [name for name in free if _is_called(table, name, names)]
        if len(found) > 1:  # names do not decide: the content may
            found = [name for name in found if _is_label_like(table, name)] or found
        if found:
            break
    else:
        found = [name for name in free if name != _key(table) and _is_label_like(table, name)] if required else []
    if len(found) == 1 or not required:
        return tuple(found[:1])
    for name in free:
        require(table, name)  # two columns of one name, where each may be meant
    objects = [name for name in free if any(isinstance(cell, dict) for cell in table.column(name))]
    if objects and not found:
        raise InputError(
            f"{table.source} holds objects in {', '.join(objects)}, where cells are expected; give their fields "
            "columns of their own, and choose the label with label="
        )
    shown = f"{', '.join(found)} could be it" if found else f"it has {listed(table.columns)}"
    raise InputError(f"which column of {table.source} is the label? {shown}; choose one with label=")


def _is_called(table: Table, name: str, names: Sequence[str]) -> bool:
    """Whether a column has one of these names; ``label*`` is any name with that word in it, over short cells."""
    folded = re.sub(r"[\W_]+", "_", name.casefold())
    if folded in names:
        return True
    words = {f"{word}*" for word in re.findall(r"[^\W\d_]+", folded)}
    return not words.isdisjoint(names) and _mean_words([str(cell) for cell in table.column(name)]) <= LONG_ENOUGH


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
        f"which column of {table.source} is the text? It has {', '.join(table.columns)}; choose with text= (a pair: "
        "text=first,second)"
    )


def _mean_words(cells: Sequence[str]) -> float:
    """Mean words per cell; where no spaces are written, two characters count as one."""
    if not cells:
        return 0.0
    return sum(max(len(cell.split()), sum(ord(sign) > 0x2E80 for sign in cell) / 2) for cell in cells) / len(cells)


def _flat(parts: Sequence[Sequence[str]]) -> tuple[str, ...]:
    return tuple(name for part in parts for name in part)


def guess_kind(table: Table, columns: Sequence[str]) -> tuple[Kind, str]:
    """The kind of task that these label columns make and, where several labels share a cell, what separates them."""
    if len(columns) > 1:
        return "multilabel", ""
    name = columns[0]
    cells = [cell for cell in table.column(name) if not is_missing(cell)]
    if any(isinstance(cell, list) for cell in cells):
        return "multilabel", ""
    numbers = [number_in(cell) for cell in cells]
    listed = name.casefold() in LISTS_OF_LABELS and any(map(has_decimal_comma, cells))  # 1,2 are two labels there
    if cells and not listed and all(number is not None for number in numbers):
        values = [number for number in numbers if number is not None]
        if not all(value.is_integer() for value in values):
            return "regress", ""
        measured = any("." in str(cell) for cell in cells) and name.casefold() in SCORES
        many = len(set(values)) > MOST_NUMBERED and len(set(values)) <= len(values) * ID_SHARE
        return "regress" if measured or many else "classify", ""
    separator = _separator(name, [str(cell) for cell in cells])
    return "multilabel" if separator else "classify", separator


def is_missing(cell: Cell) -> bool:
    """Whether a cell holds no label: empty, null or not a number."""
    return is_null(cell) or (isinstance(cell, str) and cell.strip().casefold() in ("", "nan"))


def is_null(cell: Cell) -> bool:
    """Whether a cell holds nothing: null, or not a number, which is how pandas writes that."""
    return cell is None or (isinstance(cell, float) and math.isnan(cell))


def number_in(cell: Cell) -> float | None:
    """The number a cell holds, written or stored."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, int | float):
        return float(cell) if abs(cell) < 1e300 else math.inf  # JSON has whole numbers beyond any float
    if has_decimal_comma(cell):
        return float(cell.replace(".", "").replace(",", "."))
    try:
        return float(cell) if isinstance(cell, str) and "_" not in cell else None
    except ValueError:
        return None


def has_decimal_comma(cell: Cell) -> bool:
    """Whether a cell is a number written as 3,5."""
    return isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell) is not None


def label_text(cell: Cell) -> str:
    """A label's name: whole numbers without a point, everything else as written."""
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell).strip()


def cell_labels(cell: Cell, separator: str) -> list[str]:
    """The labels in one cell: a list, or words between separators."""
    if is_missing(cell):
        return []
    if isinstance(cell, list):
        return [label_text(one) for one in cell]
    words = str(cell).split(separator) if separator else [label_text(cell)]
    return [word.strip() for word in words if word.strip()]


def _separator(name: str, cells: Sequence[str]) -> str:
    """What separates labels within a cell: a sign that is in many, and that leaves words which several cells share."""
    for sign in SEPARATORS:
        holding = [cell for cell in cells if sign in cell]
        if len(holding) < max(2, len(cells) // 20):
            continue
        words = [word.strip() for cell in set(cells) for word in cell.split(sign)]
        if len(set(words)) < len(words) and (name.casefold() in LISTS_OF_LABELS or sign != ","):
            return sign
    return ""
