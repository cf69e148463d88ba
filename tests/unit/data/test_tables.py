"""One table of 300 rows as people have it: in every format, encoding and layout it gives the same rows."""

import bz2
import csv
import gzip
import io
import json
import logging
import lzma
import zipfile
from datetime import datetime

import pytest

from litebert.data.tables import parquet_types, read_table, stream_rows
from litebert.errors import InputError
from litebert.tasks.sources import read_task

ROWS = [
    {
        "text": f'Café № {n}: "fine", he said; très bon'.replace("№", "no."),
        "note": "line\nend" if n % 7 == 0 else f"n{n}",
        "label": ("good", "bad", "neither")[n % 3],
    }
    for n in range(300)
]
PLAIN_ROWS = [{name: cell.replace("\n", " ").replace(";", ",") for name, cell in row.items()} for row in ROWS]


def separated(rows, separator=",", *, header=True, **options):
    out = io.StringIO(newline="")
    writer = csv.writer(out, delimiter=separator, **options)
    if header:
        writer.writerow(rows[0])
    writer.writerows(row.values() for row in rows)
    return out.getvalue()


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def columns(rows):
    return {name: [row[name] for row in rows] for name in rows[0]}


def unquoted(rows, separator):
    return "\n".join(separator.join(row) for row in [list(rows[0]), *(row.values() for row in rows)]) + "\n"


