"""Idle time by cause, the longest gaps, and what each wait of the host cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model.report_time import GapActivity as Doing
from profkit.model.report_time import GapRow, Idle, IdleRange, SyncRow
from profkit.model.rows import replace
from profkit.model.states import CAUSE_OF_STATE, State
from profkit.model.summing import Summed, added
from profkit.timeline.call_sites import call_operators, frame_text, source_frames
from profkit.timeline.gap_activity import GapActivity
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.host_time import host_time, host_time_together
from profkit.timeline.idle import late_until
from profkit.timeline.segments import Gaps, Segments
from profkit.timeline.view import TraceView

Column = NDArray[np.int64]

__all__ = ["SYNCS", "costliest_syncs", "idle_row", "idle_together", "sync_rows"]

_MOST_GAPS: Final = 200
"""Gaps that a report lists, longest first."""

_MOST_RANGES: Final = 40
"""Ranges that a report lists by the idle time that they fill."""

_FILLED: Final[Mapping[State, Literal["input", "host_work"]]] = {
    State.INPUT: "input",
    State.HOST_WORK: "host_work",
}
"""The causes whose idle time ranges of the program fill."""

_BY_RANGE: Final = Summed[IdleRange](("cause", "name"), ("ns",))
SYNCS: Final = Summed[SyncRow](("api", "operator", "where", "phase"), ("count", "blocked_ns", "cost_ns"))


def idle_row(view: TraceView) -> Idle:
    """A trace's idle time by cause, its longest gaps, and what the host did meanwhile, in times of the trace."""
    by_cause = dict.fromkeys(CAUSE_OF_STATE.values(), 0)
    by_range: list[IdleRange] = []
    activity = GapActivity(view)
    each = [_gaps_of(view, device) for device in range(len(view.trace.devices))]
    for device, found in enumerate(each):
        by_range += _by_range(view, device, activity)
        for state, cause in CAUSE_OF_STATE.items():
            by_cause[cause] += int(found.by_state[:, state].sum())
    gaps = [
        row
        for device, (found, longest) in enumerate(zip(each, _longest(each), strict=True))
        for row in _gap_rows(view, device, activity, found, longest)
    ]
    return Idle(
        total_ns=sum(by_cause.values()),
        by_cause=by_cause,
        by_range=_BY_RANGE.rows(by_range),
        gaps=gaps,
        gaps_left_out=sum(len(found.shown) for found in each) - len(gaps),
        host=host_time(view),
    )


def idle_together(idle: Sequence[Idle], offsets: Sequence[int], first_device: Sequence[int]) -> Idle:
    """The idle time of several traces.

    Args:
        idle: One a trace.
        offsets: What to add to each trace's times to have report times, in ns.
        first_device: The report's id of each trace's first device.
    """
    gaps = [
        replace(gap, device=gap.device + first, start_ns=gap.start_ns + offset)
        for each, offset, first in zip(idle, offsets, first_device, strict=True)
        for gap in each.gaps
    ]
    gaps.sort(key=lambda g: (-g.dur_ns, g.device, g.start_ns))
    by_range = _BY_RANGE.rows(row for each in idle for row in each.by_range)
    return Idle(
        total_ns=sum(each.total_ns for each in idle),
        by_cause=added(dict.fromkeys(CAUSE_OF_STATE.values(), 0), *(each.by_cause for each in idle)),
        by_range=sorted(by_range, key=lambda r: (-r.ns, r.cause, r.name))[:_MOST_RANGES],
        gaps=gaps[:_MOST_GAPS],
        gaps_left_out=sum(each.gaps_left_out for each in idle) + max(len(gaps) - _MOST_GAPS, 0),
        host=host_time_together([each.host for each in idle]),
    )


def _by_range(view: TraceView, device: int, activity: GapActivity) -> list[IdleRange]:
    segments = view.window_segments(device)
    found: dict[tuple[Literal["input", "host_work"], str], int] = {}
    for state, cause in _FILLED.items():
        mine = np.flatnonzero(segments.state == state)
        _, row, ns = activity.names(
            state, segments.start_ns[mine], segments.end_ns[mine], segments.operation[mine]
        )
        names, example, at = np.unique(view.trace.ranges.name[row], return_index=True, return_inverse=True)
        total = sums(np.ravel(at), ns, len(names))
        for each, spent in zip(row[example].tolist(), total.tolist(), strict=True):
            found[cause, activity.text(each)] = spent
    return [IdleRange(cause=cause, name=name, ns=ns) for (cause, name), ns in found.items()]


