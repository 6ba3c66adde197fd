"""What `torch.utils.checkpoint` costs the host beyond the second forward: ``python checkpoint_hooks.py``.

Layers of four kinds and three depths with tiny inputs, so that dispatching operators is most of the work, on one core.
Prints each one's forward and what the hooks take beside it as a multiple, with and without ``use_reentrant``; then what
explains them best: so much for a layer, and so much for a tensor that it keeps.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

ROUNDS = 8
COUNTS = (6, 16)


def units(kind: str) -> list[nn.Module]:
    """The modules of a unit; layers have one, two or four of them."""
    if kind == "convolution":
        return [nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU()]
    if kind == "linear":
        return [nn.Linear(16, 16), nn.GELU()]
    if kind == "norm":
        return [nn.LayerNorm(16), nn.Linear(16, 16), nn.Dropout(0.1)]
    return [nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)]


@dataclass(frozen=True)
class Row:
    """Some layers: how many, the tensors that they keep, their forward, and the hooks in each mode."""

    name: str
    layers: int
    tensors: int
    forward_ns: int
    hooks_ns: dict[bool, int]


def best_ns(run: Callable[[], object]) -> int:
    """The least CPU time of some rounds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time_ns()
        run()
        found.append(time.process_time_ns() - began)
    return min(found)


def forward(layers: Sequence[nn.Module], inputs: torch.Tensor, reentrant: bool | None = None) -> torch.Tensor:
    """All layers, each checkpointed unless ``reentrant`` is None."""
    result = inputs
    for layer in layers:
        result = layer(result) if reentrant is None else checkpoint(layer, result, use_reentrant=reentrant)
    return result.sum()


def kept(layers: Sequence[nn.Module], inputs: torch.Tensor) -> int:
    """How many tensors the layers keep for backward."""
    found: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        found.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        forward(layers, inputs)
    return len(found)


def measured(kind: str, depth: int, count: int) -> Row:
    """One row."""
    layers = [nn.Sequential(*(m for _ in range(depth) for m in units(kind))).train() for _ in range(count)]
    shape = (2, 8, 4, 4) if kind == "convolution" else (2, 4, 16)
    inputs = torch.randn(shape, requires_grad=True)
    run = partial(forward, layers, inputs)
    alone, plain = best_ns(run), best_ns(lambda: run().backward())
    hooks = {mode: best_ns(lambda mode=mode: run(mode).backward()) - plain - alone for mode in (False, True)}
    return Row(f"{depth} x {kind}", count, kept(layers, inputs), alone, hooks)


def main() -> None:
    """Print the table and the fits."""
    torch.set_num_threads(1)
    kinds = ("convolution", "linear", "norm", "encoder")
    rows = [measured(*each) for each in itertools.product(kinds, (1, 2, 4), COUNTS)]
    for row in rows:
        plain, reentrant = (row.hooks_ns[mode] / row.forward_ns for mode in (False, True))
        print(
            f"{row.layers} layers of {row.name}, {row.tensors} tensors: forward {row.forward_ns / 1e6:.1f} ms, hooks "
            f"{plain:.1f} times that, reentrant {reentrant:.1f}"
        )
    for mode in (False, True):
        told = np.array([[row.layers, row.tensors] for row in rows], float)
        taken = np.array([row.hooks_ns[mode] for row in rows], float)
        near = np.maximum(np.abs(taken), 1.0)[:, None]
        (layer, tensor), *_ = np.linalg.lstsq(told / near, taken / near[:, 0], rcond=None)
        print(f"use_reentrant={mode}: {layer / 1e3:.0f} us a layer and {tensor / 1e3:.0f} us a tensor")


if __name__ == "__main__":
    main()
