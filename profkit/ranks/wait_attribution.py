"""Whom a wait is attributed to: a rank that makes others wait may itself be waiting for a third one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["AttributedWaits", "attribute"]

Column = NDArray[np.int64]

_LONGEST_CHAIN: Final = 64
"""Ranks from the one that waits to the one that works: the stages of a pipeline."""


@dataclass(frozen=True, eq=False)
class AttributedWaits:
    """Stretches of waiting; those of one device do not overlap."""

    wait: Column
    """Which wait it is a part of."""
    device: Column
    """The device that waits."""
    to: Column
    """The device that it is attributed to."""
    start: Column
    end: Column

    def take(self, rows: NDArray[Any]) -> AttributedWaits:
        """Some of the rows."""
        return AttributedWaits(*(column[rows] for column in vars(self).values()))


def attribute(device: Column, last: Column, start: Column, end: Column, devices: int) -> AttributedWaits:
    """Attribute every wait, instant by instant, to the device at the end of its chain.

    While the device that is waited for waits itself, it goes to the one that it waits for: the stages of a pipeline
    in front of a slow one wait for each other, and all for that one.

    Args:
        device: The device that waits, of each wait.
        last: The device that it waits for.
        start: When, on the common clock, in ns.
        end: Its end.
        devices: How many devices there are.
    """
    waits = _disjoint(AttributedWaits(np.arange(len(device)), device, last, start, end))
    first = np.searchsorted(waits.device, np.arange(devices + 1))
    settled, open_ = [], waits
    for _ in range(min(devices, _LONGEST_CHAIN)):
        here, open_ = _one_link(open_, waits, first)
        settled.append(here)
        if not len(open_.wait):
            break
    settled.append(open_)
    return AttributedWaits(*(np.concatenate([getattr(s, name) for s in settled]) for name in vars(waits)))


def _disjoint(waits: AttributedWaits) -> AttributedWaits:
    """In order of device and start; what two waits of one device share is given to the first."""
    waits = waits.take(np.lexsort((waits.end, waits.start, waits.device)))
    start = waits.start.copy()
    for rows in np.split(np.arange(len(start)), np.flatnonzero(np.diff(waits.device)) + 1):
        if len(rows) > 1:
            start[rows[1:]] = np.maximum(start[rows[1:]], np.maximum.accumulate(waits.end[rows])[:-1])
    cut = AttributedWaits(waits.wait, waits.device, waits.to, start, waits.end)
    return cut.take(cut.end > cut.start)


def _one_link(
    open_: AttributedWaits, waits: AttributedWaits, first: Column
) -> tuple[AttributedWaits, AttributedWaits]:
    """Cut stretches by the waits of those whom they are attributed to.

    Returns:
        The parts in which those do not wait, and the parts in which they do, attributed to whom they wait for; a part
        that would come back to the device that waits is of the first kind.
    """
    low, high = _overlapping(open_, waits, first)
    count = high - low
    part = np.repeat(np.arange(len(count)), count)
    other = np.arange(len(part)) - np.repeat(np.cumsum(count) - count, count) + np.repeat(low, count)
    start = np.maximum(open_.start[part], waits.start[other])
    end = np.minimum(open_.end[part], waits.end[other])
    onward = waits.to[other] != open_.device[part]
    part, other, start, end = part[onward], other[onward], start[onward], end[onward]
    moved = AttributedWaits(open_.wait[part], open_.device[part], waits.to[other], start, end)
    # What lies between: from the end of one cut to the start of the next one of the same stretch.
    owner = np.concatenate((np.arange(len(count)), part))
    since = np.concatenate((open_.start, end))
    order = np.lexsort((since, owner))
    owner, since = owner[order], since[order]
    order = np.lexsort((np.concatenate((start, open_.end)), np.concatenate((part, np.arange(len(count))))))
    until = np.concatenate((start, open_.end))[order]
    kept = until > since
    owner = owner[kept]
    rest = AttributedWaits(open_.wait[owner], open_.device[owner], open_.to[owner], since[kept], until[kept])
    return rest, moved


def _overlapping(open_: AttributedWaits, waits: AttributedWaits, first: Column) -> tuple[Column, Column]:
    """Of each stretch: from which to which row of ``waits`` those lie that the attributed device has meanwhile."""
    low, high = np.zeros(len(open_.to), np.int64), np.zeros(len(open_.to), np.int64)
    for each in np.unique(open_.to).tolist():
        rows = np.flatnonzero(open_.to == each)
        begin, stop = first[each], first[each + 1]
        low[rows] = begin + np.searchsorted(waits.end[begin:stop], open_.start[rows], "right")
        high[rows] = begin + np.searchsorted(waits.start[begin:stop], open_.end[rows], "left")
    return low, np.maximum(low, high)
