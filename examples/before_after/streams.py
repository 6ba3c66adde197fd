"""Streams: two independent branches at the same time.

What it teaches: branches whose kernels fill a part of the GPU overlap on two streams; large ones gain nothing, since
one kernel already fills it. A side stream must wait for what it reads, and be waited for.

    python examples/before_after/streams.py
"""

from functools import partial

import torch
from steps import BF16, DEVICE, compare, needs_gpus
from torch import nn

import profkit


def branches(width, rows, overlapped):
    """Two chains of products over the same input, then their sum."""
    torch.manual_seed(0)
    left, right = (
        nn.Sequential(*[nn.Linear(width, width) for _ in range(8)]).to(DEVICE, BF16) for _ in range(2)
    )
    x = torch.randn(rows, width, device=DEVICE, dtype=BF16)
    side = torch.cuda.Stream() if overlapped else None

    def step():
        with profkit.phase("forward"), torch.no_grad():
            if side is None:
                return left(x) + right(x)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                b = right(x)
            a = left(x)
            torch.cuda.current_stream().wait_stream(side)
            b.record_stream(torch.cuda.current_stream())
            return a + b

    return step


PAIRS = {
    "streams_small": (partial(branches, 2048, 256, False), partial(branches, 2048, 256, True)),
    "streams_large": (partial(branches, 8192, 8192, False), partial(branches, 8192, 8192, True)),
}

if __name__ == "__main__":
    needs_gpus()
    compare(PAIRS)
