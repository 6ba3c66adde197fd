"""Hidden waits: `.item()`, and `empty_cache()` in the loop.

What it teaches: a wait costs what the device then stands idle, and what asking takes of the host: where the host waits
once for milliseconds of work, taking `.item()` out brings nothing; where it asks after every small layer, a third.

    python examples/before_after/syncs.py
"""

from functools import partial

import torch
from steps import BF16, DEVICE, adamw, compare, gpt
from torch import nn

import profkit


def logged(width, rows, layers, watch):
    """Inference that looks at every layer's mean, or at none."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(layers)]).to(DEVICE, BF16)
    x = torch.randn(rows, width, device=DEVICE, dtype=BF16)

    def step():
        seen = []
        with profkit.phase("forward"), torch.no_grad():
            h = x
            for layer in model:
                h = layer(h)
                mean = h.mean()
                seen.append(mean.item() if watch else mean)
        return seen

    return step


def churned(watch):
    build = gpt(batch=4, amp=BF16, optimizer=partial(adamw, fused=True))

    def step():
        loss = build()
        if watch:
            torch.cuda.empty_cache()
        return loss

    return step


PAIRS = {
    "item_host_bound": (partial(logged, 512, 256, 12, True), partial(logged, 512, 256, 12, False)),
    "item_gpu_bound": (partial(logged, 8192, 4096, 6, True), partial(logged, 8192, 4096, 6, False)),
    "empty_cache": (partial(churned, True), partial(churned, False)),
}

if __name__ == "__main__":
    compare(PAIRS)
