"""What `torch.utils.checkpoint` costs the host beyond the second forward: ``python checkpoint_hooks.py``.

Layers of two kinds with tiny inputs, so that dispatching operators is most of the work, on one core. Prints the
time of their forward, and what the hooks take beside it as a multiple: the models of torchvision that are named in
profkit/simulation/fit_changes.py took 1.6 to 2.7, these bare layers 4.5 (convolutions) and 1.4 (encoders).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

ROUNDS = 8


def bottleneck() -> nn.Module:
    def unit(side: int) -> list[nn.Module]:
        return [nn.Conv2d(16, 16, side, padding=side // 2, bias=False), nn.BatchNorm2d(16), nn.ReLU()]

    return nn.Sequential(*unit(1), *unit(3), *unit(1))


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)


def best_ns(run: Callable[[], object]) -> int:
    found = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        run()
        found.append(time.process_time_ns() - began)
    return min(found)


def measured(make: Callable[[], nn.Module], inputs: torch.Tensor, count: int = 16) -> tuple[int, float]:
    """The forward of the layers, and the time of the hooks as a multiple of it."""
    layers = [make().train() for _ in range(count)]

    def forward(again: bool = False) -> torch.Tensor:
        result = inputs
        for layer in layers:
            result = checkpoint(layer, result, use_reentrant=False) if again else layer(result)
        return result.sum()

    forward_ns = best_ns(forward)
    plain, again = (best_ns(lambda run=run: run().backward()) for run in (forward, partial(forward, True)))
    return forward_ns, (again - plain - forward_ns) / forward_ns


def main() -> None:
    torch.set_num_threads(1)
    for name, make, inputs in (
        ("bottleneck", bottleneck, torch.randn(2, 16, 4, 4)),
        ("encoder", encoder, torch.randn(2, 8, 64)),
    ):
        forward_ns, times = measured(make, inputs)
        print(f"{name}: 16 layers, forward {forward_ns / 1e6:.1f} ms, hooks {times:.1f} times that")


if __name__ == "__main__":
    main()
