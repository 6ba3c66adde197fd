"""torch's caching allocator, played with a sequence of blocks: what it reserves for them.

Rules and constants: c10/cuda/CUDACachingAllocator.cpp, the same from torch 2.0 to 2.13 (``malloc``, ``free_block``,
``get_allocation_size``, ``should_split``). Played are the pools of small and large blocks of each stream, best fit,
splitting and merging; not played are private pools, and what the allocator gives back when memory runs out.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.memory.block_sizes import LARGEST_SMALL, AllocatorRules
from profkit.model import IntColumn

__all__ = ["most_reserved"]

_SMALL_SEGMENT: Final = 2 << 20
_MEDIUM_SEGMENT: Final = 20 << 20
_SMALLEST_LARGE: Final = 10 << 20
"""Requests of this size and more get a segment of their own size, rounded up to 2 MiB."""
_SMALLEST_REST: Final = 512


def most_reserved(
    sizes: IntColumn,
    start: IntColumn,
    stop: IntColumn,
    stream: IntColumn,
    rules: AllocatorRules,
    limit: int | None = None,
) -> int | None:
    """The most that the allocator reserves for blocks, in bytes; None when they do not fit into ``limit``.

    Args:
        sizes: Rounded sizes; rows of 0 are left out.
        start: When each is allocated, in the order of any clock; equal times in the order of the rows.
        stop: When its place can be used again; what ends at a time ends before another begins.
        stream: The stream it belongs to; streams share nothing.
        rules: The settings of the allocator.
        limit: The most that it may reserve: where it would exceed that, it first gives back whole free segments.
    """
    rows = np.flatnonzero((sizes > 0) & (stop > start))
    if rules.expandable:
        most = _expandable_peak(sizes[rows], start[rows], stop[rows], stream[rows])
        return most if limit is None or most <= limit else None
    allocator = _Allocator(rules.max_split_bytes, limit)
    size, queue = sizes.tolist(), stream.tolist()
    for row, ends in _changes(rows, start, stop):
        if ends:
            allocator.free(row)
        else:
            allocator.allocate(row, size[row], queue[row])
            if limit is not None and allocator.reserved > limit:
                return None
    return allocator.most_reserved


def _changes(rows: NDArray[np.int64], start: IntColumn, stop: IntColumn) -> Iterator[tuple[int, bool]]:
    states = np.concatenate([stop[rows], start[rows]])
    begins = np.repeat([0, 1], len(rows))
    order = np.lexsort((begins, states))
    both = np.concatenate([rows, rows])
    return zip(both[order].tolist(), (begins[order] == 0).tolist(), strict=True)


def _expandable_peak(sizes: IntColumn, start: IntColumn, stop: IntColumn, stream: IntColumn) -> int:
    """Expandable segments grow with what is alive at once, in pages: there is one for small blocks, one for large."""
    total = 0
    for queue in np.unique(stream).tolist():
        for small in (True, False):
            mine = (stream == queue) & ((sizes <= LARGEST_SMALL) == small)
            if not mine.any():
                continue
            times = np.concatenate([start[mine], stop[mine]])
            change = np.concatenate([sizes[mine], -sizes[mine]])
            order = np.lexsort((change, times))
            page = _SMALL_SEGMENT if small else _MEDIUM_SEGMENT
            total += -(-int(np.cumsum(change[order]).max()) // page) * page
    return total


class _Allocator:
    """Free blocks by pool; blocks know their neighbours in the segment."""

    def __init__(self, max_split_bytes: int, limit: int | None) -> None:
        self.reserved = self.most_reserved = 0
        self._most = max_split_bytes
        self._limit = limit
        self._next_address = 0
        self._free: dict[tuple[int, bool], list[tuple[int, int]]] = {}
        """(size, address), sorted: the first that is large enough fits best."""
        self._size: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._right: dict[int, int] = {}
        self._is_free: set[int] = set()
        self._place: dict[int, tuple[int, tuple[int, bool]]] = {}

    def allocate(self, row: int, size: int, stream: int) -> None:
        """Give a row its place."""
        pool = (stream, size <= LARGEST_SMALL)
        free = self._free.setdefault(pool, [])
        address = self._best(free, size)
        if address is None:
            address = self._segment(size)
        rest = self._size[address] - size
        if rest >= _SMALLEST_REST if pool[1] else (rest > LARGEST_SMALL and size < self._most):
            self._split(address, size, free)
        self._place[row] = (address, pool)

    def free(self, row: int) -> None:
        """Give the place of a row back, merged with what lies free beside it."""
        address, pool = self._place.pop(row)
        free = self._free[pool]
        left, right = self._left.get(address), self._right.get(address)
        if right is not None and right in self._is_free:
            self._take(free, right)
            self._join(address, right)
        if left is not None and left in self._is_free:
            self._take(free, left)
            self._join(left, address)
            address = left
        insort(free, (self._size[address], address))
        self._is_free.add(address)

    def _best(self, free: list[tuple[int, int]], size: int) -> int | None:
        at = bisect_left(free, (size, -1))
        if at == len(free):
            return None
        found, address = free[at]
        if size < self._most <= found or (size >= self._most and found >= size + _MEDIUM_SEGMENT):
            return None
        del free[at]
        self._is_free.discard(address)
        return address

    def _segment(self, size: int) -> int:
        if size <= LARGEST_SMALL:
            length = _SMALL_SEGMENT
        elif size < _SMALLEST_LARGE:
            length = _MEDIUM_SEGMENT
        else:
            length = -(-size // _SMALL_SEGMENT) * _SMALL_SEGMENT
        address = self._next_address
        self._next_address += length
        if self._limit is not None and self.reserved + length > self._limit:
            self._give_back()
        self.reserved += length
        self.most_reserved = max(self.most_reserved, self.reserved)
        self._size[address] = length
        return address

    def _give_back(self) -> None:
        """Free what is a segment of its own: CUDA gets it back."""
        for free in self._free.values():
            whole = [each for each in free if each[1] not in self._left and each[1] not in self._right]
            for size, address in whole:
                self.reserved -= size
                del self._size[address]
                self._is_free.discard(address)
            free[:] = [each for each in free if each[1] in self._size]

    def _split(self, address: int, size: int, free: list[tuple[int, int]]) -> None:
        rest = address + size
        self._size[rest] = self._size[address] - size
        self._size[address] = size
        after = self._right.get(address)
        if after is not None:
            self._right[rest], self._left[after] = after, rest
        self._right[address], self._left[rest] = rest, address
        insort(free, (self._size[rest], rest))
        self._is_free.add(rest)

    def _join(self, first: int, second: int) -> None:
        self._size[first] += self._size.pop(second)
        after = self._right.pop(second, None)
        del self._left[second]
        if after is None:
            del self._right[first]
        else:
            self._right[first], self._left[after] = after, first

    def _take(self, free: list[tuple[int, int]], address: int) -> None:
        del free[bisect_left(free, (self._size[address], address))]
        self._is_free.discard(address)
