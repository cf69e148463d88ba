"""What `make demo` shows: a real ALBERT put to work at several depths, and what models cost before you run them."""

import subprocess
import sys
import time
from pathlib import Path

import litebert
from litebert.text.tokenizers import SMILES, pattern_tokenizer

WEIGHTS = Path(__file__).parents[1] / ".weights"
ALBERT = WEIGHTS / "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
REACTIONS = {
    "ethanol and acetic acid give an ester": "CC(=O)O.OCC>>CC(=O)[MASK]CC",
    "an alkyne joins, the fluorine stays": "C#CC(C)(C)O.Ic1ccc(F)cc1>>CC(C)(O)C#Cc1ccc([MASK])cc1",
    "hydrolysis keeps the bromine": "COC(=O)c1ccc(Br)cc1.[Li+].[OH-]>>O=C(O)c1ccc([MASK])cc1",
}
DEPTHS = (12, 8, 6, 4)


def main() -> None:
    """Fill masks at four depths, print the plan table, say what to try next."""
    print("1. A real ALBERT (12 shared layers, trained by others on chemical reactions) fills in a missing atom.")
    print("   Its one block can be run as often as you like: depth is a dial, and nothing is retrained.\n")
    model = litebert.load(ALBERT, tokenizer=pattern_tokenizer(ALBERT / "vocab.txt", SMILES))
    print(f"   {'':58}" + "".join(f"{f'depth {depth}':>12}" for depth in DEPTHS))
    for title, reaction in REACTIONS.items():
        print(f"   {title}")
        best = [model.fill(reaction, k=1, depth=depth)[0] for depth in DEPTHS]
        print(f"   {reaction:58}" + "".join(f"{f'{g.token} {g.probability:.0%}':>12}" for g in best))
    speeds = [seconds(model, depth) for depth in DEPTHS]
    print(f"   {'milliseconds for the three':58}" + "".join(f"{1000 * s:12.0f}" for s in speeds))
    print("\n2. What models cost on this machine, told before you run them (litebert plan).\n", flush=True)
    command = [sys.executable, "-m", "litebert", "plan", "albert-base", "albert-large", "bert-base"]
    subprocess.run(command, check=True)
    print("\n3. Try next (in this folder, `.venv/bin/litebert` is the command):")
    for line in (
        "litebert ls                                        the presets",
        "litebert show albert-base share=attention          one of them, resolved, with a field changed",
        "litebert plan albert-base --device h200 --budget 2h  what two hours of a rented GPU buy",
        "litebert convert FOLDER OUT                        a Hugging Face checkpoint in, safetensors out",
        "litebert bench forward --no-compile                tokens per second next to transformers",
        "docs/pretrain.md                                   from your own text to a model in five commands",
        "docs/tour.md                                       the five-minute read",
    ):
        print(f"   {line}")


def seconds(model: litebert.Model, depth: int) -> float:
    """The best of five times for all reactions at a depth."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for reaction in REACTIONS.values():
            model.fill(reaction, k=1, depth=depth)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
