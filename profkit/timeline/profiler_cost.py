"""The profiler is part of the recording: idle time beyond the unprofiled step is named as its cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.states import State
from profkit.timeline.segments import Segments
from profkit.timeline.view import Span, TraceView

__all__ = ["with_profiler_cost"]

_MOVED_FROM: Final = (State.HOST, State.QUEUE, State.SYNC, State.INPUT)
"""Where the cost is taken from, in this order: launch, then sync, then input (design, section 2)."""


def with_profiler_cost(view: TraceView, plain_step_ns: int) -> TraceView:
    """Name the idle time of the window beyond the unprofiled steps as the profiler's.

    It is taken evenly from the idle pieces of one cause before the next cause gives any, and never from busy
    time. A trace without steps is returned as it is.
    """
    kept = view.steps.count - view.first_kept
    if not view.steps.count:
        return view
    segments = [
        _move(own, window, window[1] - window[0] - kept * plain_step_ns)
        for own, window in zip(view.segments, view.windows, strict=True)
    ]
    return replace(view, segments=segments)


def _move(segments: Segments, window: Span, excess_ns: int) -> Segments:
    for state in _MOVED_FROM:
        if excess_ns <= 0:
            break
        segments, moved = _move_from(segments, window, state, excess_ns)
        excess_ns -= moved
    return segments


def _move_from(segments: Segments, window: Span, state: State, most_ns: int) -> tuple[Segments, int]:
    first, last = (
        np.searchsorted(segments.end_ns, window[0], "right"),
        np.searchsorted(segments.start_ns, window[1]),
    )
    chosen = np.zeros(len(segments.state), bool)
    chosen[first:last] = segments.state[first:last] == state
    start, end = (
        np.maximum(segments.start_ns[chosen], window[0]),
        np.minimum(segments.end_ns[chosen], window[1]),
    )
    length = np.cumsum(end - start)
    if not len(length) or not length[-1]:
        return segments, 0
    total, moved = int(length[-1]), min(int(length[-1]), most_ns)
    # Rounding the running sum keeps the whole exact; Python integers cannot overflow.
    upto = np.array([0, *(int(each) * moved // total for each in length.tolist())], np.int64)
    cut = np.flatnonzero(chosen)
    middle = end - np.diff(upto)
    return _relabelled(segments, cut, middle, end), moved


def _relabelled(segments: Segments, rows: NDArray[Any], middle: NDArray[Any], end: NDArray[Any]) -> Segments:
    """Give ``[middle, end)`` of some segments to the profiler; what lies after ``end`` keeps its state."""
    parts: Sequence[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = (
        (segments.start_ns[rows], middle, segments.state[rows]),
        (middle, end, np.full(len(rows), State.PROFILER, np.int8)),
        (end, segments.end_ns[rows], segments.state[rows]),
    )
    others = np.ones(len(segments.state), bool)
    others[rows] = False
    start = np.concatenate([segments.start_ns[others], *(p[0] for p in parts)])
    stop = np.concatenate([segments.end_ns[others], *(p[1] for p in parts)])
    state = np.concatenate([segments.state[others], *(p[2] for p in parts)]).astype(np.int8)
    operation = np.concatenate([segments.operation[others], *([segments.operation[rows]] * 3)])
    real = stop > start
    order = np.flatnonzero(real)[np.argsort(start[real], kind="stable")]
    return Segments(start[order], stop[order], state[order], operation[order])
