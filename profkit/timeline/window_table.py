"""The analysed window: its shares by device and step, and the totals of the whole file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.names import SHARES, ShareBound, ShareName
from profkit.model.report_time import DeviceTotals, Excess, KernelTotal, PartRow, StepRow, Totals, Window
from profkit.model.rows import replace
from profkit.model.states import BUSY_STATES, SHARE_OF_STATE, State
from profkit.model.summing import Summed, added
from profkit.model.work import OperationBound
from profkit.timeline.distinct import distinct
from profkit.timeline.grouping import sums
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView
from profkit.timeline.window_parts import longest_parts

__all__ = [
    "largest_share",
    "shares_row",
    "states_of",
    "totals_row",
    "totals_together",
    "window_row",
    "windows_together",
]


OUTLIER_RATIO: Final = 1.1
"""A kept step longer than this times the median is explained."""

_KERNELS: Final = Summed[KernelTotal](("name",), ("count", "total_ns"))
_NONE: Final = Totals(
    kernel_count=0,
    kernel_sum_ns=0,
    kernel_union_ns=0,
    gpu_busy_ns=0,
    gpu_span_ns=0,
    copy_ns=0,
    communication_sum_ns=0,
    communication_exposed_ns=0,
    kernels=(),
    devices=(),
)


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


def window_row(view: TraceView) -> Window:
    """A trace's window, in its own times: its hull, its device time and its steps. Its parts stand apart."""
    spans = [view.window_hull(device) for device, window in enumerate(view.windows) if len(window)]
    nothing = (view.span[0], view.span[0]) if view.windows else view.span
    start = min((start for start, _ in spans), default=nothing[0])
    end = max((end for _, end in spans), default=nothing[1])
    return Window(
        start_ns=start,
        end_ns=end,
        wall_ns=_host_window(view).total_ns if view.steps.count else end - start,
        device_ns=sum(window.total_ns for window in view.windows),
        steps=_steps(view),
        parts=(),
    )


def windows_together(windows: Sequence[Window], offsets: Sequence[int], parts: Sequence[PartRow]) -> Window:
    """The windows of several traces as one.

    Args:
        windows: One a trace.
        offsets: What to add to each trace's times to have report times, in ns.
        parts: The parts of all of them.
    """
    own = list(zip(windows, offsets, strict=True))
    start = min((w.start_ns + offset for w, offset in own), default=0)
    end = max((w.end_ns + offset for w, offset in own), default=0)
    return Window(
        start_ns=start,
        end_ns=end,
        wall_ns=max((w.wall_ns for w in windows if w.steps), default=end - start),
        device_ns=sum(w.device_ns for w in windows),
        steps=_steps_together([each for each in own if each[0].steps]),
        parts=longest_parts(parts),
    )


def _host_window(view: TraceView) -> Intervals:
    """The host's time in the kept steps, and between those that follow each other."""
    steps = view.steps
    before = np.where(steps.resumes, steps.start_ns, np.roll(steps.end_ns, 1))
    joined = np.roll(view.kept_steps, 1) & ~steps.resumes
    start = np.where(joined, np.minimum(before, steps.start_ns), steps.start_ns)
    return Intervals.of(start[view.kept_steps], steps.end_ns[view.kept_steps])


def _steps(view: TraceView) -> list[StepRow]:
    states = np.zeros((len(State), view.steps.count), np.int64)
    steps, begun, over = view.steps, view.steps.tile_start_ns, view.steps.tile_end_ns
    for device in range(len(view.trace.devices)):
        states += view.segments[device].within(begun[device], over[device])
    any_device = bool(len(view.trace.devices))
    first = begun.min(axis=0).tolist() if any_device else [0] * steps.count
    last = over.max(axis=0).tolist() if any_device else [0] * steps.count
    wall, length = (steps.end_ns - steps.start_ns).tolist(), (over - begun).sum(axis=0).tolist()
    busy = states[list(BUSY_STATES)].sum(axis=0).tolist()
    return [
        StepRow(
            name=steps.names[at],
            kept=bool(view.kept_steps[at]),
            wall_ns=wall[at],
            device_ns=length[at],
            gpu_busy_ns=busy[at],
            shares=shares_row(states[:, at]),
            start_ns=first[at],
            end_ns=last[at],
            bound="unknown",
        )
        for at in range(steps.count)
    ]


