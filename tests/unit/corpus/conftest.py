"""Token stores for tests: small ones from lists, and real text in four languages tokenised once a session."""

import io
import lzma
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from litebert.corpus.shards import ShardWriter
from litebert.corpus.store import Manifest, Origin, Store

SPECIAL = {"pad": 0, "unk": 1, "cls": 2, "sep": 3, "mask": 4}
CORPUS = Path(__file__).parents[3] / "../shared/data/corpus"
VOCAB = CORPUS.parent / "vocab"
TEXTS = {"en": "en-wiki", "ja": "ja-aozora", "ko": "ko-wiki", "zh": "zh-wiki"}
CHARACTERS = {"en": 6_000_000, "ja": 2_000_000, "ko": 2_000_000, "zh": 2_000_000}

Sentence = tuple[Sequence[int], Sequence[int]]  # ids, word starts
StoreMaker = Callable[..., Store]


def write_store(
    folder: Path, splits: dict[str, list[list[list[Sentence]]]], *, vocab_size: int, shard_documents: int = 1 << 30
) -> Store:
    """A store of documents of sentences, each (ids, word starts), with so many documents a shard."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for split, documents in splits.items():
        for number, first in enumerate(range(0, len(documents), shard_documents)):
            writer = ShardWriter(folder, split, number, vocab_size=vocab_size, unknown_id=SPECIAL["unk"])
            for document in documents[first : first + shard_documents]:
                sizes = [len(ids) for ids, _ in document]
                tokens = np.array([token for ids, _ in document for token in ids], np.int64)
                starts = np.array([start for _, words in document for start in words], np.uint8)
                sentences = np.cumsum([0, *sizes[:-1]]) if sizes else np.zeros(0, np.int64)
                writer.add(tokens, starts, sentences, np.array([0]), len(tokens))
            entries.append(writer.close(len(documents), ""))
    origin = Origin(tokenizer="", normalisation="none", languages=["en"], settings={}, sources=[], source_bytes=[])
    manifest = Manifest(
        format=1,
        complete=True,
        fingerprint="test",
        origin=origin,
        vocab_size=vocab_size,
        special_ids=SPECIAL,
        documents_read=0,
        duplicates=0,
        empty=0,
        shards=tuple(entries),
    )
    manifest.write(folder)
    return Store.open(folder)


@pytest.fixture
def make_store(tmp_path: Path) -> StoreMaker:
    """Stores from the sizes of sentences: every token has an id of its own, from 10 up, a word every second token."""
    made = iter(range(1 << 30))

    def make(
        sizes: list[list[int]], *, held_out: list[list[int]] | None = None, shard_documents: int = 1 << 30
    ) -> Store:
        token = iter(range(10, 1 << 30))
        splits = {
            name: [
                [([next(token) for _ in range(size)], [(i + 1) % 2 for i in range(size)]) for size in document]
                for document in documents
            ]
            for name, documents in {"train": sizes, "held_out": held_out or []}.items()
        }
        total = sum(map(sum, sizes + (held_out or [])))
        folder = tmp_path / f"store-{next(made)}"
        return write_store(folder, splits, vocab_size=10 + total, shard_documents=shard_documents)

    return make


def read_text(name: str, characters: int) -> list[str]:
    path = CORPUS / f"{name}.txt.xz"
    if not path.is_file():
        pytest.skip(f"{path} is not there")
    with lzma.open(path, "rt", encoding="utf-8") as file:
        text = file.read(characters)
    return [document for document in text.split("\n\n")[:-1] if document.strip()]


@pytest.fixture(scope="session")
def language_stores(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Store]:
    """Real text as a store, by language: the released ALBERT vocabulary for English, small ones made here elsewhere."""
    import sentencepiece
    import sentencex

    made: dict[str, Store] = {}

    def get(language: str) -> Store:
        if language in made:
            return made[language]
        documents = read_text(TEXTS[language], CHARACTERS[language])
        if language == "en":
            model = sentencepiece.SentencePieceProcessor(model_file=str(VOCAB / "albert-30k.model"))
        else:
            proto = io.BytesIO()
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=(line[:400] for line in "\n".join(documents).split("\n")[:3000] if line),
                model_writer=proto,
                vocab_size=6000,
                pad_id=0,
                unk_id=1,
                bos_id=-1,
                eos_id=-1,
                user_defined_symbols=["[CLS]", "[SEP]", "[MASK]"],
                add_dummy_prefix=language == "ko",
                seed_sentencepiece_size=20000,
                num_sub_iterations=1,
                num_threads=1,
                minloglevel=2,
            )
            model = sentencepiece.SentencePieceProcessor(model_proto=proto.getvalue())
        begins = [model.id_to_piece(i).startswith("▁") for i in range(model.get_piece_size())]

        def sentence(ids: list[int]) -> Sentence:
            # Words by spaces in English and Korean; elsewhere a piece is a word.
            by_space = language in ("en", "ko")
            return ids, [int(i == 0 or not by_space or begins[token]) for i, token in enumerate(ids)]

        splits: dict[str, list[list[list[Sentence]]]] = {"train": [], "held_out": []}
        for number, document in enumerate(documents):
            texts = [s.strip() for line in document.split("\n") for s in sentencex.segment(language, line) if s.strip()]
            texts = [text.lower() for text in texts] if language == "en" else texts
            splits["held_out" if number % 50 == 49 else "train"].append(
                [sentence(ids) for ids in model.encode(texts) if ids]
            )
        folder = tmp_path_factory.mktemp(f"store-{language}")
        made[language] = write_store(folder, splits, vocab_size=model.get_piece_size(), shard_documents=100)
        return made[language]

    return get
