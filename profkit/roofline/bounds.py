"""The bound of every operation: its work, three times, the largest of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import OVERHEAD_NS, TENSOR, VECTOR, Gpu
from profkit.model import LAUNCH_SHAPE, CopyKind, IntColumn, OperationKind, Operations, Trace
from profkit.model.kernel_class import KernelClass
from profkit.model.work import Basis, OperationBound, OperationWork, Work
from profkit.roofline.activity import Activity
from profkit.roofline.attribution import Explained, explain_kernels
from profkit.roofline.counted_work import Counted, counted_activity
from profkit.roofline.inferred import infer_side, infer_work, used_share
from profkit.roofline.input_types import computed_types
from profkit.roofline.instruction_issue import issue_ns
from profkit.roofline.kernel_groups import group_rows, where_class
from profkit.roofline.kernel_names import classify
from profkit.roofline.launch_shape import Launch
from profkit.roofline.metric_samples import sampled_activity
from profkit.roofline.rates import exponential_ns, peak_of
from profkit.roofline.tensor_layout import converted
from profkit.roofline.thresholds import (
    IMPOSSIBLE,
    MOST_EFFICIENT,
    OVERHEAD_FACTOR,
    TIE,
    UNSATURATED_BELOW,
)
from profkit.roofline.traffic import repeated_bytes, reread_bytes, scattered_bytes, written_to_dram

__all__ = ["bound_operations", "decide"]

_B = OperationBound
_TRANSFERS = (
    CopyKind.HTOD, CopyKind.DTOH, CopyKind.HTOA, CopyKind.ATOH, CopyKind.MANAGED_HTOD, CopyKind.MANAGED_DTOH, CopyKind.MANAGED_DTOD,
)  # fmt: skip


def bound_operations(
    trace: Trace,
    operator_row: IntColumn,
    operator_parent: IntColumn,
    gpus: Sequence[Gpu | None],
    counted: Counted | None = None,
    lean: NDArray[np.bool_] | None = None,
) -> OperationWork:
    """Bound every operation of a trace.

    Args:
        trace: The timeline.
        operator_row: For each operation, the row in ``trace.ranges`` of the innermost operator that was open on
            the launching thread at its launch; -1 for none.
        operator_parent: For each range, the row of the operator range around it; -1 for none.
        gpus: The GPU of each of ``trace.devices``; None where it is not known.
        counted: Hardware counters of its kernels.
        lean: Of each operation, whether it cannot be bound by arithmetic, whatever its name.
    """
    work = OperationWork.unknown(len(trace.operations))
    figures = _DeviceFigures(trace, gpus, work.class_of_name, lean)
    work.overhead_ns[:] = figures.overhead_ns[trace.operations.device]
    rows = np.flatnonzero(trace.operations.kind == OperationKind.KERNEL)
    if len(rows):
        name_ids = np.unique(trace.operations.name[rows])
        classes = classify([trace.strings[i] if i >= 0 else "" for i in name_ids])
        work.class_of_name.update(zip(name_ids.tolist(), classes, strict=True))
        explained = explain_kernels(trace, rows, work.class_of_name, operator_row, operator_parent)
        work.unmodelled.update(explained.unmodelled)
        work.dtype[rows], types = computed_types(trace, rows, work.class_of_name, operator_row)
        work.dtypes.extend(types)
        work.product[rows], products = _products(explained)
        work.products.extend(products)
        _bound_kernels(trace, rows, explained, figures, work, counted)
    _bound_moves(trace.operations, figures, work)
    return work


def _products(explained: Explained) -> tuple[NDArray[np.int32], list[tuple[int, int, int]]]:
    """The matrix product of each kernel, as indices into a list of rows, columns and depth; -1 is none."""
    sizes = [_sides(work) for work in explained.works]
    distinct = {size: at for at, size in enumerate(dict.fromkeys(filter(None, sizes)))}
    # The last row is for kernels that no formula explains.
    number = np.array([distinct[size] if size else -1 for size in (*sizes, None)], np.int32)
    return number[explained.work], list(distinct)


def _sides(work: Work) -> tuple[int, int, int] | None:
    if work.gemm is None:
        return None
    _, rows, columns, depth = work.gemm
    return int(rows), int(columns), int(depth)


class _DeviceFigures:
    """The trace's devices, their figures as columns (NaN where a GPU is not known), and what is known of operations."""

    def __init__(
        self,
        trace: Trace,
        gpus: Sequence[Gpu | None],
        classes: dict[int, KernelClass],
        lean: NDArray[np.bool_] | None,
    ) -> None:
        self.gpus = list(gpus) or [None]
        self.operations = trace.operations
        self.classes = classes
        self.lean = np.zeros(len(trace.operations), bool) if lean is None else lean

        def column(values: list[float | None]) -> NDArray[np.float64]:
            return np.array([np.nan if value is None else value for value in values])

        self.overhead_ns = column([gpu.overhead_ns if gpu else OVERHEAD_NS for gpu in self.gpus])
        self.bandwidth = column([gpu.bandwidth_bytes_per_s if gpu else None for gpu in self.gpus])
        self.l2_bytes = column([gpu.l2_bytes if gpu else None for gpu in self.gpus])

    def most_bytes(self, device: IntColumn, duration_ns: NDArray[np.float64]) -> NDArray[np.float64]:
        """What the memory can move in a time; no limit where the bandwidth is unknown."""
        rate = np.where(np.isnan(self.bandwidth), np.inf, self.bandwidth)[device]
        return np.asarray(rate * np.maximum(duration_ns, 1.0) / 1e9)


