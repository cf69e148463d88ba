"""Making a page: where its runtime comes from, what is refused, and what the page may and may not do."""

import hashlib
import html
import re
import tarfile
from pathlib import Path

import pytest

import litebert.api
from litebert.errors import InputError
from litebert.pages import web_runtime
from litebert.pages.assemble import ASSETS, page_html, plain_json
from litebert.pages.characters import character_sets, ranges
from litebert.pages.described import describe
from litebert.pages.single import write_page

FILES = {web_runtime.SCRIPT: b"export const Tensor = 1;", web_runtime.WASM: b"\0asm"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with small files, whose hashes are the pinned ones, and an empty cache."""
    folder = tmp_path / "package"
    (folder / "dist").mkdir(parents=True)
    for name, content in FILES.items():
        (folder / "dist" / name).write_bytes(content)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    monkeypatch.setattr(web_runtime, "SHA256", hashes)
    monkeypatch.setenv("LITEBERT_CACHE", str(tmp_path / "cache"))
    return folder


def fake_npm(folder, monkeypatch, script: str) -> None:
    """A program npm, the only one there is."""
    (folder / "bin").mkdir()
    (folder / "bin" / "npm").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:/bin:/usr/bin" if "cp" in script else str(folder / "bin"))


def test_the_runtime_is_fetched_once_and_then_cached(package, tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        archive.add(package, "package")
    fake_npm(tmp_path, monkeypatch, f'test "$1 $2" = "pack onnxruntime-web@1.30.0" && cp {tmp_path}/a.tgz "$4"')
    assert web_runtime.web_runtime().wasm == FILES[web_runtime.WASM]
    monkeypatch.setenv("PATH", "")
    assert web_runtime.web_runtime().script == FILES[web_runtime.SCRIPT]


def test_without_npm_or_network_it_says_what_to_do(package, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InputError, match=r"install npm .*, or unpack onnxruntime-web 1\.30\.0 .* with runtime"):
        web_runtime.web_runtime()
    fake_npm(tmp_path, monkeypatch, "echo ENOTFOUND >&2; exit 1")
    with pytest.raises(InputError, match=r"could not fetch .*ENOTFOUND.*connect to the network, or unpack .* runtime"):
        web_runtime.web_runtime()
    assert web_runtime.web_runtime(package).wasm == web_runtime.web_runtime(package / "dist").wasm


def test_files_of_another_version_are_refused(package):
    (package / "dist" / web_runtime.WASM).write_bytes(b"other")
    with pytest.raises(InputError, match=r"simd-threaded.wasm is not the file of onnxruntime-web 1\.30\.0"):
        web_runtime.web_runtime(package)
    with pytest.raises(InputError, match="does not hold ort-wasm"):
        web_runtime.web_runtime(package.parent / "nothing")


def test_a_page_is_written_whole_or_not_at_all(models, package, tmp_path):
    folder = models["classify"].name
    made = litebert.api.page([f"one={folder}", f"two={folder}"], out=tmp_path / "page.html", runtime=package)
    assert made.models == ("one", "two") and made.size == (tmp_path / "page.html").stat().st_size
    assert "<title>one and two</title>" in made.file.read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"two models are called 'classify'; name them: NAME=MODEL"):
        litebert.api.page([folder, folder], out=tmp_path / "other.html", runtime=package)
    with pytest.raises(InputError, match="no folder"):
        litebert.api.page(folder, out=tmp_path / "nowhere" / "page.html", runtime=package)
    assert [path.name for path in tmp_path.glob("*.html")] == ["page.html"]


def test_a_model_with_torch_becomes_a_page(models, package, tmp_path):
    from toy_models import tuned_model, word_tokenizer

    tuned_model(word_tokenizer(tmp_path / "words"), "classify").save(tmp_path / "run" / "model")
    made = litebert.api.page(str(tmp_path / "run" / "model"), out=tmp_path / "page.html", bits=4, runtime=package)
    assert made.models == ("run",)


def test_policies_allow_nothing_else(models, package, tmp_path):
    """One script, by its hash; nothing from elsewhere; connections to the own server at most."""
    name = "</script><script>alert(1)</script>"
    folder = [(name, Path(models["evil"].name))]
    single = write_page(folder, tmp_path / "page.html", web_runtime.web_runtime(package)).file.read_text(
        encoding="utf-8"
    )
    for page, connect in ((single, "connect-src 'none'"), (page_html().decode(), "connect-src 'self'")):
        policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1])
        assert {"default-src 'none'", "base-uri 'none'", "form-action 'none'", connect} <= set(policy.split("; "))
        assert "unsafe-inline" not in policy and "unsafe-eval'" not in policy.replace("'wasm-unsafe-eval'", "")
        assert page.count("<script>") == 1
        assert "http://" not in page and "https://" not in page
    assert name not in single


def test_assets_can_stand_in_a_page():
    for path in ASSETS.iterdir():
        text = path.read_text(encoding="utf-8")
        assert path.suffix == ".html" or ("</" not in text and "<!--" not in text), path
        assert "innerHTML" not in text and "eval(" not in text, path


def test_what_the_page_knows_of_a_model(models):
    """The shape of GET /info, and nothing of the training data."""
    messages = pytest.importorskip("litebert.serving.messages", reason="litebert[serve] is not installed")
    about = describe(Path(models["pairs"].name), "pairs")
    assert set(about["info"]) == set(messages.ModelInfo.__struct_fields__)
    assert set(about["info"]["task"]) == set(messages.TaskInfo.__struct_fields__)
    assert "seen" not in about["task"]


def test_character_sets():
    assert ranges([5, 6, 9]) == "5 2 2 1"
    assert ranges([]) == ""
    found = character_sets(["StripAccents", "NFKC", "Metaspace"])
    assert set(found) == {"mark", "NFKC"}
    assert found["mark"].startswith("lc 34 ")  # U+0300 to U+036F


def test_json_cannot_end_its_element():
    assert "<" not in plain_json({"label": "</script><!--"})
