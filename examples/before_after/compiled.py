"""torch.compile: chains of pointwise, norm and cast kernels become one kernel each.

What it teaches: what is gained is the bytes between those kernels and their launches; matrix products stay as
they are, so a step of large products gains little.

    python examples/before_after/compiled.py
"""

from functools import partial

import torch
import torch.nn.functional as F
from steps import BF16, DEVICE, compare, convnet, gpt, mlp, training, with_tf32

import profkit


def chain(compiled=False):
    """Thirty pointwise operators over 128 MiB."""
    x = torch.randn(32 << 20, device=DEVICE)

    def body(y):
        for _ in range(10):
            y = torch.tanh(y * 1.01 + 0.5)
        return y

    run = torch.compile(body) if compiled else body

    def step():
        with profkit.phase("forward"), torch.no_grad():
            return run(x)

    return step


def norm_chain(compiled=False):
    """Layer norm, GELU, dropout and a residual, forward and backward."""
    torch.manual_seed(0)
    norms = torch.nn.ModuleList(torch.nn.LayerNorm(2048) for _ in range(4)).to(DEVICE)
    x = torch.randn(8192, 2048, device=DEVICE, requires_grad=True)

    def body(y):
        for norm in norms:
            y = y + F.dropout(F.gelu(norm(y)), 0.1)
        return y.square().mean()

    run = torch.compile(body) if compiled else body
    return training(lambda: run(x), torch.optim.SGD(norms.parameters(), lr=0.1))


amp = partial(gpt, amp=BF16)
short = partial(gpt, batch=2, length=128, amp=BF16)
PAIRS = {
    "compile_gpt_bf16": (amp, partial(amp, compiled=True)),
    "compile_gpt_tf32": (with_tf32(gpt), with_tf32(partial(gpt, compiled=True))),
    "compile_gpt_short": (short, partial(short, compiled=True)),
    "compile_chain": (chain, partial(chain, compiled=True)),
    "compile_norm_chain": (norm_chain, partial(norm_chain, compiled=True)),
    "compile_convnet": (
        partial(convnet, amp=BF16, channels_last=True),
        partial(convnet, amp=BF16, channels_last=True, compiled=True),
    ),
    "compile_wide_mlp": (
        partial(mlp, batch=8192, width=4096, layers=4, amp=BF16),
        partial(mlp, batch=8192, width=4096, layers=4, amp=BF16, compiled=True),
    ),
}

if __name__ == "__main__":
    compare(PAIRS)
