"""DistilBERT (Sanh et al., 2019): a BERT of half the depth, without segments and without a pooler of its own."""

from litebert.families.family import (
    BERT_ENCODER,
    BERT_LAYOUT,
    BERT_TOKENS,
    TASK_CLASSES,
    ConfigField,
    Family,
    TensorRow,
    embedding_rows,
    linear_rows,
    qkv_rows,
)

_LAYER = "distilbert.transformer.layer.{i}"

FAMILY = Family(
    name="distilbert",
    encoder={**BERT_ENCODER, "num_segments": 0, "pooler": "relu", "pooler_always": False},
    layout=BERT_LAYOUT,
    tokens=BERT_TOKENS,
    segments=False,
    lowercase=True,
    class_prefix="DistilBert",
    classes=(*TASK_CLASSES, ("ForMaskedLM", ("masked_lm",)), ("Model", ())),
    fields=(
        ConfigField("vocab_size", "vocab_size", 30522),
        ConfigField("dim", "width", 768),
        ConfigField("n_layers", "num_layers", 6),
        ConfigField("n_heads", "num_heads", 12),
        ConfigField("hidden_dim", "feed_forward_width", 3072),
        ConfigField("activation", "activation", "gelu"),
        ConfigField("dropout", "dropout", 0.1),
        ConfigField("attention_dropout", "attention_dropout", 0.1),
        ConfigField("seq_classif_dropout", "classifier_dropout", 0.2),
        ConfigField("max_position_embeddings", "max_positions", 512),
        ConfigField("initializer_range", "initial_std", 0.02),
        ConfigField("pad_token_id", "pad_id", 0),
        ConfigField("tie_word_embeddings", "tied", True),
    ),
    body="distilbert",
    own_rows=(
        *embedding_rows("distilbert", segments=False),
        *qkv_rows([f"{_LAYER}.attention.{name}_lin" for name in "qkv"]),
        *linear_rows("encoder.attention.{i}.out", f"{_LAYER}.attention.out_lin"),
        *linear_rows("encoder.attention.{i}.norm", f"{_LAYER}.sa_layer_norm"),
        *linear_rows("encoder.feed_forward.{i}.up", f"{_LAYER}.ffn.lin1"),
        *linear_rows("encoder.feed_forward.{i}.down", f"{_LAYER}.ffn.lin2"),
        *linear_rows("encoder.feed_forward.{i}.norm", f"{_LAYER}.output_layer_norm"),
        *linear_rows("pooler.dense", "pre_classifier"),
        *linear_rows("heads.masked_lm.dense", "vocab_transform"),
        *linear_rows("heads.masked_lm.norm", "vocab_layer_norm"),
        TensorRow("heads.masked_lm.bias", ("vocab_projector.bias",)),
        TensorRow("heads.masked_lm.table.weight", ("vocab_projector.weight",)),
    ),
    copies=("vocab_projector.weight",),
)
