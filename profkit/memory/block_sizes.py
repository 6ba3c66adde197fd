"""How large a block torch's caching allocator makes of a request.

The trace holds what the program asked for; ``max_memory_allocated`` counts blocks. A request is rounded up, then
cut from a free block, and what is left over stays with the block when it is too small to be kept apart: so a
block's size depends on where the next block begins at that moment. Addresses are in the trace, so nothing has
to be guessed but the state before its first entry.

Constants and rules: c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp (``round_size``,
``should_split``), the same from torch 2.0 to 2.13.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn

__all__ = ["LARGEST_SMALL", "AllocatorRules", "Timeline", "replayed_sizes"]

SMALLEST_BLOCK = 512
LARGEST_SMALL = 1 << 20
"""Requests up to here, rounded, come from 2 MiB segments; also the largest rest that stays with a block."""
_INTERVALS = 16
_NPU_PADDING = 32
_UNLIMITED = 1 << 62


@dataclass(frozen=True)
class AllocatorRules:
    """The settings that decide on a block's size."""

    expandable: bool = False
    max_split_bytes: int = _UNLIMITED
    padding: int = 0
    """Bytes that are added to a request before rounding: 32 in torch_npu's copy of the allocator."""
    divisions: tuple[int, ...] = (0,) * _INTERVALS
    """``roundup_power2_divisions`` for requests from 1, 2, 4... MiB on; the first holds for smaller ones too."""

    @classmethod
    def of(cls, settings: Mapping[str, Any], expandable_seen: bool) -> AllocatorRules:
        """The rules that a snapshot's ``allocator_settings`` state."""
        limit = settings.get("max_split_size")
        written = settings.get("roundup_power2_divisions")
        divisions = written if isinstance(written, dict) else {}
        by_interval = (divisions.get(str(1 << i), 0) for i in range(_INTERVALS))
        return cls(
            expandable=settings.get("expandable_segments") is True or expandable_seen,
            max_split_bytes=limit if type(limit) is int and limit > 0 else _UNLIMITED,
            divisions=tuple(d if type(d) is int and 0 < d <= 1 << 20 else 0 for d in by_interval),
        )

    def fitted(self, requests: IntColumn, sizes: IntColumn, in_large: IntColumn) -> AllocatorRules:
        """These rules, with torch_npu's padding if known blocks are explained by it and not without it.

        Args:
            requests: What was asked for, of blocks whose size is known.
            sizes: Their sizes.
            in_large: What was asked for, of blocks in segments that are too large for the small pool.
        """
        small = sizes <= LARGEST_SMALL
        requests, sizes = requests[small], sizes[small]
        padded = replace(self, padding=_NPU_PADDING)

        def explains(rules: AllocatorRules) -> bool:
            beyond = self.expandable or (rules.rounded(in_large) > LARGEST_SMALL).all()
            return bool((rules.rounded(requests) == sizes).all() and beyond)

        return padded if not explains(self) and explains(padded) else self

    def rounded(self, requests: IntColumn) -> NDArray[np.int64]:
        """``round_size``: to 512 bytes, or to a fraction of a power of two where that is set."""
        padded = requests.astype(np.int64) + self.padding
        sizes = np.maximum(-(-padded // SMALLEST_BLOCK), 1) * SMALLEST_BLOCK
        if any(self.divisions):
            exponent = np.frexp(np.maximum(requests, 1).astype(np.float64))[1].astype(np.int64) - 1
            divisions = np.array(self.divisions)[np.clip(exponent - 20, 0, _INTERVALS - 1)]
            divided = (divisions > 1) & (requests > SMALLEST_BLOCK * divisions)
            sizes = np.where(divided, _next_division(requests, exponent, divisions), sizes)
        return sizes


def _next_division(requests: IntColumn, exponent: IntColumn, divisions: IntColumn) -> NDArray[np.int64]:
    floor = np.left_shift(np.int64(1), exponent)
    log_divisions = np.frexp(np.maximum(divisions, 1).astype(np.float64))[1].astype(np.int64) - 1
    step = np.right_shift(floor, log_divisions)
    up = -(-requests // np.maximum(step, 1)) * np.maximum(step, 1)
    exact = np.where(step == 0, floor * 2, up)
    return np.where(requests == floor, requests, exact).astype(np.int64)


@dataclass(frozen=True)
class Timeline:
    """Addresses that are taken from one state of the replay to another (0 is before the first event)."""

    address: IntColumn
    bytes: IntColumn
    start: IntColumn
    end: IntColumn


def replayed_sizes(
    blocks: Timeline, segments: Timeline, rules: AllocatorRules
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The sizes of blocks, given their rounded requests, and how many bytes each could still be larger.

    Only blocks of the large pool that were cut from segments of fixed size can be larger than their request:
    rests of 512 bytes and more are split off everywhere else.

    Args:
        blocks: All blocks with their rounded requests.
        segments: What was reserved, and when.
        rules: The allocator's settings.
    """
    sizes = blocks.bytes.astype(np.int64)
    unsure = np.zeros(len(sizes), np.int64)
    if rules.expandable:
        return sizes, unsure
    large = np.flatnonzero(sizes > LARGEST_SMALL)
    space = _Space(blocks.address[large].tolist(), sizes[large].tolist(), rules)
    places, lengths = segments.address.tolist(), segments.bytes.tolist()
    for state, kind, row in _changes(blocks.start[large], blocks.end[large], segments):
        if kind == _BLOCK_START:
            space.occupy(row, known=state > 0)
        elif kind == _BLOCK_END:
            space.vacate(row)
        elif kind == _SEGMENT_START:
            space.reserve(places[row], lengths[row])
        else:
            space.release(places[row])
    sizes[large] = space.sizes
    for row, most in space.unsure.items():
        unsure[large[row]] = most
    return sizes, unsure


_BLOCK_END, _SEGMENT_END, _SEGMENT_START, _BLOCK_START = range(4)


def _changes(starts: IntColumn, ends: IntColumn, segments: Timeline) -> Iterator[tuple[int, int, int]]:
    """(state, kind, row) of all that begins or ends, in order; before the first event, the lowest address last.

    So that a block which was there at the start finds the one behind it in its place already.
    """
    states = np.concatenate([ends, segments.end, segments.start, starts])
    lengths = (len(ends), len(segments.end), len(segments.start), len(starts))
    kinds = np.repeat(np.arange(4), lengths)
    rows = np.concatenate([np.arange(length) for length in lengths])
    order = np.lexsort((kinds, states))
    return zip(states[order].tolist(), kinds[order].tolist(), rows[order].tolist(), strict=True)


class _Space:
    """Which addresses of the large pool are taken."""

    def __init__(self, address: list[int], sizes: list[int], rules: AllocatorRules) -> None:
        self.sizes = sizes
        self.unsure: dict[int, int] = {}
        """Blocks from before the first event, and by how many bytes they may be larger than their request."""
        self._address = address
        self._most = rules.max_split_bytes
        self._starts: list[int] = []
        self._row_at: dict[int, int] = {}
        self._segments: list[int] = []
        self._segment_end: dict[int, int] = {}

    def reserve(self, address: int, length: int) -> None:
        if address not in self._segment_end:
            insort(self._segments, address)
        self._segment_end[address] = address + length

    def release(self, address: int) -> None:
        if self._segment_end.pop(address, None) is not None:
            del self._segments[bisect_left(self._segments, address)]

    def vacate(self, row: int) -> None:
        address = self._address[row]
        if self._row_at.pop(address, None) is not None:
            del self._starts[bisect_left(self._starts, address)]

    def occupy(self, row: int, known: bool) -> None:
        address = self._address[row]
        if address in self._row_at:
            return
        at = bisect_right(self._starts, address)
        segment = self._segment_of(address)
        if segment is not None:
            end = self._segment_end[segment]
            behind = self._starts[at] if at < len(self._starts) else end
            rest = min(behind, end) - address - self.sizes[row]
            if known and at:
                self._settle(self._row_at[self._starts[at - 1]], address, segment)
            if known and rest > 0 and (rest <= LARGEST_SMALL or self.sizes[row] >= self._most):
                self.sizes[row] += rest
            elif not known and rest > 0:
                # Nothing is split off a block beyond max_split_size.
                self.unsure[row] = rest if self.sizes[row] >= self._most else min(rest, LARGEST_SMALL)
        self._starts.insert(at, address)
        self._row_at[address] = row

    def _segment_of(self, address: int) -> int | None:
        """Where the segment of an address begins; None when the recorder left its entry out."""
        at = bisect_right(self._segments, address) - 1
        if at < 0 or self._segment_end[self._segments[at]] <= address:
            return None
        return self._segments[at]

    def _settle(self, row: int, address: int, segment: int) -> None:
        """A new block begins where the free space behind its neighbour does: so the neighbour ends there."""
        most = self.unsure.get(row)
        if most is not None and self._address[row] >= segment:
            rest = address - self._address[row] - self.sizes[row]
            if 0 <= rest <= most:
                self.sizes[row] += rest
                del self.unsure[row]
