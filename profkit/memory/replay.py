"""Replay of a memory history: every block with its lifetime, and what was allocated, active and reserved.

Positions are *states* of a device: state 0 is before its first event, state *k* is after its *k*-th. The end of
the history is anchored in the segments of the snapshot, and the state before the first event is what must have
been there: blocks that are freed without having been allocated, and blocks that are there at the end without
having been allocated (the history is a ring buffer that keeps the newest entries, or was started late).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.memory.block_sizes import LARGEST_SMALL, AllocatorRules, Timeline, replayed_sizes
from profkit.model import UNKNOWN, IntColumn, Table, column
from profkit.model.memory_history import Action, AllocatorEvents, Blocks, BlockState, MemoryHistory, Segments

__all__ = ["DeviceReplay", "Lifetimes", "Reservations", "curve_of", "replay"]

_ALLOCATIONS = (Action.ALLOC, Action.FREE_REQUESTED, Action.FREE_COMPLETED, Action.FREE)
_FAR = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Lifetimes(Table):
    """Blocks. One is allocated in the states ``allocated <= state < freed`` and active until ``reusable``."""

    address: IntColumn = column("i8", 0)
    requested: IntColumn = column("i8", 0)
    bytes: IntColumn = column("i8", 0)
    """The block's size, as ``max_memory_allocated`` counts it."""
    unsure: IntColumn = column("i8", 0)
    """By how many bytes it may be larger: the state before the first event does not tell."""
    allocated: IntColumn = column("i8", 0)
    """0 for blocks from before the first event."""
    freed: IntColumn = column("i8")
    """One past the last state for blocks that were never freed; 0 for blocks freed before the first event."""
    reusable: IntColumn = column("i8")
    """When the block could be used again: after ``freed`` where it waited for other streams."""
    stack: IntColumn = column("i4")
    """Where it was allocated; -1 where that is not recorded."""
    stream: IntColumn = column("i8", 0)
    category: IntColumn = column("i4")

    @property
    def rounding(self) -> NDArray[np.int64]:
        """Bytes of each block beyond what was asked for; 0 where a snapshot says that more was asked for."""
        rounding: NDArray[np.int64] = np.maximum(self.bytes - self.requested, 0)
        return rounding


@dataclass(frozen=True, eq=False)
class Reservations(Table):
    """Ranges that the allocator held from CUDA in the states ``start <= state < end``."""

    address: IntColumn = column("i8", 0)
    bytes: IntColumn = column("i8", 0)
    start: IntColumn = column("i8", 0)
    end: IntColumn = column("i8", 0)
    stream: IntColumn = column("i8", 0)


@dataclass(frozen=True, eq=False)
class DeviceReplay:
    """The replayed history of one device."""

    device: int
    events: AllocatorEvents
    """Its events, in order."""
    lifetimes: Lifetimes
    reservations: Reservations
    allocated: NDArray[np.int64]
    """Bytes in each state, ``len(events) + 1`` of them."""
    active: NDArray[np.int64]
    reserved: NDArray[np.int64] | None
    """None when the snapshot has no usable segments and so does not say."""
    recorded: bool
    """False when no allocation or free was recorded: then only the end is known."""
    rules: AllocatorRules
    lost_frees: int
    """Blocks that were allocated again without having been freed."""
    extra_frees: int
    """Frees of blocks that were free already."""
    unmatched: int
    """Blocks alive after the last event that the segments do not hold."""
    resized: int
    """Blocks alive at the end whose replayed size is not that of the segments."""

    @property
    def complete(self) -> bool:
        """Whether the history holds everything from the first allocation on."""
        started_empty = self.recorded and self.allocated[0] == 0 and self.active[0] == 0
        moved = bool(np.isin(self.events.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)).any())
        cold = self.reserved is None or self.reserved[0] == 0 or not moved
        return bool(started_empty and cold and not (self.lost_frees or self.extra_frees or self.unmatched))

    @property
    def reserved_peak(self) -> int | None:
        """The most that was reserved; None when that is unknown, also because its entries are missing."""
        if self.reserved is None or len(self.events) < 2 or (self.active > self.reserved).any():
            return None
        return int(self.reserved.max())

    def time_ns(self, state: int) -> int | None:
        """When a state began; for state 0, when the history did."""
        if not len(self.events):
            return None
        time = int(self.events.time_ns[max(0, min(state, len(self.events)) - 1)])
        return None if time == UNKNOWN else time

    def alive(self, state: int) -> NDArray[np.bool_]:
        """Which lifetimes are allocated in a state."""
        return (self.lifetimes.allocated <= state) & (self.lifetimes.freed > state)

    def held(self, state: int) -> NDArray[np.bool_]:
        """Which lifetimes are active in a state: allocated, or waiting for other streams."""
        return (self.lifetimes.allocated <= state) & (self.lifetimes.reusable > state)


