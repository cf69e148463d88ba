"""Hugging Face's checkpoints and ours, both ways: config.json, tensors, and what of our plans they can express.

How each family writes its config and names its tensors is in ``litebert.families``; here is what is done with that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar, cast, get_args

import torch
from torch import Tensor

from litebert.config import build
from litebert.errors import InputError
from litebert.families import FAMILIES, Family
from litebert.families.family import Form, TensorRow
from litebert.nn.config import EncoderConfig
from litebert.nn.network import HeadName, HeadsConfig, Network, NetworkConfig

Value = TypeVar("Value")

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


def guess_family(names: Iterable[str]) -> str | None:
    """The family whose prefix the tensor names carry, for a config.json without a model_type."""
    names = list(names)
    return next(
        (name for name, family in FAMILIES.items() if any(key.startswith(f"{family.body}.") for key in names)), None
    )


def read_encoder_config(theirs: Mapping[str, Any], family_name: str) -> EncoderConfig:
    """The encoder that a Hugging Face config.json of this family describes."""
    family = FAMILIES[family_name]
    for field, allowed in family.required.items():
        if theirs.get(field) not in allowed:
            raise InputError(f"the checkpoint's {field} is '{theirs[field]}', which litebert does not compute")
    ours: dict[str, Any] = {"family": family.name, **family.encoder}
    ours |= {field.ours: theirs.get(field.theirs, field.default) for field in family.fields}
    if ours["classifier_dropout"] is None:
        ours["classifier_dropout"] = ours["dropout"]
    if ours["activation"] not in _ACTIVATIONS:
        raise InputError(f"the checkpoint's activation '{ours['activation']}' is not one of {', '.join(_ACTIVATIONS)}")
    ours["activation"] = _ACTIVATIONS[ours["activation"]]
    if family.embedding_projection == "always":
        ours["embedding_projection"] = True
    if family.embedding_projection == "never":
        ours["embedding_width"] = ours["width"]
    return build(EncoderConfig, family.after_reading(ours))


def read_heads(theirs: Mapping[str, Any], family: str, present: set[HeadName]) -> HeadsConfig:
    """The heads a checkpoint has, by its architecture and by the heads whose tensors are all there."""
    extra = theirs.get("litebert") or {}
    if "heads" in extra:
        names = tuple(extra["heads"])
    else:
        architecture = (theirs.get("architectures") or [""])[0]
        named = next((heads for end, heads in FAMILIES[family].classes if architecture.endswith(end)), None)
        certain = present - {"classify", "choice"}  # these two may share their names: only the architecture decides
        if named is None:
            certain = present - {"choice"} if not architecture else certain
        names = cast(tuple[HeadName, ...], tuple(sorted({*(named or ()), *certain})))
    if "classify" in names and theirs.get("id2label"):
        labels = tuple(str(label) for _, label in sorted(theirs["id2label"].items(), key=lambda item: int(item[0])))
    else:
        labels = tuple(str(number) for number in range(int(theirs.get("num_labels") or 2)))
    problem = str(theirs.get("problem_type") or "") if "classify" in names else ""
    return HeadsConfig(names=names, labels=labels, answerable=bool(extra.get("answerable")), problem=problem)


def write_config(config: NetworkConfig) -> dict[str, Any]:
    """The config.json of a network whose plan Hugging Face can express."""
    family = FAMILIES[config.encoder.family]
    ours = asdict(native_groups(config.encoder))
    ours["activation"] = _THEIR_ACTIVATIONS[ours["activation"]]
    ours = family.before_writing(ours)
    theirs: dict[str, Any] = {"model_type": family.name, "architectures": [architecture(config)]}
    theirs |= {field.theirs: ours[field.ours] for field in family.fields}
    theirs |= family.constants
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
    family = FAMILIES[config.encoder.family]
    return family.class_prefix + next(end for end, heads in family.classes if {*heads} <= {*config.heads.names})


def native_groups(config: EncoderConfig) -> EncoderConfig:
    """The same encoder with its plan expressed as groups of layers, where Hugging Face has a class for it."""
    native = _as_groups(config)
    if native is None:
        raise InputError(why_not_native(config))
    return native


def is_native(config: EncoderConfig) -> bool:
    """Whether ``transformers`` has a class that computes this plan without copies of shared blocks."""
    return _as_groups(config) is not None


def _as_groups(config: EncoderConfig) -> EncoderConfig | None:
    if config.is_sparse or not _embeds_natively(config):
        return None
    if not FAMILIES[config.family].shares_layers:
        return config if config.plan == tuple((depth, depth) for depth in range(config.num_layers)) else None
    for inner in (size for size in range(1, config.num_layers + 1) if config.num_layers % size == 0):
        for groups in range(1, config.num_layers // inner + 1):
            candidate = replace(config, custom_plan=(), share="all", num_groups=groups, layers_per_group=inner)
            if candidate.plan == config.plan:
                return candidate
    return None


def _embeds_natively(config: EncoderConfig) -> bool:
    match FAMILIES[config.family].embedding_projection:
        case "always":
            return config.projects_embeddings
        case "never":
            return not config.projects_embeddings
        case _:
            return config.projects_embeddings == (config.embedding_width != config.width)


def why_not_native(config: EncoderConfig) -> str:
    """One sentence on what ``transformers`` cannot express here."""
    if config.is_sparse:
        return f"transformers has no {config.family} with attention={config.attention}, only with full attention"
    if not FAMILIES[config.family].shares_layers and not _embeds_natively(config):
        return (
            f"transformers has no {config.family} with embedding width {config.embedding_width} and width "
            f"{config.width} and a projection between them; use family=albert for factorised embeddings"
        )
    return (
        f"transformers cannot share blocks this way (share={config.share}); `litebert convert --to hf` writes every "
        "layer out in full"
    )


def with_modern_names(theirs: Mapping[str, Value], family: str) -> dict[str, Value]:
    """The names that today's ``transformers`` gives a model with a head, whatever wrote the file."""
    body = f"{FAMILIES[family].body}."
    bare = not any(name.startswith(body) for name in theirs)
    modern = {}
    for name, tensor in theirs.items():
        name = name.removesuffix("gamma") + "weight" if name.endswith("LayerNorm.gamma") else name
        name = name.removesuffix("beta") + "bias" if name.endswith("LayerNorm.beta") else name
        modern[body + name if bare else name] = tensor
    return modern


