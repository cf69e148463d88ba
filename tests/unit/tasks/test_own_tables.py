"""A person's own files: every format, columns guessed and told, every kind of task."""

import csv
import gzip
import json

import pytest

from litebert.data.tables import read_table
from litebert.errors import InputError
from litebert.tasks.columns import find_columns
from litebert.tasks.sources import read_task

TICKETS = [
    {"subject": f"Ticket {n}", "body": f'It says "no {n}",\nthen stops', "queue": ("billing", "repair")[n % 2]}
    for n in range(40)
]


def write_csv(path, rows, delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


def write_lines(path, rows):
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return path


def every_format(folder, rows):
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    yield write_csv(folder / "a.csv", rows)
    yield write_csv(folder / "b.csv", rows, ";")
    yield write_csv(folder / "c.tsv", rows, "\t")
    yield write_lines(folder / "d.jsonl", rows)
    yield write_lines(folder / "e.json", rows)
    (folder / "f.json").write_text(json.dumps(rows), encoding="utf-8")
    yield folder / "f.json"
    parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "g.parquet")
    yield folder / "g.parquet"
    (folder / "h.csv.gz").write_bytes(gzip.compress((folder / "a.csv").read_bytes()))
    yield folder / "h.csv.gz"


def test_every_format_reads_the_same(tmp_path):
    for path in every_format(tmp_path, TICKETS):
        data = read_task(None, path, whole=True)
        first = data.dev["dev"][0]
        assert (first.first, first.second) == ("Ticket 0", 'It says "no 0",\nthen stops'), path
        assert data.labels == ("billing", "repair")
        assert [item.target for item in data.dev["dev"]] == [0, 1] * 20
        assert (data.kind, data.text, data.label) == ("classify", ("subject", "body"), "queue")
        assert data.notes == ("guessed: classify, text from subject and body, label from queue",)


