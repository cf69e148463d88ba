"""On a GPU: packed attention equals padded, bf16 is as near to fp32 as the reference is, compiled equals eager."""

from dataclasses import replace

import pytest
import torch

from litebert.checkpoints.folder import load_model, save_model
from litebert.nn import attention
from litebert.nn.config import family_config, preset_config
from litebert.nn.layout import Layout
from litebert.nn.network import pretraining_network

pytestmark = pytest.mark.gpu
LENGTHS = [1, 2, 17, 512, 64, 64, 3]


def error(x: torch.Tensor, reference: torch.Tensor) -> float:
    return ((x.double() - reference.double()).norm() / reference.double().norm()).item()


def filled_up(lengths: list[int], count: int) -> Layout:
    """The layout of fixed shapes that training has: empty sequences up to a count, and a bound of 512."""
    return replace(Layout.of([*lengths, *[0] * (count - len(lengths))], "cuda"), longest=512)


def attention_inputs(dtype, grad=True):
    torch.manual_seed(0)
    return [torch.randn(sum(LENGTHS), 12, 64, device="cuda").to(dtype).requires_grad_(grad) for _ in range(3)]


def test_packed_attention_equals_padded():
    layout = Layout.of(LENGTHS, "cuda")
    exact = [x.detach().double().requires_grad_() for x in attention_inputs(torch.bfloat16)]
    packed, padded = attention_inputs(torch.bfloat16), attention_inputs(torch.bfloat16)
    torch.manual_seed(1)
    direction = torch.randn(sum(LENGTHS), 12, 64, device="cuda", dtype=torch.bfloat16)
    outs = []
    for run, inputs in (
        (lambda *x: attention._attend_padded(*x, layout, None, 0.0), exact),
        (lambda *x: attention.attend(*x, layout), packed),
        (lambda *x: attention._attend_padded(*x, layout, None, 0.0), padded),
    ):
        outs.append(run(*inputs))
        (outs[-1] * direction).sum().backward()
    assert error(outs[1], outs[0]) < 1.1 * error(outs[2], outs[0]) + 1e-4
    for e, a, b in zip(exact, packed, padded, strict=True):
        assert error(a.grad, e.grad) < 1.1 * error(b.grad, e.grad) + 1e-4


@pytest.mark.parametrize(("heads", "size"), [(12, 64), (4, 32), (2, 128)])
def test_own_kernels_are_as_near_to_fp64_as_flash_is(heads, size):
    """Both passes, odd lengths, empty sequences; whatever was in memory before."""
    if not attention.has_own_kernels():
        pytest.skip("no kernels of our own for this GPU")
    layout = filled_up(LENGTHS, 12)
    torch.manual_seed(0)
    shape = (sum(LENGTHS), 3, heads, size)
    drawn = torch.randn(shape, device="cuda").bfloat16()
    exact, own, flash = drawn.double().requires_grad_(), drawn.clone().requires_grad_(), drawn.clone().requires_grad_()
    direction = torch.randn(shape[0], heads, size, device="cuda", dtype=torch.bfloat16)
    full = Layout.of(LENGTHS, "cuda")
    wanted = attention._attend_padded(*exact.unbind(1), full, None, 0.0)
    (wanted * direction).sum().backward()
    poison = [torch.full((1 << 24,), float("nan"), device="cuda") for _ in range(8)]
    del poison  # what was not written would be seen
    found, other = attention.attend_together(own, layout), attention.attend(*flash.unbind(1), layout)
    found.backward(direction)
    other.backward(direction)
    assert error(found, wanted) < 1.1 * error(other, wanted) + 1e-4
    for part in range(3):
        assert (
            error(own.grad[:, part], exact.grad[:, part]) < 1.1 * error(flash.grad[:, part], exact.grad[:, part]) + 1e-4
        )
    again = own.detach().clone().requires_grad_()
    attention.attend_together(again, layout).backward(direction)
    assert torch.equal(again.grad, own.grad)  # flash adds up in any order


def test_empty_sequences_change_nothing():
    layout = Layout.of(LENGTHS, "cuda")
    inputs = attention_inputs(torch.bfloat16, grad=False)
    assert torch.equal(attention.attend(*inputs, layout), attention.attend(*inputs, filled_up(LENGTHS, 20)))


