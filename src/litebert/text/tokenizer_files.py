"""Reading a tokenizer from a model folder, whichever of the usual files it holds.

The ids are those that transformers 5 gives for the same files, also where it departs from the original programs:
- The user-defined symbols of a ``spiece.model`` (in the released ALBERT ``( ) " - . – £ €``) are cut out of the text
  before anything else, so that ``(world`` is ``( ▁world``; the sentencepiece library gives ``▁ ( world``.
- A piece such as ``9,`` is used as it is; the papers' programs split it.
- ALBERT's unknown id is 1 whatever the model file has; XLNet loses its accents whatever ``keep_accents`` is.
A ``tokenizer.json`` is used as it is, whereas transformers' family classes build most of it anew; the two agree on
files that transformers wrote.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Backend

from litebert.data.files import read_object
from litebert.errors import InputError, nearest
from litebert.families import FAMILIES, Family
from litebert.families.family import ROLES, Role
from litebert.shipped_models import shipped_folder
from litebert.text.tokenizer import Tokenizer

__all__ = ["SMILES", "Tokenizer", "mark_special_tokens", "pattern_tokenizer", "read_tokenizer"]

# What a special token is called where neither the folder nor the family names it.
_USUAL_NAMES: dict[Role, tuple[str, ...]] = {
    "pad": ("<pad>", "[PAD]"),
    "unk": ("<unk>", "[UNK]"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
FILES = "tokenizer.json, spiece.model, vocab.json with merges.txt, or vocab.txt"


def read_tokenizer(folder: Path, family: str | None = None) -> Tokenizer:
    """The tokenizer in ``folder`` for a model of ``family``; without one, guessed from the special tokens.

    One file that holds a whole tokenizer (``.json``, ``.model``, ``.txt``) will do in place of a folder, and so will
    the name of a shipped model.
    """
    folder = Path(folder) if Path(folder).exists() else shipped_folder(folder) or Path(folder)
    known = FAMILIES.get(family or "")
    if folder.is_dir():
        options = _read_options(folder)
        backend = _read_folder(folder, known, options)
    elif folder.is_file():
        options = {}
        backend = _read_file(folder, known, options)
    else:
        raise InputError(f"there is no folder '{folder}' to read a tokenizer from; check the name")
    kind = type(backend.model).__name__
    return mark_special_tokens(backend, known or _guess_family(backend.get_vocab(), kind), options)


def _guess_family(vocabulary: dict[str, int], kind: str) -> Family:
    """The family whose tokens a vocabulary has; ``kind`` is the sort of model (``Unigram``, ``WordPiece``, ``BPE``)."""
    if "[CLS]" in vocabulary:
        return FAMILIES["albert" if kind == "Unigram" else "bert"]
    return FAMILIES["xlnet" if "<cls>" in vocabulary else "roberta" if "<s>" in vocabulary else "bert"]


def _read_folder(folder: Path, family: Family | None, options: Mapping[str, Any]) -> Backend:
    for name in ("tokenizer.json", "spiece.model"):
        if (folder / name).is_file():
            return _read_file(folder / name, family, options)
    if (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        return _read_byte_level(folder / "vocab.json", folder / "merges.txt", options)
    if (folder / "vocab.txt").is_file():
        return _read_file(folder / "vocab.txt", family, options)
    raise InputError(f"the folder '{folder}' holds no tokenizer ({FILES})")


def _read_file(path: Path, family: Family | None, options: Mapping[str, Any]) -> Backend:
    match path.suffix:
        case ".json":
            return _read_json(path, options)
        case ".model":
            return _read_unigram(path, family, options)
        case ".txt":
            return _read_wordpiece(path, options)
        case _:
            raise InputError(f"'{path}' is not a tokenizer; give a folder with {FILES}")


def pattern_tokenizer(vocab_file: Path, pattern: str, family: str = "bert") -> Tokenizer:
    """Tokens are the matches of a regular expression (and whatever lies between them), ids the lines of a file.

    For languages that are not words, such as the SMILES of chemistry: ``SMILES`` is the pattern for those.
    """
    vocab_file = Path(vocab_file)
    vocabulary = _lines(vocab_file)
    if family not in FAMILIES:
        raise InputError(f"there is no family '{family}'{nearest(family, FAMILIES)}")
    chosen = FAMILIES[family]
    unknown = _special_names(vocabulary, chosen, {}).get("unk")
    if unknown is None:
        raise InputError(f"{vocab_file} has no line for unknown tokens ([UNK] or <unk>)")
    backend = Backend(models.WordLevel(vocabulary, unk_token=unknown))
    try:
        backend.pre_tokenizer = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    except Exception as error:
        raise InputError(f"'{pattern}' is not a regular expression ({error})") from None
    backend.decoder = decoders.Fuse()
    return mark_special_tokens(backend, chosen)


# A bracket group, a two-letter halogen, the arrow of a reaction, or one character.
SMILES = r"\[[^\]]+\]|Br|Cl|>>|."


def _read_options(folder: Path) -> dict[str, Any]:
    """The options in the small files beside a vocabulary, in the order of precedence that transformers has."""
    options = _read_object(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in options:
        options = {**options, **_read_object(folder / "special_tokens_map.json")}
        added = _read_object(folder / "added_tokens.json")
        options["added_tokens_decoder"] = {
            str(index): {"content": token, "normalized": True, "special": False} for token, index in added.items()
        }
    return options


def _read_object(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is no such file."""
    return read_object(path, "copy the tokenizer again") if path.is_file() else {}


