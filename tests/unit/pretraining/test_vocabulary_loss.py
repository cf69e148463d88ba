"""The loss over the vocabulary in chunks is the plain cross entropy, its gradients too."""

import pytest
import torch
import torch.nn.functional as F

from litebert.pretraining.vocabulary_loss import IGNORED, vocabulary_loss


def tensors(dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    states, table, bias = (
        torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for shape in ((37, 8), (50, 8), (50,))
    )
    targets = torch.randint(50, (37,), generator=generator)
    targets[1::5] = F.linear(states, table, bias)[1::5].argmax(-1)  # some are right
    targets[::5] = IGNORED
    return states, table, bias, targets


def plain(states, table, bias, targets):
    logits = F.linear(states, table, bias)
    loss = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="sum")
    return loss, (logits.argmax(-1) == targets).sum()


@pytest.mark.parametrize("chunk", [1, 5, 37, 4096])
def test_equals_cross_entropy(chunk):
    ours, theirs = tensors(), tensors()
    part = vocabulary_loss(*ours, chunk)
    loss, right = plain(*theirs)
    (0.25 * part.loss).backward()
    (0.25 * loss).backward()
    torch.testing.assert_close(part.loss, loss)
    assert part.right == right > 0
    for mine, other in zip(ours[:3], theirs[:3], strict=True):
        torch.testing.assert_close(mine.grad, other.grad, rtol=1e-5, atol=1e-6)


def test_large_logits_stay_finite():
    states, table, bias, targets = tensors()
    part = vocabulary_loss(states * 1e4, table, bias, targets, 8)
    part.loss.backward()
    assert part.loss.isfinite() and states.grad is not None and states.grad.isfinite().all()


def test_positions_that_do_not_count_learn_nothing():
    states, table, bias, targets = tensors()
    vocabulary_loss(states, table, bias, targets, 8).loss.backward()
    assert not states.grad[targets == IGNORED].any() and states.grad[targets != IGNORED].any()


def test_bf16_products_are_as_near_as_autocast():
    exact = tensors()
    loss, _ = plain(*exact)
    loss.backward()
    found = {}
    for name, way in (("ours", lambda *given: vocabulary_loss(*given, 8).loss), ("theirs", lambda *g: plain(*g)[0])):
        given = tensors()
        with torch.autocast("cpu", torch.bfloat16):
            lost = way(*given)
        lost.float().backward()
        off = [
            (mine.grad - true.grad).norm() / true.grad.norm() for mine, true in zip(given[:3], exact[:3], strict=True)
        ]
        found[name] = max(off)
    assert 0 < found["ours"] <= 1.5 * found["theirs"]


def test_nothing_is_kept_where_nothing_learns():
    with torch.no_grad():
        part = vocabulary_loss(*tensors(), 8)
    torch.testing.assert_close(part.loss, plain(*tensors())[0].detach())
    assert not part.loss.requires_grad
