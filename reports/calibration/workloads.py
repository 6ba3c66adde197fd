"""Steps whose kernels' bottleneck is known by construction. `host_workloads` has those the host limits.

A workload is a function ``build(device) -> step``; ``step(phase)`` runs one step, and ``phase(name)`` is a context
manager that the recorder supplies. The truth is what the step should be bound by, as a share of the report.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

Phase = Callable[[str], AbstractContextManager[Any]]
Step = Callable[[Phase], Any]
Build = Callable[[str], Step]
Register = Callable[[Build], Build]

BF16, FP16, FP32, FP64 = torch.bfloat16, torch.float16, torch.float32, torch.float64


@dataclass(frozen=True)
class Workload:
    """A step with its expected answer; ``counters`` says whether counters make sense, ``blind`` the round in which it came, blindly."""

    name: str
    kind: str
    truth: str
    why: str
    counters: bool
    build: Build
    blind: int = 0

    @property
    def held_out(self) -> bool | None:
        """Whether thresholds must not be tuned on it; fixed by the name alone, before any measurement."""
        return None if self.blind else int(hashlib.sha256(self.name.encode()).hexdigest(), 16) % 3 == 0


REGISTRY: dict[str, Workload] = {}


def workload(kind: str, truth: str, *, counters: bool = True, blind: int = 0) -> Register:
    """Register a builder under its name; its docstring is the sentence that justifies the truth."""

    def register(build: Build) -> Build:
        name, why = build.__name__, " ".join((build.__doc__ or "").split())
        if name in REGISTRY:
            raise ValueError(f"there is a workload {name} already")
        REGISTRY[name] = Workload(name, kind, truth, why, counters, build, int(blind))
        return build

    return register


def forward(call: Callable[[], Any], times: int = 1) -> Step:
    """A step that only calls."""

    def step(phase: Phase) -> Any:
        with phase("forward"):
            for _ in range(times):
                out = call()
        return out

    return step


def train(call: Callable[[], torch.Tensor], *leaves: torch.Tensor) -> Step:
    """A forward and a backward pass from a fixed output gradient to the leaves."""
    for leaf in leaves:
        leaf.requires_grad_()
    gradient: list[torch.Tensor] = []

    def step(phase: Phase) -> Any:
        with phase("forward"):
            out = call()
        if not gradient:  # made in the warm-up
            gradient.append(torch.randn_like(out))
        with phase("backward"):
            return torch.autograd.grad(out, leaves, gradient[0])

    return step


def randn(device: str, *shape: int, dtype: torch.dtype = FP32) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=FP32 if dtype.itemsize == 1 else dtype).to(dtype)


def product(device: str, m: int, k: int, n: int, dtype: torch.dtype, times: int = 1) -> Step:
    a, b = randn(device, m, k, dtype=dtype), randn(device, k, n, dtype=dtype)
    return forward(lambda: a @ b, times)


def linear(device: str, m: int, k: int, n: int, dtype: torch.dtype, layers: int = 1) -> Step:
    x = randn(device, m, k, dtype=dtype)
    weights = [randn(device, n, k, dtype=dtype) for _ in range(layers)]
    return forward(lambda: [F.linear(x, w) for w in weights])


# Matrix products on the compute side.


@workload("gemm", "compute")
def gemm_fp32_simt(device):
    """A 4096 cube in fp32 without TF32 runs on the SIMT units, far over the ridge."""
    return product(device, 4096, 4096, 4096, FP32, 2)


@workload("gemm", "compute")
def gemm_tf32(device):
    """A 4096 cube in TF32."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return product(device, 4096, 4096, 4096, FP32, 3)


@workload("gemm", "compute")
def gemm_bf16_square(device):
    """A 6144 cube in bf16."""
    return product(device, 6144, 6144, 6144, BF16, 3)


@workload("gemm", "compute")
def gemm_fp16_misaligned(device):
    """Odd sizes forbid 16-byte loads: the kernel is slower, still on the compute side."""
    return product(device, 4095, 4097, 4093, FP16, 2)


@workload("gemm", "compute")
def gemm_fp8_scaled(device):
    """An 8192 cube in fp8 (e4m3) through _scaled_mm."""
    return scaled_product(device, 8192, 8192, 8192)


def scaled_product(device: str, m: int, k: int, n: int) -> Step:
    a = randn(device, m, k, dtype=torch.float8_e4m3fn)
    b = randn(device, n, k, dtype=torch.float8_e4m3fn).t()
    one = torch.ones((), device=device)
    return forward(lambda: torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=BF16), 2)


@workload("gemm", "compute")
def gemm_fp64(device):
    """A 3072 cube in fp64 on the double-precision matrix units."""
    return product(device, 3072, 3072, 3072, FP64)


@workload("gemm", "compute")
def gemm_int8(device):
    """An 8192 cube of int8 into int32."""
    a = torch.randint(-8, 8, (8192, 8192), device=device, dtype=torch.int8)
    b = torch.randint(-8, 8, (8192, 8192), device=device, dtype=torch.int8).t()
    return forward(lambda: torch._int_mm(a, b), 2)


