"""BERT (Devlin et al., 2019): the layout and names that most others started from."""

from litebert.families.family import (
    ABSOLUTE_ENCODER,
    BERT_ENCODER,
    BERT_LAYOUT,
    BERT_TOKENS,
    TASK_CLASSES,
    Family,
    TensorRow,
    bert_fields,
    bert_layer_rows,
    embedding_rows,
    linear_rows,
)

FAMILY = Family(
    name="bert",
    encoder=BERT_ENCODER,
    layout=BERT_LAYOUT,
    tokens=BERT_TOKENS,
    lowercase=True,
    class_prefix="Bert",
    classes=(
        *TASK_CLASSES,
        ("ForPreTraining", ("masked_lm", "order")),
        ("ForMaskedLM", ("masked_lm",)),
        ("ForNextSentencePrediction", ("order",)),
        ("Model", ()),
    ),
    fields=bert_fields(),
    required=ABSOLUTE_ENCODER,
    body="bert",
    own_rows=(
        *embedding_rows("bert"),
        *bert_layer_rows("bert"),
        *linear_rows("pooler.dense", "bert.pooler.dense"),
        *linear_rows("heads.masked_lm.dense", "cls.predictions.transform.dense"),
        *linear_rows("heads.masked_lm.norm", "cls.predictions.transform.LayerNorm"),
        TensorRow("heads.masked_lm.bias", ("cls.predictions.bias",), older=("cls.predictions.decoder.bias",)),
        TensorRow("heads.masked_lm.table.weight", ("cls.predictions.decoder.weight",)),
        *linear_rows("heads.order.linear", "cls.seq_relationship"),
    ),
)