@dataclass(frozen=True, eq=False)
class _Gaps:
    """The idle stretches of one device; pieces that touch belong to one gap."""

    pieces: Segments
    gap: Column
    """Of each piece."""
    start_ns: Column
    ender: Column
    by_state: Column
    """Time by state: shape (gaps, states)."""
    shown: Column
    """The gaps that a report may list."""

    @cached_property
    def length_ns(self) -> Column:
        length: Column = self.by_state.sum(axis=1)
        return length


def _gaps_of(view: TraceView, device: int) -> _Gaps:
    pieces = view.window_segments(device).idle()
    new = np.ones(len(pieces.start_ns), bool)
    new[1:] = pieces.start_ns[1:] != pieces.end_ns[:-1]
    gap, ender = np.cumsum(new) - 1, pieces.operation[new]
    by_state = np.zeros((len(ender), len(State)), np.int64)
    np.add.at(by_state, (gap, pieces.state), pieces.end_ns - pieces.start_ns)
    shown = np.arange(len(ender))
    if view.only_phase is not None:
        shown = shown[[view.shows(_path_of_operation(view, row)) for row in ender.tolist()]]
    return _Gaps(pieces, gap, pieces.start_ns[new], ender, by_state, shown)


def _longest(each: Sequence[_Gaps]) -> list[Column]:
    """The gaps of each device that are among the longest of all, longest first."""
    device = np.repeat(np.arange(len(each)), [len(found.shown) for found in each])
    gap = np.concatenate([np.empty(0, np.int64), *(found.shown for found in each)])
    length, start = (
        np.concatenate([np.empty(0, np.int64), *(getattr(found, name)[found.shown] for found in each)])
        for name in ("length_ns", "start_ns")
    )
    order = np.lexsort((start, device, -length))[:_MOST_GAPS]
    return [gap[order[device[order] == at]] for at in range(len(each))]


def _gap_rows(
    view: TraceView, device: int, activity: GapActivity, found: _Gaps, longest: Column
) -> list[GapRow]:
    begin, row, length = found.start_ns[longest], found.ender[longest], found.length_ns[longest]
    ended = row >= 0  # by an operation; the last gap is not
    call = np.full(len(row), -1, np.int64)
    call[ended] = view.launches.call[row[ended]]
    operator, frame = _places(view, call)
    filled = _filled_by(activity, found, longest)
    doing = _doing(view, activity, begin, begin + length, row)
    return [
        GapRow(
            device=device,
            start_ns=int(begin[at]),
            dur_ns=int(length[at]),
            cause=CAUSE_OF_STATE[State(int(found.by_state[longest[at]].argmax()))],
            before=_operation_ending_at(view, device, int(begin[at])),
            after=_operation_name(view, int(row[at])),
            phase=_path_of_operation(view, int(row[at])),
            operator=operator[at],
            where=frame[at],
            range=filled.get(int(longest[at])),
            doing=doing[at],
        )
        for at in range(len(longest))
    ]


def _filled_by(activity: GapActivity, found: _Gaps, chosen: Column) -> dict[int, str]:
    """The range that fills most of what input and host work have of each chosen gap."""
    pieces, gap = found.pieces, found.gap
    most: dict[int, tuple[int, int]] = {}
    for cause in _FILLED:
        mine = np.flatnonzero((pieces.state == cause) & np.isin(gap, chosen))
        piece, row, ns = activity.names(
            cause, pieces.start_ns[mine], pieces.end_ns[mine], pieces.operation[mine]
        )
        group, example = group_rows(gap[mine[piece]], row)
        for at, spent in zip(example.tolist(), sums(group, ns, len(example)).tolist(), strict=True):
            of_gap = int(gap[mine[piece[at]]])
            most[of_gap] = max(most.get(of_gap, (0, 0)), (spent, int(row[at])))
    return {each: activity.text(row) for each, (_, row) in most.items()}


