"""Work and bound without shapes: from a kernel's name, grid, block and duration."""

from __future__ import annotations

import math

from profkit.hardware import DTYPE_BYTES, Gpu
from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import OperationBound, Work
from profkit.roofline.instruction_issue import pointwise_instructions
from profkit.roofline.launch_shape import Launch
from profkit.roofline.list_names import CHUNK_ELEMENTS

__all__ = ["infer_side", "infer_work", "used_share"]

_SKINNY_TILE = 32
"""A matrix kernel whose tile is at most this narrow, and longer, was chosen for a skinny product."""
_SKINNY_NVJET_TILE = 64
"""cuBLAS has nvjet tiles of every width in steps of 8 and fills the GPU with any of them: it takes one so narrow only
where the product is no wider. At 64 of 16 bits that is at most 64 FLOP a byte; the ridge of an H100 or H200 is over 200."""
_DECODE_TILE = 16
"""cuDNN's attention for so few queries at a time reads keys and values for little arithmetic."""
_VECTORIZED_ITEMS = (16, 8, 4)
_BELIEVABLE = 1.5
"""Outputs that stay in the cache let an estimate exceed what the memory moved, but not by more."""
_FLASH_BY_ROWS = ("flash_fwd_kernel", "flash_bwd_dq_dk_dv")
_LEAN_SIDE = 128
"""A result of this side is at most 64 FLOP a byte in 16 bits and 32 in 32 bits, TF32 too: a third and a fifth of the
ridge of an H100, and under that of GPUs with little memory bandwidth for their units."""
_AROUND_ATTENTION = ("dot_do_o", "convert_dq", "combine", "splitkv", "paged_attention")
"""Paged attention of vLLM has one query a sequence, and reads its keys and values for it."""


def infer_side(kernel: KernelClass, launch: Launch | None = None) -> OperationBound:
    """The side that a kernel's family is on, for when its work is unknown; with its launch, if that tells a lean product."""
    if kernel.is_collective:
        return OperationBound.COMMUNICATION
    if kernel.family is Family.OTHER:
        return OperationBound.UNKNOWN
    lean = _is_lean(kernel) or (launch is not None and _is_lean_launch(kernel, launch))
    if kernel.is_depthwise or (kernel.is_matrix and not lean):
        return OperationBound.COMPUTE
    return OperationBound.MEMORY


def _is_lean_launch(kernel: KernelClass, launch: Launch) -> bool:
    """Whether the grid shows little arithmetic a byte.

    FlashAttention 2 numbers blocks of at most 128 queries (backward: keys) along the grid's first side: one block for
    all of them is at most 128 FLOP a byte, under the ridge of every GPU since A100. Other products number the tiles of
    their result along the first two sides (kernels that stay on the GPU show a block for each multiprocessor, which
    is no small result): one of side s reads and writes at least a byte for s / size FLOP. The ridge of double
    precision lies far lower.
    """
    if kernel.family is Family.ATTENTION:
        return launch.grid[0] == 1 and kernel.function.startswith(_FLASH_BY_ROWS)
    if (
        kernel.family is not Family.GEMM
        or not kernel.tile
        or not kernel.tensor_core
        or kernel.dtype == "fp64"
    ):
        return False
    side = math.sqrt(launch.grid[0] * launch.grid[1] * kernel.tile[0] * kernel.tile[1])
    return 0 < side <= _LEAN_SIDE


def used_share(launch: Launch, gpu: Gpu | None) -> float:
    """The share of the multiprocessors that a launch's blocks can occupy at all."""
    cores = gpu.sm_count if gpu else None
    return min(1.0, launch.blocks / cores) if cores and launch.blocks > 0 else 1.0


def _is_lean(kernel: KernelClass) -> bool:
    """Matrix kernels with little arithmetic a byte: vectors, few rows, passes around attention."""
    narrow, wide = sorted(kernel.tile[:2]) if kernel.tile else (0, 0)
    if kernel.family is Family.ATTENTION:
        return any(word in kernel.function for word in _AROUND_ATTENTION) or 0 < narrow <= _DECODE_TILE
    beside = kernel.is_winograd_pass or kernel.adds_partial_sums or "scal_kernel" in kernel.function
    if beside or kernel.is_of_vectors:
        return True
    # Triton's names do not tell the unit: 16 bits are narrow on either.
    fast = kernel.tensor_core or (kernel.unit is None and DTYPE_BYTES.get(kernel.dtype or "", 4.0) <= 2)
    if kernel.family is not Family.GEMM or not narrow or not fast:
        return False
    if kernel.function.startswith("nvjet"):
        return narrow <= _SKINNY_NVJET_TILE
    return narrow <= _SKINNY_TILE and wide > narrow


def infer_work(kernel: KernelClass, launch: Launch, gpu: Gpu | None) -> Work | None:
    """The bytes of a pointwise kernel or a kernel over lists, from its threads and what its name says of one.

    None when the launch would move more than the memory can in its time: then the estimate does not hold, since
    inputs are broadcast or blocks are not filled.
    """
    if launch.blocks <= 0 or launch.threads <= 0:
        return None
    work = _listed(kernel, launch) if kernel.lists else _pointwise(kernel, launch, gpu)
    bandwidth = gpu.bandwidth_bytes_per_s if gpu else None
    if work is None or (bandwidth and work.total_bytes / bandwidth * 1e9 > _BELIEVABLE * launch.mean_ns):
        return None
    return work


def _listed(kernel: KernelClass, launch: Launch) -> Work:
    """Every block takes a chunk of a list; the last of a tensor is seldom full."""
    read, written = kernel.lists or (0.0, 0.0)
    elements = float(launch.blocks * CHUNK_ELEMENTS)
    size = DTYPE_BYTES.get(kernel.dtype or "fp32", 4.0)
    return Work(elements, elements * read * size, elements * written * size, dtype="fp32")


def _pointwise(kernel: KernelClass, launch: Launch, gpu: Gpu | None) -> Work | None:
    """An array whose type only the run knows is being cast: between 16 and 32 bits, the usual pair."""
    if not kernel.operands:
        return None
    known = [DTYPE_BYTES.get(t, 4.0) if t else None for t in kernel.operands]
    other = 2.0 if next((size for size in known if size), 2.0) == 4.0 else 4.0
    sizes = [other if size is None else size for size in known]
    threads = launch.blocks * launch.threads
    bandwidth = gpu.bandwidth_bytes_per_s if gpu else None
    items = kernel.items or _vectorized_items(threads * sum(sizes), launch.mean_ns, bandwidth)
    elements = float(threads * items)
    read = elements * sum(sizes[1:])
    return Work(
        elements,
        read,
        elements * sizes[0],
        dtype=kernel.dtype,
        instructions=pointwise_instructions(kernel, elements),
    )


def _vectorized_items(bytes_per_item: float, mean_ns: float, bandwidth: float | None) -> int:
    """Elements a thread differ by PyTorch version (4, 8 or 16): the most that the bandwidth allows."""
    for items in _VECTORIZED_ITEMS[1:]:
        if bandwidth and items * bytes_per_item / bandwidth * 1e9 <= mean_ns * 1.05:
            return items
    return _VECTORIZED_ITEMS[-1]
