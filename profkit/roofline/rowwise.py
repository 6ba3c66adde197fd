"""Bytes of reductions, norms, softmax, losses and pooling.

Compulsory traffic: each tensor once. Where the result needs a second pass (batch norms, softmax of long rows), each
block reads again what has left the cache meanwhile. FLOP per element after TraceLens' models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.instruction_issue import norm_instructions, pointwise_instructions
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes
from profkit.roofline.pointwise import read_bytes
from profkit.roofline.thresholds import INSTRUCTIONS

__all__ = ["ROWWISE_MODELS", "reduction"]


def reduction(call: Call, kernel: KernelClass) -> Work | None:
    """``sum``, ``mean``, ``amax``, ``argmax``, norms...: the input once, one element a group out."""
    x = next(iter(call.tensors()), None)
    if not x:
        return None
    read = read_bytes(x, kernel.dtype)
    kept = _kept(call, x)
    written = kept * element_bytes(kernel.out_dtype or x.dtype)
    return Work(float(x.numel), read, written, dtype="fp32", instructions=x.numel * INSTRUCTIONS["reduce"])


def _kept(call: Call, x: Tensor) -> float:
    """Elements of the result: the product of the dimensions that are not reduced; one when none is written."""
    for position in range(1, len(call.scalars)):
        dims = call.integers(position)
        if dims and all(-len(x.shape) <= d < len(x.shape) for d in dims):
            gone = {d % len(x.shape) for d in dims}
            return float(math.prod(n for axis, n in enumerate(x.shape) if axis not in gone))
    return 1.0


def _layer_norm(call: Call, kernel: KernelClass) -> Work | None:
    """``native_layer_norm(x, shape, weight, bias, eps)``, group and RMS norm alike."""
    x = call.tensor(0)
    if not x or kernel.family is not Family.NORM:
        return None
    size = x.numel * element_bytes(x.dtype or kernel.dtype)
    if "rowwisemoments" in kernel.function:
        return Work(4.0 * x.numel, size, 0.0, role="moments", dtype="fp32")
    if "computefusedparams" in kernel.function:
        return Work(role="parameters", dtype="fp32")
    weights = sum(t.nbytes(kernel.dtype) for t in call.tensors()[1:])
    rows = x.numel / max(x.shape[-1], 1) if x.shape else 1.0
    issued = norm_instructions(x.numel, rows)
    return Work(8.0 * x.numel, size + weights, size + 8.0 * rows, dtype="fp32", instructions=issued)


def _layer_norm_backward(call: Call, kernel: KernelClass) -> Work | None:
    """``native_layer_norm_backward(grad, x, shape, mean, rstd, weight, bias, mask)``: two independent parts."""
    grad, x = call.tensor(0), call.tensor(1)
    if not grad or not x or kernel.family is not Family.NORM:
        return None
    inputs = grad.numel * element_bytes(grad.dtype or kernel.dtype) + x.numel * element_bytes(
        x.dtype or kernel.dtype
    )
    if "gamma" in kernel.function or "partgrad" in kernel.function:
        return Work(4.0 * x.numel, inputs, 8.0 * x.shape[-1], role="weights", dtype="fp32")
    return Work(10.0 * x.numel, inputs, inputs / 2, dtype="fp32")


def _group_norm(call: Call, kernel: KernelClass) -> Work | None:
    """``native_group_norm(x, ...)``: moments, tiny parameters by channel, then a pointwise kernel."""
    x = call.tensor(0)
    if x and kernel.style:
        size = x.numel * element_bytes(x.dtype or kernel.dtype)
        issued = pointwise_instructions(kernel, x.numel)
        return Work(4.0 * x.numel, size, size, role="result", dtype="fp32", instructions=issued)
    return _layer_norm(call, kernel)


def _group_norm_backward(call: Call, kernel: KernelClass) -> Work | None:
    """``native_group_norm_backward(grad, x, ...)``: sums by channel, tiny parameters, then a pointwise kernel."""
    grad, x = call.tensor(0), call.tensor(1)
    if not grad or not x:
        return None
    inputs = grad.numel * element_bytes(grad.dtype or kernel.dtype) + x.numel * element_bytes(
        x.dtype or kernel.dtype
    )
    if kernel.style:
        issued = pointwise_instructions(kernel, x.numel)
        return Work(6.0 * x.numel, inputs, inputs / 2, role="result", dtype="fp32", instructions=issued)
    if "internalgradients" in kernel.function:
        return Work(4.0 * x.numel, inputs, 0.0, role="sums", dtype="fp32")
    return Work(role="parameters", dtype="fp32") if kernel.family is Family.NORM else None


def _batch_norm(call: Call, kernel: KernelClass) -> Work | None:
    """Training forward: statistics and result each read the input; a fused kernel of cuDNN does both."""
    x = call.tensor(0)
    if not x or kernel.family is not Family.NORM:
        return None
    size = x.numel * element_bytes(x.dtype or kernel.dtype)
    if "collect_statistics" in kernel.function or "meanvariance" in kernel.function:
        return Work(4.0 * x.numel, size, 0.0, role="statistics", dtype="fp32")
    if "transform_input" in kernel.function or "_inf_" in kernel.function or kernel.function.endswith("norm"):
        return Work(4.0 * x.numel, size, size, role="result", dtype="fp32")
    again = 0.0 if "singleread" in kernel.function else size
    return Work(
        8.0 * x.numel,
        size,
        size,
        dtype="fp32",
        instructions=norm_instructions(x.numel, 0.0),
        reread_bytes=again,
        held="persist" in kernel.function,
    )


def _batch_norm_backward(call: Call, kernel: KernelClass) -> Work | None:
    """Input and gradient are read for the sums and again for the result."""
    x, grad = call.tensor(0), call.tensor(1)
    if not x or not grad or kernel.family is not Family.NORM:
        return None
    size = x.numel * element_bytes(x.dtype or kernel.dtype)
    inputs = size + grad.numel * element_bytes(grad.dtype or kernel.dtype)
    if "reduce" in kernel.function:
        return Work(4.0 * x.numel, inputs, 0.0, role="statistics", dtype="fp32")
    if "elemt" in kernel.function:
        return Work(6.0 * x.numel, inputs, size, role="result", dtype="fp32")
    again = 0.0 if "singleread" in kernel.function else inputs
    return Work(
        12.0 * x.numel,
        inputs,
        size,
        dtype="fp32",
        instructions=norm_instructions(x.numel, 0.0),
        reread_bytes=again,
        held="persist" in kernel.function,
    )


def _softmax(call: Call, kernel: KernelClass) -> Work | None:
    """``_softmax(x, dim, half_to_float)`` and ``_log_softmax``."""
    x = call.tensor(0)
    if not x or kernel.family is not Family.SOFTMAX:
        return None
    size = x.numel * element_bytes(x.dtype or kernel.dtype)
    out = x.numel * 4.0 if call.flag(2) else size
    return Work(
        5.0 * x.numel,
        size,
        out,
        dtype="fp32",
        reread_bytes=_second_pass(kernel, size),
        instructions=x.numel * INSTRUCTIONS["softmax"],
    )


def _softmax_backward(call: Call, kernel: KernelClass) -> Work | None:
    """``_softmax_backward_data(grad, output, dim, dtype)``: two in, one out (5 is Half, 15 BFloat16)."""
    grad, output = call.tensor(0), call.tensor(1)
    if not grad or not output or kernel.family is not Family.SOFTMAX:
        return None
    sizes = [t.numel * element_bytes(t.dtype or kernel.dtype) for t in (grad, output)]
    out = grad.numel * 2.0 if call.scalar(3) in ("5", "15") else sizes[0]
    return Work(4.0 * grad.numel, sum(sizes), out, dtype="fp32", reread_bytes=_second_pass(kernel, sizes[0]))


def _second_pass(kernel: KernelClass, size: float) -> float:
    """Rows are read again for the result unless the kernel keeps them in shared memory or registers."""
    kept = any(word in kernel.function for word in ("smem", "reg", "warp", "persist"))
    return 0.0 if kept else size


def _nll_loss(call: Call, kernel: KernelClass) -> Work | None:
    """One sector of the log-probabilities and one label for each row; everything else stays where it is."""
    labels = next((t for t in call.tensors() if t.dtype in ("int64", "int32")), None)
    if not labels or kernel.family not in (Family.LOSS, Family.OTHER):
        return None
    return Work(2.0 * labels.numel, labels.numel * (32.0 + element_bytes(labels.dtype)), 8.0, dtype="fp32")


def _nll_loss_backward(call: Call, kernel: KernelClass) -> Work | None:
    labels = next((t for t in call.tensors() if t.dtype in ("int64", "int32")), None)
    if not labels or kernel.family not in (Family.LOSS, Family.OTHER):
        return None
    return Work(
        2.0 * labels.numel, labels.numel * element_bytes(labels.dtype), labels.numel * 32.0, dtype="fp32"
    )


def _pool(call: Call, kernel: KernelClass) -> Work | None:
    """``max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)``: out, and an index of 8 bytes."""
    x, window = call.tensor(0), call.integers(1)
    stride = call.integers(2) or window
    if not x or not stride or kernel.family is not Family.POOLING or min(stride) < 1:
        return None
    out = x.numel / math.prod(stride * 2 if len(stride) == 1 else stride)
    size = element_bytes(x.dtype or kernel.dtype)
    indices = 8.0 if "indices" in call.name else 0.0
    return Work(float(x.numel), x.numel * size, out * (size + indices), dtype="fp32")


def _pool_backward(call: Call, kernel: KernelClass) -> Work | None:
    """Gradient and indices in, gradient of the input out."""
    tensors = call.tensors()
    if len(tensors) < 2 or kernel.family is not Family.POOLING:
        return None
    grad, x = tensors[0], tensors[1]
    size = element_bytes(grad.dtype or kernel.dtype)
    indices = 8.0 if "indices" in call.name else 0.0
    return Work(float(x.numel), grad.numel * (size + indices), x.numel * size, dtype="fp32")


def _upsample(call: Call, kernel: KernelClass) -> Work | None:
    """``upsample_bilinear2d(x, output_size, ...)``: every pixel in and out once, and four products a pixel out."""
    x, sides = call.tensor(0), call.integers(1)
    if not x or not sides or len(sides) != len(x.shape) - 2 or kernel.family is not Family.POOLING:
        return None
    size, out = element_bytes(x.dtype or kernel.dtype), math.prod((*x.shape[:2], *sides))
    return Work(8.0 * out, x.numel * size, out * size, dtype="fp32")


def _upsample_backward(call: Call, kernel: KernelClass) -> Work | None:
    """``upsample_bilinear2d_backward(grad, output_size, input_size, ...)``: the other way round."""
    grad, sides = call.tensor(0), call.integers(2)
    if not grad or not sides or len(sides) != len(grad.shape) or kernel.family is not Family.POOLING:
        return None
    size = element_bytes(grad.dtype or kernel.dtype)
    return Work(8.0 * grad.numel, grad.numel * size, math.prod(sides) * size, dtype="fp32")


_UPSAMPLES: Final = (
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "_upsample_nearest_exact1d", "_upsample_nearest_exact2d",
    "_upsample_nearest_exact3d", "upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d",
    "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa",
)  # fmt: skip

_Model = Callable[[Call, KernelClass], Work | None]
ROWWISE_MODELS: dict[str, _Model] = {
    "native_group_norm": _group_norm,
    "native_group_norm_backward": _group_norm_backward,
    **dict.fromkeys(("native_layer_norm", "_fused_rms_norm", "rms_norm"), _layer_norm),
    **dict.fromkeys(
        ("native_layer_norm_backward", "_fused_rms_norm_backward"),
        _layer_norm_backward,
    ),
    **dict.fromkeys(
        (
            "cudnn_batch_norm",
            "native_batch_norm",
            "miopen_batch_norm",
            "_batch_norm_with_update",
            "batch_norm_stats",
        ),
        _batch_norm,
    ),
    **dict.fromkeys(
        ("cudnn_batch_norm_backward", "native_batch_norm_backward", "miopen_batch_norm_backward"),
        _batch_norm_backward,
    ),
    **dict.fromkeys(("_softmax", "_log_softmax"), _softmax),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _softmax_backward),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _nll_loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _nll_loss_backward),
    **dict.fromkeys(
        ("max_pool2d_with_indices", "max_pool3d_with_indices", "avg_pool2d", "avg_pool3d"), _pool
    ),
    **dict.fromkeys(
        ("max_pool2d_with_indices_backward", "avg_pool2d_backward", "_adaptive_avg_pool2d_backward"),
        _pool_backward,
    ),
    **dict.fromkeys(_UPSAMPLES, _upsample),
    **dict.fromkeys((f"{name}_backward" for name in _UPSAMPLES), _upsample_backward),
}
"""By operator name without ``aten::``."""
