"""Our own attention kernels without a GPU: Triton's interpreter runs them, in a process of its own."""

import os
import subprocess
import sys

import pytest

pytest.importorskip("triton")

SCRIPT = """
import torch
from litebert.nn import packed_kernels as own
from litebert.nn.attention import _attend_padded
from litebert.nn.layout import Layout

own.FORWARD, own.KEYS, own.QUERIES = (32, 32, 4, 2), (32, 64, 4, 2), (64, 32, 4, 2)
for operator in (own.attend_packed, own.attend_packed_backward):
    operator.register_kernel("cpu")(operator._init_fn)
torch.manual_seed(0)
lengths = [70, 1, 130, 64, 17]
layout = Layout.of(lengths)
for heads, size in ((2, 32), (1, 128)):
    qkv = torch.randn(layout.num_tokens, 3, heads, size, requires_grad=True)
    exact = qkv.detach().double().requires_grad_()
    direction = torch.randn(layout.num_tokens, heads, size)
    found = torch.ops.litebert.attend_packed(qkv, Layout.of([*lengths, 0, 0, 0]).starts, 160)[0]
    wanted = _attend_padded(*exact.unbind(1), layout, None, 0.0)
    found.backward(direction)
    wanted.backward(direction.double())
    assert (found - wanted).abs().max() < 1e-5 and (qkv.grad - exact.grad).abs().max() < 1e-5, size
"""


def test_they_compute_attention_and_its_gradients():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