def zipped(*names):
    """A zip with the same table under each of these names."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, separated(ROWS))
    return out.getvalue()


COMMAS = separated(ROWS)
VARIANTS = {
    "plain.csv": COMMAS,
    "lf.csv": separated(ROWS, lineterminator="\n"),
    "no_last_line_end.csv": COMMAS.rstrip("\r\n"),
    "all_quoted.csv": separated(ROWS, quoting=csv.QUOTE_ALL),
    "old_mac.csv": separated(PLAIN_ROWS, lineterminator="\r"),
    "bom.csv": COMMAS.encode("utf-8-sig"),
    "cp1252.csv": COMMAS.encode("cp1252"),
    "utf16.csv": COMMAS.encode("utf-16"),
    "utf16_unmarked.csv": COMMAS.encode("utf-16-le"),
    "utf16_big.csv": b"\xfe\xff" + COMMAS.encode("utf-16-be"),
    "utf32.csv": COMMAS.encode("utf-32"),
    "semicolons.csv": separated(ROWS, ";"),
    "semicolons_cp1252.csv": separated(ROWS, ";").encode("cp1252"),
    "hint.csv": "sep=;\r\n" + separated(ROWS, ";"),
    "hint_quoted.csv": '"sep=|"\n' + separated(ROWS, "|"),
    "tabs.csv": separated(ROWS, "\t"),
    "pipes.csv": separated(ROWS, "|"),
    "pipes_unquoted.csv": unquoted(PLAIN_ROWS, "|").replace('"', ""),
    "blank_lines.csv": "\n\n" + separated(ROWS, lineterminator="\n\n  \n"),
    "blank_rows.csv": COMMAS + ",,\r\n" * 200,
    "trailing_separators.csv": separated([row | {"": ""} for row in ROWS]),
    "spaces_in_header.csv": COMMAS.replace("text,note,label", " text , note,label ", 1),
    "two_headers.csv": separated(ROWS[:100]) + separated(ROWS[100:]),
    "no_header.csv": separated(ROWS, header=False),
    "commas.tsv": COMMAS,
    "plain.tsv": unquoted(PLAIN_ROWS, "\t"),
    "spreadsheet.tsv": separated(ROWS, "\t"),
    "excel_unicode.txt": separated(ROWS, "\t").encode("utf-16"),
    "list.json": json.dumps(ROWS),
    "pretty.json": json.dumps(ROWS, indent=2),
    "columns.json": json.dumps(columns(ROWS)),
    "pandas.json": json.dumps({name: dict(enumerate(cells)) for name, cells in columns(ROWS).items()}),
    "split.json": json.dumps({"columns": list(ROWS[0]), "data": [list(row.values()) for row in ROWS]}),
    "wrapped.json": json.dumps({"version": 1, "data": ROWS}),
    "cells.json": json.dumps([list(ROWS[0]), *(list(row.values()) for row in ROWS)]),
    "lines.json": json_lines(ROWS),
    "lines.jsonl": json_lines(ROWS),
    "lines.ndjson": json_lines(ROWS).replace("\n", "\r\n\r\n"),
    "plain.csv.gz": gzip.compress(COMMAS.encode()),
    "plain.csv.bz2": bz2.compress(COMMAS.encode()),
    "plain.tsv.xz": lzma.compress(separated(ROWS, "\t").encode("cp1252")),
    "list.json.gz": gzip.compress(json.dumps(ROWS).encode()),
    "one_file.csv.zip": zipped("folder/export.csv", "__MACOSX/._export.csv"),
    "answer.json": json.dumps({"response": {"status": "ok", "rows": ROWS}}),
}
LOGGED = {
    "cp1252.csv": "read as cp1252",
    "utf16.csv": "read as UTF-16",
    "semicolons.csv": "separated by semicolons",
    "tabs.csv": "separated by tabs",
    "commas.tsv": "separated by commas",
    "two_headers.csv": "repeats the header",
    "no_header.csv": "no header: its columns are named column_1 ('Café no. 0",
    "plain.csv": "",
    "lines.jsonl": "",
    "plain.tsv": "",
}


@pytest.fixture(autouse=True)
def messages_reach_caplog(monkeypatch, caplog):
    monkeypatch.setattr(logging.getLogger("litebert"), "propagate", True)
    caplog.set_level(logging.INFO, "litebert")


@pytest.mark.parametrize("name", VARIANTS)
def test_every_variant_gives_the_same_rows(name, tmp_path, caplog):
    content = VARIANTS[name]
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    table = read_table(path)
    messages = caplog.text
    data = read_task(data=path, text=table.columns[0], label=table.columns[2], whole=True)
    items = data.dev["dev"]
    texts = [str(row["text"]) for row in ROWS]
    if "unquoted" in name:
        texts = [text.replace('"', "") for text in texts]
    assert [item.first.replace(",", ";") for item in items] == [text.replace(",", ";") for text in texts]
    assert [data.labels[item.target] for item in items] == [row["label"] for row in ROWS]
    assert table.columns == (("column_1", "column_2", "column_3") if name == "no_header.csv" else tuple(ROWS[0]))
    if "plain" not in name and "unquoted" not in name and "old_mac" not in name:
        assert [cell.replace("\r", "") for cell in table.column(table.columns[1])[:300]] == [r["note"] for r in ROWS]
    if name in LOGGED:
        assert LOGGED[name] in messages if LOGGED[name] else not messages


def test_zstandard(tmp_path):
    zstandard = pytest.importorskip("zstandard", reason="needs litebert[corpus]")
    (tmp_path / "a.csv.zst").write_bytes(zstandard.compress(COMMAS.encode()))
    assert read_table(tmp_path / "a.csv.zst").column("text") == [row["text"] for row in ROWS]


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs litebert[corpus]")
    parquet = pytest.importorskip("pyarrow.parquet")
    table = pyarrow.Table.from_pylist(ROWS)
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=70)
    for source in (tmp_path / "a.parquet", table):
        found = read_table(source)
        assert found.column("note") == [row["note"] for row in ROWS]
        assert (found.lines[-1], found.unit) == (300, "row")
    whole = (tmp_path / "a.parquet").read_bytes()
    for content in (whole[:-50], whole.replace(b"text", b"te\xe5t")):
        (tmp_path / "a.parquet").write_bytes(content)
        for read in (read_table, parquet_types):
            with pytest.raises(InputError, match=r"a\.parquet (is not a parquet file|holds text that is not UTF-8)"):
                read(tmp_path / "a.parquet")


def test_spreadsheet(tmp_path, caplog):
    openpyxl = pytest.importorskip("openpyxl", reason="needs litebert[xlsx]")
    book = openpyxl.Workbook()
    book.active.append([])
    book.active.append([*ROWS[0], "stars", None])
    for number, row in enumerate(ROWS):
        book.active.append([*row.values(), number % 5])
    book.active.cell(row=400, column=4).value = None
    book.create_sheet("other").append(["more"])
    book.save(tmp_path / "a.xlsx")
    table = read_table(tmp_path / "a.xlsx")
    assert table.columns == ("text", "note", "label", "stars")
    assert table.column("text") == [row["text"] for row in ROWS]
    assert table.column("stars")[:6] == [0, 1, 2, 3, 4, 0]
    assert table.place(0).endswith("a.xlsx, row 3")
    assert "has 2 sheets" in caplog.text
    assert read_task(data=tmp_path / "a.xlsx", whole=True).label == "label"


def test_a_spreadsheet_with_dates_below_a_title(tmp_path, caplog):
    openpyxl = pytest.importorskip("openpyxl", reason="needs litebert[xlsx]")
    book = openpyxl.Workbook()
    for row in (["Tickets of March"], [], ["sent", "text", "queue"]):
        book.active.append(row)
    for number, row in enumerate(ROWS):
        book.active.append([datetime(2026, 3, 1 + number % 28), row["text"], row["label"]])
    book.save(tmp_path / "a.xlsx")
    data = read_task(data=tmp_path / "a.xlsx", whole=True)
    assert (data.text, data.label, len(data.dev["dev"])) == (("text",), "queue", 300)
    assert "the table begins in row 3, below 'Tickets of March'" in caplog.text
    assert read_table(tmp_path / "a.xlsx").column("sent")[1] == datetime(2026, 3, 2)


def test_a_spreadsheet_without_a_header(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs litebert[xlsx]")
    book = openpyxl.Workbook()
    for number, row in enumerate(ROWS):
        book.active.append([number, row["text"], row["label"]])
    book.save(tmp_path / "a.xlsx")
    data = read_task(data=tmp_path / "a.xlsx", whole=True)
    assert (data.text, data.label, len(data.dev["dev"])) == (("column_2",), "column_3", 300)


def test_other_spreadsheets_and_bytes_under_a_text_name(tmp_path):
    for name, content, expected in (
        ("a.xls", b"\xd0\xcf\x11\xe0", "save it as .xlsx"),
        ("a.csv", b"PK\x03\x04rest", "a zip or .xlsx file by its content"),
        ("a.jsonl", b"PAR1rest", "parquet by its content"),
        ("a.txt", b"only\nlines\n", "plain text without columns"),
        ("a.arrow", b"", "not of a kind that can be read"),
        ("a.zip", zipped("inside.csv"), "does not say what is in it; unpack it"),
        ("a.csv.zip", zipped("one", "two"), r"holds 2 files \(one, two\) where one is expected; unpack it"),
        ("a.csv.zip", zipped("one")[:-30], r"a\.csv\.zip is damaged or cut short"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=expected):
            read_table(tmp_path / name)


def test_a_hint_names_what_is_missing(tmp_path, monkeypatch):
    (tmp_path / "a.xlsx").write_bytes(b"")
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"pip install 'litebert\[xlsx\]'"):
        read_table(tmp_path / "a.xlsx")


# --- headers


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("text,label\ngood,1\nbad,0\n", True),
        ("great film,1\nbad film,0\n", False),
        ("great film,good\nbad film,bad\nnice,good\n", False),
        ("0,1\ngreat film,1\n", True),  # pandas, without names
        ("id,2019,2020\nx,a,b\n", True),  # numbers above words
        ("film,opinion\nfilm,opinion\nx,good\n", True),  # a header twice
        ("How did you like it?,What was it?\nwell enough I think,a film\nnot,a book\n", True),
        ("It was the best of films\nIt was the worst of films\n", False),
        ("text\nIt was the best of films\n", True),
        ("text,label\ntext,a\nmore,b\n", True),  # a text that is its column's name
        ("a,b\n", True),
    ],
)
def test_headers_are_noticed(content, named, tmp_path):
    (tmp_path / "a.csv").write_text(content)
    stream = stream_rows(tmp_path / "a.csv")
    assert stream.named is named
    if content.count("\n") > 1:
        told = read_table(tmp_path / "a.csv", header=not named)
        assert len(told.rows) == content.count("\n") - (not named) or "opinion" in content


@pytest.mark.parametrize(
    ("cells", "targets"),
    [
        (("0,5", "1", "-2,25"), (0.5, 1.0, -2.25)),
        (("1.234,5", "12.345.678,25", "7"), (1234.5, 12345678.25, 7.0)),
        (("0.5", "1", "2"), (0.5, 1.0, 2.0)),
    ],
)
def test_numbers_with_decimal_commas(cells, targets, tmp_path):
    rows = "".join(f"a text of {n} words;{cells[n % 3]}\n" for n in range(30))
    (tmp_path / "a.csv").write_text(f"text;score\n{rows}")
    data = read_task(data=tmp_path / "a.csv", whole=True)
    assert data.kind == "regress" and tuple(item.target for item in data.dev["dev"][:3]) == targets
    assert ("numbers in score have decimal commas" in data.notes) is ("," in "".join(cells))


def test_commas_in_a_column_of_labels_separate_them():
    rows = [{"text": f"text number {n}", "labels": ("1,2", "2", "1,3")[n % 3]} for n in range(30)]
    data = read_task(data=rows, whole=True)
    assert (data.kind, data.labels) == ("multilabel", ("1", "2", "3"))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"label": n / 7 if n != 20 else "n/a"} for n in range(30)], "row 21 has the label 'n/a', where other rows"),
        ([{"label": "a" if n else None} for n in range(30)], "row 1 has no label; fill or remove it"),
        ([{} if n == 4 else {"label": n % 2} for n in range(30)], "row 5 has no label; fill or remove it"),
        ([{"meta": {"label": n % 2}} for n in range(30)], "holds objects in meta, where cells are expected"),
    ],
)
def test_cells_that_cannot_be_labels_are_named(rows, expected, tmp_path):
    lines = [json.dumps({"text": f"some words, {n}", **row}) + "\n" for n, row in enumerate(rows)]
    (tmp_path / "a.json").write_text("[" + ",".join(lines) + "]")
    with pytest.raises(InputError, match=expected):
        read_task(data=tmp_path / "a.json", whole=True)


def test_repeated_and_missing_names(tmp_path):
    (tmp_path / "a.csv").write_text(
        "text,note,note,,label\n" + "some words of text,a,b,c,x\nmore words here,d,e,f,y\n" * 3
    )
    assert read_table(tmp_path / "a.csv").columns == ("text", "note", "note (2)", "column_4", "label")
    assert read_task(data=tmp_path / "a.csv", whole=True).text == ("text",)
    with pytest.raises(InputError, match="two columns 'note'; rename one"):
        read_task(data=tmp_path / "a.csv", text="note", whole=True)


# --- hostile content


@pytest.mark.long
@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_damaged_files_are_named_with_the_line(suffix, tmp_path):
    compress = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}[suffix]
    rows = "".join(f"text {n * 7919 % 10007},{n % 3}\n" for n in range(200_000))
    whole = compress(f"text,label\n{rows}".encode())
    for content in (whole[: len(whole) // 2], whole[:-9], b"no archive at all"):
        (tmp_path / f"a.csv{suffix}").write_bytes(content)
        with pytest.raises(
            InputError, match=r"a\.csv\.\w+ is damaged or cut short( after line [\d,]+)? \(.+make it again"
        ):
            read_table(tmp_path / f"a.csv{suffix}")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    (tmp_path / f"a.csv{suffix}").write_bytes(flipped)
    with pytest.raises(InputError, match=r"a\.csv"):
        read_table(tmp_path / f"a.csv{suffix}")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.json", b"[" * 100_000, r"a\.json is not JSON that can be read: it is nested too deeply"),
        ("a.jsonl", b'{"a": ' * 50_000, r"a\.jsonl, line 1 is not JSON that can be read: it is nested too deeply"),
        ("a.jsonl", b'{"a": ' + b"[" * 700 + b"]" * 700 + b"}\n", "nested too deeply"),
        ("a.json", b'{"a": [1, 2], "b": [1]}', "not of one length \\(a 2, b 1\\)"),
        ("a.json", b"7", "not a list of rows but a number"),
        ("a.json", b"[1, 2]", "row 1 is not an object"),
        ("a.json", b'[{"a": 1},', "a.json is not JSON"),
        ("a.csv", b"\xff\xfet", "is not valid utf-16"),
        ("a.csv", "text,label\nä,é\nü,\n".encode() + b"caf\xe9,x\n", "line 4 is not UTF-8 .* but line 2 is"),
        ("a.csv", "текст,метка\n".encode("cp1251"), "line 1 is not UTF-8, nor is it cp1252"),
        ("a.csv", "文本,标签\n好电影好电影,正\n".encode("gb18030"), "is not UTF-8, nor is it cp1252"),
        ("a.csv", b"", "has no rows"),
        ("a.csv", b"\n\n", "has no rows"),
    ],
)
def test_hostile_content_is_one_sentence(name, content, expected, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=expected) as caught:
        read_table(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_half_characters_and_zeros_are_read(tmp_path, caplog):
    (tmp_path / "a.jsonl").write_text(
        "".join(
            json.dumps({"text": f"text \ud83d {n}", "lab\udc00el": ("\ud83d", "b")[n % 2]}) + "\n" for n in range(6)
        )
    )
    data = read_task(data=tmp_path / "a.jsonl", whole=True)
    assert (data.labels, data.label) == (("b", "\ufffd"), "lab\ufffdel")
    assert data.dev["dev"][0].first == "text \ufffd 0"
    assert "half of a surrogate pair" in caplog.text
    str(data).encode()
    (tmp_path / "a.csv").write_bytes(b"text,label\n" + b"one\x00two,a\nthree,b\n" * 3)
    assert read_task(data=tmp_path / "a.csv", whole=True).dev["dev"][0].first == "one\x00two"


def test_numbers_beyond_floats(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(f'{{"text": "t {n}", "label": {10**400}}}\n' for n in range(4)))
    with pytest.raises(InputError, match="not a number"):
        read_task(data=tmp_path / "a.jsonl", kind="regress", whole=True)


def test_a_folder_or_an_unreadable_file_is_one_sentence(tmp_path):
    (tmp_path / "a.csv").mkdir()
    with pytest.raises(InputError, match="there is no file"):
        read_table(tmp_path / "a.csv")


# --- data in memory


def in_memory():
    yield "dict", columns(ROWS)
    yield "dicts", ROWS
    yield "generator", iter(ROWS)
    for library in ("pandas", "polars"):
        try:
            yield library, __import__(library).DataFrame(columns(ROWS))
        except ImportError:
            yield library, None
    try:
        yield "datasets", __import__("datasets").Dataset.from_list(ROWS)
    except ImportError:
        yield "datasets", None


@pytest.mark.parametrize(("name", "data"), list(in_memory()), ids=lambda value: value if isinstance(value, str) else "")
def test_rows_in_memory(name, data):
    if data is None:
        pytest.skip(f"needs {name}")
    found = read_task(data=data, whole=True)
    assert (found.text, found.label, found.labels) == (("text",), "label", ("bad", "good", "neither"))
    assert [item.first for item in found.dev["dev"]] == [row["text"] for row in ROWS]


def test_tuples():
    one = read_task(data=[(f"text {n}", ("a", "b")[n % 2]) for n in range(40)])
    assert (one.text, len(one.train), len(one.dev["dev"])) == (("text",), 36, 4)
    two = read_task(data=[[f"text {n}", "other", n % 2] for n in range(40)], whole=True)
    assert (two.text, two.labels, two.dev["dev"][3].second) == (("text_a", "text_b"), ("0", "1"), "other")
    for data, expected in (
        ([("a", "b"), ("a",)], "row 2 is not"),
        ([("a", "b", "c", "d")], "row 1 is not"),
        ([{"text": "a"}, "b"], "row 2 is not an object"),
        (7, "the data is int, which cannot be read as rows"),
        ({"text": "a"}, "the column 'text' is not a list but str"),
        ({"text": ["a"], "label": []}, "not of one length"),
        ([], "train has no rows"),
    ):
        with pytest.raises(InputError, match=expected):
            read_task(data=data)


def test_missing_values_and_types_of_pandas():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(
        {"text": ["a b", None, "c d", float("nan")] * 10, "label": pandas.Categorical(["x", "y", "x", "y"] * 10)}
    )
    data = read_task(data=frame, whole=True)
    assert [item.first for item in data.dev["dev"]][:2] == ["a b", "c d"]
    assert "left out 20 rows without any text, first dev, row 2" in data.notes[1]
    frame = pandas.DataFrame({"text": ["a", "b", "c"] * 5, "score": [1.5, 2.5, 3.0] * 5})
    assert read_task(data=frame, whole=True).kind == "regress"
    frame = pandas.DataFrame({"text": ["a", "b"] * 9, "label": pandas.array([1, None] * 9, dtype="Int64")})
    with pytest.raises(InputError, match="row 2 has no label"):
        read_task(data=frame)


def test_splits_in_memory():
    tuples = [(f"text {n}", ("a", "b")[n % 2]) for n in range(40)]
    data = read_task(data={"train": tuples, "validation": tuples[:4], "test": [{"text": "x"}]})
    assert (len(data.train), len(data.dev["dev"]), len(data.test["test"])) == (40, 4, 1)
    data = read_task(data=tuples, dev=tuples[:6])
    assert (len(data.train), len(data.dev["dev"])) == (40, 6)
    with pytest.raises(InputError, match="no train split; it has test"):
        read_task(data={"test": tuples})


def test_a_dataset_dict_and_the_names_of_its_labels():
    datasets = pytest.importorskip("datasets", reason="needs litebert[hub]")
    features = datasets.Features(
        {"sentence": datasets.Value("string"), "label": datasets.ClassLabel(names=["neg", "pos"])}
    )
    rows = datasets.Dataset.from_dict(
        {"sentence": [f"s {n}" for n in range(8)], "label": [0, 1] * 4}, features=features
    )
    data = read_task(data=datasets.DatasetDict({"train": rows, "validation": rows}))
    assert (data.labels, data.train[1].target) == (("neg", "pos"), 1)
    named = read_task("sst2", datasets.DatasetDict({"train": rows, "validation": rows}))
    assert (named.labels, named.train[1].target) == (("negative", "positive"), 1)


# --- the label's column


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("text", "stars", "label3"), "label3"),
        (("text", "stars", "Class"), "Class"),
        (("text", "rating", "sentiment"), "sentiment"),
        (("text", "category", "label"), "label"),
        (("text", "label_text", "label"), "label"),
        (("text", "my label", "score"), "my label"),
        (("text", "label1", "gold_label"), "gold_label"),
    ],
)
def test_names_that_say_label_are_preferred(names, label):
    rows = [dict(zip(names, (f"text {n}", n % 5, n % 3), strict=True)) for n in range(30)]
    assert read_task(data=rows, whole=True).label == label


@pytest.mark.parametrize(
    "names", [("class", "category"), ("label1", "label2"), ("topic", "sentiment"), ("score", "stars")]
)
def test_equally_good_names_are_asked_for(names):
    rows = [{"text": f"text {n}", names[0]: n % 2, names[1]: n % 3} for n in range(30)]
    with pytest.raises(
        InputError, match=f"which column of train is the label. {names[0]}, {names[1]} could be it.*label="
    ):
        read_task(data=rows)
    assert read_task(data=rows, label=names[1], whole=True).label == names[1]


def test_columns_as_lists():
    rows = [{"a,b": f"text {n}", "c": "more", "x": n % 2, "y": int(n % 3 == 0)} for n in range(30)]
    data = read_task(data=rows, text=["a,b", "c"], label=("x", "y"), whole=True)
    assert (data.text, data.kind, data.labels) == (("a,b", "c"), "multilabel", ("x", "y"))
    assert read_task(data=rows, text=["c+a,b"], label=["x"], whole=True).dev["dev"][1].first == "more\ntext 1"
    assert read_task(data=rows, text="a,b", label="x", whole=True).dev["dev"][1].first == "text 1"
