"""A token store as parts to carry to another machine, each small, such that any first few of them are a store.

    python -m litebert_lab.litebert_en.pack STORE -o parts --megabytes 60
    mkdir STORE; for part in parts/*.tar.xz; do tar -xJf "$part" -C STORE; done    # there

The first part has the tokenizer and the held-out documents. Every part has some shards of training text and a
store.json that lists all shards up to it, so a store of the first parts is whole and its fingerprint is its own.

    python -m litebert_lab.litebert_en.pack STORE -o parts --apart --megabytes 34 58

makes every part a store by itself, for a run that reads them in turn (`litebert pretrain --corpus part-00 --corpus
part-01 ...`); each then has the tokenizer and the held-out documents. Of several sizes the last is that of all later
parts.
"""

import argparse
import json
import lzma
import tarfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from litebert.corpus.store import STORE_FILE, TOKENIZER_FOLDER, Manifest, Store

# Tokens are two bytes, which the coder is told (lp, pb). Preset 6 saves 9% and takes three times as long; bzip2 takes a
# third of the time and 8% more room.
FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 1 << 24, "lc": 3, "lp": 1, "pb": 1}]
OVERHEAD = 1 << 17  # more than store.json and the end of an archive take


def some_shards(manifest: Manifest, begin: int, end: int) -> Manifest:
    """What ``store.json`` says where only the shards of training text from ``begin`` to before ``end`` are there."""
    train = [entry for entry in manifest.shards if entry.split == "train"]
    others = [entry for entry in manifest.shards if entry.split != "train"]
    if end - begin >= len(train):
        return manifest
    chosen = {"first_shards": end} if begin == 0 else {"shards": [begin, end]}
    origin = replace(manifest.origin, settings=manifest.origin.settings | chosen)
    listed = tuple(sorted((*train[begin:end], *others), key=manifest.shards.index))
    return replace(manifest, origin=origin, fingerprint=origin.fingerprint(), shards=listed)


def pack(store: Path, out: Path, sizes: Sequence[int], *, apart: bool = False) -> list[Path]:
    """Write the parts, none larger than its ``sizes`` in bytes (the last: of all later ones) unless a shard is."""
    manifest = Store.open(store).manifest
    train, others = ([entry for entry in manifest.shards if (entry.split == "train") == wanted] for wanted in (1, 0))
    out.mkdir(parents=True, exist_ok=True)
    parts: list[Path] = []
    common = b"".join(_folder(store / name) for name in (TOKENIZER_FOLDER, *(entry.name for entry in others)))
    data, begun = common, 0

    def write(done: int) -> None:
        """One part: its folders, then what store.json contains up to here."""
        path = out / f"part-{len(parts):02d}.tar.xz"
        listed = asdict(some_shards(manifest, begun if apart else 0, done))
        text = json.dumps(listed, indent=1, ensure_ascii=False) + "\n"
        path.write_bytes(data + _file(STORE_FILE, text.encode()) + _compressed(bytes(2 * tarfile.BLOCKSIZE)))
        tokens = sum(entry.tokens for entry in train[begun:done])
        print(f"{path}: {done - begun} shards, {tokens:,} tokens, {path.stat().st_size / 2**20:.1f} MiB", flush=True)
        parts.append(path)

    for count, entry in enumerate(train):
        shard = _folder(store / entry.name)
        if count > begun and len(data) + len(shard) + OVERHEAD > sizes[min(len(parts), len(sizes) - 1)]:
            write(count)
            data, begun = common if apart else b"", count
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
    words.add_argument("--megabytes", type=float, nargs="+", default=[60], help="the most that a part may have, in MiB")
    words.add_argument("--apart", action="store_true", help="make every part a store by itself")
    asked = words.parse_args()
    parts = pack(asked.store, asked.out, [int(size * 2**20) for size in asked.megabytes], apart=asked.apart)
    print(f"{len(parts)} parts, {sum(part.stat().st_size for part in parts) / 2**20:.1f} MiB")


if __name__ == "__main__":
    main()
