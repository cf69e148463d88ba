"""The states of a run on disk: written all or nothing, with a checksum, so that a run can be killed at any moment.

    RUN/checkpoints/step-000001200/state.pt        tensors, numbers, strings, lists and dictionaries; runs no code
    RUN/checkpoints/step-000001200/checksum.json   SHA-256 and size of the state, and its place in the order of saving
    RUN/checkpoints/best.json                      which step scored best

Names that begin with a dot are work under way, and what a killed save left of it goes at the next one. "Last" is what
was saved last, not the highest step: a run that was rolled back has states of a future that it gave up.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, Literal, cast

import torch
from torch import Tensor

from litebert.errors import InputError
from litebert.runs import CHECKPOINTS, DISK_FULL, RunLock, sync_folder, write_atomically

__all__ = ["RunLock", "Saved", "load_state", "save_state", "saved_states"]

STATE = "state.pt"
CHECKSUM = "checksum.json"
BEST = "best.json"
_NAME = re.compile(r"(?P<replaced>\.replaced-)?step-(?P<step>\d{9,})")


@dataclass(frozen=True)
class Saved:
    """A state on disk. ``order`` counts the saves of the run; -1 where the checksum file cannot be read."""

    step: int
    folder: Path
    order: int = -1
    sha256: str = ""
    size: int = -1

    def looks_whole(self) -> bool:
        """Whether the file is there with its size; ``load_state`` also compares every byte."""
        path = self.folder / STATE
        return self.order >= 0 and path.is_file() and path.stat().st_size == self.size


def save_state(run: Path, step: int, state: Mapping[str, Any], *, keep: int = 2, best: bool = False) -> Path:
    """Write a state, then drop all but the last ``keep`` and the best one; gives the folder of the state."""
    assert keep >= 1, keep
    plain = _plain(state, "state")
    folder = run / CHECKPOINTS
    target = folder / f"step-{step:09d}"
    temporary = folder / f".saving-{target.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _clean_up(folder)
        earlier = [saved for saved in saved_states(run) if saved.order >= 0]
        order = earlier[-1].order + 1 if earlier else 0
        if step == _best_step(run) and earlier and earlier[-1].step != step:
            (folder / BEST).unlink()  # reached again after a rollback: not the state that scored best
        temporary.mkdir()
        _write(temporary, plain, step, order)
        _put_in_place(temporary, target)
        if best:
            write_atomically(folder / BEST, json.dumps({"step": step}) + "\n")
        _prune(run, keep)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise InputError(_disk_full(run, step, error)) from None
        raise
    return target


def load_state(
    run: Path, *, which: Literal["last", "best"] | int = "last"
) -> tuple[int, dict[str, Any], list[str]] | None:
    """Step, state and notes of the last, the best or a given state; where that is broken, of the one before it.

    None where nothing was ever saved. The notes describe what is damaged and what was used instead.
    """
    states = saved_states(run)
    if not states:
        return None
    notes: list[str] = []
    for saved in _candidates(run, states, which, notes):
        fault = _fault(saved)
        if fault is None:
            try:
                state = torch.load(saved.folder / STATE, map_location="cpu", weights_only=True)
            except (OSError, RuntimeError, UnpicklingError) as error:
                fault = f"torch cannot read it ({str(error).splitlines()[0]})"
            else:
                if notes:
                    notes.append(f"taking the state of step {saved.step:,} instead")
                return saved.step, state, notes
        notes.append(f"the state of step {saved.step:,} cannot be used: {fault}")
    raise InputError(
        f"no state of {run} can be used ({'; '.join(notes)}); start the run again in another folder, or put back a "
        f"copy of {run / CHECKPOINTS}"
    )


def saved_states(run: Path) -> list[Saved]:
    """The states of a run in the order of saving, whole or not; those without a readable checksum come last."""
    found: dict[int, Saved] = {}
    folder = run / CHECKPOINTS
    for path in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        # A dot sorts before a letter, so the replaced form, met after the plain one, counts only where that is missing.
        if match and path.is_dir() and int(match["step"]) not in found:
            found[int(match["step"])] = _read_checksum(path, int(match["step"]))
    return sorted(found.values(), key=lambda saved: (saved.order < 0, saved.order, saved.step))


def _read_checksum(folder: Path, step: int) -> Saved:
    try:
        note = json.loads((folder / CHECKSUM).read_text(encoding="utf-8"))
        if int(note["step"]) != step:
            return Saved(step, folder)
        return Saved(step, folder, int(note["order"]), str(note["sha256"]), int(note["bytes"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Saved(step, folder)


def _candidates(run: Path, states: list[Saved], which: Literal["last", "best"] | int, notes: list[str]) -> list[Saved]:
    """The states to try, the wanted one first, then those before it in time, then the others."""
    newest_first = states[::-1]
    if which == "last":
        return newest_first
    step = _best_step(run) if which == "best" else which
    wanted = next((saved for saved in states if saved.step == step), None)
    if wanted is None:
        if which != "best":
            there = ", ".join(f"{saved.step}" for saved in sorted(states, key=lambda saved: saved.step))
            raise InputError(f"{run} has no state of step {which}; there is {there}")
        notes.append(f"{run} does not record which of its states scored best")
        return newest_first
    start = newest_first.index(wanted)
    return newest_first[start:] + newest_first[:start][::-1]


def _fault(saved: Saved) -> str | None:
    """What is wrong with a state, in words; None where every byte is as it was written."""
    path = saved.folder / STATE
    if saved.order < 0:
        return f"{CHECKSUM} is missing or damaged"
    try:
        size = path.stat().st_size
        if size != saved.size:
            return f"{STATE} has {size:,} bytes of {saved.size:,}"
        with path.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == saved.sha256
    except OSError as error:
        return f"{STATE}: {error.strerror}"
    return None if same else f"{STATE} has changed since it was written (its checksum differs)"


def _best_step(run: Path) -> int | None:
    try:
        return int(json.loads((run / CHECKPOINTS / BEST).read_text(encoding="utf-8"))["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


class _Digesting:
    """A file that takes the checksum of what passes, and remembers why the disk refused something."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0
        self.refusal: OSError | None = None

    def write(self, data: bytes) -> int:
        try:
            self._file.write(data)
        except OSError as error:
            self.refusal = error
            raise
        self.digest.update(data)
        self.size += len(data)
        return len(data)

    def flush(self) -> None:
        self._file.flush()


