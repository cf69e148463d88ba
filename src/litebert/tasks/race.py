"""RACE: questions of school exams about a passage, four options each, from the middle and the high school part.

The official archive has one JSON object a file (``train/middle/1.txt``); repacked, one a line (``train/middle.jsonl``).
Both are read.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from litebert.errors import InputError
from litebert.tasks.examples import Choice, TaskData

PARTS: Mapping[str, tuple[str, ...]] = {
    "race": ("middle", "high"),
    "race-middle": ("middle",),
    "race-high": ("high",),
}
LETTERS = "ABCDEFGH"


def read_race(name: str, data: Path) -> TaskData:
    """RACE from the folder that holds train, dev and test."""
    if not data.is_dir():
        raise InputError(f"there is no folder '{data}'; --data names the folder with RACE's train, dev and test")
    # The archive unpacks to a folder RACE; its parent will do as well.
    root = next((path for path in sorted(data.iterdir()) if path.is_dir() and path.name.lower() == "race"), data)
    splits = {
        split: {part: found for part in PARTS[name] if (found := _read_part(root / split, part))}
        for split in ("train", "dev", "test")
    }
    if not any(splits.values()):
        wanted = " and ".join(f"{part}.jsonl or a folder {part} of .txt files" for part in PARTS[name])
        raise InputError(f"{root} holds no RACE: under train, dev and test there should be {wanted}")
    train = tuple(item for items in splits["train"].values() for item in items)
    return TaskData(
        name=name, kind="choice", labels=(), metrics=("accuracy",), train=train, dev=splits["dev"], test=splits["test"]
    )


def _read_part(folder: Path, part: str) -> tuple[Choice, ...]:
    items: list[Choice] = []
    for place, identity, content in _passages(folder, part):
        items += _questions(place, identity, content)
    return tuple(items)


def _passages(folder: Path, part: str) -> Iterator[tuple[str, str, Any]]:
    """Each passage with where it is, for messages, and a name for its questions."""
    lines = folder / f"{part}.jsonl"
    if lines.is_file():
        for number, line in enumerate(lines.read_text(encoding="utf-8").split("\n")):
            if line.strip():
                place = f"{lines}, line {number + 1}"
                yield place, f"{part}{number}", _parse(line, place)
    for path in sorted((folder / part).glob("*.txt")):
        yield str(path), f"{part}{path.name}", _parse(path.read_text(encoding="utf-8"), str(path))


def _parse(text: str, place: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise InputError(f"{place} is not JSON ({error})") from None


def _questions(place: str, identity: str, content: Any) -> Iterator[Choice]:
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
