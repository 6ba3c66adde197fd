"""The analysed window: its shares by device and step, and the totals of the whole file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.names import SHARES, ShareBound, ShareName
from profkit.model.report_time import DeviceTotals, Excess, KernelTotal, StepRow, Totals, Window
from profkit.model.rows import replace
from profkit.model.states import BUSY_STATES, SHARE_OF_STATE, State
from profkit.model.summing import Summed
from profkit.model.work import OperationBound
from profkit.timeline.distinct import distinct
from profkit.timeline.grouping import sums
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView
from profkit.timeline.window_parts import part_rows

__all__ = [
    "explained",
    "kernel_totals",
    "largest_share",
    "shares_row",
    "states_of",
    "totals_row",
    "window_row",
]


OUTLIER_RATIO: Final = 1.1
"""A kept step longer than this times the median is explained."""

_KERNELS: Final = Summed[KernelTotal](("name",), ("count", "total_ns"))


def states_of(view: TraceView, device: int) -> NDArray[np.int64]:
    """The time of a device's window in each state, in ns."""
    window = view.windows[device]
    times: NDArray[np.int64] = view.segments[device].within(window.start, window.end).sum(axis=1)
    return times


def shares_row(states: NDArray[Any]) -> dict[ShareName, int]:
    """Times by state as the ten shares."""
    shares = dict.fromkeys(SHARES, 0)
    for state in State:
        shares[SHARE_OF_STATE[state]] += int(states[state])
    return shares


def window_row(views: Sequence[TraceView], offsets: Sequence[int]) -> Window:
    """The window: its hull in report time, its device time, its steps, and its parts."""
    spans = [
        (start + offset, end + offset)
        for view, offset in zip(views, offsets, strict=True)
        for start, end in ([view.window_hull(d) for d in range(len(view.windows))] or [view.span])
    ]
    start, end = min((s for s, _ in spans), default=0), max((e for _, e in spans), default=0)
    return Window(
        start_ns=start,
        end_ns=end,
        wall_ns=_wall_ns(views, end - start),
        device_ns=sum(window.total_ns for view in views for window in view.windows),
        steps=_steps(views, offsets),
        parts=part_rows(views),
    )


def _wall_ns(views: Sequence[TraceView], hull_ns: int) -> int:
    walls = [_host_window(v).total_ns for v in views if v.steps.count]
    return max(walls, default=hull_ns)


def _host_window(view: TraceView) -> Intervals:
    """The host's time in the kept steps, and between those that follow each other."""
    steps = view.steps
    before = np.where(steps.resumes, steps.start_ns, np.roll(steps.end_ns, 1))
    joined = np.roll(view.kept_steps, 1) & ~steps.resumes
    start = np.where(joined, np.minimum(before, steps.start_ns), steps.start_ns)
    return Intervals.of(start[view.kept_steps], steps.end_ns[view.kept_steps])


def _steps(views: Sequence[TraceView], offsets: Sequence[int]) -> list[StepRow]:
    count = min((v.steps.count for v in views if v.steps.count), default=0)
    stepped = [(v, o) for v, o in zip(views, offsets, strict=True) if v.steps.count]
    states = np.zeros((len(State), count), np.int64)
    wall, start, end, device_ns = (np.zeros(count, np.int64) for _ in range(4))
    start += np.iinfo(np.int64).max
    for view, offset in stepped:
        wall = np.maximum(wall, (view.steps.end_ns - view.steps.start_ns)[:count])
        for device in range(len(view.trace.devices)):
            begun, over = (
                tiles[device, :count] for tiles in (view.steps.tile_start_ns, view.steps.tile_end_ns)
            )
            states += view.segments[device].within(begun, over)
            device_ns += over - begun
            start, end = np.minimum(start, begun + offset), np.maximum(end, over + offset)
    return explained(
        [
            StepRow(
                name=stepped[0][0].steps.names[at],
                kept=all(bool(view.kept_steps[at]) for view, _ in stepped),
                wall_ns=int(wall[at]),
                device_ns=int(device_ns[at]),
                gpu_busy_ns=int(states[list(BUSY_STATES), at].sum()),
                shares=shares_row(states[:, at]),
                start_ns=int(start[at]) if end[at] else 0,
                end_ns=int(end[at]),
                bound=largest_share(shares_row(states[:, at])),
            )
            for at in range(count)
        ]
    )


def largest_share(shares: Mapping[ShareName, int]) -> ShareBound:
    """The name of the largest share; ``unknown`` when there is none."""
    largest = max(SHARES, key=lambda s: shares[s])
    return largest if shares[largest] else "unknown"


