"""The health of the caching allocator: fragmentation, churn, and what ran out of memory and why."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.analysis.memory.block_sizes import LARGEST_SMALL
from profkit.analysis.memory.free_space import SMALL_SEGMENT, FreeSpace, free_at, free_at_end
from profkit.analysis.memory.growth import Boundaries
from profkit.analysis.memory.holders import Holders
from profkit.analysis.memory.replay import DeviceReplay, curve_of
from profkit.analysis.result import Row
from profkit.model import UNKNOWN, Action, IntColumn, MemoryHistory
from profkit.units import bytes_text

__all__ = ["allocator_row", "oom_rows"]

_SHOWN_SETTINGS: Final = (
    "expandable_segments",
    "max_split_size",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "graph_capture_record_stream_reuse",
)
_MOST_OOMS: Final = 20
_TOP_HOLDERS: Final = 8
_GROWN: Final = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_SHRUNK: Final = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


def allocator_row(history: MemoryHistory, replayed: DeviceReplay, boundaries: Boundaries | None) -> Row:
    """One device's allocator: where reserved memory is not allocated, and how often CUDA was asked.

    ``fragmentation_bytes`` is reserved minus allocated when the snapshot was taken;
    ``fragmentation_at_peak_bytes`` the same when most was reserved, and so the most that better packing
    could have saved. ``regrown_bytes`` was reserved anew although as much was free: in pieces, or in another
    stream's blocks.
    """
    free = free_at_end(history, replayed.device) if history.segments_known else None
    at_peak = _at_reserved_peak(replayed)
    regrown, regrowths = _regrown(replayed)
    lives = replayed.lifetimes
    kept = replayed.alive(len(replayed.events))
    expandable = replayed.rules.expandable
    return {
        "device": replayed.device,
        "fragmentation_bytes": _fragmentation(replayed),
        "fragmentation_at_peak_bytes": at_peak,
        "largest_free_block_bytes": _largest(free.bytes) if free else None,
        "free_blocks": len(free.bytes) if free else None,
        "inactive_split_bytes": int(free.bytes[~free.whole].sum()) if free else None,
        "releasable_bytes": int(free.bytes[free.whole].sum()) if free else None,
        "pending_free_bytes": int(replayed.active[-1] - replayed.allocated[-1]),
        "rounding_bytes": int((lives.bytes - lives.requested)[kept].sum()),
        "regrown_bytes": regrown,
        "regrowths": regrowths,
        **_churn(replayed, boundaries),
        "settings": {key: history.settings[key] for key in _SHOWN_SETTINGS if key in history.settings},
        "expandable_segments": {
            "on": expandable,
            "could_save_bytes": 0 if expandable else at_peak,
        },
    }


def _largest(sizes: IntColumn) -> int:
    return int(sizes.max()) if len(sizes) else 0


def _fragmentation(replayed: DeviceReplay) -> int | None:
    if replayed.reserved is None:
        return None
    return max(0, int(replayed.reserved[-1] - replayed.allocated[-1]))


def _at_reserved_peak(replayed: DeviceReplay) -> int | None:
    """Reserved minus active in the fullest state of those in which most was reserved."""
    if replayed.reserved is None or not replayed.recorded:
        return None
    peak = replayed.reserved == replayed.reserved.max()
    return max(0, int(replayed.reserved.max() - replayed.active[peak].max()))


def _regrown(replayed: DeviceReplay) -> tuple[int, int]:
    """Bytes and times that CUDA was asked for a large segment while as much lay free in that stream's pool."""
    ranges, lives, end = replayed.reservations, replayed.lifetimes, len(replayed.events) + 1
    rows = np.flatnonzero(
        (replayed.events.action == Action.SEGMENT_ALLOC) & (replayed.events.bytes > SMALL_SEGMENT)
    )
    grown = times = 0
    for stream in np.unique(replayed.events.stream[rows]).tolist():
        pool = ranges.take((ranges.stream == stream) & (ranges.bytes > SMALL_SEGMENT))
        used = lives.take((lives.stream == stream) & (lives.bytes > LARGEST_SMALL))
        spare = curve_of(pool.bytes, pool.start, pool.end, end)
        spare -= curve_of(used.bytes, used.allocated, used.reusable, end)
        asked = rows[replayed.events.stream[rows] == stream]
        size = replayed.events.bytes[asked]
        wasted = spare[asked] >= size
        grown, times = grown + int(size[wasted].sum()), times + int(wasted.sum())
    return grown, times


