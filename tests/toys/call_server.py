"""Calls of the command line in a fraction of a second each: a process that has everything imported forks for each call.

A call so has a process, a folder, a temporary folder and limits of its own. What it imports, the server imports too,
before the next one. This file is also the program of the server, which reads requests from its standard input.
"""

import ctypes
import faulthandler
import importlib
import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECONDS = 30.0
GIGABYTES = 6  # beyond what the process has when a call begins
GRACE = 2.0  # seconds after a call in which its own processes may end
NOT_OURS = ("torchinductor_", "litebert-cache")  # made by torch where it is imported; the cache of fetched files
SERVING = b" on http://"


@dataclass(frozen=True)
class Ended:
    """How a call ended: its exit code (None: it did not, in time), what it said, what it left running or in /tmp."""

    code: int | None
    said: str
    printed: str
    seconds: float
    left: tuple[str, ...] = ()


class CallServer:
    """Makes calls of ``litebert`` and ``litebert-lab`` in forks of one process: no call knows of the others."""

    def __init__(self, scratch: Path) -> None:
        self.scratch = scratch
        scratch.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
        self.process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )

    def __enter__(self) -> "CallServer":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(60)

    def call(self, words: Sequence[str], folder: Path, program: str = "litebert", **limits: Any) -> Ended:
        """A call in a folder: ``seconds`` and ``file_bytes`` are limits; ``plain``: permissions bind root, too."""
        assert self.process.stdin is not None and self.process.stdout is not None
        for old in self.scratch.iterdir():
            old.unlink() if not old.is_dir() or old.is_symlink() else subprocess.run(["rm", "-rf", old], check=True)
        request = {"words": list(words), "folder": str(folder), "program": program, "scratch": str(self.scratch)}
        print(json.dumps(request | limits), file=self.process.stdin, flush=True)
        answer = json.loads(self.process.stdout.readline())
        answer["left"] = tuple(answer["left"])
        return Ended(**answer)


def serve_calls() -> None:
    """The server: a line of JSON in, a line of JSON out."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(_call(request)), file=answers, flush=True)


def _call(request: dict[str, Any]) -> dict[str, Any]:
    scratch = Path(request["scratch"])
    inside = scratch / "tmp"
    inside.mkdir()
    inside.chmod(0o777)
    begun = time.monotonic()
    child = os.fork()
    if not child:
        os._exit(_be_the_call(request, scratch, inside))
    code = _wait(child, scratch / "said", request.get("seconds", SECONDS))
    seconds = time.monotonic() - begun
    left = _end_group(child)
    left += sorted(path.name for path in inside.iterdir() if not path.name.startswith(NOT_OURS))
    if code == 0:
        _import_as(scratch / "modules")
    said, printed = ((scratch / name).read_bytes().decode(errors="backslashreplace") for name in ("said", "printed"))
    return {"code": code, "said": said, "printed": printed, "seconds": seconds, "left": left}


def _wait(child: int, said: Path, seconds: float) -> int | None:
    """The exit code of a child; a server, which never ends, is stopped when it answers."""
    handle, stopped = os.pidfd_open(child), False
    try:
        last, spent = time.monotonic(), 0.0
        while not select.select([handle], [], [], 0.2)[0]:
            now = time.monotonic()
            last, spent = now, spent + min(now - last, 1.0)  # not while this machine sleeps
            if not stopped and said.exists() and SERVING in said.read_bytes():
                os.kill(child, signal.SIGTERM)
                stopped = True
            if spent > seconds:
                os.kill(child, signal.SIGUSR1)  # where it is
                time.sleep(0.3)
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                return None
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    finally:
        os.close(handle)


def _end_group(child: int) -> list[str]:
    """End what a call left running, unless it ends by itself."""
    end = time.monotonic() + GRACE
    while time.monotonic() < end:
        try:
            os.killpg(child, 0)
        except ProcessLookupError:
            return []
        if not _alive(child):
            return []
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    return ["a process"]


def _alive(group: int) -> bool:
    """Whether a process of a group is more than a zombie, which waits for a parent that reads its end."""
    for place in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of_group = place.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of_group) == group and state != "Z":
            return True
    return False


def _be_the_call(request: dict[str, Any], scratch: Path, inside: Path) -> int:
    import tempfile

    os.setsid()
    for name, number in (("printed", 1), ("said", 2)):
        os.dup2(os.open(scratch / name, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", errors="backslashreplace", closefd=False, buffering=1)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr)
    os.environ["TMPDIR"] = tempfile.tempdir = str(inside)
    os.environ["LITEBERT_CACHE"] = str(inside / "litebert-cache")
    before = set(sys.modules)
    _limit(request)
    os.chdir(request["folder"])
    sys.argv = [request["program"], *request["words"]]
    code = 0
    try:
        _main(request["program"])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
        code = 1
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        code = code or 120
    if code == 0:
        (scratch / "modules").write_text(json.dumps([name for name in sys.modules if name not in before]))
    return code


def _limit(request: dict[str, Any]) -> None:
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (GIGABYTES << 30), resource.RLIM_INFINITY))
    if "file_bytes" in request:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # as Python has it; writing is then an error
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"], resource.RLIM_INFINITY))
    if request.get("plain"):
        _give_up_privileges()


def _give_up_privileges() -> None:
    """Have permissions of files hold for this process even if it is root's (``capset`` to no capabilities)."""
    header = struct.pack("Ii", 0x20080522, 0)  # the third version, this process
    if ctypes.CDLL(None, use_errno=True).capset(header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def _main(program: str) -> None:
    if program == "litebert-lab":
        from litebert_lab.cli import main
    else:
        from litebert.cli import main
        from litebert.commands import serve

        serve.os = _NoNewProgram()  # type: ignore[assignment]
        if "page" in sys.argv[1:2]:
            from litebert.pages import web_runtime

            read = web_runtime.web_runtime
            nothing = web_runtime.WebRuntime(b"", b"")
            web_runtime.web_runtime = lambda folder=None: read(folder) if folder else nothing
    main()


class _NoNewProgram:
    """``os`` for ``litebert serve``, which makes way for a program: here it becomes that in the same process."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def execv(self, _: str, words: list[str]) -> None:
        import runpy

        sys.argv = words[2:]
        sys.modules.pop(words[2], None)
        runpy.run_module(words[2], run_name="__main__")
        raise SystemExit(0)


def _import_as(file: Path) -> None:
    """Import what a call that worked has imported, so that the next one need not."""
    if not file.exists():
        return
    for name in json.loads(file.read_text()):
        if name not in sys.modules and not name.startswith("__"):
            try:
                importlib.import_module(name)
            except BaseException:  # half of them cannot be imported alone, and the call does it again
                continue


if __name__ == "__main__":
    serve_calls()
