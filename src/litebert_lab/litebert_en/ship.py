"""Put a trained model into the package: weights in bfloat16, its card, its checksums.

    python -m litebert_lab.litebert_en.ship RUN --name litebert-en --card CARD.md

The model is then in src/litebert/models/NAME, where `litebert.load("NAME")` finds it, and from there `transformers`.
"""

import argparse
import json
import shutil
from dataclasses import replace
from pathlib import Path

import torch
from PIL import Image

from litebert import shipped_models
from litebert.checkpoints.folder import load_model, model_folder, save_model
from litebert.nn.network import Network
from litebert.pooling import SENTENCE_FILES
from litebert.tasks.examples import TASK_FILE

MOST = 25_000_000  # bytes of a shipped folder


def ship(model: str, name: str, card: Path | None) -> Path:
    """Write the folder of a shipped model."""
    folder, source = shipped_models.SHIPPED / name, model_folder(model)
    loaded = load_model(model, dtype=torch.bfloat16)
    network = _without_detection(loaded.network)
    kept = [source / file for file in (TASK_FILE, *SENTENCE_FILES) if (source / file).is_file()]
    files = {str(path.relative_to(source)): path.read_text("utf-8") for path in kept}
    settings = {"dtype": "bfloat16", "name": name}
    save_model(folder, network, loaded.tokenizer, verb="convert", settings=settings, files=files)
    tokenizer = folder / "tokenizer.json"
    if tokenizer.is_file():  # without line breaks and indents it is 1.3 MB in place of 2.3
        content = json.loads(tokenizer.read_text(encoding="utf-8"))
        tokenizer.write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), encoding="utf-8")
    if card is not None:
        shutil.copyfile(card, folder / shipped_models.CARD)
        for picture in card.parent.glob("*.png"):
            if f"({picture.name})" in card.read_text(encoding="utf-8"):
                small = Image.open(picture).convert("RGB").quantize(32)  # a quarter of the bytes
                small.save(folder / picture.name, optimize=True)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    shipped_models.write_checksums(folder)
    return folder


def _without_detection(network: Network) -> Network:
    """The network without its head for replaced tokens, which is of use in pretraining only (1.2 MB)."""
    names = tuple(name for name in network.config.heads.names if name != "replaced")
    kept = Network(replace(network.config, heads=replace(network.config.heads, names=names))).to(torch.bfloat16)
    weights = network.state_dict()
    kept.load_state_dict({name: weights[name] for name in kept.state_dict()})
    return kept


def main() -> int:
    """Ship a model and print how large it is."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("model", help="a run or a model folder")
    words.add_argument("--name", default="litebert-en")
    words.add_argument("--card", type=Path, help="the model's card, with the pictures that it shows beside it")
    asked = words.parse_args()
    folder = ship(asked.model, asked.name, asked.card)
    for path in sorted(folder.iterdir()):
        print(f"{path.stat().st_size:12,} {path.name}")
    total = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{total:12,} bytes in {folder}{'' if total <= MOST else f', which is more than {MOST:,}'}")
    return int(total > MOST)


if __name__ == "__main__":
    raise SystemExit(main())
