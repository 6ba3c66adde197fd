"""Training steps that the pairs of this folder share, and how both sides of a pair are timed.

A builder returns a step: a function that runs one training step. `compare` times both sides as a training loop
runs, without a wait in every step, and takes the median of several loops.
"""

import math
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import profkit

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
BF16 = torch.bfloat16


class Block(nn.Module):
    """A transformer layer; ``naive`` writes the scores of its attention to memory."""

    def __init__(self, width, heads, naive):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.naive = heads, naive

    def attend(self, q, k, v):
        if not self.naive:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        length = q.shape[-2]
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        mask = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
        return scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v

    def forward(self, x):
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.qkv(self.norm1(x)).view(shape).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v).transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    """A small language model."""

    def __init__(self, width, layers, heads, vocab, naive, checkpointed):
        super().__init__()
        self.embedding = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads, naive) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
        self.checkpointed = checkpointed

    def forward(self, ids):
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(self.norm(x))


def adamw(parameters, **options):
    return torch.optim.AdamW(parameters, lr=1e-4, **options)


def gpt(  # noqa: PLR0913 - a step has as many options
    *, batch=16, length=512, width=1024, layers=2, vocab=8192, amp=None, naive=False, checkpointed=False,
    compiled=False, optimizer=adamw, set_to_none=True,
):  # fmt: skip
    """A step of language modelling, on one batch that stays on the device."""
    torch.manual_seed(0)
    model = GPT(width, layers, max(width // 64, 1), vocab, naive, checkpointed).to(DEVICE)
    if compiled:
        model.compile()
    ids = torch.randint(0, min(vocab, 8192), (batch, length + 1), device=DEVICE)

    def loss_of():
        with torch.autocast(DEVICE, dtype=amp or BF16, enabled=amp is not None):
            logits = model(ids[:, :-1])
            return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())

    return training(loss_of, optimizer(model.parameters()), set_to_none=set_to_none)


def mlp(  # noqa: PLR0913
    *, batch=32, width=64, layers=20, dtype=torch.float32, amp=None, compiled=False, optimizer=adamw
):  # fmt: skip
    """A step of a plain network of linear layers."""
    torch.manual_seed(0)
    model = nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.ReLU())])
    model = model.to(DEVICE, dtype)
    if compiled:
        # model.compile() leaves a Sequential of torch's own layers as it is.
        model = torch.compile(model)
    x = torch.randn(batch, width, device=DEVICE, dtype=dtype)

    def loss_of():
        with torch.autocast(DEVICE, dtype=amp or BF16, enabled=amp is not None):
            return model(x).float().square().mean()

    return training(loss_of, optimizer(model.parameters()))


def convnet(*, batch=64, size=112, amp=None, channels_last=False, compiled=False):
    """A step of image classification."""
    torch.manual_seed(0)
    layers, channels = [], 3
    for width, stride in ((64, 2), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        layers += [nn.Conv2d(channels, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)).to(
        DEVICE
    )
    x, y = torch.randn(batch, 3, size, size, device=DEVICE), torch.randint(0, 1000, (batch,), device=DEVICE)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    if compiled:
        model = torch.compile(model)

    def loss_of():
        with torch.autocast(DEVICE, dtype=amp or BF16, enabled=amp is not None):
            return F.cross_entropy(model(x).float(), y)

    return training(loss_of, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


def training(loss_of, optimizer, *, set_to_none=True):
    """The step around a loss: forward, backward, optimizer."""

    def step():
        with profkit.phase("forward"):
            loss = loss_of()
        with profkit.phase("backward"):
            loss.backward()
        with profkit.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad(set_to_none=set_to_none)
        return loss

    return step


def needs_gpus(count=1):
    """End with one line where there are fewer GPUs."""
    found = torch.cuda.device_count()
    if found < count:
        sys.exit(
            f"this example needs {count} GPU{'s' * (count > 1)}, and there {'is' if found == 1 else 'are'} {found}"
        )


def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def timed(step, *, warmup=5, loops=7, least_s=0.05, steps=None):
    """Milliseconds of one step, the median of several loops, and all of them.

    ``steps`` is how many a loop has; without it, as many as take ``least_s``. Ranks that wait for each other must all
    make equally many.
    """
    for _ in range(warmup):
        step()
    wait()
    if steps is None:
        start = time.perf_counter()
        step()
        wait()
        steps = max(3, math.ceil(least_s / (time.perf_counter() - start)))
    each = []
    for _ in range(loops):
        start = time.perf_counter()
        for _ in range(steps):
            step()
        wait()
        each.append((time.perf_counter() - start) / steps * 1e3)
    return statistics.median(each), each


def compare(pairs):
    """Print the time of both sides of every pair."""
    for name, (before, after) in pairs.items():
        defaults()
        was, _ = timed(before())
        defaults()
        now, _ = timed(after())
        print(f"{name:28} {was:9.2f} ms -> {now:9.2f} ms   {was / now:5.2f}x")


def defaults():
    """What torch starts with."""
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.benchmark = False
    torch.compiler.reset()


def with_tf32(build):
    """The same step, with matrix products of fp32 on Tensor Cores."""

    def built():
        torch.set_float32_matmul_precision("high")
        return build()

    return built


def graphed(build):
    """The same step, captured once and replayed: the host launches one graph instead of every kernel."""

    def built():
        step = build()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()

        def replayed(kept=step):
            # The graph reads and writes the tensors of the step: they must live as long as it does.
            graph.replay()

        return replayed

    return built
