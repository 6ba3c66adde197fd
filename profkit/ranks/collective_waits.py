"""Who waits for whom: inside a collective, the time before the last rank enters is waiting, the rest transfer.

A message is a collective of two: its receiver waits for its sender, and the sender of a large one for its receiver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_events import MESSAGE, DeviceCollectives, of_kind
from profkit.ranks.instants import LEFT_BEFORE_NS, waited_for_room
from profkit.timeline.grouping import group_rows, sums

__all__ = ["Waiting", "find_waiting"]

Column = NDArray[np.int64]


_LEAVES_EARLY: Final = frozenset({MESSAGE, "broadcast", "scatter", "gather", "reduce"})
"""Collectives that one rank can leave before another has entered."""


@dataclass(frozen=True, eq=False)
class Waiting:
    """Of every row that has a matched collective."""

    row: Column
    """Its place among all rows of all devices."""
    device: Column
    last: Column
    """The device that entered last."""
    last_row: Column
    """That device's row of the collective, among all rows of all devices."""
    late_ns: Column
    """How much later than the first it entered; of a message that went into a buffer, how long its sender waited."""
    waiting_ns: Column
    """How long it was in the collective before the last one entered."""
    exposed_ns: Column
    """The part of that which nothing else on its device hid."""
    members: Column
    """How many devices of the report were in it; of a message, how many are joined by messages."""
    message: NDArray[np.bool_]
    """Whether it is a send or a receive."""
    buffered: NDArray[np.bool_]
    """Whether it is of a message that was over for its sender before the receiver came."""
    start: Column
    """When it began, on the common clock."""
    step: Column
    """The step of its device that it belongs to, or -1."""
    kept: NDArray[np.bool_]
    """Whether it counts for the window."""

    def in_window(self) -> Waiting:
        """The rows that count for the window."""
        return _taken(self, self.kept)

    def pairs(self) -> list[tuple[int, int, int, int]]:
        """(device, the device it waits for, waiting ns, exposed ns), most waiting first."""
        rows = np.flatnonzero((self.waiting_ns > 0) & (self.device != self.last))
        if not len(rows):
            return []
        pair, example = group_rows(self.device[rows], self.last[rows])
        waiting = sums(pair, self.waiting_ns[rows], len(example))
        exposed = sums(pair, self.exposed_ns[rows], len(example))
        example = rows[example]
        found = zip(
            self.device[example].tolist(),
            self.last[example].tolist(),
            waiting.tolist(),
            exposed.tolist(),
            strict=True,
        )
        return sorted(found, key=lambda p: (-p[2], p[0], p[1]))


def find_waiting(
    devices: Sequence[DeviceCollectives], device: Column, event: Column, shift: Column
) -> Waiting:
    """Tell waiting from transfer in every matched collective.

    Args:
        devices: One a rank.
        device: The device of each row.
        event: The collective of each row, or -1.
        shift: What to add to each row's times to have them on the common clock, in ns.
    """
    start = np.concatenate([d.start_ns for d in devices]) + shift
    end = np.concatenate([d.end_ns for d in devices]) + shift
    rows = np.flatnonzero(event >= 0)
    rows = rows[np.lexsort((device[rows], start[rows], event[rows]))]
    number = event[rows]
    opens = np.flatnonzero(np.diff(number, prepend=-1))
    closes = np.append(opens[1:], len(rows)) - 1
    which = np.repeat(np.arange(len(opens)), closes - opens + 1)
    first, last = start[rows[opens]][which], start[rows[closes]][which]
    upto = np.clip(last, start[rows], end[rows])
    message = of_kind(devices, {MESSAGE})[rows]
    gone = of_kind(devices, _LEAVES_EARLY)[rows] & (end[rows] + LEFT_BEFORE_NS < last)
    # What a receiver that comes last takes is the transfer; a sender that took longer waited for it to make room.
    duration, transfer = (end - start)[rows], (end - start)[rows[closes]][which]
    room = np.where(message & waited_for_room(duration, transfer), duration - transfer, 0)
    upto = np.where(gone, start[rows] + room, upto)
    waited_for, entered = (upto - start[rows])[opens][which], start[rows] - first
    buffered = message & gone[opens][which]
    late = np.where(buffered, np.minimum(entered, waited_for), entered)
    exposed = np.zeros(len(rows), np.int64)
    for at, each in enumerate(devices):
        mine = np.flatnonzero(device[rows] == at)
        back = shift[rows[mine]]
        exposed[mine] = each.exposed.within(start[rows[mine]] - back, upto[mine] - back)
    found = Waiting(
        row=rows,
        device=device[rows],
        last=device[rows[closes]][which],
        last_row=rows[closes][which],
        late_ns=late,
        waiting_ns=upto - start[rows],
        exposed_ns=exposed,
        members=(closes - opens + 1)[which],
        message=message,
        buffered=buffered,
        start=start[rows],
        step=np.concatenate([d.step for d in devices])[rows],
        kept=np.concatenate([d.kept for d in devices])[rows],
    )
    operation = np.concatenate([d.operation for d in devices])[rows]
    return _taken(_with_stages(found, len(devices)), _longest(found, operation))


def _taken(found: Waiting, rows: NDArray[np.bool_]) -> Waiting:
    return Waiting(**{f.name: getattr(found, f.name)[rows] for f in fields(Waiting)})


def _longest(found: Waiting, operation: Column) -> NDArray[np.bool_]:
    """Of the messages of one kernel, the one that it waited longest for."""
    order = np.lexsort((found.waiting_ns, operation, found.device))
    same = (np.diff(operation[order]) == 0) & (np.diff(found.device[order]) == 0)
    longest = np.ones(len(order), bool)
    longest[order[:-1][same]] = False
    return longest


def _with_stages(found: Waiting, devices: int) -> Waiting:
    """The members of messages: the devices that messages join, directly or through others."""
    stage = np.arange(devices)
    one, other = found.device[found.message], found.last[found.message]
    while len(one) and (stage[one] != stage[other]).any():
        least = np.minimum(stage[one], stage[other])
        np.minimum.at(stage, one, least)
        np.minimum.at(stage, other, least)
    size = np.bincount(stage, minlength=devices)[stage]
    return replace(found, members=np.where(found.message, size[found.device], found.members))
