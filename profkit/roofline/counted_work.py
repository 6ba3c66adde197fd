"""Hardware counters of single kernels (Nsight Compute), given to the same kernels of a timeline.

A counter tool runs each kernel by itself and several times, so it is another run of the program: kernels are matched by
name, grid, block and order of launch. Bytes are taken over as counted; shares of peak become times over the timeline's
own duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import LAUNCH_SHAPE, OperationKind, Trace
from profkit.roofline.activity import Activity
from profkit.roofline.kernel_groups import group_rows
from profkit.roofline.kernel_names import classify

__all__ = ["Counted", "counted_activity", "counted_work", "matched_counters"]

Column = NDArray[np.int64]
Key = tuple[str | int, ...]

_MOST_PAIRS: Final = 20_000_000
"""Pairs of like kernels that vote on the place; beyond it the commonest kernels, which say least, have no vote."""
_LIKE: Final = 0.5
"""Of the counted kernels: with fewer at their places the counters are of another program."""
_NEARLY: Final = 0.9
"""Of the best place's agreement: as much is another round of the same step."""


@dataclass(frozen=True, eq=False)
class Counted:
    """Counters by row of `Trace.operations`; NaN where a kernel was not counted."""

    dram_bytes: NDArray[np.float64]
    dram_share: NDArray[np.float64]
    sm_share: NDArray[np.float64]
    tensor_share: NDArray[np.float64]
    matches: Sequence[Column]
    """For each file of counters, and each operation, the row of `Trace.counters` that it was matched with, or -1."""


def counted_work(trace: Trace, time: Column, counters: Sequence[Trace]) -> Counted | None:
    """The counters of each operation of a timeline; where several files have some, those of the first count.

    Args:
        trace: The timeline, or the counters themselves where there is no other recording.
        time: For each operation the time of its launch, in ns.
        counters: What the counter tool wrote about the same program.

    Returns:
        None where there are no counters at all.
    """
    sources = [trace] if len(trace.counters) else counters
    if not sources:
        return None
    taken = {name: np.full(len(trace.operations), np.nan) for name in _TAKEN}
    matches = []
    for source in sources:
        match = _own_counters(trace) if source is trace else matched_counters(trace, time, source)
        matches.append(match)
        for name, column in taken.items():
            new = (match >= 0) & np.isnan(column)
            column[new] = getattr(source.counters, name)[match[new]]
    return Counted(**taken, matches=matches)


_TAKEN: Final = ("dram_bytes", "dram_share", "sm_share", "tensor_share")


def _own_counters(trace: Trace) -> Column:
    match = np.full(len(trace.operations), -1, np.int64)
    match[trace.counters.operation] = np.arange(len(trace.counters))
    return match


def counted_activity(
    counted: Counted, rows: NDArray[np.intp], duration_ns: NDArray[np.float64], bandwidth: NDArray[np.float64]
) -> Activity:
    """What counters say of some kernels, as shares of peak over the timeline's own durations.

    Args:
        counted: The counters by operation.
        rows: Rows of kernels in ``Trace.operations``.
        duration_ns: How long each of them took in the timeline.
        bandwidth: The peak of each one's memory, in bytes/s; NaN where it is unknown.
    """
    moved = counted.dram_bytes[rows] / (bandwidth * np.maximum(duration_ns, 1.0) / 1e9)
    return Activity(
        dram=np.where(np.isnan(moved), counted.dram_share[rows], moved),
        # Without a counter of the Tensor Cores the busiest pipe of the multiprocessors stands for a product's unit.
        tensor=np.where(np.isnan(counted.tensor_share), counted.sm_share, counted.tensor_share)[rows],
        issue=counted.sm_share[rows],
    )


