"""Token stores from lists of ids, without a text or a tokenizer."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from litebert.corpus.store import Manifest, Origin, Store
from litebert.corpus.store_writer import ShardWriter

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}

Sentence = tuple[Sequence[int], Sequence[int]]  # ids, word starts


def write_store(
    folder: Path, splits: dict[str, list[list[list[Sentence]]]], *, vocab_size: int, shard_documents: int = 1 << 30
) -> Store:
    """A store of documents of sentences, each (ids, word starts), with so many documents a shard."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for split, documents in splits.items():
        for number, first in enumerate(range(0, len(documents), shard_documents)):
            writer = ShardWriter(folder, split, number, vocab_size=vocab_size, unknown_id=SPECIAL["unk"])
            for document in documents[first : first + shard_documents]:
                sizes = [len(ids) for ids, _ in document]
                tokens = np.array([token for ids, _ in document for token in ids], np.int64)
                starts = np.array([start for _, words in document for start in words], np.uint8)
                sentences = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, np.int64)
                writer.add(tokens, starts, sentences, np.array([0]), len(tokens))
            entries.append(writer.close(len(documents), ""))
    origin = Origin(tokenizer="", normalisation="none", languages=["en"], settings={}, sources=[], source_bytes=[])
    manifest = Manifest(
        format=1,
        complete=True,
        fingerprint="test",
        origin=origin,
        vocab_size=vocab_size,
        special_ids=SPECIAL,
        documents_read=0,
        duplicates=0,
        empty=0,
        shards=tuple(entries),
    )
    manifest.write(folder)
    return Store.open(folder)
