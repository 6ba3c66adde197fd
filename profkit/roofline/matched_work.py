"""A profiler trace gives what an nsys export of the same step lacks: the work of each kernel, and its operator.

The two are two executions: nothing of their times is ever mixed. Kernels are matched by phase, kernel, launch shape
and order within the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import LAUNCH_SHAPE, OperationKind, Trace
from profkit.model.work import Basis, OperationBound, OperationWork
from profkit.roofline.thresholds import MOST_EFFICIENT, UNSATURATED_BELOW
from profkit.timeline.launches import Launches
from profkit.timeline.phases import Phases
from profkit.timeline.steps import Steps
from profkit.timeline.view import TraceView

__all__ = ["work_from_trace"]

Column = NDArray[np.int64]
Key = tuple[Any, ...]


def work_from_trace(
    trace: Trace,
    launches: Launches,
    steps: Steps,
    phases: Phases,
    work: OperationWork,
    operator_trace: TraceView,
) -> tuple[OperationWork, Column]:
    """Give kernels that were only inferred the modelled work of the same kernels of another recording.

    Args:
        trace: The timeline that keeps its own times.
        launches: Its launches.
        steps: Its steps.
        phases: Its phases.
        work: What is known of its operations.
        operator_trace: The profiler trace of the same step.

    Returns:
        The work with what the other gave (basis `modelled`), and for each operation the operation of that trace that
        it was matched with, or -1.
    """
    own = _numbered(trace, launches.time_ns, steps.of_operation, phases, work)
    theirs = _numbered(
        operator_trace.trace,
        operator_trace.launches.time_ns,
        operator_trace.steps.of_operation,
        operator_trace.phases,
        operator_trace.work,
    )
    match = np.full(len(trace.operations), -1, np.int64)
    for key, rows in own.items():
        donor = theirs.get(key)
        if donor is not None and len(donor[0]) == len(rows[0]):
            for each in rows:
                match[each[: len(donor[0])]] = donor[0][: len(each)]
    return _with_matched(work, operator_trace.work, match, trace), match


def _numbered(
    trace: Trace, time: Column, step: Column, phases: Phases, work: OperationWork
) -> dict[Key, list[Column]]:
    """Kernels by phase, short name and launch shape: for each step their rows in order of launch."""
    operations = trace.operations
    rows = np.flatnonzero(operations.kind == OperationKind.KERNEL)
    path = phases.path_of(phases.of_operation)
    rows = rows[np.lexsort((operations.start_ns[rows], time[rows], step[rows]))]
    found: dict[Key, list[Column]] = {}
    columns = (operations.name, path, *(getattr(operations, c) for c in LAUNCH_SHAPE))
    stacked = np.stack([c[rows].astype(np.int64) for c in (*columns, step)])
    kinds, inverse = np.unique(stacked, axis=1, return_inverse=True)
    order = np.argsort(np.ravel(inverse), kind="stable")
    parts = np.split(rows[order], np.flatnonzero(np.diff(np.ravel(inverse)[order])) + 1)
    for kind, part in zip(kinds.T.tolist(), parts, strict=False):
        known = work.class_of_name.get(kind[0])
        place = phases.paths[kind[1]] if kind[1] >= 0 else None
        key = (
            known.short_name if known else trace.strings[kind[0]],
            place,
            *kind[2:8],
            kind[8] >= 0 or not phases.paths,
        )
        found.setdefault(key, []).append(part)
    return found


def _with_matched(work: OperationWork, given: OperationWork, match: Column, trace: Trace) -> OperationWork:
    if not len(given.basis):
        return work
    at = np.maximum(match, 0)
    better = (match >= 0) & (work.basis > Basis.MODELLED) & (given.basis[at] == Basis.MODELLED)

    def chosen(ours: NDArray[Any], theirs: NDArray[Any]) -> NDArray[Any]:
        return np.where(better, theirs[at], ours)

    bound = chosen(work.bound, given.bound)
    compute_ns = chosen(work.compute_ns, given.compute_ns)
    memory_ns = chosen(work.memory_ns, given.memory_ns)
    duration = np.maximum(trace.operations.end_ns - trace.operations.start_ns, 1).astype(float)
    term = np.where(bound == OperationBound.COMPUTE, compute_ns, memory_ns)
    sided = better & (bound <= OperationBound.MEMORY)
    rate = np.where(sided & (term <= MOST_EFFICIENT * duration), np.minimum(term / duration, 1.0), np.nan)
    efficiency = np.where(better, rate, work.efficiency)
    flagged = np.where(np.isnan(efficiency), -1, efficiency < UNSATURATED_BELOW)
    typed, multiplied = (match >= 0) & (given.dtype[at] >= 0), better & (given.product[at] >= 0)
    dtype = np.where(typed, given.dtype[at] + len(work.dtypes), work.dtype)
    product = np.where(multiplied, given.product[at] + len(work.products), work.product)
    return replace(
        work,
        flop=chosen(work.flop, given.flop),
        dram_bytes=chosen(work.dram_bytes, given.dram_bytes),
        peak_flops=chosen(work.peak_flops, given.peak_flops),
        compute_ns=compute_ns,
        memory_ns=memory_ns,
        bound=bound,
        dtype=dtype.astype(np.int16),
        product=product.astype(np.int32),
        dtypes=[*work.dtypes, *given.dtypes],
        products=[*work.products, *given.products],
        efficiency=efficiency,
        unsaturated=np.where(better, flagged, work.unsaturated).astype(np.int8),
        basis=np.where(better, Basis.MODELLED, work.basis).astype(np.int8),
    )
