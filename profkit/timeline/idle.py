"""Why a device had nothing to do: every idle nanosecond gets its cause."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import Trace
from profkit.model.states import State
from profkit.timeline.distinct import distinct, rows_by_value
from profkit.timeline.host_activity import HOST_PRECEDENCE, HostActivity
from profkit.timeline.intervals import Intervals
from profkit.timeline.launches import Launches
from profkit.timeline.phases import Phases
from profkit.timeline.segments import Gaps, Segments
from profkit.timeline.waits import Waits, spend_credit

__all__ = ["QUEUE_LATENCY_NS", "IdleContext", "explain_gaps", "late_until"]

QUEUE_LATENCY_NS: Final = 5_000
"""The longest gap between two operations that were both queued, in ns, on a GPU whose latency is not known."""

_IDLE_LATENCY_NS: Final = 5_000
"""What a launch may need to reach a device that stands idle: more than to follow a queued one (up to 4 us were seen)."""

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class IdleContext:
    """What explains the idle time of a trace's devices."""

    trace: Trace
    launches: Launches
    phases: Phases
    waits: Waits
    activity: HostActivity
    queue_latency_ns: int = QUEUE_LATENCY_NS


def explain_gaps(context: IdleContext, gaps: Gaps, device: int, borders: Column) -> tuple[Segments, Column]:
    """Cut the gaps of a device into pieces with one cause each.

    Args:
        context: The trace and what is known of its host.
        gaps: The device's idle stretches.
        device: Index into `Trace.devices`.
        borders: The ends of the step tiles on this device, where the credit of waits lapses.

    Returns:
        The pieces, and for every wait of the context the idle time attributed to it on this device, in ns.
    """
    returned = late_until(context.launches, gaps)
    pieces = _after_return(context, gaps, returned, device)
    cost = np.zeros(len(context.waits), np.int64)
    late = np.flatnonzero(returned > gaps.start_ns)
    process = context.trace.operations.process[gaps.ender[late]]
    for each in np.unique(process):
        rows = late[process == each]
        own = Gaps(gaps.start_ns[rows], returned[rows], gaps.ender[rows])
        cut, attributed = _cut_late(context, own, int(each), device, borders)
        pieces.append(cut)
        cost += attributed
    return _joined(pieces), cost


def late_until(launches: Launches, gaps: Gaps) -> Column:
    """Until when the host was late in each gap: to the return of the launch that ends it; its start where it was not."""
    returned = gaps.start_ns.copy()
    known = np.flatnonzero(gaps.ender >= 0)
    known = known[launches.linked[gaps.ender[known]]]
    returned[known] = np.clip(launches.return_ns[gaps.ender[known]], gaps.start_ns[known], gaps.end_ns[known])
    return returned


def _after_return(context: IdleContext, gaps: Gaps, returned: Column, device: int) -> list[Segments]:
    """What lies after the return: up to the queue latency the queue's, the rest another stream's or unknown."""
    known = gaps.ender >= 0
    linked = np.zeros(len(known), bool)
    linked[known] = context.launches.linked[gaps.ender[known]]
    late = returned > gaps.start_ns
    latency = np.where(late, max(context.queue_latency_ns, _IDLE_LATENCY_NS), context.queue_latency_ns)
    queued = np.where(linked, np.minimum(returned + latency, gaps.end_ns), returned)
    rest = np.where(linked & _follows_another_stream(context, gaps, device), State.DEPENDENCY, State.UNKNOWN)
    rest = np.where(known, rest, State.TAIL).astype(np.int8)
    queue = np.full(len(known), State.QUEUE, np.int8)
    parts = ((returned, queued, queue), (queued, gaps.end_ns, rest))
    return [
        Segments(start[end > start], end[end > start], state[end > start], gaps.ender[end > start])
        for start, end, state in parts
    ]


