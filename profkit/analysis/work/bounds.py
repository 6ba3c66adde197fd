"""The bound of every operation: work, three times, the largest of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.work.inferred import Launch, infer_side, infer_work
from profkit.analysis.work.names import KernelClass, classify
from profkit.analysis.work.thresholds import OVERHEAD_FACTOR, UNSATURATED_BELOW
from profkit.analysis.work.work import Basis, OperationBound, OperationWork
from profkit.hardware import OVERHEAD_NS, TENSOR, VECTOR, Gpu
from profkit.model import CopyKind, IntColumn, OperationKind, Trace

__all__ = ["bound_operations"]

_B = OperationBound
_TRANSFERS = (
    CopyKind.HTOD, CopyKind.DTOH, CopyKind.HTOA, CopyKind.ATOH, CopyKind.MANAGED_HTOD, CopyKind.MANAGED_DTOH, CopyKind.MANAGED_DTOD,
)  # fmt: skip


def bound_operations(
    trace: Trace,
    operator_row: IntColumn,
    operator_parent: IntColumn,
    gpus: Sequence[Gpu | None],
) -> OperationWork:
    """Bound every operation of a trace.

    Args:
        trace: The timeline.
        operator_row: For each operation, the row in ``trace.ranges`` of the innermost operator that was open on
            the launching thread at its launch; -1 for none.
        operator_parent: For each range, the row of the operator range around it; -1 for none.
        gpus: The card of each of ``trace.devices``; None where it is not known.
    """
    work = OperationWork.unknown(len(trace.operations))
    device = trace.operations.device
    overhead = np.array([gpu.overhead_ns if gpu else OVERHEAD_NS for gpu in gpus] or [OVERHEAD_NS])
    work.overhead_ns[:] = overhead[device]
    _bound_kernels(trace, gpus, work)
    _bound_moves(trace, gpus, work)
    return work


def _bound_kernels(trace: Trace, gpus: Sequence[Gpu | None], work: OperationWork) -> None:
    operations = trace.operations
    rows = np.flatnonzero(operations.kind == OperationKind.KERNEL)
    if not len(rows):
        return
    name_ids = np.unique(operations.name[rows])
    classes = classify([trace.strings[i] if i >= 0 else "" for i in name_ids])
    work.class_of_name.update(zip(name_ids.tolist(), classes, strict=True))
    keys = np.stack(
        [
            getattr(operations, c)[rows]
            for c in ("device", "name", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
        ]
    )
    _, first, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
    group = group.reshape(-1)
    duration = (operations.end_ns - operations.start_ns)[rows].astype(float)
    mean = np.bincount(group, duration) / np.bincount(group)
    side = np.full(len(first), _B.UNKNOWN, np.int8)
    flop, moved, peak = (np.full(len(first), np.nan) for _ in range(3))
    bandwidth = np.full(len(first), np.nan)
    for index, row in enumerate(rows[first]):
        kernel = work.class_of_name[int(operations.name[row])]
        gpu = gpus[int(operations.device[row])]
        launch = _launch(operations, row, mean[index])
        side[index] = infer_side(kernel, launch)
        bandwidth[index] = (gpu and gpu.bandwidth_bytes_per_s) or np.nan
        peak[index] = _peak(kernel, gpu) or np.nan
        found = infer_work(kernel, launch, gpu)
        if found:
            flop[index], moved[index] = found.flop, found.total_bytes
    work.flop[rows], work.dram_bytes[rows], work.peak_flops[rows] = flop[group], moved[group], peak[group]
    work.memory_ns[rows] = (moved / bandwidth * 1e9)[group]
    work.compute_ns[rows] = (flop / peak * 1e9)[group]
    work.basis[rows] = np.where(side == _B.UNKNOWN, Basis.UNKNOWN, Basis.INFERRED)[group]
    _decide(work, rows, duration, side[group])


def _launch(operations: object, row: int, mean_ns: float) -> Launch:
    def product(stem: str) -> int:
        sides = [int(getattr(operations, f"{stem}_{axis}")[row]) for axis in "xyz"]
        return max(sides[0], 0) * max(sides[1], 1) * max(sides[2], 1)

    return Launch(product("grid"), product("block"), mean_ns)


def _peak(kernel: KernelClass, gpu: Gpu | None) -> float | None:
    if gpu is None or kernel.is_collective:
        return None
    unit = kernel.unit or (TENSOR if kernel.is_matrix and kernel.dtype in ("fp16", "bf16", "fp8") else VECTOR)
    return gpu.peak(kernel.dtype or "fp32", unit)


def _decide(
    work: OperationWork, rows: NDArray[np.intp], duration: NDArray[np.float64], side: NDArray[np.int8]
) -> None:
    """The largest of the three times; by family where the work is unknown."""
    compute, memory, overhead = work.compute_ns[rows], work.memory_ns[rows], work.overhead_ns[rows]
    known = ~np.isnan(memory) | ~np.isnan(compute)
    terms = np.stack([np.nan_to_num(compute), np.nan_to_num(memory), overhead])
    largest = terms.argmax(axis=0).astype(np.int8)
    guessed = np.where((duration <= OVERHEAD_FACTOR * overhead) & (side <= _B.MEMORY), _B.OVERHEAD, side)
    bound = np.where(known & (side != _B.COMMUNICATION), largest, guessed).astype(np.int8)
    efficiency = np.minimum(terms.max(axis=0) / np.maximum(duration, 1.0), 1.0)
    efficiency[~known | (bound > _B.MEMORY)] = np.nan
    work.bound[rows], work.efficiency[rows] = bound, efficiency
    work.unsaturated[rows] = np.where(np.isnan(efficiency), -1, efficiency < UNSATURATED_BELOW)


def _bound_moves(trace: Trace, gpus: Sequence[Gpu | None], work: OperationWork) -> None:
    """Copies and memsets: their kind decides, and within a device they move their bytes twice or once."""
    operations = trace.operations
    copy, memset = operations.kind == OperationKind.COPY, operations.kind == OperationKind.MEMSET
    differ = (
        (operations.source_device != operations.target_device)
        & (operations.source_device >= 0)
        & (operations.target_device >= 0)
    )
    peer = copy & ((operations.copy_kind == CopyKind.PTOP) | differ)
    transfer = copy & ~peer & np.isin(operations.copy_kind, _TRANSFERS)
    within = (copy & ~peer & ~transfer & (operations.copy_kind != CopyKind.UNKNOWN)) | memset
    work.bound[peer], work.bound[transfer] = _B.COMMUNICATION, _B.TRANSFER
    work.basis[peer | transfer | within] = Basis.MODELLED
    rates = np.array([(gpu and gpu.bandwidth_bytes_per_s) or np.nan for gpu in gpus] or [np.nan])
    rows = np.flatnonzero(within)
    size = operations.bytes[rows].astype(float)
    size[size < 0] = np.nan
    work.dram_bytes[rows] = size * np.where(memset[rows], 1.0, 2.0)
    work.memory_ns[rows] = work.dram_bytes[rows] / rates[operations.device[rows]] * 1e9
    duration = (operations.end_ns - operations.start_ns)[rows].astype(float)
    _decide(work, rows, duration, np.full(len(rows), _B.MEMORY, np.int8))