def test_attention_dropout_keeps_the_mean_and_has_gradients():
    layout = Layout.of([17, 64], "cuda")
    torch.manual_seed(0)
    q, k, v = (torch.randn(81, 4, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
    draws = torch.stack([attention.attend(q, k, v, layout, dropout=0.3).detach() for _ in range(400)]).float()
    assert not torch.equal(draws[0], draws[1])
    assert error(draws.mean(0), attention.attend(q, k, v, layout)) < 0.1
    attention.attend(q, k, v, layout, dropout=0.3).sum().backward()
    assert all(torch.isfinite(x.grad).all() and x.grad.abs().sum() > 0 for x in (q, k, v))


@pytest.mark.parametrize("preset", ["albert-base-v2", "bert-base"])
def test_bf16_is_no_further_from_fp32_than_transformers_is(preset, tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    save_model(tmp_path / "m", pretraining_network(preset_config(preset)), None, verb="test")
    ours = load_model(tmp_path / "m", device="cuda").network.encoder
    theirs = transformers.AutoModel.from_pretrained(tmp_path / "m").cuda().eval()
    ids = [torch.randint(5, 30000, (n,), device="cuda") for n in LENGTHS]
    layout = Layout.of(LENGTHS, "cuda")

    def each(model):
        return torch.cat([model(one[None]).last_hidden_state[0] for one in ids])

    with torch.no_grad():
        exact = ours(torch.cat(ids), layout)
        assert error(each(theirs), exact) < 1e-5
        ours.bfloat16()
        theirs.bfloat16()
        assert error(ours(torch.cat(ids), layout), exact) < 1.05 * error(each(theirs), exact)


def training_gradients(net, encoder, ids, layout, dtype):
    places = torch.arange(0, ids.shape[0], 7, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        states = encoder(ids, layout)
        loss = net.masked_lm(states, places).float().logsumexp(-1).mean()
        loss = loss + net.heads["order"](net.pooled(states, layout)).float().square().mean()
    loss.backward()
    grads = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    net.zero_grad(set_to_none=True)
    return grads


@pytest.mark.parametrize("family", ["albert", "bert", "roberta", "distilbert", "xlnet"])
def test_compiled_equals_eager_in_fp32(family):
    """Compiled once: as many tokens and sequences, and one bound on their length. ALBERT's layer runs twice."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 500, "width": 128, "num_heads": 2, "feed_forward_width": 256}
    sizes |= {"num_layers": 2, "embedding_width": 64} if family == "albert" else {"num_layers": 1}
    still = {"dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    net = pretraining_network(family_config({"family": family, **sizes, **still})).cuda()
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(net.encoder, fullgraph=True)
    for lengths in ([30, 1, 70], [64, 36, 1]):
        ids = torch.randint(0, 500, (sum(lengths),), device="cuda")
        layout = replace(Layout.of(lengths, "cuda"), longest=70)
        expected = training_gradients(net, net.encoder, ids, layout, torch.float32)
        for name, grad in training_gradients(net, compiled, ids, layout, torch.float32).items():
            assert error(grad, expected[name]) < 1e-3 or expected[name].norm() < 1e-5, name
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.parametrize("checkpointing", [False, True])
def test_compiled_training_step_in_bf16(checkpointing):
    """The compiled step is as near to fp32 as the eager one; one compilation serves all batches of a budget.

    With checkpointing there is a graph of the embeddings and one that serves every layer.
    """
    torch.manual_seed(0)
    net = pretraining_network(preset_config("albert-base-v2", ["num_layers=4"])).cuda()
    net.encoder.checkpointing = checkpointing
    net.encoder.half_residual()  # as pretraining has it: with an fp32 stream the first layer's input has another type
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(net.encoder, fullgraph=not checkpointing)
    for lengths in ([512, 300, 212], [128] * 8, [1, 1023 - 512, 512]):
        ids = torch.randint(0, 30000, (1024,), device="cuda")
        layout = filled_up(lengths, 16)
        exact = training_gradients(net, net.encoder, ids, layout, torch.float32)
        eager = training_gradients(net, net.encoder, ids, layout, torch.bfloat16)
        fast = training_gradients(net, compiled, ids, layout, torch.bfloat16)
        together = [torch.cat([grads[name].flatten() for name in exact]) for grads in (exact, eager, fast)]
        assert error(together[2], together[0]) < 1.1 * error(together[1], together[0]) + 1e-3
        for name in exact:
            assert error(fast[name], exact[name]) < 2 * error(eager[name], exact[name]) + 2e-3, name
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == (2 if checkpointing else 1)


def test_a_compiled_step_with_checkpointing_takes_no_more_memory_than_an_eager_one():
    """Compiled as one graph, a model with shared blocks would take twice as much."""
    torch.manual_seed(0)
    net = pretraining_network(preset_config("albert-base-v2", ["vocab_size=1000"])).cuda()
    net.encoder.checkpointing = True
    torch._dynamo.reset()
    ids, layout = torch.randint(0, 1000, (8192,), device="cuda"), Layout.of([512] * 16, "cuda")
    peaks = []
    for encoder in (net.encoder, torch.compile(net.encoder)):
        for _ in range(2):
            torch.cuda.reset_peak_memory_stats()
            training_gradients(net, encoder, ids, layout, torch.bfloat16)
        peaks.append(torch.cuda.max_memory_allocated())
    assert peaks[1] < 1.1 * peaks[0]
