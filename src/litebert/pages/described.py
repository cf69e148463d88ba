"""What a page must know of an exported model folder, beside the files themselves, and these files made for a browser.

``info`` has the shape that the server's ``GET /info`` gives (docs/serve.md), so one user interface serves both.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from litebert.errors import InputError
from litebert.families.family import UNBOUNDED
from litebert.pages.characters import character_sets
from litebert.pooling import SentenceSettings, read_sentence_settings
from litebert.runtime import MODEL, read_description, read_task
from litebert.tasks.examples import TaskSpec
from litebert.text.tokenizer import Tokenizer
from litebert.text.tokenizer_files import read_tokenizer

# The steps of a tokenizer that assets/text_steps.js knows.
STEPS = {
    *("Sequence", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "BertNormalizer", "Precompiled", "Strip"),
    *("Prepend", "Replace", "WhitespaceSplit", "Whitespace", "BertPreTokenizer", "Punctuation", "Digits", "Metaspace"),
    *("ByteLevel", "Split"),
}
MODELS = {"Unigram", "WordPiece", "BPE", "WordLevel"}


def describe(folder: Path, name: str) -> dict[str, Any]:
    """Everything about an exported folder that its page needs to know."""
    about, task = read_description(folder), read_task(folder)
    tokenizer = read_tokenizer(folder, about["family"])
    sentence = read_sentence_settings(folder)[0] or SentenceSettings()
    found = {
        "info": _info(name, about, task, tokenizer, sentence),
        "max_positions": about["max_positions"],
        "answerable": about["answerable"],
        "exits": about.get("exits"),
        "bits": about["bits"],
        "sentence": {"lower_case": sentence.lower_case},
        "tokenizer": tokenizer_about(tokenizer),
    }
    if task is not None:  # fingerprints of training rows stay here
        found["task"] = {key: value for key, value in asdict(task).items() if key not in ("seen", "metrics")}
    return found


def _info(
    name: str, about: dict[str, Any], task: TaskSpec | None, tokenizer: Tokenizer, sentence: SentenceSettings
) -> dict[str, Any]:
    heads, most = about["heads"], about["max_positions"] or UNBOUNDED
    able = {
        "embeddings": True,
        "predict": task is not None,
        "fill": "masked_lm" in heads and tokenizer.mask_id is not None,
        "order": "order" in heads,
        "tokenize": True,
    }
    return {
        "name": name,
        "family": about["family"],
        "engine": "onnxruntime-web",
        "layers": about["num_layers"],
        "any_depth": about["any_depth"],
        "width": about["width"],
        "max_tokens": min(sentence.max_length or most, most),
        "mask_token": tokenizer.mask_token,
        "pooling": sentence.pooling or "mean",
        "normalize": sentence.normalize,
        "exits": bool(about.get("exits")),
        "can": [request for request, can in able.items() if can],
        "task": None
        if task is None
        else {
            "kind": task.kind,
            "labels": list(task.labels),
            "columns": list(task.text),
            "pairs": task.pairs,
            "max_tokens": task.length,
        },
    }


def tokenizer_about(tokenizer: Tokenizer) -> dict[str, Any]:
    """Special tokens, how they stand around texts, and the sets of characters that the tokenizer asks for."""
    if tokenizer.cls_id is None or tokenizer.sep_id is None:
        raise InputError("this model's tokenizer has no [CLS] and [SEP] tokens; use another model")
    settings = tokenizer.settings
    used = [*_steps(settings["normalizer"]), *_steps(settings["pre_tokenizer"])]
    unknown = [step for step in used if step not in STEPS]
    if settings["model"]["type"] not in MODELS:
        unknown.append(settings["model"]["type"])
    if unknown:
        raise InputError(f"a page cannot read texts for this model: its tokenizer has a step {unknown[0]}")
    single, pair = ([[slot.part, slot.segment] for slot in slots] for slots in tokenizer.layouts())
    return {
        "single": single,
        "pair": pair,
        "cls": tokenizer.cls_id,
        "sep": tokenizer.sep_id,
        "mask": tokenizer.mask_id,
        "marking": tokenizer.marking,
        "characters": character_sets(used),
    }


def _steps(part: Any) -> Iterator[str]:
    """The types of the steps in a part of a tokenizer's file."""
    if isinstance(part, dict):
        if "type" in part:
            yield str(part["type"])
        for name in ("normalizers", "pretokenizers"):
            for step in part.get(name, ()):
                yield from _steps(step)


def tokenizer_file(folder: Path) -> bytes:
    """What of tokenizer.json decides ids, without white space."""
    settings = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    kept = {name: settings[name] for name in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    return json.dumps(kept, ensure_ascii=False, separators=(",", ":")).encode()


def web_graph(folder: Path) -> bytes:
    """The model with all of its inputs required: onnxruntime-web cannot be given the value of an optional one."""
    try:
        import onnx
    except ImportError:
        raise InputError("a page needs the onnx package; install it with pip install 'litebert[export]'") from None
    model = onnx.load(str(folder / MODEL))
    names = {value.name for value in model.graph.input}
    kept = [one for one in model.graph.initializer if one.name not in names]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return bytes(model.SerializeToString())