def _doing(
    view: TraceView, activity: GapActivity, begin: Column, end: Column, ender: Column
) -> list[list[Doing]]:
    """What the launching thread did in each gap until the launch that ends it had returned."""
    late = late_until(view.launches, Gaps(begin, end, ender))
    return [
        activity.doing(int(view.launches.thread[row]), since, until) if until > since else []
        for row, since, until in zip(ender.tolist(), begin.tolist(), late.tolist(), strict=True)
    ]


def _places(view: TraceView, call: Column) -> tuple[list[str | None], list[str | None]]:
    """The operator and the user's line of each call; None where there is none or the call is -1."""
    known = np.flatnonzero(call >= 0)
    operator: list[str | None] = [None] * len(call)
    frame: list[str | None] = [None] * len(call)
    ids = zip(
        known.tolist(), call_operators(view, call[known]), source_frames(view, call[known]), strict=True
    )
    for at, operator_id, frame_id in ids:
        operator[at] = view.trace.strings[operator_id] if operator_id >= 0 else None
        frame[at] = frame_text(view.trace.strings[frame_id]) if frame_id >= 0 else None
    return operator, frame


def _path_of_operation(view: TraceView, row: int) -> str | None:
    phase = int(view.phases.of_operation[row]) if row >= 0 else -1
    return view.phases.paths[view.phases.path[phase]] if phase >= 0 else None


def _operation_name(view: TraceView, row: int) -> str | None:
    return view.trace.strings[view.trace.operations.name[row]] if row >= 0 else None


def _operation_ending_at(view: TraceView, device: int, time: int) -> str | None:
    segments = view.segments[device]
    at = int(np.searchsorted(segments.start_ns, time)) - 1
    return (
        _operation_name(view, int(segments.operation[at]))
        if at >= 0 and segments.state[at] < State.INPUT
        else None
    )


def costliest_syncs(rows: Sequence[SyncRow]) -> list[SyncRow]:
    """The table of waits, most costly first."""

    def place(row: SyncRow) -> tuple[Any, ...]:
        return (
            -(row.cost_ns or 0),
            -row.blocked_ns,
            row.api,
            str(row.operator),
            str(row.where),
            str(row.phase),
        )

    return sorted(rows, key=place)


def sync_rows(view: TraceView) -> list[SyncRow]:
    """The waits of a trace's window by call, operator, line and phase."""
    waits, trace = view.waits, view.trace
    chosen, attributed = _waits_of_window(view)
    if not len(chosen):
        return []
    call = waits.call[chosen]
    operator, frame = call_operators(view, call), source_frames(view, call)
    path = view.phases.path_of(view.phases.nesting.innermost(waits.thread[chosen], waits.start_ns[chosen]))
    group, example = group_rows(trace.calls.name[call], operator, frame, path)
    count = np.bincount(group)
    blocked = sums(group, (waits.end_ns - waits.start_ns)[chosen], len(example))
    cost = sums(group, attributed, len(example))
    return [
        SyncRow(
            api=trace.strings[trace.calls.name[call[row]]],
            operator=trace.strings[operator[row]] if operator[row] >= 0 else None,
            where=frame_text(trace.strings[frame[row]]) if frame[row] >= 0 else None,
            phase=view.phases.paths[path[row]] if path[row] >= 0 else None,
            count=int(count[at]),
            blocked_ns=int(blocked[at]),
            cost_ns=int(cost[at]),
        )
        for at, row in enumerate(example.tolist())
        if view.shows(view.phases.paths[path[row]] if path[row] >= 0 else None)
    ]


def _waits_of_window(view: TraceView) -> tuple[NDArray[np.int64], Column]:
    """Waits that returned in the window, and what they cost there: their credit lapses with that device step.

    By the device's time and not by the host's steps, so that the costs add up to the share ``sync``: what a step's
    last wait costs lies in the tile of the next step.
    """
    waits, operations = view.waits, view.trace.operations
    inside, cost = np.zeros(len(waits), bool), np.zeros(len(waits), np.int64)
    if not view.windows:
        inside = view.begun_in_window(waits.thread, waits.start_ns)
    for device, window in enumerate(view.windows):
        own = np.isin(waits.device, (device, -1))
        own &= np.isin(waits.process, operations.process[operations.device == device])
        here = own & window.contains(waits.end_ns - 1)
        inside |= here
        cost[here] += view.wait_cost_ns[device, here]
    chosen = np.flatnonzero(inside)
    return chosen, cost[chosen]
