"""Training steps, and the stretch of each device's time that belongs to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import Trace
from profkit.model.names import FoundBy
from profkit.timeline.launches import Launches
from profkit.timeline.step_breaks import steps_resume
from profkit.timeline.step_damage import damaged_steps
from profkit.timeline.step_names import kind_of, marked_rows, steps_inside
from profkit.timeline.unmarked_steps import unmarked_steps

__all__ = ["WARM_UP_RATIO", "Steps", "find_steps", "leading_steps_left_out", "steps_left_out"]

WARM_UP_RATIO = 1.1
"""A first step longer than this times the median of the later ones is warm-up (design, section 2)."""

_QUEUED_LONG_NS = 1_000_000
"""A stream's first operation that starts so long after its launch returned had work of before the recording ahead of
it; an idle device starts one within 0.1 ms on our recordings."""

_NEXT_TO_NOTHING = 0.01
"""Of such a wait: with more run meanwhile, it may have waited for that."""

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Steps:
    """The steps of a trace; the k-th step of every process is step k."""

    rows: Flags
    """Which rows of `Trace.ranges` are steps (all candidates, nested doubles included)."""
    found_by: FoundBy
    """What tells the steps."""
    names: list[str]
    named: bool
    """Whether these are the program's own names, not numbers that count from the start of the recording."""
    start_ns: Column
    """Host start of each step: the earliest over processes."""
    end_ns: Column
    """Host end of each step: the latest over processes."""
    by_process: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Host start and end of each step in each process: arrays of shape (processes, steps)."""
    resumes: Flags
    """Steps that begin anew: what lies between them and the step before belongs to neither."""
    damaged: Flags
    """Steps of which records are missing."""
    of_operation: Column
    """The step that launched each operation; -1 outside of all."""
    tile_start_ns: NDArray[np.int64]
    """Shape (devices, steps): tile k of device d is ``(tile_start[d, k], tile_end[d, k]]``."""
    tile_end_ns: NDArray[np.int64]

    @property
    def count(self) -> int:
        """How many steps there are."""
        return len(self.names)

    @property
    def tile_ns(self) -> NDArray[np.int64]:
        """The length of each tile: shape (devices, steps)."""
        length: NDArray[np.int64] = self.tile_end_ns - self.tile_start_ns
        return length

    @property
    def kinds(self) -> list[str]:
        """The kind of each step, by its name."""
        return [kind_of(name) for name in self.names]

    def at(self, process: NDArray[Any], time: NDArray[Any]) -> Column:
        """The step of what a process does at a time: between steps the next one, outside all of them -1."""
        found = np.full(len(time), -1, np.int64)
        start, end = self.by_process
        for each in range(len(start)):
            mine = process == each
            found[mine] = _step_at(start[each], end[each], self.resumes, time[mine])
        return found

    def borders(self, device: int) -> Column:
        """Where tiles of a device begin or end, in order."""
        return np.unique(np.concatenate((self.tile_start_ns[device], self.tile_end_ns[device])))

    def tile_of(self, device: int, time: NDArray[Any]) -> Column:
        """The step whose tile of a device holds each instant, or -1."""
        if not self.count:
            return np.full(len(time), -1, np.int64)
        at = np.searchsorted(self.tile_end_ns[device], time, side="left")
        inside = (at < self.count) & (self.tile_start_ns[device][np.minimum(at, self.count - 1)] < time)
        return np.where(inside, at, -1)


def find_steps(trace: Trace, launches: Launches, name: str | None = None) -> Steps:
    """Find the steps and tile the device's time with them.

    Args:
        trace: The timeline.
        launches: Its launches.
        name: The name of the ranges that are steps (see `profkit.timeline.step_names.step_test`); by default
            ``ProfilerStep#N``, else ranges named step, iteration, train_step and the like, else an inference engine's
            iterations.
    """
    rows, found_by = marked_rows(trace, name)
    names, start, end = _instances(trace, rows)
    resumes = steps_resume(trace, launches, names, start, end)
    unmarked = unmarked_steps(trace, launches) if not names and name is None else None
    if unmarked is not None:
        found_by, names, resumes = unmarked.found_by, unmarked.names, unmarked.resumes
        start, end = unmarked.start, unmarked.end
    damaged = damaged_steps(trace, launches, (start, end), [kind_of(each) for each in names])
    # What a damaged step left unrecorded is no part of the step after it.
    resumes = resumes | np.concatenate(([False], damaged))[: len(names)]
    of_operation = _owners(trace, launches, (start, end), resumes)
    begun, over = _tiles(trace, launches, of_operation, start, resumes, by_launch=unmarked is not None)
    return Steps(
        rows=rows | steps_inside(trace, rows),
        found_by=found_by,
        names=names,
        named=unmarked is None,
        start_ns=start.min(axis=0, initial=np.iinfo(np.int64).max) if names else np.empty(0, np.int64),
        end_ns=end.max(axis=0, initial=np.iinfo(np.int64).min) if names else np.empty(0, np.int64),
        by_process=(start, end),
        resumes=resumes,
        damaged=damaged,
        of_operation=of_operation,
        tile_start_ns=begun,
        tile_end_ns=over,
    )


def _owners(
    trace: Trace, launches: Launches, hosts: tuple[NDArray[np.int64], NDArray[np.int64]], resumes: Flags
) -> Column:
    """The step that launched each operation, or -1."""
    found = np.full(len(trace.operations), -1, np.int64)
    for process in range(len(trace.processes)):
        mine = np.flatnonzero((trace.operations.process == process) & launches.linked)
        found[mine] = _step_at(hosts[0][process], hosts[1][process], resumes, launches.time_ns[mine])
    for device in range(len(trace.devices) if len(resumes) else 0):
        mine = np.flatnonzero(trace.operations.device == device)
        found[mine[trace.operations.start_ns[mine] < _held_until(trace, launches, mine)]] = -1
    return found


def _held_until(trace: Trace, launches: Launches, mine: Column) -> int:
    """Until when a device was held by work of before the recording: its steps begin there, and not earlier.

    Then the first operation of a stream starts that was queued for long, while next to nothing ran. A few microseconds
    on another stream may come before it. A host that needed longer than this wait to launch it did not run that far
    ahead: then the time before it is the step's own.
    """
    operations = trace.operations
    recorded_ns = _recorded_from(trace)
    order = mine[np.argsort(operations.start_ns[mine], kind="stable")]
    ran = np.cumsum(operations.end_ns[order] - operations.start_ns[order])
    for at in np.sort(np.unique(launches.stream[order], return_index=True)[1]).tolist():
        begun = int(operations.start_ns[order[at]])
        waited = begun - int(launches.return_ns[order[at]]) if launches.linked[order[at]] else 0
        least = max(_QUEUED_LONG_NS, int(launches.time_ns[order[at]]) - recorded_ns)
        if waited > least and (not at or ran[at - 1] <= _NEXT_TO_NOTHING * waited):
            return begun
    return int(np.iinfo(np.int64).min)


def _recorded_from(trace: Trace) -> int:
    """The first instant that the recording knows of."""
    return min(int(t.start_ns.min()) for t in (trace.operations, trace.calls, trace.ranges) if len(t))


def leading_steps_left_out(device_ns: Column, kinds: Sequence[str] = ()) -> int:
    """How many leading steps are warm-up: while the first exceeds 1.1x the median of the later ones and two remain.

    Args:
        device_ns: The length of each step.
        kinds: The kind of each, where they differ: a step is compared with those of its own kind.
    """
    device_ns, kind = np.asarray(device_ns), np.array(kinds or [""] * len(device_ns))
    left_out = 0
    while left_out < len(device_ns):
        later = device_ns[left_out + 1 :][kind[left_out + 1 :] == kind[left_out]]
        if len(later) < 2 or device_ns[left_out] <= WARM_UP_RATIO * float(np.median(later)):
            break
        left_out += 1
    return left_out


def steps_left_out(
    device_ns: Sequence[Column], kinds: Sequence[Sequence[str]], damaged: Sequence[Flags] = ()
) -> Flags:
    """Which steps the window leaves out, of several recordings at once: leading ones that are warm-up, and damaged ones.

    Args:
        device_ns: The device time of each step, for every recording; empty for one without steps or devices.
        kinds: The kind of each step, for every recording.
        damaged: The damaged steps of every recording.

    Returns:
        One flag a step that all recordings have.
    """
    stepped = [at for at, each in enumerate(device_ns) if len(each)]
    count = min((len(device_ns[at]) for at in stepped), default=0)
    total = np.zeros(count, np.int64)
    for at in stepped:
        total += device_ns[at][:count]
    left_out = np.zeros(count, bool)
    if not stepped:
        return left_out
    for at in stepped if damaged else ():
        left_out |= damaged[at][:count]
    whole = np.flatnonzero(~left_out)
    leading = leading_steps_left_out(total[whole], [kinds[stepped[0]][at] for at in whole.tolist()])
    left_out[whole[:leading]] = True
    return left_out


def _instances(trace: Trace, rows: Flags) -> tuple[list[str], NDArray[np.int64], NDArray[np.int64]]:
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


def _step_at(start: Column, end: Column, resumes: Flags, time: NDArray[Any]) -> Column:
    """The step of each launch: between steps the next one, unless it begins anew; after the last none."""
    if not len(start):
        return np.full(len(time), -1, np.int64)
    after = np.searchsorted(end, time, side="right")
    step = np.minimum(after, len(start) - 1)
    outside = (after >= len(start)) | (resumes[step] & (time < start[step]))
    return np.where(outside, -1, step).astype(np.int64)


def _tiles(
    trace: Trace,
    launches: Launches,
    step: Column,
    start: NDArray[np.int64],
    resumes: Flags,
    *,
    by_launch: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The starts and ends of the tiles on each device: shape (devices, steps)."""
    devices, count = len(trace.devices), len(resumes)
    begun, over = np.zeros((devices, count), np.int64), np.zeros((devices, count), np.int64)
    if not count:
        return begun, over
    operations = trace.operations
    for device in range(devices):
        mine = np.flatnonzero(operations.device == device)
        owners = np.unique(operations.process[mine])
        host = start[owners].min(axis=0) if len(owners) else start.min(axis=0)
        last_end = np.full(count, np.iinfo(np.int64).min)
        launched = mine[step[mine] >= 0]
        np.maximum.at(last_end, step[launched], operations.end_ns[launched])
        if by_launch:
            # The launch of the first step may be the first thing that was recorded: there is no time before it.
            host = np.maximum(host - _usual_lead(host, last_end, resumes), _recorded_from(trace))
        fresh = _fresh_starts(trace, launches, mine, step[mine], host)
        # A tile that begins anew is never earlier than the end of the one before.
        reach = np.maximum.accumulate(np.where(resumes, np.maximum(last_end, fresh), last_end))
        before = np.concatenate((fresh[:1], reach[:-1]))
        begun[device] = np.where(resumes, np.maximum(fresh, before), before)
        over[device] = np.maximum(reach, begun[device])
    return begun, over


