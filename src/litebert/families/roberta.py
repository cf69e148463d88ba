"""RoBERTa (Liu et al., 2019): BERT with byte-level text, no segments, and positions that begin after the pad id."""

from typing import Any

from litebert.families.family import (
    ABSOLUTE_ENCODER,
    BERT_ENCODER,
    TASK_CLASSES,
    Family,
    PairLayout,
    TensorRow,
    bert_fields,
    bert_layer_rows,
    embedding_rows,
    linear_rows,
)


def _without_offset(ours: dict[str, Any]) -> dict[str, Any]:
    offset = ours["pad_id"] + 1
    return {**ours, "position_offset": offset, "max_positions": ours["max_positions"] - offset}


def _with_offset(ours: dict[str, Any]) -> dict[str, Any]:
    return {**ours, "max_positions": ours["max_positions"] + ours["position_offset"]}


FAMILY = Family(
    name="roberta",
    encoder={
        **BERT_ENCODER,
        "vocab_size": 50265,
        "position_offset": 2,
        "num_segments": 1,
        "norm_eps": 1e-5,
        "head_activation": "gelu",
        "pad_id": 1,
    },
    layout=PairLayout.of("cls:0 A:0 sep:0", "cls:0 A:0 sep:0 sep:0 B:0 sep:0"),
    tokens={
        "pad": "<pad>",
        "unk": "<unk>",
        "cls": "<s>",
        "sep": "</s>",
        "mask": "<mask>",
        "bos": "<s>",
        "eos": "</s>",
    },
    segments=False,
    class_prefix="Roberta",
    classes=(*TASK_CLASSES, ("ForMaskedLM", ("masked_lm",)), ("Model", ())),
    fields=bert_fields(vocab_size=50265, pad_token_id=1),
    required=ABSOLUTE_ENCODER,
    after_reading=_without_offset,
    before_writing=_with_offset,
    body="roberta",
    own_rows=(
        *embedding_rows("roberta"),
        *bert_layer_rows("roberta"),
        *linear_rows("pooler.dense", "roberta.pooler.dense", classifying="classifier.dense"),
        *linear_rows("heads.classify.linear", "classifier.out_proj"),
        *linear_rows("heads.masked_lm.dense", "lm_head.dense"),
        *linear_rows("heads.masked_lm.norm", "lm_head.layer_norm"),
        TensorRow("heads.masked_lm.bias", ("lm_head.bias",), older=("lm_head.decoder.bias",)),
        TensorRow("heads.masked_lm.table.weight", ("lm_head.decoder.weight",)),
    ),
    copies=("lm_head.bias",),
)
