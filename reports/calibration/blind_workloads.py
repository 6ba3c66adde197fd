"""Steps that no model, threshold or class of names was ever tuned on: kinds that real training steps have.

They were written after the models (`data/blind.json` says when, and of which revision) and before anything of them was
measured. The truth is what arithmetic says: FLOP over the bytes of inputs and results, against the card's ridge.
`blind_memory_workloads` has the rest of them.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from workloads import (
    BF16,
    FP16,
    FP32,
    attention,
    convolution,
    forward,
    linear,
    product,
    randn,
    scaled_product,
    train,
    workload,
)

blind = functools.partial(workload, blind=True)
FLASH, EFFICIENT, CUDNN = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)


# Matrix products.


@blind("gemm", "compute")
def gemm_rectangle_bf16(device):
    """8192 tokens through a feed-forward layer of 5120 to 13824: 2700 FLOP a byte."""
    return product(device, 8192, 5120, 13824, BF16)


@blind("gemm", "compute")
def gemm_rectangle_tf32(device):
    """4096 x 11008 x 4096 in TF32: 1400 FLOP a byte at most, far over the ridge."""
    torch.backends.cuda.matmul.allow_tf32 = True
    return product(device, 4096, 11008, 4096, FP32)


@blind("gemm", "compute")
def gemm_weight_gradient_fp16(device):
    """A weight gradient by hand: 2560 x 16384 times 16384 x 10240, both operands read across."""
    x, dy = randn(device, 16384, 2560, dtype=FP16), randn(device, 16384, 10240, dtype=FP16)
    return forward(lambda: x.t() @ dy)


@blind("gemm", "compute")
def gemm_rectangle_fp8(device):
    """8192 x 4096 x 14336 in fp8 (e4m3) through _scaled_mm."""
    return scaled_product(device, 8192, 4096, 14336)


@blind("gemm", "compute")
def gemm_batched_fp16(device):
    """48 products of 1024 x 2048 x 1536: 470 FLOP a byte."""
    a, b = randn(device, 48, 1024, 2048, dtype=FP16), randn(device, 48, 2048, 1536, dtype=FP16)
    return forward(lambda: torch.bmm(a, b))


@blind("gemm", "compute")
def linear_train_bias_fp16(device):
    """Queries, keys and values of 8192 tokens, 2560 to 7680 features with bias, and all gradients."""
    x, w = randn(device, 8192, 2560, dtype=FP16), randn(device, 7680, 2560, dtype=FP16)
    bias = randn(device, 7680, dtype=FP16)
    return train(lambda: F.linear(x, w, bias), x, w, bias)


@blind("matrix_memory", "memory")
def linear_m2_bf16(device):
    """Two tokens through layers of 5120 x 13824."""
    return linear(device, 2, 5120, 13824, BF16, 4)


@blind("matrix_memory", "memory")
def linear_m24_fp16(device):
    """24 tokens through layers of 8192 x 22016: 24 FLOP a byte."""
    return linear(device, 24, 8192, 22016, FP16, 2)


@blind("matrix_memory", "memory")
def linear_m48_bf16(device):
    """48 tokens through layers of 7168 x 18432: 48 FLOP a byte."""
    return linear(device, 48, 7168, 18432, BF16, 2)


@blind("matrix_memory", "memory")
def tall_skinny_n32_fp16(device):
    """Two million rows times 96 x 32: 24 FLOP a byte."""
    return product(device, 1 << 21, 96, 32, FP16)


@blind("matrix_memory", "memory")
def small_k48_bf16(device):
    """12288 x 48 times 48 x 12288: writing the result takes the time."""
    return product(device, 12288, 48, 12288, BF16)


@blind("matrix_memory", "memory")
def decode_40_heads_bf16(device):
    """One new token of 48 sequences, 40 heads, a cache of 2048: 1 FLOP a byte."""
    q = randn(device, 48, 40, 1, 128, dtype=BF16)
    k, v = (randn(device, 48, 40, 2048, 128, dtype=BF16) for _ in range(2))
    return forward(lambda: F.scaled_dot_product_attention(q, k, v))


@blind("matrix_memory", "memory")
def decode_48_heads_on_4_fp16(device):
    """One new token, 48 query heads on 4 key heads, a cache of 16384: 12 FLOP a byte."""
    q = randn(device, 16, 48, 1, 128, dtype=FP16)
    k, v = (randn(device, 16, 4, 16384, 128, dtype=FP16) for _ in range(2))

    def call() -> torch.Tensor:
        with sdpa_kernel(FLASH):
            return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    return forward(call)


# Attention.


@blind("attention", "compute")
def attn_flash_causal_64_bf16(device):
    """Causal flash attention of a small language model: 12 heads of 64."""
    return attention(device, FLASH, (8, 12, 4096, 64), BF16, is_causal=True)


@blind("attention", "compute")
def attn_flash_96_fp16(device):
    """Flash attention without a mask, a head size of 96."""
    return attention(device, FLASH, (4, 16, 4096, 96), FP16)


@blind("attention", "compute")
def attn_cudnn_full_fp16(device):
    """Attention by cuDNN without a mask."""
    return attention(device, CUDNN, (8, 16, 2048, 128), FP16)


@blind("attention", "compute")
def attn_efficient_bias_bf16(device):
    """Memory-efficient attention with a bias for each head, as T5 and Swin add one."""
    bias = randn(device, 1, 16, 1024, 1024, dtype=BF16).expand(8, -1, -1, -1)
    return attention(device, EFFICIENT, (8, 16, 1024, 64), BF16, attn_mask=bias)


@blind("attention", "compute")
def attn_flash_24_heads_on_6_fp16(device):
    """Causal flash attention, 24 query heads on 6 key heads."""
    return attention(device, FLASH, (4, 24, 2048, 128, 6), FP16, is_causal=True)


@blind("attention", "memory")
def attn_windows_bf16(device):
    """Sequences of 128 tokens, 12 heads of 64: 64 FLOP a byte even when fused."""
    return attention(device, FLASH, (512, 12, 128, 64), BF16)


@blind("attention", "memory")
def attn_cross_fp16(device):
    """4096 places of an image look at 77 tokens of a text, as diffusion models do: 76 FLOP a byte."""
    q = randn(device, 16, 10, 4096, 64, dtype=FP16)
    k, v = (randn(device, 16, 10, 77, 64, dtype=FP16) for _ in range(2))

    def call() -> torch.Tensor:
        with sdpa_kernel(FLASH):
            return F.scaled_dot_product_attention(q, k, v)

    return train(call, q, k, v)


# Convolutions.


@blind("convolution", "memory")
def conv_first_7x7_nchw_bf16(device):
    """The first layer of a ResNet in NCHW: 3 to 64 channels, 7 x 7, stride 2."""
    return convolution(device, (64, 3, 224, 224), (64, 3, 7, 7), BF16, padding=3, stride=2)


@blind("convolution", "memory")
def conv_first_7x7_nhwc_fp16(device):
    """The same, channels last, of larger images and to 96 channels."""
    return convolution(device, (32, 3, 320, 320), (96, 3, 7, 7), FP16, padding=3, stride=2, nhwc=True)


@blind("convolution", "memory")
def conv_16_channels_nhwc_bf16(device):
    """3 x 3 of 16 to 32 channels: 96 FLOP a byte."""
    return convolution(device, (64, 16, 128, 128), (32, 16, 3, 3), BF16, padding=1, nhwc=True)


@blind("convolution", "compute")
def conv_patches_14_fp16(device):
    """14 x 14 patches into 1024 channels: 370 FLOP a byte, in layouts that no kernel likes."""
    return convolution(device, (64, 3, 224, 224), (1024, 3, 14, 14), FP16, stride=14)


@blind("convolution", "memory")
def conv_depthwise_5x5_nhwc_bf16(device):
    """Depthwise with 25 taps, as EfficientNet has, channels last."""
    return convolution(device, (128, 240, 28, 28), (240, 1, 5, 5), BF16, padding=2, groups=240, nhwc=True)


@blind("convolution", "memory")
def conv_depthwise_5x5_nchw_fp16(device):
    """Depthwise with 25 taps in NCHW."""
    return convolution(device, (64, 240, 28, 28), (240, 1, 5, 5), FP16, padding=2, groups=240)


@blind("convolution", "memory")
def conv_depthwise_strided_nhwc_fp16(device):
    """Depthwise, 3 x 3, stride 2, as MobileNet shrinks its images."""
    options = {"padding": 1, "stride": 2, "groups": 192, "nhwc": True}
    return convolution(device, (64, 192, 56, 56), (192, 1, 3, 3), FP16, **options)


@blind("convolution", "compute")
def conv_dilated_nhwc_bf16(device):
    """Dilation 4 of 256 channels, channels last, as segmentation has."""
    return convolution(device, (16, 256, 64, 64), (256, 256, 3, 3), BF16, padding=4, dilation=4, nhwc=True)


@blind("convolution", "memory")
def conv_32_groups_nhwc_bf16(device):
    """ResNeXt's 32 groups, here of 16 channels: 72 FLOP a byte."""
    return convolution(device, (64, 512, 28, 28), (512, 16, 3, 3), BF16, padding=1, groups=32, nhwc=True)


@blind("convolution", "memory")
def conv1x1_strided_nhwc_fp16(device):
    """A shortcut of a ResNet: 1 x 1, stride 2, 256 to 512 channels, 85 FLOP a byte of the whole image."""
    return convolution(device, (64, 256, 56, 56), (512, 256, 1, 1), FP16, stride=2, nhwc=True)


@blind("convolution", "compute")
def conv_transposed_nchw_bf16(device):
    """A step up of a U-Net: 512 to 256 channels, 2 x 2, stride 2, NCHW: 340 FLOP a byte."""
    x, w = randn(device, 16, 512, 32, 32, dtype=BF16), randn(device, 512, 256, 2, 2, dtype=BF16)
    return train(lambda: F.conv_transpose2d(x, w, stride=2), x, w)


@blind("convolution", "compute")
def conv3d_strided_fp16(device):
    """A 3-d convolution of video, 128 channels, 3 x 3 x 3, stride 2 in space."""
    x, w = randn(device, 4, 128, 8, 56, 56, dtype=FP16), randn(device, 128, 128, 3, 3, 3, dtype=FP16)
    return train(lambda: F.conv3d(x, w, stride=(1, 2, 2), padding=1), x, w)
