"""One trace with everything that its tables are made from: launches, steps, phases, bounds, segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import Gpu
from profkit.model import RangeKind, Trace
from profkit.model.work import OperationWork
from profkit.readers.registry import role_of
from profkit.timeline.host_activity import HostActivity
from profkit.timeline.idle import IdleContext, explain_gaps
from profkit.timeline.intervals import Intervals
from profkit.timeline.launch_queue import LaunchQueue
from profkit.timeline.launches import Launches
from profkit.timeline.phases import Phases, is_within
from profkit.timeline.segments import Segments, find_gaps, occupy, with_idle
from profkit.timeline.start_up import weights_moved_until
from profkit.timeline.step_breaks import stretches
from profkit.timeline.steps import Steps
from profkit.timeline.waits import Waits

__all__ = [
    "DividedTime",
    "MatchedCounters",
    "Span",
    "TraceView",
    "divide_time",
    "span_of",
    "step_device_ns",
    "steps_of_operations",
    "warm_up_tail",
]

Column = NDArray[np.int64]
Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class MatchedCounters:
    """A file of hardware counters and the kernels of a timeline that they belong to."""

    counters: Trace
    match: Column
    """For every operation of the timeline the row in `Trace.counters` of its counters, or -1."""


@dataclass(frozen=True, eq=False)
class TraceView:
    """A trace and what was found out about it."""

    trace: Trace
    gpus: Sequence[Gpu | None]
    launches: Launches
    steps: Steps
    phases: Phases
    waits: Waits
    activity: HostActivity
    queue: LaunchQueue
    work: OperationWork
    state: NDArray[np.int8]
    """The busy `State` of every operation."""
    segments: Sequence[Segments]
    """One a device, over the whole recording."""
    wait_cost_ns: NDArray[np.int64]
    """Idle time attributed to each wait on each device: shape (devices, waits)."""
    span: Span
    """From the first to the last event of host or device."""
    step_of_operation: Column
    """Like `Steps.of_operation`; operations without a launch record go by their end, the warm-up tail nowhere."""
    warm_up_tail: NDArray[np.bool_]
    """Operations without a launch record that ran before the first one with it."""
    kept_steps: NDArray[np.bool_]
    """Which steps are in the window; warm-up and damaged ones are not."""
    operator_trace: TraceView | None = None
    """The profiler trace that gives work and operators."""
    match: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """For every operation: that of ``operator_trace`` that it was matched with, or -1."""
    counters: Sequence[MatchedCounters] = ()
    """Hardware counters of other runs that were laid beside it."""
    plain_step_ns: int | None = None
    """The step's time without a profiler, where it is known."""
    only_phase: str | None = None
    """The phase that tables by phase are about; None for all."""
    compiled_lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The frames that each compiled kernel comes from, by its name, where the compiler's debug folder tells them."""

    @cached_property
    def windows(self) -> Sequence[Intervals]:
        """The analysed window of each device: the tiles of the kept steps, else from its first to its last operation."""
        return [self._window(device) for device in range(len(self.trace.devices))]

    def _window(self, device: int) -> Intervals:
        if self.steps.count:
            tiles = self.steps.tile_start_ns[device], self.steps.tile_end_ns[device]
            return Intervals.of(*(tile[self.kept_steps] for tile in tiles))
        mine = self.trace.operations.device == device
        if not mine.any():
            return Intervals.none()
        operations = self.trace.operations
        rows = np.flatnonzero(mine)
        recorded = stretches(self.trace, operations.start_ns[rows])
        place = np.unique(recorded, return_inverse=True)[1]
        begin, end = np.full((2, int(place.max()) + 1), np.iinfo(np.int64).max)
        np.minimum.at(begin, place, operations.start_ns[rows])
        np.minimum.at(end, place, -operations.end_ns[rows])
        begin = np.maximum(begin, weights_moved_until(operations, rows))
        return Intervals.of(*np.stack((begin, -end))[:, begin < -end])

    @property
    def kept_count(self) -> int:
        """How many steps are in the window."""
        return int(np.count_nonzero(self.kept_steps))

    @property
    def has_timeline(self) -> bool:
        """Whether its times follow one another: counters are of kernels that ran alone, each for itself."""
        return role_of(self.trace.source.format) != "counters"

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which operations the window counts."""
        if self.steps.count:
            return self._are_kept(self.step_of_operation)
        begin = np.array([self.window_hull(d)[0] for d in range(len(self.windows))], np.int64)
        operations = self.trace.operations
        kept: NDArray[np.bool_] = operations.start_ns >= begin[operations.device]
        return kept

    @property
    def counted(self) -> NDArray[np.bool_]:
        """Which operations tables by phase count: those of the window, and of the chosen phase alone where there is one."""
        if self.only_phase is None:
            return self.kept
        inside = np.array([*map(self.shows, self.phases.paths), False])
        counted: NDArray[np.bool_] = self.kept & inside[self.phases.path_of(self.phases.of_operation)]
        return counted

    def shows(self, path: str | None) -> bool:
        """Whether tables by phase show what has this path."""
        return self.only_phase is None or is_within(path, self.only_phase)

    def begun_in_window(self, thread: NDArray[Any], time: NDArray[Any]) -> NDArray[np.bool_]:
        """Which things that threads began at these times belong to the kept steps of their process."""
        if not self.steps.count:
            return np.ones(len(time), bool)
        process = np.array([t.process for t in self.trace.threads] or [-1], np.int64)[thread]
        return self._are_kept(self.steps.at(process, time))

    def _are_kept(self, step: Column) -> NDArray[np.bool_]:
        if not self.steps.count:
            return np.ones(len(step), bool)
        kept: NDArray[np.bool_] = np.append(self.kept_steps, False)[step]
        return kept

    def window_segments(self, device: int) -> Segments:
        """The segments of a device inside its window."""
        return self.segments[device].inside(self.windows[device])

    def window_hull(self, device: int) -> Span:
        """From the start of a device's window to its end."""
        window = self.windows[device]
        return (int(window.start[0]), int(window.end[-1])) if len(window) else (self.span[0], self.span[0])

    def middle_steps(self, device: int) -> Column:
        """The kept step of median length on a device, or the two whose mean it is; there must be one."""
        kept = np.flatnonzero(self.kept_steps)
        order = np.argsort(self.steps.tile_ns[device, kept], kind="stable")
        middle: Column = kept[order[(len(kept) - 1) // 2 : len(kept) // 2 + 1]]
        return middle

    def median_step(self, device: int) -> int:
        """The kept step of median length on a device, of two the shorter; there must be one."""
        return int(self.middle_steps(device)[0])


@dataclass(frozen=True, eq=False)
class DividedTime:
    """The time of every device of a trace, each nanosecond in one state."""

    segments: Sequence[Segments]
    """One a device, over the whole recording."""
    wait_cost_ns: NDArray[np.int64]
    """Idle time attributed to each wait on each device: shape (devices, waits)."""


def divide_time(context: IdleContext, steps: Steps, state: NDArray[np.int8], span: Span) -> DividedTime:
    """Divide the time of each device among states: what its operations do, and why it is idle between them.

    Args:
        context: The trace and what explains its gaps.
        steps: The steps, at whose borders the credit of waits lapses.
        state: The busy `State` of every operation.
        span: From the first to the last event of host or device.
    """
    devices = len(context.trace.devices)
    operations = context.trace.operations
    first_starts = np.full(devices, np.iinfo(np.int64).max)
    np.minimum.at(first_starts, operations.device, operations.start_ns)
    segments, cost = [], np.zeros((devices, len(context.waits)), np.int64)
    for device in range(devices):
        # What waits before the first operation cost is not attributed to the window that begins there.
        borders = steps.borders(device) if steps.count else first_starts[device : device + 1]
        divided, cost[device] = _divide(context, state, device, span, borders)
        segments.append(divided)
    return DividedTime(segments, cost)


def step_device_ns(view: TraceView) -> Column:
    """The length of each step, summed over the devices; empty without steps or devices."""
    if not view.steps.count or not len(view.trace.devices):
        return np.empty(0, np.int64)
    lengths: Column = view.steps.tile_ns.sum(axis=0)
    return lengths


def _divide(
    context: IdleContext, state: NDArray[np.int8], device: int, span: Span, border: Column
) -> tuple[Segments, Column]:
    operations = context.trace.operations
    rows = np.flatnonzero(operations.device == device)
    plain = occupy(operations, rows, state, *span)
    launches = context.launches
    # Of operations that start at once, one whose launch is known explains the gap.
    order = np.where(launches.linked, launches.return_ns, np.iinfo(np.int64).max)
    gaps = find_gaps(operations, rows, plain, order)
    pieces, cost = explain_gaps(context, gaps, device, border)
    return with_idle(plain, pieces), cost


def span_of(trace: Trace) -> Span:
    """From the first to the last event of host or device."""
    ranges = trace.ranges.take(trace.ranges.kind != RangeKind.OVERHEAD)
    tables: list[Any] = [t for t in (trace.operations, trace.calls, ranges) if len(t)]
    if not tables:
        return (0, 0)
    return min(int(t.start_ns.min()) for t in tables), max(int(t.end_ns.max()) for t in tables)


def warm_up_tail(trace: Trace, launches: Launches) -> NDArray[np.bool_]:
    """Operations whose launch lies before the recording: they start before anything that it launched.

    One without a correlation id lost its launch some other way: it is not excused.
    """
    tail = np.zeros(len(trace.operations), bool)
    linked, known = launches.linked, trace.operations.correlation != 0
    recorded = stretches(trace, trace.operations.start_ns)
    for device, stretch in product(range(len(trace.devices)), range(len(trace.resumed_ns) + 1)):
        mine = (trace.operations.device == device) & (recorded == stretch)
        if (mine & linked).any():
            first = trace.operations.start_ns[mine & linked].min()
            tail |= mine & known & ~linked & (trace.operations.start_ns < first)
    return tail


def steps_of_operations(trace: Trace, launches: Launches, steps: Steps, tail: NDArray[np.bool_]) -> Column:
    """The step of each operation, or -1; one without a launch record goes by its end, the warm-up tail nowhere."""
    step = steps.of_operation.copy()
    if not steps.count:
        return step
    lost = np.flatnonzero(~launches.linked & ~tail)
    for device in range(len(trace.devices)):
        mine = lost[trace.operations.device[lost] == device]
        step[mine] = steps.tile_of(device, trace.operations.end_ns[mine])
    return step
