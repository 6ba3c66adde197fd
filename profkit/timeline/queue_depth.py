"""How many operations are launched and not begun, over time: an empty queue means that the device waits for the host."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.timeline.view import TraceView

__all__ = ["queue_between", "queue_depth"]

Column = NDArray[np.int64]


def queue_depth(view: TraceView, device: int) -> tuple[Column, Column]:
    """When the queue of a device changes, and how long it is from then on.

    Operations without a launch record are left out.
    """
    operations, launches = view.trace.operations, view.launches
    rows = np.flatnonzero((operations.device == device) & launches.linked)
    begun = np.maximum(operations.start_ns[rows], launches.time_ns[rows])
    time = np.concatenate((launches.time_ns[rows], begun)).astype(np.int64)
    order = np.argsort(time, kind="stable")
    depth = np.cumsum(np.repeat((1, -1), len(rows))[order])
    last = np.append(np.diff(time[order]) > 0, True)[: len(order)]
    return time[order][last], depth[last]


def queue_between(view: TraceView, device: int, start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """The queue in a stretch of time: the shortest and the longest of each of its equal parts, at their instants."""
    time, depth = queue_depth(view, device)
    if not len(time):
        return []
    before = int(np.searchsorted(time, start, side="right")) - 1
    inside = (time > start) & (time < end)
    time = np.append(start, time[inside])
    depth = np.append(depth[before] if before >= 0 else 0, depth[inside])
    part = (time - start) * parts // max(end - start, 1)
    order = np.lexsort((np.arange(len(time)), depth, part))
    edge = np.flatnonzero(np.diff(part[order], prepend=-1))
    kept = np.unique(np.concatenate((order[edge], order[np.append(edge[1:], len(order)) - 1])))
    return list(zip(time[kept].tolist(), depth[kept].tolist(), strict=True))
