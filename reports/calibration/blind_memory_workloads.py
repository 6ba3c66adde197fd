"""More steps that nothing was ever tuned on: norms, losses, pointwise, copies, indices, optimizers, compiled code.

On the CPU, where a test runs the few that the meta device cannot, `size` makes them tiny.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from blind_workloads import blind
from workloads import BF16, FP16, Phase, Step, forward, randn, train


def size(device: str, full: int, tiny: int) -> int:
    return tiny if device == "cpu" else full


# Norms, softmax, losses.


def layer_norm(device: str, rows: int, width: int, dtype: torch.dtype) -> Step:
    x = randn(device, rows, width, dtype=dtype)
    w, b = randn(device, width, dtype=dtype), randn(device, width, dtype=dtype)
    return train(lambda: F.layer_norm(x, (width,), w, b), x, w, b)


@blind("norm", "memory")
def layer_norm_4096_fp16(device):
    """Layer norm of 16384 rows of 4096, with gradients."""
    return layer_norm(device, 16384, 4096, FP16)


@blind("norm", "memory")
def layer_norm_768_bf16(device):
    """Layer norm of 65536 rows of 768, with gradients."""
    return layer_norm(device, 65536, 768, BF16)


@blind("norm", "memory")
def batch_norm_wide_nhwc_bf16(device):
    """Batch norm of 256 channels in training, channels last, bf16."""
    x = randn(device, 32, 256, 56, 56, dtype=BF16).to(memory_format=torch.channels_last)
    w, b, mean, var = (torch.ones(256, device=device) for _ in range(4))
    return train(lambda: F.batch_norm(x, mean, var, w, b, training=True), x, w, b)


@blind("norm", "memory")
def group_norm_nhwc_bf16(device):
    """Group norm of 32 groups of a diffusion model's block, channels last."""
    x = randn(device, 16, 320, 64, 64, dtype=BF16).to(memory_format=torch.channels_last)
    w, b = randn(device, 320, dtype=BF16), randn(device, 320, dtype=BF16)
    return train(lambda: F.group_norm(x, 32, w, b), x, w, b)


@blind("norm", "memory")
def rms_norm_by_hand_bf16(device):
    """RMS norm written out in fp32 with casts, as language models have it, with gradients."""
    x, w = randn(device, 8192, 5120, dtype=BF16), randn(device, 5120, dtype=BF16)

    def call() -> torch.Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(BF16) * w

    return train(call, x, w)


@blind("softmax", "memory")
def cross_entropy_128k_bf16(device):
    """Cross entropy over a vocabulary of 128256, logits cast to fp32 first."""
    x = randn(device, 2048, 128256, dtype=BF16)
    y = torch.randint(0, 128256, (2048,), device=device)
    return train(lambda: F.cross_entropy(x.float(), y), x)


@blind("softmax", "memory")
def softmax_masked_fp16(device):
    """Scores of 1024 x 1024 masked, then softmax, with gradient."""
    x = randn(device, 8, 16, 1024, 1024, dtype=FP16)
    future = torch.ones(1024, 1024, dtype=torch.bool, device=device).triu(1)
    return train(lambda: x.masked_fill(future, float("-inf")).softmax(-1), x)


# Pointwise, copies, reductions, indices.


@blind("elementwise", "memory")
def casts_and_broadcasts(device):
    """Rows, columns and casts against a bf16 matrix: what mixed precision does by hand."""
    x = randn(device, 8192, 8192, dtype=BF16)
    row, column = randn(device, 8192), randn(device, 8192, 1, dtype=BF16)
    return forward(lambda: (x * row, x.float() - column, (x + column).to(FP16), torch.where(x > 0, x, row)))


@blind("elementwise", "memory")
def swiglu_bf16(device):
    """SwiGLU over the two halves of one projection, with gradient: strided reads."""
    both = randn(device, 16384, 2 * 5632, dtype=BF16)

    def call() -> torch.Tensor:
        gate, up = both.chunk(2, -1)
        return F.silu(gate) * up

    return train(call, both)


