"""Where steps do not follow each other: jumps in their numbers, evaluation, time in which nothing was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.timeline.intervals import Intervals
from profkit.timeline.launches import Launches, processes_of_calls
from profkit.timeline.step_names import engine_iteration, number_in

__all__ = ["steps_resume", "stretches"]

_LONG_PAUSE: Final = 3
"""A pause is unusual if it is so many times the median one; data that every step waits for is not."""

_WORK_BETWEEN: Final = 0.3
"""A pause in which so much of a step's launches happen is evaluation, or steps that nobody marked."""

_UNRECORDED: Final = 10
"""Steps that would fit into a stretch without any event, for it to be a pause of the recorder and not of the program."""

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]


def steps_resume(trace: Trace, launches: Launches, names: Sequence[str], start: Column, end: Column) -> Flags:
    """Which steps begin anew: what lies between them and the step before belongs to neither.

    Args:
        trace: The timeline.
        launches: Its launches.
        names: The name of each step.
        start: Host starts, in ns: shape (processes, steps).
        end: Host ends.
    """
    count = len(names)
    anew = np.zeros(count, bool)
    if not count:
        return anew
    anew[0] = True
    if count == 1:
        return anew
    anew[1:] = _jumps(names) | (np.diff(stretches(trace, start.min(axis=0))) > 0)
    for process in range(len(trace.processes)):
        anew[1:] |= _pauses(trace, launches, process, start[process], end[process])
    return anew


def stretches(trace: Trace, time: NDArray[Any]) -> Column:
    """In which stretch of recording each instant lies: 0 before recording first began anew."""
    found: Column = np.searchsorted(np.array(trace.resumed_ns, np.int64), time, side="right")
    return found


def _jumps(names: Sequence[str]) -> Flags:
    """Where numbers that else grow by the same amount grow by more."""
    numbers = [None if engine_iteration(name) else number_in(name) for name in names]
    none = np.zeros(len(names) - 1, bool)
    if None in numbers:
        return none
    growth = np.diff(np.array(numbers, np.float64))
    values, times = np.unique(growth, return_counts=True)
    usual = values[times.argmax()]
    return growth > usual if (growth > 0).all() and times.max() > 1 else none


def _pauses(trace: Trace, launches: Launches, process: int, start: Column, end: Column) -> Flags:
    pause = start[1:] - end[:-1]
    period = float(np.median(np.minimum(np.diff(start), end[1:] - start[:-1])))
    unusual = pause > max(_LONG_PAUSE * float(np.median(pause)), 0.5 * float(np.median(end - start)))
    if not unusual.any():
        return unusual
    mine = (trace.operations.process == process) & launches.linked
    launched = np.sort(launches.time_ns[mine], kind="stable")
    within = np.searchsorted(launched, end) - np.searchsorted(launched, start)
    between = np.searchsorted(launched, start[1:]) - np.searchsorted(launched, end[:-1])
    worked = between >= max(_WORK_BETWEEN * float(np.median(within)), 1)
    found: Flags = unusual & worked
    for at in np.flatnonzero(unusual & ~worked & (pause > _UNRECORDED * period)).tolist():
        found[at] = _longest_hole(trace, process, int(end[at]), int(start[at + 1])) > _UNRECORDED * period
    return found


def _longest_hole(trace: Trace, process: int, since: int, until: int) -> int:
    """The longest stretch without a call or an operation; without an operator, where no calls were recorded."""
    tables: list[tuple[Any, Flags]] = [
        (trace.calls, processes_of_calls(trace) == process),
        (trace.operations, trace.operations.process == process),
    ]
    if not len(trace.calls):
        tables.append((trace.ranges, trace.ranges.kind == RangeKind.OPERATOR))
    starts, ends = [], []
    for table, chosen in tables:
        chosen = chosen & (table.end_ns > since) & (table.start_ns < until)
        starts.append(table.start_ns[chosen])
        ends.append(table.end_ns[chosen])
    whole = Intervals.of([since], [until])
    holes = whole.difference(Intervals.of(np.concatenate(starts), np.concatenate(ends)))
    return int((holes.end - holes.start).max(initial=0))
