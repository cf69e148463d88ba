"""What made a folder: every command that writes one leaves a ``run.json`` in it. The registry of runs is these files.

A note records the command, its time and settings, what the run came from (its parents), its status and its results.
Here are the notes, the lock of a run folder, and the tree that ``litebert runs`` prints. Everything is light at
import, because that command reads hundreds of notes and has no use for torch.
"""

import contextlib
import errno
import io
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, TextIO

from litebert.errors import InputError
from litebert.terminal import text_width
from litebert.version import __version__

if TYPE_CHECKING:
    from filelock import FileLock

RUN_FILE = "run.json"
LOCK_FILE = "lock"
MODEL_FOLDER = "model"  # where a run leaves its model; it counts as part of the run, not as one of its own
LAST_FOLDER, AVERAGED_FOLDER = "model-last", "model-averaged"  # of two sets of weights, the one not in ``model``
MODEL_FOLDERS = (MODEL_FOLDER, LAST_FOLDER, AVERAGED_FOLDER)
CHECKPOINTS = "checkpoints"
STORE_FILE = "store.json"  # of a token store, for its fingerprint

TRAINING = ("pretrain", "finetune", "distill", "shrink")  # resumable commands

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

Status = Literal["running", "finished", "stopped", "diverged"]


def write_atomically(path: Path, text: str) -> None:
    """Write a small text file so that a reader sees the old one or the new one, never a part."""
    with new_file(path) as file:
        file.write(text)


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[TextIO]:
    """A text file that gets its name only when it is complete; see ``new_binary_file``."""
    with new_binary_file(path) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="")
        yield text
        text.detach()  # what it holds is written; the file is left open


