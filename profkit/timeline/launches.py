"""Which host call launched each operation, and what the host was in at that moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.timeline.distinct import distinct
from profkit.timeline.grouping import group_rows
from profkit.timeline.intervals import Intervals
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching

__all__ = [
    "Launches",
    "captures",
    "find_launches",
    "graph_launches",
    "launch_calls",
    "launches_captured",
    "launches_without_kernel",
    "lost_launches",
    "processes_of_calls",
    "unstarted_launches",
]

Column = NDArray[np.int64]

_CLOCKS_APART_NS: Final = 200_000
"""Operators and the calls within them are stamped by clocks that differ by less; seen on ROCm were 30 to 50 us."""


@dataclass(frozen=True, eq=False)
class Launches:
    """For every operation of a trace, by row: the call that launched it and the operator around that call."""

    call: Column
    """Row in `Trace.calls`, or -1 when the file has no launch record. Nodes of a graph share one."""
    thread: Column
    """Index of the launching thread, or -1."""
    time_ns: Column
    """When the call started; meaningless where ``call`` is -1."""
    return_ns: Column
    """When the call returned; meaningless where ``call`` is -1."""
    operator: Column
    """Row in `Trace.ranges` of the operator that the file names for it, else of the innermost one that was open at the
    call on its thread, or -1."""
    operators: Nesting
    """The nesting of all operators."""
    stream: Column
    """The number of its stream: streams of two processes or devices are never one."""

    @property
    def linked(self) -> NDArray[np.bool_]:
        """Whether each operation has its launch."""
        linked: NDArray[np.bool_] = self.call >= 0
        return linked


def find_launches(trace: Trace) -> Launches:
    """Join operations to calls by (process, correlation id); id 0 joins nothing.

    Where a runtime call wraps a driver call of the same id, the runtime call is the launch.
    """
    calls = trace.calls
    call = _join(trace)
    linked = call >= 0
    thread, time, returned = (np.full(len(call), -1, np.int64) for _ in range(3))
    for column, known in ((thread, calls.thread), (time, calls.start_ns), (returned, calls.end_ns)):
        column[linked] = known[call[linked]]
    operators = Nesting.shallow(trace.ranges, trace.ranges.kind == RangeKind.OPERATOR)
    operator = np.full(len(call), -1, np.int64)
    operator[linked] = operators.innermost(thread[linked], time[linked])
    named = _named_operators(trace)
    operator = np.where(_near(trace, named, linked, time), named, operator)
    return Launches(call, thread, time, returned, operator, operators, _streams(trace))


def _streams(trace: Trace) -> Column:
    operations = trace.operations
    if not len(operations):
        return np.empty(0, np.int64)
    return group_rows(operations.process, operations.device, operations.stream)[0]


def _near(trace: Trace, operator: Column, linked: NDArray[np.bool_], time: Column) -> NDArray[np.bool_]:
    """Where an operator is named that the launch was made in, or close to; some recorders number by another space."""
    ranges, row = trace.ranges, np.maximum(operator, 0)
    near = operator >= 0
    if near.any():
        within = (ranges.start_ns[row] - _CLOCKS_APART_NS <= time) & (
            time <= ranges.end_ns[row] + _CLOCKS_APART_NS
        )
        near &= within | ~linked
    return near


def _named_operators(trace: Trace) -> Column:
    """The operator that each operation names by its number, or -1; a number that two operators have names none.

    Clocks of host calls and operators differ on some machines (ROCm: by 30 to 50 us), so a number beats the time.
    """
    operations, ranges = trace.operations, trace.ranges
    found = np.full(len(operations), -1, np.int64)
    process_of_thread = np.array([t.process for t in trace.threads] or [-1], np.int64)
    for process in distinct(operations.process)[0].tolist() if (ranges.external != 0).any() else ():
        own = process_of_thread[ranges.thread] == process if len(ranges) else np.zeros(0, bool)
        mine = np.flatnonzero(own & (ranges.kind == RangeKind.OPERATOR) & (ranges.external != 0))
        ids, first, count = np.unique(ranges.external[mine], return_index=True, return_counts=True)
        ids, rows = ids[count == 1], mine[first[count == 1]]
        wanted = np.flatnonzero((operations.process == process) & (operations.external != 0))
        if len(ids) and len(wanted):
            at = np.minimum(np.searchsorted(ids, operations.external[wanted]), len(ids) - 1)
            match = ids[at] == operations.external[wanted]
            found[wanted[match]] = rows[at[match]]
    return found


def _join(trace: Trace) -> Column:
    operations, calls = trace.operations, trace.calls
    found = np.full(len(operations), -1, np.int64)
    if not len(calls) or not len(operations):
        return found
    process_of_thread = np.array([t.process for t in trace.threads] or [-1], np.int64)
    call_process = process_of_thread[calls.thread]
    for process in distinct(operations.process)[0].tolist():
        mine = np.flatnonzero((call_process == process) & (calls.correlation != 0))
        ids = calls.correlation[mine]
        # The first row of an id is its runtime call, else the earliest, which is the outermost.
        order = np.lexsort((calls.start_ns[mine], calls.driver[mine], ids))
        mine, ids = mine[order], ids[order]
        wanted = np.flatnonzero((operations.process == process) & (operations.correlation != 0))
        if not len(mine) or not len(wanted):
            continue
        at = np.minimum(np.searchsorted(ids, operations.correlation[wanted]), len(ids) - 1)
        match = ids[at] == operations.correlation[wanted]
        found[wanted[match]] = mine[at[match]]
    return found


def processes_of_calls(trace: Trace) -> Column:
    """The process of every call."""
    process = np.array([t.process for t in trace.threads] or [-1], np.int64)
    return process[trace.calls.thread] if len(trace.calls) else np.empty(0, np.int64)


def launch_calls(trace: Trace, names: NDArray[Any]) -> NDArray[np.bool_]:
    """Which calls launch kernels or graphs, by name (an id of a call that only copies or asks is not one)."""
    stems = ("LaunchKernel", "LaunchCooperativeKernel", "ModuleLaunchKernel", "GraphLaunch", "ExtLaunch")
    return matching(trace.strings, names, lambda text: any(stem in text for stem in stems))


def graph_launches(trace: Trace, names: NDArray[Any]) -> NDArray[np.bool_]:
    """Which calls launch whole graphs."""
    return matching(trace.strings, names, lambda text: "GraphLaunch" in text)


def captures(trace: Trace, thread: int) -> Intervals:
    """When a thread captured a stream into a graph; what is never ended lasts to the end of its calls."""
    calls = trace.calls
    mine = np.flatnonzero(calls.thread == thread)
    mine = mine[np.argsort(calls.start_ns[mine], kind="stable")]
    begins = mine[matching(trace.strings, calls.name[mine], lambda name: "StreamBeginCapture" in name)]
    if not len(begins):
        return Intervals.none()
    ends = mine[matching(trace.strings, calls.name[mine], lambda name: "StreamEndCapture" in name)]
    at = np.searchsorted(calls.start_ns[ends], calls.start_ns[begins])
    until = np.append(calls.end_ns[ends], calls.end_ns[mine].max())
    return Intervals.of(calls.start_ns[begins], until[at])


def launches_without_kernel(trace: Trace, launches: Launches) -> int:
    """How many launch calls lost their operation; what was captured launched nothing, and lost nothing."""
    return int(np.count_nonzero(lost_launches(trace, launches)))


def lost_launches(trace: Trace, launches: Launches) -> NDArray[np.bool_]:
    """Which launch calls lost their operation."""
    lost: NDArray[np.bool_] = _unused(trace, launches) & ~_captured(trace)
    return lost


def unstarted_launches(trace: Trace, launches: Launches) -> NDArray[np.bool_]:
    """Which lost launches are the last of their process and come before the end of its last operation.

    The host ran ahead: when the recording ended, what they launched had not started.
    """
    found, lost = np.zeros(len(trace.calls), bool), lost_launches(trace, launches)
    process = processes_of_calls(trace)
    for each in distinct(process[lost])[0].tolist():
        own = launches.linked & (trace.operations.process == each)
        after, before = (column[own].max(initial=0) for column in (launches.time_ns, trace.operations.end_ns))
        start_ns = trace.calls.start_ns
        found |= lost & (process == each) & (start_ns > after) & (start_ns < before)
    return found


def launches_captured(trace: Trace, launches: Launches) -> int:
    """How many launch calls went into a graph instead of to a device."""
    return int(np.count_nonzero(_unused(trace, launches) & _captured(trace)))


def _captured(trace: Trace) -> NDArray[np.bool_]:
    """Which calls began while a thread of their process captured: the engine of autograd launches from its own."""
    process, captured = processes_of_calls(trace), np.zeros(len(trace.calls), bool)
    capturing: dict[int, Intervals] = {}
    for thread in distinct(trace.calls.thread)[0].tolist():
        own = trace.threads[thread].process
        capturing[own] = capturing.get(own, Intervals.none()).union(captures(trace, thread))
    for each, during in capturing.items():
        mine = process == each
        captured[mine] = during.contains(trace.calls.start_ns[mine])
    return captured


def _unused(trace: Trace, launches: Launches) -> NDArray[np.bool_]:
    """Launch calls without an operation in the file: of several with one id the first."""
    calls = trace.calls
    found = np.zeros(len(calls), bool)
    if not len(calls):
        return found
    launching = launch_calls(trace, calls.name)
    used = np.zeros(len(calls), bool)
    used[launches.call[launches.linked]] = True
    process = processes_of_calls(trace)
    for each in distinct(process[launching])[0]:
        mine = process == each
        # A driver call inside a used runtime call shares its id, and is the same launch.
        idle = np.flatnonzero(mine & launching & ~used & (calls.correlation != 0))
        idle = idle[~np.isin(calls.correlation[idle], calls.correlation[mine & used])]
        found[idle[np.unique(calls.correlation[idle], return_index=True)[1]]] = True
    return found
