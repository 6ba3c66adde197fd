"""The analysed window: its shares by device and step, and the totals of the whole file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.result import SHARES, Row
from profkit.model.states import BUSY_STATES, SHARE_OF_STATE, State
from profkit.model.work import OperationBound
from profkit.timeline.distinct import distinct
from profkit.timeline.grouping import sums
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView
from profkit.units import duration_text

__all__ = ["explain_outliers", "largest_share", "shares_row", "states_of", "totals_row", "window_row"]


OUTLIER_RATIO: Final = 1.1
"""A kept step longer than this times the median is explained."""


def states_of(view: TraceView, device: int) -> NDArray[np.int64]:
    """The time of a device's window in each state, in ns."""
    window = view.windows[device]
    times: NDArray[np.int64] = view.segments[device].within(window.start, window.end).sum(axis=1)
    return times


def shares_row(states: NDArray[Any]) -> dict[str, int]:
    """Times by state as the nine shares."""
    shares = dict.fromkeys(SHARES, 0)
    for state in State:
        shares[SHARE_OF_STATE[state]] += int(states[state])
    return shares


def window_row(views: Sequence[TraceView], offsets: Sequence[int]) -> Row:
    """The window: its hull in report time, its device time, and its steps."""
    spans = [
        (start + offset, end + offset)
        for view, offset in zip(views, offsets, strict=True)
        for start, end in ([view.window_hull(d) for d in range(len(view.windows))] or [view.span])
    ]
    start, end = min((s for s, _ in spans), default=0), max((e for _, e in spans), default=0)
    return {
        "start_ns": start,
        "end_ns": end,
        "wall_ns": _wall_ns(views, end - start),
        "device_ns": sum(window.total_ns for view in views for window in view.windows),
        "steps": _steps(views, offsets),
    }


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


def _steps(views: Sequence[TraceView], offsets: Sequence[int]) -> list[Row]:
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
    rows: list[Row] = [
        {
            "name": stepped[0][0].steps.names[at],
            "kept": all(bool(view.kept_steps[at]) for view, _ in stepped),
            "wall_ns": int(wall[at]),
            "device_ns": int(device_ns[at]),
            "gpu_busy_ns": int(states[list(BUSY_STATES), at].sum()),
            "shares": shares_row(states[:, at]),
            "start_ns": int(start[at]) if end[at] else 0,
            "end_ns": int(end[at]),
            "bound": largest_share(shares_row(states[:, at])),
            "note": None,
        }
        for at in range(count)
    ]
    explain_outliers(rows)
    return rows


def largest_share(shares: dict[str, int]) -> str:
    """The name of the largest share; ``unknown`` when there is none."""
    largest = max(SHARES, key=lambda s: shares[s])
    return largest if shares[largest] else "unknown"


def explain_outliers(rows: list[Row]) -> None:
    """Say of each kept step that is far longer than the median which share grew."""
    kept = [row for row in rows if row["kept"]]
    if len(kept) < 3:
        return
    length = float(np.median([row["device_ns"] for row in kept]))
    if not length:
        return
    usual = {share: float(np.median([row["shares"][share] for row in kept])) for share in SHARES}
    for row in kept:
        if row["device_ns"] > OUTLIER_RATIO * length:
            grown = max(SHARES, key=lambda s: row["shares"][s] - usual[s])
            more = duration_text(row["shares"][grown] - usual[grown])
            row["note"] = (
                f"{row['device_ns'] / length - 1:.0%} longer than the median step: {more} more {grown}"
            )


def totals_row(views: Sequence[TraceView], device_ids: Sequence[Sequence[int]]) -> Row:
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
    summed = ("kernel_count", "kernel_sum_ns", "kernel_union_ns", "gpu_busy_ns")
    row: Row = {name: sum(device[name] for device in devices) for name in summed}
    row |= {"gpu_span_ns": 0, "copy_ns": sum(device["copy_sum_ns"] for device in devices)}
    row |= {"communication_sum_ns": 0, "communication_exposed_ns": 0}
    by_name: dict[str, list[int]] = {}
    for view in views:
        operations = view.trace.operations
        duration = operations.end_ns - operations.start_ns
        kernel = operations.kind == OperationKind.KERNEL
        communication = view.work.bound == OperationBound.COMMUNICATION
        row["communication_sum_ns"] += int(duration[communication].sum())
        for device in range(len(view.trace.devices)):
            mine = operations.device == device
            if mine.any():
                row["gpu_span_ns"] += int(operations.end_ns[mine].max() - operations.start_ns[mine].min())
            row["communication_exposed_ns"] += view.segments[device].in_state(State.COMMUNICATION).total_ns
        _count_names(view, kernel, duration, by_name)
    kernels = [{"name": n, "count": c, "total_ns": t} for n, (c, t) in by_name.items()]
    if not kernels and any((v.trace.operations.kind == OperationKind.GRAPH).any() for v in views):
        row["kernel_count"] = None  # they are inside the graphs: how many is not known
    return {
        **row,
        "kernels": sorted(kernels, key=lambda k: (-int(str(k["total_ns"])), str(k["name"]))),
        "devices": devices,
    }


def _device_totals(view: TraceView, device: int, id_: int) -> Row:
    operations = view.trace.operations
    mine = operations.device == device
    row: Row = {"id": id_}
    for name, kind in (
        ("kernel", OperationKind.KERNEL),
        ("copy", OperationKind.COPY),
        ("memset", OperationKind.MEMSET),
    ):
        rows = np.flatnonzero(mine & (operations.kind == kind))
        start, end = operations.start_ns[rows], operations.end_ns[rows]
        row[f"{name}_count"], row[f"{name}_sum_ns"] = len(rows), int((end - start).sum())
        if kind == OperationKind.KERNEL:
            row["kernel_union_ns"] = Intervals.of(start, end).total_ns
    row["gpu_busy_ns"] = Intervals.of(operations.start_ns[mine], operations.end_ns[mine]).total_ns
    return row


def _count_names(
    view: TraceView, kernel: NDArray[np.bool_], duration: NDArray[Any], by_name: dict[str, list[int]]
) -> None:
    names, group = distinct(view.trace.operations.name[kernel])
    count = np.bincount(group, minlength=len(names))
    total = sums(group, duration[kernel].astype(np.int64), len(names))
    for at, name in enumerate(names.tolist()):
        entry = by_name.setdefault(view.trace.strings[name], [0, 0])
        entry[0] += int(count[at])
        entry[1] += int(total[at])
