"""A token store as parts to carry to another machine, each small, such that any first few of them are a store.

    python -m litebert_lab.litebert_en.pack STORE -o parts --megabytes 60
    mkdir STORE; for part in parts/*.tar.xz; do tar -xJf "$part" -C STORE; done    # there

The first part has the tokenizer and the held-out documents. Every part has some shards of training text and a
store.json that lists all shards up to it, so a store of the first parts is whole and its fingerprint is its own.
"""

import argparse
import json
import lzma
import tarfile
from dataclasses import asdict, replace
from pathlib import Path

from litebert.corpus.store import STORE_FILE, TOKENIZER_FOLDER, Manifest, Store

# Tokens are two bytes, which the coder is told (lp, pb). Preset 6 saves 9% and takes three times as long; bzip2 takes a
# third of the time and 8% more room.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 24, "lc": 3, "lp": 1, "pb": 1}]
OVERHEAD = 1 << 17  # more than store.json and the end of an archive take


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
    """Write the parts, none larger than ``most`` bytes unless a single shard is."""
    manifest = Store.open(store).manifest
    train, others = ([entry for entry in manifest.shards if (entry.split == "train") == wanted] for wanted in (1, 0))
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    data = b"".join(_folder(store / name) for name in (TOKENIZER_FOLDER, *(entry.name for entry in others)))
    begun = 0

    def write(done: int) -> None:
        """One part: its folders, then what store.json contains up to here."""
        path = out / f"part-{len(parts):02d}.tar.xz"
        text = json.dumps(asdict(first_shards(manifest, done)), indent=1, ensure_ascii=False) + "\n"
        path.write_bytes(data + _file(STORE_FILE, text.encode()) + _compressed(bytes(2 * tarfile.BLOCKSIZE)))
        tokens = sum(entry.tokens for entry in train[begun:done])
        print(f"{path}: {done - begun} shards, {tokens:,} tokens, {path.stat().st_size / 2**20:.1f} MiB", flush=True)
        parts.append(path)

    for count, entry in enumerate(train):
        shard = _folder(store / entry.name)
        if count > begun and len(data) + len(shard) + OVERHEAD > most:
            write(count)
            data, begun = b"", count
        data += shard
    write(len(train))
    return parts


def _folder(path: Path) -> bytes:
    """A folder as a compressed piece of an archive; pieces, one after the other, are an archive."""
    return b"".join(_file(f"{path.name}/{file.name}", file.read_bytes()) for file in sorted(path.iterdir()))


def _file(name: str, data: bytes) -> bytes:
    """A file as such a piece, without owner and time, so that the same store gives the same bytes."""
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    padding = bytes(-len(data) % tarfile.BLOCKSIZE)
    return _compressed(entry.tobuf() + data + padding)


def _compressed(data: bytes) -> bytes:
    return lzma.compress(data, filters=FILTERS)


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