def explained(rows: Sequence[StepRow]) -> list[StepRow]:
    """The steps, where each kept one that is far longer than the median says which share grew."""
    kept = [row for row in rows if row.kept]
    length = float(np.median([row.device_ns for row in kept])) if len(kept) >= 3 else 0.0
    if not length:
        return list(rows)
    usual = {share: float(np.median([row.shares[share] for row in kept])) for share in SHARES}
    return [
        replace(row, excess=_excess(row, length, usual))
        if row.kept and row.device_ns > OUTLIER_RATIO * length
        else row
        for row in rows
    ]


def _excess(row: StepRow, usual_ns: float, usual: Mapping[ShareName, float]) -> Excess:
    grown = max(SHARES, key=lambda s: row.shares[s] - usual[s])
    return Excess(
        ratio=row.device_ns / usual_ns - 1,
        share=grown,
        more_ns=max(round(row.shares[grown] - usual[grown]), 0),
    )


def totals_row(views: Sequence[TraceView], device_ids: Sequence[Sequence[int]]) -> Totals:
    """Counts and times of the whole files, summed over devices; ``devices`` has those of each.

    Args:
        views: The traces.
        device_ids: The report's ids of each trace's devices.
    """
    devices = [
        _device_totals(view, at, id_)
        for view, ids in zip(views, device_ids, strict=True)
        for at, id_ in enumerate(ids)
    ]
    kernels = kernel_totals([row for view in views for row in _kernels_of(view)])
    # Inside graphs, how many there are is not known.
    hidden = not kernels and any((v.trace.operations.kind == OperationKind.GRAPH).any() for v in views)
    span = exposed = communication = 0
    for view in views:
        operations = view.trace.operations
        duration = operations.end_ns - operations.start_ns
        communication += int(duration[view.work.bound == OperationBound.COMMUNICATION].sum())
        for device in range(len(view.trace.devices)):
            mine = operations.device == device
            if mine.any():
                span += int(operations.end_ns[mine].max() - operations.start_ns[mine].min())
            exposed += view.segments[device].in_state(State.COMMUNICATION).total_ns
    return Totals(
        kernel_count=None if hidden else sum(row.kernel_count for row in devices),
        kernel_sum_ns=sum(row.kernel_sum_ns for row in devices),
        kernel_union_ns=sum(row.kernel_union_ns for row in devices),
        gpu_busy_ns=sum(row.gpu_busy_ns for row in devices),
        gpu_span_ns=span,
        copy_ns=sum(row.copy_sum_ns for row in devices),
        communication_sum_ns=communication,
        communication_exposed_ns=exposed,
        kernels=kernels,
        devices=devices,
    )


def kernel_totals(rows: Sequence[KernelTotal]) -> list[KernelTotal]:
    """Kernels by name, most time first."""
    return sorted(_KERNELS.rows(rows), key=lambda k: (-k.total_ns, k.name))


def _device_totals(view: TraceView, device: int, id_: int) -> DeviceTotals:
    operations = view.trace.operations
    mine = operations.device == device

    def of(kind: OperationKind) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = np.flatnonzero(mine & (operations.kind == kind))
        return operations.start_ns[rows], operations.end_ns[rows]

    kernels, copies, memsets = of(OperationKind.KERNEL), of(OperationKind.COPY), of(OperationKind.MEMSET)
    return DeviceTotals(
        id=id_,
        kernel_count=len(kernels[0]),
        kernel_sum_ns=int((kernels[1] - kernels[0]).sum()),
        kernel_union_ns=Intervals.of(*kernels).total_ns,
        copy_count=len(copies[0]),
        copy_sum_ns=int((copies[1] - copies[0]).sum()),
        memset_count=len(memsets[0]),
        memset_sum_ns=int((memsets[1] - memsets[0]).sum()),
        gpu_busy_ns=Intervals.of(operations.start_ns[mine], operations.end_ns[mine]).total_ns,
    )


def _kernels_of(view: TraceView) -> list[KernelTotal]:
    operations = view.trace.operations
    kernel = operations.kind == OperationKind.KERNEL
    names, group = distinct(operations.name[kernel])
    count = np.bincount(group, minlength=len(names))
    duration = (operations.end_ns - operations.start_ns)[kernel].astype(np.int64)
    total = sums(group, duration, len(names))
    return [
        KernelTotal(name=view.trace.strings[name], count=int(count[at]), total_ns=int(total[at]))
        for at, name in enumerate(names.tolist())
    ]