def heads_present(names: Iterable[str], family: str) -> set[HeadName]:
    """The heads of which at least one tensor is in the file, by modern names."""
    found: set[str] = set()
    names = set(names)
    for row in FAMILIES[family].rows:
        head, _, part = row.ours.removeprefix("heads.").partition(".")
        if head in get_args(HeadName) and part != "table.weight" and not names.isdisjoint((*row.theirs, *row.older)):
            found.add(head)
    return cast(set[HeadName], found)


@dataclass(frozen=True)
class Reading:
    """What reading a checkpoint gave: our tensors, our names that it lacks, its names that nobody wanted."""

    tensors: dict[str, Tensor]
    missing: list[str]
    unused: list[str]


def read_theirs(theirs: Mapping[str, Tensor], config: NetworkConfig) -> Reading:
    """Our tensors for a network of this shape, from a Hugging Face state dict with modern names."""
    family = FAMILIES[config.encoder.family]
    expected = expected_shapes(config)
    encoder = native_groups(config.encoder)
    tensors: dict[str, Tensor] = {}
    used: set[str] = set()
    for row, block in _placed(family, encoder):
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
    return Reading(tensors, missing, [name for name in theirs if name not in used and not _is_noise(name, family)])


def write_theirs(ours: Mapping[str, Tensor], config: NetworkConfig) -> dict[str, Tensor]:
    """The Hugging Face state dict of a network whose plan it can express."""
    encoder = native_groups(config.encoder)
    theirs: dict[str, Tensor] = {}
    for row, block in _placed(FAMILIES[encoder.family], encoder):
        name = row.ours.format(i=block)
        if name not in ours:
            continue
        places = row.classifying if row.classifying and "classify" in config.heads.names else row.theirs
        for place, tensor in zip(places, _FORMS[row.form].write(ours[name], encoder), strict=True):
            theirs[_place(place, block, encoder)] = tensor
        if row.older and not encoder.tied:
            theirs[row.older[0]] = ours[name].clone()  # an untied output layer has a bias of its own
    assert len(theirs) >= len(ours), "a tensor has no row in the table of its family"
    return theirs


