"""FLOP and bytes of matrix products: 2·B·M·N·K, and each matrix once.

Source: torch.utils.flop_counter (mm, addmm, bmm, baddbmm); NVIDIA's Matrix Multiplication Background guide.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes

__all__ = ["GEMM_MODELS"]

_SPLITS = 2
"""Partial sums of a split-K product that its reduction reads: names do not say how many, two is usual."""


def _product(
    kernel: KernelClass, a: Tensor, b: Tensor, sizes: tuple[int, int, int, int], added: Tensor | None = None
) -> Work | None:
    batch, rows, columns, depth = sizes
    if kernel.family is not Family.GEMM or min(sizes) < 1:
        return None
    out_bytes = element_bytes(kernel.out_dtype or a.dtype or kernel.dtype)
    out = float(batch * rows * columns)
    if kernel.adds_partial_sums:
        return Work(
            flop=out * _SPLITS,
            read_bytes=out * _SPLITS * 4,
            write_bytes=out * out_bytes,
            role="splitk",
            dtype="fp32",
        )
    extra = added.nbytes(kernel.out_dtype) if added is not None else 0.0
    return Work(
        flop=2.0 * batch * rows * columns * depth,
        read_bytes=a.nbytes(kernel.dtype) + b.nbytes(kernel.dtype) + extra,
        write_bytes=out * out_bytes,
        dtype=a.dtype,
        gemm=(batch, rows, columns, depth),
    )


def _mm(first: int) -> Callable[[Call, KernelClass], Work | None]:
    """``mm``-like operators whose matrices begin at input ``first``; what is before them is added."""

    def model(call: Call, kernel: KernelClass) -> Work | None:
        a, b = call.tensor(first), call.tensor(first + 1)
        if not a or not b or len(a.shape) != 2 or len(b.shape) != 2:
            return None
        return _product(
            kernel, a, b, (1, a.shape[0], b.shape[1], a.shape[1]), call.tensor(0) if first else None
        )

    return model


def _bmm(first: int) -> Callable[[Call, KernelClass], Work | None]:
    def model(call: Call, kernel: KernelClass) -> Work | None:
        a, b = call.tensor(first), call.tensor(first + 1)
        if not a or not b or len(a.shape) != 3 or len(b.shape) != 3:
            return None
        sizes = (a.shape[0], a.shape[1], b.shape[2], a.shape[2])
        return _product(kernel, a, b, sizes, call.tensor(0) if first else None)

    return model


def _grouped(call: Call, kernel: KernelClass) -> Work | None:
    """Rows of one matrix, each multiplied with the matrix of its group: ``[M, K] x [G, K, N]``.

    The groups' sizes lie in device memory, but they add up to M. With two dimensions on both sides (the gradient of
    the weights) the groups divide the depth, and each has a result; with three on both it is a batch.
    """
    a, b = call.tensor(0), call.tensor(1)
    if not a or not b:
        return None
    if len(a.shape) == len(b.shape) == 3:
        return _product(kernel, a, b, (a.shape[0], a.shape[1], b.shape[2], a.shape[2]))
    if len(a.shape) == 2 and len(b.shape) == 3:
        return _product(kernel, a, b, (1, a.shape[0], b.shape[2], a.shape[1]))
    ends = call.tensor(2)
    if len(a.shape) == len(b.shape) == 2 and ends and len(ends.shape) == 1:
        work = _product(kernel, a, b, (1, a.shape[0], b.shape[1], a.shape[1]))
        return work and replace(work, write_bytes=work.write_bytes * ends.shape[0])
    if len(a.shape) == 3 and len(b.shape) == 2:
        return _product(kernel, a, b, (1, a.shape[1], b.shape[1], a.shape[2]))
    return None


def _linear(call: Call, kernel: KernelClass) -> Work | None:
    """``linear(x[..., K], weight[N, K])``."""
    x, weight = call.tensor(0), call.tensor(1)
    if not x or not weight or not x.shape or len(weight.shape) != 2:
        return None
    return _product(
        kernel, x, weight, (1, math.prod(x.shape[:-1]), weight.shape[0], x.shape[-1]), call.tensor(2)
    )


def _matmul(call: Call, kernel: KernelClass) -> Work | None:
    """Broadcasting ``matmul``; used only where a recording has no inner product operator."""
    a, b = call.tensor(0), call.tensor(1)
    if not a or not b or len(a.shape) < 2 or len(b.shape) < 2:
        return None
    batch = max(math.prod(a.shape[:-2]), math.prod(b.shape[:-2]))
    return _product(kernel, a, b, (batch, a.shape[-2], b.shape[-1], a.shape[-1]))


def _mv(first: int) -> Callable[[Call, KernelClass], Work | None]:
    def model(call: Call, kernel: KernelClass) -> Work | None:
        a, x = call.tensor(first), call.tensor(first + 1)
        if not a or not x or not a.shape or len(x.shape) != 1:
            return None
        return _product(kernel, a, x, (1, math.prod(a.shape[:-1]), 1, a.shape[-1]))

    return model


GEMM_MODELS: dict[str, Callable[[Call, KernelClass], Work | None]] = {
    "mm": _mm(0),
    "addmm": _mm(1),
    "_addmm_activation": _mm(1),
    "_scaled_mm": _mm(0),
    "_int_mm": _mm(0),
    "_grouped_mm": _grouped,
    "_scaled_grouped_mm": _grouped,
    "bmm": _bmm(0),
    "baddbmm": _bmm(1),
    "linear": _linear,
    "matmul": _matmul,
    "mv": _mv(0),
    "addmv": _mv(1),
    "dot": _mv(0),
    "vdot": _mv(0),
}
"""By operator name without ``aten::``."""
