"""What nobody should pass and somebody will: hostile values by the type of a parameter, hostile files by format.

Together with the commands that ``fuzz_calls`` makes from the signatures they are the calls of tests/fuzz.
"""

import bz2
import gzip
import io
import json
import lzma
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

HALF = "\udcff"  # what a byte that is not UTF-8 becomes on a command line

NUMBERS = (
    *("-1", "0", "1.5", "-0.0", "nan", "inf", "-inf", "1e400", "1e18", "1e-320", "", " ", "1_000", "0x10", "\u0661"),
    *("ten", HALF, "1,5", "True", "null", "2147483648", "9223372036854775807", "9223372036854775808"),
    *("-9223372036854775809", "99999999999999999999", f"1{'0' * 30}", f"1{'0' * 5000}", "[]", "1 2", "+", "1%"),
)
WORDS = (
    *("", " ", "-", "=", "a=b", "=1", "nan", "1e400", "-1", "99999999999999999999", "0", HALF, "\U0001f4a5", "\n"),
    *("<script>alert(1)</script>", "%s%n{0}", "[bold]x[/nope]", "~", "a" * 5000, "a,b,,c", ",", "\u202e", "1,nan"),
    *("cuda:99", "None", "*", "[", "{", "a+b", "'", '"', "\x1b[31m", "../" * 40),
)
PATHS = (
    *("", " ", "-", ".", "..", "/dev/null", "/dev/full", "/dev/null/x", "/proc/nowhere/x", "no/such/folder/x", HALF),
    *("a" * 300, "a/" * 2500, "\n", "<script>", "~", "missing.csv", "name?.txt", "x" * 250 + ".json", "\U0001f4a5/x"),
)
FIELDS = (
    *(
        "=",
        "=1",
        "a=",
        "nothing",
        "nothing=1",
        "steps=nan",
        "steps=-1",
        "steps=1e400",
        "steps=1.5",
        "steps=[",
        "seed=x",
    ),
    *("optimiser=1", "optimiser.rate=nan", "optimiser.rate=inf", "optimiser.nothing=1", "optimiser.rate=1e400"),
    *("optimiser.rate=-1", "optimiser.betas=[1,2,3]", "optimiser.betas=[2,2]", "schedule.warmup=nan", "length=0"),
    *("schedule.warmup=7", "batch=0", "batch=-1", "batch=99999999999999999999", "epochs=inf", "epochs=1e300"),
    *("num_layers=0", "num_layers=99999999999999999999", "width=0", "width=-1", "width=1e9", "num_heads=0"),
    *("num_heads=7", "vocab_size=-5", "mask_rate=nan", "mask_rate=2", "batches.tokens=0", "batches.lengths=0"),
    *("batches.lengths=[[0,nan]]", "dropout=nan", "dropout=-1", "dropout=2", f"steps={HALF}", "steps=" + "[" * 3000),
    *("a.b.c.d=1", "steps={a: 1}", "steps=!!python/object:os.system", "steps=&a [*a]", "scores=0", "patience=-1"),
    *("score_items=-1", "optimiser.weight_decay=nan", "optimiser.clip=-1", "restarts=99999999999999999999"),
)

DEEP = "[" * 100_000
TABLE = "text,label\na good one,yes\na bad one,no\n"


