"""Which collectives and messages end at one instant on several ranks, which is what clocks are set by.

Nobody leaves a collective before the last one has entered it. A message may be over for its sender before the receiver
asks for it: it goes into a buffer (four messages of 16 MiB over the NVLink of an H200). When that is full, the sender
waits in its kernel until the receiver has taken an earlier message out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_events import MESSAGE, DeviceCollectives, are_sends, of_kind
from profkit.ranks.matching import Matching
from profkit.timeline.grouping import group_rows

__all__ = [
    "LEFT_BEFORE_NS",
    "Instants",
    "common_instants",
    "unix_times",
    "waited_for_room",
]

Column = NDArray[np.int64]

_NEVER: Final = np.iinfo(np.int64).max

_FEWEST: Final = 3
_DEEPEST: Final = 8
"""Messages in a buffer: NCCL has eight slots for each channel of a connection (NCCL_STEPS)."""

_CLOCKS_AGREE_NS: Final = 1_000_000
"""Clocks of one machine agree to microseconds, those of several that are kept by NTP to less than this."""

LEFT_BEFORE_NS: Final = 50_000
"""Who leaves so long before the last one enters has not waited for it: its data were taken into a buffer."""


def unix_times(devices: Sequence[DeviceCollectives], column: str) -> Column:
    """A time column of all devices, one after the other, plus the Unix time of each file's zero where known."""
    return np.concatenate(
        [getattr(d, column) + (d.epoch_ns or 0) for d in devices] or [np.empty(0, np.int64)]
    ).astype(np.int64)


def waited_for_room(duration: Column, transfer: Column) -> NDArray[np.bool_]:
    """Whether sends that were over before their receivers came took longer than the data needs.

    Args:
        duration: Of the sends.
        transfer: How long their receivers, who came last, took.
    """
    waited: NDArray[np.bool_] = duration >= 2 * transfer + LEFT_BEFORE_NS
    return waited


@dataclass(frozen=True, eq=False)
class Instants:
    """Of every row, all devices one after the other: the instant by which it tells the clock."""

    event: Column
    """Rows with the same number say when the same thing happened, or -1."""
    lead_ns: Column
    """How long before the end of the row that was."""
    sure: NDArray[np.bool_]
    """Whether it was sure to be at once."""


def common_instants(devices: Sequence[DeviceCollectives], found: Matching) -> Instants:
    """What happened at once on several ranks.

    Sure are the ends of collectives, and of messages that their receiver waited for. A send that took long waited for
    its receiver: either for it to come, so that both left together, or for room in the buffer, so that its data went
    there as an earlier receive ended. Only Unix times tell which.

    Args:
        devices: One a rank.
        found: Which of their collectives are the same.
    """
    event, sure = found.event.copy(), ~of_kind(devices, {MESSAGE})
    lead = np.zeros(len(event), np.int64)
    rows = np.flatnonzero((event >= 0) & ~sure)
    if not len(rows):
        return Instants(event, lead, sure)
    duration = np.concatenate([d.end_ns - d.start_ns for d in devices])
    events = int(event.max()) + 1
    longest, shortest = np.zeros(events, np.int64), np.full(events, _NEVER)
    np.maximum.at(longest, event[rows], duration[rows])
    np.minimum.at(shortest, event[rows], duration[rows])
    sure[rows] = (longest >= 2 * shortest)[event[rows]]
    if all(d.epoch_ns is not None for d in devices):
        sent, received = _sides(event, rows, are_sends(devices))
        end = unix_times(devices, "end_ns")
        pair = group_rows(found.device[sent], found.device[received])[0]
        order = np.lexsort((end[received], pair))
        for mine in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1):
            messages = _Messages(
                end[sent[mine]], end[received[mine]], duration[sent[mine]], duration[received[mine]]
            )
            depth = messages.depth()
            if depth:
                early, full = messages.early, messages.full[depth:]
                left, freed = sent[mine[depth:]][full], received[mine[:-depth]][full]
                sure[sent[mine[early]]] = sure[received[mine[early]]] = False
                event[left], lead[left] = found.event[freed], messages.receiving[depth:][full]
                sure[left] = sure[freed] = True
    return Instants(event, lead, sure)


def _sides(event: Column, rows: Column, sends: NDArray[np.bool_]) -> tuple[Column, Column]:
    """The rows of the sender and of the receiver of each message that has both."""
    sides = np.full((2, int(event.max(initial=-1)) + 1), -1)
    sides[0, event[rows[sends[rows]]]] = rows[sends[rows]]
    sides[1, event[rows[~sends[rows]]]] = rows[~sends[rows]]
    sent, received = sides[:, (sides >= 0).all(0)]
    return sent, received


@dataclass(frozen=True, eq=False)
class _Messages:
    """The messages from one rank to another, in order: ends and durations of both sides."""

    left: Column
    taken: Column
    sending: Column
    receiving: Column

    @property
    def early(self) -> NDArray[np.bool_]:
        """Whether the sender waited."""
        return self.sending >= 2 * self.receiving

    @property
    def full(self) -> NDArray[np.bool_]:
        """Whether it may have waited for room in the buffer."""
        return self.early & waited_for_room(self.sending, self.receiving)

    def depth(self) -> int:
        """How many messages the buffer holds, or 0 where sender and receiver left together.

        Where messages come in even steps, every depth has its distance at which the instants fit: a depth is believed
        if at it the clocks agree as messages say that their receiver waited for, or else as Unix clocks do.
        """
        full, late = self.full, self.receiving >= 2 * self.sending
        if not full.any():
            return 0
        known = late.sum() >= _FEWEST
        apart = _middle((self.left - self.taken)[late]) if known else 0
        tolerance = LEFT_BEFORE_NS if known else _CLOCKS_AGREE_NS
        found = []
        for depth in range(min(_DEEPEST, len(full) - 1) + 1):
            freed = (
                self.left[depth:] - self.taken[: len(full) - depth] - (self.receiving[depth:] if depth else 0)
            )
            freed = freed[full[depth:]]
            if len(freed) < _FEWEST:
                break
            middle = _middle(freed)
            if np.median(np.abs(freed - middle)) <= LEFT_BEFORE_NS and abs(middle - apart) <= tolerance:
                found.append((abs(middle - apart), depth))
        return min(found, default=(0, 0))[1]


def _middle(values: Column) -> int:
    """A median in whole numbers: Unix times do not fit into floating point to the nanosecond."""
    return int(np.sort(values)[len(values) // 2])
