"""Windows, blocks and global tokens against full attention with a table of what is hidden."""

from dataclasses import replace

import pytest
import torch

from litebert.errors import InputError
from litebert.nn import sparse_attention
from litebert.nn.attention import _attend_padded, attend
from litebert.nn.attention_pattern import Pattern, kept_words, patterns_of
from litebert.nn.config import EncoderConfig
from litebert.nn.layout import Layout
from litebert.nn.network import pretraining_network
from litebert.nn.sparse_attention import pattern_mask

LENGTHS = [30, 1, 0, 17, 17, 300, 300, 5, 2]
SIGHTS = [
    "local(7)",
    "local(7)+global",
    "local(150)+global(3)",
    "block(16)+global",
    "block(150)",
    "block(16)+global(9)",
]
SHAPE = {"num_layers": 4, "width": 32, "num_heads": 2, "feed_forward_width": 64, "embedding_width": 16}


def tensors(dtype=torch.float64):
    torch.manual_seed(0)
    return [torch.randn(sum(LENGTHS), 2, 8, dtype=dtype, requires_grad=True) for _ in range(3)]


def hidden(layout, dtype):
    return torch.zeros((), dtype=dtype).masked_fill(~pattern_mask(layout), float("-inf"))[:, None]


def allowed(pattern, length):
    """What one sequence of the textbook may look at, token by token."""
    table = torch.zeros(length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(length):
            a, b = i - pattern.first, j - pattern.first  # among the others
            shift = pattern.size - pattern.size // 2 if pattern.shifted else 0
            near = (
                abs(a - b) <= pattern.size
                if pattern.kind == "local"
                else (a + shift) // pattern.size == (b + shift) // pattern.size
            )
            table[i, j] = a < 0 or b < 0 or near
    return table


@pytest.mark.parametrize("words", SIGHTS)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("chosen", [None, [3, 40, 41, 200]])
def test_values_and_gradients_are_those_of_hidden_scores(words, depth, chosen):
    layout = Layout.of(LENGTHS, chosen=chosen).with_pattern(patterns_of(words, 2)[depth])
    ours, theirs = tensors(), tensors()
    out = attend(*ours, layout)
    expected = _attend_padded(*theirs, layout, hidden(layout, torch.float64), 0.0)
    torch.testing.assert_close(out, expected)
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def bounds_of(band):
    """Per sequence the queries, the keys and what to add to the scores."""
    starts, key_starts = band.starts.tolist(), band.key_starts.tolist()
    for number in range(len(starts) - 1):
        rows, keys = slice(*starts[number : number + 2]), slice(*key_starts[number : number + 2])
        assert rows.stop - rows.start <= band.longest and keys.stop - keys.start <= band.longest_key
        away = torch.arange(rows.stop - rows.start)[:, None] - torch.arange(keys.stop - keys.start)
        far = (away.abs() > band.window) if band.window >= 0 else torch.zeros_like(away, dtype=torch.bool)
        yield rows, keys, torch.zeros(away.shape, dtype=torch.float64).masked_fill(far, float("-inf"))


def flash(band, q, k, v):
    """What the kernel gives: rubbish behind the last sequence, an infinite sum where there are no keys."""
    out, sums = torch.full_like(q, float("nan")), q.new_full(q.shape[:2], float("nan"))
    for rows, keys, added in bounds_of(band):
        scores = torch.einsum("qad,kad->aqk", q[rows], k[keys]) * q.shape[-1] ** -0.5 + added
        out[rows] = torch.einsum("aqk,kad->qad", scores.softmax(-1), v[keys])
        sums[rows] = scores.logsumexp(-1).T
    return out, sums


def flash_backward(band, grad, q, k, v, out, sums):
    grads = [torch.full_like(x, float("nan")) for x in (q, k, v)]
    for rows, keys, added in bounds_of(band):
        scores = torch.einsum("qad,kad->aqk", q[rows], k[keys]) * q.shape[-1] ** -0.5 + added
        shares = (scores - sums[rows].T[..., None]).exp()
        of_shares = torch.einsum("qad,kad->aqk", grad[rows], v[keys])
        of_scores = shares * (of_shares - (grad[rows] * out[rows]).sum(-1).T[..., None]) * q.shape[-1] ** -0.5
        grads[0][rows] = torch.einsum("aqk,kad->qad", of_scores, k[keys])
        grads[1][keys] = torch.einsum("aqk,qad->kad", of_scores, q[rows])
        grads[2][keys] = torch.einsum("aqk,qad->kad", shares, grad[rows])
    return tuple(grads)


@pytest.mark.parametrize("words", SIGHTS)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("chosen", [None, [3, 40, 41, 200]])
def test_three_calls_of_a_flash_kernel_are_the_same(monkeypatch, words, depth, chosen):
    """The way of CUDA, with the kernel's promises kept by textbook code."""
    pattern = patterns_of(words, 2)[depth]
    if chosen and not pattern.first:
        pytest.skip("keys of a sequence without queries: the GPU's test")
    monkeypatch.setattr(sparse_attention, "_flash", flash)
    monkeypatch.setattr(sparse_attention, "_flash_backward", flash_backward)
    layout = Layout.of(LENGTHS, chosen=chosen).with_pattern(pattern)
    ours = tensors()
    expected = attend(*ours, layout)
    direction = torch.randn_like(expected)
    (expected * direction).sum().backward()
    plain = [x.detach() for x in ours]
    out, sums = sparse_attention._near_on_cuda(*plain, layout)
    torch.testing.assert_close(out, expected)
    grads = sparse_attention._near_on_cuda_backward(direction, *plain, out, sums, layout)
    for a, b in zip(ours, grads, strict=True):
        torch.testing.assert_close(a.grad, b)


@pytest.mark.gpu
@pytest.mark.parametrize("words", SIGHTS)
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("chosen", [None, [3, 40, 41, 200]])
def test_a_gpu_gives_the_same(words, depth, chosen):
    layout = Layout.of(LENGTHS, chosen=chosen).with_pattern(patterns_of(words, 2)[depth])
    there = layout.to("cuda")
    half = [torch.randn(sum(LENGTHS), 2, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    ours = [x.clone().requires_grad_() for x in half]
    exact = [x.cpu().double().requires_grad_() for x in half]
    out, expected = attend(*ours, there), attend(*exact, layout)
    torch.testing.assert_close(out.cpu().double(), expected, rtol=0.02, atol=0.02)
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (expected * direction.cpu().double()).sum().backward()
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a.grad.cpu().double(), b.grad, rtol=0.05, atol=0.05)


@pytest.mark.parametrize("pattern", [Pattern("local", 3, 2), Pattern("block", 5, 1), Pattern("block", 5, 0, True)])
def test_the_table_is_the_definition(pattern):
    mask = pattern_mask(Layout.of([23, 9]).with_pattern(pattern))
    assert torch.equal(mask[0], allowed(pattern, 23)) and torch.equal(mask[1, :9, :9], allowed(pattern, 9))
    assert pattern.mean_seen(23) == pytest.approx(mask[0].sum().item() / 23)


@pytest.mark.parametrize("words", ["local(299)", "local(298)+global", "block(300)", "block(600)+global(2)"])
@pytest.mark.parametrize("depth", [0, 1])
def test_a_window_of_the_length_is_full_attention_exactly(words, depth):
    layout = Layout.of(LENGTHS)
    ours, theirs = tensors(torch.float32), tensors(torch.float32)
    pattern = patterns_of(words, 2)[depth]
    out, expected = attend(*ours, layout.with_pattern(pattern)), attend(*theirs, layout)
    if pattern.shifted and pattern.size < 2 * max(LENGTHS):
        pytest.skip("half a block is shorter")
    assert torch.equal(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(ours, theirs, strict=True))


def test_the_operator_keeps_its_promises():
    layout = Layout.of(LENGTHS, chosen=[5]).with_pattern(Pattern("local", 7, 1))
    arguments = (*tensors(torch.float32), layout.starts, layout.positions, layout.chosen, layout.longest)
    found = torch.library.opcheck(torch.ops.litebert.attend_near.default, (*arguments, False, 7, False, 1))
    assert len(found) >= 4 and set(found.values()) == {"SUCCESS"}, found


def test_dropped_weights_are_hidden_ones_too():
    layout = Layout.of(LENGTHS).with_pattern(Pattern("local", 2))
    q, k, v = tensors(torch.float32)
    v = torch.zeros_like(v)
    v[20] = 1.0  # a value of the first sequence that only its neighbours can see
    out = attend(q, k, v, layout, dropout=0.2)
    assert out[18:23].abs().sum() > 0 and out[:18].abs().sum() == 0 and out[23:].abs().sum() == 0


def encoder_config(**fields):
    return EncoderConfig(**SHAPE, vocab_size=50, max_positions=400, **fields)


@pytest.mark.parametrize("fields", [{}, {"share": "none"}])
def test_packed_is_one_by_one_and_chosen_tokens_are_seen_from_far_away(fields):
    torch.manual_seed(1)
    network = pretraining_network(encoder_config(attention="local(8)+global,block(16)+global", **fields)).eval()
    lengths = [300, 40, 7]
    ids = torch.randint(50, (347,))
    with torch.no_grad():
        packed = network.encoder(ids, Layout.of(lengths))
        alone = [network.encoder(part, Layout.of([len(part)])) for part in ids.split(lengths)]
        torch.testing.assert_close(packed, torch.cat(alone), rtol=1e-4, atol=1e-5)
        other = ids.clone()
        other[150] = (ids[150] + 1) % 50
        one = {"depth": 1}
        before, after = (network.encoder(x, Layout.of(lengths), **one) for x in (ids, other))
        assert torch.equal(before[200], after[200]) and not torch.equal(before[0], after[0])
        seen = [network.encoder(x, Layout.of(lengths, chosen=[150]), **one) for x in (ids, other)]
        assert not torch.equal(seen[0][200], seen[1][200])


def test_depth_sharing_checkpointing_and_compiling_keep_working():
    torch.manual_seed(2)
    network = pretraining_network(encoder_config(attention="local(8)+global,full")).eval()
    ids, layout = torch.randint(50, (340,)), Layout.of([300, 40])
    every = network.encoder.states(ids, layout)
    assert torch.equal(every[2], network.encoder(ids, layout, depth=2))
    assert torch.equal(every[3], network.encoder.layer(3, every[2], layout))
    network.encoder(ids, layout).square().sum().backward()
    plain = network.encoder.attention[0].qkv.weight.grad.clone()
    network.zero_grad()
    network.encoder.checkpointing = True
    network.encoder(ids, layout).square().sum().backward()
    torch.testing.assert_close(network.encoder.attention[0].qkv.weight.grad, plain)
    network.encoder.checkpointing = False
    compiled = torch.compile(network.encoder.forward, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(ids, layout), every[-1])


def test_words_are_read_and_follow_kept_layers():
    config = encoder_config(attention="local(8)+global(2), block(16), full")
    assert config.patterns == (
        Pattern("local", 8, 2),
        Pattern("block", 16, 0, True),
        Pattern(),
        Pattern("local", 8, 2),
    )
    assert kept_words(config.attention, 4, (1, 4)) == "local(8)+global(2)"
    assert kept_words(config.attention, 4, (2, 3)) == "block(16),full"
    for wrong in ("local", "local(0)", "global", "block(1)", "local(8)+global(0)", ""):
        with pytest.raises(InputError, match=r"attention is .*local\(256\)"):
            encoder_config(attention=wrong)
    with pytest.raises(InputError, match="relative"):
        replace(config, positions="relative", family="xlnet")
