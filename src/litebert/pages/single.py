"""One HTML file that holds models, what runs them and the user interface; it opens from disk without a network."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from litebert.errors import InputError
from litebert.pages.assemble import WORKER, assemble, asset, packed, plain_json
from litebert.pages.described import describe, tokenizer_file, web_graph
from litebert.pages.web_runtime import VERSION, WebRuntime
from litebert.runs import write_atomically

# Scripts run only where they are this page's own, from itself or (the worker, onnxruntime) from its memory, and nothing
# may be loaded or sent anywhere.
POLICY = ("script-src SCRIPT 'wasm-unsafe-eval' blob:", "worker-src blob:", "connect-src 'none'")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Page:
    """A page that was written: its file, its size in bytes, and the names of its models."""

    file: Path
    size: int
    models: tuple[str, ...]
    runtime: str = VERSION


def write_page(folders: Sequence[tuple[str, Path]], out: Path, runtime: WebRuntime) -> Page:
    """Write the page of some exported folders, each with the name to show."""
    names = tuple(name for name, _ in folders)
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two models are called '{twice}'; name them: NAME=MODEL", parameter="models")
    data = {"worker": "\n".join(asset(name) for name in WORKER), **runtime.packed}
    described = []
    for number, (name, folder) in enumerate(folders):
        graph = web_graph(folder)
        described.append({**describe(folder, name), "megabytes": round(len(graph) / 1e6, 1)})
        data[f"graph-{number}"] = packed(graph)
        data[f"tokenizer-{number}"] = packed(tokenizer_file(folder))
        log.info("%s: %.1f MB", name, len(graph) / 1e6)
    data["models"] = plain_json(described)
    write_atomically(out, assemble(" and ".join(names), data, POLICY))
    return Page(out, out.stat().st_size, names)
