"""A second blind round, after the first had taught something: what it mended, and what it left as it was.

Written after these changes and before anything of it was measured (`data/blind_again.json`). Images of few channels, a
bias of attention, attention and products that the grid alone must tell; and a few ordinary steps beside them.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from blind_workloads import EFFICIENT, FLASH
from torch.nn.attention import sdpa_kernel
from workloads import BF16, FP16, attention, convolution, forward, linear, product, randn, train, workload

again = functools.partial(workload, blind=2)


@again("convolution", "memory")
def conv_first_3x3_nchw_fp16(device):
    """The first layer of an EfficientNet in NCHW: 3 to 32 channels, 3 x 3, stride 2."""
    return convolution(device, (128, 3, 224, 224), (32, 3, 3, 3), FP16, padding=1, stride=2)


@again("convolution", "memory")
def conv_first_4_channels_nhwc_bf16(device):
    """Images with depth: 4 to 64 channels, 7 x 7, stride 2, channels last."""
    return convolution(device, (64, 4, 256, 256), (64, 4, 7, 7), BF16, padding=3, stride=2, nhwc=True)


@again("convolution", "compute")
def conv_patches_32_bf16(device):
    """Patches of 32 x 32 pixels into 768 channels, as ViT-B/32 has: 440 FLOP a byte."""
    return convolution(device, (192, 3, 224, 224), (768, 3, 32, 32), BF16, stride=32)


@again("convolution", "memory")
def conv_8_channels_strided_nhwc_fp16(device):
    """3 x 3 of 8 to 64 channels, stride 2, channels last: 60 FLOP a byte."""
    return convolution(device, (64, 8, 192, 192), (64, 8, 3, 3), FP16, padding=1, stride=2, nhwc=True)


@again("convolution", "compute")
def conv_1024_wide_nhwc_fp16(device):
    """3 x 3 of 512 to 1024 channels, channels last."""
    return convolution(device, (32, 512, 28, 28), (1024, 512, 3, 3), FP16, padding=1, nhwc=True)


@again("attention", "memory")
def attn_efficient_pairs_bf16(device):
    """Memory-efficient attention whose bias differs for each sequence, as AlphaFold's does: 43 FLOP a byte."""
    bias = randn(device, 32, 8, 512, 512, dtype=BF16)
    return attention(device, EFFICIENT, (32, 8, 512, 64), BF16, attn_mask=bias)


@again("attention", "compute")
def attn_efficient_distances_fp16(device):
    """Memory-efficient attention with one bias of distances for all sequences."""
    bias = randn(device, 1, 12, 2048, 2048, dtype=FP16).expand(4, -1, -1, -1)
    return attention(device, EFFICIENT, (4, 12, 2048, 64), FP16, attn_mask=bias)


@again("attention", "memory")
def attn_windows_49_fp16(device):
    """Windows of 7 x 7 places, 16 heads of 32, as Swin has: 25 FLOP a byte."""
    return attention(device, FLASH, (2048, 16, 49, 32), FP16)


@again("attention", "memory")
def attn_64_queries_bf16(device):
    """64 learnt queries look at 4096 places: 64 FLOP a byte."""
    q = randn(device, 64, 8, 64, 64, dtype=BF16)
    k, v = (randn(device, 64, 8, 4096, 64, dtype=BF16) for _ in range(2))

    def call() -> torch.Tensor:
        with sdpa_kernel(FLASH):
            return F.scaled_dot_product_attention(q, k, v)

    return train(call, q, k, v)


@again("matrix_memory", "memory")
def weight_gradient_96_bf16(device):
    """The gradient of a 96 x 96 weight from half a million rows: 48 FLOP a byte."""
    x, dy = randn(device, 1 << 19, 96, dtype=BF16), randn(device, 1 << 19, 96, dtype=BF16)
    return forward(lambda: x.t() @ dy)


@again("matrix_memory", "memory")
def linear_to_48_fp16(device):
    """A head from 256 to 48 channels for each of half a million places: 40 FLOP a byte."""
    return linear(device, 1 << 19, 256, 48, FP16)


@again("gemm", "compute")
def linear_train_5120_bf16(device):
    """A layer from 5120 to 13824 of 8192 tokens, with gradients."""
    x, w = randn(device, 8192, 5120, dtype=BF16), randn(device, 13824, 5120, dtype=BF16)
    return train(lambda: F.linear(x, w), x, w)


@again("gemm", "compute")
def gemm_deep_bf16(device):
    """3072 x 16384 times 16384 x 3072 in bf16."""
    return product(device, 3072, 16384, 3072, BF16)


@again("elementwise", "memory")
def geglu_fp16(device):
    """A gated GELU written out, with gradients."""
    x = randn(device, 8192, 16384, dtype=FP16)

    def call() -> torch.Tensor:
        value, gate = x.chunk(2, dim=-1)
        return value * F.gelu(gate)

    return train(call, x)


@again("softmax", "memory")
def cross_entropy_32k_bf16(device):
    """Cross entropy of 8192 tokens over 32000 words in bf16, with its gradient."""
    x = randn(device, 8192, 32000, dtype=BF16)
    y = torch.randint(0, 32000, (8192,), device=device)
    return train(lambda: F.cross_entropy(x, y), x)


@again("norm", "memory")
def batch_norm_nchw_bf16(device):
    """Batch norm of 64 channels in training, NCHW, bf16, with gradients."""
    x = randn(device, 64, 64, 112, 112, dtype=BF16)
    w, b, mean, var = (torch.ones(64, device=device) for _ in range(4))
    return train(lambda: F.batch_norm(x, mean, var, w, b, training=True), x, w, b)