@blind("elementwise", "memory")
def dropout_residual_bf16(device):
    """A bias, dropout and a residual, with gradients."""
    x, residual, bias = (
        randn(device, 16384, 4096, dtype=BF16),
        randn(device, 16384, 4096, dtype=BF16),
        randn(device, 4096, dtype=BF16),
    )
    return train(lambda: residual + F.dropout(x + bias, 0.1, training=True), x, residual, bias)


@blind("copy", "memory")
def heads_and_concatenations_bf16(device):
    """Heads apart and together again, keys appended to a cache, a batch stacked."""
    x = randn(device, 16, 2048, 32, 128, dtype=BF16)
    new = randn(device, 16, 256, 32, 128, dtype=BF16)
    return forward(lambda: (x.permute(0, 2, 1, 3).contiguous(), torch.cat((x, new), 1), torch.stack((x, x))))


@blind("reduction", "memory")
def scans_and_choices(device):
    """A cumulative sum along rows, and of a language model's logits the largest and the 50 largest."""
    x, logits = randn(device, 8192, 16384), randn(device, 256, 128256, dtype=BF16)
    return forward(lambda: (x.cumsum(-1), logits.argmax(-1), logits.topk(50)))


@blind("index", "memory")
def embedding_128k_bf16(device):
    """16384 tokens of a table of 128256 x 2048, with the dense gradient."""
    table = randn(device, 128256, 2048, dtype=BF16)
    ids = torch.randint(0, 128256, (16384,), device=device)
    return train(lambda: F.embedding(ids, table), table)


@blind("index", "memory")
def messages_of_a_graph_fp32(device):
    """A graph's layer: rows of a million edges gathered from 200000 nodes, and added up where they end."""
    nodes = randn(device, 200_000, 64)
    start, end = (torch.randint(0, 200_000, (1 << 20,), device=device) for _ in range(2))

    def call() -> Any:
        messages = nodes.index_select(0, start)
        return torch.zeros_like(nodes).scatter_add_(0, end[:, None].expand(-1, 64), messages)

    return forward(call)


# Optimizers and compiled code.


def mixed_update(device: str, **options: Any) -> Step:
    """AdamW over matrices, a table and many vectors of a small language model's sizes."""
    width = size(device, 4096, 8)
    shapes = [(width, width)] * 3 + [(size(device, 11008, 16), width)] * 2 + [(width,)] * 24
    parameters = [torch.nn.Parameter(randn(device, *shape)) for shape in shapes]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, **options)

    def step(phase: Phase) -> Any:
        with phase("optimizer"):
            optimizer.step()

    return step


@blind("optimizer", "memory")
def adamw_fused_mixed(device):
    """Fused AdamW over parameters of mixed sizes."""
    return mixed_update(device, fused=True)


@blind("optimizer", "memory")
def adamw_foreach_mixed(device):
    """AdamW by foreach kernels over parameters of mixed sizes."""
    return mixed_update(device, foreach=True)


@blind("compiled", "compute")
def compiled_mlp_bf16(device):
    """A compiled feed-forward block with SwiGLU and a residual, forward and backward: matrix products lead."""
    tokens, width = size(device, 8192, 8), size(device, 2048, 16)
    x = randn(device, tokens, width, dtype=BF16)
    up = randn(device, 2 * width, width, dtype=BF16) * 0.02
    gate = randn(device, 2 * width, width, dtype=BF16) * 0.02
    down = randn(device, width, 2 * width, dtype=BF16) * 0.02

    def block(a: Any, g: Any, u: Any, d: Any) -> Any:
        return a + F.linear(F.silu(F.linear(a, g)) * F.linear(a, u), d)

    compiled = torch.compile(block)
    return train(lambda: compiled(x, gate, up, down), x, gate, up, down)


@blind("compiled", "memory")
def compiled_norm_gelu_dropout_fp16(device):
    """Layer norm, GELU and dropout fused by torch.compile, forward and backward."""
    rows, width = size(device, 16384, 8), size(device, 2048, 16)
    x, w, b = (
        randn(device, rows, width, dtype=FP16),
        randn(device, width, dtype=FP16),
        randn(device, width, dtype=FP16),
    )
    chain = torch.compile(lambda a, c, d: F.dropout(F.gelu(F.layer_norm(a, (width,), c, d)), 0.1))
    return train(lambda: chain(x, w, b), x, w, b)