@contextlib.contextmanager
def new_binary_file(path: Path) -> Iterator[BinaryIO]:
    """A file that gets its name only when it is complete; an error of the system has that name, too.

    A device or a pipe (/dev/null, /dev/stdout) is written to: a file with its name would take its place.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file to write")
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as file:
                yield file
        else:
            with _renamed_when_complete(path) as file:
                yield file
    except OSError as error:
        if error.filename is None or Path(os.fsdecode(error.filename)).name.startswith(f".{path.name}."):
            error.filename = str(path)
        raise


@contextlib.contextmanager
def _renamed_when_complete(path: Path) -> Iterator[BinaryIO]:
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or a loss of power could leave the new name with nothing in it
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def locked_folder(folder: Path, work: str) -> Iterator[None]:
    """Create a folder where it is missing, and keep it to one process at a time; ``work`` is what that does."""
    from filelock import lock_descriptor

    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; the output of a {work} is a folder")
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder, os.O_RDONLY)
    try:
        if not lock_descriptor(handle, blocking=False):
            raise InputError(f"another {work} is writing {folder}; wait for it or stop it")
        yield
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()
        os.close(handle)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder survive a loss of power."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@dataclass(frozen=True, kw_only=True)
class Parent:
    """Something a run came from. The fingerprint finds it again after it was moved."""

    role: str  # "corpus", "warm start", "source", ...
    folder: str
    fingerprint: str = ""


@dataclass(frozen=True, kw_only=True)
class RunInfo:
    """A ``run.json`` as read, and where it lies."""

    folder: Path
    verb: str
    made: str = ""
    ended: str = ""
    litebert: str = ""
    fingerprint: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    parents: tuple[Parent, ...] = ()
    status: str = "finished"
    result: Mapping[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """What was trained, as far as the settings have it."""
        named = (self.settings.get(key) for key in ("model", "preset", "source", "kind"))
        return next((str(name) for name in named if isinstance(name, str)), "")


def write_run(
    folder: Path,
    verb: str,
    settings: Mapping[str, Any],
    *,
    parents: Sequence[Parent] = (),
    status: Status = "finished",
    result: Mapping[str, Any] | None = None,
) -> None:
    """Record in ``folder`` which command made it, when, with which settings and from what."""
    note = {
        "verb": verb,
        "made": _now(),
        "litebert": __version__,
        "fingerprint": secrets.token_hex(8),
        "status": status,
        "parents": [asdict(parent) for parent in parents],
        "settings": dict(settings),
        "result": dict(result or {}),
    }
    _write(folder, note)


def update_run(folder: Path, *, status: Status | None = None, result: Mapping[str, Any] | None = None) -> None:
    """Change the status of a run; figures of ``result`` are added to those recorded before."""
    note = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    if status is not None:
        note["status"] = status
        note["ended"] = "" if status == "running" else _now()
    note["result"] = {**note.get("result", {}), **(result or {})}
    _write(folder, note)


def _write(folder: Path, note: Mapping[str, Any]) -> None:
    write_atomically(folder / RUN_FILE, json.dumps(note, indent=2, ensure_ascii=False, default=str) + "\n")


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def read_run(folder: Path) -> RunInfo | None:
    """The note in a folder, or None where there is none that is ours."""
    try:
        note = json.loads((folder / RUN_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not (isinstance(note, dict) and isinstance(note.get("verb"), str) and "litebert" in note):
        return None  # other tools leave files of this name, too
    known: dict[str, Any] = {
        key: str(note[key])
        for key in ("verb", "made", "ended", "litebert", "fingerprint", "status")
        if note.get(key) is not None
    }
    known |= {key: note[key] for key in ("settings", "result") if isinstance(note.get(key), dict)}
    parents = tuple(
        Parent(**{key: str(parent.get(key, "")) for key in ("role", "folder", "fingerprint")})
        for parent in note.get("parents") or ()
        if isinstance(parent, dict)
    )
    return RunInfo(folder=folder, parents=parents, **known)


def check_run_folder(out: Path, resume: bool) -> None:
    """Refuse a folder that holds something else, or nothing to resume."""
    if out.exists() and not out.is_dir():
        raise InputError(f"{out} is a file; name a folder for the run")
    used = out.is_dir() and any(path.name != LOCK_FILE for path in out.iterdir())
    if resume and not used:
        raise InputError(f"there is no run in {out} to resume; leave resume out to start one")
    info = read_run(out) if used else None
    if used and (info is None or info.verb not in TRAINING):
        raise InputError(f"{out} is not empty and holds no run of training; name another folder")
    if used and not resume:
        raise InputError(f"{out} is not empty; pass resume to continue the run there, or name another folder")


def parent_of(role: str, folder: Path) -> Parent:
    """The reference to keep of a folder that a run starts from: a run, a model, a token store."""
    for place in (folder.parent, folder) if folder.name in MODEL_FOLDERS else (folder,):
        info = read_run(place)
        if info is not None:
            return Parent(role=role, folder=str(place), fingerprint=info.fingerprint)
    fingerprint = ""
    with contextlib.suppress(OSError, ValueError, AttributeError, RecursionError):
        fingerprint = str(json.loads((folder / STORE_FILE).read_text(encoding="utf-8")).get("fingerprint", ""))
    return Parent(role=role, folder=str(folder), fingerprint=fingerprint)


def list_runs(folders: Iterable[Path]) -> list[RunInfo]:
    """Every run in these folders and below, the oldest first."""
    found: dict[Path, RunInfo] = {}
    for folder in folders:
        for place in _run_folders(folder):
            info = read_run(place)
            if info is not None:
                found.setdefault(place.resolve(), info)
    return sorted(found.values(), key=lambda info: (info.made, str(info.folder)))


def _run_folders(folder: Path) -> Iterator[Path]:
    for place, inner, files in os.walk(folder):
        parts_of_run = (*MODEL_FOLDERS, CHECKPOINTS) if RUN_FILE in files else ()
        inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in parts_of_run)
        if RUN_FILE in files:
            yield Path(place)


def _clear_unfinished(run: Path) -> None:
    """Remove what a killed process was writing; a model that was being replaced comes back if the new one did not."""
    model = run / MODEL_FOLDER
    for old in run.glob(f".{MODEL_FOLDER}.*.old"):
        if not model.exists():
            old.rename(model)
    for path in run.glob(f".{MODEL_FOLDER}.*"):
        shutil.rmtree(path)
    for path in run.glob(f".{RUN_FILE}.*"):
        path.unlink()


class RunLock:
    """Keeps a run folder to one process at a time; the lock dies with the process, however that ends.

    The folder is made if need be, and removed again where the run fails before it has put anything there. ``patience``:
    seconds to wait for a process that is about to end.
    """

    def __init__(self, run: Path, patience: float = 0.2) -> None:
        self.path, self.patience = run / LOCK_FILE, patience
        self._lock: FileLock | None = None
        self._made = self._empty = False

    def __enter__(self) -> "RunLock":
        from filelock import FileLock, Timeout  # takes a tenth of a second to import

        folder = self.path.parent
        self._made, self._empty = not folder.exists(), not (folder.is_dir() and any(folder.iterdir()))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path, thread_local=False, fallback_to_soft=False, on_acquired=_write_holder)
        try:
            # Not at once: someone may be looking (``is_in_use``).
            lock.acquire(timeout=self.patience, poll_interval=0.02)
        except Timeout:
            raise InputError(
                f"{self.path.parent} is in use by {_holder(self.path)}; wait for it to end, stop it, or name another "
                "folder"
            ) from None
        except OSError as error:
            self._remove_if_unused()
            if error.errno in DISK_FULL:
                raise InputError(f"no room left on the disk of {self.path.parent}; free some space") from None
            raise
        self._lock = lock
        _clear_unfinished(folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._lock is not None
        os.truncate(self.path, 0)
        if kind is not None:
            self._remove_if_unused()
        self._lock.release()

    def _remove_if_unused(self) -> None:
        # Never from a folder with a run: a process that has the file open could lock a file that nobody else sees.
        folder = self.path.parent
        inside = list(folder.iterdir())
        kept = [path for path in inside if path.name not in (LOCK_FILE, RUN_FILE)]
        if not self._empty or any(path.is_file() or any(path.iterdir()) for path in kept):
            return
        for path in inside:
            path.rmdir() if path.is_dir() else path.unlink()
        if self._made:
            folder.rmdir()


def _write_holder(handle: int) -> None:
    """Note in a lock file which process holds it."""
    os.ftruncate(handle, 0)
    mine = {"pid": os.getpid(), "host": socket.gethostname(), "since": _now()}
    os.pwrite(handle, json.dumps(mine).encode(), 0)


def is_in_use(run: Path) -> bool:
    """Whether a living process holds the lock of a run, as far as this host knows."""
    try:
        handle = os.open(run / LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    from filelock import lock_descriptor

    try:
        for wait in (0.02, 0.05, 0.0):  # someone else may be looking
            if lock_descriptor(handle, blocking=False):
                return False
            time.sleep(wait)
        return True
    finally:
        os.close(handle)


def standing(info: RunInfo) -> str:
    """The status of a run, or ``killed`` where its note has it running and no process holds it."""
    if info.status != "running" or is_in_use(info.folder):
        return info.status
    host = _lock_note(info.folder / LOCK_FILE).get("host")
    # Not every shared file system shows this host the locks of others.
    return "killed" if host in (None, socket.gethostname()) else f"running on {host}"


def _holder(path: Path) -> str:
    """Which process a lock file names, in words."""
    note = _lock_note(path)
    return f"process {note['pid']} on {note['host']} (since {note['since']})" if note else "another process"


def _lock_note(path: Path) -> dict[str, Any]:
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
        return {key: note[key] for key in ("pid", "host", "since")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


@contextlib.contextmanager
def new_folder(path: Path, verb: str, *, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill that gets its name only when complete; only what the same command wrote is ever replaced."""
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        if not overwrite:
            raise InputError(f"'{path}' exists; choose another folder, or use overwrite to replace it")
        note = read_run(path) if path.is_dir() else None
        if note is None or note.verb != verb:
            raise InputError(f"'{path}' was not written by this command, so it is not replaced; remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary / "new"
        if path.exists():
            path.replace(temporary / "old")
        (temporary / "new").replace(path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


HEADINGS = ("run", "verb", "model", "made (UTC)", "status", "steps", "held-out loss")
RIGHT = 5  # columns from here on hold numbers
SHORT = 14  # characters of a model's name in a narrow window


def described(run: RunInfo, parents: Mapping[Path, list[RunInfo]]) -> dict[str, Any]:
    """A run as JSON has it; ``came_from`` are the folders of those parents that are in the list themselves."""
    return {
        **asdict(run),
        "folder": str(run.folder),
        "model": run.model,
        "status": standing(run),
        "came_from": [str(parent.folder) for parent in parents[run.folder]],
    }


def parents_among(runs: Sequence[RunInfo]) -> dict[Path, list[RunInfo]]:
    """For each run, by its folder, those of its parents that are runs of the list."""
    by_folder = {run.folder.resolve(): run for run in runs}
    by_fingerprint: dict[str, RunInfo] = {}
    for run in runs:
        by_fingerprint.setdefault(run.fingerprint, run)

    def find(parent: Parent) -> RunInfo | None:
        folder = Path(parent.folder).resolve()
        named = by_folder.get(folder.parent if folder.name in MODEL_FOLDERS else folder)
        # The fingerprint moves with a run; but copies share it, and of those the one that was named is meant.
        if not parent.fingerprint or (named and named.fingerprint == parent.fingerprint):
            return named
        return by_fingerprint.get(parent.fingerprint)

    found = {run.folder: [find(parent) for parent in run.parents] for run in runs}
    return {run.folder: [parent for parent in found[run.folder] if parent and parent is not run] for run in runs}


def tree(runs: Sequence[RunInfo]) -> str:
    """Runs as lines of text; what they came from, where it is not a run itself, heads its own group."""
    parents = parents_among(runs)
    children: dict[Path, list[RunInfo]] = defaultdict(list)
    groups: dict[str, list[RunInfo]] = defaultdict(list)
    for run in runs:
        if parents[run.folder] and not _in_a_circle(run, parents):
            children[parents[run.folder][0].folder].append(run)
        else:
            groups[_outside(run)].append(run)
    rows: list[tuple[str, ...]] = [HEADINGS]

    def add(members: Sequence[RunInfo], indent: str, branches: bool) -> None:
        """Append runs and all that came from them."""
        for run in members:
            last = run is members[-1]
            own, below = ("└─ ", "   ") if last else ("├─ ", "│  ")
            own, below = (indent + own, indent + below) if branches else ("", "")
            step, loss = run.result.get("step"), run.result.get("held_out_loss")
            steps = f"{step:,}" if isinstance(step, int) else ""
            losses = f"{loss:.3f}" if isinstance(loss, int | float) else ""
            made = run.made[:16].replace("T", " ")
            rows.append((f"{own}{run.folder}", run.verb, run.model, made, standing(run), steps, losses))
            add(children.get(run.folder, []), below, True)

    for heading, members in groups.items():
        if heading:
            rows.append((heading,))
        add(members, "", bool(heading))
    wide = _aligned(rows)
    return wide if max(map(len, wide.splitlines())) <= text_width() else _aligned([_narrow(row) for row in rows])


def _narrow(row: tuple[str, ...]) -> tuple[str, ...]:
    """The same row for a narrow window: the end of a long name, no year, the first word of a verb."""
    if len(row) < len(HEADINGS):
        return row
    name, verb, model, made, status, step, loss = row
    if row == HEADINGS:
        return (name, verb, model, made, status, step, "held out")
    short = model if len(model) <= SHORT else f"…{model[1 - SHORT :]}"
    return (name, verb.partition(" ")[0], short, made.partition("-")[2], status, step, loss)


def _in_a_circle(run: RunInfo, parents: Mapping[Path, list[RunInfo]]) -> bool:
    """Whether a run descends from itself, as notes edited by hand may have it."""
    seen: set[Path] = set()
    current = run
    while parents[current.folder] and current.folder not in seen:
        seen.add(current.folder)
        current = parents[current.folder][0]
    return current is run


def _outside(run: RunInfo) -> str:
    """What a run came from, in words, where that is not a run of the list."""
    if not run.parents:
        return ""
    parent = run.parents[0]
    mark = f" {parent.fingerprint[:8]}" if parent.fingerprint else ""
    return f"{parent.folder} ({parent.role}{mark})"


def _aligned(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(len(row[place]) for row in rows if len(row) > 1) for place in range(len(HEADINGS))]
    lines = []
    for row in rows:
        cells = zip(row, widths, range(len(row)), strict=False)
        line = "  ".join(cell.rjust(width) if place >= RIGHT else cell.ljust(width) for cell, width, place in cells)
        lines.append(line.rstrip())
    return "\n".join(lines)