def test_quotes_in_a_plain_tsv_are_only_text(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text('text\tlabel\n"good\t1\nsaid "no"\t0\n"all"\t1\n')
    assert read_table(path).column("text") == ['"good', 'said "no"', '"all"']


def test_told_columns_and_joined_ones(tmp_path):
    path = write_csv(tmp_path / "a.csv", TICKETS)
    joined = read_task(None, path, text="subject+body", label="queue", whole=True)
    assert joined.dev["dev"][0].first == 'Ticket 0\nIt says "no 0",\nthen stops'
    assert joined.dev["dev"][0].second is None
    assert joined.notes == ("classify, text from subject+body, label from queue",)
    again = read_task(None, path, text=",".join(joined.text), label=joined.label, whole=True)
    assert again.dev == joined.dev
    one = read_task(None, path, text="Subject", whole=True)
    assert one.dev["dev"][0].first == "Ticket 0"


def test_split_files_of_a_folder(tmp_path):
    write_csv(tmp_path / "train.csv", TICKETS)
    write_csv(tmp_path / "my-valid.csv", TICKETS[:4])
    write_csv(tmp_path / "test.csv", [{"subject": "x", "body": "y"}])
    data = read_task(None, tmp_path)
    assert (len(data.train), len(data.dev["dev"]), len(data.test["test"])) == (40, 4, 1)
    assert data.test["test"][0].target is None


def test_labels_keep_the_order_of_the_model(tmp_path):
    path = write_csv(tmp_path / "a.csv", TICKETS[:1])
    data = read_task(None, path, labels=["repair", "other", "billing"], whole=True)
    assert data.dev["dev"][0].target == 2


@pytest.mark.parametrize(
    ("rows", "kind", "targets"),
    [
        ([{"text": f"t {n}", "label": n % 3} for n in range(9)], "classify", [0, 1, 2]),
        ([{"text": f"t {n}", "label": n % 12 + 5} for n in range(36)], "classify", [0, 1, 2]),
        ([{"text": f"t {n}", "label": n % 2 == 0} for n in range(9)], "classify", [1, 0, 1]),
        ([{"text": f"t {n}", "score": n / 4} for n in range(9)], "regress", [0.0, 0.25, 0.5]),
        ([{"text": f"t {n}", "stars": "3.0"} for n in range(9)], "regress", [3.0, 3.0, 3.0]),
        ([{"text": f"t {n}", "y": n % 40 * 10} for n in range(120)], "regress", [0.0, 10.0, 20.0]),
        ([{"text": f"t {n}", "labels": ["a", "b", "c"][: n % 4]} for n in range(9)], "multilabel", [(), (0,), (0, 1)]),
        (
            [{"text": f"t {n}", "tags": ("red;big", "red", "big;wet")[n % 3]} for n in range(30)],
            "multilabel",
            [(0, 1), (1,), (0, 2)],
        ),
        (
            [{"sentence1": f"a {n}", "sentence2": "b", "label": ("yes", "no")[n % 2]} for n in range(9)],
            "classify",
            [1, 0, 1],
        ),
        (
            [{"question": f"q {n}", "choice0": "a", "choice1": "b", "label": n % 2} for n in range(9)],
            "choice",
            [0, 1, 0],
        ),
        (
            [
                {"article": "p", "question": f"q {n}", "options": ["x", "y", "z"], "answer": "BCA"[n % 3]}
                for n in range(9)
            ],
            "choice",
            [1, 2, 0],
        ),
        (
            [{"question": f"q {n}", "option_a": "x", "option_b": "y", "answer": "y"} for n in range(9)],
            "choice",
            [1, 1, 1],
        ),
    ],
)
def test_kinds_are_guessed(rows, kind, targets, tmp_path):
    data = read_task(None, write_lines(tmp_path / "a.jsonl", rows), whole=True)
    assert data.kind == kind
    assert [item.target for item in data.dev["dev"]][:3] == targets


def test_told_sets_are_parted_by_whatever_is_there(tmp_path):
    rows = [{"text": f"t {n}", "genres": ("war, sea", "war", "sea")[n % 3]} for n in range(9)]
    path = write_csv(tmp_path / "a.csv", rows)
    assert read_task(None, path, label="genres", whole=True).kind == "classify"
    data = read_task(None, path, label="genres", kind="multilabel", whole=True)
    assert (data.labels, data.dev["dev"][0].target) == (("sea", "war"), (0, 1))


def test_columns_of_zero_and_one_are_labels_each(tmp_path):
    rows = [{"comment": f"c {n}", "toxic": n % 2, "insult": int(n % 3 == 0)} for n in range(12)]
    data = read_task(None, write_csv(tmp_path / "a.csv", rows), label="toxic,insult", whole=True)
    assert (data.kind, data.labels) == ("multilabel", ("toxic", "insult"))
    assert [item.target for item in data.dev["dev"]][:4] == [(1,), (0,), (), (0, 1)]


def test_questions_as_rows_and_as_articles(tmp_path):
    answers = {"text": ["Rome"], "answer_start": [7]}
    rows = [
        {"id": str(n), "context": "I am in Rome.", "question": f"Where {n}?", "answers": answers if n else {"text": []}}
        for n in range(4)
    ]
    data = read_task(None, write_lines(tmp_path / "a.jsonl", rows), whole=True)
    assert (data.kind, data.has_null) == ("span", True)
    assert data.dev["dev"][1].answers[0].start == 8
    entries = [{"id": "x", "question": "Where?", "answers": [{"text": "Rome", "answer_start": 8}]}]
    articles = {"data": [{"title": "t", "paragraphs": [{"context": "I am in Rome.", "qas": entries}]}]}
    (tmp_path / "b.json").write_text(json.dumps(articles))
    other = read_task(None, tmp_path / "b.json", whole=True)
    assert (other.kind, other.has_null, other.dev["dev"][0].answers[0].start) == ("span", False, 8)


def test_ids_become_keys_only_if_they_are_unique(tmp_path):
    rows = [{"id": f"r{n}", "text": f"t {n}", "label": n % 2} for n in range(6)]
    data = read_task(None, write_csv(tmp_path / "a.csv", rows), whole=True)
    assert data.dev["dev"][3].key == "r3"
    rows[0]["id"] = "r1"
    data = read_task(None, write_csv(tmp_path / "b.csv", rows), whole=True)
    assert data.dev["dev"][3].key == "3"


def test_a_guess_by_content_where_names_say_nothing(tmp_path):
    rows = [
        {"nr": n, "what": f"a long enough text number {n} of some words", "where": ("north", "south")[n % 2]}
        for n in range(40)
    ]
    columns = find_columns(read_table(write_csv(tmp_path / "a.csv", rows)))
    assert (columns.texts, columns.labels, columns.kind) == ((("what",),), ("where",), "classify")


def test_rows_without_text_are_left_out_and_said_and_keys_do_not_move(tmp_path):
    rows = [{"text": "" if n == 2 else f"t {n}", "label": n % 2} for n in range(6)]
    data = read_task(None, write_csv(tmp_path / "a.csv", rows), whole=True)
    assert [item.key for item in data.dev["dev"]] == ["0", "1", "3", "4", "5"]
    assert "left out 1 rows without any text, first" in data.notes[1] and "line 4" in data.notes[1]


def test_a_very_long_text_is_read(tmp_path):
    rows = [{"text": "word " * 60_000 if n == 1 else f"t {n}", "label": n % 2} for n in range(4)]
    data = read_task(None, write_csv(tmp_path / "a.csv", rows), whole=True)
    assert len(data.dev["dev"][1].first) == 5 * 60_000 - 1


def rows_with(**changes):
    rows = [{"text": f"text number {n}", "label": ("a", "b")[n % 2]} for n in range(30)]
    for name, value in changes.items():
        for row in rows:
            row[name] = value(row) if callable(value) else value
    return rows


@pytest.mark.parametrize(
    ("rows", "options", "expected"),
    [
        (rows_with(label="a"), {}, "every row of .* has the label 'a'"),
        (rows_with(label=lambda row: row["text"]), {}, "30 different values in 30 rows, which looks like an id"),
        (rows_with(label=lambda row: int(row["text"].split()[-1])), {}, "looks like an id"),
        (rows_with(label=lambda row: "" if row["text"].endswith(" 4") else "a"), {}, "line 6 has no label"),
        (
            rows_with(label=lambda row: "nan" if row["text"].endswith(" 4") else "1.5"),
            {},
            "line 6: the target is 'nan'",
        ),
        (
            rows_with(label=lambda row: "x" if row["text"].endswith(" 4") else "1"),
            {"kind": "regress"},
            "line 6: the target",
        ),
        (rows_with(text=" "), {}, "no text in 30 of 30 rows"),
        (rows_with(), {"text": "txt"}, "no column 'txt'; did you mean 'text'"),
        (rows_with(), {"label": "queue"}, "no column 'queue'"),
        (rows_with(), {"text": "text,label,text"}, "join columns into one with \\+"),
        (rows_with(), {"kind": "classification"}, "did you mean 'classify'"),
        ([{"a": "one two three four", "b": "five six seven eight", "label": n % 2} for n in range(9)], {}, "text="),
        (
            [{"text": f"t {n}", "p": n % 2, "q": n % 3} for n in range(30)],
            {},
            "p, q could be it; choose one with label=",
        ),
        ([{"question": "q", "option_a": "x", "option_b": "y", "answer": "C"}] * 3, {}, "line 2: answer is 'C'"),
        ([{"question": "q", "option_a": "x", "option_b": "", "answer": "A"}] * 3, {}, "line 2 has 1 options"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(rows, options, expected, tmp_path):
    with pytest.raises(InputError, match=expected):
        read_task(None, write_csv(tmp_path / "a.csv", rows), **options)


def test_an_unknown_label_in_dev_is_said_with_its_line(tmp_path):
    train = write_csv(tmp_path / "train.csv", rows_with())
    dev = write_csv(tmp_path / "dev.csv", [*rows_with()[:5], {"text": "odd", "label": "c"}])
    with pytest.raises(InputError, match=r"dev\.csv, line 7: the label 'c' is not among"):
        read_task(None, train, dev=dev)


def test_a_column_that_dev_lacks_is_said(tmp_path):
    train = write_csv(tmp_path / "train.csv", rows_with())
    dev = write_csv(tmp_path / "dev.csv", [{"text": "x", "labels": "a"}])
    with pytest.raises(InputError, match=r"dev\.csv has no column 'label'; did you mean 'labels'"):
        read_task(None, train, dev=dev)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('text,label\nfine,a\n"open,b\nmore,a\n', 3),
        ('text,label\n"two\nlines",a\nfine,b\n"broken" here,a\n', 5),
        ("text,label\nfine,a\none, two,b\n", 3),
        ('text,label\n"never closed\n' + "x,y\n" * 100, 2),
    ],
)
def test_broken_quotes_are_said_with_the_line_they_start_on(text, line, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=rf"a\.csv, line {line}\b"):
        read_task(None, tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "line 2 is not JSON"),
        ("a.jsonl", b'{"text": "x"}\n[1]\n', "line 2 is not an object"),
        ("a.csv", b"text,label\nx,\x81\n", "line 2 is not UTF-8"),
        ("a.csv", b"text,label\n", "has no rows"),
        ("a.csv", b"text,text\na,b\n", "two columns 'text'"),
        ("a.tsv", b"text\tlabel\na\tb\nc\n", "line 3 has 1 cells but the header has 2"),
        ("a.xlsx", b"PK", "not an .xlsx file that can be read"),
        ("a.parquet", b"PAR1nothing", "not a parquet file"),
        ("a.csv.gz", b"no", "damaged or cut short"),
    ],
)
def test_files_that_cannot_be_read(name, content, expected, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=expected):
        read_task(None, tmp_path / name)


REAL = [
    ("nsmc", "classify", (18000, 2000)),
    ("korsts", "regress", (5749, 1500)),
    ("jglue/jsts-v1.3", "regress", (12451, 1457)),
    ("jglue/jcommonsenseqa-v1.3", "choice", (8939, 1119)),
    ("fewclue/eprstmt/train_few_all.json", "classify", (144, 16)),
    ("xquad/xquad.zh.json", "span", (1071, 119)),
]


@pytest.mark.shared
@pytest.mark.parametrize(("name", "kind", "counts"), REAL)
def test_real_sets_of_other_languages(name, kind, counts, real_data):
    data = read_task(None, real_data / name)
    assert data.kind == kind
    assert (len(data.train), len(data.dev["dev"])) == counts
