"""One representative step, as lanes of bars for a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model.report_time import Bar, Lane, Timeline
from profkit.model.rows import replace
from profkit.model.states import CAUSE_OF_STATE, State
from profkit.timeline.phases import phase_at
from profkit.timeline.queue_depth import queue_between
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import states_of

__all__ = ["MOST_BARS", "timeline_row"]

MOST_BARS: Final = 1_500
"""Bars that a lane shows, the longest first."""

_MOST_LANES: Final = 8
_QUEUE_PARTS: Final = 300
"""Parts of the step whose shortest and longest queue are shown."""
_TONES: Final = {
    State.COMPUTE: "compute",
    State.MEMORY: "memory",
    State.SMALL_KERNELS: "overhead",
    State.UNCLASSIFIED: "unclassified",
    State.COMMUNICATION: "communication",
    State.TRANSFER: "transfer",
}


def timeline_row(
    views: Sequence[TraceView], offsets: Sequence[int], device_ids: Sequence[Sequence[int]]
) -> Timeline | None:
    """The kept step of median length on the busiest device; without steps, the device's whole window."""
    best: tuple[int, int, int] | None = None
    for at, view in enumerate(views):
        for device in range(len(view.trace.devices)):
            busy = int(states_of(view, device)[: State.INPUT].sum())
            if best is None or busy > best[0]:
                best = (busy, at, device)
    if best is None:
        return None
    _, at, device = best
    view, offset = views[at], offsets[at]
    step, start, end = _chosen(view, device)
    if end <= start:
        return None
    lanes = [
        *_phase_lanes(view, start, end),
        *_thread_lanes(view, start, end),
        *_stream_lanes(view, device, start, end),
        _idle_lane(view, device, start, end),
    ]
    made = Timeline(
        step=step,
        device=device_ids[at][device],
        start_ns=start,
        end_ns=end,
        lanes=[lane for lane, _ in lanes],
        left_out=sum(left_out for _, left_out in lanes),
        queue=queue_between(view, device, start, end, _QUEUE_PARTS),
    )
    return _shifted(made, offset)


def _shifted(timeline: Timeline, ns: int) -> Timeline:
    """The timeline with a time added to all of its instants, in ns."""

    def later(bar: Bar) -> Bar:
        return (bar[0] + ns, *bar[1:])

    return replace(
        timeline,
        start_ns=timeline.start_ns + ns,
        end_ns=timeline.end_ns + ns,
        lanes=[replace(lane, bars=[later(bar) for bar in lane.bars]) for lane in timeline.lanes],
        queue=[(at + ns, depth) for at, depth in timeline.queue],
    )


def _chosen(view: TraceView, device: int) -> tuple[str | None, int, int]:
    if not view.steps.count:
        return None, *view.window_hull(device)
    at = view.median_step(device)
    tiles = view.steps.tile_start_ns, view.steps.tile_end_ns
    return view.steps.names[at], int(tiles[0][device, at]), int(tiles[1][device, at])


def _lane(
    kind: Literal["phase", "stream", "thread", "idle"],
    label: str,
    start: NDArray[Any],
    end: NDArray[Any],
    text: Sequence[tuple[str, str, str | None]],
) -> tuple[Lane, int]:
    """A lane of at most `MOST_BARS` bars, and how many more there are; ``text`` gives a bar's name, tone and phase."""
    longest = np.sort(np.argsort(start - end, kind="stable")[:MOST_BARS])
    bars = [(int(start[i]), int(end[i] - start[i]), *text[i]) for i in longest.tolist()]
    return Lane(kind=kind, label=label, bars=bars), len(start) - len(bars)


def _overlapping(start: NDArray[Any], end: NDArray[Any], first: int, last: int) -> NDArray[np.int64]:
    rows = np.flatnonzero((end > first) & (start < last))
    return rows[np.argsort(start[rows], kind="stable")]


