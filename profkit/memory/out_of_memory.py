"""Allocations that failed: what was asked, what was there, who held it, and which kind of shortage it was."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from profkit.memory.free_space import free_at
from profkit.memory.holders import Holders
from profkit.model import UNKNOWN
from profkit.model.memory_history import Action, MemoryHistory
from profkit.model.report_memory import OutOfMemory

__all__ = ["oom_rows"]

_MOST_OOMS: Final = 20
_TOP_HOLDERS: Final = 8
_NOTABLE_OUTSIDE: Final = 0.1
"""Of the GPU's memory. A CUDA context takes about half a GiB, 6 % of the smallest GPUs that models are trained on."""

Shortage = Literal["fragmented", "streams", "limit", "outside", "full"]


def oom_rows(history: MemoryHistory, holders: Holders, gpu_bytes: int | None) -> list[OutOfMemory]:
    """What ran out of memory on one device, the last ones.

    Args:
        history: The snapshot.
        holders: The replay of the device, with the holders of its memory.
        gpu_bytes: The memory of the GPU, where a trace says it.
    """
    failed = np.flatnonzero(holders.replayed.events.action == Action.OOM)[-_MOST_OOMS:]
    return [_oom(history, holders, event, gpu_bytes) for event in failed.tolist()]


def _oom(history: MemoryHistory, holders: Holders, event: int, gpu_bytes: int | None) -> OutOfMemory:
    replayed, state = holders.replayed, event + 1
    events = replayed.events
    requested, device_free = int(events.bytes[event]), int(events.device_free[event])
    free = device_free if device_free != UNKNOWN else None
    reserved = int(replayed.reserved[state]) if replayed.reserved is not None else None
    allocated, active = int(replayed.allocated[state]), int(replayed.active[state])
    spare = None if reserved is None else reserved - active
    space = free_at(history, replayed, state) if history.segments_known else None
    usable = None if space is None else space.usable(requested, int(events.stream[event]))
    usable_free = None if usable is None else int(usable.sum())
    outside = _outside(gpu_bytes, reserved, free)
    return OutOfMemory(
        device=replayed.device,
        requested_bytes=requested,
        free_bytes=free,
        where=holders.owners.where(int(events.stack[event])),
        time_ns=holders.time_ns(state),
        phase=holders.phase_of_event(event),
        allocated_bytes=allocated,
        pending_free_bytes=active - allocated,
        reserved_bytes=reserved,
        reserved_free_bytes=spare,
        largest_free_block_bytes=None if usable is None else int(usable.max(initial=0)),
        usable_free_bytes=usable_free,
        gpu_bytes=gpu_bytes,
        outside_bytes=outside,
        holders=holders.rows(state, _TOP_HOLDERS),
        kind=_kind_within(requested, spare, usable_free) or _kind_beyond(requested, free, outside, gpu_bytes),
        expandable_segments=replayed.rules.expandable,
    )


def _outside(gpu_bytes: int | None, reserved: int | None, free: int | None) -> int | None:
    """What neither PyTorch's allocator holds nor CUDA has left: other processes, CUDA contexts, other libraries."""
    if gpu_bytes is None or reserved is None or free is None:
        return None
    return max(0, gpu_bytes - reserved - free)


def _kind_within(requested: int, spare: int | None, usable: int | None) -> Shortage | None:
    """The shortage where the allocator itself held enough free memory; None where it did not."""
    if spare is None or spare < requested:
        return None
    return "streams" if usable is not None and usable < requested else "fragmented"


def _kind_beyond(requested: int, free: int | None, outside: int | None, gpu_bytes: int | None) -> Shortage:
    """The shortage where CUDA was asked: it had enough, or others held what was missing, or the program did."""
    if free is not None and free >= requested:
        return "limit"
    missing = requested - (free or 0)
    if outside is not None and gpu_bytes and outside >= max(missing, _NOTABLE_OUTSIDE * gpu_bytes):
        return "outside"
    return "full"
