"""Which kernels of different ranks are the same collective."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_events import DeviceCollectives
from profkit.timeline.grouping import group_rows

__all__ = ["Matching", "common_steps", "match_again", "match_collectives"]

Column = NDArray[np.int64]

_SAME_INSTANT_NS: Final = 50_000
"""The ranks leave a collective within this of each other (16 us were seen over NVLink)."""

_NOWHERE: Final = 1 << 40
_LARGEST_SHIFT: Final = 64
"""How many collectives one recording may have begun before another, where no step says so."""


@dataclass(frozen=True, eq=False)
class Matching:
    """For all rows of all devices, one after the other."""

    device: Column
    """Index of its device."""
    event: Column
    """The number of the collective, or -1 for one that only one device has."""
    cell: Column
    """What is matched by order within: the same group, name, size and step."""
    uneven: NDArray[np.bool_]
    """Whether the devices' counts differ in its cell, so that the order alone is not to be trusted."""

    def only(self, devices: NDArray[np.bool_]) -> Matching:
        """The same, with nothing matched on the other devices."""
        known = devices[self.device]
        event = _shared_only(np.where(known, self.event, -1), self.device)
        return replace(self, event=event, uneven=self.uneven & known)


def match_collectives(devices: Sequence[DeviceCollectives]) -> Matching:
    """Number the collectives, the same number for the same one on every device.

    By the number in its process group, where files have it; else by order among those of the same group, name
    and size within the same step. Kernels of one collective end almost together, so where the counts differ, or a
    file does not name its steps, the order is shifted until the ends lie at one distance.

    Args:
        devices: One a rank.
    """
    device = np.repeat(np.arange(len(devices)), [len(d) for d in devices])
    if not len(device):
        return Matching(device, device, device, np.empty(0, bool))
    key, step = _common_keys(devices), common_steps(devices)
    if not all(d.steps_named for d in devices):
        step = np.full_like(step, -1)  # the recordings began in different steps
    sequence = np.concatenate([d.sequence for d in devices])
    numbered = sequence >= 0
    cell = group_rows(key, np.where(numbered, -2, step))[0]
    order = _ordinal(device, cell)
    uneven = ~numbered & (_is_uneven(device, cell, len(devices)) | (step < 0))
    end = np.concatenate([d.end_ns + (d.epoch_ns or 0) for d in devices])
    trusted = np.array([d.epoch_ns is not None for d in devices])
    for rows in _rows_by_cell(cell, uneven):
        _shift_order(order, rows, device, end, trusted)
    event = group_rows(cell, np.where(numbered, sequence, order))[0]
    return Matching(device, _shared_only(event, device), cell, uneven)


def match_again(found: Matching, end: Column, tolerance_ns: int) -> Matching:
    """Match the uneven ones anew by their ends, now that the clocks agree.

    Args:
        found: The matching so far.
        end: Aligned ends of all rows, in ns.
        tolerance_ns: How far apart the ends of one collective may lie.
    """
    rows = np.flatnonzero(found.uneven)
    if not len(rows):
        return found
    rows = rows[np.lexsort((end[rows], found.cell[rows]))]
    # Ends of one collective lie close together, and far from those of the next one.
    apart = (np.diff(end[rows]) > tolerance_ns) | (np.diff(found.cell[rows]) != 0)
    cluster = np.concatenate(([0], np.cumsum(apart)))
    member = group_rows(cluster, found.device[rows])[0]
    twice = np.zeros(int(cluster[-1]) + 1, bool)
    twice[cluster[np.bincount(member)[member] > 1]] = True
    event = found.event.copy()
    event[rows] = np.where(twice[cluster], -1, int(event.max(initial=-1)) + 1 + cluster)
    return replace(found, event=_shared_only(event, found.device))


def _common_keys(devices: Sequence[DeviceCollectives]) -> Column:
    numbers: dict[tuple[str, ...], int] = {}
    parts = []
    for each in devices:
        codes = np.array([numbers.setdefault(k, len(numbers)) for k in each.keys] or [0], np.int64)
        parts.append(codes[each.key])
    return np.concatenate(parts)


def common_steps(devices: Sequence[DeviceCollectives]) -> Column:
    """The step of each row of all devices, numbered alike on all, or -1."""
    numbers: dict[str, int] = {}
    parts = []
    for each in devices:
        codes = np.array([*(numbers.setdefault(s, len(numbers)) for s in each.steps), -1], np.int64)
        parts.append(codes[each.step])
    return np.concatenate(parts)


