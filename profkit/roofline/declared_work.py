"""Work that the program declares of its own kernels: ``profkit.phase("weighted_sum", flop=..., bytes=...)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import VECTOR, Gpu
from profkit.model import WORK_MARK, OperationKind, Trace
from profkit.model.work import Basis, OperationBound, OperationWork
from profkit.roofline.bounds import decide
from profkit.timeline.phases import Phases

__all__ = ["declare_work"]

_DECLARED: Final = re.compile(
    re.escape(WORK_MARK.strip()) + r"(?: flop=(?P<flop>\d{1,18}))?(?: bytes=(?P<bytes>\d{1,18}))?"
)


def declare_work(trace: Trace, phases: Phases, work: OperationWork, gpus: Sequence[Gpu | None]) -> None:
    """Give kernels that no formula explains their part of what the phase around them declares.

    They share it by their time, less what the phase's other kernels are known to do.
    """
    declared = _declared(trace, phases)
    if not declared:
        return
    kernel = trace.operations.kind == OperationKind.KERNEL
    for phase, (flop, moved) in declared.items():
        inside = kernel & (phases.of_operation == phase)
        unknown = np.flatnonzero(inside & (work.basis >= Basis.INFERRED))
        if len(unknown):
            others = np.flatnonzero(inside & (work.basis < Basis.INFERRED))
            _share(
                trace,
                work,
                gpus,
                unknown,
                flop - _known(work.flop[others]),
                moved - _known(work.dram_bytes[others]),
            )


def _declared(trace: Trace, phases: Phases) -> dict[int, tuple[float, float]]:
    """What each phase (a row of `Trace.ranges`) declares: FLOP and bytes, NaN where it does not say."""
    texts = {i: match for i, text in enumerate(trace.strings) if (match := _DECLARED.fullmatch(text))}
    rows = np.flatnonzero(np.isin(trace.ranges.name, list(texts)))
    around = phases.nesting.innermost(trace.ranges.thread[rows], trace.ranges.start_ns[rows])
    found: dict[int, tuple[float, float]] = {}
    for phase, name in zip(around.tolist(), trace.ranges.name[rows].tolist(), strict=True):
        if phase >= 0:
            found[phase] = (float(texts[name]["flop"] or "nan"), float(texts[name]["bytes"] or "nan"))
    return found


def _known(values: NDArray[np.float64]) -> float:
    return float(np.nansum(values))


def _share(
    trace: Trace,
    work: OperationWork,
    gpus: Sequence[Gpu | None],
    rows: NDArray[np.intp],
    flop: float,
    moved: float,
) -> None:
    """Divide work among kernels by their time, and bound them by it."""
    operations = trace.operations
    duration = np.maximum(operations.end_ns[rows] - operations.start_ns[rows], 1).astype(float)
    part = duration / duration.sum()
    devices = [gpus[at] if at < len(gpus) else None for at in operations.device[rows].tolist()]
    bandwidth = np.array([(gpu.bandwidth_bytes_per_s if gpu else None) or np.nan for gpu in devices])
    rate = np.array([(gpu.peak("fp32", VECTOR) if gpu else None) or np.nan for gpu in devices])
    work.flop[rows] = max(flop, 0.0) * part
    work.dram_bytes[rows] = max(moved, 0.0) * part
    peak = np.where(np.isnan(work.peak_flops[rows]), rate, work.peak_flops[rows])
    work.peak_flops[rows] = peak
    work.compute_ns[rows] = work.flop[rows] / peak * 1e9
    work.memory_ns[rows] = work.dram_bytes[rows] / bandwidth * 1e9
    work.basis[rows] = Basis.MODELLED
    side = np.full(len(rows), OperationBound.UNKNOWN, np.int8)
    decide(work, rows, duration, side, np.ones(len(rows)))
