"""The profiler is part of the recording: idle time beyond the unprofiled step is named as its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from profkit.model.states import BUSY_STATES, State
from profkit.timeline.intervals import Intervals
from profkit.timeline.segments import Segments
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import states_of

__all__ = ["is_possible", "with_profiler_cost"]

_MOVED_FROM: Final = (State.HOST, State.QUEUE, State.SYNC, State.INPUT)
"""Where the cost is taken from, in this order: launch, then sync, then input (design, section 2)."""


_OF_BUSY: Final = 0.85
"""A step is not shorter than this part of its busy time (design, section 2): clocks differ between two runs by less."""

_OWN_WORK: Final = [state for state in BUSY_STATES if state is not State.COMMUNICATION]
"""What no profiler makes longer; a collective waits for other ranks, which their profilers delay."""


def is_possible(view: TraceView, plain_step_ns: int) -> bool:
    """Whether a trace's step may take so long without its profiler."""
    if not view.steps.count:
        return True
    devices = range(len(view.trace.devices))
    busy = max((int(states_of(view, device)[_OWN_WORK].sum()) for device in devices), default=0)
    return plain_step_ns >= _OF_BUSY * busy / max(view.kept_count, 1)


def with_profiler_cost(view: TraceView, plain_step_ns: int) -> TraceView:
    """Name the idle time of the window beyond the unprofiled steps as the profiler's.

    It is taken evenly from the idle pieces of one cause before the next cause gives any, and never from busy
    time. Of a trace without steps, no time is named.
    """
    view = replace(view, plain_step_ns=plain_step_ns)
    if not view.steps.count:
        return view
    segments = [
        _with_cost(own, window, window.total_ns - view.kept_count * plain_step_ns)
        for own, window in zip(view.segments, view.windows, strict=True)
    ]
    return replace(view, segments=segments)


def _with_cost(segments: Segments, window: Intervals, excess_ns: int) -> Segments:
    outside = Intervals.of(segments.start_ns[:1], segments.end_ns[-1:]).difference(window)
    rest, inside = segments.inside(outside), segments.inside(window)
    for state in _MOVED_FROM:
        if excess_ns <= 0:
            break
        inside, moved = _move_from(inside, state, excess_ns)
        excess_ns -= moved
    return _in_order([rest, inside])


def _move_from(segments: Segments, state: State, most_ns: int) -> tuple[Segments, int]:
    chosen = segments.state == state
    length = np.cumsum((segments.end_ns - segments.start_ns)[chosen])
    if not len(length) or not length[-1]:
        return segments, 0
    total, moved = int(length[-1]), min(int(length[-1]), most_ns)
    # Rounding the running sum keeps the whole exact; Python integers cannot overflow.
    upto = np.array([0, *(int(each) * moved // total for each in length.tolist())], np.int64)
    start, end, operation = segments.start_ns[chosen], segments.end_ns[chosen], segments.operation[chosen]
    middle = end - np.diff(upto)
    rest = ~chosen
    others = Segments(
        segments.start_ns[rest], segments.end_ns[rest], segments.state[rest], segments.operation[rest]
    )
    parts = [
        Segments(start, middle, np.full(len(end), state, np.int8), operation),
        Segments(middle, end, np.full(len(end), State.PROFILER, np.int8), operation),
    ]
    return _in_order([others, *parts]), moved


def _in_order(parts: Sequence[Segments]) -> Segments:
    """Disjoint segments as one row, without empty ones."""
    start = np.concatenate([part.start_ns for part in parts])
    end = np.concatenate([part.end_ns for part in parts])
    real = end > start
    order = np.flatnonzero(real)[np.argsort(start[real], kind="stable")]
    state = np.concatenate([part.state for part in parts])
    operation = np.concatenate([part.operation for part in parts])
    return Segments(start[order], end[order], state[order], operation[order])