def _read_json(path: Path, options: Mapping[str, Any]) -> Backend:
    try:
        backend = Backend.from_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{path} is not a tokenizer file that can be read ({error})") from None
    # These two were settings of the families' classes before they were parts of the file, and still outrank it.
    if isinstance(backend.normalizer, normalizers.BertNormalizer):
        for option, name in (
            ("do_lower_case", "lowercase"),
            ("strip_accents", "strip_accents"),
            ("tokenize_chinese_chars", "handle_chinese_chars"),
        ):
            if option in options:
                setattr(backend.normalizer, name, options[option])
    if isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel) and "add_prefix_space" in options:
        backend.pre_tokenizer.add_prefix_space = bool(options["add_prefix_space"])
    return backend


def _read_unigram(path: Path, family: Family | None, options: Mapping[str, Any]) -> Backend:
    from sentencepiece import SentencePieceProcessor

    try:
        library = SentencePieceProcessor(model_file=str(path))
    except RuntimeError as error:
        raise InputError(f"{path} is not a SentencePiece model, or is damaged ({error})") from None
    # The file also has what decides ids but the library does not expose: field 1 is a piece (of which field 3 is its
    # type, 4 for user-defined), 2 the TrainerSpec, 3 the NormalizerSpec with the compiled normalisation rules.
    parts = [*_protobuf_fields(path.read_bytes())]
    trainer, normaliser = (
        {k: v for n, part in parts if n == number for k, v in _protobuf_fields(part)} for number in (2, 3)
    )
    if trainer.get(3, 1) != 1:
        raise InputError(f"{path} is not a unigram model, the only kind of SentencePiece model that can be read")
    stored = [value for number, value in parts if number == 1]
    marked = (index for index, piece in enumerate(stored) if b"\x18\x04" in piece)  # few are worth a closer look
    user_defined = {index for index in marked if dict(_protobuf_fields(stored[index])).get(3) == 4}

    pieces = [library.id_to_piece(index) for index in range(len(library))]
    family = family or _guess_family(dict.fromkeys(pieces, 0), "Unigram")
    backend = Backend(
        models.Unigram(
            [(piece, library.get_score(index)) for index, piece in enumerate(pieces)],
            unk_id=trainer.get(40, 0) if family.unk_id is None else family.unk_id,  # as transformers takes it
            byte_fallback=False,
        )
    )
    steps: list[Any] = [normalizers.Replace("``", '"'), normalizers.Replace("''", '"')]
    if not (family.honours_keep_accents and options.get("keep_accents", False)):
        steps += [normalizers.NFKD(), normalizers.StripAccents()]
    if options.get("do_lower_case", family.lowercase):
        steps.append(normalizers.Lowercase())
    if normaliser.get(2):
        steps.append(normalizers.Precompiled(normaliser[2]))
    backend.normalizer = normalizers.Sequence(steps)
    prepend = "always" if options.get("add_prefix_space", True) else "never"
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=prepend)]
    )
    backend.decoder = decoders.Metaspace(replacement="▁", prepend_scheme=prepend)
    for index, piece in enumerate(pieces):
        special = library.is_control(index)
        if special or index in user_defined:
            backend.add_tokens([AddedToken(piece, normalized=False, special=special)])
    return backend


