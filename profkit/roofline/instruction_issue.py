"""Kernels that are slow because of their own instructions: index arithmetic, casts, statistics, scans.

Such a kernel stays on the memory side, but it is not the GPU's idle time that makes it slow: its instructions keep
the multiprocessors busy, so it is not flagged unsaturated. Counters showed the instructions an element (thresholds).
"""

from __future__ import annotations

from collections.abc import Sequence

from profkit.hardware import Gpu
from profkit.model.kernel_class import KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Tensor
from profkit.roofline.thresholds import INSTRUCTIONS, STRIDED_BASE, STRIDED_PER_DIMENSION

__all__ = ["coalesced_rank", "issue_ns", "norm_instructions", "pointwise_instructions"]

_WARP = 32
_USUAL_RANK = 3


def issue_ns(work: Work, gpu: Gpu | None) -> float:
    """The time in which the GPU could issue the kernel's instructions; 0 when nothing is known of them."""
    rate = gpu.warp_instructions_per_s if gpu else None
    return work.instructions / _WARP / rate * 1e9 if rate else 0.0


def pointwise_instructions(kernel: KernelClass, elements: float, rank: int = _USUAL_RANK) -> float:
    """Instructions of a pointwise kernel: offsets by division for strided ones, conversions for casting ones."""
    operands = max(len(kernel.operands), 1)
    if kernel.style == "strided":
        return elements * operands * (STRIDED_BASE + STRIDED_PER_DIMENSION * rank)
    return elements * operands * INSTRUCTIONS["unrolled"] if kernel.style == "unrolled" else 0.0


def norm_instructions(elements: float, rows: float) -> float:
    """Instructions of a row-wise norm: for each element, and for the statistics of each row."""
    return elements * INSTRUCTIONS["norm"] + rows * INSTRUCTIONS["norm row"]


def coalesced_rank(tensors: Sequence[Tensor]) -> int:
    """Dimensions that are left when neighbours that lie alike in all tensors are taken as one."""
    known = [t for t in tensors if t.strides is not None and len(t.strides) == len(t.shape)]
    shape = max((t.shape for t in known), key=len, default=())
    alike = [t for t in known if t.shape == shape]
    if not alike or not shape:
        return _USUAL_RANK
    rank = 1
    for axis in range(len(shape) - 1):
        joined = all(t.strides and t.strides[axis] == t.strides[axis + 1] * shape[axis + 1] for t in alike)
        rank += not joined and shape[axis] > 1
    return rank
