"""What the host did while the device waited for a launch: operators, launch calls, Python between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.model.result import Row
from profkit.model.states import State
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.intervals import Intervals
from profkit.timeline.launches import launch_calls
from profkit.timeline.view import TraceView

__all__ = ["host_time_row"]

_MOST_OPERATORS: Final = 12

Column = NDArray[np.int64]


def host_time_row(views: Sequence[TraceView]) -> Row:
    """The window's idle time of cause ``host`` by what the launching threads did in it.

    Returns:
        ``launch_calls_ns`` (cudaLaunchKernel and the like), ``other_calls_ns`` (the rest of the CUDA API),
        ``operators_ns`` (dispatch: inside an operator, outside of any call), ``outside_ns`` (Python, autograd's
        bookkeeping and whatever was not recorded), adding up to the cause; and ``by_operator``, the operators
        with the most of that time to themselves.
    """
    row = {"launch_calls_ns": 0, "other_calls_ns": 0, "operators_ns": 0, "outside_ns": 0}
    by_operator: dict[str, int] = {}
    for view in views:
        for thread, waiting in _waiting_by_thread(view):
            parts = _split(view, thread, waiting)
            for name, ns in parts.items():
                row[name] += ns
            _add_operators(view, thread, waiting, by_operator)
    top = sorted(by_operator.items(), key=lambda item: (-item[1], item[0]))[:_MOST_OPERATORS]
    return {**row, "by_operator": [{"name": name, "ns": ns} for name, ns in top if ns]}


def _waiting_by_thread(view: TraceView) -> list[tuple[int, Intervals]]:
    """When a device waited for each thread; one thread may hold up several devices at once."""
    found: list[tuple[int, Intervals]] = []
    for device in range(len(view.trace.devices)):
        segments = view.window_segments(device)
        host = segments.state == State.HOST
        thread = view.launches.thread[segments.operation[host]]
        start, end = segments.start_ns[host], segments.end_ns[host]
        for each in np.unique(thread).tolist():
            found.append((each, Intervals.of(start[thread == each], end[thread == each])))
    return found


def _split(view: TraceView, thread: int, waiting: Intervals) -> dict[str, int]:
    calls, ranges = view.trace.calls, view.trace.ranges
    mine = np.flatnonzero(calls.thread == thread)
    launching = launch_calls(view.trace, calls.name[mine])
    launch = Intervals.of(calls.start_ns[mine[launching]], calls.end_ns[mine[launching]])
    other = Intervals.of(calls.start_ns[mine[~launching]], calls.end_ns[mine[~launching]]).difference(launch)
    inside = (ranges.thread == thread) & (ranges.kind == RangeKind.OPERATOR)
    operators = Intervals.of(ranges.start_ns[inside], ranges.end_ns[inside]).difference(launch.union(other))
    parts = {
        "launch_calls_ns": waiting.intersection(launch).total_ns,
        "other_calls_ns": waiting.intersection(other).total_ns,
        "operators_ns": waiting.intersection(operators).total_ns,
    }
    return {**parts, "outside_ns": waiting.total_ns - sum(parts.values())}


def _add_operators(view: TraceView, thread: int, waiting: Intervals, by_operator: dict[str, int]) -> None:
    ranges, parent = view.trace.ranges, view.launches.operators.parent
    rows = np.flatnonzero((ranges.thread == thread) & (ranges.kind == RangeKind.OPERATOR))
    if not len(rows):
        return
    own = np.zeros(len(ranges), np.int64)
    own[rows] = waiting.within(ranges.start_ns[rows], ranges.end_ns[rows])
    nested = rows[parent[rows] >= 0]
    inclusive = own.copy()
    np.subtract.at(own, parent[nested], inclusive[nested])
    group, example = group_rows(ranges.name[rows])
    total = sums(group, np.maximum(own[rows], 0), len(example))
    for at, row in enumerate(rows[example].tolist()):
        name = view.trace.strings[ranges.name[row]]
        by_operator[name] = by_operator.get(name, 0) + int(total[at])
