"""Which documents are held out, and which were seen before."""

import os
import random

from litebert.corpus.documents import SeenDocuments, split_of


def test_share_held_out() -> None:
    names = [split_of(os.urandom(16), 0.25, 3) for _ in range(4000)]
    assert 0.2 < names.count("held_out") / 4000 < 0.3
    assert {split_of(os.urandom(16), 0.0, 3) for _ in range(100)} == {"train"}


def test_seen_documents(monkeypatch) -> None:
    monkeypatch.setattr(SeenDocuments, "RECENT", 7)
    draw = random.Random(0)
    keys = [draw.randrange(1 << 64) for _ in range(300)] + [0, (1 << 64) - 1]
    seen, known = SeenDocuments(), set()
    for key in draw.choices(keys, k=3000):
        assert seen.add(key) == (key not in known)
        known.add(key)
    assert len(seen._sorted) < 10
