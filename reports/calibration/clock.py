"""`To` and `Q`: what recorders show of empty kernels, and of the gaps between queued ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind, RangeKind, Trace
from profkit.timeline.launches import find_launches

GRIDS = (1, 132, 1056, 8448, 67584)
Times = NDArray[np.float64]


def quantiles(values: Times) -> dict[str, float]:
    """Smallest, quartiles, 99th percentile, in ns."""
    names = ("min", "q1", "median", "q3", "p99")
    return dict(
        zip(names, np.round(np.quantile(values, [0, 0.25, 0.5, 0.75, 0.99])).tolist(), strict=True)
    ) | {"count": len(values)}


def launch_clock(trace: Trace) -> dict[str, Any]:
    """Durations by grid, gaps of a full queue, of a graph, across streams, and latency of an idle device."""
    launches = find_launches(trace)
    kernels = np.flatnonzero((trace.operations.kind == OperationKind.KERNEL) & launches.linked)
    kernels = kernels[np.argsort(trace.operations.start_ns[kernels], kind="stable")]
    spin = np.array(["spin" in name for name in trace.names(trace.operations.name[kernels])])
    start, end = trace.operations.start_ns[kernels], trace.operations.end_ns[kernels]
    asked, returned = launches.time_ns[kernels], launches.return_ns[kernels]

    def inside(phase: str) -> NDArray[np.intp]:
        ranges = (trace.names(trace.ranges.name) == phase) & (trace.ranges.kind == RangeKind.ANNOTATION)
        found = np.zeros(len(kernels), bool)
        for first, last in zip(trace.ranges.start_ns[ranges], trace.ranges.end_ns[ranges], strict=True):
            found |= (asked >= first) & (asked < last)
        return np.flatnonzero(found & ~spin)

    def durations(phase: str) -> Times:
        at = inside(phase)
        return (end - start)[at].astype(float)

    def gaps(phase: str) -> Times:
        """Between consecutive kernels, where both were queued before the first of them ended."""
        at = inside(phase)
        pairs = at[1:][np.diff(at) == 1]
        queued = returned[pairs] < end[pairs - 1]
        return (start[pairs] - end[pairs - 1])[queued].astype(float)

    idle = inside("idle_launch")
    return {
        "duration_ns": {f"empty, {n} blocks": quantiles(durations(f"empty_{n}")) for n in GRIDS}
        | {
            "add to 1 element": quantiles(durations("one_element")),
            "add to 65536": quantiles(durations("64k_elements")),
        },
        "gap_ns": {
            "full queue, empty kernels": quantiles(gaps("empty_1")),
            "full queue, one element": quantiles(gaps("one_element")),
            "from stream to stream, by events": quantiles(gaps("streams")),
            "nodes of a graph": quantiles(gaps("graph")),
        },
        "idle_ns": {
            "launch call to start": quantiles((start - asked)[idle].astype(float)),
            "return of the call to start": quantiles((start - returned)[idle].astype(float)),
        },
    }
