"""Training steps, and the stretch of each device's time that belongs to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.timeline.launches import Launches
from profkit.timeline.range_names import matching, profiler_step, step_like

__all__ = ["WARM_UP_RATIO", "Steps", "find_steps", "leading_steps_left_out", "warm_up_steps"]

WARM_UP_RATIO = 1.1
"""A first step longer than this times the median of the later ones is warm-up (design, section 2)."""

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a trace; the k-th step of every process is step k."""

    rows: NDArray[np.bool_]
    """Which rows of `Trace.ranges` are steps (all candidates, nested doubles included)."""
    names: list[str]
    start_ns: Column
    """Host start of each step: the earliest over processes."""
    end_ns: Column
    """Host end of each step: the latest over processes."""
    by_process: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Host start and end of each step in each process: arrays of shape (processes, steps)."""
    of_operation: Column
    """The step that launched each operation; -1 before the first and after the last."""
    border_ns: NDArray[np.int64]
    """Shape (devices, steps + 1): tile k of device d is ``(border[d, k], border[d, k + 1]]``."""

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self.names)

    def at(self, process: NDArray[Any], time: NDArray[Any]) -> Column:
        """The step of what a process does at a time: between steps the next one, outside all of them -1."""
        found = np.full(len(time), -1, np.int64)
        start, end = self.by_process
        for each in range(len(start)):
            mine = process == each
            found[mine] = _step_at(start[each], end[each], time[mine])
        return found


def find_steps(trace: Trace, launches: Launches, name: str | None = None) -> Steps:
    """Find the steps and tile the device's time with them.

    Args:
        trace: The timeline.
        launches: Its launches.
        name: The name of the ranges that are steps; by default ``ProfilerStep#N``, else ranges named step,
            iteration, train_step and the like.
    """
    rows = _step_rows(trace, name)
    names, start, end = _instances(trace, rows)
    count = len(names)
    of_operation = np.full(len(trace.operations), -1, np.int64)
    for process in range(len(trace.processes)):
        mine = np.flatnonzero((trace.operations.process == process) & launches.linked)
        of_operation[mine] = _step_at(start[process], end[process], launches.time_ns[mine])
    host_start = start.min(axis=0, initial=np.iinfo(np.int64).max) if count else np.empty(0, np.int64)
    host_end = end.max(axis=0, initial=np.iinfo(np.int64).min) if count else np.empty(0, np.int64)
    border = _borders(trace, of_operation, start, host_start)
    return Steps(rows, names, host_start, host_end, (start, end), of_operation, border)


def leading_steps_left_out(device_ns: Column) -> int:
    """How many leading steps are warm-up: while the first exceeds 1.1x the median of the later ones and two remain."""
    left_out = 0
    while len(device_ns) - left_out > 2:
        if device_ns[left_out] <= WARM_UP_RATIO * float(np.median(device_ns[left_out + 1 :])):
            break
        left_out += 1
    return left_out


def warm_up_steps(device_ns: Sequence[Column]) -> int:
    """How many leading steps are warm-up, of several recordings at once.

    Args:
        device_ns: The device time of each step, for every recording; empty for one without steps or devices.
    """
    stepped = [each for each in device_ns if len(each)]
    count = min((len(each) for each in stepped), default=0)
    total = np.zeros(count, np.int64)
    for each in stepped:
        total += each[:count]
    return leading_steps_left_out(total)


def _step_rows(trace: Trace, name: str | None) -> NDArray[np.bool_]:
    ranges = trace.ranges
    host = np.isin(ranges.kind, (RangeKind.ANNOTATION, RangeKind.START_END))
    if name is not None:
        named: NDArray[np.bool_] = host & matching(trace.strings, ranges.name, lambda text: text == name)
        return named
    for test in (profiler_step, step_like):
        rows: NDArray[np.bool_] = host & matching(trace.strings, ranges.name, test)
        if rows.any():
            break
    return rows


def _instances(
    trace: Trace, rows: NDArray[np.bool_]
) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
    """Outermost step ranges by process, in order: names, and starts and ends of shape (processes, steps).

    A process without steps has those of the first process that has some.
    """
    ranges, found = trace.ranges, {}
    process_of = np.array([t.process for t in trace.threads] or [-1], np.int64)
    for process in range(len(trace.processes)):
        mine = (
            np.flatnonzero(rows & (process_of[ranges.thread] == process))
            if rows.any()
            else np.empty(0, np.int64)
        )
        mine = mine[np.lexsort((-ranges.end_ns[mine], ranges.start_ns[mine]))]
        reach = np.maximum.accumulate(ranges.end_ns[mine]) if len(mine) else mine
        outermost = np.ones(len(mine), bool)
        outermost[1:] = ranges.start_ns[mine[1:]] >= reach[:-1]
        if len(mine):
            found[process] = mine[outermost]
    if not found:
        empty = np.empty((max(len(trace.processes), 1), 0), np.int64)
        return [], empty, empty
    count = min(len(each) for each in found.values())
    first = next(iter(found.values()))
    chosen = [found.get(p, first)[:count] for p in range(len(trace.processes))]
    names = _distinct([trace.strings[i] for i in ranges.name[first[:count]].tolist()])
    return names, np.stack([ranges.start_ns[c] for c in chosen]), np.stack([ranges.end_ns[c] for c in chosen])


def _distinct(names: list[str]) -> list[str]:
    if len(set(names)) == len(names):
        return names
    return [f"{name} {number}" for number, name in enumerate(names, 1)]


def _step_at(start: Column, end: Column, time: NDArray[Any]) -> Column:
    """The step of each launch: between steps the next one, before the first and after the last none."""
    if not len(start):
        return np.full(len(time), -1, np.int64)
    after = np.searchsorted(end, time, side="right")
    step = np.where((time < start[0]) | (after >= len(start)), -1, after)
    return step.astype(np.int64)


def _borders(trace: Trace, step: Column, start: NDArray[np.int64], host_start: Column) -> NDArray[np.int64]:
    devices, count = len(trace.devices), len(host_start)
    border = np.zeros((devices, count + 1), np.int64)
    if not count:
        return border
    operations = trace.operations
    for device in range(devices):
        mine = operations.device == device
        owners = np.unique(operations.process[mine])
        first = start[owners, 0].min() if len(owners) else host_start[0]
        last_end = np.full(count, first, np.int64)
        launched = np.flatnonzero(mine & (step >= 0))
        np.maximum.at(last_end, step[launched], operations.end_ns[launched])
        border[device, 0] = first
        border[device, 1:] = np.maximum.accumulate(last_end)
    return border
