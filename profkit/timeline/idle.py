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

__all__ = ["QUEUE_LATENCY_NS", "IdleContext", "explain_gaps"]

QUEUE_LATENCY_NS: Final = 5_000
"""The longest gap between two operations that were both queued, in ns."""

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
        The pieces, and for every wait of the context what it was charged on this device, in ns.
    """
    late, state = _sort_out(context, gaps)
    pieces = [Segments(gaps.start_ns[~late], gaps.end_ns[~late], state[~late], gaps.ender[~late])]
    cost = np.zeros(len(context.waits), np.int64)
    rows = np.flatnonzero(late)
    process = context.trace.operations.process[gaps.ender[rows]]
    for each in np.unique(process):
        own, charged = _cut_late(context, _pick(gaps, rows[process == each]), int(each), device, borders)
        pieces.append(own)
        cost += charged
    return _joined(pieces), cost


def _sort_out(context: IdleContext, gaps: Gaps) -> tuple[NDArray[np.bool_], NDArray[np.int8]]:
    """Which gaps are host-late, and the cause of the others."""
    launches, ender = context.launches, np.maximum(gaps.ender, 0)
    known = gaps.ender >= 0
    linked = known & (launches.linked[ender] if len(launches.call) else known)
    late = linked & (launches.return_ns[ender] > gaps.start_ns) if len(launches.call) else linked
    short = gaps.end_ns - gaps.start_ns <= context.queue_latency_ns
    state = np.where(short, State.QUEUE, State.DEPENDENCY)
    state = np.where(linked, state, np.where(known, State.UNKNOWN, State.TAIL)).astype(np.int8)
    return late, state


def _pick(gaps: Gaps, rows: Column) -> Gaps:
    return Gaps(gaps.start_ns[rows], gaps.end_ns[rows], gaps.ender[rows])


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
        sets[State.HOST] = sets.get(State.HOST, Intervals.none()).union(rest)
        demand = demand.union(rest.difference(context.activity.waiting_of(one, other)))
    charged, cost = _charge(context.waits, process, device, demand, borders)
    sets[State.SYNC] = charged
    sets[State.HOST] = sets[State.HOST].difference(charged)
    return _pieces(gaps, sets), cost


def _charge(
    waits: Waits, process: int, device: int, demand: Intervals, borders: Column
) -> tuple[Intervals, Column]:
    cost = np.zeros(len(waits), np.int64)
    mine = np.flatnonzero((waits.process == process) & np.isin(waits.device, (device, -1)))
    mine = mine[np.lexsort((waits.start_ns[mine], waits.end_ns[mine]))]
    amount = waits.end_ns[mine] - waits.start_ns[mine]
    cost[mine], charged = spend_credit(amount, waits.end_ns[mine], demand, borders)
    return charged, cost


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