@workload("gemm", "compute")
def gemm_batched_bf16(device):
    """64 products of 1024 cubes: 341 FLOP a byte."""
    a, b = randn(device, 64, 1024, 1024, dtype=BF16), randn(device, 64, 1024, 1024, dtype=BF16)
    return forward(lambda: torch.bmm(a, b), 2)


@workload("gemm", "compute")
def linear_train_bf16(device):
    """A linear layer with bias, 8192 tokens, 4096 to 4096 features, with both gradients."""
    x, w = randn(device, 8192, 4096, dtype=BF16), randn(device, 4096, 4096, dtype=BF16)
    bias = randn(device, 4096, dtype=BF16)
    return train(lambda: F.linear(x, w, bias), x, w, bias)


@workload("gemm", "compute")
def gemm_wide_fp16(device):
    """1024 tokens into a vocabulary of 32768."""
    return linear(device, 1024, 4096, 32768, FP16, 2)


# Matrix products and attention on the memory side.


@workload("matrix_memory", "memory")
def linear_m1_bf16(device):
    """One token through 8192 x 8192 layers: every weight is read for 2 FLOP."""
    return linear(device, 1, 8192, 8192, BF16, 4)


@workload("matrix_memory", "memory")
def linear_m8_fp16(device):
    """Eight tokens through 4096 x 14336 layers."""
    return linear(device, 8, 4096, 14336, FP16, 3)


@workload("matrix_memory", "memory")
def linear_m16_bf16(device):
    """Sixteen tokens through a layer of 8192 x 28672."""
    return linear(device, 16, 8192, 28672, BF16, 2)


@workload("matrix_memory", "memory")
def linear_m4_fp32(device):
    """Four rows through fp32 layers of 8192 x 8192."""
    return linear(device, 4, 8192, 8192, FP32, 2)


@workload("matrix_memory", "memory")
def scaled_mm_m16_fp8(device):
    """Sixteen rows through an fp8 weight of 16384 x 16384."""
    return scaled_product(device, 16, 16384, 16384)


@workload("matrix_memory", "memory")
def gemv_fp32(device):
    """A matrix of 16384 x 16384 times a vector."""
    a, x = randn(device, 16384, 16384), randn(device, 16384)
    return forward(lambda: torch.mv(a, x))


@workload("matrix_memory", "memory")
def gemv_transposed_bf16(device):
    """A row vector times a bf16 matrix of 16384 x 16384."""
    return product(device, 1, 16384, 16384, BF16, 2)


@workload("matrix_memory", "memory")
def tall_skinny_bf16(device):
    """A million rows times 64 x 64: 32 FLOP a byte."""
    return product(device, 1 << 20, 64, 64, BF16, 2)


@workload("matrix_memory", "memory")
def tall_reduce_tf32(device):
    """64 x 1M times 1M x 64, as a weight gradient of a small layer: split over K."""
    torch.backends.cuda.matmul.allow_tf32 = True
    x, dy = randn(device, 1 << 20, 64), randn(device, 1 << 20, 64)
    return forward(lambda: x.t() @ dy)


@workload("matrix_memory", "memory")
def small_k_fp16(device):
    """16384 x 32 times 32 x 16384: writing the result takes the time."""
    return product(device, 16384, 32, 16384, FP16)


@workload("matrix_memory", "memory")
def batched_small_bf16(device):
    """4096 products of 128 x 64 x 128: 32 FLOP a byte."""
    a, b = randn(device, 4096, 128, 64, dtype=BF16), randn(device, 4096, 64, 128, dtype=BF16)
    return forward(lambda: torch.bmm(a, b), 2)


@workload("matrix_memory", "memory")
def decode_attention_bf16(device):
    """One new token against a cache of 4096, as many key heads as query heads: 1 FLOP a byte."""
    q = randn(device, 32, 32, 1, 128, dtype=BF16)
    k, v = (randn(device, 32, 32, 4096, 128, dtype=BF16) for _ in range(2))
    return forward(lambda: F.scaled_dot_product_attention(q, k, v))


@workload("matrix_memory", "memory")
def decode_gqa_fp16(device):
    """One new token, 32 query heads on 8 key heads, a cache of 8192: 4 FLOP a byte."""
    q = randn(device, 32, 32, 1, 128, dtype=FP16)
    k, v = (randn(device, 32, 8, 8192, 128, dtype=FP16) for _ in range(2))

    def call() -> torch.Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return forward(call)


# Attention.


def attention(
    device: str, backend: SDPBackend, shape: tuple[int, ...], dtype: torch.dtype, **options: Any
) -> Step:
    """Forward and backward; ``shape`` is batch, heads, sequence, head size and maybe key heads."""
    b, h, s, d, *rest = shape
    q = randn(device, b, h, s, d, dtype=dtype)
    k, v = (randn(device, b, rest[0] if rest else h, s, d, dtype=dtype) for _ in range(2))

    def call() -> torch.Tensor:
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=bool(rest), **options)

    return train(call, q, k, v)


