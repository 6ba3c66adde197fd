"""Who waits for whom: inside a collective, the time before the last rank enters is waiting, the rest transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.ranks.events import DeviceCollectives
from profkit.analysis.tables.grouping import group_rows, sums

__all__ = ["Waiting", "find_waiting"]

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Waiting:
    """Of every row that counts for the window and has a matched collective."""

    row: Column
    """Its place among all rows of all devices."""
    device: Column
    last: Column
    """The device that entered last."""
    late_ns: Column
    """How much later than the first it entered."""
    waiting_ns: Column
    """How long it was in the collective before the last one entered."""
    exposed_ns: Column
    """The part of that which nothing else on its device hid."""
    members: Column
    """How many devices of the report were in it."""
    step: Column
    """The step of its device that it belongs to, or -1."""

    def by_device(self, devices: int, column: Column) -> Column:
        """The sum of a column for each device."""
        total: Column = sums(self.device, column, devices)
        return total

    def held_up_ns(self, devices: int) -> Column:
        """The exposed waiting of the others that each device causes, as the mean over those others."""
        total: Column = sums(self.last, self.exposed_ns // np.maximum(self.members - 1, 1), devices)
        return total

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
    kept = np.concatenate([d.kept for d in devices])[rows]
    exposed = np.zeros(len(rows), np.int64)
    for at, each in enumerate(devices):
        mine = np.flatnonzero(device[rows] == at)
        back = shift[rows[mine]]
        exposed[mine] = each.exposed.within(start[rows[mine]] - back, upto[mine] - back)
    return Waiting(
        row=rows[kept],
        device=device[rows[kept]],
        last=device[rows[closes]][which][kept],
        late_ns=(start[rows] - first)[kept],
        waiting_ns=(upto - start[rows])[kept],
        exposed_ns=exposed[kept],
        members=(closes - opens + 1)[which][kept],
        step=np.concatenate([d.step for d in devices])[rows][kept],
    )
