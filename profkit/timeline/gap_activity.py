"""What the host did in a gap: the range that filled it, and the ranges, operators, functions and calls it was in."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model import Calls, RangeKind, Ranges
from profkit.model.report_time import GapActivity as Doing
from profkit.model.states import State
from profkit.timeline.call_sites import frame_text, is_users_frame
from profkit.timeline.intervals import previous_enclosing
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["GapActivity"]

_MOST: Final = 6
"""Entries of one gap, longest first."""

_KINDS: Final[tuple[Literal["range", "frame", "operator", "call"], ...]] = (
    "range",
    "frame",
    "operator",
    "call",
)

_LEAST_SHARE: Final = 0.05
"""What fills less of a gap does not explain it."""

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Lane:
    """Events of one thread, the outer first."""

    row: Column
    start: Column
    end: Column
    parent: Column
    """Position in this lane of the event around each, or -1."""

    @classmethod
    def of(cls, table: Ranges | Calls, rows: Column) -> _Lane:
        start, end = table.start_ns[rows].astype(np.int64), table.end_ns[rows].astype(np.int64)
        order = np.lexsort((-end, start))
        return cls(rows[order], start[order], end[order], previous_enclosing(end[order]))

    def own_ns(self, since: int, until: int) -> tuple[Column, Column]:
        """The events that overlap a stretch, by row, and the time of it that each has to itself."""
        chain, at = [], int(np.searchsorted(self.start, since, side="right")) - 1
        while at >= 0:
            if self.end[at] > since:
                chain.append(at)
            at = int(self.parent[at])
        first, last = np.searchsorted(self.start, (since, until), side="right")
        place = np.concatenate((np.array(chain[::-1], np.int64), np.arange(first, last)))
        length = np.minimum(self.end[place], until) - np.maximum(self.start[place], since)
        own = np.maximum(length, 0)
        outer = np.searchsorted(place, self.parent[place])
        nested = (self.parent[place] >= 0) & (place[np.minimum(outer, len(place) - 1)] == self.parent[place])
        np.subtract.at(own, outer[nested], np.maximum(length[nested], 0))
        return self.row[place], np.maximum(own, 0)


class GapActivity:
    """Answers for the gaps of one trace; what a thread's answers need is made when first asked for."""

    def __init__(self, view: TraceView) -> None:
        self._view = view
        trace = view.trace
        kind = trace.ranges.kind
        users = matching(trace.strings, trace.ranges.name, is_users_frame)
        outermost = view.launches.operators.parent < 0
        self._chosen = {
            "range": (kind == RangeKind.ANNOTATION) & ~view.steps.rows,
            "frame": (kind == RangeKind.PYTHON) & users,
            "operator": (kind == RangeKind.OPERATOR) & outermost,
        }
        self._lane = cache(self._made_lane)
        self._labels = cache(self._made_labels)

    def doing(self, thread: int, since: int, until: int) -> list[Doing]:
        """What a thread was in for most of a stretch: kind, name and ns, longest first."""
        trace = self._view.trace
        found: list[Doing] = []
        for kind in _KINDS:
            table: Ranges | Calls = trace.calls if kind == "call" else trace.ranges
            rows, own = self._lane(kind, thread).own_ns(since, until)
            names, at = np.unique(table.name[rows], return_inverse=True)
            total = np.bincount(np.ravel(at), own, minlength=len(names))
            for name, ns in zip(names.tolist(), total.tolist(), strict=True):
                if ns > _LEAST_SHARE * (until - since):
                    text = trace.strings[name] if name >= 0 else ""
                    name_told = frame_text(text) if kind == "frame" else text
                    found.append(Doing(kind=kind, name=name_told, ns=int(ns)))
        return sorted(found, key=lambda row: -row.ns)[:_MOST]

    def names(self, state: State, start: Column, end: Column, ender: Column) -> tuple[Column, Column, Column]:
        """The ranges that fill pieces of idle time of the cause input or host work.

        Args:
            state: That cause.
            start: Where each piece starts, in ns, in order.
            end: Where it ends.
            ender: The operation that ends the gap of each piece.

        Returns:
            Numbers of pieces, the range (a row of `Trace.ranges`) that fills a part of each, and how much, in ns.
        """
        launches, phases = self._view.launches, self._view.phases
        parts: list[tuple[Column, Column, Column]] = []
        left = np.arange(len(start))
        for thread in (launches.thread[ender], phases.host_thread[ender]):
            for each in np.unique(thread[left]).tolist():
                mine = left[thread[left] == each]
                piece, row, ns = _overlaps(start[mine], end[mine], *self._labels(state, each))
                parts.append((mine[piece], row, ns))
            left = np.setdiff1d(left, np.concatenate([np.empty(0, np.int64), *(p[0] for p in parts)]))
        if not parts:
            return left, left, left
        piece, row, ns = (np.concatenate([part[i] for part in parts]) for i in range(3))
        return piece, row, ns

    def text(self, row: int) -> str:
        """How a range is called: a function of Python with its file and line."""
        trace = self._view.trace
        name = trace.strings[trace.ranges.name[row]]
        return frame_text(name) if trace.ranges.kind[row] == RangeKind.PYTHON else name

    def _made_lane(self, kind: str, thread: int) -> _Lane:
        trace = self._view.trace
        if kind == "call":
            return _Lane.of(trace.calls, np.flatnonzero(trace.calls.thread == thread))
        return _Lane.of(trace.ranges, np.flatnonzero(self._chosen[kind] & (trace.ranges.thread == thread)))

    def _made_labels(self, state: State, thread: int) -> tuple[Column, Column, Column]:
        """A thread's time by the outermost range that counts for a cause: a mark of the program before its functions."""
        ranges, activity = self._view.trace.ranges, self._view.activity
        mine = (activity.fetching if state == State.INPUT else activity.work) & (ranges.thread == thread)
        frames = ranges.kind == RangeKind.PYTHON
        marks, functions = _outermost(ranges, mine & ~frames), _outermost(ranges, mine & frames)
        edges = [
            ranges.start_ns[marks],
            ranges.end_ns[marks],
            ranges.start_ns[functions],
            ranges.end_ns[functions],
        ]
        cuts = np.unique(np.concatenate(edges)).astype(np.int64)
        left, right = cuts[:-1], cuts[1:]
        mark, function = _open_at(ranges, marks, left), _open_at(ranges, functions, left)
        row = np.where(mark >= 0, mark, function)
        return left[row >= 0], right[row >= 0], row[row >= 0]