def _xlsx(content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        file.writestr("[Content_Types].xml", content)
    return packed.getvalue()


def _torn(data: bytes) -> bytes:
    return data[: len(data) * 2 // 3]


def _flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :]


_LONG = (TABLE * 400).encode()
FILES: dict[str, bytes] = {
    **{f"empty{suffix}": b"" for suffix in (".csv", ".json", ".jsonl", ".txt", ".parquet", ".xlsx", ".gz", ".tsv")},
    **{f"zeros{suffix}": bytes(4096) for suffix in (".csv", ".json", ".jsonl", ".txt", ".parquet", ".xlsx")},
    **{f"noise{suffix}": bytes(range(256)) * 16 for suffix in (".csv", ".json", ".jsonl", ".txt", ".parquet")},
    **{f"deep{suffix}": DEEP.encode() for suffix in (".json", ".jsonl", ".csv", ".txt")},
    **{f"mark{suffix}": b"\xef\xbb\xbf" for suffix in (".csv", ".json", ".jsonl", ".txt")},
    **{f"blank{suffix}": b" \n\n\t\n" for suffix in (".csv", ".json", ".jsonl", ".txt", ".tsv")},
    **{f"null{suffix}": b"null\n" for suffix in (".json", ".jsonl", ".csv", ".txt")},
    "deep_object.json": ('{"a":' * 100_000).encode(),
    "deep_row.jsonl": ('{"text": ' + "[" * 900 + "]" * 900 + ', "label": "a"}\n').encode() * 4,
    "number.json": b"1e999",
    "digits.json": b"9" * 10_000,
    "nan.json": b'[{"text": NaN, "label": NaN}, {"text": Infinity, "label": 1}]',
    "half.json": b'[{"text": "\\ud83d a", "label": "\\udc00"}, {"text": "b", "label": "x"}]',
    "half.jsonl": b'{"text": "\\ud83d a", "label": "\\udc00"}\n{"text": "b", "label": "x"}\n' * 4,
    "types.jsonl": b'{"text": 1, "label": []}\n{"text": {}, "label": null}\n{"text": true, "label": 1e400}\n',
    "mixed.jsonl": b'{"text": "a"}\n[1, 2]\n"x"\n',
    "torn.jsonl": b'{"text": "a", "label": "b"}\n{"text": "a", "la',
    "keys.json": b'{"": "", "data": 3, "rows": {}}',
    "ragged.csv": b"text,label\na\nb,c,d,e\n\n,\n",
    "quote.csv": b'text,label\n"never closed,a\nb,c\n',
    "header.csv": b"text,label\n",
    "twice.csv": b"text,text,label,label\na,b,c,d\n",
    "one_row.csv": b"text,label\na,b\n",
    "one_label.csv": b"text,label\n" + b"a b c,x\n" * 20,
    "numbers.csv": b"1,2\n3,4\n5,6\n",
    "latin.csv": "text,label\ncaf\xe9 cr\xe8me,oui\nna\xefve,non\n".encode("cp1252") * 3,
    "latin.txt": "caf\xe9 [MASK] cr\xe8me\n".encode("cp1252"),
    "wide.csv": TABLE.encode("utf-16"),
    "wide_torn.csv": TABLE.encode("utf-16")[:-1],
    "broken_utf8.csv": b"text,label\nfine \xc3\xa9,a\nbroken \xff\xfe\xfd\xfc\xfb\xfa,b\n",
    "nul.csv": b"text,label\na\x00b,x\nc\x00,y\n",
    "surrogate_bytes.txt": b"\xed\xa0\x80 [MASK]\n",
    "long_line.csv": b"text,label\n" + b"".join(b"%d" % (n * n) for n in range(30_000)) + b",x\nb,y\n",
    "hint.csv": b"sep=;\ntext;label\na good one;yes\na bad one;no\n",
    "script.csv": b"text,label\n<script>alert(1)</script> one,<script>a</script>\ntwo,<b>\n",
    **{f"torn.csv{suffix}": _torn(pack(_LONG)) for suffix, pack in
       ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress))},
    **{f"flipped.csv{suffix}": _flipped(pack(_LONG)) for suffix, pack in
       ((".gz", gzip.compress), (".bz2", bz2.compress), (".xz", lzma.compress))},
    **{f"not.txt{suffix}": b"plain text, not compressed\n" * 9 for suffix in (".gz", ".bz2", ".xz", ".zst")},
    "bad.xlsx": b"PK\x03\x04 and no more",
    "empty_zip.xlsx": _xlsx(b""),
    "wrong.xlsx": _xlsx(b"<not really>"),
    "bad.parquet": b"PAR1" + bytes(100) + b"PAR1",
    "old.xls": b"\xd0\xcf\x11\xe0" + bytes(100),
    "squad.json": json.dumps({"version": "x", "data": [{"paragraphs": [{"context": 3, "qas": "x"}]}]}).encode(),
    "answers.json": b'{"a": 1, "b": [2], "": null}',
    "predictions.tsv": b"index\tprediction\n0\tx\n0\ty\n-1\tz\n",
    "program": b"\x7fELF" + bytes(range(256)),
    "name with spaces \xc3\xa9 '\".csv".encode("latin-1").decode("utf-8"): TABLE.encode(),
}  # fmt: skip
SPECIAL: dict[str, Callable[[Path], object]] = {
    "folder.csv": lambda path: path.mkdir(),
    "folder.json": lambda path: path.mkdir(),
    "loop.csv": lambda path: path.symlink_to(path),
    "nowhere.csv": lambda path: path.symlink_to(path.with_name("nothing here")),
    "pipe.json": lambda path: os.mkfifo(path),  # reading it would wait for ever
}


def write_hostile_files(folder: Path) -> list[Path]:
    """All of them in a folder."""
    folder.mkdir(parents=True)
    for name, content in FILES.items():
        (folder / name).write_bytes(content)
    for name, make in SPECIAL.items():
        make(folder / name)
    return sorted(folder.iterdir())
