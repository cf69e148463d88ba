"""The tokenizer class and its readers: names, words, patterns, saving, and one sentence for every unreadable file."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import sentencepiece
from reactions import REACTIONS
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers

from litebert.errors import InputError
from litebert.text.tokenizer import begins_word
from litebert.text.tokenizer_files import SMILES, pattern_tokenizer, read_tokenizer

ROOT = Path(__file__).parents[3]
VOCAB = ROOT / ".." / "shared" / "data" / "vocab"
CHEMICAL = [
    ROOT / ".weights" / "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k/vocab.txt",
    ROOT / ".weights" / "rxnfp/models/transformers/bert_pretrained/vocab.txt",
]
WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "##s", "sat", "東", "##か", "."]


def wordpiece(folder: Path, lines: list[str] = WORDPIECE) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.weights
@pytest.mark.parametrize("vocab_file", CHEMICAL, ids=["rxnmapper", "rxnfp"])
def test_reactions_are_in_the_chemical_vocabularies(vocab_file):
    if not vocab_file.is_file():
        pytest.skip("the chemical models are not installed (make weights)")
    tokenizer = pattern_tokenizer(vocab_file, SMILES)
    ids = tokenizer.ids_batch(REACTIONS)
    assert sum(map(len, ids)) == 315
    assert tokenizer.unk_id not in {index for row in ids for index in row}
    lines = vocab_file.read_text(encoding="utf-8").splitlines()
    for reaction, row in zip(REACTIONS, ids, strict=True):
        assert "".join(lines[index] for index in row) == reaction
        assert tokenizer.decode(row) == reaction
        assert tokenizer.encode(reaction).ids == [tokenizer.cls_id, *row, tokenizer.sep_id]
    assert tokenizer.ids("CC[MASK]Br") == [lines.index(token) for token in ("C", "C", "[MASK]", "Br")]
    assert tokenizer.ids("C?") == [lines.index("C"), tokenizer.unk_id]


@pytest.mark.weights
def test_pattern_tokenizer_is_saved_and_read_again(tmp_path):
    if not CHEMICAL[0].is_file():
        pytest.skip("the chemical models are not installed (make weights)")
    tokenizer = pattern_tokenizer(CHEMICAL[0], SMILES, family="albert")
    tokenizer.save(tmp_path)
    again = read_tokenizer(tmp_path, "albert")
    assert again.fingerprint == tokenizer.fingerprint
    assert again.ids_batch(REACTIONS) == tokenizer.ids_batch(REACTIONS)
    assert again.starts_word.all()


def test_pairs_and_names(tmp_path):
    tokenizer = read_tokenizer(wordpiece(tmp_path), "bert")
    assert tokenizer.family == "bert"
    encoded = tokenizer.encode("the cats", "sat.")
    assert encoded.ids == [2, 5, 6, 7, 3, 8, 11, 3]
    assert encoded.segments == [0, 0, 0, 0, 0, 1, 1, 1]
    assert tokenizer.encode("the [MASK]").ids == [2, 5, 4, 3]
    assert tokenizer.decode(encoded.ids) == "the cats sat."
    assert "[SEP]" in tokenizer.decode(encoded.ids, keep_special=True)
    assert (tokenizer.piece(7), tokenizer.id("##s"), tokenizer.id("dog")) == ("##s", 7, None)
    with pytest.raises(InputError, match="the id 12 is outside the vocabulary of 12 pieces"):
        tokenizer.piece(12)
    with pytest.raises(ValueError, match="2 texts but 1"):
        tokenizer.encode_batch(["a", "b"], ["c"])
    with pytest.raises(ValueError, match="max_length is 2 but the special tokens alone take 3"):
        tokenizer.encode("the", "cat", max_length=2)


def test_half_a_character_does_not_stop_it(tmp_path):
    tokenizer = read_tokenizer(wordpiece(tmp_path), "bert")
    assert tokenizer.ids("the \ud83d cat") == tokenizer.ids("the \ufffd cat")


def test_word_starts(tmp_path):
    tokenizer = read_tokenizer(wordpiece(tmp_path), "bert")
    starts = {tokenizer.piece(index): bool(start) for index, start in enumerate(tokenizer.starts_word)}
    assert starts == {**dict.fromkeys(WORDPIECE, True), "##s": False}
    for piece, marking, expected in [
        ("▁cat", "metaspace", True),
        ("s", "metaspace", False),
        ("東京", "metaspace", True),
        ("입니다", "metaspace", False),
        ("Ġcat", "byte-level", True),
        ("cat", "byte-level", False),
        ("##", "wordpiece", True),
    ]:
        assert begins_word(piece, marking) is expected, piece


def test_fingerprint_tells_apart_what_gives_other_ids(tmp_path):
    cased = wordpiece(tmp_path / "cased")
    (cased / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    prints = {
        read_tokenizer(wordpiece(tmp_path / "a"), "bert").fingerprint,
        read_tokenizer(cased, "bert").fingerprint,
        read_tokenizer(wordpiece(tmp_path / "b", [*WORDPIECE, "dog"]), "bert").fingerprint,
        read_tokenizer(wordpiece(tmp_path / "c"), "roberta").fingerprint,
    }
    assert len(prints) == 4
    assert read_tokenizer(wordpiece(tmp_path / "d"), "bert").fingerprint in prints


def test_family_is_guessed(tmp_path):
    assert read_tokenizer(wordpiece(tmp_path / "a")).family == "bert"
    roberta = ["<s>", "<pad>", "</s>", "[UNK]", "the", "cat"]
    tokenizer = read_tokenizer(wordpiece(tmp_path / "b", roberta), "mpnet")
    assert tokenizer.encode("the", "cat").ids == [0, 4, 2, 2, 5, 2]
    backend = Backend(models.Unigram([("<unk>", 0.0), ("<cls>", 0.0), ("<sep>", 0.0), ("▁a", -1.0)], unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    (tmp_path / "c").mkdir()
    backend.save(str(tmp_path / "c" / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path / "c")
    assert (tokenizer.family, tokenizer.encode("a").ids, tokenizer.encode("a").segments) == (
        "xlnet",
        [3, 2, 1],
        [0, 0, 2],
    )


def test_vocabulary_without_special_tokens_says_so(tmp_path):
    backend = Backend(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.normalizer = normalizers.NFKC()
    backend.save(str(tmp_path / "tokenizer.json"))
    tokenizer = read_tokenizer(tmp_path, "bert")
    assert tokenizer.ids("a") == [0]
    with pytest.raises(InputError, match=r"has no \[CLS\]"):
        tokenizer.encode("a")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "holds no tokenizer"),
        ({"vocab.json": b"{}"}, "holds no tokenizer"),
        ({"tokenizer.json": b'{"version": '}, r"tokenizer\.json is not a tokenizer file"),
        ({"spiece.model": b""}, r"spiece\.model is not a SentencePiece model"),
        ({"spiece.model": b"\x0a\xff\x01junk"}, r"spiece\.model is not a SentencePiece model"),
        ({"vocab.txt": b"a\xff\n"}, r"vocab\.txt cannot be read"),
        ({"vocab.txt": b"a\nb\n"}, r"vocab\.txt has no line for unknown"),
        ({"vocab.json": b"[1]", "merges.txt": b""}, r"vocab\.json and merges\.txt cannot be read"),
        ({"vocab.json": b'{"a": 0}', "merges.txt": b"#version\nb c\n"}, r"merges\.txt cannot be read"),
        ({"vocab.txt": b"[UNK]\n", "tokenizer_config.json": b"{"}, r"tokenizer_config\.json is not valid JSON"),
        ({"vocab.txt": b"[UNK]\n", "special_tokens_map.json": b"[]"}, r"special_tokens_map\.json holds a list"),
    ],
)
def test_unreadable_files_are_one_sentence(tmp_path, files, message):
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_tokenizer(tmp_path, "bert")
    assert "\n" not in str(caught.value)


def test_missing_folder(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        read_tokenizer(tmp_path / "none", "bert")


def test_cut_sentencepiece_model_is_noticed_and_bpe_refused(tmp_path):
    corpus = [f"some words number {index} are here" for index in range(50)]
    for kind in ("unigram", "bpe"):
        options = {"sentence_iterator": iter(corpus), "vocab_size": 40, "minloglevel": 2, "hard_vocab_limit": False}
        sentencepiece.SentencePieceTrainer.train(model_prefix=str(tmp_path / kind), model_type=kind, **options)
    whole = (tmp_path / "unigram.model").read_bytes()
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "spiece.model").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="is not a SentencePiece model, or is damaged"):
        read_tokenizer(tmp_path / "cut", "albert")
    (tmp_path / "bpe").mkdir()
    shutil.copy(tmp_path / "bpe.model", tmp_path / "bpe" / "spiece.model")
    with pytest.raises(InputError, match="is not a unigram model"):
        read_tokenizer(tmp_path / "bpe", "albert")


def test_saved_config_names_what_the_model_takes(tmp_path):
    for family, names in [
        ("bert", ["input_ids", "token_type_ids", "attention_mask"]),
        ("distilbert", ["input_ids", "attention_mask"]),
    ]:
        read_tokenizer(wordpiece(tmp_path / "source"), family).save(tmp_path / family)
        config = json.loads((tmp_path / family / "tokenizer_config.json").read_text())
        assert config["model_input_names"] == names
        assert config["mask_token"] == "[MASK]"


def test_bad_pattern(tmp_path):
    with pytest.raises(InputError, match="is not a regular expression"):
        pattern_tokenizer(wordpiece(tmp_path) / "vocab.txt", "(")


def test_a_tokenizer_is_read_and_used_without_torch():
    code = (
        "import sys, litebert.text.tokenizer\n"
        "from litebert.text.tokenizer_files import read_tokenizer\n"
        "assert read_tokenizer('litebert-en').encode('a text', 'another').ids\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
