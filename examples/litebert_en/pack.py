"""A token store as parts to carry to another machine, each small, such that any first few of them are a store.

    python examples/litebert_en/pack.py STORE -o parts --megabytes 60
    for part in parts/*.tar.xz; do tar -xJf "$part" -C STORE; done      # there; or python -m tarfile -e

The first part has the tokenizer and the held-out documents. Every part has some shards of training text and a
store.json that lists all shards up to it, so a store of the first parts is whole and its fingerprint is its own.
"""

import argparse
import io
import json
import lzma
import tarfile
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path

from litebert.corpus.store import STORE_FILE, TOKENIZER_FOLDER, Manifest, ShardEntry, Store

# Tokens are two bytes: the coder is told to expect that (lp, pb), and to look far back.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 26, "lc": 3, "lp": 1, "pb": 1}]
MARGIN = 1.02  # shards differ a little in how far they shrink


def first_shards(manifest: Manifest, count: int) -> Manifest:
    """What ``store.json`` says where only the first ``count`` shards of training text are there."""
    train = [entry for entry in manifest.shards if entry.split == "train"]
    others = [entry for entry in manifest.shards if entry.split != "train"]
    if count >= len(train):
        return manifest
    origin = replace(manifest.origin, settings=manifest.origin.settings | {"first_shards": count})
    listed = tuple(sorted((*train[:count], *others), key=manifest.shards.index))
    return replace(manifest, origin=origin, fingerprint=origin.fingerprint(), shards=listed)


def pack(store: Path, out: Path, most: int) -> list[Path]:
    """Write the parts, none larger than ``most`` bytes."""
    manifest = Store.open(store).manifest
    train = [entry for entry in manifest.shards if entry.split == "train"]
    held_out = [entry for entry in manifest.shards if entry.split != "train"]
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    done = 0
    while done < len(train):
        part = _Part(out / f"part-{len(parts):02d}.tar.xz")
        if not parts:
            part.add(store, store / TOKENIZER_FOLDER)
            for entry in held_out:
                part.add(store, store / entry.name)
        begun = done
        largest = 0
        while done < len(train) and (done == begun or part.size() + MARGIN * largest < most):
            before = part.size()
            part.add(store, store / train[done].name)
            largest = max(largest, part.size() - before)
            done += 1
        part.add_text(STORE_FILE, _as_text(first_shards(manifest, done)))
        part.close()
        _report(part, train[begun:done])
        parts.append(part.path)
    return parts


class _Part:
    """A part being written; what is added is compressed at once, so that its size is known."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._open = stack = ExitStack()
        self._raw = stack.enter_context(path.open("wb"))
        compressed = stack.enter_context(lzma.LZMAFile(self._raw, "w", filters=FILTERS))  # noqa: SIM115
        self._tar = stack.enter_context(tarfile.open(fileobj=compressed, mode="w|", bufsize=1 << 20))  # noqa: SIM115

    def add(self, store: Path, path: Path) -> None:
        """A folder of the store, without the owner and the time of its files."""
        self._tar.add(path, str(path.relative_to(store)), filter=_plain)

    def add_text(self, name: str, text: str) -> None:
        """A file of its own."""
        data = text.encode()
        entry = _plain(tarfile.TarInfo(name))
        entry.size, entry.mode = len(data), 0o644
        self._tar.addfile(entry, io.BytesIO(data))

    def size(self) -> int:
        """Bytes written so far; the coder holds back less than a megabyte."""
        return self._raw.tell()

    def close(self) -> None:
        self._open.close()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def _as_text(manifest: Manifest) -> str:
    return json.dumps(asdict(manifest), indent=1, ensure_ascii=False) + "\n"


def _report(part: _Part, shards: list[ShardEntry]) -> None:
    tokens = sum(entry.tokens for entry in shards)
    print(
        f"{part.path}: {len(shards)} shards, {tokens:,} tokens, {part.path.stat().st_size / 2**20:.1f} MiB", flush=True
    )


def main() -> None:
    """Pack a store."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("store", type=Path)
    words.add_argument("-o", "--out", type=Path, required=True)
    words.add_argument("--megabytes", type=float, default=60, help="the most that a part may have, in MiB")
    asked = words.parse_args()
    parts = pack(asked.store, asked.out, int(asked.megabytes * 2**20))
    print(f"{len(parts)} parts, {sum(part.stat().st_size for part in parts) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
