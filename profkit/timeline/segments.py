"""A device's time as one row of segments: what it ran, and when it ran nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import Operations
from profkit.model.states import BUSY_STATES, State
from profkit.timeline.distinct import sorted_distinct
from profkit.timeline.intervals import Intervals

__all__ = ["Gaps", "Segments", "find_gaps", "occupy", "with_idle"]

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Segments:
    """Stretches of one device's time that follow each other without a hole."""

    start_ns: Column
    end_ns: Column
    state: NDArray[np.int8]
    """`State`; idle stretches have their cause."""
    operation: Column
    """Row in `Trace.operations`: the one that runs (of several of that state, the one that runs longest), or
    the one that ends the idle stretch; -1 for none."""

    def within(self, start: Any, end: Any) -> NDArray[np.int64]:
        """The time in each state within windows: shape (states, windows), in ns."""
        return np.stack([intervals.within(start, end) for intervals in self._by_state])

    def in_state(self, state: State) -> Intervals:
        """The time in a state."""
        return self._by_state[state]

    @cached_property
    def _by_state(self) -> tuple[Intervals, ...]:
        parts = (self.state == state for state in State)
        return tuple(Intervals.of_sorted(self.start_ns[part], self.end_ns[part]) for part in parts)

    def idle(self) -> Segments:
        """The stretches in which nothing ran."""
        idle = self.state >= State.INPUT
        return Segments(self.start_ns[idle], self.end_ns[idle], self.state[idle], self.operation[idle])

    def clipped(self, start: int, end: int) -> Segments:
        """The part inside a window."""
        first, last = np.maximum(self.start_ns, start), np.minimum(self.end_ns, end)
        inside = first < last
        return Segments(first[inside], last[inside], self.state[inside], self.operation[inside])

    def inside(self, windows: Intervals) -> Segments:
        """The parts inside any of some windows."""
        first = np.searchsorted(self.end_ns, windows.start, side="right")
        met = np.maximum(np.searchsorted(self.start_ns, windows.end, side="left") - first, 0)
        window = np.repeat(np.arange(len(windows)), met)
        row = np.arange(len(window)) + np.repeat(first - np.cumsum(met) + met, met)
        return Segments(
            np.maximum(self.start_ns[row], windows.start[window]),
            np.minimum(self.end_ns[row], windows.end[window]),
            self.state[row],
            self.operation[row],
        )


@dataclass(frozen=True, eq=False)
class Gaps:
    """The idle stretches of one device, in order."""

    start_ns: Column
    end_ns: Column
    ender: Column
    """Row in `Trace.operations` of the operation that ends each, or -1 for the tail."""


def occupy(operations: Operations, rows: Column, state: NDArray[np.int8], first: int, last: int) -> Segments:
    """Divide ``[first, last)`` by what runs: idle stretches get `State.UNKNOWN` and no operation.

    Args:
        operations: All operations.
        rows: Those of one device.
        state: The busy state of every operation.
        first: Where the division starts, in ns.
        last: Where it ends.
    """
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    bounds = sorted_distinct(np.clip(np.concatenate((start, end, [first, last])), first, last))
    left = bounds[:-1]
    found = np.full(len(left), State.UNKNOWN, np.int8)
    owner = np.full(len(left), -1, np.int64)
    for each in BUSY_STATES:
        mine = rows[state[rows] == each]
        active = Intervals.of(operations.start_ns[mine], operations.end_ns[mine]).contains(left)
        new = np.flatnonzero(active & (found == State.UNKNOWN))
        if len(new):
            found[new] = each
            owner[new] = _longest_running(operations, mine, left[new])
    return Segments(left, bounds[1:], found, owner)


def _longest_running(operations: Operations, rows: Column, time: Column) -> Column:
    """Of the operations running at each instant, the one that ends last; some must be running."""
    order = rows[np.argsort(operations.start_ns[rows], kind="stable")]
    end = operations.end_ns[order]
    leader = np.maximum.accumulate(np.where(end == np.maximum.accumulate(end), np.arange(len(end)), 0))
    return order[leader[np.searchsorted(operations.start_ns[order], time, side="right") - 1]]


def find_gaps(operations: Operations, rows: Column, segments: Segments, return_ns: Column) -> Gaps:
    """The idle stretches, each with the operation that starts at its end; of several, the first launched."""
    idle = segments.in_state(State.UNKNOWN)
    real = rows[operations.end_ns[rows] > operations.start_ns[rows]]
    order = real[np.lexsort((return_ns[real], operations.start_ns[real]))]
    starts = operations.start_ns[order]
    at = np.searchsorted(starts, idle.end, side="left")
    known = at < len(order)
    known[known] = starts[at[known]] == idle.end[known]
    ender = np.full(len(idle), -1, np.int64)
    ender[known] = order[at[known]]
    return Gaps(idle.start, idle.end, ender)


def with_idle(segments: Segments, pieces: Segments) -> Segments:
    """Put explained idle pieces in the place of the unexplained stretches that they fill."""
    busy = segments.state != State.UNKNOWN
    start = np.concatenate((segments.start_ns[busy], pieces.start_ns))
    order = np.argsort(start, kind="stable")
    return Segments(
        start[order],
        np.concatenate((segments.end_ns[busy], pieces.end_ns))[order],
        np.concatenate((segments.state[busy], pieces.state))[order],
        np.concatenate((segments.operation[busy], pieces.operation))[order],
    )
