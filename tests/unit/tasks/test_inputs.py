"""Texts to predict come in every form that training takes, with the columns that training had."""

import json
from dataclasses import replace

import pytest

from litebert.data.tables import read_table
from litebert.errors import InputError
from litebert.tasks.examples import TaskSpec
from litebert.tasks.tables import read_inputs

ROWS = [{"id": f"r{n}", "body": f"text {n}", "other": "no"} for n in range(3)]
NOTE = TaskSpec(kind="classify", labels=("a", "b"), text=("body",))


def csv_text(delimiter: str) -> str:
    return "\n".join(delimiter.join(row.values()) for row in [dict(zip(ROWS[0], ROWS[0], strict=True)), *ROWS]) + "\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("lines.jsonl", "\n".join(map(json.dumps, ROWS))),
        ("lines.json", "\n".join(map(json.dumps, ROWS)) + "\n"),
        ("list.json", json.dumps(ROWS)),
        ("rows.csv", csv_text(",")),
        ("rows.tsv", csv_text("\t")),
        ("semicolons.csv", csv_text(";")),  # as spreadsheets write it in half of Europe
        ("spaces.csv", csv_text(",").replace("body,", " body ,", 1)),
        ("windows.csv", "\ufeff" + csv_text(",").replace("\n", "\r\n")),
    ],
)
def test_forms(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    found = [(item.key, item.first) for item in read_inputs(tmp_path / name, NOTE)]
    assert found == [("r0", "text 0"), ("r1", "text 1"), ("r2", "text 2")]


@pytest.mark.parametrize(
    ("name", "encoding"), [("rows.csv", "latin-1"), ("rows.csv", "utf-16"), ("rows.txt", "cp1252")]
)
def test_encodings_of_windows_are_read_as_in_training(name, encoding, tmp_path):
    (tmp_path / name).write_bytes(f"{csv_text(',')}9,caf\xe9,no\n".encode(encoding))
    found = [item.first for item in read_inputs(tmp_path / name, NOTE)]
    assert found[-1] == ("9,caf\xe9,no" if name == "rows.txt" else "caf\xe9")


def test_a_file_in_another_encoding_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_bytes(f"{csv_text(',')}9,日本語です。,no\n".encode("shift-jis"))
    with pytest.raises(InputError, match="line 5 is not UTF-8, nor is it cp1252; save the file as UTF-8"):
        list(read_inputs(tmp_path / "rows.csv", NOTE))


def test_rows_in_memory(tmp_path):
    expected = [("0", "text 0"), ("1", "text 1")]
    for data in (["text 0", "text 1"], [("text 0",), ("text 1",)], iter(["text 0", "text 1"])):
        assert [(item.key, item.first) for item in read_inputs(data, NOTE)] == expected
    for data in ({"body": ["text 0", "text 1"]}, [{"body": "text 0", "x": 1}, {"body": "text 1", "x": 2}]):
        assert [(item.key, item.first) for item in read_inputs(data, NOTE)] == expected
    pairs = TaskSpec(kind="classify", labels=("a", "b"), text=("subject", "body"), pairs=True)
    (item,) = read_inputs([("one", "two")], pairs)
    assert (item.first, item.second) == ("one", "two")
    with pytest.raises(InputError, match="this model reads two texts but data gives 1"):
        list(read_inputs(["one"], replace(pairs, text=())))
    with pytest.raises(InputError, match="data has no column 'body'"):
        list(read_inputs([{"txt": "a"}], NOTE))


def test_a_table_without_a_header_has_its_only_column_read(tmp_path):
    (tmp_path / "rows.csv").write_text("the first of the texts\nanother of them\nand one more\n")
    assert next(read_inputs(tmp_path / "rows.csv", NOTE)).first == "the first of the texts"
    (tmp_path / "short.csv").write_text("good\nbad\n")
    assert [item.first for item in read_inputs(tmp_path / "short.csv", NOTE, header=False)] == ["good", "bad"]


def test_hostile_files_are_one_sentence(tmp_path):
    note = replace(NOTE, kind="choice", labels=())
    rows = {
        "deep.jsonl": "[" * 100_000,
        "deep.json": "[" * 100_000,
        "options.jsonl": json.dumps({"body": "q", "options": "x"}),
        "empty.jsonl": json.dumps({"body": " ", "options": ["x", "y"]}),
    }
    for name, content in rows.items():
        (tmp_path / name).write_text(content)
        with pytest.raises(InputError):
            list(read_inputs(tmp_path / name, note))


@pytest.mark.parametrize(
    "rows",
    [
        ['he said "no"', '"no" was said'],  # quotes are text
        ['"he said ""no"""', "plain"],  # a spreadsheet quoted what it had to
        ['"a tab\there"', '"a line\nend"'],
        ['"quoted"', '"and quoted"'],  # but not the header, so that these may be quotations
    ],
)
def test_quotes_between_tabs_are_read_as_in_training(rows, tmp_path):
    file = tmp_path / "rows.tsv"
    file.write_text("id\tbody\n" + "".join(f"{number}\t{cell}\n" for number, cell in enumerate(rows)))
    assert [item.first for item in read_inputs(file, NOTE)] == list(read_table(file).column("body"))


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(ROWS[0]) + '\n{"body": \n')
    with pytest.raises(InputError, match=r"rows.json, line 2 is not JSON"):
        list(read_inputs(tmp_path / "rows.json", NOTE))


def test_questions_to_predict_need_no_answers(tmp_path):
    rows = [{"question": "who", "context": f"he {n}"} for n in range(2)]
    found = list(read_inputs(rows, TaskSpec(kind="span")))
    assert [(item.key, item.question, item.passage) for item in found] == [("0", "who", "he 0"), ("1", "who", "he 1")]
