"""Pinned memory and non_blocking copies: the next batch arrives while this one is computed.

What it teaches: a copy from pageable memory holds the host and the stream up; from pinned memory on a side stream
it costs nothing, as long as the step is longer than the copy.

    python examples/before_after/pinned_copies.py
"""

import torch
from steps import DEVICE, compare, needs_gpus
from torch import nn

import profkit

ROWS, WIDTH = 8192, 2048


def _model():
    torch.manual_seed(0)
    return nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(12)]).to(DEVICE, torch.bfloat16)


def pageable():
    model, batch = _model(), torch.randn(ROWS, WIDTH)

    def step():
        with profkit.phase("upload"):
            x = batch.to(DEVICE)
        with profkit.phase("forward"), torch.no_grad():
            return model(x.bfloat16())

    return step


def prefetched():
    model, batch = _model(), torch.randn(ROWS, WIDTH).pin_memory()
    side, ready = torch.cuda.Stream(), []

    def fetch():
        with torch.cuda.stream(side):
            ready.append(batch.to(DEVICE, non_blocking=True))

    fetch()

    def step():
        torch.cuda.current_stream().wait_stream(side)
        x = ready.pop()
        x.record_stream(torch.cuda.current_stream())
        with profkit.phase("upload"):
            fetch()
        with profkit.phase("forward"), torch.no_grad():
            return model(x.bfloat16())

    return step


PAIRS = {"pinned_prefetch": (pageable, prefetched)}

if __name__ == "__main__":
    needs_gpus()
    compare(PAIRS)