def unrolled(ours: Mapping[str, Tensor], config: NetworkConfig) -> tuple[dict[str, Tensor], NetworkConfig]:
    """The same computation with every layer's blocks written out, so that ``transformers`` can express any plan."""
    encoder = config.encoder
    add_projection = FAMILIES[encoder.family].embedding_projection == "always" and not encoder.projects_embeddings
    plain = replace(encoder, share="none", num_groups=1, layers_per_group=1, custom_plan=())
    if add_projection:
        plain = replace(plain, embedding_projection=True)
    native_groups(plain)  # raises where even this has no class
    kept = {name: x for name, x in ours.items() if not name.startswith(("encoder.attention.", "encoder.feed_forward."))}
    for depth, (attention, feed_forward) in enumerate(encoder.plan):
        for kind, block in (("attention", attention), ("feed_forward", feed_forward)):
            prefix = f"encoder.{kind}.{block}."
            for name in (name for name in ours if name.startswith(prefix)):
                kept[f"encoder.{kind}.{depth}.{name.removeprefix(prefix)}"] = ours[name].clone()
    if add_projection:
        table = ours["encoder.embeddings.token.weight"]  # a projection that changes nothing
        kept["encoder.embeddings.projection.weight"] = torch.eye(encoder.width, dtype=table.dtype)
        kept["encoder.embeddings.projection.bias"] = torch.zeros(encoder.width, dtype=table.dtype)
    return kept, replace(config, encoder=plain)


def expected_shapes(config: NetworkConfig) -> dict[str, torch.Size]:
    """The name and shape of every tensor of a network, without making it."""
    with torch.device("meta"):
        return {name: tensor.shape for name, tensor in Network(config).state_dict().items()}


def _placed(family: Family, encoder: EncoderConfig) -> Iterator[tuple[TensorRow, int]]:
    for row in family.rows:
        blocks = encoder.num_attention_blocks if "{i}" in row.ours else 1
        yield from ((row, block) for block in range(blocks))


def _place(name: str, block: int, encoder: EncoderConfig) -> str:
    group, inner = divmod(block, encoder.layers_per_group)
    return name.format(i=block, g=group, j=inner)


def _checked(
    row: TensorRow, parts: list[Tensor], names: list[str], expected: torch.Size, config: EncoderConfig
) -> Tensor:
    """The tensor in our form; a wrong shape is reported by the file's own name and shape."""
    wanted = [part.shape for part in _FORMS[row.form].write(torch.empty(expected, device="meta"), config)]
    for name, part, shape in zip(names, parts, wanted, strict=True):
        if part.shape != shape:
            raise InputError(
                f"tensor {name} has shape {tuple(part.shape)} but config.json asks for {tuple(shape)}; "
                "config.json and the weights do not match"
            )
    return _FORMS[row.form].read(parts)


def _is_noise(name: str, family: Family) -> bool:
    """Buffers that older versions saved, and copies of tied tensors."""
    return name.endswith(("position_ids", "token_type_ids")) or ".decoder." in name or name in family.copies


@dataclass(frozen=True)
class _Form:
    """How a tensor of ours and one or more of theirs turn into each other."""

    read: Callable[[Sequence[Tensor]], Tensor]
    write: Callable[[Tensor, EncoderConfig], list[Tensor]]


def _split_heads(x: Tensor, config: EncoderConfig) -> Tensor:
    """(A * D, H) to XLNet's (H, A, D)."""
    return x.unflatten(0, (config.num_heads, config.head_width)).permute(2, 0, 1)


_FORMS: dict[Form, _Form] = {
    "same": _Form(lambda theirs: theirs[0], lambda ours, _: [ours]),
    "stacked": _Form(lambda theirs: torch.cat(list(theirs)), lambda ours, _: list(ours.chunk(3))),
    "heads_out": _Form(lambda theirs: theirs[0].flatten(1).T, lambda ours, c: [_split_heads(ours, c)]),
    "heads_in": _Form(
        lambda theirs: theirs[0].flatten(1), lambda ours, c: [ours.unflatten(1, (c.num_heads, c.head_width))]
    ),
    "heads_stacked": _Form(
        lambda theirs: torch.cat([x.flatten(1).T for x in theirs]),
        lambda ours, c: [_split_heads(x, c) for x in ours.chunk(3)],
    ),
    "vector": _Form(lambda theirs: theirs[0].flatten(), lambda ours, _: [ours.view(1, 1, -1)]),
}