@workload("attention", "compute")
def attn_flash_causal_bf16(device):
    """Causal flash attention, 4 x 16 heads x 4096 x 128."""
    return attention(device, SDPBackend.FLASH_ATTENTION, (4, 16, 4096, 128), BF16, is_causal=True)


@workload("attention", "compute")
def attn_flash_full_fp16(device):
    """Flash attention without a mask, head size 64."""
    return attention(device, SDPBackend.FLASH_ATTENTION, (8, 16, 2048, 64), FP16)


@workload("attention", "compute")
def attn_flash_gqa_bf16(device):
    """Causal flash attention, 32 query heads on 8 key heads."""
    return attention(device, SDPBackend.FLASH_ATTENTION, (2, 32, 4096, 128, 8), BF16, is_causal=True)


@workload("attention", "compute")
def attn_efficient_fp32(device):
    """Memory-efficient attention in fp32."""
    return attention(device, SDPBackend.EFFICIENT_ATTENTION, (4, 16, 1024, 64), FP32)


@workload("attention", "compute")
def attn_efficient_causal_fp16(device):
    """Causal memory-efficient attention in fp16."""
    return attention(device, SDPBackend.EFFICIENT_ATTENTION, (4, 16, 2048, 64), FP16, is_causal=True)


@workload("attention", "compute")
def attn_cudnn_bf16(device):
    """Causal attention by cuDNN."""
    return attention(device, SDPBackend.CUDNN_ATTENTION, (4, 16, 4096, 128), BF16, is_causal=True)


@workload("attention", "memory")
def attn_math_bf16(device):
    """The unfused formula writes and reads the scores several times."""
    return attention(device, SDPBackend.MATH, (4, 16, 2048, 64), BF16)


@workload("attention", "memory")
def attn_short_fp16(device):
    """Sequences of 64 tokens: 32 FLOP a byte even when fused."""
    return attention(device, SDPBackend.FLASH_ATTENTION, (1024, 16, 64, 64), FP16)


# Convolutions.


def convolution(
    device: str, x: tuple[int, ...], w: tuple[int, ...], dtype: torch.dtype, **options: Any
) -> Step:
    """Forward and both gradients; channels last when ``nhwc`` is given."""
    layout = torch.channels_last if options.pop("nhwc", False) else torch.contiguous_format
    image = randn(device, *x, dtype=dtype).to(memory_format=layout)
    weight = randn(device, *w, dtype=dtype).to(memory_format=layout)
    return train(lambda: F.conv2d(image, weight, **options), image, weight)


@workload("convolution", "compute")
def conv3x3_nhwc_fp16(device):
    """256 channels, 3 x 3, channels last: 576 FLOP a byte."""
    return convolution(device, (64, 256, 56, 56), (256, 256, 3, 3), FP16, padding=1, nhwc=True)


@workload("convolution", "compute")
def conv3x3_nchw_bf16(device):
    """The same in NCHW and bf16: layout transforms around the kernels."""
    return convolution(device, (64, 256, 56, 56), (256, 256, 3, 3), BF16, padding=1)


@workload("convolution", "compute")
def conv3x3_nchw_fp32(device):
    """128 channels in fp32 without TF32."""
    torch.backends.cudnn.allow_tf32 = False
    return convolution(device, (32, 128, 56, 56), (128, 128, 3, 3), FP32, padding=1)


@workload("convolution", "memory")
def conv1x1_nhwc_bf16(device):
    """A 1 x 1 convolution of 64 to 256 channels: 51 FLOP a byte."""
    return convolution(device, (128, 64, 56, 56), (256, 64, 1, 1), BF16, nhwc=True)


@workload("convolution", "memory")
def conv_depthwise_nchw_fp32(device):
    """Nine multiplications a value."""
    return convolution(device, (64, 256, 56, 56), (256, 1, 3, 3), FP32, padding=1, groups=256)


@workload("convolution", "memory")
def conv_depthwise_nhwc_fp16(device):
    """Depthwise, channels last, fp16."""
    return convolution(device, (64, 256, 56, 56), (256, 1, 3, 3), FP16, padding=1, groups=256, nhwc=True)


@workload("convolution", "memory")
def conv_grouped_nhwc_fp16(device):
    """32 groups of 8 channels: 36 FLOP a byte."""
    return convolution(device, (64, 256, 56, 56), (256, 8, 3, 3), FP16, padding=1, groups=32, nhwc=True)


@workload("convolution", "memory")
def conv_stem_nhwc_fp16(device):
    """The first layer of an image network: 3 to 64 channels, 7 x 7, stride 2."""
    return convolution(device, (128, 3, 224, 224), (64, 3, 7, 7), FP16, padding=3, stride=2, nhwc=True)
