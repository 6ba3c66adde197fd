"""Steps of kernels that only move data: norms, softmax, pointwise, reductions, indices, optimizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from workloads import BF16, FP16, FP32, Phase, Step, forward, randn, train, workload

# Norms.


@workload("norm", "memory")
def layer_norm_bf16(device):
    """Layer norm of 32768 rows of 2048, with gradients."""
    x, w, b = (
        randn(device, 32768, 2048, dtype=BF16),
        randn(device, 2048, dtype=BF16),
        randn(device, 2048, dtype=BF16),
    )
    return train(lambda: F.layer_norm(x, (2048,), w, b), x, w, b)


@workload("norm", "memory")
def layer_norm_short_fp32(device):
    """Layer norm of many short rows in fp32."""
    x, w, b = randn(device, 1 << 18, 256), randn(device, 256), randn(device, 256)
    return train(lambda: F.layer_norm(x, (256,), w, b), x, w, b)


@workload("norm", "memory")
def rms_norm_bf16(device):
    """RMS norm of 16384 rows of 4096, with gradients."""
    x, w = randn(device, 16384, 4096, dtype=BF16), randn(device, 4096, dtype=BF16)
    return train(lambda: F.rms_norm(x, (4096,), w), x, w)


def batch_norm(device: str, dtype: torch.dtype, layout: torch.memory_format) -> Step:
    x = randn(device, 64, 128, 56, 56, dtype=dtype).to(memory_format=layout)
    w, b, mean, var = (torch.ones(128, device=device) for _ in range(4))
    return train(lambda: F.batch_norm(x, mean, var, w, b, training=True), x, w, b)


@workload("norm", "memory")
def batch_norm_nchw_fp32(device):
    """Batch norm in training, NCHW, fp32."""
    return batch_norm(device, FP32, torch.contiguous_format)


@workload("norm", "memory")
def batch_norm_nhwc_fp16(device):
    """Batch norm in training, channels last, fp16."""
    return batch_norm(device, FP16, torch.channels_last)


@workload("norm", "memory")
def group_norm_fp16(device):
    """Group norm of 32 groups, with gradients."""
    x, w, b = (
        randn(device, 32, 256, 64, 64, dtype=FP16),
        randn(device, 256, dtype=FP16),
        randn(device, 256, dtype=FP16),
    )
    return train(lambda: F.group_norm(x, 32, w, b), x, w, b)


# Softmax and losses.


@workload("softmax", "memory")
def softmax_bf16(device):
    """Softmax over rows of 8192, with gradient."""
    x = randn(device, 8192, 8192, dtype=BF16)
    return train(lambda: x.softmax(-1), x)


@workload("softmax", "memory")
def softmax_short_fp32(device):
    """Softmax over a million rows of 128: the warp kernel."""
    x = randn(device, 1 << 19, 128)
    return train(lambda: x.softmax(-1), x)


@workload("softmax", "memory")
def cross_entropy_bf16(device):
    """Cross entropy over a vocabulary of 32000, logits cast to fp32 first."""
    x = randn(device, 4096, 32000, dtype=BF16)
    y = torch.randint(0, 32000, (4096,), device=device)
    return train(lambda: F.cross_entropy(x.float(), y), x)


# Pointwise, casts, copies.


@workload("elementwise", "memory")
def add_mul_fp32(device):
    """Sums and products of three tensors of 256 MiB."""
    a, b = randn(device, 64 << 20), randn(device, 64 << 20)
    return forward(lambda: (a + b, a * b, a * 2.0, torch.addcmul(a, a, b)))


@workload("elementwise", "memory")
def gelu_bf16(device):
    """GELU and SiLU with gradients: some arithmetic a byte, still the memory side."""
    x = randn(device, 64 << 20, dtype=BF16)
    return train(lambda: F.silu(F.gelu(x)), x)


@workload("elementwise", "memory")
def cast_chain(device):
    """Casts between fp32, bf16, fp16 and back, as autocast makes them."""
    a, b = randn(device, 64 << 20), randn(device, 64 << 20, dtype=BF16)
    return forward(lambda: (a.to(BF16), a.to(FP16), b.float(), b.to(FP16), b + 1.0, b * a))


@workload("elementwise", "memory")
def transcendental_fp32(device):
    """Logarithms, powers and sines: the most arithmetic that pointwise kernels have."""
    x = torch.rand(32 << 20, device=device) + 0.5
    return forward(lambda: (x.log(), x.pow(1.7), x.sin(), torch.erf(x)))


@workload("elementwise", "memory")
def broadcast_fp16(device):
    """Row and column vectors against a matrix: the vectors cost nothing."""
    x = randn(device, 16384, 4096, dtype=FP16)
    row, column = randn(device, 4096, dtype=FP16), randn(device, 16384, 1, dtype=FP16)
    mask = torch.rand(16384, 4096, device=device) > 0.5
    return forward(lambda: (x + row, x * column, row * column, x.masked_fill(mask, 0.0)))


@workload("elementwise", "memory")
def dropout_bf16(device):
    """Dropout with gradient: a byte mask beside the data."""
    x = randn(device, 64 << 20, dtype=BF16)
    return train(lambda: F.dropout(x, 0.1, training=True), x)


@workload("copy", "memory")
def transpose_copy_fp32(device):
    """Transposed and permuted copies: strided reads or writes."""
    x, y = randn(device, 8192, 8192), randn(device, 64, 256, 56, 56, dtype=FP16)
    return forward(
        lambda: (
            x.t().contiguous(),
            y.permute(0, 2, 3, 1).contiguous(),
            x[:, ::2].contiguous(),
            x[::2].clone(),
        )
    )


@workload("copy", "memory")
def cat_and_fill(device):
    """Concatenation, fills, zeros, and a copy within the device."""
    a, b = randn(device, 8192, 4096, dtype=BF16), randn(device, 8192, 2048, dtype=BF16)
    out = torch.empty(64 << 20, device=device)
    target = torch.empty_like(a)
    return forward(
        lambda: (torch.cat((a, b), 1), torch.cat((a, a), 0), out.fill_(1.0), out.zero_(), target.copy_(a))
    )


# Reductions, scans, sorts.


@workload("reduction", "memory")
def reductions_fp32(device):
    """Sums over all, over rows, over columns, a maximum, a variance."""
    x = randn(device, 16384, 8192)
    return forward(lambda: (x.sum(), x.sum(1), x.sum(0), x.amax(1), x.argmax(1), x.var(1)))


@workload("reduction", "memory")
def reductions_bf16(device):
    """A norm, a mean over the middle, a scan, in bf16."""
    x = randn(device, 128, 1024, 1024, dtype=BF16)
    return forward(lambda: (x.norm(), x.mean(1), x.cumsum(-1)))


@workload("reduction", "memory")
def sort_topk_fp32(device):
    """A radix sort of 16 million keys and the 64 largest of many rows."""
    x, y = randn(device, 16 << 20), randn(device, 8192, 8192)
    return forward(lambda: (x.sort(), y.topk(64)))


# Indices.


@workload("index", "memory")
def embedding_fp32(device):
    """65536 tokens of a table of 50000 x 1024, with the dense gradient."""
    table = randn(device, 50000, 1024)
    ids = torch.randint(0, 50000, (65536,), device=device)
    return train(lambda: F.embedding(ids, table), table)


@workload("index", "memory")
def embedding_small_bf16(device):
    """Many tokens of a table that fits in the L2 cache: reads come from there."""
    table = randn(device, 4096, 1024, dtype=BF16)
    ids = torch.randint(0, 4096, (131072,), device=device)
    return forward(lambda: F.embedding(ids, table))


@workload("index", "memory")
def gather_scatter_fp32(device):
    """Gathers and scatter-adds along the last dimension, and rows selected."""
    x = randn(device, 8192, 8192)
    places = torch.randint(0, 8192, (8192, 8192), device=device)
    rows = torch.randperm(8192, device=device)
    return forward(
        lambda: (x.gather(1, places), torch.zeros_like(x).scatter_add_(1, places, x), x.index_select(0, rows))
    )


@workload("index", "memory")
def index_put_fp32(device):
    """Rows read and written through an index tensor, and added with duplicates."""
    x, rows = randn(device, 65536, 1024), torch.randint(0, 65536, (32768,), device=device)
    new, places = randn(device, 32768, 1024), torch.randperm(65536, device=device)[:32768]

    def call() -> Any:
        x[places] = new
        return x[rows], x.index_put_((rows,), new, accumulate=True), x.index_add_(0, places, new)

    return forward(call)


# Optimizers.


def update(device: str, make: Callable[..., torch.optim.Optimizer], **options: Any) -> Step:
    """One optimizer step over six parameters of 64 MiB, after clipping when ``clip`` is given."""
    clip = options.pop("clip", False)
    dtype = options.pop("dtype", FP32)
    parameters = [torch.nn.Parameter(randn(device, 4096, 4096, dtype=dtype)) for _ in range(6)]
    for p in parameters:
        p.grad = torch.randn_like(p)
    optimizer = make(parameters, lr=1e-4, **options)

    def step(phase: Phase) -> Any:
        with phase("optimizer"):
            if clip:
                torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
            optimizer.step()

    return step


@workload("optimizer", "memory")
def adam_foreach_fp32(device):
    """Adam as a dozen passes over all parameters."""
    return update(device, torch.optim.Adam, foreach=True)


@workload("optimizer", "memory")
def adamw_fused_fp32(device):
    """Fused AdamW: 28 bytes a parameter."""
    return update(device, torch.optim.AdamW, fused=True)


@workload("optimizer", "memory")
def adamw_fused_bf16(device):
    """Fused AdamW over bf16 parameters and states."""
    return update(device, torch.optim.AdamW, fused=True, dtype=BF16)


@workload("optimizer", "memory")
def sgd_single_fp32(device):
    """SGD with momentum, a parameter at a time."""
    return update(device, torch.optim.SGD, foreach=False, momentum=0.9)


@workload("optimizer", "memory")
def clip_sgd_foreach_fp32(device):
    """Gradient clipping, then SGD, all by foreach kernels."""
    return update(device, torch.optim.SGD, foreach=True, momentum=0.9, clip=True)


# Compiled.


@workload("compiled", "memory")
def compiled_pointwise_bf16(device):
    """A chain of pointwise operators as one Triton kernel."""
    x, y = randn(device, 64 << 20, dtype=BF16), randn(device, 64 << 20, dtype=BF16)
    chain = torch.compile(lambda a, b: (torch.tanh(a) * b + a).relu() * 0.5 + b)
    return forward(lambda: chain(x, y))


@workload("compiled", "memory")
def compiled_norm_chain_bf16(device):
    """Layer norm, GELU and a residual, forward and backward, fused by torch.compile."""
    x, w, b = (
        randn(device, 16384, 4096, dtype=BF16),
        randn(device, 4096, dtype=BF16),
        randn(device, 4096, dtype=BF16),
    )
    chain = torch.compile(lambda a, c, d: a + F.gelu(F.layer_norm(a, (4096,), c, d)))
    return train(lambda: chain(x, w, b), x, w, b)
