"""The bench of two versions: both are run, their files compared, and a command that fails is one sentence."""

import json
import shutil
from pathlib import Path

import litebert

SRC = Path(litebert.__file__).parents[1]


def other_checkout(folder: Path) -> Path:
    """A copy of the code that says another version."""
    shutil.copytree(
        SRC / "litebert", folder / "litebert", ignore=shutil.ignore_patterns("models", "__pycache__"), symlinks=True
    )
    (folder / "litebert/version.py").write_text('__version__ = "0.0.1"\n')
    return folder


def test_both_versions_run_and_their_files_are_compared(tmp_path, litebert_lab):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(f"A line about the number {number}." for number in range(300)))
    command = f"tokenizer train {texts} --vocab-size 80 -o {{out}}"
    code, out, _ = litebert_lab("bench", "versions", other_checkout(tmp_path / "src"), command, "--turns", 2, "--json")
    found = json.loads(out)
    assert code == 0 and [len(found[side]) for side in ("before", "now")] == [2, 2]
    for turn in found["before"] + found["now"]:
        assert turn["cpu_seconds"] > 0 and turn["peak"] > 1e7 and "tokenizer.json" in turn["files"]
    old, new = (found[side][0]["files"] for side in ("before", "now"))
    assert old["tokenizer.json"] == new["tokenizer.json"] and old["run.json"] != new["run.json"]


def test_a_command_that_fails_is_one_sentence(tmp_path, litebert_lab):
    code, _, error = litebert_lab("bench", "versions", SRC, f"show {tmp_path / 'nothing'}", "--turns", 1)
    assert code == 2 and "ended with status 2" in error and "nothing" in error
    code, _, error = litebert_lab("bench", "versions", tmp_path, "show albert-base")
    assert code == 2 and str(tmp_path) in error and "src folder" in error
    code, _, error = litebert_lab("bench", "versions", SRC, "show 'albert-base")
    assert code == 2 and "show 'albert-base" in error
