"""Questions about passages: SQuAD 1.1 and 2.0 (an answer out of the passage), any questions in their JSON form, and
RACE (school exams, four options each, from the middle and the high school part).

SQuAD's ``answer_start`` counts characters. Where the text is not there (files that were repacked or translated), the
nearest place that has it is taken, and a note says how often. RACE's official archive has one JSON object a file
(``train/middle/1.txt``); repacked, one a line (``train/middle.jsonl``). Both are read.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from litebert.data.files import kind_of, parse_json, read_text
from litebert.errors import InputError
from litebert.tasks.examples import LETTERS, Answer, Choice, Question, TaskData

SQUAD: Mapping[str, str] = {"squad1": "v1.1", "squad2": "v2.0"}  # versions
RACE: Mapping[str, tuple[str, ...]] = {
    "race": ("middle", "high"),
    "race-middle": ("middle",),
    "race-high": ("high",),
}
HEAD = 1 << 16  # characters of a JSON file that show whether it is in SQuAD's form


def read_squad(name: str, data: Path) -> TaskData:
    """SQuAD from the folder that holds ``train-v1.1.json`` and ``dev-v1.1.json`` (or those of 2.0)."""
    files = [data / f"{part}-{SQUAD[name]}.json" for part in ("train", "dev")]
    if not any(file.is_file() for file in files):
        names = " nor ".join(file.name for file in files)
        raise InputError(f"{data} holds neither {names}; data names the folder with SQuAD's files, or one file")
    notes: list[str] = []
    train, dev = (read_questions(file, notes) if file.is_file() else () for file in files)
    return span_data(name, train, dev, notes)


def squad_of_splits(name: str, splits: Mapping[str, Iterable[Mapping[str, Any]]]) -> TaskData:
    """SQuAD from its splits on the Hub."""
    train, dev = (tuple(map(_question, splits.get(split, ()))) for split in ("train", "validation"))
    return span_data(name, train, dev)


def _question(row: Mapping[str, Any]) -> Question:
    passage, given = str(row["context"]), row["answers"]
    pairs = zip(given["text"], given["answer_start"], strict=True)
    answers = tuple(Answer.located(passage, text, start) for text, start in pairs)
    return Question(
        key=str(row["id"]),
        title=str(row.get("title", "")),
        passage=passage,
        question=str(row["question"]),
        answers=answers,
        impossible=not answers,
    )


def span_data(name: str, train: Sequence[Question], dev: Sequence[Question], notes: Sequence[str] = ()) -> TaskData:
    """Questions as a task; some have no answer in SQuAD 2.0, and in own files where there are such."""
    has_null = name == "squad2" if name in SQUAD else any(question.impossible for question in (*train, *dev))
    return TaskData(
        name=name,
        kind="span",
        labels=(),
        metrics=("f1", "exact_match"),
        train=tuple(train),
        dev={"dev": tuple(dev)} if dev else {},
        notes=tuple(notes),
        has_null=has_null,
    )


def is_squad_file(source: Any) -> bool:
    """Whether a source is a JSON file with articles of paragraphs, rather than rows."""
    if not isinstance(source, Path) or kind_of(source) != ".json":
        return False
    head = read_text(source)[:HEAD].lstrip()
    return head.startswith("{") and '"data"' in head and '"paragraphs"' in head


def read_questions(path: Path, notes: list[str]) -> tuple[Question, ...]:
    """All questions of one file in SQuAD's form."""
    content = parse_json(read_text(path), str(path))
    if not isinstance(content, dict) or not isinstance(content.get("data"), list):
        raise InputError(f'{path} is not in SQuAD form: {{"data": [{{"title", "paragraphs": [...]}}]}} was expected')
    moved = lost = 0
    questions: list[Question] = []
    for title, passage, entry in _entries(content, path):
        try:
            key, text = str(entry["id"]), str(entry["question"])
            impossible = bool(entry.get("is_impossible", False))
            pairs = [(str(answer["text"]), int(answer["answer_start"])) for answer in entry.get("answers") or ()]
        except (KeyError, TypeError, ValueError) as error:
            what = f"{error} is missing" if isinstance(error, KeyError) else "it has another form than SQuAD's"
            raise InputError(f"{path}: question {len(questions) + 1} cannot be read ({what}); correct it") from None
        if not passage.strip() or not text.strip():
            raise InputError(f"{path}: question '{key}' has an empty passage or no text; correct or remove it")
        answers = tuple(Answer.located(passage, *pair) for pair in pairs)
        lost += sum(answer.start < 0 for answer in answers)
        moved += sum(answer.start not in (-1, start) for answer, (_, start) in zip(answers, pairs, strict=True))
        questions.append(
            Question(
                key=key,
                title=title,
                passage=passage,
                question=text,
                answers=() if impossible else answers,
                impossible=impossible,
            )
        )
    if not questions:
        raise InputError(f"{path} holds no questions")
    if moved:
        notes.append(f"{path.name}: {moved:,} answers were not at their answer_start; the nearest place is taken")
    if lost:
        notes.append(f"{path.name}: {lost:,} answers are not in their passage; they count in scores, not in training")
    return tuple(questions)


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


