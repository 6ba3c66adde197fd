"""More convolutions and attention: the first list's hash had left seven of its eight convolutions held out.

Their split follows from their names as well, and was committed before they were measured.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend
from workloads import BF16, FP16, FP32, attention, convolution, forward, randn, train, workload


@workload("convolution", "compute")
def conv3x3_narrow_nhwc_bf16(device):
    """64 channels, 3 x 3: 288 FLOP a byte, little above the ridge."""
    return convolution(device, (128, 64, 56, 56), (64, 64, 3, 3), BF16, padding=1, nhwc=True)


@workload("convolution", "compute")
def conv3x3_nhwc_tf32(device):
    """128 channels in TF32, channels last."""
    return convolution(device, (64, 128, 56, 56), (128, 128, 3, 3), FP32, padding=1, nhwc=True)


@workload("convolution", "compute")
def conv5x5_nhwc_fp16(device):
    """5 x 5 taps."""
    return convolution(device, (32, 128, 56, 56), (128, 128, 5, 5), FP16, padding=2, nhwc=True)


@workload("convolution", "compute")
def conv_strided_nhwc_bf16(device):
    """Stride 2, 128 to 256 channels."""
    return convolution(device, (128, 128, 56, 56), (256, 128, 3, 3), BF16, padding=1, stride=2, nhwc=True)


@workload("convolution", "compute")
def conv_dilated_nchw_fp16(device):
    """Dilation 2, NCHW."""
    return convolution(device, (32, 128, 56, 56), (128, 128, 3, 3), FP16, padding=2, dilation=2)


@workload("convolution", "compute")
def conv1x1_wide_nhwc_fp16(device):
    """A 1 x 1 convolution of 1024 to 1024 channels: 512 FLOP a byte."""
    return convolution(device, (128, 1024, 14, 14), (1024, 1024, 1, 1), FP16, nhwc=True)


@workload("convolution", "memory")
def conv1x1_nchw_fp16(device):
    """A 1 x 1 convolution of 64 to 64 channels in NCHW: 32 FLOP a byte."""
    return convolution(device, (128, 64, 56, 56), (64, 64, 1, 1), FP16)


@workload("convolution", "memory")
def conv_depthwise_nchw_fp16(device):
    """Depthwise in NCHW and fp16."""
    return convolution(device, (64, 256, 56, 56), (256, 1, 3, 3), FP16, padding=1, groups=256)


@workload("convolution", "memory")
def conv_depthwise_nhwc_bf16(device):
    """Depthwise, channels last, bf16."""
    return convolution(device, (64, 384, 28, 28), (384, 1, 3, 3), BF16, padding=1, groups=384, nhwc=True)


@workload("convolution", "memory")
def conv_depthwise_7x7_nhwc_fp16(device):
    """Depthwise with 49 taps, as ConvNeXt has."""
    return convolution(device, (64, 256, 56, 56), (256, 1, 7, 7), FP16, padding=3, groups=256, nhwc=True)


@workload("convolution", "memory")
def conv_stem_nchw_fp32(device):
    """3 to 32 channels, 3 x 3, stride 2, fp32 without TF32."""
    torch.backends.cudnn.allow_tf32 = False
    return convolution(device, (128, 3, 224, 224), (32, 3, 3, 3), FP32, padding=1, stride=2)


@workload("convolution", "memory")
def conv_patches_bf16(device):
    """16 x 16 patches of an image into 768 channels, as a vision transformer begins."""
    return convolution(device, (256, 3, 224, 224), (768, 3, 16, 16), BF16, stride=16)


@workload("convolution", "compute")
def conv_transposed_nhwc_fp16(device):
    """A transposed convolution of 256 to 128 channels."""
    x = randn(device, 32, 256, 28, 28, dtype=FP16).to(memory_format=torch.channels_last)
    w = randn(device, 256, 128, 4, 4, dtype=FP16).to(memory_format=torch.channels_last)
    return train(lambda: F.conv_transpose2d(x, w, stride=2, padding=1), x, w)


@workload("convolution", "compute")
def conv1d_fp16(device):
    """A 1-d convolution over 4096 samples of 256 channels."""
    x, w = randn(device, 32, 256, 4096, dtype=FP16), randn(device, 256, 256, 5, dtype=FP16)
    return train(lambda: F.conv1d(x, w, padding=2), x, w)


@workload("convolution", "compute")
def conv3d_bf16(device):
    """A 3-d convolution of 64 channels."""
    x, w = randn(device, 4, 64, 16, 56, 56, dtype=BF16), randn(device, 64, 64, 3, 3, 3, dtype=BF16)
    return train(lambda: F.conv3d(x, w, padding=1), x, w)


@workload("attention", "memory")
def attn_by_hand_fp16(device):
    """Products and a softmax written out: the scores go through memory."""
    q, k, v = (randn(device, 8, 16, 1024, 64, dtype=FP16) for _ in range(3))

    def call() -> Any:
        return (q @ k.transpose(-1, -2) * 0.125).softmax(-1) @ v

    return train(call, q, k, v)


@workload("attention", "compute")
def attn_flash_wide_bf16(device):
    """Flash attention with a head size of 256."""
    return attention(device, SDPBackend.FLASH_ATTENTION, (2, 16, 4096, 256), BF16, is_causal=True)


@workload("matrix_memory", "memory")
def decode_mqa_bf16(device):
    """One new token, 32 query heads on one key head, by cuDNN or flash, whichever torch prefers."""
    q = randn(device, 256, 32, 1, 128, dtype=BF16)
    k, v = (randn(device, 256, 1, 8192, 128, dtype=BF16) for _ in range(2))
    return forward(lambda: F.scaled_dot_product_attention(q, k, v, enable_gqa=True))
