"""XLNet (Yang et al., 2019): relative positions, two-stream attention, the pooled token at the end."""

from typing import Any

from litebert.families.family import ConfigField, Family, PairLayout, TensorRow, linear_rows

_ATTENTION, _FEED_FORWARD = "transformer.layer.{i}.rel_attn", "transformer.layer.{i}.ff"
_RELATIVE = "encoder.attention.{i}.relative"


def _one_dropout(ours: dict[str, Any]) -> dict[str, Any]:
    return {**ours, "attention_dropout": ours["dropout"], "activation_dropout": ours["dropout"]}


FAMILY = Family(
    name="xlnet",
    encoder={
        "share": "none",
        "vocab_size": 32000,
        "activation": "gelu",
        "positions": "relative",
        "max_positions": 0,
        "num_segments": 0,
        "embedding_norm": False,
        "attention_bias": False,
        "head_transform": False,
        "pooler_always": False,
        "pooled_token": "last",
        "dropout": 0.1,
        "attention_dropout": 0.1,
        "activation_dropout": 0.1,
        "pad_id": 5,
    },
    layout=PairLayout.of("A:0 sep:0 cls:2", "A:0 sep:0 B:1 sep:1 cls:2"),
    tokens={
        "pad": "<pad>",
        "unk": "<unk>",
        "cls": "<cls>",
        "sep": "<sep>",
        "mask": "<mask>",
        "bos": "<s>",
        "eos": "</s>",
    },
    extra_tokens=("<eop>", "<eod>"),
    padding_side="left",
    honours_keep_accents=False,
    tokenizer_options={"pad_token_type_id": 3},
    class_prefix="XLNet",
    classes=(
        ("ForSequenceClassification", ("classify",)),
        ("ForMultipleChoice", ("choice",)),
        ("ForQuestionAnsweringSimple", ("span",)),
        ("ForQuestionAnswering", ("span",)),
        ("LMHeadModel", ("masked_lm",)),
        ("Model", ()),
    ),
    fields=(
        ConfigField("vocab_size", "vocab_size", 32000),
        ConfigField("d_model", "width", 1024),
        ConfigField("n_layer", "num_layers", 24),
        ConfigField("n_head", "num_heads", 16),
        ConfigField("d_inner", "feed_forward_width", 4096),
        ConfigField("ff_activation", "activation", "gelu"),
        ConfigField("dropout", "dropout", 0.1),
        ConfigField("summary_last_dropout", "classifier_dropout", 0.1),
        ConfigField("initializer_range", "initial_std", 0.02),
        ConfigField("layer_norm_eps", "norm_eps", 1e-12),
        ConfigField("pad_token_id", "pad_id", 5),
        ConfigField("tie_word_embeddings", "tied", True),
    ),
    constants={"attn_type": "bi", "untie_r": True, "summary_type": "last", "summary_use_proj": True},
    required={"attn_type": (None, "bi"), "clamp_len": (None, -1, 0), "bi_data": (None, False)},
    after_reading=_one_dropout,
    body="transformer",
    own_rows=(
        TensorRow("encoder.embeddings.token.weight", ("transformer.word_embedding.weight",)),
        TensorRow("encoder.embeddings.mask", ("transformer.mask_emb",), "vector"),
        TensorRow("encoder.attention.{i}.qkv.weight", tuple(f"{_ATTENTION}.{name}" for name in "qkv"), "heads_stacked"),
        TensorRow("encoder.attention.{i}.out.weight", (f"{_ATTENTION}.o",), "heads_in"),
        TensorRow(f"{_RELATIVE}.distance.weight", (f"{_ATTENTION}.r",), "heads_out"),
        TensorRow(f"{_RELATIVE}.content_bias", (f"{_ATTENTION}.r_w_bias",)),
        TensorRow(f"{_RELATIVE}.distance_bias", (f"{_ATTENTION}.r_r_bias",)),
        TensorRow(f"{_RELATIVE}.segment_bias", (f"{_ATTENTION}.r_s_bias",)),
        TensorRow(f"{_RELATIVE}.segment", (f"{_ATTENTION}.seg_embed",)),
        *linear_rows("encoder.attention.{i}.norm", f"{_ATTENTION}.layer_norm"),
        *linear_rows("encoder.feed_forward.{i}.up", f"{_FEED_FORWARD}.layer_1"),
        *linear_rows("encoder.feed_forward.{i}.down", f"{_FEED_FORWARD}.layer_2"),
        *linear_rows("encoder.feed_forward.{i}.norm", f"{_FEED_FORWARD}.layer_norm"),
        *linear_rows("pooler.dense", "sequence_summary.summary"),
        TensorRow("heads.masked_lm.bias", ("lm_loss.bias",)),
        TensorRow("heads.masked_lm.table.weight", ("lm_loss.weight",)),
        *linear_rows("heads.classify.linear", "logits_proj"),
        *linear_rows("heads.choice.linear", "logits_proj"),
    ),
    copies=("lm_loss.weight",),
)