def _steps_together(stepped: Sequence[tuple[Window, int]]) -> list[StepRow]:
    rows = []
    for at in range(min((len(window.steps) for window, _ in stepped), default=0)):
        own = [window.steps[at] for window, _ in stepped]
        # A trace without devices has no device time.
        placed = [(w.steps[at], offset) for w, offset in stepped if w.steps[at].end_ns]
        shares = added(*(step.shares for step in own))
        rows.append(
            replace(
                own[0],
                kept=all(step.kept for step in own),
                wall_ns=max(step.wall_ns or 0 for step in own),
                device_ns=sum(step.device_ns for step in own),
                gpu_busy_ns=sum(step.gpu_busy_ns for step in own),
                shares=shares,
                start_ns=min((step.start_ns + offset for step, offset in placed), default=0),
                end_ns=max((step.end_ns + offset for step, offset in placed), default=0),
                bound=largest_share(shares),
            )
        )
    return explained(rows)


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


def totals_row(view: TraceView) -> Totals:
    """Counts and times of a whole file, summed over devices; ``devices`` has those of each, by number in the trace."""
    operations = view.trace.operations
    devices = [_device_totals(view, device) for device in range(len(view.trace.devices))]
    duration = operations.end_ns - operations.start_ns
    span = exposed = 0
    for device in range(len(devices)):
        mine = operations.device == device
        if mine.any():
            span += int(operations.end_ns[mine].max() - operations.start_ns[mine].min())
        exposed += view.segments[device].in_state(State.COMMUNICATION).total_ns
    kernels = _kernels_of(view)
    # Inside graphs, how many there are is not known.
    hidden = not kernels and bool((operations.kind == OperationKind.GRAPH).any())
    return Totals(
        kernel_count=None if hidden else sum(row.kernel_count for row in devices),
        kernel_sum_ns=sum(row.kernel_sum_ns for row in devices),
        kernel_union_ns=sum(row.kernel_union_ns for row in devices),
        gpu_busy_ns=sum(row.gpu_busy_ns for row in devices),
        gpu_span_ns=span,
        copy_ns=sum(row.copy_sum_ns for row in devices),
        communication_sum_ns=int(duration[view.work.bound == OperationBound.COMMUNICATION].sum()),
        communication_exposed_ns=exposed,
        kernels=kernels,
        devices=devices,
    )


def totals_together(totals: Sequence[Totals], first_device: Sequence[int]) -> Totals:
    """The totals of several traces, with devices numbered on from a first one of each."""
    counts = [each.kernel_count for each in totals]
    known = sum(count or 0 for count in counts)
    summed: Totals = added(
        *(replace(each, kernel_count=0, kernels=(), devices=()) for each in [_NONE, *totals])
    )
    names = _KERNELS.rows(row for each in totals for row in each.kernels)
    return replace(
        summed,
        kernel_count=None if None in counts and not known else known,
        kernels=sorted(names, key=lambda k: (-k.total_ns, k.name)),
        devices=[
            replace(device, id=device.id + first)
            for each, first in zip(totals, first_device, strict=True)
            for device in each.devices
        ],
    )


def _device_totals(view: TraceView, device: int) -> DeviceTotals:
    operations = view.trace.operations
    mine = operations.device == device

    def of(kind: OperationKind) -> tuple[NDArray[Any], NDArray[Any]]:
        rows = np.flatnonzero(mine & (operations.kind == kind))
        return operations.start_ns[rows], operations.end_ns[rows]

    kernels, copies, memsets = of(OperationKind.KERNEL), of(OperationKind.COPY), of(OperationKind.MEMSET)
    return DeviceTotals(
        id=device,
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
