"""Which host call launched each operation, and what the host was in at that moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.timeline.distinct import distinct
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching

__all__ = ["Launches", "find_launches", "launch_calls", "launches_without_kernel"]

Column = NDArray[np.int64]


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
    """Row in `Trace.ranges` of the innermost operator open at the call on its thread, or -1."""
    operators: Nesting
    """The nesting of all operators."""

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
    operators = Nesting.of(trace.ranges, trace.ranges.kind == RangeKind.OPERATOR)
    operator = np.full(len(call), -1, np.int64)
    operator[linked] = operators.innermost(thread[linked], time[linked])
    return Launches(call, thread, time, returned, operator, operators)


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


def launch_calls(trace: Trace, names: NDArray[Any]) -> NDArray[np.bool_]:
    """Which calls launch kernels or graphs, by name (an id of a call that only copies or asks is not one)."""
    stems = ("LaunchKernel", "LaunchCooperativeKernel", "ModuleLaunchKernel", "GraphLaunch", "ExtLaunch")
    return matching(trace.strings, names, lambda text: any(stem in text for stem in stems))


def launches_without_kernel(trace: Trace, launches: Launches) -> int:
    """How many launch calls have no operation in the file."""
    calls = trace.calls
    if not len(calls):
        return 0
    launching = launch_calls(trace, calls.name)
    used = np.zeros(len(calls), bool)
    used[launches.call[launches.linked]] = True
    process = np.array([t.process for t in trace.threads] or [-1], np.int64)[calls.thread]
    missing = 0
    for each in distinct(process[launching])[0].tolist():
        mine = process == each
        # A driver call inside a used runtime call shares its id, and is the same launch.
        idle = calls.correlation[mine & launching & ~used]
        if len(idle):
            lost = idle[(idle != 0) & ~np.isin(idle, calls.correlation[mine & used])]
            missing += len(np.unique(lost))
    return missing
