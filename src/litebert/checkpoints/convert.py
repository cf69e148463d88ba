"""Tensors of a Hugging Face checkpoint to ours and back, by the tables in ``names``."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from litebert.checkpoints.huggingface import native_groups
from litebert.checkpoints.names import NAMES, Names, Row
from litebert.errors import InputError
from litebert.nn.config import EncoderConfig
from litebert.nn.network import HeadName, Network, NetworkConfig

_HEADS: tuple[HeadName, ...] = ("masked_lm", "order", "replaced", "classify", "span", "choice")


def guess_family(theirs: Mapping[str, Tensor]) -> str | None:
    """The family whose prefix the tensor names carry, for a config.json that does not say."""
    return next(
        (family for family, names in NAMES.items() if any(k.startswith(f"{names.body}.") for k in theirs)), None
    )


def with_modern_names(theirs: Mapping[str, Tensor], family: str) -> dict[str, Tensor]:
    """The names that today's ``transformers`` gives a model with a head, whatever wrote the file."""
    body = f"{NAMES[family].body}."
    bare = not any(name.startswith(body) for name in theirs)
    modern = {}
    for name, tensor in theirs.items():
        name = name.removesuffix("gamma") + "weight" if name.endswith("LayerNorm.gamma") else name
        name = name.removesuffix("beta") + "bias" if name.endswith("LayerNorm.beta") else name
        modern[body + name if bare else name] = tensor
    return modern


def heads_present(theirs: Mapping[str, Tensor], family: str) -> set[HeadName]:
    """The heads of which at least the first tensor is in the file."""
    rows = NAMES[family].rows
    found: set[HeadName] = set()
    for head in _HEADS:
        own = [row for row in rows if row.ours.startswith(f"heads.{head}.") and row.ours.endswith(("weight", "bias"))]
        own = [row for row in own if not row.ours.startswith("heads.masked_lm.table")]
        if any(name in theirs for row in own for name in (*row.theirs, *row.older)):
            found.add(head)
    return found


@dataclass(frozen=True)
class Reading:
    """What reading a checkpoint gave: our tensors, our names that it lacks, its names that nobody wanted."""

    tensors: dict[str, Tensor]
    missing: list[str]
    unused: list[str]


def read_theirs(theirs: Mapping[str, Tensor], config: NetworkConfig) -> Reading:
    """Our tensors for a network of this shape, from a Hugging Face state dict with modern names."""
    names = NAMES[config.encoder.family]
    expected = expected_shapes(config)
    encoder = native_groups(config.encoder)
    tensors: dict[str, Tensor] = {}
    used: set[str] = set()
    for row, block in _placed(names, encoder):
        ours = row.ours.format(i=block)
        if ours not in expected:
            continue
        for group in (row.theirs, row.classifying, row.older) if encoder.tied else (row.older, row.theirs):
            found = [_place(name, block, encoder) for name in group]
            if found and all(name in theirs for name in found):
                tensors[ours] = _checked(row, [theirs[name] for name in found], found, expected[ours], encoder)
                used.update(found)
                break
    missing = [name for name in expected if name not in tensors]
    return Reading(tensors, missing, [name for name in theirs if name not in used and not _is_noise(name)])


def write_theirs(ours: Mapping[str, Tensor], config: NetworkConfig) -> dict[str, Tensor]:
    """The Hugging Face state dict of a network whose plan it can express."""
    encoder = native_groups(config.encoder)
    theirs: dict[str, Tensor] = {}
    for row, block in _placed(NAMES[encoder.family], encoder):
        name = row.ours.format(i=block)
        if name not in ours:
            continue
        places = row.classifying if row.classifying and "classify" in config.heads.names else row.theirs
        for place, tensor in zip(places, row.form.write(ours[name], encoder), strict=True):
            theirs[_place(place, block, encoder)] = tensor
        if row.older and not encoder.tied:
            theirs[row.older[0]] = ours[name].clone()  # an untied output layer has a bias of its own
    assert len(theirs) >= len(ours), "a tensor has no row in the table of its family"
    return theirs


def unrolled(ours: Mapping[str, Tensor], config: NetworkConfig) -> tuple[dict[str, Tensor], NetworkConfig]:
    """The same computation with every layer's blocks written out, so that ``transformers`` can express any plan."""
    encoder = config.encoder
    projection = True if encoder.family == "albert" else None
    plain = replace(encoder, share="none", num_groups=1, layers_per_group=1, custom_plan=())
    plain = replace(plain, embedding_projection=projection)
    native_groups(plain)  # says why where even this has no class
    kept = {name: x for name, x in ours.items() if not name.startswith(("encoder.attention.", "encoder.feed_forward."))}
    for depth, (attention, feed_forward) in enumerate(encoder.plan):
        for kind, block in (("attention", attention), ("feed_forward", feed_forward)):
            prefix = f"encoder.{kind}.{block}."
            for name in (name for name in ours if name.startswith(prefix)):
                kept[f"encoder.{kind}.{depth}.{name.removeprefix(prefix)}"] = ours[name].clone()
    if encoder.family == "albert" and not encoder.projects_embeddings:
        table = ours["encoder.embeddings.token.weight"]  # a projection that changes nothing
        kept["encoder.embeddings.projection.weight"] = torch.eye(encoder.width, dtype=table.dtype)
        kept["encoder.embeddings.projection.bias"] = torch.zeros(encoder.width, dtype=table.dtype)
    return kept, replace(config, encoder=plain)


def expected_shapes(config: NetworkConfig) -> dict[str, torch.Size]:
    """The name and shape of every tensor of a network, without making it."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in Network(config).state_dict().items()}


def _placed(names: Names, encoder: EncoderConfig) -> Iterator[tuple[Row, int]]:
    for row in names.rows:
        blocks = encoder.num_attention_blocks if "{i}" in row.ours else 1
        yield from ((row, block) for block in range(blocks))


def _place(name: str, block: int, encoder: EncoderConfig) -> str:
    group, inner = divmod(block, encoder.layers_per_group)
    return name.format(i=block, g=group, j=inner)


def _checked(row: Row, parts: list[Tensor], names: list[str], expected: torch.Size, config: EncoderConfig) -> Tensor:
    """The tensor in our form; a wrong shape is told by the file's own name and shape."""
    wanted = [part.shape for part in row.form.write(torch.empty(expected, device="meta"), config)]
    for name, part, shape in zip(names, parts, wanted, strict=True):
        if part.shape != shape:
            raise InputError(
                f"tensor {name} has shape {tuple(part.shape)} but config.json asks for {tuple(shape)}; "
                "the config and the weights are not of one model"
            )
    return row.form.read(parts)


def _is_noise(name: str) -> bool:
    """Buffers that older versions saved, and copies of tied tensors."""
    return name.endswith(("position_ids", "token_type_ids")) or ".decoder." in name or name in _TIED


_TIED = {"lm_loss.weight", "vocab_projector.weight", "lm_head.bias"}
