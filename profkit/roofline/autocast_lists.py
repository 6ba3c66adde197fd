"""What autocast does with each operator, by device and version of torch.

From ``aten/src/ATen/autocast_mode.h`` and ``autocast_mode.cpp`` of PyTorch, which the page "Automatic Mixed Precision:
autocast op reference" documents. What a recording shows autocast to have wrapped needs no list; these say what it
would have wrapped inside a region.
"""

from __future__ import annotations

from typing import Final

__all__ = [
    "IN_FP32",
    "LOSSES",
    "LOWER",
    "NORMS",
    "NORMS_CAST",
    "PROMOTE",
    "PROMOTING",
    "losses_and_norms",
    "wrapped_by_autocast",
]

LOWER: Final = frozenset(
    [
        "_convolution",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_tbc",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
        "convolution",
        "cudnn_convolution",
        "cudnn_convolution_transpose",
        "prelu",
        "addmm",
        "addmv",
        "addr",
        "matmul",
        "einsum",
        "mm",
        "mv",
        "linalg_vecdot",
        "linear",
        "addbmm",
        "baddbmm",
        "bmm",
        "chain_matmul",
        "linalg_multi_dot",
        "_thnn_fused_lstm_cell",
        "_thnn_fused_gru_cell",
        "lstm_cell",
        "gru_cell",
        "rnn_tanh_cell",
        "rnn_relu_cell",
        "_scaled_dot_product_flash_attention",
        "scaled_dot_product_attention",
        "mkldnn_rnn_layer",
    ]
)
"""Cast to the region's type, on GPUs and CPUs."""

LOSSES: Final = frozenset(
    [
        "poisson_nll_loss",
        "cosine_embedding_loss",
        "nll_loss",
        "nll_loss2d",
        "hinge_embedding_loss",
        "kl_div",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
        "mse_loss",
        "margin_ranking_loss",
        "multilabel_margin_loss",
        "soft_margin_loss",
        "triplet_margin_loss",
        "multi_margin_loss",
        "binary_cross_entropy_with_logits",
        "cross_entropy_loss",
    ]
)
"""Losses kept in fp32, on GPUs and CPUs; on GPUs cross entropy is through ``log_softmax`` and ``nll_loss``."""

NORMS: Final = frozenset(["layer_norm", "native_layer_norm", "group_norm", "softmax", "log_softmax"])
"""Norms kept in fp32, on GPUs only."""

_OTHERS_IN_FP32: Final = frozenset(
    [
        "acos",
        "asin",
        "cosh",
        "erfinv",
        "exp",
        "expm1",
        "log",
        "log10",
        "log2",
        "log1p",
        "reciprocal",
        "rsqrt",
        "sinh",
        "tan",
        "pow",
        "softplus",
        "frobenius_norm",
        "nuclear_norm",
        "cosine_similarity",
        "dist",
        "pdist",
        "cdist",
        "renorm",
        "logsumexp",
        "prod",
        "cumprod",
        "cumsum",
        "linalg_vector_norm",
        "linalg_matrix_norm",
        "sum",
        "norm",
        "upsample_nearest1d",
        "upsample_nearest2d",
        "upsample_nearest3d",
        "upsample_linear1d",
        "upsample_bilinear2d",
        "upsample_trilinear3d",
        "upsample_bicubic2d",
        "avg_pool3d",
        "binary_cross_entropy",
        "grid_sampler",
        "polar",
        "quantile",
        "stft",
        "trace",
        "ctc_loss",
    ]
)

PROMOTE: Final = frozenset(
    [
        "addcdiv",
        "addcmul",
        "atan2",
        "bilinear",
        "cross",
        "dot",
        "vdot",
        "grid_sampler",
        "index_put",
        "tensordot",
        "scatter_add",
        "cat",
        "stack",
        "index_copy",
    ]
)
"""Run in the widest of their inputs' types."""

IN_FP32: Final = LOSSES | NORMS | _OTHERS_IN_FP32

NORMS_CAST: Final = frozenset(["layer_norm", "native_layer_norm", "group_norm", "rms_norm"])
"""Norms over features, kept in fp32 on GPUs: ``rms_norm`` since torch 2.12."""

_ALSO_ON_GPUS: Final = frozenset(
    ["rms_norm", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d", "_upsample_nearest_exact3d",
     "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"]
)  # fmt: skip

_ON_CPUS: Final = frozenset(
    ["avg_pool3d", "binary_cross_entropy", "grid_sampler", "polar", "prod", "quantile", "nanquantile", "stft",
     "cdist", "trace", "view_as_complex", "ctc_loss", "max_pool3d", "max_unpool2d", "max_unpool3d",
     "adaptive_avg_pool3d", "adaptive_max_pool3d", "fractional_max_pool2d", "fractional_max_pool3d",
     "reflection_pad1d", "reflection_pad2d", "replication_pad1d", "replication_pad2d", "replication_pad3d", "cat",
     "stack", "index_copy"]
)  # fmt: skip
"""Besides products and losses; linear algebra and Fourier transforms are left out."""

PROMOTING: Final = frozenset(
    ["add", "sub", "rsub", "mul", "div", "where", "maximum", "minimum", "lerp", "addcmul", "addcdiv"]
)
"""Not wrapped on any device: torch's own promotion makes their result fp32 where an operand is."""


def wrapped_by_autocast(*, gpu: bool) -> frozenset[str]:
    """Everything that autocast wraps on a GPU, or on a CPU, whose list of fp32 has no sums, powers and norms."""
    return LOWER | IN_FP32 | PROMOTE | _ALSO_ON_GPUS if gpu else LOWER | LOSSES | _ON_CPUS


def losses_and_norms(*, gpu: bool) -> frozenset[str]:
    """Losses and norms that autocast would keep in fp32 on a GPU, or on a CPU, which has no norm on its list."""
    return LOSSES | NORMS if gpu else LOSSES
