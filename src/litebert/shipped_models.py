"""Models that come with the package: a folder for each in ``litebert/models``, with the checksums of its files.

A name stands for such a folder wherever a model is asked for. Light: ``litebert ls`` reads this without torch.
"""

import hashlib
import os
from pathlib import Path

from litebert.errors import InputError

SHIPPED = Path(__file__).parent / "models"
CARD = "README.md"
MODEL_FILES = ("model.safetensors", "tokenizer.json")  # config.json and task.json are for people to edit
CHECKSUMS = "SHA256SUMS"  # in the form that `sha256sum -c` reads


def shipped_names() -> list[str]:
    """The models that came with the package."""
    return sorted(path.parent.name for path in SHIPPED.glob(f"*/{CHECKSUMS}"))


def shipped_folder(source: str | os.PathLike[str]) -> Path | None:
    """Where the shipped model of a name lies, if there is one."""
    return SHIPPED / str(source) if str(source) in shipped_names() else None


def shipped_about(name: str) -> str:
    """What a shipped model's card opens with, in a line, and its size."""
    folder = SHIPPED / name
    card = folder / CARD
    lines = card.read_text(encoding="utf-8").splitlines() if card.is_file() else []
    about = next((line.strip() for line in lines if line.strip() and not line.startswith(("#", "-", "|", "!"))), "")
    megabytes = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    return f"{about} ({megabytes:.1f} MB)".strip()


def write_checksums(folder: Path) -> None:
    """Write the checksum of every file of a folder, so that damage is detected."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKSUMS)
    lines = [f"{_digest(path)}  {path.relative_to(folder)}\n" for path in files]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def write_model_checksums(folder: Path) -> None:
    """Write the checksums of weights and vocabulary: a flipped bit there would change answers in silence."""
    lines = [f"{_digest(folder / name)}  {name}\n" for name in MODEL_FILES if (folder / name).is_file()]
    (folder / CHECKSUMS).write_text("".join(lines), encoding="utf-8")


def check_model(folder: Path) -> None:
    """An error where a file of a model is not as litebert wrote it; folders without checksums are taken as they are."""
    if folder.parent == SHIPPED:
        check_shipped(folder)
        return
    sums = folder / CHECKSUMS
    if not sums.is_file():
        return
    for line in sums.read_text(encoding="utf-8", errors="replace").splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if name in MODEL_FILES and path.is_file() and _digest(path) != digest:
            raise InputError(
                f"{path} is damaged or was changed: it is not the file that was written; copy the model again, or "
                f"delete {sums} if you changed it on purpose"
            )


def check_shipped(folder: Path) -> None:
    """An error where a file of a shipped model is not the one that was shipped; other folders are not looked at."""
    if folder.parent != SHIPPED:
        return
    for line in (folder / CHECKSUMS).read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        path = folder / name
        if not path.is_file() or _digest(path) != digest:
            wrong = "is not the file that was shipped" if path.is_file() else "is missing"
            raise InputError(f"the model {folder.name} is damaged: {path} {wrong}; install litebert again")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
