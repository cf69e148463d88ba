"""Packed attention against the textbook, one sequence at a time."""

from types import SimpleNamespace

import pytest
import torch

from litebert.nn import attention
from litebert.nn.layout import Layout

LENGTHS = [3, 1, 1, 0, 5, 5, 2]


def tensors(dtype=torch.float64, heads=2, size=8, requires_grad=True):
    torch.manual_seed(0)
    return [torch.randn(sum(LENGTHS), heads, size, dtype=dtype, requires_grad=requires_grad) for _ in range(3)]


def textbook(q, k, v, bias=None):
    """Softmax attention by its definition, sequence after sequence."""
    out, start = [], 0
    for number, length in enumerate(LENGTHS):
        part = [x[start : start + length].transpose(0, 1) for x in (q, k, v)]
        scores = part[0] @ part[1].transpose(1, 2) / q.shape[-1] ** 0.5
        if bias is not None:
            scores = scores + bias[number, :, :length, :length]
        out.append((scores.softmax(-1) @ part[2]).transpose(0, 1))
        start += length
    return torch.cat(out)


@pytest.mark.parametrize("way", ["runs", "padded"])
def test_attention_is_the_textbooks(way):
    layout = Layout.of(LENGTHS)
    ours, theirs = tensors(), tensors()
    if way == "runs":
        out = attention.attend(*ours, layout)
    else:
        out = attention._attend_padded(*ours, layout, None, 0.0)
    expected = textbook(*theirs)
    torch.testing.assert_close(out, expected)
    torch.manual_seed(1)
    direction = torch.randn_like(out)
    (out * direction).sum().backward()
    (expected * direction).sum().backward()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a.grad, b.grad)


def test_half_precision_on_a_cpu_rounds_only_what_goes_in_and_out():
    half = tensors(torch.bfloat16)
    exact = [x.detach().double().requires_grad_() for x in half]
    out, expected = attention.attend(*half, Layout.of(LENGTHS)), textbook(*exact)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out.double(), expected, rtol=2**-8, atol=1e-6)
    out.sum().backward()
    expected.sum().backward()
    for a, b in zip(half, exact, strict=True):
        assert a.grad.dtype == torch.bfloat16
        torch.testing.assert_close(a.grad.double(), b.grad, rtol=2**-7, atol=0.01)


def test_bias_and_its_gradient():
    layout = Layout.of(LENGTHS)
    bias = torch.randn(len(LENGTHS), 2, 5, 5, dtype=torch.float64, requires_grad=True)
    other = bias.detach().clone().requires_grad_()
    out, expected = attention.attend(*tensors(), layout, bias=bias), textbook(*tensors(), other)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    expected.square().sum().backward()
    assert torch.isfinite(bias.grad).all()
    torch.testing.assert_close(bias.grad, other.grad)


@pytest.mark.long
def test_attention_dropout_keeps_the_mean():
    q, k, v = tensors(torch.float32, requires_grad=False)
    layout = Layout.of(LENGTHS)
    torch.manual_seed(3)
    draws = torch.stack([attention.attend(q, k, v, layout, dropout=0.5) for _ in range(2000)])
    assert not torch.equal(draws[0], draws[1])
    assert (draws.mean(0) - attention.attend(q, k, v, layout)).abs().max() < 0.2


def test_the_cpu_operator_keeps_its_promises():
    """torch's own checker: the fake tensors, the autograd formula and the schema agree with what it does."""
    q, k, v = tensors(torch.float32)
    found = torch.library.opcheck(torch.ops.litebert.attend_runs.default, (q, k, v, Layout.of(LENGTHS).starts))
    assert len(found) >= 4 and set(found.values()) == {"SUCCESS"}, found


def test_runs_are_views_of_equally_long_neighbours():
    runs = attention._runs(Layout.of(LENGTHS).starts)
    assert [(run.start, run.count, run.length) for run in runs] == [(0, 1, 3), (3, 2, 1), (5, 2, 5), (15, 1, 2)]
    x = torch.arange(17.0)[:, None]
    assert runs[2].view(x).data_ptr() == x[5:].data_ptr()


def test_pad_and_unpad():
    layout = Layout.of(LENGTHS)
    x = torch.randn(17, 3)
    rows = attention.pad(x, layout)
    assert rows.shape == (7, 5, 3)
    assert torch.equal(attention.unpad(rows, layout), x)
    assert rows[0, 3:].abs().sum() == 0 and rows[3].abs().sum() == 0


@pytest.mark.parametrize("capability,new_enough", [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_older_gpus_have_no_flash_attention_and_compiled_code_knows(monkeypatch, capability, new_enough):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)
    torch.compiler.reset()
    ask = torch.compile(lambda x: x + 1 if attention.has_flash() else x, fullgraph=True, backend="eager")
    assert ask(torch.zeros(1)).item() == new_enough
    half = SimpleNamespace(is_cuda=True, dtype=torch.float16, device=torch.device("cuda"))
    monkeypatch.setattr(attention, "_attend_flash", lambda *_: "flash")
    monkeypatch.setattr(attention, "_attend_padded", lambda *_: "padded")
    assert attention.attend(half, half, half, Layout.of(LENGTHS)) == ("flash" if new_enough else "padded")


def test_dropout_on_a_cpu_pads_in_groups_and_changes_nothing_else():
    """With next to no dropout the groups must give what the exact kernel gives, empty sequences included."""
    torch.manual_seed(0)
    lengths = [9, 9, 8, 3, 0, 1, 2, 17, 0]
    layout = Layout.of(lengths)
    q, k, v = (torch.randn(sum(lengths), 2, 4, requires_grad=True) for _ in range(3))
    exact = attention.attend(q, k, v, layout)
    grouped = attention.attend(q, k, v, layout, dropout=1e-9)
    torch.testing.assert_close(grouped, exact)
    expected = torch.autograd.grad(exact.square().sum(), (q, k, v))
    for got, wanted in zip(torch.autograd.grad(grouped.square().sum(), (q, k, v)), expected, strict=True):
        torch.testing.assert_close(got, wanted)