def _phase_lanes(view: TraceView, first: int, last: int) -> list[tuple[Lane, int]]:
    """Host time of the phases, a lane for each level of nesting."""
    ranges, phases = view.trace.ranges, view.phases
    rows = _overlapping(ranges.start_ns, ranges.end_ns, first, last)
    rows = rows[phases.path[rows] >= 0]
    depth = np.array([phases.paths[p].count("/") for p in phases.path[rows].tolist()], np.int64)
    lanes = []
    for level in np.unique(depth).tolist()[:4]:
        mine = rows[depth == level]
        text = [(phases.paths[p], "phase", phases.paths[p]) for p in phases.path[mine].tolist()]
        label = "phases (host)" if level == 0 else f"phases (host), level {level + 1}"
        lanes.append(_lane("phase", label, ranges.start_ns[mine], ranges.end_ns[mine], text))
    return lanes


def _thread_lanes(view: TraceView, first: int, last: int) -> list[tuple[Lane, int]]:
    calls, trace = view.trace.calls, view.trace
    rows = _overlapping(calls.start_ns, calls.end_ns, first, last)
    lanes = []
    threads, count = np.unique(calls.thread[rows], return_counts=True)
    busiest = threads[np.argsort(-count, kind="stable")][:3].tolist()
    named = Counter(trace.threads[thread].names[:1] for thread in busiest)
    for thread in busiest:
        mine = rows[calls.thread[rows] == thread]
        phase = phase_at(trace, view.phases, calls.thread[mine], calls.start_ns[mine])
        names = calls.name[mine].tolist()
        text = [(trace.strings[n], "call", p) for n, p in zip(names, _paths(view, phase), strict=True)]
        who = trace.threads[thread]
        number = f"thread {who.tid}"
        label = who.names[0] if who.names else number
        if who.names and named[who.names[:1]] > 1:
            label = f"{label} ({number})"
        lanes.append(_lane("thread", label, calls.start_ns[mine], calls.end_ns[mine], text))
    return lanes


def _stream_lanes(view: TraceView, device: int, first: int, last: int) -> list[tuple[Lane, int]]:
    operations = view.trace.operations
    rows = _overlapping(operations.start_ns, operations.end_ns, first, last)
    rows = rows[operations.device[rows] == device]
    lanes = []
    streams, count = np.unique(operations.stream[rows], return_counts=True)
    for stream in streams[np.argsort(-count, kind="stable")][:_MOST_LANES].tolist():
        mine = rows[operations.stream[rows] == stream]
        names, states = operations.name[mine].tolist(), view.state[mine].tolist()
        paths = _paths(view, view.phases.at(mine))
        text = [
            (_short(view, name), _TONES[State(state)], path)
            for name, state, path in zip(names, states, paths, strict=True)
        ]
        lanes.append(
            _lane("stream", f"stream {stream}", operations.start_ns[mine], operations.end_ns[mine], text)
        )
    return lanes


def _paths(view: TraceView, phases: NDArray[Any]) -> list[str | None]:
    """The paths of phase rows; None for -1."""
    known = view.phases.path_of(phases).tolist()
    return [view.phases.paths[p] if p >= 0 else None for p in known]


def _short(view: TraceView, name: int) -> str:
    known = view.work.class_of_name.get(name)
    return known.short_name if known else view.trace.strings[name] if name >= 0 else "<unnamed>"


def _idle_lane(view: TraceView, device: int, first: int, last: int) -> tuple[Lane, int]:
    segments = view.segments[device].clipped(first, last)
    idle = segments.state >= State.INPUT
    causes = [CAUSE_OF_STATE[State(s)] for s in segments.state[idle].tolist()]
    paths = _paths(view, view.phases.at(segments.operation[idle]))
    text = [(cause, cause, path) for cause, path in zip(causes, paths, strict=True)]
    return _lane("idle", "idle, by cause", segments.start_ns[idle], segments.end_ns[idle], text)
