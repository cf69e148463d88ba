"""Part a SQuAD file by its articles, two thirds to learn from and one to test on: no article is in both.

python examples/squad_by_article.py dev-v1.1.json OUT     writes OUT/train.json and OUT/dev.json
"""

import argparse
import json
from pathlib import Path


def main(source: Path, out: Path) -> None:
    """Every third article is for testing."""
    content = json.loads(source.read_text(encoding="utf-8"))
    parts = {"train": [], "dev": []}
    for number, article in enumerate(content["data"]):
        parts["dev" if number % 3 == 2 else "train"].append(article)
    out.mkdir(parents=True, exist_ok=True)
    for name, articles in parts.items():
        whole = {"version": content.get("version", ""), "data": articles}
        (out / f"{name}.json").write_text(json.dumps(whole, ensure_ascii=False), encoding="utf-8")
        questions = sum(len(paragraph["qas"]) for article in articles for paragraph in article["paragraphs"])
        print(f"{out / name}.json: {len(articles)} articles, {questions:,} questions")


if __name__ == "__main__":
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("source", type=Path, help="a SQuAD file")
    words.add_argument("out", type=Path, help="the folder to make")
    main(**vars(words.parse_args()))
