"""Reading raw text: every format gives the same documents, bad input gives one sentence, reading resumes anywhere."""

import bz2
import gzip
import io
import json
import lzma
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from litebert.errors import InputError
from litebert.text import documents as raw
from litebert.text.documents import documents, expand

zstandard = pytest.importorskip("zstandard", reason="needs litebert[corpus]")

TEXTS = ["The first.\nIts second line.", "東京が好き。\n二行目。", "한국어 문서", "café 😀", "last"]
PLAIN = "\n\n".join(TEXTS).encode()


def write(path: Path, content: bytes) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    match path.suffix:
        case ".gz":
            content = gzip.compress(content)
        case ".xz":
            content = lzma.compress(content)
        case ".bz2":
            content = bz2.compress(content)
        case ".zst":
            half = len(content) // 2  # two frames, as parallel compressors write
            content = b"".join(zstandard.compress(part) for part in (content[:half], content[half:]))
    path.write_bytes(content)
    return str(path)


def write_all(folder: Path) -> list[str]:
    """The same documents in every format."""
    rows = [{"text": text, "id": number} for number, text in enumerate(TEXTS)]
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    files = [write(folder / f"a{suffix}", PLAIN) for suffix in (".txt", ".txt.gz", ".txt.xz", ".txt.bz2", ".txt.zst")]
    files += [write(folder / f"a{suffix}", lines) for suffix in (".jsonl", ".jsonl.zst")]
    cells = "".join(f'{number},"{text}"\r\n' for number, text in enumerate(TEXTS))
    files += [write(folder / f"a{suffix}", f"id,text\r\n{cells}".encode()) for suffix in (".csv", ".csv.gz")]
    wide = "\n\n".join(TEXTS).encode("utf-16")
    files += [write(folder / f"wide{suffix}", wide) for suffix in (".txt", ".txt.gz")]
    files.append(write(folder / "wide.csv", f"sep=;\nid;text\n{cells.replace(',', ';')}".encode("utf-16")))
    table = pyarrow.table({"id": list(range(len(TEXTS))), "text": TEXTS})
    pyarrow.parquet.write_table(table, folder / "a.parquet", row_group_size=2)
    return [*files, str(folder / "a.parquet")]


def texts(*sources: str, **options: str) -> list[str]:
    return [document.text for document in documents(sources, **options)]


def test_every_format_gives_the_same_documents(tmp_path):
    for file in write_all(tmp_path):
        found = list(documents([file]))
        assert [document.text for document in found] == TEXTS, file
        offsets = [document.offset for document in found]
        assert offsets == sorted(offsets) and (offsets[-1] > 0 or "parquet" in file)
        assert {document.source for document in found} == {file}


def test_folder_and_glob_are_sorted_and_leave_other_files_out(tmp_path):
    for name in ("b/2.txt", "b/1.txt.gz", "a.txt", ".hidden/x.txt", "b/.x.txt", "notes.md", "run.json", "t.csv"):
        write(tmp_path / name, name.encode())
    names = ["a.txt", "b/1.txt.gz", "b/2.txt"]
    assert [path.relative_to(tmp_path).as_posix() for path in expand([str(tmp_path)])] == names
    assert [path.name for path in expand([str(tmp_path / "b" / "*.txt*")])] == ["1.txt.gz", "2.txt"]
    assert [path.name for path in expand([str(tmp_path / "**" / "?.txt")])] == ["a.txt", "2.txt"]
    assert texts(str(tmp_path / "notes.md")) == ["notes.md"]  # named by a person: read as text


def test_blank_lines_carriage_returns_and_marks(tmp_path):
    file = write(tmp_path / "a.txt", "\ufeff\r\n \t\r\none\r\n  two\r\n\u3000\r\n\r\nthree".encode())
    assert texts(file) == ["one\n  two", "three"]


def test_endless_document_is_cut_at_a_line(tmp_path, monkeypatch):
    monkeypatch.setattr(raw, "LONGEST_DOCUMENT", 10)
    file = write(tmp_path / "a.txt", b"12345\n67890\nabc\n\nd\n")
    assert texts(file) == ["12345\n67890", "abc", "d"]


@pytest.mark.parametrize("lines", [b"one\n\ntwo\n", b'{"text": "one"}\n{"text": "two"}\n'])
def test_standard_input(monkeypatch, lines):
    class Input:
        buffer = io.BufferedReader(io.BytesIO(lines))

    monkeypatch.setattr("sys.stdin", Input)
    assert texts("-") == ["one", "two"]


def test_json_field_lists_nulls_and_half_characters(tmp_path):
    file = write(tmp_path / "a.jsonl", b'{"body": ["a", "b"]}\n\n{"body": null}\n{"body": " "}\n{"body": "c"}\n')
    assert texts(file, field="body") == ["a\nb", "c"]
    half = write(tmp_path / "half.jsonl", rb'{"text": "x\ud83d"}')
    with pytest.raises(InputError, match=r"half\.jsonl, line 1 .*errors=replace"):
        texts(half)
    assert texts(half, errors="replace") == ["x\ufffd"]


def test_not_utf8_names_file_and_line(tmp_path):
    file = write(tmp_path / "latin.txt", b"fine\nna\xefve\n")
    with pytest.raises(InputError, match=r"latin\.txt, line 2 is not UTF-8 .*0xef.*errors=replace"):
        texts(file)
    assert texts(file, errors="replace") == ["fine\nna\ufffdve"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', r"a\.jsonl, line 2 is not JSON"),
        ("a.jsonl", b'{"body": "x", "id": 1}\n', r"line 1 has no field 'text'; it has body, id"),
        ("a.jsonl", b'{"text": 7}\n', r"line 1: 'text' is not text but a number"),
        ("a.jsonl", b"[" * 100_000 + b"\n", r"a\.jsonl, line 1"),
        ("a.txt", b" \n\n", r"the corpus is empty: no text in .*a\.txt"),
        ("a.parquet", b"no parquet", r"a\.parquet is not a parquet file"),
        ("a.csv", b"a,b\n", r"a\.csv has no column 'text'; it has a, b"),
        ("a.xlsx", b"PK", r"a\.xlsx' is not of a kind that can be read"),
    ],
)
def test_bad_content_is_one_sentence(tmp_path, name, content, message):
    with pytest.raises(InputError, match=message) as caught:
        texts(write(tmp_path / name, content))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2", ".zst"])
def test_cut_compressed_file_is_noticed_with_its_line(tmp_path, suffix):
    file = Path(write(tmp_path / f"a.txt{suffix}", b"word and more\n" * 5000 + bytes(range(97, 123)) * 50))
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged or cut short"):
        texts(str(file))


def test_missing_sources(tmp_path):
    (tmp_path / "empty").mkdir()
    for source, message in [
        ("none.txt", "there is no file or folder"),
        ("*.txt", "no file matches"),
        ("empty", "holds no file to read"),
    ]:
        with pytest.raises(InputError, match=message):
            texts(str(tmp_path / source))
    with pytest.raises(InputError, match="no corpus given"):
        expand([])


def test_parquet_column(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"body": ["x", None, "y"], "id": [1, 2, 3]}), tmp_path / "a.parquet")
    file = str(tmp_path / "a.parquet")
    assert texts(file, field="body") == ["x", "y"]
    with pytest.raises(InputError, match="has no column 'text'; it has body, id"):
        texts(file)
    with pytest.raises(InputError, match="column 'id' is not text but int64"):
        texts(file, field="id")
