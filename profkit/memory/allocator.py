"""The caching allocator: fragmentation, private pools, and how often CUDA was asked for memory."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.memory.block_sizes import LARGEST_SMALL
from profkit.memory.free_space import SMALL_SEGMENT, free_at_end
from profkit.memory.growth import Boundaries
from profkit.memory.private_pools import in_private_pool, private_pools
from profkit.memory.replay import DeviceReplay, curve_of
from profkit.model import IntColumn
from profkit.model.memory_history import Action, MemoryHistory
from profkit.model.report_allocator import AllocatorState, ExpandableSegments, SteadyAllocator

__all__ = ["allocator_row", "fragmentation_at_end"]

_SHOWN_SETTINGS: Final = (
    "expandable_segments",
    "max_split_size",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "graph_capture_record_stream_reuse",
)
_GROWN: Final = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_SHRUNK: Final = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


def allocator_row(
    history: MemoryHistory, replayed: DeviceReplay, boundaries: Boundaries | None
) -> AllocatorState:
    """One device's allocator: where reserved memory is not allocated, and how often CUDA was asked.

    ``fragmentation_bytes`` is reserved minus allocated when the snapshot was taken;
    ``fragmentation_at_peak_bytes`` the same when most was reserved, and so the most that better packing
    could have saved. ``regrown_bytes`` was reserved anew although as much was free: in pieces, or in another
    stream's blocks.
    """
    free = free_at_end(history, replayed.device) if history.segments_known else None
    at_peak = _at_reserved_peak(replayed)
    regrown, regrowths = _regrown(history, replayed)
    lives = replayed.lifetimes
    kept = replayed.alive(len(replayed.events))
    expandable = replayed.rules.expandable
    asked, returned = (np.isin(replayed.events.action, kind) for kind in (_GROWN, _SHRUNK))
    return AllocatorState(
        device=replayed.device,
        fragmentation_bytes=fragmentation_at_end(replayed),
        fragmentation_at_peak_bytes=at_peak,
        largest_free_block_bytes=_largest(free.bytes) if free else None,
        free_blocks=len(free.bytes) if free else None,
        inactive_split_bytes=int(free.bytes[~free.whole].sum()) if free else None,
        releasable_bytes=int(free.bytes[free.whole].sum()) if free else None,
        pending_free_bytes=int(replayed.active[-1] - replayed.allocated[-1]),
        rounding_bytes=int(lives.rounding[kept].sum()),
        regrown_bytes=regrown,
        regrowths=regrowths,
        cuda_allocations=int(asked.sum()),
        cuda_frees=int(returned.sum()),
        steady=_steady(asked, returned, boundaries),
        settings={key: history.settings[key] for key in _SHOWN_SETTINGS if key in history.settings},
        expandable_segments=ExpandableSegments(on=expandable, could_save_bytes=0 if expandable else at_peak),
        private_pools=private_pools(history, replayed.device),
    )


def _largest(sizes: IntColumn) -> int:
    return int(sizes.max()) if len(sizes) else 0


def fragmentation_at_end(replayed: DeviceReplay) -> int | None:
    """Reserved minus allocated when the snapshot was taken; None where reserved memory is unknown."""
    if replayed.reserved is None:
        return None
    return max(0, int(replayed.reserved[-1] - replayed.allocated[-1]))


def _at_reserved_peak(replayed: DeviceReplay) -> int | None:
    """Reserved minus active in the fullest state of those in which most was reserved."""
    if replayed.reserved is None or not replayed.recorded:
        return None
    peak = replayed.reserved == replayed.reserved.max()
    return max(0, int(replayed.reserved.max() - replayed.active[peak].max()))


def _regrown(history: MemoryHistory, replayed: DeviceReplay) -> tuple[int, int]:
    """Bytes and times that CUDA was asked for a large segment while as much lay free in that stream's pool.

    Private pools are left out: what is free there is no use to others.
    """
    events, end = replayed.events, len(replayed.events) + 1
    ranges, lives = replayed.reservations, replayed.lifetimes
    ranges = ranges.take(~in_private_pool(history, replayed.device, ranges.address))
    lives = lives.take(~in_private_pool(history, replayed.device, lives.address))
    private = in_private_pool(history, replayed.device, events.address)
    rows = np.flatnonzero((events.action == Action.SEGMENT_ALLOC) & (events.bytes > SMALL_SEGMENT) & ~private)
    grown = times = 0
    for stream in np.unique(events.stream[rows]).tolist():
        pool = ranges.take((ranges.stream == stream) & (ranges.bytes > SMALL_SEGMENT))
        used = lives.take((lives.stream == stream) & (lives.bytes > LARGEST_SMALL))
        spare = curve_of(pool.bytes, pool.start, pool.end, end)
        spare -= curve_of(used.bytes, used.allocated, used.reusable, end)
        asked = rows[events.stream[rows] == stream]
        size = events.bytes[asked]
        wasted = spare[asked] >= size
        grown, times = grown + int(size[wasted].sum()), times + int(wasted.sum())
    return grown, times


def _steady(
    asked: NDArray[np.bool_], returned: NDArray[np.bool_], boundaries: Boundaries | None
) -> SteadyAllocator:
    """Calls to CUDA in the second half of the steps: by then the allocator has warmed up, and should need none."""
    if boundaries is None or boundaries.basis == "pattern":
        return SteadyAllocator(steps=0, cuda_allocations=None, cuda_frees=None)
    half = len(boundaries.states) // 2
    inside = slice(int(boundaries.states[half - 1]), int(boundaries.states[-1]))
    return SteadyAllocator(
        steps=len(boundaries.states) - half,
        cuda_allocations=int(asked[inside].sum()),
        cuda_frees=int(returned[inside].sum()),
    )
