"""Sets of time: unions, intersections and measures of half-open intervals ``[start, end)``, in whole ns.

Everything here is exact integer arithmetic on columns; nothing loops over events.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Intervals", "grouped_union_ns", "previous_enclosing"]

Column = NDArray[np.int64]

_LARGEST = 1 << 62
"""Sums and differences of smaller times stay within int64."""


@dataclass(frozen=True, eq=False)
class Intervals:
    """A set of instants as sorted, disjoint, non-empty intervals that do not touch."""

    start: Column
    end: Column

    @classmethod
    def of(cls, start: ArrayLike, end: ArrayLike) -> Self:
        """The union of any intervals: unordered, overlapping, empty ones welcome."""
        start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
        real = end > start
        start, end = start[real], end[real]
        if not len(start):
            return cls.none()
        order = np.argsort(start, kind="stable")
        return cls.of_sorted(start[order], np.maximum.accumulate(end[order]))

    @classmethod
    def of_sorted(cls, start: Column, reach: Column) -> Self:
        """The union of non-empty intervals whose starts and ends are both in order."""
        if not len(start):
            return cls.none()
        opens = np.ones(len(start), bool)
        opens[1:] = start[1:] > reach[:-1]
        closes = np.append(np.flatnonzero(opens)[1:] - 1, len(start) - 1)
        return cls(start[opens], reach[closes])

    @classmethod
    def none(cls) -> Self:
        """The empty set."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.start)

    @property
    def total_ns(self) -> int:
        """The measure of the set."""
        return int((self.end - self.start).sum())

    def before(self, time: ArrayLike) -> Column:
        """How much of the set lies before each instant, in ns; never decreasing in time."""
        time = np.asarray(time, np.int64)
        if not len(self.start):
            return np.zeros(time.shape, np.int64)
        lengths = np.concatenate(([0], np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, time, side="right")
        last = np.maximum(index - 1, 0)
        inside = np.where(index > 0, np.minimum(time, self.end[last]) - self.end[last], 0)
        measured: Column = lengths[index] + inside
        return measured

    def within(self, start: ArrayLike, end: ArrayLike) -> Column:
        """How much of the set lies in each window, in ns."""
        return self.before(end) - self.before(start)

    def union(self, other: Intervals) -> Intervals:
        """The instants in either set."""
        return Intervals.of(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def intersection(self, other: Intervals) -> Intervals:
        """The instants in both sets."""
        few, many = (self, other) if len(self) <= len(other) else (other, self)
        if not len(few):
            return few
        # An interval of the one meets a run of consecutive ones of the other; what they share is in order already.
        first = np.searchsorted(many.end, few.start, side="right")
        met = np.maximum(np.searchsorted(many.start, few.end, side="left") - first, 0)
        of_few = np.repeat(np.arange(len(few)), met)
        of_many = np.arange(len(of_few)) + np.repeat(first - np.cumsum(met) + met, met)
        return Intervals(
            np.maximum(few.start[of_few], many.start[of_many]), np.minimum(few.end[of_few], many.end[of_many])
        )

    def difference(self, other: Intervals) -> Intervals:
        """The instants in this set and not in the other."""
        if not len(self) or not len(other):
            return self
        limits = np.iinfo(np.int64)
        outside = Intervals(np.append(limits.min, other.end), np.append(other.start, limits.max))
        return self.intersection(outside)

    def contains(self, time: ArrayLike) -> NDArray[np.bool_]:
        """Whether each instant is in the set."""
        time = np.asarray(time, np.int64)
        if not len(self.start):
            return np.zeros(time.shape, bool)
        index = np.searchsorted(self.start, time, side="right") - 1
        inside: NDArray[np.bool_] = (index >= 0) & (time < self.end[np.maximum(index, 0)])
        return inside


def grouped_union_ns(group: NDArray[Any], start: Column, end: Column, groups: int) -> Column:
    """The measure of the union of the intervals of each group.

    Args:
        group: The group of each interval, 0 to ``groups`` - 1.
        start: Where each interval starts, in ns.
        end: Where it ends.
        groups: How many groups there are.

    Returns:
        One measure a group, in ns.
    """
    if not len(start):
        return np.zeros(groups, np.int64)
    start, end = np.asarray(start, np.int64), np.asarray(end, np.int64)
    low = int(start.min())
    span = int(end.max()) - low + 1
    most = max(_LARGEST // span, 1)
    if groups > most:
        near = group < most
        return np.concatenate(
            (
                grouped_union_ns(group[near], start[near], end[near], most),
                grouped_union_ns(group[~near] - most, start[~near], end[~near], groups - most),
            )
        )
    # Each group has a stretch of time of its own, so that one running maximum serves all.
    moved = np.asarray(group, np.int64) * span - low
    start = start + moved
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate((end + moved)[order])
    length = reach - start
    length[1:] = reach[1:] - np.maximum(start[1:], reach[:-1])
    totals = np.zeros(groups, np.int64)
    np.add.at(totals, np.asarray(group, np.int64)[order], length)
    return totals


def previous_enclosing(end: Column) -> Column:
    """For intervals in order of start: the nearest earlier one that ends no earlier, or -1.

    That is the parent of each interval of a proper nesting. Every interval between an interval and its parent
    ends before it does, so following parents from the last interval that started before an instant meets all
    intervals open at that instant, latest start first; also where intervals overlap without nesting.
    """
    count = len(end)
    parent: Column = np.arange(-1, count - 1, dtype=np.int64)
    unsettled = np.arange(count)
    while len(unsettled):
        candidate = parent[unsettled]
        unsettled = unsettled[(candidate >= 0) & (end[candidate] < end[unsettled])]
        # What a candidate has already skipped ends before the candidate, hence before this interval too.
        parent[unsettled] = parent[parent[unsettled]]
    return parent
