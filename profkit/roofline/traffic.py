"""From compulsory bytes to DRAM bytes: what stays in the L2 cache, and what large products read again."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import DTYPE_BYTES, Gpu
from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.launch_shape import Launch
from profkit.roofline.thresholds import DRIFT, HELD_ON_CHIP, RASTER_LOSS, RESIDENT_INPUT, RESIDENT_WRITE

__all__ = ["repeated_bytes", "reread_bytes", "scattered_bytes", "written_to_dram"]

_DEFAULT_L2_BYTES = 40 * 2**20
_DEFAULT_TILE = (128, 128)
_DEFAULT_SMS = 100


def written_to_dram(
    read: NDArray[np.float64], written: NDArray[np.float64], l2_bytes: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of the bytes that a kernel wrote, those that have left the cache when it ends.

    Dirty lines share the cache with lines that were read, so less stays of a kernel that mostly reads.
    """
    l2 = np.where(np.isnan(l2_bytes), _DEFAULT_L2_BYTES, l2_bytes)
    share = written / np.maximum(read + written, 1.0)
    return np.maximum(written - RESIDENT_WRITE * l2 * np.sqrt(share), 0.0)


def repeated_bytes(work: Work, kernel: KernelClass, launch: Launch, gpu: Gpu | None) -> float:
    """Bytes that a matrix product moves more than once because they do not stay in the cache.

    The blocks that run at one time cover a patch of the result. Each patch reads its rows of A and its columns of
    B; an operand that outgrows its part of the cache is read again for every patch along the other side. Kernels
    whose grid is the grid of tiles number their blocks along its first side: they cover bands, within which blocks
    drift apart.
    """
    if work.gemm is None or work.role != "main":
        return 0.0
    batch, rows, columns, depth = work.gemm
    size = DTYPE_BYTES.get(work.dtype or kernel.dtype or "fp32", 4.0)
    l2 = (gpu.l2_bytes if gpu else None) or _DEFAULT_L2_BYTES
    a, b = rows * depth * size, columns * depth * size
    tile = kernel.tile or _DEFAULT_TILE
    splits = _splits(kernel, launch, batch)
    again = _workspace(work, splits, l2)
    bands = _bands(launch, tile, rows, columns)
    cores = (gpu.sm_count if gpu else None) or _DEFAULT_SMS
    if bands:
        again += _banded(bands, (a, b), launch.blocks_per_sm(gpu) * cores, splits, l2)
    else:
        patch = tile[0] * tile[1] * cores
        side = math.sqrt(patch)
        wide = min(patch / min(side, rows), columns)
        high = min(patch / wide, rows)
        again += max(columns / wide - 1.0, 0.0) * a * _missed(a, l2) * RASTER_LOSS
        again += max(rows / high - 1.0, 0.0) * b * _missed(b, l2) * RASTER_LOSS
    return batch * again


def _banded(
    bands: _Bands, operands: tuple[float, float], resident: int, splits: int, l2_bytes: float
) -> float:
    """What is read again when blocks run along one side of the tiles first, band after band."""
    across, repeated = (bands.columns, operands[0]) if bands.rows_first else (bands.rows, operands[1])
    along = bands.rows if bands.rows_first else bands.columns
    thick = max(1.0, min(resident / along, across))
    passes = math.ceil(across / thick) * (1.0 + DRIFT * (thick - 1.0))
    return (passes - 1.0) * repeated * _missed(repeated / splits, l2_bytes)


def reread_bytes(work: Work, launch: Launch, gpu: Gpu | None) -> float:
    """What a second pass reads from memory again.

    Blocks on the chip at one time compete for the cache with what they read, and what they have in common they read
    once; a persistent kernel keeps its data in registers and shared memory as well, as far as it fits.
    """
    l2 = (gpu.l2_bytes if gpu else None) or _DEFAULT_L2_BYTES
    resident = launch.blocks_per_sm(gpu) * ((gpu.sm_count if gpu else None) or _DEFAULT_SMS)
    if work.repeated[1]:
        turns = max(launch.blocks / resident, 1.0) if launch.blocks else math.inf
        return work.repeated[0] * min(work.repeated[1], turns - 1.0) * _missed(work.repeated[0], l2)
    if work.held:
        return max(work.reread_bytes - HELD_ON_CHIP * l2, 0.0)
    in_flight = work.reread_bytes * min(1.0, resident / max(launch.blocks, 1))
    return work.reread_bytes * _missed(in_flight, l2)


def scattered_bytes(work: Work, gpu: Gpu | None) -> tuple[float, float]:
    """What random accesses to places that were touched before read and write again.

    Nothing leaves the cache before it is full. Then it holds a part of the table: what else the kernel moves passes
    through it too, so that part is an operand's share.
    """
    table, read, written = work.scattered
    l2 = (gpu.l2_bytes if gpu else None) or _DEFAULT_L2_BYTES
    if table <= RESIDENT_INPUT * l2:
        return 0.0, 0.0
    full = max(1.0 - l2 / (work.total_bytes + read + written), 0.0)
    missed = full * (1.0 - RESIDENT_INPUT * l2 / table)
    return missed * read, missed * written


def _missed(size: float, l2_bytes: float) -> float:
    """The share of an operand that has left the cache when it is wanted again."""
    return min(max(size / (RESIDENT_INPUT * l2_bytes) - 1.0, 0.0), 1.0)


def _splits(kernel: KernelClass, launch: Launch, batch: float) -> int:
    """Parts that the depth is split in: xmma kernels number them along the grid's third side."""
    return launch.grid[2] if batch == 1 and kernel.family is Family.GEMM and "xmma" in kernel.function else 1


def _workspace(work: Work, splits: int, l2_bytes: float) -> float:
    """Partial results in fp32 that outgrow the cache are written and read again within the kernel."""
    if splits <= 1 or work.gemm is None:
        return 0.0
    partial = 4.0 * splits * work.gemm[1] * work.gemm[2]
    return 2.0 * partial * _missed(partial, l2_bytes)


@dataclass(frozen=True)
class _Bands:
    """A grid that is the grid of tiles: how many along the rows and the columns, and which side runs first."""

    rows: int
    columns: int
    rows_first: bool


def _bands(launch: Launch, tile: tuple[int, ...], rows: float, columns: float) -> _Bands | None:
    for high, wide in ((tile[0], tile[1]), (tile[1], tile[0])):
        along = (math.ceil(rows / high), math.ceil(columns / wide))
        if launch.grid[:2] == along:
            return _Bands(*along, rows_first=True)
        if launch.grid[:2] == along[::-1]:
            return _Bands(*along, rows_first=False)
    return None
