"""Hugging Face's config.json and ours, both ways; and what of our plans it can express.

A config is read with the defaults of its class, since files leave out what equals them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from litebert.config import build
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.families import FAMILIES
from litebert.nn.network import HeadName, HeadsConfig, NetworkConfig

# Their field, our field, and the default of their class.
_BERT_FIELDS: list[tuple[str, str, Any]] = [
    ("vocab_size", "vocab_size", 30522),
    ("hidden_size", "width", 768),
    ("num_hidden_layers", "num_layers", 12),
    ("num_attention_heads", "num_heads", 12),
    ("intermediate_size", "feed_forward_width", 3072),
    ("hidden_act", "activation", "gelu"),
    ("hidden_dropout_prob", "dropout", 0.1),
    ("attention_probs_dropout_prob", "attention_dropout", 0.1),
    ("max_position_embeddings", "max_positions", 512),
    ("type_vocab_size", "num_segments", 2),
    ("initializer_range", "initial_std", 0.02),
    ("layer_norm_eps", "norm_eps", 1e-12),
    ("pad_token_id", "pad_id", 0),
    ("tie_word_embeddings", "tied", True),
    ("classifier_dropout", "classifier_dropout", None),
]


def _defaults(fields: list[tuple[str, str, Any]], **changed: Any) -> list[tuple[str, str, Any]]:
    return [(theirs, ours, changed.get(theirs, default)) for theirs, ours, default in fields]


FIELDS: dict[str, list[tuple[str, str, Any]]] = {
    "albert": [
        *_defaults(
            _BERT_FIELDS[:-1],
            vocab_size=30000,
            hidden_size=4096,
            num_attention_heads=64,
            intermediate_size=16384,
            hidden_act="gelu_new",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        ),
        ("classifier_dropout_prob", "classifier_dropout", 0.1),
        ("embedding_size", "embedding_width", 128),
        ("num_hidden_groups", "num_groups", 1),
        ("inner_group_num", "layers_per_group", 1),
    ],
    "bert": _BERT_FIELDS,
    "roberta": _defaults(_BERT_FIELDS, vocab_size=50265, pad_token_id=1, layer_norm_eps=1e-12),
    "distilbert": [
        ("vocab_size", "vocab_size", 30522),
        ("dim", "width", 768),
        ("n_layers", "num_layers", 6),
        ("n_heads", "num_heads", 12),
        ("hidden_dim", "feed_forward_width", 3072),
        ("activation", "activation", "gelu"),
        ("dropout", "dropout", 0.1),
        ("attention_dropout", "attention_dropout", 0.1),
        ("seq_classif_dropout", "classifier_dropout", 0.2),
        ("max_position_embeddings", "max_positions", 512),
        ("initializer_range", "initial_std", 0.02),
        ("pad_token_id", "pad_id", 0),
        ("tie_word_embeddings", "tied", True),
    ],
    "xlnet": [
        ("vocab_size", "vocab_size", 32000),
        ("d_model", "width", 1024),
        ("n_layer", "num_layers", 24),
        ("n_head", "num_heads", 16),
        ("d_inner", "feed_forward_width", 4096),
        ("ff_activation", "activation", "gelu"),
        ("dropout", "dropout", 0.1),
        ("summary_last_dropout", "classifier_dropout", 0.1),
        ("initializer_range", "initial_std", 0.02),
        ("layer_norm_eps", "norm_eps", 1e-12),
        ("pad_token_id", "pad_id", 5),
        ("tie_word_embeddings", "tied", True),
    ],
}

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
_THEIR_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu", "silu": "silu"}

# What their config may say that would change the computation, with the only values we can honour.
_REQUIRED: dict[str, dict[str, tuple[Any, ...]]] = {
    "bert": {"position_embedding_type": (None, "absolute"), "is_decoder": (None, False)},
    "albert": {"position_embedding_type": (None, "absolute")},
    "roberta": {"position_embedding_type": (None, "absolute"), "is_decoder": (None, False)},
    "distilbert": {},
    "xlnet": {"attn_type": (None, "bi"), "clamp_len": (None, -1, 0), "bi_data": (None, False)},
}

_CLASSES = {
    "albert": "Albert",
    "bert": "Bert",
    "roberta": "Roberta",
    "distilbert": "DistilBert",
    "xlnet": "XLNet",
}
_HEADS_BY_SUFFIX: dict[str, tuple[HeadName, ...]] = {
    "ForPreTraining": ("masked_lm", "order"),
    "ForMaskedLM": ("masked_lm",),
    "LMHeadModel": ("masked_lm",),
    "ForNextSentencePrediction": ("order",),
    "ForSequenceClassification": ("classify",),
    "ForQuestionAnswering": ("span",),
    "ForQuestionAnsweringSimple": ("span",),
    "ForMultipleChoice": ("choice",),
    "Model": (),
}


def read_encoder_config(theirs: Mapping[str, Any], family: str) -> EncoderConfig:
    """The encoder that a Hugging Face config.json of this family describes."""
    for field, allowed in _REQUIRED[family].items():
        if theirs.get(field) not in allowed:
            raise InputError(f"the checkpoint's {field} is '{theirs[field]}', which litebert does not compute")
    ours: dict[str, Any] = {"family": family, **FAMILIES[family]}
    for name, field, default in FIELDS[family]:
        ours[field] = theirs.get(name, default)
    if ours["classifier_dropout"] is None:
        ours["classifier_dropout"] = ours["dropout"]
    if ours["activation"] not in _ACTIVATIONS:
        raise InputError(f"the checkpoint's activation '{ours['activation']}' is not one of {', '.join(_ACTIVATIONS)}")
    ours["activation"] = _ACTIVATIONS[ours["activation"]]
    if family == "albert":
        ours["embedding_projection"] = True
        ours["num_layers"] *= ours["layers_per_group"]  # they count a group of layers as one
    else:
        ours["embedding_width"] = ours["width"]
    if family == "roberta":
        ours["position_offset"] = ours["pad_id"] + 1
        ours["max_positions"] -= ours["position_offset"]
    if family == "xlnet":
        ours["attention_dropout"] = ours["activation_dropout"] = ours["dropout"]
    return build(EncoderConfig, ours)


def read_heads(theirs: Mapping[str, Any], present: set[HeadName]) -> HeadsConfig:
    """The heads a checkpoint has, by its architecture and by the heads whose tensors are all there."""
    extra = theirs.get("litebert") or {}
    if "heads" in extra:
        names = tuple(extra["heads"])
    else:
        architecture = (theirs.get("architectures") or [""])[0]
        said = next((heads for end, heads in _HEADS_BY_SUFFIX.items() if architecture.endswith(end)), None)
        certain = present - {"classify", "choice"}  # these two share their names: only the architecture tells
        if said is None:
            certain = present - {"choice"} if not architecture else certain
        names = tuple(sorted({*(said or ()), *certain}))
    if "classify" in names and theirs.get("id2label"):
        labels = tuple(str(label) for _, label in sorted(theirs["id2label"].items(), key=lambda item: int(item[0])))
    else:
        labels = tuple(str(number) for number in range(int(theirs.get("num_labels") or 2)))
    problem = str(theirs.get("problem_type") or "") if "classify" in names else ""
    return HeadsConfig(names=names, labels=labels, answerable=bool(extra.get("answerable")), problem=problem)


def write_config(config: NetworkConfig) -> dict[str, Any]:
    """The config.json of a network whose plan Hugging Face can express."""
    encoder, family = native_groups(config.encoder), config.encoder.family
    theirs: dict[str, Any] = {"model_type": family, "architectures": [architecture(config)]}
    for name, field, _ in FIELDS[family]:
        theirs[name] = getattr(encoder, field)
    act = next(name for name, field, _ in FIELDS[family] if field == "activation")
    theirs[act] = _THEIR_ACTIVATIONS[encoder.activation]
    if family == "albert":
        theirs["num_hidden_layers"] //= encoder.layers_per_group
        theirs |= {"bos_token_id": 2, "eos_token_id": 3}
    if family == "roberta":
        theirs["max_position_embeddings"] += encoder.position_offset
    if family == "xlnet":
        theirs |= {"attn_type": "bi", "untie_r": True, "summary_type": "last", "summary_use_proj": True}
    if "classify" in config.heads.names:
        theirs["id2label"] = {str(i): label for i, label in enumerate(config.heads.labels)}
        theirs["label2id"] = {label: i for i, label in enumerate(config.heads.labels)}
        if config.heads.problem:
            theirs["problem_type"] = config.heads.problem
    theirs["litebert"] = {"heads": list(config.heads.names)}
    if config.heads.answerable:
        theirs["litebert"]["answerable"] = True
    return theirs


def architecture(config: NetworkConfig) -> str:
    """The class of ``transformers`` that holds this network, or as much of it as any class does."""
    heads, family = set(config.heads.names), config.encoder.family
    if "classify" in heads:
        end = "ForSequenceClassification"
    elif "choice" in heads:
        end = "ForMultipleChoice"
    elif "span" in heads:
        end = "ForQuestionAnsweringSimple" if family == "xlnet" else "ForQuestionAnswering"
    elif heads >= {"masked_lm", "order"} and family in ("albert", "bert"):
        end = "ForPreTraining"
    elif "masked_lm" in heads:
        end = "LMHeadModel" if family == "xlnet" else "ForMaskedLM"
    elif "order" in heads and family == "bert":
        end = "ForNextSentencePrediction"
    else:
        end = "Model"
    return _CLASSES[family] + end


def native_groups(config: EncoderConfig) -> EncoderConfig:
    """The same encoder with its plan said as groups of layers, where Hugging Face has a class for it."""
    native = _as_groups(config)
    if native is None:
        raise InputError(why_not_native(config))
    return native


def is_native(config: EncoderConfig) -> bool:
    """Whether ``transformers`` has a class that computes this plan without copies of shared blocks."""
    return _as_groups(config) is not None


def _as_groups(config: EncoderConfig) -> EncoderConfig | None:
    if config.family != "albert":
        unshared = config.plan == tuple((depth, depth) for depth in range(config.num_layers))
        return config if unshared and not config.projects_embeddings else None
    if not config.projects_embeddings:
        return None
    for inner in (size for size in range(1, config.num_layers + 1) if config.num_layers % size == 0):
        for groups in range(1, config.num_layers // inner + 1):
            candidate = replace(config, custom_plan=(), share="all", num_groups=groups, layers_per_group=inner)
            if candidate.plan == config.plan:
                return candidate
    return None


def why_not_native(config: EncoderConfig) -> str:
    """One sentence on what ``transformers`` cannot express here."""
    if config.family != "albert" and config.projects_embeddings:
        return (
            f"transformers has no {config.family} with embedding width {config.embedding_width} and width "
            f"{config.width}; use family=albert for factorised embeddings"
        )
    return (
        f"transformers cannot share blocks this way (share={config.share}); `litebert convert --to hf` writes every "
        "layer out in full"
    )
