"""Texts and token stores: small ones made up, and real text in four languages tokenised once a session."""

import io
import lzma
from collections.abc import Callable
from pathlib import Path

import pytest
import toy_corpus
from toy_stores import Sentence, write_store

from litebert.corpus.store import Store

CORPUS = Path(__file__).parents[3] / "../shared/data/corpus"
VOCAB = CORPUS.parent / "vocab"
TEXTS = {"en": "en-wiki", "ja": "ja-aozora", "ko": "ko-wiki", "zh": "zh-wiki"}
CHARACTERS = {"en": 6_000_000, "ja": 2_000_000, "ko": 2_000_000, "zh": 2_000_000}

StoreMaker = Callable[..., Store]


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


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wordpiece vocabulary that knows a few words and every letter."""
    folder = tmp_path_factory.mktemp("tokenizer")
    toy_corpus.write_tokenizer(folder)
    return folder


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A file of 300 made-up documents."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n\n".join(map(toy_corpus.document, range(300))))
    return path


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