@dataclass(frozen=True, eq=False)
class _Groups:
    """Work of kernels alike in name, launch and operator call: one row for each group."""

    flop: NDArray[np.float64]
    read: NDArray[np.float64]
    written: NDArray[np.float64]
    peak: NDArray[np.float64]
    side: NDArray[np.int8]
    basis: NDArray[np.int8]
    issue_ns: NDArray[np.float64]
    special_ns: NDArray[np.float64]
    used: NDArray[np.float64]
    early: NDArray[np.bool_]
    executed: NDArray[np.float64]

    @classmethod
    def unknown(cls, count: int) -> _Groups:
        flop, read, written, peak = (np.full(count, np.nan) for _ in range(4))
        side, basis = np.full(count, _B.UNKNOWN, np.int8), np.full(count, Basis.UNKNOWN, np.int8)
        return cls(
            flop, read, written, peak, side, basis,
            issue_ns=np.zeros(count), special_ns=np.zeros(count), used=np.ones(count),
            early=np.zeros(count, bool), executed=np.ones(count),
        )  # fmt: skip


def _bound_kernels(
    trace: Trace,
    rows: NDArray[np.intp],
    explained: Explained,
    figures: _DeviceFigures,
    work: OperationWork,
    counted: Counted | None,
) -> None:
    operations = trace.operations
    columns = [getattr(operations, column)[rows] for column in ("device", "name", *LAUNCH_SHAPE)]
    first, group = group_rows([*columns, explained.work])
    duration = (operations.end_ns - operations.start_ns)[rows].astype(float)
    mean = np.bincount(group, duration) / np.bincount(group)
    groups = _work_of_groups(operations, rows[first], mean, (explained.works, explained.work[first]), figures)
    fraction = explained.fraction
    read, written = groups.read[group] * fraction, groups.written[group] * fraction
    device = operations.device[rows]
    left = written_to_dram(read, written, figures.l2_bytes[device])
    moved = read + np.where(groups.early[group], written, left)
    moved = np.minimum(moved, figures.most_bytes(device, duration))
    work.flop[rows], work.dram_bytes[rows], work.peak_flops[rows] = (
        groups.flop[group] * fraction,
        moved,
        groups.peak[group],
    )
    work.memory_ns[rows] = moved / figures.bandwidth[device] * 1e9
    executed = work.flop[rows] * groups.executed[group]
    work.compute_ns[rows] = executed / groups.peak[group] * 1e9 + groups.special_ns[group] * fraction
    work.basis[rows] = groups.basis[group]
    issue_ns = groups.issue_ns[group] * fraction
    on_tensor_cores = where_class(
        operations.name[rows], figures.classes, lambda kernel: kernel.tensor_core is True
    )
    activity = sampled_activity(trace, rows, group, on_tensor_cores)
    if counted:
        activity = counted_activity(counted, rows, duration, figures.bandwidth[device])
    if activity:
        issue_ns = _take_measured(work, rows, activity, figures, issue_ns)
    side = np.where(figures.lean[rows] & (groups.side[group] == _B.COMPUTE), _B.MEMORY, groups.side[group])
    _disbelieve(work, rows, duration, side)
    decide(work, rows, duration, side, groups.used[group])
    depthwise = where_class(operations.name[rows], figures.classes, lambda kernel: kernel.is_depthwise)
    issued = depthwise & (work.bound[rows] == _B.MEMORY) & (issue_ns > work.memory_ns[rows])
    # its arithmetic is a tenth of its instructions: no efficiency follows from either
    work.bound[rows[issued]], work.efficiency[rows[issued]] = _B.COMPUTE, np.nan
    work.unsaturated[rows[issued]] = -1
    busy = issue_ns >= UNSATURATED_BELOW * duration
    work.unsaturated[rows] = np.where(busy, np.minimum(work.unsaturated[rows], 0), work.unsaturated[rows])