def _usual_lead(host: Column, last_end: Column, resumes: Flags) -> int:
    """The median time from the end of the tile before to the first launch of a step that follows it."""
    before = np.maximum.accumulate(last_end)[:-1]
    known = ~resumes[1:] & (before > np.iinfo(np.int64).min)
    return int(np.median((host[1:] - before)[known])) if known.any() else 0


def _fresh_starts(trace: Trace, launches: Launches, mine: Column, step: Column, host: Column) -> Column:
    """Where the tile of each step would begin on a device if no step came before it.

    That is its start on the host; where operations launched before it still run then, it is their end, or its own
    first operation if that starts earlier: leftovers of an earlier step count nowhere, also those from before the
    recording, which held the device.
    """
    operations = trace.operations
    order = mine[np.argsort(operations.start_ns[mine], kind="stable")]
    first = np.full(len(host), np.iinfo(np.int64).max)
    owned = step >= 0
    np.minimum.at(first, step[owned], operations.start_ns[mine[owned]])
    host = np.minimum(host, first)
    if not len(order):
        return host
    reach = np.maximum.accumulate(operations.end_ns[order])
    at = np.searchsorted(operations.start_ns[order], first, side="left") - 1
    earlier = np.where(at >= 0, reach[np.maximum(at, 0)], np.iinfo(np.int64).min)
    earlier = np.maximum(earlier, _held_until(trace, launches, mine))
    known = first < np.iinfo(np.int64).max
    fresh: Column = np.where(known, np.clip(earlier, host, np.maximum(first, host)), host)
    return fresh