def _write(folder: Path, state: dict[str, Any], step: int, order: int) -> None:
    """The files of a state, safe on the disk."""
    with (folder / STATE).open("wb", buffering=0) as file:
        digesting = _Digesting(file)
        try:
            torch.save(state, cast(BinaryIO, digesting))  # it asks for nothing but write and flush
        except Exception:
            # torch wraps what goes wrong in its writer; the disk's own reason is the one to report.
            if digesting.refusal is not None:
                raise digesting.refusal from None
            raise
        os.fsync(file.fileno())
    note = {
        "step": step,
        "order": order,
        "sha256": digesting.digest.hexdigest(),
        "bytes": digesting.size,
        "saved": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_atomically(folder / CHECKSUM, json.dumps(note, indent=2) + "\n")
    sync_folder(folder)


def _put_in_place(temporary: Path, target: Path) -> None:
    """Give a written state its name; one of the same step steps aside and stays readable until that is done."""
    aside = target.with_name(f".replaced-{target.name}")
    if target.exists():
        target.replace(aside)
    temporary.replace(target)
    sync_folder(target.parent)
    shutil.rmtree(aside, ignore_errors=True)


def _prune(run: Path, keep: int) -> None:
    """Drop all states but the last ones and the best. What was just saved is never among those dropped."""
    whole = [saved for saved in saved_states(run) if saved.looks_whole()]
    kept = {saved.step for saved in whole[-keep:]} | {_best_step(run)}
    for saved in saved_states(run):
        if saved.step not in kept:
            _remove(saved.folder)


def _clean_up(folder: Path) -> None:
    """Finish or undo what a killed save left."""
    for path in sorted(folder.glob(".*")):
        target = folder / path.name.removeprefix(".replaced-")
        if path.name.startswith(".replaced-") and not target.exists():
            path.replace(target)
        elif path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def _remove(folder: Path) -> None:
    """Remove a state; out of sight first, so that half of one is never taken for a damaged one."""
    hidden = folder.with_name(f".removing-{folder.name}")
    folder.replace(hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def _disk_full(run: Path, step: int, error: OSError) -> str:
    free = shutil.disk_usage(run if run.exists() else run.parent).free
    whole = ", ".join(f"{saved.step}" for saved in saved_states(run) if saved.looks_whole())
    stays = f"saved before and whole: step {whole}" if whole else "nothing was saved before"
    return (
        f"no room left to save step {step} of {run} ({os.strerror(error.errno or errno.ENOSPC)}; "
        f"{free / 2**20:,.0f} MiB are free); {stays}; free some space and continue with --resume"
    )


def _plain(value: Any, where: str) -> Any:
    """The value with nothing in it that reading without running code would refuse; ``where`` is for the error."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (Tensor, torch.nn.Parameter):
        tensor = value.detach()
        # A view would take all of what it is a view of along to the disk.
        whole = tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
        return tensor if whole else tensor.clone()
    if isinstance(value, Mapping):
        bad = next((key for key in value if type(key) not in (str, int)), None)
        if bad is not None:
            raise TypeError(f"{where} has the key {bad!r}; a state's keys are strings and integers")
        return {key: _plain(part, f"{where}.{key}") for key, part in value.items()}
    if type(value) in (list, tuple):
        parts = [_plain(part, f"{where}.{index}") for index, part in enumerate(value)]
        return tuple(parts) if type(value) is tuple else parts
    raise TypeError(f"{where} is a {type(value).__name__}; a state holds tensors, numbers, strings, lists and dicts")