def replay(history: MemoryHistory) -> list[DeviceReplay]:
    """Replay every device of a snapshot."""
    return [_device(history, device) for device in history.devices]


def _device(history: MemoryHistory, device: int) -> DeviceReplay:
    events = history.events
    if len(history.devices) > 1:
        events = events.take(events.device == device)
    segments = history.segments.take(history.segments.device == device)
    blocks = history.blocks.take(
        (history.blocks.device == device) & (history.blocks.state != BlockState.INACTIVE)
    )
    end = len(events) + 1
    mapped = np.isin(events.action, (Action.SEGMENT_MAP, Action.SEGMENT_UNMAP)).any()
    rules = AllocatorRules.of(history.settings, bool(mapped or (segments.expandable == 1).any()))
    pairs = _pair(events, _ALLOCATIONS, Action.ALLOC)
    waiting = blocks.address[blocks.state == BlockState.PENDING_FREE]
    lives, lost, extra = _lifetimes(events, pairs, waiting, end)
    streams = history.segments.stream[blocks.segment]
    lives, unmatched, truth = _with_survivors(lives, blocks, streams, end)
    unmatched = unmatched if history.segments_known else 0
    reservations = _reservations(events, segments, end)
    ranges = Timeline(reservations.address, reservations.bytes, reservations.start, reservations.end)
    known = truth >= 0
    large = _in_large_segments(lives.address, reservations)
    rules = rules.fitted(lives.requested[known], truth[known], lives.requested[large])
    rounded = rules.rounded(lives.requested)
    sizes, unsure = replayed_sizes(
        Timeline(lives.address, rounded, lives.allocated, lives.reusable), ranges, rules
    )
    checked = known & (lives.allocated > 0)
    if (truth != sizes)[checked].sum() > (truth != rounded)[checked].sum():
        # Known blocks say that this allocator splits every rest off: it is not torch's for CUDA.
        sizes, unsure = rounded, np.zeros(len(rounded), np.int64)
    sized = Lifetimes(
        **{
            **vars(lives),
            "bytes": np.where(known, truth, sizes),
            "unsure": np.where(known, 0, unsure),
        }
    )
    return DeviceReplay(
        device=device,
        events=events,
        lifetimes=sized,
        reservations=reservations,
        allocated=curve_of(sized.bytes, sized.allocated, sized.freed, end),
        active=curve_of(sized.bytes, sized.allocated, sized.reusable, end),
        reserved=_reserved(events, segments, end) if history.segments_known else None,
        recorded=bool(np.isin(events.action, _ALLOCATIONS).any())
        and (len(events) > 1 or not (lives.allocated == 0).any()),
        rules=rules,
        lost_frees=lost,
        extra_frees=extra,
        unmatched=unmatched,
        resized=int((truth != sizes)[checked].sum()),
    )


