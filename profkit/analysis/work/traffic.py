"""From compulsory bytes to DRAM bytes: what stays in the L2 cache, and what large products read again."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.work.names import KernelClass
from profkit.analysis.work.thresholds import RASTER_LOSS, RESIDENT_INPUT, RESIDENT_WRITE
from profkit.analysis.work.work import Work
from profkit.hardware import DTYPE_BYTES, Gpu

__all__ = ["repeated_reads", "written_to_dram"]

_DEFAULT_L2_BYTES = 40 * 2**20
_DEFAULT_TILE = (128, 128)


def written_to_dram(
    read: NDArray[np.float64], written: NDArray[np.float64], l2_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of the bytes that a kernel wrote, those that have left the cache when it ends.

    Dirty lines share the cache with lines that were read, so less stays of a kernel that mostly reads.
    """
    l2 = np.where(np.isnan(l2_bytes), _DEFAULT_L2_BYTES, l2_bytes)
    share = written / np.maximum(read + written, 1.0)
    return np.maximum(written - RESIDENT_WRITE * l2 * np.sqrt(share), 0.0)


def repeated_reads(work: Work, kernel: KernelClass, gpu: Gpu | None) -> float:
    """Bytes that a matrix product reads more than once because its operands do not stay in the cache.

    The blocks that run at one time cover a patch of the result. Each patch reads its rows of A and its columns
    of B; an operand that outgrows its part of the cache is read again for every patch along the other side.
    """
    if work.gemm is None:
        return 0.0
    batch, rows, columns, depth = work.gemm
    size = DTYPE_BYTES.get(work.dtype or kernel.dtype or "fp32", 4.0)
    room = RESIDENT_INPUT * ((gpu.l2_bytes if gpu else None) or _DEFAULT_L2_BYTES)
    a, b = rows * depth * size, columns * depth * size
    if a + b <= room:
        return 0.0
    tile = kernel.tile or _DEFAULT_TILE
    patch = tile[0] * tile[1] * ((gpu.sm_count if gpu else None) or 100)
    side = math.sqrt(patch)
    high, wide = min(side, rows), min(side, columns)
    high, wide = min(patch / wide, rows), min(patch / high, columns)
    again_a = max(columns / wide - 1.0, 0.0) * a if min(a, high * depth * size) > 0 and a > room / 2 else 0.0
    again_b = max(rows / high - 1.0, 0.0) * b if b > room / 2 else 0.0
    return batch * (again_a + again_b) * RASTER_LOSS
