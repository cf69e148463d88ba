"""A model folder as one small file to carry to another machine, and back into a folder there.

    python -m litebert_lab.litebert_en.carry pack FOLDER -o teacher.tar.xz
    python -m litebert_lab.litebert_en.carry unpack teacher.tar.xz -o FOLDER

Matrices are rounded to 8 bits, with a scale for each row; everything else goes as it is. That is half the size of
float16 and enough for a teacher: its vectors stay the same to a cosine of 0.999.
"""

import argparse
import tarfile
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

WEIGHTS = "model.safetensors"
SCALE = ".scale"
FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json", "modules.json")


def rounded(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices in 8 bits with their scales, all else in 16."""
    found = {}
    for name, tensor in tensors.items():
        if tensor.dim() != 2:
            found[name] = tensor.half()
            continue
        scale = tensor.float().abs().amax(1).clamp_min(1e-8) / 127
        found[name] = (tensor.float() / scale[:, None]).round().to(torch.int8)
        found[name + SCALE] = scale
    return found


def restored(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The matrices again, in 32 bits."""
    return {
        name: tensor.float() * tensors[name + SCALE][:, None] if name + SCALE in tensors else tensor.float()
        for name, tensor in tensors.items()
        if not name.endswith(SCALE)
    }


def pack(folder: Path, out: Path) -> None:
    """Write a folder's model, tokenizer and pooling to a file."""
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(out, "w:xz") as archive:
        save_file(rounded(load_file(folder / WEIGHTS)), Path(temporary) / WEIGHTS)
        archive.add(Path(temporary) / WEIGHTS, WEIGHTS)
        for name in FILES:
            if (folder / name).is_file():
                archive.add(folder / name, name)


def unpack(file: Path, out: Path) -> None:
    """Write the folder again."""
    with tarfile.open(file) as archive:
        archive.extractall(out, filter="data")
    save_file(restored(load_file(out / WEIGHTS)), out / WEIGHTS, metadata={"format": "pt"})


def main() -> None:
    """Pack or unpack."""
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("what", choices=("pack", "unpack"))
    words.add_argument("source", type=Path)
    words.add_argument("-o", "--out", type=Path, required=True)
    asked = words.parse_args()
    (pack if asked.what == "pack" else unpack)(asked.source, asked.out)
    print(f"{asked.out}: {sum(p.stat().st_size for p in [asked.out, *asked.out.rglob('*')] if p.is_file()):,} bytes")


if __name__ == "__main__":
    main()
