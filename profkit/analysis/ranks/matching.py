"""Which kernels of different ranks are the same collective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.ranks.events import DeviceCollectives
from profkit.analysis.tables.grouping import group_rows

__all__ = ["Matching", "match_again", "match_collectives"]

Column = NDArray[np.int64]

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


def match_collectives(devices: Sequence[DeviceCollectives]) -> Matching:
    """Number the collectives, the same number for the same one on every device.

    By the number in its process group, where files have it; else by order among those of the same group, name
    and size within the same step. Kernels of one collective end almost together, so where the counts differ, or
    no steps are marked, the order is shifted until the ends lie at one distance.

    Args:
        devices: One a rank.
    """
    device = np.repeat(np.arange(len(devices)), [len(d) for d in devices])
    if not len(device):
        return Matching(device, device, device, np.empty(0, bool))
    key, step = _common_keys(devices), _common_steps(devices)
    sequence = np.concatenate([d.sequence for d in devices])
    numbered = sequence >= 0
    cell = group_rows(key, np.where(numbered, -2, step))[0]
    order = _ordinal(device, cell)
    uneven = ~numbered & (_is_uneven(device, cell, len(devices)) | (step < 0))
    end = np.concatenate([d.end_ns + (d.epoch_ns or 0) for d in devices])
    for each in np.unique(cell[uneven]).tolist():
        _shift_order(order, np.flatnonzero(cell == each), device, end)
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


def _common_steps(devices: Sequence[DeviceCollectives]) -> Column:
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


def _shift_order(order: Column, rows: Column, device: Column, end: Column) -> None:
    """Shift the order on each device against that of the device with most rows, in place."""
    present, count = np.unique(device[rows], return_counts=True)
    most = rows[device[rows] == present[count.argmax()]]
    for each in present.tolist():
        mine = rows[device[rows] == each]
        if each != present[count.argmax()]:
            order[mine] += _best_shift(end[most], end[mine])


def _best_shift(reference: Column, other: Column) -> int:
    """The shift of order at which the ends lie most nearly at one distance from each other."""
    best, spread = 0, np.inf
    reach = min(_LARGEST_SHIFT, max(len(reference), len(other)) - 1)
    for shift in sorted(range(-reach, reach + 1), key=abs):
        first, last = max(0, shift), min(len(reference), len(other) + shift)
        if last - first < max(2, min(len(reference), len(other)) // 2):
            continue
        distance = other[first - shift : last - shift] - reference[first:last]
        found = float(np.abs(distance - np.median(distance)).mean())
        if found < spread:
            best, spread = shift, found
    return best


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