def _protobuf_fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The numbered fields of a protocol buffer that is known to be whole: integers, and bytes for everything else."""
    at = 0

    def integer() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(data):
        number, wire = divmod(integer(), 8)
        if wire == 0:
            yield number, integer()
        else:
            size = integer() if wire == 2 else 4 if wire == 5 else 8
            yield number, data[at : at + size]
            at += size


def _read_wordpiece(path: Path, options: Mapping[str, Any]) -> Backend:
    vocabulary = _lines(path)
    unknown = _special_names(vocabulary, FAMILIES["bert"], options).get("unk")
    if unknown is None:
        raise InputError(f"{path} has no line for unknown tokens ([UNK])")
    backend = Backend(models.WordPiece(vocabulary, unk_token=unknown))
    backend.normalizer = normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=options.get("tokenize_chinese_chars", True),
        strip_accents=options.get("strip_accents"),
        lowercase=options.get("do_lower_case", True),
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.decoder = decoders.WordPiece(prefix="##")
    return backend


def _read_byte_level(vocab_file: Path, merges_file: Path, options: Mapping[str, Any]) -> Backend:
    try:
        vocabulary, merges = models.BPE.read_file(str(vocab_file), str(merges_file))
        backend = Backend(models.BPE(vocabulary, merges, continuing_subword_prefix="", end_of_word_suffix=""))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{vocab_file} and {merges_file.name} cannot be read ({error})") from None
    prefix_space = bool(options.get("add_prefix_space", False))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix_space)
    backend.decoder = decoders.ByteLevel()
    return backend


def _lines(path: Path) -> dict[str, int]:
    """A vocabulary with one token a line, by the library's own rules for such files."""
    try:
        vocabulary: dict[str, int] = models.WordPiece.read_file(str(path))
    except Exception as error:  # the library raises Exception itself
        raise InputError(f"{path} cannot be read as a vocabulary ({error})") from None
    return vocabulary


def mark_special_tokens(
    backend: Backend, family: Family, options: Mapping[str, Any] = MappingProxyType({})
) -> Tokenizer:
    """A tokenizer in which the special and added tokens are recognised in a text; ``options`` are a folder's."""
    for _, token in sorted(options.get("added_tokens_decoder", {}).items(), key=lambda item: int(item[0])):
        backend.add_tokens([_added_token(token, bool(token.get("special", False)))])
    vocabulary = backend.get_vocab(with_added_tokens=True)
    names = _special_names(vocabulary, family, options)
    marked = {token.content for token in backend.get_added_tokens_decoder().values()}
    extra = options.get("additional_special_tokens", options.get("extra_special_tokens")) or family.extra_tokens
    for role in ROLES:
        if role in names and names[role] not in marked:
            backend.add_special_tokens([_added_token(options.get(f"{role}_token") or names[role], True)])
            marked.add(names[role])
    for token in extra:
        if _content(token) in vocabulary and _content(token) not in marked:
            backend.add_special_tokens([_added_token(token, True)])
    if backend.post_processor is None and isinstance(backend.pre_tokenizer, pre_tokenizers.ByteLevel):
        backend.post_processor = _roberta_post_processor(backend, names, options)
    return Tokenizer(backend, family, names)


def _roberta_post_processor(backend: Backend, names: dict[Role, str], options: Mapping[str, Any]) -> Any:
    if "cls" not in names or "sep" not in names:
        return None
    vocabulary = backend.get_vocab(with_added_tokens=True)
    return processors.RobertaProcessing(
        (names["sep"], vocabulary[names["sep"]]),
        (names["cls"], vocabulary[names["cls"]]),
        trim_offsets=bool(options.get("trim_offsets", True)),
        add_prefix_space=bool(options.get("add_prefix_space", False)),
    )


def _special_names(vocabulary: dict[str, int], family: Family, options: Mapping[str, Any]) -> dict[Role, str]:
    """The special tokens that the vocabulary has: as the folder names them, as the family does, or as is usual."""
    names: dict[Role, str] = {}
    for role in ROLES:
        candidates = [_content(options.get(f"{role}_token")), family.tokens.get(role), *_USUAL_NAMES.get(role, ())]
        found = next((name for name in candidates if name and name in vocabulary), None)
        if found is not None:
            names[role] = found
    return names


def _content(token: Any) -> str | None:
    """The text of a special token, which files give as a string or as an object with its flags."""
    return token.get("content") if isinstance(token, dict) else token


def _added_token(token: Any, special: bool) -> AddedToken:
    if not isinstance(token, dict):
        return AddedToken(token, special=special, normalized=not special)
    flags = {name: bool(token[name]) for name in ("lstrip", "rstrip", "single_word", "normalized") if name in token}
    return AddedToken(token["content"], special=special, **flags)