def _disbelieve(
    work: OperationWork, rows: NDArray[np.intp], duration: NDArray[np.float64], side: NDArray[np.int8]
) -> None:
    """Work far beyond the GPU's peak rate is not what was done: only the name's side remains."""
    rate = work.compute_ns[rows] / np.maximum(duration, 1.0)
    work.excess[rows] = np.where(rate > MOST_EFFICIENT, rate, np.nan)
    wrong = rate > IMPOSSIBLE
    work.flop[rows[wrong]] = work.compute_ns[rows[wrong]] = np.nan
    modelled = wrong & (work.basis[rows] != Basis.MEASURED)
    work.dram_bytes[rows[modelled]] = work.memory_ns[rows[modelled]] = np.nan
    work.basis[rows[modelled]] = np.where(side[modelled] == _B.UNKNOWN, Basis.UNKNOWN, Basis.INFERRED)


def _take_measured(
    work: OperationWork,
    rows: NDArray[np.intp],
    activity: Activity,
    figures: _DeviceFigures,
    issue_ns: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Put what was measured in the place of what was modelled; returns the time of instruction issue."""
    known = np.flatnonzero(~np.isnan(activity.dram))
    operations, at = figures.operations, rows[known]
    duration = (operations.end_ns - operations.start_ns)[at].astype(float)
    work.memory_ns[at] = activity.dram[known] * duration
    work.dram_bytes[at] = work.memory_ns[at] * figures.bandwidth[operations.device[at]] / 1e9
    work.basis[at] = Basis.MEASURED
    for unit, share in ((TENSOR, activity.tensor[known]), (VECTOR, activity.issue[known])):
        of_unit = partial(_is_of_unit, unit)
        here = where_class(operations.name[at], figures.classes, of_unit) & ~np.isnan(share)
        work.compute_ns[at[here]] = (share * duration)[here]
    measured = issue_ns.copy()
    measured[known] = np.where(
        np.isnan(activity.issue[known]), issue_ns[known], activity.issue[known] * duration
    )
    return measured


def _is_of_unit(unit: str, kernel: KernelClass) -> bool:
    return _unit(kernel) == unit


def _unit(kernel: KernelClass) -> str:
    """The unit whose activity is a kernel's compute time; none for kernels that are not matrix products."""
    if not kernel.is_matrix:
        return ""
    return VECTOR if kernel.tensor_core is False else TENSOR


def _work_of_groups(
    operations: Operations,
    rows: NDArray[np.intp],
    mean_ns: NDArray[np.float64],
    modelled: tuple[list[Work], NDArray[np.int64]],
    figures: _DeviceFigures,
) -> _Groups:
    works, ids = modelled
    groups = _Groups.unknown(len(rows))
    for index, row in enumerate(rows):
        kernel = figures.classes[int(operations.name[row])]
        gpu = figures.gpus[int(operations.device[row])]
        launch = Launch.of(operations, int(row), float(mean_ns[index]))
        groups.side[index] = infer_side(kernel, launch if ids[index] < 0 else None)
        groups.used[index] = used_share(launch, gpu)
        found = works[ids[index]] if ids[index] >= 0 else infer_work(kernel, launch, gpu)
        found = converted(found, launch) if found and found.images else found
        groups.peak[index] = peak_of(kernel, found, gpu)
        if found:
            scattered = scattered_bytes(found, gpu)
            groups.flop[index], groups.written[index] = found.flop, found.write_bytes + scattered[1]
            again = repeated_bytes(found, kernel, launch, gpu) + reread_bytes(found, launch, gpu)
            groups.read[index] = found.read_bytes + again + scattered[0]
            groups.early[index], groups.executed[index] = found.written_early, found.executed
            groups.issue_ns[index] = issue_ns(found, gpu)
            groups.special_ns[index] = exponential_ns(found, gpu)
        if found or groups.side[index] != _B.UNKNOWN:
            shaped = ids[index] >= 0 and found and not found.guessed
            groups.basis[index] = Basis.MODELLED if shaped else Basis.INFERRED
    return groups


def decide(
    work: OperationWork,
    rows: NDArray[np.intp],
    duration: NDArray[np.float64],
    side: NDArray[np.int8],
    used: NDArray[np.float64],
) -> None:
    """The largest of the three times; where the work is unknown, the family's side.

    A matrix kernel whose compute and memory times are equal within the models' error is on the compute side.
    Unknown work of blocks that cannot use the GPU for longer than `To`, however good they are, is overhead.
    """
    compute, memory, overhead = work.compute_ns[rows], work.memory_ns[rows], work.overhead_ns[rows]
    known = ~np.isnan(memory) | ~np.isnan(compute)
    terms = np.stack([np.nan_to_num(compute), np.nan_to_num(memory), overhead])
    largest = terms.argmax(axis=0).astype(np.int8)
    tie = (
        (largest == _B.MEMORY) & (side == _B.COMPUTE) & (terms[_B.COMPUTE] * (1.0 + TIE) >= terms[_B.MEMORY])
    )
    largest[tie] = _B.COMPUTE
    short = (duration * used <= overhead) | (duration <= OVERHEAD_FACTOR * overhead)
    guessed = np.where(short & (side <= _B.MEMORY), _B.OVERHEAD, side)
    bound = np.where(known & (side != _B.COMMUNICATION), largest, guessed).astype(np.int8)
    chosen = np.take_along_axis(terms, largest[None].astype(np.intp), axis=0)[0]
    efficiency = chosen / np.maximum(duration, 1.0)
    efficiency[~known | (bound > _B.MEMORY) | (efficiency > MOST_EFFICIENT)] = np.nan
    efficiency = np.minimum(efficiency, 1.0)
    work.bound[rows], work.efficiency[rows] = bound, efficiency
    work.unsaturated[rows] = np.where(np.isnan(efficiency), -1, efficiency < UNSATURATED_BELOW)


def _bound_moves(operations: Operations, figures: _DeviceFigures, work: OperationWork) -> None:
    """Copies and memsets: their kind decides; within a device a copy reads and writes its bytes."""
    copy, memset = operations.kind == OperationKind.COPY, operations.kind == OperationKind.MEMSET
    both_known = (operations.source_device >= 0) & (operations.target_device >= 0)
    peer = copy & (
        (operations.copy_kind == CopyKind.PTOP)
        | (both_known & (operations.source_device != operations.target_device))
    )
    transfer = copy & ~peer & np.isin(operations.copy_kind, _TRANSFERS)
    within = (copy & ~peer & ~transfer & (operations.copy_kind != CopyKind.UNKNOWN)) | memset
    work.bound[peer], work.bound[transfer] = _B.COMMUNICATION, _B.TRANSFER
    work.basis[peer | transfer | within] = Basis.MODELLED
    rows = np.flatnonzero(within)
    size = operations.bytes[rows].astype(float)
    size[size < 0] = np.nan
    read, device = np.where(memset[rows], 0.0, size), operations.device[rows]
    duration = (operations.end_ns - operations.start_ns)[rows].astype(float)
    moved = read + written_to_dram(read, size, figures.l2_bytes[device])
    work.dram_bytes[rows] = np.minimum(moved, figures.most_bytes(device, duration))
    work.memory_ns[rows] = work.dram_bytes[rows] / figures.bandwidth[device] * 1e9
    decide(work, rows, duration, np.full(len(rows), _B.MEMORY, np.int8), np.ones(len(rows)))