def _outermost(ranges: Ranges, chosen: Flags) -> Column:
    rows = np.flatnonzero(chosen)
    rows = rows[np.lexsort((-ranges.end_ns[rows], ranges.start_ns[rows]))]
    reach = np.maximum.accumulate(ranges.end_ns[rows]) if len(rows) else rows
    outermost = np.ones(len(rows), bool)
    outermost[1:] = ranges.start_ns[rows[1:]] >= reach[:-1]
    return rows[outermost]


def _open_at(ranges: Ranges, rows: Column, time: Column) -> Column:
    """Of ranges that follow each other, the one open at each instant, or -1."""
    if not len(rows):
        return np.full(len(time), -1, np.int64)
    at = np.searchsorted(ranges.start_ns[rows], time, side="right") - 1
    inside = (at >= 0) & (time < ranges.end_ns[rows[np.maximum(at, 0)]])
    return np.where(inside, rows[np.maximum(at, 0)], -1)


def _overlaps(
    start: Column, end: Column, first: Column, last: Column, row: Column
) -> tuple[Column, Column, Column]:
    """Which stretches of the second list (in order, disjoint) meet each one of the first, and how long."""
    low = np.searchsorted(last, start, side="right")
    met = np.maximum(np.searchsorted(first, end, side="left") - low, 0)
    piece = np.repeat(np.arange(len(start)), met)
    other = np.arange(len(piece)) + np.repeat(low - np.cumsum(met) + met, met)
    return piece, row[other], np.minimum(end[piece], last[other]) - np.maximum(start[piece], first[other])
