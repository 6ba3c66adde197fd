"""Idle time by cause, the longest gaps, and what each wait of the host cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.places import call_operator, source_line
from profkit.analysis.result import Row
from profkit.analysis.states import CAUSE_OF_STATE, State
from profkit.analysis.tables.grouping import sums
from profkit.analysis.view import TraceView

__all__ = ["MOST_GAPS", "idle_row", "sync_rows"]

MOST_GAPS: Final = 200
"""Gaps that a report lists, longest first."""


def idle_row(views: Sequence[TraceView], offsets: Sequence[int], device_ids: Sequence[Sequence[int]]) -> Row:
    """Idle time of the window by cause, and its longest gaps.

    Args:
        views: The traces, with their windows.
        offsets: What to add to a trace's times to have report times, in ns.
        device_ids: The report's id of each device of each trace.
    """
    by_cause = dict.fromkeys(CAUSE_OF_STATE.values(), 0)
    gaps: list[Row] = []
    left_out = 0
    for view, offset, ids in zip(views, offsets, device_ids, strict=True):
        for device in range(len(view.trace.devices)):
            causes, longest, count = _gaps_of(view, device)
            for state, ns in causes.items():
                by_cause[CAUSE_OF_STATE[state]] += ns
            gaps += [{**gap, "device": ids[device], "start_ns": gap["start_ns"] + offset} for gap in longest]
            left_out += count - len(longest)
    gaps.sort(key=lambda g: (-g["dur_ns"], g["device"], g["start_ns"]))
    return {
        "total_ns": sum(by_cause.values()),
        "by_cause": by_cause,
        "gaps": gaps[:MOST_GAPS],
        "gaps_left_out": left_out + max(len(gaps) - MOST_GAPS, 0),
    }


def _gaps_of(view: TraceView, device: int) -> tuple[dict[State, int], list[Row], int]:
    segments = view.window_segments(device)
    idle = segments.state >= State.INPUT
    start, end, state = segments.start_ns[idle], segments.end_ns[idle], segments.state[idle]
    ender = segments.operation[idle]
    length = end - start
    causes = {s: int(length[state == s].sum()) for s in CAUSE_OF_STATE}
    if not len(start):
        return causes, [], 0
    # Pieces that touch belong to one gap.
    gap = np.concatenate(([0], np.cumsum(start[1:] != end[:-1])))
    count = int(gap[-1]) + 1
    first = np.searchsorted(gap, np.arange(count))
    total = sums(gap, length, count)
    by_state = np.zeros((count, len(State)), np.int64)
    np.add.at(by_state, (gap, state), length)
    longest = np.lexsort((start[first], -total))[:MOST_GAPS]
    rows = []
    for at in longest.tolist():
        begin = int(start[first[at]])
        rows.append(
            _gap(
                view, device, begin, int(total[at]), State(int(by_state[at].argmax())), int(ender[first[at]])
            )
        )
    return causes, rows, count


def _gap(view: TraceView, device: int, begin: int, length: int, cause: State, ender: int) -> Row:
    trace, phases = view.trace, view.phases
    phase = int(phases.of_operation[ender]) if ender >= 0 else -1
    call = int(view.launches.call[ender]) if ender >= 0 else -1
    return {
        "device": device,
        "start_ns": begin,
        "dur_ns": length,
        "cause": CAUSE_OF_STATE[cause],
        "before": _operation_ending_at(view, device, begin),
        "after": _operation_name(view, ender),
        "phase": phases.paths[phases.path[phase]] if phase >= 0 else None,
        "operator": call_operator(view, call),
        "where": source_line(trace, call),
    }


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


def sync_rows(views: Sequence[TraceView]) -> list[Row]:
    """The waits of the window by call, operator, line and phase: the most costly first."""
    merged: dict[tuple[Any, ...], Row] = {}
    for view in views:
        waits = view.waits
        for at in _waits_of_window(view).tolist():
            call = int(waits.call[at])
            key = (
                view.trace.strings[view.trace.calls.name[call]],
                call_operator(view, call),
                source_line(view.trace, call),
                _phase_at(view, int(waits.thread[at]), int(waits.start_ns[at])),
            )
            row = merged.setdefault(
                key,
                {
                    **dict(zip(("api", "operator", "where", "phase"), key, strict=True)),
                    "count": 0,
                    "blocked_ns": 0,
                    "cost_ns": 0,
                },
            )
            row["count"] += 1
            row["blocked_ns"] += int(waits.end_ns[at] - waits.start_ns[at])
            row["cost_ns"] += int(view.wait_cost_ns[at])
    return sorted(
        merged.values(),
        key=lambda r: (-r["cost_ns"], -r["blocked_ns"], str(r["api"]), str(r["phase"]), str(r["where"])),
    )


def _waits_of_window(view: TraceView) -> NDArray[np.int64]:
    """Waits that began in the kept steps; without steps, all."""
    start = view.waits.start_ns
    if not view.steps.count:
        return np.arange(len(start))
    since, until = view.steps.start_ns[view.first_kept], view.steps.end_ns[-1]
    return np.flatnonzero((start >= since) & (start < until))


def _phase_at(view: TraceView, thread: int, time: int) -> str | None:
    row = int(view.phases.nesting.open_on(thread, np.array([time]))[0])
    return view.phases.paths[view.phases.path[row]] if row >= 0 else None