def _in_large_segments(address: IntColumn, reservations: Reservations) -> NDArray[np.bool_]:
    """Which addresses lie in a segment that is too large for the small pool, where no other segment ever was."""
    order = np.argsort(reservations.address, kind="stable")
    start, size = reservations.address[order], reservations.bytes[order]
    if not len(start):
        return np.zeros(len(address), bool)
    end = start + size
    again = np.zeros(len(start), bool)
    again[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    again[:-1] |= again[1:]
    at = np.maximum(np.searchsorted(start, address, side="right") - 1, 0)
    inside = (start[at] <= address) & (address < end[at]) & ~again[at]
    return inside & (size[at] > 2 * LARGEST_SMALL)


@dataclass(frozen=True)
class _Pairs:
    """Events of the same address, grouped: an allocation and what ends it; sorted by address, then time."""

    first: IntColumn
    """The event that begins the group: an allocation, or the free of a block from before the history."""
    opened: NDArray[np.bool_]
    """Whether it is an allocation."""
    follows: IntColumn
    """The first event of the next group of the same address; a far number when there is none."""
    order: IntColumn
    starts: IntColumn

    def earliest(self, chosen: NDArray[np.bool_]) -> IntColumn:
        """The first event of each group among ``chosen`` (in event order); a far number when there is none."""
        if not len(self.starts):
            return np.zeros(0, np.int64)
        at = np.where(chosen[self.order], self.order, _FAR)
        return np.minimum.reduceat(at, self.starts)

    def count(self, chosen: NDArray[np.bool_]) -> IntColumn:
        """How many events of each group are among ``chosen``."""
        if not len(self.starts):
            return np.zeros(0, np.int64)
        return np.add.reduceat(chosen[self.order].astype(np.int64), self.starts)


def _pair(events: AllocatorEvents, actions: tuple[Action, ...], opening: Action) -> _Pairs:
    rows = np.flatnonzero(np.isin(events.action, actions))
    order = rows[np.argsort(events.address[rows], kind="stable")]
    address = events.address[order]
    opens = events.action[order] == opening
    fresh = np.ones(len(order), bool)
    fresh[1:] = address[1:] != address[:-1]
    starts = np.flatnonzero(opens | fresh)
    first = order[starts]
    follows = np.full(len(starts), _FAR, np.int64)
    same = address[starts][1:] == address[starts][:-1]
    follows[:-1][same] = first[1:][same]
    return _Pairs(first, opens[starts], follows, order, starts)


def _lifetimes(
    events: AllocatorEvents, pairs: _Pairs, waiting: IntColumn, end: int
) -> tuple[Lifetimes, int, int]:
    """Lifetimes of the blocks that the history mentions, how many frees are missing, and how many too many.

    ``waiting`` are the addresses of blocks that still wait for other streams at the end.
    """
    action = events.action
    frees = (action == Action.FREE_REQUESTED) | (action == Action.FREE)
    dones = (action == Action.FREE_COMPLETED) | (action == Action.FREE)
    requested, completed = pairs.earliest(frees), pairs.earliest(dones)
    freed = np.minimum(requested, completed)
    # A recorder may skip one of the two kinds of entries; then the other one stands for both.
    waits = np.isin(events.address[pairs.first], waiting) & (pairs.follows == _FAR)
    reusable = completed if dones.any() else np.where(waits, _FAR, freed)
    lost = (freed == _FAR) & (pairs.follows != _FAR)
    freed = np.minimum(freed, pairs.follows)
    reusable = np.maximum(np.minimum(reusable, pairs.follows), freed)
    pending = ~pairs.opened & (requested == _FAR) & bool(frees.any())
    first = pairs.first
    # The stack of a free is that of the free itself, unless the recorder kept stacks of allocations only.
    ended = np.flatnonzero(pairs.opened & (np.minimum(requested, completed) != _FAR))
    freeing = np.minimum(requested, completed)[ended]
    allocations_only = len(ended) > 0 and bool((events.stack[freeing] == events.stack[first[ended]]).all())
    lives = Lifetimes.of(
        len(first),
        address=events.address[first],
        requested=events.bytes[first],
        allocated=np.where(pairs.opened, first + 1, 0),
        freed=np.where(pending, 0, np.where(freed == _FAR, end, freed + 1)),
        reusable=np.where(reusable == _FAR, end, reusable + 1),
        stack=np.where(pairs.opened | allocations_only, events.stack[first], UNKNOWN),
        stream=events.stream[first],
        category=events.category[first],
    )
    extra = np.maximum(pairs.count(frees) - 1, 0) + np.maximum(pairs.count(dones & ~frees) - 1, 0)
    return lives, int(lost.sum()), int(extra.sum())


def _with_survivors(
    lives: Lifetimes, blocks: Blocks, streams: IntColumn, end: int
) -> tuple[Lifetimes, int, NDArray[np.int64]]:
    """Add the blocks that were there from before the history to its end.

    Returns:
        All lifetimes, how many alive at the end are in no segment, and the sizes that the segments state (-1).
    """
    order = np.argsort(blocks.address, kind="stable")
    held = np.flatnonzero(lives.reusable == end)
    at = np.searchsorted(blocks.address, lives.address[held], sorter=order)
    found = np.flatnonzero(at < len(order))
    found = found[blocks.address[order[at[found]]] == lives.address[held[found]]]
    matched = order[at[found]]
    truth = np.full(len(lives), UNKNOWN, np.int64)
    truth[held[found]] = blocks.bytes[matched]
    allocated = lives.freed[held] == end
    confirmed = np.zeros(len(held), bool)
    confirmed[found] = blocks.state[matched] == BlockState.ALLOCATED
    older = np.ones(len(blocks), bool)
    older[matched] = False
    rest = blocks.take(older)
    pending = rest.state == BlockState.PENDING_FREE
    survivors = Lifetimes.of(
        len(rest),
        address=rest.address,
        requested=np.where(rest.requested_bytes >= 0, rest.requested_bytes, rest.bytes),
        freed=np.where(pending, 0, end),
        reusable=np.full(len(rest), end),
        stack=rest.stack,
        stream=streams[older],
    )
    unmatched = int((allocated & ~confirmed).sum())
    return _joined(lives, survivors), unmatched, np.concatenate([truth, rest.bytes])


def _joined(first: Lifetimes, second: Lifetimes) -> Lifetimes:
    return Lifetimes(**{k: np.concatenate([v, getattr(second, k)]) for k, v in vars(first).items()})


def _reservations(events: AllocatorEvents, segments: Segments, end: int) -> Reservations:
    """Segments from cudaMalloc over time. Mapped ranges merge and split, so they have no lifetimes of their own."""
    pairs = _pair(events, (Action.SEGMENT_ALLOC, Action.SEGMENT_FREE), Action.SEGMENT_ALLOC)
    freed = np.minimum(pairs.earliest(events.action == Action.SEGMENT_FREE), pairs.follows)
    traced = Reservations.of(
        len(pairs.first),
        address=events.address[pairs.first],
        bytes=events.bytes[pairs.first],
        start=np.where(pairs.opened, pairs.first + 1, 0),
        end=np.where(freed == _FAR, end, freed + 1),
        stream=events.stream[pairs.first],
    )
    alive = traced.address[traced.end == end]
    older = segments.take(~np.isin(segments.address, alive))
    kept = Reservations.of(
        len(older),
        address=older.address,
        bytes=older.bytes,
        end=np.full(len(older), end),
        stream=older.stream,
    )
    return Reservations(**{k: np.concatenate([v, getattr(kept, k)]) for k, v in vars(traced).items()})


def curve_of(sizes: IntColumn, start: IntColumn, stop: IntColumn, end: int) -> NDArray[np.int64]:
    """Bytes in each of ``end`` states of what is there in ``start <= state < stop``."""
    change = np.zeros(end + 1, np.int64)
    np.add.at(change, start, sizes)
    np.subtract.at(change, np.maximum(stop, start), sizes)
    return np.cumsum(change[:end])


def _reserved(events: AllocatorEvents, segments: Segments, end: int) -> NDArray[np.int64] | None:
    """Reserved bytes in each state, counted back from the segments; None where history and segments contradict."""
    grown = np.isin(events.action, (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP))
    shrunk = np.isin(events.action, (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP))
    change = np.zeros(end, np.int64)
    change[1:] = np.where(grown, events.bytes, 0) - np.where(shrunk, events.bytes, 0)
    curve = np.cumsum(change)
    reserved: NDArray[np.int64] = curve + (segments.bytes.sum() - curve[-1])
    return None if (reserved < 0).any() else reserved