def _churn(replayed: DeviceReplay, boundaries: Boundaries | None) -> Row:
    action = replayed.events.action
    asked, returned = np.isin(action, _GROWN), np.isin(action, _SHRUNK)
    steady: Row = {"steps": 0, "cuda_allocations": None, "cuda_frees": None}
    if boundaries is not None and boundaries.basis != "pattern":
        # The allocator warms up in the first half of the steps; from there on it should ask for nothing.
        half = len(boundaries.states) // 2
        inside = slice(int(boundaries.states[half - 1]), int(boundaries.states[-1]))
        steady = {
            "steps": len(boundaries.states) - half,
            "cuda_allocations": int(asked[inside].sum()),
            "cuda_frees": int(returned[inside].sum()),
        }
    return {"cuda_allocations": int(asked.sum()), "cuda_frees": int(returned.sum()), "steady": steady}


def oom_rows(history: MemoryHistory, replayed: DeviceReplay, holders: Holders) -> list[Row]:
    """What ran out of memory: what was asked, what was there, who held it, and which kind of shortage it was."""
    rows = []
    for event in np.flatnonzero(replayed.events.action == Action.OOM)[-_MOST_OOMS:].tolist():
        rows.append(_oom(history, replayed, holders, event))
    return rows


def _oom(history: MemoryHistory, replayed: DeviceReplay, holders: Holders, event: int) -> Row:
    events, state = replayed.events, event + 1
    requested, device_free = int(events.bytes[event]), int(events.device_free[event])
    space = free_at(history, replayed, state) if history.segments_known else None
    reserved = int(replayed.reserved[state]) if replayed.reserved is not None else None
    active = int(replayed.active[state])
    row: Row = {
        "device": replayed.device,
        "requested_bytes": requested,
        "free_bytes": device_free if device_free != UNKNOWN else None,
        "where": holders.owners.where(int(events.stack[event])),
        "time_ns": holders.time_ns(state),
        "phase": holders.phase_of_event(event),
        "allocated_bytes": int(replayed.allocated[state]),
        "pending_free_bytes": active - int(replayed.allocated[state]),
        "reserved_bytes": reserved,
        "reserved_free_bytes": reserved - active if reserved is not None else None,
        "largest_free_block_bytes": None,
        "usable_free_bytes": None,
        "holders": holders.rows(state, _TOP_HOLDERS),
    }
    if space is not None:
        usable = space.usable(requested, int(events.stream[event]))
        row["largest_free_block_bytes"], row["usable_free_bytes"] = _largest(usable), int(usable.sum())
    row["kind"], row["explanation"] = _explained(row, space, replayed.rules.expandable)
    return row


def _explained(row: Row, space: FreeSpace | None, expandable: bool) -> tuple[str, str]:
    """``fragmented``, ``streams``, ``limit`` or ``full``, and a sentence with the numbers."""
    asked, spare = row["requested_bytes"], row["reserved_free_bytes"]
    text = f"{bytes_text(asked)} were asked for, with {bytes_text(row['allocated_bytes'])} allocated"
    free = row["free_bytes"]
    text += f" and {bytes_text(free)} left on the device. " if free is not None else ". "
    if spare is not None and spare >= asked:
        if space is not None and row["usable_free_bytes"] < asked <= spare:
            return "streams", text + (
                f"{bytes_text(spare)} of the reserved memory were free, but only "
                f"{bytes_text(row['usable_free_bytes'])} of them in the pool of this stream and size: the rest "
                "belongs to other streams or pools."
            )
        piece = row["largest_free_block_bytes"]
        pieces = f", the largest piece {bytes_text(piece)}" if piece is not None else ""
        remedy = "" if expandable else " expandable_segments:True lets free pieces be joined."
        return (
            "fragmented",
            text + f"{bytes_text(spare)} of the reserved memory were free{pieces}: fragmentation.{remedy}",
        )
    if free is not None and free >= asked:
        return "limit", text + (
            "The device had enough: a limit on the process (set_per_process_memory_fraction) or a failing "
            "driver call stopped it."
        )
    return "full", text + "The device was full: what held it is listed, and memory of other processes is not."
