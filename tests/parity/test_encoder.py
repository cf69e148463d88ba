"""Every family against ``transformers``: states at every depth, gradients, packing, groups, two streams."""

import pytest
import torch

from litebert.checkpoints.folder import load_model
from litebert.checkpoints.huggingface import read_theirs, with_modern_names
from litebert.families import FAMILIES
from litebert.nn.layout import Layout

VOCAB = 60
CLOSE = 2e-5
LENGTHS = [1, 2, 17, 512]


def batch(family: str, lengths: list[int]) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Random ids (none of them special) and segments, where the family has them."""
    torch.manual_seed(1)
    ids = [torch.randint(7, VOCAB, (length,)) for length in lengths]
    segments = [(torch.arange(n) >= n // 2).long() if FAMILIES[family].segments else None for n in lengths]
    return ids, segments


def packed(parts: list[torch.Tensor | None]) -> torch.Tensor | None:
    return None if parts[0] is None else torch.cat(parts)


def their_states(model, ids: torch.Tensor, segments: torch.Tensor | None, mask: torch.Tensor | None = None):
    extra = {} if segments is None else {"token_type_ids": segments}
    if mask is not None:
        extra["attention_mask"] = mask
    return model(ids, output_hidden_states=True, **extra).hidden_states


def worst(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item()


@pytest.mark.parametrize("family", FAMILIES)
def test_states_at_every_depth_packed_equals_each_alone(family, reference, saved):
    theirs = reference(family)
    encoder = load_model(saved(theirs)).network.encoder
    ids, segments = batch(family, LENGTHS)
    with torch.no_grad():
        ours = encoder.states(torch.cat(ids), Layout.of(LENGTHS), packed(segments))
        assert len(ours) == 5
        start = 0
        for length, one, kinds in zip(LENGTHS, ids, segments, strict=True):
            expected = their_states(theirs, one[None], None if kinds is None else kinds[None])
            assert len(expected) == len(ours)
            for depth, states in enumerate(expected):
                assert worst(ours[depth][start : start + length], states[0]) < CLOSE, (family, length, depth)
            start += length


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_padded(family, reference, saved):
    theirs = reference(family)
    encoder = load_model(saved(theirs)).network.encoder
    lengths = [3, 17, 5, 17]
    ids, segments = batch(family, lengths)
    pad = torch.nn.utils.rnn.pad_sequence
    rows = pad(ids, batch_first=True, padding_value=encoder.config.pad_id)
    mask = pad([torch.ones(n) for n in lengths], batch_first=True)
    kinds = None if segments[0] is None else pad(segments, batch_first=True)
    with torch.no_grad():
        expected = their_states(theirs, rows, kinds, mask)[-1][mask.bool()]
        assert worst(encoder(torch.cat(ids), Layout.of(lengths), packed(segments)), expected) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients(family, reference, saved):
    theirs = reference(family)
    loaded = load_model(saved(theirs))
    lengths = [2, 9]
    ids, segments = batch(family, lengths)
    torch.manual_seed(2)
    direction = torch.randn(sum(lengths), 32)
    states = loaded.network.encoder(torch.cat(ids), Layout.of(lengths), packed(segments))
    (states * direction).sum().backward()
    for one, kinds, way in zip(ids, segments, direction.split(lengths), strict=True):
        (their_states(theirs, one[None], None if kinds is None else kinds[None])[-1][0] * way).sum().backward()
    grads = {name: p.grad for name, p in theirs.named_parameters() if p.grad is not None}
    expected = read_theirs(with_modern_names(grads, family), loaded.network.config).tensors
    ours = {name: p.grad for name, p in loaded.network.named_parameters() if p.grad is not None}
    assert set(ours) == set(expected) and len(ours) > 10
    for name, grad in ours.items():
        assert worst(grad, expected[name]) < CLOSE, name


@pytest.mark.parametrize(("groups", "inner"), [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2)])
def test_albert_groups(groups, inner, reference, saved):
    theirs = reference("albert", num_hidden_groups=groups, inner_group_num=inner)
    encoder = load_model(saved(theirs)).network.encoder
    assert len(encoder.attention) == groups * inner
    ids, segments = batch("albert", [17])
    with torch.no_grad():
        expected = their_states(theirs, ids[0][None], segments[0][None])
        ours = encoder.states(ids[0], Layout.of([17]), segments[0])
    assert len(ours) == len(expected) == 4 * inner + 1
    for a, b in zip(ours, expected, strict=True):
        assert worst(a, b[0]) < CLOSE


@pytest.mark.parametrize("family", FAMILIES)
def test_depth_is_the_first_layers(family, reference, saved):
    encoder = load_model(saved(reference(family))).network.encoder
    ids, segments = batch(family, [17])
    with torch.no_grad():
        every = encoder.states(ids[0], Layout.of([17]), segments[0])
        for depth in range(5):
            assert torch.equal(encoder(ids[0], Layout.of([17]), segments[0], depth=depth), every[depth])


def test_electra_of_one_width_has_no_projection(reference, saved):
    theirs = reference("electra", embedding_size=32)
    encoder = load_model(saved(theirs)).network.encoder
    assert encoder.embeddings.projection is None
    ids, segments = batch("electra", [17])
    with torch.no_grad():
        expected = their_states(theirs, ids[0][None], segments[0][None])[-1][0]
        assert worst(encoder(ids[0], Layout.of([17]), segments[0]), expected) < CLOSE


def test_xlnet_two_streams(reference, saved):
    theirs = reference("xlnet")
    encoder = load_model(saved(theirs)).network.encoder
    lengths = [7, 17]
    ids, segments = batch("xlnet", lengths)
    ranks = [torch.full((n,), -1) for n in lengths]
    ranks[0][[5, 2]] = torch.tensor([0, 1])
    ranks[1][[1, 16, 4]] = torch.tensor([2, 0, 1])
    with torch.no_grad():
        content, query = encoder.two_streams(torch.cat(ids), Layout.of(lengths), torch.cat(ranks), packed(segments))
    for one, kinds, rank, h, g in zip(ids, segments, ranks, content.split(lengths), query.split(lengths), strict=True):
        hidden = (rank[None, :] >= rank[:, None]) & ~((rank[None, :] == -1) & (rank[:, None] == -1))
        targets = (rank >= 0).nonzero()[:, 0]
        mapping = torch.nn.functional.one_hot(targets, len(one)).float()
        with torch.no_grad():
            out = theirs(
                one[None],
                token_type_ids=kinds[None],
                perm_mask=hidden.float()[None],
                target_mapping=mapping[None],
                output_hidden_states=True,
            )
        assert worst(h, out.hidden_states[-2][0]) < CLOSE
        assert worst(g[targets], out.hidden_states[-1][0]) < CLOSE
        assert worst(g[targets], out.last_hidden_state[0]) < CLOSE


def test_xlnet_two_streams_when_all_is_predicted(reference, saved):
    """The first token of the order sees nothing at all; the reference then looks everywhere equally."""
    theirs = reference("xlnet")
    encoder = load_model(saved(theirs)).network.encoder
    (ids,), (kinds,) = batch("xlnet", [9])
    rank = torch.randperm(9)
    with torch.no_grad():
        out = theirs(
            ids[None],
            token_type_ids=kinds[None],
            perm_mask=(rank[None, :] >= rank[:, None]).float()[None],
            target_mapping=torch.eye(9)[None],
        )
        _, query = encoder.two_streams(ids, Layout.of([9]), rank, kinds)
    assert worst(query, out.last_hidden_state[0]) < CLOSE
