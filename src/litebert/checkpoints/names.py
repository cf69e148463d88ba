"""How each family names its tensors: one table a family, used both to read and to write Hugging Face checkpoints.

A row says which of our tensors it is about (``{i}`` stands for a block), under which names the family keeps it, and in
which form. Nothing else in the project knows these names.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from litebert.nn.config import EncoderConfig


@dataclass(frozen=True)
class Form:
    """How a tensor of ours and one or more of theirs turn into each other."""

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, EncoderConfig], list[Tensor]]


def _split_heads(x: Tensor, config: EncoderConfig) -> Tensor:
    return x.unflatten(0, (config.num_heads, config.head_width))


SAME = Form(lambda theirs: theirs[0], lambda ours, _: [ours])
# One product gives queries, keys and values; they keep three.
STACKED = Form(lambda theirs: torch.cat(list(theirs)), lambda ours, _: list(ours.chunk(3)))
# XLNet keeps (H, A, D) tensors for einsum where we keep (A * D, H) matrices.
HEADS_OUT = Form(lambda theirs: theirs[0].flatten(1).T, lambda ours, c: [_split_heads(ours, c).permute(2, 0, 1)])
HEADS_IN = Form(lambda theirs: theirs[0].flatten(1), lambda ours, c: [ours.unflatten(1, (c.num_heads, c.head_width))])
HEADS_STACKED = Form(
    lambda theirs: torch.cat([x.flatten(1).T for x in theirs]),
    lambda ours, c: [_split_heads(x, c).permute(2, 0, 1) for x in ours.chunk(3)],
)
VECTOR = Form(lambda theirs: theirs[0].flatten(), lambda ours, _: [ours.view(1, 1, -1)])


@dataclass(frozen=True)
class Row:
    """One tensor of ours and where a family keeps it."""

    ours: str
    theirs: tuple[str, ...]
    form: Form = SAME
    older: tuple[str, ...] = ()  # other names under which it is found in some files, read only
    classifying: tuple[str, ...] = ()  # where it is kept instead when there is a classification head


@dataclass(frozen=True)
class Names:
    """The table of a family. ``body`` is the prefix that its bare model leaves out of every name."""

    body: str
    rows: tuple[Row, ...]


def _linear(ours: str, theirs: str, classifying: str = "") -> list[Row]:
    return [
        Row(f"{ours}.{part}", (f"{theirs}.{part}",), classifying=(f"{classifying}.{part}",) if classifying else ())
        for part in ("weight", "bias")
    ]


def _qkv(theirs: Sequence[str]) -> list[Row]:
    return [
        Row(f"encoder.attention.{{i}}.qkv.{part}", tuple(f"{name}.{part}" for name in theirs), STACKED)
        for part in ("weight", "bias")
    ]


def _embeddings(body: str, segments: bool = True) -> list[Row]:
    at = f"{body}.embeddings"
    return [
        Row("encoder.embeddings.token.weight", (f"{at}.word_embeddings.weight",)),
        Row("encoder.embeddings.position.weight", (f"{at}.position_embeddings.weight",)),
        *([Row("encoder.embeddings.segment.weight", (f"{at}.token_type_embeddings.weight",))] if segments else []),
        *_linear("encoder.embeddings.norm", f"{at}.LayerNorm"),
    ]


def _bert_layer(body: str) -> list[Row]:
    at = f"{body}.encoder.layer.{{i}}"
    return [
        *_qkv([f"{at}.attention.self.{name}" for name in ("query", "key", "value")]),
        *_linear("encoder.attention.{i}.out", f"{at}.attention.output.dense"),
        *_linear("encoder.attention.{i}.norm", f"{at}.attention.output.LayerNorm"),
        *_linear("encoder.feed_forward.{i}.up", f"{at}.intermediate.dense"),
        *_linear("encoder.feed_forward.{i}.down", f"{at}.output.dense"),
        *_linear("encoder.feed_forward.{i}.norm", f"{at}.output.LayerNorm"),
    ]


def _albert() -> list[Row]:
    # {g} is the group and {j} the layer within it
    at = "albert.encoder.albert_layer_groups.{g}.albert_layers.{j}"
    return [
        *_embeddings("albert"),
        *_linear("encoder.embeddings.projection", "albert.encoder.embedding_hidden_mapping_in"),
        *_qkv([f"{at}.attention.{name}" for name in ("query", "key", "value")]),
        *_linear("encoder.attention.{i}.out", f"{at}.attention.dense"),
        *_linear("encoder.attention.{i}.norm", f"{at}.attention.LayerNorm"),
        *_linear("encoder.feed_forward.{i}.up", f"{at}.ffn"),
        *_linear("encoder.feed_forward.{i}.down", f"{at}.ffn_output"),
        *_linear("encoder.feed_forward.{i}.norm", f"{at}.full_layer_layer_norm"),
        *_linear("pooler.dense", "albert.pooler"),
        *_linear("heads.masked_lm.dense", "predictions.dense"),
        *_linear("heads.masked_lm.norm", "predictions.LayerNorm"),
        Row("heads.masked_lm.bias", ("predictions.bias",), older=("predictions.decoder.bias",)),
        Row("heads.masked_lm.table.weight", ("predictions.decoder.weight",)),
        *_linear("heads.order.linear", "sop_classifier.classifier"),
    ]


def _bert() -> list[Row]:
    return [
        *_embeddings("bert"),
        *_bert_layer("bert"),
        *_linear("pooler.dense", "bert.pooler.dense"),
        *_linear("heads.masked_lm.dense", "cls.predictions.transform.dense"),
        *_linear("heads.masked_lm.norm", "cls.predictions.transform.LayerNorm"),
        Row("heads.masked_lm.bias", ("cls.predictions.bias",), older=("cls.predictions.decoder.bias",)),
        Row("heads.masked_lm.table.weight", ("cls.predictions.decoder.weight",)),
        *_linear("heads.order.linear", "cls.seq_relationship"),
    ]


def _roberta() -> list[Row]:
    return [
        *_embeddings("roberta"),
        *_bert_layer("roberta"),
        *_linear("pooler.dense", "roberta.pooler.dense", classifying="classifier.dense"),
        *_linear("heads.classify.linear", "classifier.out_proj"),
        *_linear("heads.masked_lm.dense", "lm_head.dense"),
        *_linear("heads.masked_lm.norm", "lm_head.layer_norm"),
        Row("heads.masked_lm.bias", ("lm_head.bias",), older=("lm_head.decoder.bias",)),
        Row("heads.masked_lm.table.weight", ("lm_head.decoder.weight",)),
    ]


def _distilbert() -> list[Row]:
    at = "distilbert.transformer.layer.{i}"
    return [
        *_embeddings("distilbert", segments=False),
        *_qkv([f"{at}.attention.{name}_lin" for name in "qkv"]),
        *_linear("encoder.attention.{i}.out", f"{at}.attention.out_lin"),
        *_linear("encoder.attention.{i}.norm", f"{at}.sa_layer_norm"),
        *_linear("encoder.feed_forward.{i}.up", f"{at}.ffn.lin1"),
        *_linear("encoder.feed_forward.{i}.down", f"{at}.ffn.lin2"),
        *_linear("encoder.feed_forward.{i}.norm", f"{at}.output_layer_norm"),
        *_linear("pooler.dense", "pre_classifier"),
        *_linear("heads.masked_lm.dense", "vocab_transform"),
        *_linear("heads.masked_lm.norm", "vocab_layer_norm"),
        Row("heads.masked_lm.bias", ("vocab_projector.bias",)),
        Row("heads.masked_lm.table.weight", ("vocab_projector.weight",)),
    ]


def _xlnet() -> list[Row]:
    at = "transformer.layer.{i}.rel_attn"
    relative = "encoder.attention.{i}.relative"
    return [
        Row("encoder.embeddings.token.weight", ("transformer.word_embedding.weight",)),
        Row("encoder.embeddings.mask", ("transformer.mask_emb",), VECTOR),
        Row("encoder.attention.{i}.qkv.weight", tuple(f"{at}.{name}" for name in "qkv"), HEADS_STACKED),
        Row("encoder.attention.{i}.out.weight", (f"{at}.o",), HEADS_IN),
        Row(f"{relative}.distance.weight", (f"{at}.r",), HEADS_OUT),
        Row(f"{relative}.content_bias", (f"{at}.r_w_bias",)),
        Row(f"{relative}.distance_bias", (f"{at}.r_r_bias",)),
        Row(f"{relative}.segment_bias", (f"{at}.r_s_bias",)),
        Row(f"{relative}.segment", (f"{at}.seg_embed",)),
        *_linear("encoder.attention.{i}.norm", f"{at}.layer_norm"),
        *_linear("encoder.feed_forward.{i}.up", "transformer.layer.{i}.ff.layer_1"),
        *_linear("encoder.feed_forward.{i}.down", "transformer.layer.{i}.ff.layer_2"),
        *_linear("encoder.feed_forward.{i}.norm", "transformer.layer.{i}.ff.layer_norm"),
        *_linear("pooler.dense", "sequence_summary.summary"),
        Row("heads.masked_lm.bias", ("lm_loss.bias",)),
        Row("heads.masked_lm.table.weight", ("lm_loss.weight",)),
        *_linear("heads.classify.linear", "logits_proj"),
        *_linear("heads.choice.linear", "logits_proj"),
        *_linear("heads.span.linear", "qa_outputs"),
    ]


# What the families have in common, or what Hugging Face has no name for (an order head where the family has none, the
# answerability of a span): a family's own row for the same tensor wins.
_COMMON = [
    *_linear("heads.classify.linear", "classifier"),
    *_linear("heads.choice.linear", "classifier"),
    *_linear("heads.span.linear", "qa_outputs"),
    *_linear("heads.span.answerable", "answerable"),
    *_linear("heads.order.linear", "order_classifier"),
    *_linear("heads.replaced.dense", "discriminator_predictions.dense"),
    *_linear("heads.replaced.score", "discriminator_predictions.dense_prediction"),
]


def _table(body: str, rows: list[Row]) -> Names:
    known = {row.ours for row in rows}
    return Names(body, (*rows, *(row for row in _COMMON if row.ours not in known)))


NAMES: dict[str, Names] = {
    "albert": _table("albert", _albert()),
    "bert": _table("bert", _bert()),
    "roberta": _table("roberta", _roberta()),
    "distilbert": _table("distilbert", _distilbert()),
    "xlnet": _table("transformer", _xlnet()),
}
