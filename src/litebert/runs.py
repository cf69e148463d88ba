"""What made a model folder: every verb that writes one leaves a ``run.json`` in it. The registry is these files."""

import json
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from litebert.version import __version__

RUN_FILE = "run.json"


def write_atomically(path: Path, text: str) -> None:
    """Write a small text file so that a reader sees the old one or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())  # or a loss of power could leave the new name with nothing in it
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_run(folder: Path, verb: str, settings: Mapping[str, Any]) -> None:
    """Leave a note in ``folder`` of which verb made it, when, and with what."""
    note = {
        "verb": verb,
        "made": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "litebert": __version__,
        **settings,
    }
    write_atomically(folder / RUN_FILE, json.dumps(note, indent=2, ensure_ascii=False) + "\n")
