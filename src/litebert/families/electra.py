"""ELECTRA (Clark et al., 2020): a BERT that learns to say which tokens a small generator replaced.

The generator is a narrower encoder of the same family with a masked-LM head. Both take embeddings of any width.
"""

from litebert.families.family import (
    ABSOLUTE_ENCODER,
    BERT_ENCODER,
    BERT_LAYOUT,
    BERT_TOKENS,
    TASK_CLASSES,
    ConfigField,
    Family,
    TensorRow,
    bert_fields,
    bert_layer_rows,
    embedding_rows,
    linear_rows,
)

FAMILY = Family(
    name="electra",
    encoder={
        **BERT_ENCODER,
        "embedding_width": 128,
        "head_activation": "gelu",
        "pooler": "gelu",
        "pooler_always": False,
    },
    layout=BERT_LAYOUT,
    tokens=BERT_TOKENS,
    lowercase=True,
    class_prefix="Electra",
    classes=(
        *TASK_CLASSES,
        ("ForPreTraining", ("replaced",)),
        ("ForMaskedLM", ("masked_lm",)),
        ("Model", ()),
    ),
    fields=(
        *bert_fields(hidden_size=256, num_attention_heads=4, intermediate_size=1024),
        ConfigField("embedding_size", "embedding_width", 128),
    ),
    constants={"summary_type": "first", "summary_use_proj": True, "summary_activation": "gelu"},
    required={
        **ABSOLUTE_ENCODER,
        "summary_type": (None, "first"),
        "summary_use_proj": (None, True),
        "summary_activation": (None, "gelu"),
    },
    embedding_projection="where widths differ",
    body="electra",
    own_rows=(
        *embedding_rows("electra"),
        *linear_rows("encoder.embeddings.projection", "electra.embeddings_project"),
        *bert_layer_rows("electra"),
        *linear_rows("pooler.dense", "sequence_summary.summary", classifying="classifier.dense"),
        *linear_rows("heads.classify.linear", "classifier.out_proj"),
        *linear_rows("heads.masked_lm.dense", "generator_predictions.dense"),
        *linear_rows("heads.masked_lm.norm", "generator_predictions.LayerNorm"),
        TensorRow("heads.masked_lm.bias", ("generator_lm_head.bias",)),
        TensorRow("heads.masked_lm.table.weight", ("generator_lm_head.weight",)),
    ),
    copies=("generator_lm_head.weight",),
)
