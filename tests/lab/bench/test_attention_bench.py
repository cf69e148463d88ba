"""The bench of long texts: every length with both kinds of attention, ratios to the shortest with full attention."""

import pytest

from litebert.errors import InputError
from litebert_lab.bench.attention import bench_attention


def test_every_length_is_read_with_both_kinds_of_attention():
    report = bench_attention("albert-tiny", attention="local(8)+global", lengths=[64, 16], repeats=1, training=False)
    rows = report.data["inference"]
    assert [(row["attention"], row["length"]) for row in rows] == [
        ("full", 16), ("full", 64), ("local(8)+global", 16), ("local(8)+global", 64)
    ]  # fmt: skip
    assert rows[0]["ratio"] == pytest.approx(1) and all(row["ratio"] > 0 for row in rows)
    for row in rows:
        assert row["microseconds_per_token"] == pytest.approx(1000 * row["milliseconds"] / row["length"])


def test_relative_positions_are_refused():
    with pytest.raises(InputError, match="xlnet-base has relative positions"):
        bench_attention("xlnet-base", attention="local(8)", lengths=[16], training=False)
