"""What a person reads when a build has ended."""

from pathlib import Path

import pytest

from litebert.corpus.build import BuildSettings, build_store
from litebert.corpus.look import store_report
from litebert.report import print_report


@pytest.mark.parametrize(
    ("held_out", "said"), [(0.0, "nothing is held out"), (0.1, "figures will rest on few documents"), (0.5, "")]
)
def test_counts_fit_a_terminal_and_little_held_out_text_is_said(
    held_out: float, said: str, corpus: Path, tokenizer_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus.write_text("\n\n".join(f"The cat sat on mat {number}. It saw the dog." for number in range(40)))
    settings = BuildSettings(held_out=held_out)
    print_report(store_report(build_store([str(corpus)], tokenizer_folder, tmp_path / "store", settings, workers=1)))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines[1:])) <= 80  # the first one names the folder
    assert lines[1].split() == ["documents", "sentences", "words", "tokens", "shards"]
    counts = {line.split()[0]: [int(cell.replace(",", "")) for cell in line.split()[1:]] for line in lines[2:4]}
    assert counts["train"][0] + counts["held_out"][0] == 40 and counts["train"][1] == 2 * counts["train"][0]
    told = [line for line in lines[4:] if "held out" in line]
    assert (said in told[0]) if said else not told
