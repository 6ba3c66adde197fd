"""Free blocks inside what the allocator has reserved: how many bytes, and how large the largest is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.memory.block_sizes import LARGEST_SMALL
from profkit.memory.private_pools import in_private_pool
from profkit.memory.replay import DeviceReplay
from profkit.model import IntColumn
from profkit.model.memory_history import Action, BlockState, MemoryHistory

__all__ = ["SMALL_SEGMENT", "FreeSpace", "free_at", "free_at_end"]

SMALL_SEGMENT = 2 << 20


@dataclass(frozen=True)
class FreeSpace:
    """Free blocks, one row each."""

    bytes: IntColumn
    stream: IntColumn
    small: NDArray[np.bool_]
    """In the pool of requests up to 1 MiB."""
    whole: NDArray[np.bool_]
    """The block is a whole segment, so ``empty_cache`` gives it back."""
    private: NDArray[np.bool_]
    """In a private pool, which ordinary requests cannot use."""

    def usable(self, request: int, stream: int) -> IntColumn:
        """The sizes of the blocks that an ordinary request on a stream may take from, if they are large enough."""
        fits = (self.stream == stream) & (self.small == (request <= LARGEST_SMALL)) & ~self.private
        sizes: IntColumn = self.bytes[fits]
        return sizes


def free_at_end(history: MemoryHistory, device: int) -> FreeSpace:
    """The free blocks that the snapshot itself lists."""
    blocks, segments = history.blocks, history.segments
    free = np.flatnonzero((blocks.device == device) & (blocks.state == BlockState.INACTIVE))
    parent = blocks.segment[free]
    return FreeSpace(
        blocks.bytes[free],
        segments.stream[parent],
        segments.large[parent] == 0,
        blocks.bytes[free] == segments.bytes[parent],
        in_private_pool(history, device, segments.address[parent]),
    )


def free_at(history: MemoryHistory, replayed: DeviceReplay, state: int) -> FreeSpace | None:
    """The free blocks in any state; None where mapped ranges moved since, so that it cannot be told."""
    events = replayed.events
    mapped = np.flatnonzero(np.isin(events.action, (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)))
    if len(mapped):
        if int(mapped[-1]) >= state:
            return None
        segments = history.segments.take(history.segments.device == replayed.device)
        order = np.argsort(segments.address)
        segments = segments.take(order)
        gap, owner = _gaps(segments.address, segments.bytes, replayed, state)
        private = in_private_pool(history, replayed.device, segments.address[owner])
        return FreeSpace(
            gap, segments.stream[owner], segments.large[owner] == 0, gap == segments.bytes[owner], private
        )
    ranges = replayed.reservations.take(
        (replayed.reservations.start <= state) & (replayed.reservations.end > state)
    )
    ranges = ranges.take(np.argsort(ranges.address))
    gap, owner = _gaps(ranges.address, ranges.bytes, replayed, state)
    # A segment of 2 MiB was made for the small pool: those of the large pool have 20 MiB, or 12 and more.
    whole, private = (
        gap == ranges.bytes[owner],
        in_private_pool(history, replayed.device, ranges.address[owner]),
    )
    return FreeSpace(gap, ranges.stream[owner], ranges.bytes[owner] <= SMALL_SEGMENT, whole, private)


def _gaps(
    start: IntColumn, length: IntColumn, replayed: DeviceReplay, state: int
) -> tuple[IntColumn, IntColumn]:
    """Sizes of the free blocks of segments in address order, and the segment of each.

    Between two taken places, or the borders of their segment, lies at most one free block.
    """
    held = replayed.held(state)
    address, size = replayed.lifetimes.address[held], replayed.lifetimes.bytes[held]
    parent = np.searchsorted(start, address, "right") - 1
    inside = parent >= 0
    inside[inside] = address[inside] < (start + length)[parent[inside]]
    address, size, parent = address[inside], size[inside], parent[inside]
    owner = np.concatenate([np.arange(len(start)), parent])
    left = np.concatenate([start, address + size])
    right = np.concatenate([start + length, address])
    gap = right[np.lexsort((right, owner))] - left[np.lexsort((left, owner))]
    owner = np.sort(owner)
    return gap[gap > 0], owner[gap > 0]
