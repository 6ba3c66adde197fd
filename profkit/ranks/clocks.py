"""Clocks of ranks, brought together by the collectives that they share.

No rank can leave a collective before the last one has entered it, and the data reaches the ranks within
microseconds of each other. So the ends of one collective are one instant, seen by several clocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_events import DeviceCollectives
from profkit.ranks.instants import common_instants, unix_times
from profkit.ranks.matching import Matching
from profkit.timeline.view import Span

__all__ = ["Clock", "align_clocks", "report_offsets"]

Column = NDArray[np.int64]

_FEWEST: Final = 3
"""Collectives that two clocks must share, where no Unix time says the same."""

_ALWAYS_CREDIBLE_NS: Final = 100_000
_CREDIBLE_OF_PACE: Final = 0.5
"""Of the time between collectives: with a larger error, each could be its neighbour."""


@dataclass(frozen=True)
class Clock:
    """How to turn a file's times into the reference's."""

    offset_ns: int
    """What to add to times on the file's Unix clock (or, without one, on its own)."""
    error_ns: int
    """Nine of ten ends of shared collectives agree to within this."""
    shared: int
    """Collectives that it rests on."""


@dataclass(frozen=True, eq=False)
class _Shared:
    """The rows with a matched collective: number, file and end, and whether that is sure to be the others' end."""

    event: Column
    file: Column
    end: Column
    sure: NDArray[np.bool_]

    def take(self, rows: NDArray[np.bool_]) -> _Shared:
        return _Shared(self.event[rows], self.file[rows], self.end[rows], self.sure[rows])


def align_clocks(devices: Sequence[DeviceCollectives], found: Matching) -> dict[int, Clock]:
    """One clock a file; files that share too few collectives with the others have none.

    Args:
        devices: One a rank; the file of the first that has matched collectives is the reference.
        found: Which collectives are the same.
    """
    rows = np.flatnonzero(found.event >= 0)
    if not len(rows):
        return {}
    file = np.array([d.file for d in devices], np.int64)[found.device[rows]]
    instants = common_instants(devices, found)
    ends = unix_times(devices, "end_ns") - instants.lead_ns
    shared = _Shared(instants.event[rows], file, ends[rows], instants.sure[rows])
    has_unix_time = {d.file: d.epoch_ns is not None for d in devices}
    first = int(file[0])
    clocks = {first: Clock(0, 0, len(np.unique(shared.event[file == first])))}
    while True:
        left = _instants(shared, clocks)
        fresh = {}
        for each in sorted(set(file.tolist()) - set(clocks)):
            own = shared.take((file == each) & (left[shared.event] > np.iinfo(np.int64).min))
            trusted = has_unix_time[each] and has_unix_time[first]
            clock = _clock(own, left, trusted)
            if clock is not None:
                fresh[each] = clock
        if not fresh:
            return clocks
        clocks |= fresh


def _instants(shared: _Shared, clocks: Mapping[int, Clock]) -> Column:
    """When the last rank left each collective, by the known clocks."""
    offset = np.zeros(int(shared.file.max()) + 1, np.int64)
    known = np.zeros(len(offset), bool)
    for each, clock in clocks.items():
        offset[each], known[each] = clock.offset_ns, True
    rows = known[shared.file]
    left = np.full(int(shared.event.max()) + 1, np.iinfo(np.int64).min)
    np.maximum.at(left, shared.event[rows], shared.end[rows] + offset[shared.file[rows]])
    return left


def _clock(own: _Shared, left: Column, trusted: bool) -> Clock | None:
    """The clock of one file.

    Args:
        own: Its collectives that files with a known clock share; those with an unsure end count only without others.
        left: When the last rank left each collective.
        trusted: Whether the Unix times of both files are known.
    """
    if own.sure.sum() >= _FEWEST:
        own = own.take(own.sure)
    enough = len(own.event) >= _FEWEST
    if not len(own.event) or not (enough or trusted):
        return None
    ahead = own.end - left[own.event]
    # Differences of differences: a median in floating point of Unix times would round to 256 ns.
    middle = int(ahead[0]) + round(float(np.median(ahead - ahead[0])))
    offset = -middle if enough else 0
    error = int(np.quantile(np.abs(ahead + offset), 0.9, method="higher"))
    pace = float(np.median(np.diff(np.sort(own.end)))) if enough else 0.0
    credible = error <= max(_ALWAYS_CREDIBLE_NS, _CREDIBLE_OF_PACE * pace)
    return Clock(offset, error, len(own.event)) if credible else None


def report_offsets(files: Sequence[tuple[Span, int | None]], clocks: Mapping[int, Clock]) -> list[int]:
    """In ns, what to add to each file's times: the report starts with the earliest event of its files.

    Args:
        files: From the first to the last event of each file, and the Unix time of its time zero where known.
        clocks: The clocks of files whose ranks share collectives.
    """
    common = len(files) > 1 and all(epoch is not None or at in clocks for at, (_, epoch) in enumerate(files))
    if not common:
        return [-span[0] for span, _ in files]
    shifts = [
        (epoch or 0) + (clocks[at].offset_ns if at in clocks else 0) for at, (_, epoch) in enumerate(files)
    ]
    origin = min(span[0] + shift for (span, _), shift in zip(files, shifts, strict=True))
    return [shift - origin for shift in shifts]
