"""The one quick test of Ray: a corpus is built with the bytes of one process, with a worker killed midway."""

import toy_work
from toy_corpus import SMALL, contents, document, write_tokenizer

from litebert.corpus import build
from litebert.corpus.build import build_store


def test_a_corpus_has_the_bytes_of_one_process(one_node, tmp_path, monkeypatch):
    class Killed:
        @staticmethod
        def of(*arguments):
            return toy_work.KilledOnce(tokenise.of(*arguments), tmp_path / "killed")

    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(document(number % 60) for number in range(80)))
    write_tokenizer(tmp_path / "words")
    monkeypatch.setattr("litebert.corpus.documents.BATCH", 1000)
    build_store([str(text)], tmp_path / "words", tmp_path / "alone", SMALL, workers=1)
    tokenise = build.TokeniseDocuments
    monkeypatch.setattr(build, "TokeniseDocuments", Killed)
    build_store([str(text)], tmp_path / "words", tmp_path / "ray", SMALL, on="ray")
    assert (tmp_path / "killed").exists()
    assert contents(tmp_path / "ray") == contents(tmp_path / "alone")