def _follows_another_stream(context: IdleContext, gaps: Gaps, device: int) -> NDArray[np.bool_]:
    """Whether an operation that ended where a gap begins ran on another stream than the one that ends the gap."""
    operations, stream = context.trace.operations, context.launches.stream
    mine = np.flatnonzero((operations.device == device) & (operations.end_ns > operations.start_ns))
    # By end, then by stream: of those that end together the first has the lowest stream and the last the highest.
    mine = mine[np.lexsort((stream[mine], operations.end_ns[mine]))]
    first, last = (
        np.searchsorted(operations.end_ns[mine], gaps.start_ns, side) for side in ("left", "right")
    )
    found = np.zeros(len(gaps.ender), bool)
    after = np.flatnonzero((gaps.ender >= 0) & (last > first))
    own = stream[gaps.ender[after]]
    found[after] = (stream[mine[first[after]]] != own) | (stream[mine[last[after] - 1]] != own)
    return found


def _cut_late(
    context: IdleContext, gaps: Gaps, process: int, device: int, borders: Column
) -> tuple[Segments, Column]:
    """Cut the host-late gaps of one process: by what its threads did, then by the credit of its waits."""
    sets: dict[State, Intervals] = {}
    demand = Intervals.none()
    thread, inherits = context.launches.thread[gaps.ender], context.phases.host_thread[gaps.ender]
    pairs = [
        (one, other) for one, at in rows_by_value(thread) for other in distinct(inherits[at])[0].tolist()
    ]
    for one, other in pairs:
        mine = (thread == one) & (inherits == other)
        rest = Intervals.of(gaps.start_ns[mine], gaps.end_ns[mine])
        doing = context.activity.doing(one, other)
        for cause in HOST_PRECEDENCE:
            part = rest.intersection(doing[cause])
            sets[cause] = sets.get(cause, Intervals.none()).union(part)
            rest = rest.difference(part)
        work = rest.intersection(doing[State.HOST_WORK])
        sets[State.HOST_WORK] = sets.get(State.HOST_WORK, Intervals.none()).union(work)
        sets[State.HOST] = sets.get(State.HOST, Intervals.none()).union(rest.difference(work))
        demand = demand.union(rest.difference(context.activity.waiting_of(one, other)))
    attributed, cost = _attribute(context.waits, process, device, demand, borders)
    sets[State.SYNC] = attributed
    for state in (State.HOST, State.HOST_WORK):
        sets[state] = sets[state].difference(attributed)
    return _pieces(gaps, sets), cost


def _attribute(
    waits: Waits, process: int, device: int, demand: Intervals, borders: Column
) -> tuple[Intervals, Column]:
    cost = np.zeros(len(waits), np.int64)
    mine = np.flatnonzero((waits.process == process) & np.isin(waits.device, (device, -1)))
    mine = mine[np.lexsort((waits.start_ns[mine], waits.end_ns[mine]))]
    amount = waits.end_ns[mine] - waits.start_ns[mine]
    cost[mine], attributed = spend_credit(amount, waits.end_ns[mine], demand, borders)
    return attributed, cost


def _pieces(gaps: Gaps, sets: dict[State, Intervals]) -> Segments:
    """Disjoint sets that cover the gaps, as pieces that each lie in one gap."""
    starts, ends, states = [], [], []
    for state, part in sets.items():
        cut = _cut_at(part, gaps.start_ns)
        starts.append(cut[0])
        ends.append(cut[1])
        states.append(np.full(len(cut[0]), state, np.int8))
    start = np.concatenate(starts)
    order = np.argsort(start, kind="stable")
    start = start[order]
    gap_order = np.argsort(gaps.start_ns, kind="stable")
    gap = gap_order[np.searchsorted(gaps.start_ns[gap_order], start, side="right") - 1]
    return Segments(start, np.concatenate(ends)[order], np.concatenate(states)[order], gaps.ender[gap])


def _cut_at(part: Intervals, cuts: Column) -> tuple[Column, Column]:
    """The intervals of a set, cut where another gap begins (gaps never touch, but their union is one set)."""
    inner = cuts[part.contains(cuts) & ~np.isin(cuts, part.start)]
    start = np.sort(np.concatenate((part.start, inner)), kind="stable")
    end = np.sort(np.concatenate((part.end, inner)), kind="stable")
    return start, end


def _joined(pieces: list[Segments]) -> Segments:
    def column(name: str) -> NDArray[Any]:
        return np.concatenate([getattr(p, name) for p in pieces])

    return Segments(column("start_ns"), column("end_ns"), column("state"), column("operation"))
