"""SQuAD 1.1 and 2.0, and any questions in their JSON form: articles of paragraphs, each with questions and answers.

``answer_start`` counts characters. Where the text is not there (files that were repacked or translated), the nearest
place that has it is taken, and how often is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.data.files import parse_json, read_text
from litebert.errors import InputError
from litebert.tasks.examples import Answer, Question, TaskData

VERSIONS: Mapping[str, str] = {"squad1": "v1.1", "squad2": "v2.0"}
METRICS = ("f1", "exact_match")


def read_squad(name: str, data: Path) -> TaskData:
    """SQuAD from the folder that holds ``train-v1.1.json`` and ``dev-v1.1.json`` (or those of 2.0)."""
    version = VERSIONS[name]
    files = [data / f"{part}-{version}.json" for part in ("train", "dev")]
    if not any(file.is_file() for file in files):
        names = " nor ".join(file.name for file in files)
        raise InputError(f"{data} holds neither {names}; --data names the folder with SQuAD's files, or one file")
    notes: list[str] = []
    train, dev = (read_questions(file, notes) if file.is_file() else () for file in files)
    return span_data(name, train, {"dev": dev} if dev else {}, notes, has_null=name == "squad2")


def span_data(
    name: str,
    train: Sequence[Question],
    dev: Mapping[str, tuple[Question, ...]],
    notes: Sequence[str],
    *,
    has_null: bool | None = None,
) -> TaskData:
    """Questions as a task; whether some have no answer is seen from them unless said."""
    everything = [*train, *(question for questions in dev.values() for question in questions)]
    return TaskData(
        name=name,
        kind="span",
        labels=(),
        metrics=METRICS,
        train=tuple(train),
        dev=dict(dev),
        notes=tuple(notes),
        has_null=any(question.impossible for question in everything) if has_null is None else has_null,
    )


def is_squad_form(content: object) -> bool:
    """Whether parsed JSON looks like a SQuAD file."""
    return isinstance(content, dict) and isinstance(content.get("data"), list)


def read_questions(path: Path, notes: list[str]) -> tuple[Question, ...]:
    """All questions of one file."""
    return parse_questions(parse_json(read_text(path), str(path)), path, notes)


def parse_questions(content: object, path: Path, notes: list[str]) -> tuple[Question, ...]:
    """The questions of a parsed file."""
    if not is_squad_form(content):
        raise InputError(f'{path} is not in SQuAD form: {{"data": [{{"title", "paragraphs": [...]}}]}} was expected')
    moved = lost = 0
    questions: list[Question] = []
    for title, passage, entry in _entries(content, path):
        try:
            key, text = str(entry["id"]), str(entry["question"])
            impossible = bool(entry.get("is_impossible", False))
            pairs = [(str(answer["text"]), int(answer["answer_start"])) for answer in entry.get("answers") or ()]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"{path}: question {len(questions) + 1} lacks {error} or has it in another form") from None
        if not passage.strip() or not text.strip():
            raise InputError(f"{path}: question '{key}' has an empty passage or no text; correct or remove it")
        answers = []
        for words, start in pairs:
            place = find_answer(passage, words, start)
            moved += place is not None and place != start
            lost += place is None
            answers.append(Answer(text=words, start=-1 if place is None else place))
        questions.append(
            Question(
                key=key,
                title=title,
                passage=passage,
                question=text,
                answers=() if impossible else tuple(answers),
                impossible=impossible,
            )
        )
    if not questions:
        raise InputError(f"{path} holds no questions")
    _note_answers(path, moved, lost, notes)
    return tuple(questions)


def find_answer(passage: str, text: str, start: int) -> int | None:
    """Where ``text`` really is: at ``start``, or at the nearest place that has it, or nowhere."""
    if text and passage[start : start + len(text)] == text and start >= 0:
        return start
    places = []
    place = passage.find(text) if text else -1
    while place >= 0:
        places.append(place)
        place = passage.find(text, place + 1)
    return min(places, key=lambda place: abs(place - start)) if places else None


def _entries(content: Any, path: Path) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for number, article in enumerate(content["data"]):
        if not isinstance(article, dict) or not isinstance(article.get("paragraphs"), list):
            raise InputError(f"{path}: article {number + 1} has no list of paragraphs")
        title = str(article.get("title", number))
        for paragraph in article["paragraphs"]:
            if not isinstance(paragraph, dict) or "context" not in paragraph or "qas" not in paragraph:
                raise InputError(f"{path}: a paragraph of article '{title}' lacks its context or its qas")
            for entry in paragraph["qas"]:
                yield title, str(paragraph["context"]), entry


def _note_answers(path: Path, moved: int, lost: int, notes: list[str]) -> None:
    if moved:
        notes.append(f"{path.name}: {moved:,} answers were not at their answer_start; the nearest place is taken")
    if lost:
        notes.append(f"{path.name}: {lost:,} answers are not in their passage; they count in scores, not in training")