def matched_counters(trace: Trace, time: Column, source: Trace) -> Column:
    """For each operation of a timeline its row in the counters of another run, or -1.

    The counters are of a stretch of the program, a step say; the timeline has it once or several times. Both are written
    as sequences of kernels in order of launch, and the stretch lies where most kernels agree.
    """
    operations, counters = trace.operations, source.counters
    kernels = np.flatnonzero(operations.kind == OperationKind.KERNEL)
    kernels = kernels[np.lexsort((operations.start_ns[kernels], time[kernels]))]
    rows = np.argsort(counters.operation, kind="stable")
    numbers: dict[Key, int] = {}
    own = _numbered(trace, kernels, numbers)
    counted = _numbered(source, counters.operation[rows].astype(np.int64), numbers)
    match = np.full(len(operations), -1, np.int64)
    for start in _starts(own.name, counted.name):
        pair = _paired(own, counted, start)
        match[kernels[pair >= 0]] = rows[pair[pair >= 0]]
    return match


@dataclass(frozen=True, eq=False)
class _Sequence:
    """Kernels in order of launch, as numbers that are equal for kernels alike, in both recordings."""

    name: Column
    """By readable name, grid and block."""
    family: Column
    """By family, grid and block: the tools write some names in ways of their own."""


def _numbered(trace: Trace, rows: Column, numbers: dict[Key, int]) -> _Sequence:
    """Number kernels; kinds that are not among the numbers yet are numbered on."""
    columns = [getattr(trace.operations, c)[rows] for c in ("name", *LAUNCH_SHAPE)]
    first, group = group_rows(columns)
    classes = classify([trace.strings[n] for n in columns[0][first]])
    shapes = [tuple(int(c[at]) for c in columns[1:]) for at in first.tolist()]

    def numbered(texts: list[str]) -> Column:
        keys: list[Key] = [(text, *shape) for text, shape in zip(texts, shapes, strict=True)]
        return np.array([numbers.setdefault(key, len(numbers)) for key in keys], np.int64)[group]

    return _Sequence(
        numbered([c.short_name for c in classes]), numbered([f"family {c.family}" for c in classes])
    )


def _starts(own: Column, counted: Column) -> list[int]:
    """Where in the timeline's sequence the counted one begins.

    That is each place where nearly as many kernels agree as at the best, without overlap. A start may be negative: then
    the timeline begins later than the counters.

    Example: own = a b c a b c, counted = a b c: three agree at 0 and at 3, none at 1 and 2; the starts are 0 and 3.
    """
    size = len(counted)
    votes = np.zeros(len(own) + size, np.int64)
    budget = _MOST_PAIRS
    for number in _rarest_first(own, counted):
        here, there = np.flatnonzero(own == number), np.flatnonzero(counted == number)
        budget -= len(here) * len(there)
        if budget < 0:
            break
        votes += np.bincount((here[:, None] - there + size).ravel(), minlength=len(votes))
    best = int(votes.max(initial=0))
    if best < _LIKE * min(size, len(own)):
        return []
    starts: list[int] = []
    for at in np.argsort(-votes, kind="stable").tolist():
        if votes[at] < _NEARLY * best:
            break
        if all(abs(at - size - known) >= size for known in starts):
            starts.append(at - size)
    return starts


def _rarest_first(own: Column, counted: Column) -> list[int]:
    """Numbers that both sequences have, those with the fewest pairs first: they say most about the place."""
    most = int(max(own.max(initial=0), counted.max(initial=0))) + 1
    pairs = np.bincount(own, minlength=most) * np.bincount(counted, minlength=most)
    order = np.argsort(pairs, kind="stable")
    rarest: list[int] = order[pairs[order] > 0].tolist()
    return rarest


def _paired(own: _Sequence, counted: _Sequence, start: int) -> Column:
    """For each kernel of the timeline the counted one, or -1, with the counted sequence laid at a start.

    Kernels that stand at the same place and agree are one; what is left is matched in order with its like.
    """
    pair = np.full(len(own.name), -1, np.int64)
    place = np.arange(max(start, 0), min(start + len(counted.name), len(own.name)))
    same = own.family[place] == counted.family[place - start]
    pair[place[same]] = (place - start)[same]
    left_own = place[~same]
    left_counted = np.setdiff1d(np.arange(len(counted.name)), pair[pair >= 0])
    for number in np.unique(own.name[left_own]).tolist():
        here = left_own[own.name[left_own] == number]
        there = left_counted[counted.name[left_counted] == number]
        both = min(len(here), len(there))
        pair[here[:both]] = there[:both]
    return pair
