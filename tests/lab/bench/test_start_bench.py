"""The bench of starting: every row is there, and help takes longer than nothing."""

import json


def test_every_start_is_timed(litebert_lab):
    code, out, _ = litebert_lab("bench", "start", "--runs", 1, "--json")
    rows = {row["what"]: row for row in json.loads(out)}
    assert code == 0 and rows["import litebert"]["wanted"] == 0.3 and rows["litebert --help"]["wanted"] == 0.5
    assert rows["python, nothing imported"]["seconds"] > 0
    code, out, _ = litebert_lab("bench", "start", "--runs", 1)
    assert code == 0 and "import litebert" in out and "aim: 0.3 s" in out
