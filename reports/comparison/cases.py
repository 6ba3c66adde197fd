"""The steps that are compared, and the changes to them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import profkit

Step = Callable[[], Any]
CHANGES = ("none", "planted", "tf32", "compiled", "item", "batch")
"""`planted` is 5 % of the step, spent in a kernel that only waits; `score.py` says what is expected of each."""
MODELS = ("gpt", "convnet")
SIZES = {
    "cuda": {
        "batch": 16,
        "more": 24,
        "length": 512,
        "width": 512,
        "layers": 4,
        "vocabulary": 8192,
        "images": 128,
        "side": 128,
    },
    "cpu": {
        "batch": 8,
        "more": 12,
        "length": 32,
        "width": 64,
        "layers": 2,
        "vocabulary": 256,
        "images": 2,
        "side": 16,
    },
}
"""``batch`` sequences, or so many times ``images``; the bigger batch has ``more``."""


class Block(nn.Module):
    """A transformer layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        heads = self.qkv(self.norm1(x)).view(batch, length, 3, width // 64, 64).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def gpt(device: str, batch: int) -> tuple[nn.Module, Any, Any]:
    """A small language model, tokens, and the tokens that follow."""
    size = SIZES[device]
    layers = [nn.Embedding(size["vocabulary"], size["width"])]
    layers += [Block(size["width"]) for _ in range(size["layers"])]
    layers += [nn.LayerNorm(size["width"]), nn.Linear(size["width"], size["vocabulary"]), nn.Flatten(0, 1)]
    tokens = torch.randint(size["vocabulary"], (batch, size["length"] + 1), device=device)
    return nn.Sequential(*layers).to(device), tokens[:, :-1], tokens[:, 1:].flatten()


def convnet(device: str, batch: int) -> tuple[nn.Module, Any, Any]:
    """Plain layers of convolution, batch norm and ReLU, images, and their classes."""
    size, layers, channels = SIZES[device], [], 3
    images, side = size["images"] * batch // size["batch"], size["side"]
    for width, stride in ((64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    x, y = torch.randn(images, 3, side, side, device=device), torch.randint(1000, (images,), device=device)
    return nn.Sequential(*layers).to(device), x, y


def build(model: str, change: str, device: str, burden: Callable[[], None] | None = None) -> Step:
    """A training step with a change; ``burden`` is what a planted slowdown does."""
    torch.manual_seed(0)
    torch.compiler.reset()
    for switches in (torch.backends.cuda.matmul, torch.backends.cudnn):
        switches.allow_tf32 = change == "tf32"
    batch = SIZES[device]["more" if change == "batch" else "batch"]
    network, x, y = {"gpt": gpt, "convnet": convnet}[model](device, batch)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    if change == "item":
        flag = torch.ones(1, device=device)
        for layer in network:
            layer.register_forward_hook(lambda *_: flag.item() and None)
    if change == "compiled":
        # network.compile() would leave a Sequential of torch's own layers as it is.
        network = torch.compile(network)

    def step() -> Any:
        with profkit.phase("forward"):
            loss = F.cross_entropy(network(x), y)
        if burden is not None:
            burden()
        with profkit.phase("backward"):
            loss.backward()
        with profkit.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        return loss

    return step


def step_s(step: Step, device: str, steps: int = 10) -> float:
    """Seconds of a step in a loop, without a profiler."""

    def wait() -> None:
        if device == "cuda":
            torch.cuda.synchronize()

    for _ in range(5):
        step()
    wait()
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait()
    return (time.perf_counter() - began) / steps


def burden_of(seconds: float, device: str) -> Callable[[], None]:
    """Something that takes so long: a kernel that only waits, or the host's sleep where there is no GPU."""
    if device != "cuda":
        return partial(time.sleep, seconds)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    tried = 20_000_000
    torch.cuda._sleep(tried)
    start.record()
    torch.cuda._sleep(tried)
    end.record()
    end.synchronize()
    return partial(torch.cuda._sleep, round(tried * seconds * 1e3 / start.elapsed_time(end)))
