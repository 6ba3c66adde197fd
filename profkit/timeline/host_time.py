"""What the host did while the device waited for a launch: operators, launch calls, Python between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.model.report_time import HostOperator, HostTime
from profkit.model.rows import replace
from profkit.model.states import State
from profkit.model.summing import Summed
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.intervals import Intervals
from profkit.timeline.launches import launch_calls
from profkit.timeline.view import TraceView

__all__ = ["host_time", "host_time_together"]

_MOST_OPERATORS: Final = 12
_BY_OPERATOR: Final = Summed[HostOperator](("name",), ("ns",))

Column = NDArray[np.int64]


def host_time(view: TraceView) -> HostTime:
    """A trace's idle time of cause ``host`` by what the launching threads did in it."""
    return _summed([_host_time(view, thread, waiting) for thread, waiting in _waiting_by_thread(view)])


def host_time_together(parts: Sequence[HostTime]) -> HostTime:
    """The host time of several traces, with the operators that took most of it."""
    summed = _summed(parts)
    order = sorted(summed.by_operator, key=lambda row: (-row.ns, row.name))
    return replace(summed, by_operator=[row for row in order if row.ns][:_MOST_OPERATORS])


def _summed(parts: Sequence[HostTime]) -> HostTime:
    return HostTime(
        launch_calls_ns=sum(part.launch_calls_ns for part in parts),
        other_calls_ns=sum(part.other_calls_ns for part in parts),
        operators_ns=sum(part.operators_ns for part in parts),
        outside_ns=sum(part.outside_ns for part in parts),
        by_operator=_BY_OPERATOR.rows(row for part in parts for row in part.by_operator),
    )


def _waiting_by_thread(view: TraceView) -> list[tuple[int, Intervals]]:
    """When a device waited for each thread; several devices may wait for one thread at once."""
    found: list[tuple[int, Intervals]] = []
    for device in range(len(view.trace.devices)):
        segments = view.window_segments(device)
        host = segments.state == State.HOST
        thread = view.launches.thread[segments.operation[host]]
        start, end = segments.start_ns[host], segments.end_ns[host]
        for each in np.unique(thread).tolist():
            found.append((each, Intervals.of(start[thread == each], end[thread == each])))
    return found


def _host_time(view: TraceView, thread: int, waiting: Intervals) -> HostTime:
    calls, ranges = view.trace.calls, view.trace.ranges
    mine = np.flatnonzero(calls.thread == thread)
    launching = launch_calls(view.trace, calls.name[mine])
    launch = Intervals.of(calls.start_ns[mine[launching]], calls.end_ns[mine[launching]])
    other = Intervals.of(calls.start_ns[mine[~launching]], calls.end_ns[mine[~launching]]).difference(launch)
    inside = (ranges.thread == thread) & (ranges.kind == RangeKind.OPERATOR)
    operators = Intervals.of(ranges.start_ns[inside], ranges.end_ns[inside]).difference(launch.union(other))
    parts = [waiting.intersection(each).total_ns for each in (launch, other, operators)]
    return HostTime(
        launch_calls_ns=parts[0],
        other_calls_ns=parts[1],
        operators_ns=parts[2],
        outside_ns=waiting.total_ns - sum(parts),
        by_operator=_by_operator(view, thread, waiting),
    )


def _by_operator(view: TraceView, thread: int, waiting: Intervals) -> list[HostOperator]:
    ranges, parent = view.trace.ranges, view.launches.operators.parent
    rows = np.flatnonzero((ranges.thread == thread) & (ranges.kind == RangeKind.OPERATOR))
    if not len(rows):
        return []
    own = np.zeros(len(ranges), np.int64)
    own[rows] = waiting.within(ranges.start_ns[rows], ranges.end_ns[rows])
    nested = rows[parent[rows] >= 0]
    inclusive = own.copy()
    np.subtract.at(own, parent[nested], inclusive[nested])
    group, example = group_rows(ranges.name[rows])
    total = sums(group, np.maximum(own[rows], 0), len(example))
    return [
        HostOperator(name=view.trace.strings[ranges.name[row]], ns=int(total[at]))
        for at, row in enumerate(rows[example].tolist())
    ]