def _ordinal(device: Column, cell: Column) -> Column:
    """The place of each row among the rows of its device and cell; rows of a device are in order."""
    group = group_rows(device, cell)[0]
    order = np.argsort(group, kind="stable")
    first = np.searchsorted(group[order], group[order])
    place = np.empty(len(group), np.int64)
    place[order] = np.arange(len(group)) - first
    return place


def _is_uneven(device: Column, cell: Column, devices: int) -> NDArray[np.bool_]:
    """Whether the devices that have a cell at all have different numbers of it."""
    cells = int(cell.max()) + 1
    pair, example = group_rows(cell, device)
    count = np.bincount(pair)
    least, most = np.full(cells, np.iinfo(np.int64).max), np.zeros(cells, np.int64)
    np.minimum.at(least, cell[example], count)
    np.maximum.at(most, cell[example], count)
    uneven: NDArray[np.bool_] = (least != most)[cell]
    return uneven


def _rows_by_cell(cell: Column, chosen: NDArray[np.bool_]) -> Iterator[Column]:
    """All rows of each cell that has a chosen one, device by device."""
    rows = np.argsort(cell, kind="stable")
    bounds = np.concatenate(([0], np.cumsum(np.bincount(cell))))
    for each in np.unique(cell[chosen]).tolist():
        yield rows[bounds[each] : bounds[each + 1]]


def _shift_order(
    order: Column, rows: Column, device: Column, end: Column, trusted: NDArray[np.bool_]
) -> None:
    """Shift the order on each device against that of the device with most rows, in place.

    A row whose end lies elsewhere than its place says gets a place of its own, so that nothing matches it.
    """
    parts = np.split(rows, np.flatnonzero(np.diff(device[rows])) + 1)
    most = max(parts, key=len)
    for mine in parts:
        if mine is most:
            continue
        both_trusted = bool(trusted[device[mine[0]]] and trusted[device[most[0]]])
        shift, distance = _best_shift(end[most], end[mine], both_trusted)
        place = order[mine] + shift
        inside = (place >= 0) & (place < len(most))
        ahead = end[mine] - end[most[np.clip(place, 0, len(most) - 1)]]
        fits = inside & (np.abs(ahead - distance) <= _SAME_INSTANT_NS)
        order[mine] = np.where(fits, place, _NOWHERE + mine)


def _best_shift(reference: Column, other: Column, trusted: bool) -> tuple[int, int]:
    """The shift of order at which the ends lie most nearly at one distance from each other, and that distance.

    Of shifts that are equally good, as in steps that are all alike: where Unix times are known, the one with
    the smallest distance, else the smallest shift.
    """
    found = []
    reach = min(_LARGEST_SHIFT, max(len(reference), len(other)) - 1)
    for shift in sorted(range(-reach, reach + 1), key=abs):
        first, last = max(0, shift), min(len(reference), len(other) + shift)
        if last - first < max(1, min(len(reference), len(other)) // 2):
            continue
        ahead = other[first - shift : last - shift] - reference[first:last]
        # Differences of differences: Unix times do not fit into floating point to the nanosecond.
        middle = int(ahead[0]) + round(_median(ahead - ahead[0]))
        found.append((_median(np.abs(ahead - middle)), shift, middle))
    least = min((spread for spread, _, _ in found), default=0.0)
    good = [(shift, middle) for spread, shift, middle in found if spread <= least + _SAME_INSTANT_NS]
    return min(good, key=lambda g: abs(g[1] if trusted else g[0]), default=(0, 0))


def _median(values: Column) -> float:
    """numpy's, without what it costs to ask for it tens of thousands of times."""
    half = len(values) // 2
    if len(values) % 2:
        return float(np.partition(values, half)[half])
    low, high = np.partition(values, (half - 1, half))[half - 1 : half + 1].tolist()
    return (float(low) + float(high)) / 2


def _shared_only(event: Column, device: Column) -> Column:
    """Without those that only one device has."""
    known = np.flatnonzero(event >= 0)
    if not len(known):
        return event
    example = group_rows(event[known], device[known])[1]
    members = np.bincount(event[known][example], minlength=int(event.max(initial=0)) + 1)
    found = event.copy()
    found[known[members[event[known]] < 2]] = -1
    return found
