"""One trace with everything that its tables are made from: launches, steps, phases, bounds, segments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.host_activity import HostActivity
from profkit.analysis.idle import QUEUE_LATENCY_NS, IdleContext, explain_gaps
from profkit.analysis.launches import Launches, find_launches
from profkit.analysis.lending import lend_work
from profkit.analysis.occupancy import Segments, find_gaps, occupy, with_idle
from profkit.analysis.phases import Phases, find_phases
from profkit.analysis.states import State
from profkit.analysis.steps import Steps, find_steps
from profkit.analysis.waits import Waits, find_waits
from profkit.analysis.work.bounds import bound_operations
from profkit.analysis.work.work import OperationBound, OperationWork
from profkit.hardware import Gpu
from profkit.model import RangeKind, Trace

__all__ = ["Span", "TraceView", "step_device_ns", "view_trace"]

Column = NDArray[np.int64]
Span = tuple[int, int]

_STATE_OF_BOUND: Final = {
    OperationBound.COMPUTE: State.COMPUTE,
    OperationBound.MEMORY: State.MEMORY,
    OperationBound.OVERHEAD: State.SMALL_KERNELS,
    OperationBound.COMMUNICATION: State.COMMUNICATION,
    OperationBound.TRANSFER: State.TRANSFER,
    OperationBound.UNKNOWN: State.UNCLASSIFIED,
}


@dataclass(frozen=True, eq=False)
class TraceView:
    """A trace and what was found out about it; `windows` and `first_kept` wait for `keeping`."""

    trace: Trace
    gpus: Sequence[Gpu | None]
    launches: Launches
    steps: Steps
    phases: Phases
    waits: Waits
    activity: HostActivity
    work: OperationWork
    state: NDArray[np.int8]
    """The busy `State` of every operation."""
    segments: Sequence[Segments]
    """One a device, over the whole recording."""
    wait_cost_ns: NDArray[np.int64]
    """What each wait was charged on each device: shape (devices, waits)."""
    span: Span
    """From the first to the last event of host or device."""
    step_of_operation: Column
    """Like `Steps.of_operation`; operations without a launch record go by their end, the warm-up tail nowhere."""
    warm_up_tail: NDArray[np.bool_]
    """Operations without a launch record that ran before the first one with it."""
    lender: TraceView | None = None
    """The profiler trace that lent work and operators."""
    match: Column = field(default_factory=lambda: np.empty(0, np.int64))
    """For every operation: that of the lender that it was matched with, or -1."""
    first_kept: int = 0
    windows: Sequence[Span] = ()
    """The analysed window of each device."""

    def keeping(self, first_kept: int) -> TraceView:
        """The same view, with the window that starts at a step; without steps it is the whole recording."""
        if not self.steps.count:
            return replace(self, windows=[self.span] * len(self.trace.devices))
        border = self.steps.border_ns
        return replace(
            self, first_kept=first_kept, windows=[(int(b[first_kept]), int(b[-1])) for b in border]
        )

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which operations the window's tables count."""
        if not self.steps.count:
            return np.ones(len(self.trace.operations), bool)
        kept: NDArray[np.bool_] = self.step_of_operation >= self.first_kept
        return kept

    def begun_in_window(self, thread: NDArray[Any], time: NDArray[Any]) -> NDArray[np.bool_]:
        """Which things that threads began at these times belong to the kept steps of their process."""
        if not self.steps.count:
            return np.ones(len(time), bool)
        process = np.array([t.process for t in self.trace.threads] or [-1], np.int64)[thread]
        begun: NDArray[np.bool_] = self.steps.at(process, time) >= self.first_kept
        return begun

    def window_segments(self, device: int) -> Segments:
        """The segments of a device inside its window."""
        return self.segments[device].clipped(*self.windows[device])


def view_trace(
    trace: Trace, gpus: Sequence[Gpu | None], step_name: str | None = None, lender: TraceView | None = None
) -> TraceView:
    """Find out everything that the tables of a trace need.

    Args:
        trace: The timeline.
        gpus: The card of each device of the trace, where known.
        step_name: The name of the ranges that are steps, where the usual names do not do.
        lender: A profiler trace of the same step, which lends shapes and operators.
    """
    launches = find_launches(trace)
    steps = find_steps(trace, launches, step_name)
    phases = find_phases(trace, launches, steps.rows)
    waits = find_waits(trace)
    work = bound_operations(trace, launches.operator, launches.operators.parent, gpus)
    match = np.full(len(trace.operations), -1, np.int64)
    if lender is not None:
        work, match = lend_work(trace, launches, steps, phases, work, lender)
    state = np.array([_STATE_OF_BOUND[b] for b in OperationBound], np.int8)[work.bound]
    span = _span(trace, steps)
    queue = min((g.queue_ns for g in gpus if g is not None), default=QUEUE_LATENCY_NS)
    activity = HostActivity(trace, phases, waits)
    context = IdleContext(trace, launches, phases, waits, activity, int(queue))
    segments, cost = [], np.zeros((len(trace.devices), len(waits)), np.int64)
    for device in range(len(trace.devices)):
        borders = steps.border_ns[device] if steps.count else steps.border_ns[device, :0]
        divided, cost[device] = _divide(context, state, device, span, borders)
        segments.append(divided)
    tail = _warm_up_tail(trace, launches)
    step = _with_unlaunched(trace, launches, steps, tail)
    return TraceView(
        trace=trace,
        gpus=gpus,
        launches=launches,
        steps=steps,
        phases=phases,
        waits=waits,
        activity=activity,
        work=work,
        state=state,
        segments=segments,
        wait_cost_ns=cost,
        span=span,
        step_of_operation=step,
        warm_up_tail=tail,
        lender=lender,
        match=match,
    )


def step_device_ns(view: TraceView) -> Column:
    """The length of each step, summed over the devices; empty without steps or devices."""
    if not view.steps.count or not len(view.trace.devices):
        return np.empty(0, np.int64)
    lengths: Column = np.diff(view.steps.border_ns, axis=1).sum(axis=0)
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


def _span(trace: Trace, steps: Steps) -> Span:
    ranges = trace.ranges.take(trace.ranges.kind != RangeKind.OVERHEAD)
    tables: list[Any] = [t for t in (trace.operations, trace.calls, ranges) if len(t)]
    if not tables:
        return (0, 0)
    return min(int(t.start_ns.min()) for t in tables), max(int(t.end_ns.max()) for t in tables)


def _warm_up_tail(trace: Trace, launches: Launches) -> NDArray[np.bool_]:
    """Operations whose launch lies before the recording: they start before anything that it launched.

    One without a correlation id lost its launch some other way: it is not excused.
    """
    tail = np.zeros(len(trace.operations), bool)
    linked, known = launches.linked, trace.operations.correlation != 0
    for device in range(len(trace.devices)):
        mine = trace.operations.device == device
        if (mine & linked).any():
            first = trace.operations.start_ns[mine & linked].min()
            tail |= mine & known & ~linked & (trace.operations.start_ns < first)
    return tail


def _with_unlaunched(trace: Trace, launches: Launches, steps: Steps, tail: NDArray[np.bool_]) -> Column:
    step = steps.of_operation.copy()
    if not steps.count:
        return step
    lost = np.flatnonzero(~launches.linked & ~tail)
    for device in range(len(trace.devices)):
        mine = lost[trace.operations.device[lost] == device]
        tile = np.searchsorted(steps.border_ns[device], trace.operations.end_ns[mine], side="left") - 1
        step[mine] = np.where(tile < steps.count, tile, -1)
    return step
