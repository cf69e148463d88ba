"""Korean, Chinese and Japanese text for docs/recipe_sizes.md, out of three public repositories that were cloned before:

    git clone https://github.com/97danielj/WordEmbedding
    git clone https://github.com/overweightbarracuda/science_fair2324
    git clone https://github.com/aozorahack/aozorabunko_text
    python examples/cjk_corpus.py WordEmbedding science_fair2324 aozorabunko_text -o text

writes ko.txt and zh.txt (Wikipedia) and ja.txt (books of Aozora Bunko, without readings and notes).
"""

import argparse
import random
import re
from collections.abc import Iterator
from pathlib import Path

from english_corpus import git, wikipedia, write

KOREAN = "2e427337521cd4747d20efef073b8a885c97fd04"  # commits, as repositories change
CHINESE = "e65b1a19ab14ce4a69eea8f7d9d819d67aab881b"
JAPANESE = "0984f7dc18a2270bdfd2ff99bf14fd1b3ebb4f65"
RULE = re.compile("^-{20,}$", re.M)  # encloses the notes on how a book was typed
READINGS = re.compile("《[^》]*》|［＃[^］]*］|｜")
IMPRINT = "底本："  # begins what comes after the text: the printed book, who typed it


def aozora(repository: Path) -> Iterator[list[list[str]]]:
    """One book after the other, as paragraphs."""
    names = [name for name in git(repository, "ls-tree", "-r", "--name-only", JAPANESE).splitlines() if ".txt" in name]
    random.Random(2).shuffle(names)
    for name in names:
        book = git(repository, "show", f"{JAPANESE}:{name}", encoding="cp932").replace("\r", "")
        text = RULE.split(book)[-1].split(IMPRINT)[0]
        lines = [READINGS.sub("", line).strip() for line in text.split("\n")]
        yield [[line for line in lines if len(line) > 10 and "\ufffd" not in line]]


def main() -> None:
    """Write the three files."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("korean", type=Path)
    words.add_argument("chinese", type=Path)
    words.add_argument("japanese", type=Path)
    words.add_argument("-o", "--out", type=Path, default=Path("text"))
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    write(wikipedia(asked.korean, KOREAN, shortest_line=30), asked.out / "ko.txt", 25e6)
    write(wikipedia(asked.chinese, CHINESE, shortest_line=20, ends="。！？」』）"), asked.out / "zh.txt", 20e6)
    write(aozora(asked.japanese), asked.out / "ja.txt", 20e6)


if __name__ == "__main__":
    main()
