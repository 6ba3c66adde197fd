"""Steps of which records are missing: their idle time would be the recorder's, and no cause of the program's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind, Trace
from profkit.timeline.launches import Launches, lost_launches, processes_of_calls, unstarted_launches

__all__ = ["damaged_steps"]

_LOST: Final = 0.05
"""A step that lost so much more of its launches' kernels than the most complete one is damaged."""

_MISSING: Final = 0.75
"""A step with fewer kernels than this part of the fullest, though it took the host as long, is damaged."""

_AS_LONG: Final = 0.75

_FEWEST: Final = 10
"""Of steps with fewer kernels, one or two more or less are the program's doing; none at all is told as no work."""

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]


def damaged_steps(
    trace: Trace,
    launches: Launches,
    hosts: tuple[NDArray[np.int64], NDArray[np.int64]],
    kinds: Sequence[str],
) -> Flags:
    """Which steps lost records, of those of one kind.

    Args:
        trace: The timeline.
        launches: Its launches.
        hosts: Host start and end of each step: arrays of shape (processes, steps).
        kinds: The kind of each step.
    """
    count = len(kinds)
    # Only what was launched inside: what is launched between two marks goes to the second, so the first has less.
    work = np.isin(trace.operations.kind, (OperationKind.KERNEL, OperationKind.GRAPH)) & launches.linked
    kernels = _inside(launches.time_ns[work], trace.operations.process[work], hosts)
    process = processes_of_calls(trace)
    lost, unstarted = (
        _inside(trace.calls.start_ns[rows], process[rows], hosts)
        for rows in (lost_launches(trace, launches), unstarted_launches(trace, launches))
    )
    # A graph launch is one launch of many kernels; what it lost is told elsewhere.
    share = lost / np.maximum(lost + kernels, 1)
    length = (hosts[1] - hosts[0]).max(axis=0, initial=0)
    # The recording ended before all of their work had: no other step is needed to see that.
    cut: Flags = unstarted > _LOST * np.maximum(unstarted + kernels, 1)
    found, kind = np.zeros(count, bool), np.array(kinds)
    for each in dict.fromkeys(kinds):
        mine = np.flatnonzero(kind == each)
        full = mine[kernels[mine] >= _MISSING * kernels[mine].max()]
        if len(mine) < 2 or not kernels[mine].max():
            continue
        usual = float(np.median(length[full]))
        found[mine] = share[mine] > share[mine].min() + _LOST
        if kernels[mine].max() >= _FEWEST:
            found[mine] |= (kernels[mine] < _MISSING * kernels[mine].max()) & (
                length[mine] >= _AS_LONG * usual
            )
    damaged: Flags = found | cut
    return damaged


def _inside(
    time: NDArray[Any], process: NDArray[Any], hosts: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> Column:
    """How many instants lie in each step of their process."""
    found = np.zeros(hosts[0].shape[1], np.int64)
    for each in np.unique(process).tolist():
        ordered = np.sort(time[process == each], kind="stable")
        found += np.searchsorted(ordered, hosts[1][each]) - np.searchsorted(ordered, hosts[0][each])
    return found
