"""ALBERT (Lan et al., 2020): embeddings of a smaller width, layers shared in groups, sentence order."""

from typing import Any

from litebert.families.family import (
    BERT_LAYOUT,
    BERT_TOKENS,
    TASK_CLASSES,
    ConfigField,
    Family,
    TensorRow,
    bert_fields,
    embedding_rows,
    linear_rows,
    qkv_rows,
)

_LAYER = "albert.encoder.albert_layer_groups.{g}.albert_layers.{j}"  # the group, and the layer within it


# Their number of layers counts a group of layers as one.
def _count_layers(ours: dict[str, Any]) -> dict[str, Any]:
    return {**ours, "num_layers": ours["num_layers"] * ours["layers_per_group"]}


def _count_groups(ours: dict[str, Any]) -> dict[str, Any]:
    return {**ours, "num_layers": ours["num_layers"] // ours["layers_per_group"]}


FAMILY = Family(
    name="albert",
    encoder={"embedding_width": 128},
    layout=BERT_LAYOUT,
    tokens={**BERT_TOKENS, "pad": "<pad>", "unk": "<unk>", "bos": "[CLS]", "eos": "[SEP]"},
    lowercase=True,
    unk_id=1,
    class_prefix="Albert",
    classes=(
        *TASK_CLASSES,
        ("ForPreTraining", ("masked_lm", "order")),
        ("ForMaskedLM", ("masked_lm",)),
        ("Model", ()),
    ),
    fields=(
        *bert_fields(
            vocab_size=30000,
            hidden_size=4096,
            num_attention_heads=64,
            intermediate_size=16384,
            hidden_act="gelu_new",
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )[:-1],
        ConfigField("classifier_dropout_prob", "classifier_dropout", 0.1),
        ConfigField("embedding_size", "embedding_width", 128),
        ConfigField("num_hidden_groups", "num_groups", 1),
        ConfigField("inner_group_num", "layers_per_group", 1),
    ),
    constants={"bos_token_id": 2, "eos_token_id": 3},
    required={"position_embedding_type": (None, "absolute")},
    after_reading=_count_layers,
    before_writing=_count_groups,
    shares_layers=True,
    embedding_projection="always",
    body="albert",
    own_rows=(
        *embedding_rows("albert"),
        *linear_rows("encoder.embeddings.projection", "albert.encoder.embedding_hidden_mapping_in"),
        *qkv_rows([f"{_LAYER}.attention.{name}" for name in ("query", "key", "value")]),
        *linear_rows("encoder.attention.{i}.out", f"{_LAYER}.attention.dense"),
        *linear_rows("encoder.attention.{i}.norm", f"{_LAYER}.attention.LayerNorm"),
        *linear_rows("encoder.feed_forward.{i}.up", f"{_LAYER}.ffn"),
        *linear_rows("encoder.feed_forward.{i}.down", f"{_LAYER}.ffn_output"),
        *linear_rows("encoder.feed_forward.{i}.norm", f"{_LAYER}.full_layer_layer_norm"),
        *linear_rows("pooler.dense", "albert.pooler"),
        *linear_rows("heads.masked_lm.dense", "predictions.dense"),
        *linear_rows("heads.masked_lm.norm", "predictions.LayerNorm"),
        TensorRow("heads.masked_lm.bias", ("predictions.bias",), older=("predictions.decoder.bias",)),
        TensorRow("heads.masked_lm.table.weight", ("predictions.decoder.weight",)),
        *linear_rows("heads.order.linear", "sop_classifier.classifier"),
    ),
)
