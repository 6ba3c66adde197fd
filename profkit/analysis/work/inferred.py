"""Work and bound without shapes: from a kernel's name, grid, block and duration."""

from __future__ import annotations

from dataclasses import dataclass

from profkit.analysis.work.names import Family, KernelClass
from profkit.analysis.work.work import OperationBound, Work
from profkit.hardware import DTYPE_BYTES, Gpu

__all__ = ["Launch", "infer_side", "infer_work"]

_SKINNY_TILE = 32
"""A matrix kernel whose tile is at most this narrow was chosen for a skinny product."""
_VECTORIZED_ITEMS = (16, 8, 4)


@dataclass(frozen=True)
class Launch:
    """The shape of a launch, and how long its kernels take."""

    blocks: int
    threads: int
    """Threads a block."""
    mean_ns: float


def infer_side(kernel: KernelClass, launch: Launch, gpu: Gpu | None) -> OperationBound:
    """The side that a kernel of this family is on when its size is unknown."""
    if kernel.is_collective:
        return OperationBound.COMMUNICATION
    if kernel.family is Family.OTHER:
        return OperationBound.UNKNOWN
    if not kernel.is_matrix:
        return OperationBound.MEMORY
    return OperationBound.MEMORY if _is_skinny(kernel) else OperationBound.COMPUTE


def infer_work(kernel: KernelClass, launch: Launch, gpu: Gpu | None) -> Work | None:
    """The bytes that a pointwise kernel moves, from its threads, elements a thread and operand types."""
    if not kernel.operands or launch.blocks <= 0 or launch.threads <= 0:
        return None
    known = [DTYPE_BYTES.get(t, 4.0) if t else None for t in kernel.operands]
    typical = next((size for size in known if size), 4.0)
    sizes = [typical if size is None else size for size in known]
    threads = launch.blocks * launch.threads
    bandwidth = gpu.bandwidth_bytes_per_s if gpu else None
    items = kernel.items or _vectorized_items(threads * sum(sizes), launch.mean_ns, bandwidth)
    elements = threads * items
    return Work(
        flop=elements,
        read_bytes=elements * sum(sizes[1:]),
        write_bytes=elements * sizes[0],
        dtype=kernel.dtype,
    )


def _vectorized_items(bytes_per_item: float, mean_ns: float, bandwidth: float | None) -> int:
    """Elements a thread differ by PyTorch version (4, 8 or 16): the most that the bandwidth allows."""
    for items in _VECTORIZED_ITEMS[1:]:
        if bandwidth and items * bytes_per_item / bandwidth * 1e9 <= mean_ns * 1.05:
            return items
    return _VECTORIZED_ITEMS[-1]


def _is_skinny(kernel: KernelClass) -> bool:
    """Products of a matrix with a vector or with few rows read each weight for little arithmetic."""
    if any(
        word in kernel.function
        for word in ("gemv", "dot_kernel", "reduce_1block", "splitkreduce", "gemmk1", "scal_kernel")
    ):
        return True
    return kernel.family is Family.GEMM and kernel.tile is not None and min(kernel.tile[:2]) <= _SKINNY_TILE