# --- RACE


def read_race(name: str, data: Path) -> TaskData:
    """RACE from the folder that holds train, dev and test."""
    # The archive unpacks to a folder RACE; its parent will do as well.
    root = next((path for path in sorted(data.iterdir()) if path.is_dir() and path.name.lower() == "race"), data)
    splits = {
        split: {part: found for part in RACE[name] if (found := tuple(_read_part(root / split, part)))}
        for split in ("train", "dev", "test")
    }
    if not any(splits.values()):
        wanted = " and ".join(f"{part}.jsonl or a folder {part} of .txt files" for part in RACE[name])
        raise InputError(f"{root} holds no RACE: under train, dev and test there should be {wanted}")
    return _choice_data(name, *splits.values())


def race_of_splits(name: str, splits: Mapping[str, Iterable[Mapping[str, Any]]]) -> TaskData:
    """RACE from its splits on the Hub; questions are numbered within their passage, as in local files."""
    parts: list[dict[str, tuple[Choice, ...]]] = []
    for split in ("train", "validation", "test"):
        counts: dict[str, int] = {}
        items = []
        for row in splits.get(split, ()):
            identity = str(row["example_id"])
            number = counts[identity] = counts.get(identity, -1) + 1
            items.append(
                Choice(
                    key=f"{identity}-{number}",
                    passage=str(row["article"]),
                    question=str(row["question"]),
                    options=tuple(map(str, row["options"])),
                    target=LETTERS.index(str(row["answer"])),
                )
            )
        levels = {"": tuple(items)} if split == "train" else _by_level(items, RACE[name])
        parts.append(levels)
    return _choice_data(name, *parts)


def _by_level(items: Sequence[Choice], levels: Sequence[str]) -> dict[str, tuple[Choice, ...]]:
    found = {level: tuple(item for item in items if item.key.startswith(level)) for level in levels}
    return {level: some for level, some in found.items() if some}


def _choice_data(
    name: str,
    train: Mapping[str, tuple[Choice, ...]],
    dev: Mapping[str, tuple[Choice, ...]],
    test: Mapping[str, tuple[Choice, ...]],
) -> TaskData:
    everything = tuple(item for items in train.values() for item in items)
    return TaskData(
        name=name, kind="choice", labels=(), metrics=("accuracy",), train=everything, dev=dict(dev), test=dict(test)
    )


def _read_part(folder: Path, part: str) -> Iterator[Choice]:
    """The questions of the middle or the high school part."""
    lines = folder / f"{part}.jsonl"
    if lines.is_file():
        for number, line in enumerate(lines.read_text(encoding="utf-8").split("\n")):
            if line.strip():
                yield from _choices(f"{lines}, line {number + 1}", f"{part}{number}", line)
    for path in sorted((folder / part).glob("*.txt")):
        yield from _choices(str(path), f"{part}{path.name}", path.read_text(encoding="utf-8"))


def _choices(place: str, identity: str, text: str) -> Iterator[Choice]:
    """The questions about one passage; ``identity`` names it where it has no id."""
    content = parse_json(text, place)
    try:
        passage = str(content["article"])
        rows = list(zip(content["questions"], content["options"], content["answers"], strict=True))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"{place} is not a passage of RACE: it needs article, and questions, options and answers of one number"
        ) from None
    identity = str(content.get("id", identity))
    for number, (question, options, answer) in enumerate(rows):
        target = LETTERS.find(str(answer)) if answer else -1
        if not 0 <= target < len(options):
            raise InputError(f"{place}: the answer to question {number + 1} is '{answer}', not one of its options")
        yield Choice(
            key=f"{identity}-{number}",
            passage=passage,
            question=str(question),
            options=tuple(map(str, options)),
            target=target,
        )
