"""Which range of a thread encloses what: parents, and the innermost range open at an instant."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import Ranges
from profkit.timeline.distinct import rows_by_value
from profkit.timeline.intervals import previous_enclosing

__all__ = ["DEEPEST", "Nesting"]

DEEPEST: Final = 128
"""Levels of ranges that device work is counted to; what is pushed and never popped would cost work times levels."""

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class _Stack:
    """The ranges of one thread, by start and then longest first."""

    row: Column
    start: Column
    end: Column
    parent: Column
    """Position in this stack, or -1."""


@dataclass(frozen=True, eq=False)
class Nesting:
    """The nesting of chosen ranges, thread by thread."""

    parent: Column
    """For every row of the table: the row of the chosen range that encloses it on its thread, or -1."""
    _stacks: dict[int, _Stack]

    @classmethod
    def of(cls, ranges: Ranges, rows: NDArray[Any]) -> Nesting:
        """Nest the chosen rows (a mask or row numbers) of a table of ranges."""
        rows = np.flatnonzero(rows) if rows.dtype == bool else np.asarray(rows, np.int64)
        parent = np.full(len(ranges), -1, np.int64)
        stacks: dict[int, _Stack] = {}
        for thread, part in rows_by_value(ranges.thread[rows]):
            row, start, end = _outer_first(rows[part], ranges)
            above = previous_enclosing(end)
            nested = above >= 0
            parent[row[nested]] = row[above[nested]]
            stacks[thread] = _Stack(row, start, end, above)
        return cls(parent, stacks)

    @classmethod
    def shallow(cls, ranges: Ranges, rows: NDArray[np.bool_]) -> Nesting:
        """Nest the chosen rows, those beyond `DEEPEST` levels as if each lay right in its ancestor of the last level."""
        whole = cls.of(ranges, rows)
        kept = whole.down_to(rows, DEEPEST)
        if kept is rows:
            return whole
        made, deep = cls.of(ranges, kept), np.flatnonzero(rows & ~kept)
        made.parent[deep] = made.innermost(ranges.thread[deep], ranges.start_ns[deep])
        return made

    def down_to(self, rows: NDArray[np.bool_], levels: int) -> NDArray[np.bool_]:
        """Those of the chosen rows that have fewer than so many others around them."""
        deep = np.flatnonzero(rows)
        above = self.parent[deep]
        for _ in range(levels - 1):
            nested = above >= 0
            deep, above = deep[nested], self.parent[above[nested]]
            if not len(deep):
                return rows
        kept: NDArray[np.bool_] = rows.copy()
        kept[deep[above >= 0]] = False
        return kept

    @property
    def threads(self) -> list[int]:
        """The threads that have any of the chosen ranges."""
        return list(self._stacks)

    def innermost(self, thread: NDArray[Any], time: NDArray[Any]) -> Column:
        """The row of the chosen range that started last among those open at each instant of a thread, or -1."""
        found = np.full(len(time), -1, np.int64)
        for each, part in rows_by_value(thread):
            stack = self._stacks.get(each)
            if stack is not None:
                found[part] = self._open_at(stack, time[part])
        return found

    def open_on(self, thread: int, time: NDArray[Any]) -> Column:
        """Like `innermost`, for instants of one thread."""
        stack = self._stacks.get(thread)
        return np.full(len(time), -1, np.int64) if stack is None else self._open_at(stack, time)

    @staticmethod
    def _open_at(stack: _Stack, time: NDArray[Any]) -> Column:
        at: Column = np.searchsorted(stack.start, time, side="right") - 1
        closed = np.flatnonzero(at >= 0)
        while len(closed):
            closed = closed[stack.end[at[closed]] <= time[closed]]
            at[closed] = stack.parent[at[closed]]
            closed = closed[at[closed] >= 0]
        return np.where(at >= 0, stack.row[np.maximum(at, 0)], -1)


def _outer_first(rows: Column, ranges: Ranges) -> tuple[Column, Column, Column]:
    """Rows by start and then longest first, with their starts and ends; most recorders write them so."""
    start, end = ranges.start_ns[rows].astype(np.int64), ranges.end_ns[rows].astype(np.int64)
    later, same = start[1:] > start[:-1], start[1:] == start[:-1]
    if np.all(later | (same & (end[1:] <= end[:-1]))):
        return rows, start, end
    order = np.lexsort((-end, start))
    return rows[order], start[order], end[order]
