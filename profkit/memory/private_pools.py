"""Memory that the allocator keeps apart: private pools of CUDA graphs and of ``torch.cuda.MemPool``."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn
from profkit.model.memory_history import BlockState, MemoryHistory
from profkit.model.report_allocator import PrivatePools

__all__ = ["in_private_pool", "private_pools"]

_DEFAULT_POOL: Final = "0,0"
"""The id of the pool that ordinary allocations come from (c10/cuda/CUDACachingAllocator.h, ``MempoolId_t``)."""


def private_pools(history: MemoryHistory, device: int) -> PrivatePools | None:
    """What one device's private pools hold at the end; None where the snapshot has none.

    The default pool cannot use what lies free in them: a CUDA graph replays with the addresses that it was captured
    with.
    """
    segments, blocks = history.segments, history.blocks
    private = _private_segments(history, device)
    if not private.any():
        return None
    free = private[blocks.segment] & (blocks.state == BlockState.INACTIVE)
    return PrivatePools(
        pools=len(np.unique(segments.pool[private])),
        reserved_bytes=int(segments.bytes[private].sum()),
        free_bytes=int(blocks.bytes[free].sum()),
    )


def in_private_pool(history: MemoryHistory, device: int, address: IntColumn) -> NDArray[np.bool_]:
    """Which addresses lie in segments of private pools, as far as the segments at the end tell."""
    rows = np.flatnonzero(_private_segments(history, device))
    if not len(rows):
        return np.zeros(len(address), bool)
    rows = rows[np.argsort(history.segments.address[rows])]
    start, size = history.segments.address[rows], history.segments.bytes[rows]
    at = np.maximum(np.searchsorted(start, address, "right") - 1, 0)
    inside: NDArray[np.bool_] = (start[at] <= address) & (address < start[at] + size[at])
    return inside


def _private_segments(history: MemoryHistory, device: int) -> NDArray[np.bool_]:
    segments = history.segments
    ordinary = [string for string, text in enumerate(history.strings) if text == _DEFAULT_POOL]
    private: NDArray[np.bool_] = (segments.device == device) & (segments.pool >= 0)
    return private & ~np.isin(segments.pool, ordinary)
