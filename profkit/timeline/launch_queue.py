"""Host calls against the device's queue: launches that block on a full one, copies that wait for their stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind, Trace
from profkit.timeline.distinct import rows_by_value
from profkit.timeline.intervals import Intervals
from profkit.timeline.launches import Launches, launch_calls, processes_of_calls

__all__ = ["FULL_QUEUE", "LaunchQueue", "find_queue"]

FULL_QUEUE: Final = 1_000
"""A stream holds about 1,022 launches; the most that was seen ahead of a call that did not block is 1,018 (design)."""

_LONG: Final = 5
"""A blocked call is longer than so many usual launch calls (design, section 2)."""

_WAITS_NS: Final = 20_000
"""A copy call that stands this long before its stream is free waits; staging a small copy takes less (design)."""

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LaunchQueue:
    """For every row of `Trace.calls`: what it found queued on the device, and how long the device held it up."""

    launching: Flags
    """Calls that launch a kernel, memset or graph: by name, or by what they launched. Copies are left out."""
    queued: Column
    """Launches of its stream that were issued and not started when the call began; of its process where the call has no
    operation that tells the stream."""
    blocked: Flags
    """Launch calls that stood before a full queue."""
    wait_end_ns: Column
    """Of a copy call that waits for its stream: when the operation before it was done. Else the start of the call."""
    usual_ns: int
    """The median launch call, blocked ones left out."""


def find_queue(trace: Trace, launches: Launches) -> LaunchQueue:
    """Find the launch calls that blocked and the copy calls that waited.

    Example: a thousand launches of 10 us kernels are queued when a call starts that takes 9 ms, where the median call
    takes 6 us: it waited for a place in the queue.
    """
    calls = trace.calls
    start, length = calls.start_ns.astype(np.int64), (calls.end_ns - calls.start_ns).astype(np.int64)
    row, first = _first_operations(trace, launches)
    copies = trace.operations.kind[first] == OperationKind.COPY
    launching = launch_calls(trace, calls.name)
    launching[row[~copies]] = True
    launching[row[copies]] = False
    queued, begun = _found_queued(trace, launches.stream, row, first)
    # Where the queue is full most of the time, most calls block: the usual call is one that found room.
    room = launching & (queued < FULL_QUEUE)
    usual_calls = length[room if room.any() else launching]
    median = float(np.median(usual_calls)) if len(usual_calls) else 0.0
    long = launching & (length > _LONG * median)
    blocked = long & (queued >= FULL_QUEUE)
    # Before the first recorded launch of its stream has run, what stands queued from before the recording is unknown.
    held = row[long[row] & ~begun & ~copies]
    blocked[held] |= _mostly_busy(trace, first[long[row] & ~begun & ~copies], start[held], length[held])
    others = length[launching & ~blocked]
    usual = int(np.median(others)) if len(others) else 0
    wait_end = start.copy()
    copy, since, until = first[copies], start[row[copies]], calls.end_ns[row[copies]]
    wait_end[row[copies]] = _copy_waits(trace, launches.stream, copy, since, until)
    return LaunchQueue(launching, queued, blocked, wait_end, usual)


def _first_operations(trace: Trace, launches: Launches) -> tuple[Column, Column]:
    """The calls that have operations, and the first operation of each."""
    linked = np.flatnonzero(launches.linked)
    order = linked[np.lexsort((trace.operations.start_ns[linked], launches.call[linked]))]
    row, at = np.unique(launches.call[order], return_index=True)
    return row.astype(np.int64), order[at]


def _found_queued(trace: Trace, stream: Column, row: Column, first: Column) -> tuple[Column, Flags]:
    """What every call found queued; and for the calls with operations, whether their stream had begun any before."""
    start = trace.calls.start_ns
    queued, begun = np.zeros(len(start), np.int64), np.zeros(len(row), bool)
    process = processes_of_calls(trace)
    for each, mine in rows_by_value(process):
        own = process[row] == each
        queued[mine] = _pending(start[row[own]], trace.operations.start_ns[first[own]], start[mine])
    for _, mine in rows_by_value(stream[first]):
        began = trace.operations.start_ns[first[mine]]
        queued[row[mine]] = _pending(start[row[mine]], began, start[row[mine]])
        begun[mine] = start[row[mine]] >= began.min()
    return queued, begun


def _pending(issued: NDArray[Any], began: NDArray[Any], time: NDArray[Any]) -> Column:
    """Of launches, how many were issued before an instant and had not begun."""
    # Nothing begins before it is issued, whatever two clocks say: so what had begun had been issued, too.
    began = np.maximum(began, issued + 1)
    before = np.searchsorted(np.sort(issued), time, side="left")
    pending: Column = before - np.searchsorted(np.sort(began), time, side="right")
    return pending


def _mostly_busy(trace: Trace, operation: Column, start: Column, length: Column) -> Flags:
    """Whether the device of an operation was busy for three quarters of a stretch."""
    operations, found = trace.operations, np.zeros(len(operation), bool)
    for device, at in rows_by_value(operations.device[operation]):
        mine = operations.device == device
        busy = Intervals.of(operations.start_ns[mine], operations.end_ns[mine])
        found[at] = 4 * busy.within(start[at], start[at] + length[at]) >= 3 * length[at]
    return found


def _copy_waits(trace: Trace, stream: Column, copy: Column, start: Column, end: NDArray[Any]) -> Column:
    """For copies with the start and end of their calls: until when each call waited for its stream, else its start."""
    operations = trace.operations
    free = start.copy()
    rows_of = dict(rows_by_value(stream))
    for each, at in rows_by_value(stream[copy]):
        rows = rows_of[each]
        rows = rows[np.argsort(operations.start_ns[rows], kind="stable")]
        before = np.searchsorted(operations.start_ns[rows], operations.start_ns[copy[at]], side="left") - 1
        reach = np.maximum.accumulate(operations.end_ns[rows])
        free[at] = np.where(before >= 0, reach[np.maximum(before, 0)], start[at])
    begins = operations.start_ns[copy]
    free = np.minimum(free, begins)
    waits = (begins >= start) & (begins < end) & (free - start > _WAITS_NS)
    return np.where(waits, free, start)
