"""Texts to predict come in every form that training takes, with the columns that training had."""

import json

import pytest

from litebert.errors import InputError
from litebert.tasks.examples import TaskSpec
from litebert.tasks.incoming import incoming
from litebert.tasks.table_files import read_table

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
    found = [(item.key, item.first) for item in incoming(tmp_path / name, NOTE)]
    assert found == [("r0", "text 0"), ("r1", "text 1"), ("r2", "text 2")]


@pytest.mark.parametrize(
    ("name", "encoding"), [("rows.csv", "latin-1"), ("rows.csv", "utf-16"), ("rows.txt", "cp1252")]
)
def test_a_file_that_is_not_utf_8_is_refused_as_in_training(name, encoding, tmp_path):
    (tmp_path / name).write_bytes(f"{csv_text(',')}9,caf\xe9,no\n".encode(encoding))
    with pytest.raises(InputError, match="is not UTF-8; save the file as UTF-8"):
        list(incoming(tmp_path / name, NOTE))


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
    assert [item.first for item in incoming(file, NOTE)] == list(read_table(file).column("body"))


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "rows.json").write_text(json.dumps(ROWS[0]) + '\n{"body": \n')
    with pytest.raises(InputError, match=r"rows.json, line 2 is not JSON"):
        list(incoming(tmp_path / "rows.json", NOTE))
