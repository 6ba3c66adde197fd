"""Phases: what each marked part of the step cost, with and without the parts inside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.names import SHARES
from profkit.model.report_memory import Memory
from profkit.model.report_time import PhaseRow
from profkit.model.rows import replace
from profkit.model.states import SHARE_OF_STATE, State
from profkit.model.summing import Summed
from profkit.timeline.grouping import sums
from profkit.timeline.intervals import grouped_union_ns
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import largest_share

__all__ = ["PHASES", "judged_phases", "phase_rows", "unattributed_ns"]

Column = NDArray[np.int64]


PHASES: Final = Summed[PhaseRow](
    ("path",), ("count", "host_wall_ns", "gpu_inclusive_ns", "gpu_exclusive_ns", "kernel_count", "shares")
)


def judged_phases(rows: Sequence[PhaseRow], memory: Memory | None) -> list[PhaseRow]:
    """The table of phases: with the largest share of each, and its peak in a memory section."""
    peaks = {row.path: row.peak_allocated_bytes for row in memory.by_phase} if memory else {}
    return [
        replace(row, bound=largest_share(row.shares), peak_allocated_bytes=peaks.get(row.path))
        for row in rows
    ]


def unattributed_ns(view: TraceView) -> int:
    """Busy time of the window whose operation has no phase."""
    total = 0
    for device in range(len(view.trace.devices)):
        segments = view.window_segments(device)
        busy = segments.state < State.INPUT
        none = view.phases.at(segments.operation) < 0
        total += int((segments.end_ns - segments.start_ns)[busy & none].sum())
    return total


def phase_rows(view: TraceView) -> list[PhaseRow]:
    """One row a path, parents before children, which says neither bound nor peak yet."""
    phases, count = view.phases, len(view.phases.paths)
    if not count:
        return []
    occurrences, wall = _host(view)
    exclusive, inclusive, kernels = _device(view)
    shares = _shares(view)
    return [
        PhaseRow(
            name=path.rsplit("/", 1)[-1].replace("∕", "/"),
            path=path,
            count=int(occurrences[at]),
            host_wall_ns=int(wall[at]),
            gpu_inclusive_ns=int(inclusive[at]),
            gpu_exclusive_ns=int(exclusive[at]),
            kernel_count=None if kernels[at] < 0 else int(kernels[at]),
            bound="unknown",
            shares=dict(zip(SHARES, shares[at].tolist(), strict=True)),
            peak_allocated_bytes=None,
        )
        for at, path in enumerate(phases.paths)
        if (occurrences[at] or inclusive[at]) and view.shows(path)
    ]


def _host(view: TraceView) -> tuple[Column, Column]:
    """Occurrences in the kept steps, and the host time inside them (a recursion counts once)."""
    ranges, phases = view.trace.ranges, view.phases
    rows = np.flatnonzero(phases.path >= 0)
    rows = rows[view.begun_in_window(ranges.thread[rows], ranges.start_ns[rows])]
    path = phases.path[rows]
    wall = (ranges.end_ns[rows] - ranges.start_ns[rows]).astype(np.int64)
    count = len(phases.paths)
    return np.bincount(path, minlength=count), sums(path, wall, count)


def _device(view: TraceView) -> tuple[Column, Column, Column]:
    """Exclusive and inclusive busy time as unions a device, and kernels (-1 where a graph hides them), by path."""
    operations, phases, count = view.trace.operations, view.phases, len(view.phases.paths)
    path = phases.path_of(phases.of_operation)
    rows = np.flatnonzero(view.kept & (path >= 0))
    exclusive = _union(view, rows, path[rows])
    at_rows, at_path = [rows], [path[rows]]
    parents = np.array(phases.parents, np.int64)
    while (parents[at_path[-1]] >= 0).any():
        up = parents[at_path[-1]]
        at_rows.append(at_rows[-1][up >= 0])
        at_path.append(up[up >= 0])
    all_rows, all_paths = np.concatenate(at_rows), np.concatenate(at_path)
    inclusive = _union(view, all_rows, all_paths)
    kernels = np.bincount(all_paths[operations.kind[all_rows] == OperationKind.KERNEL], minlength=count)
    hidden = np.bincount(all_paths[operations.kind[all_rows] == OperationKind.GRAPH], minlength=count)
    return exclusive, inclusive, np.where(hidden > 0, -1, kernels)


def _union(view: TraceView, rows: Column, path: Column) -> Column:
    operations, count = view.trace.operations, len(view.phases.paths)
    group = operations.device[rows].astype(np.int64) * count + path
    start, end = operations.start_ns[rows].astype(np.int64), operations.end_ns[rows].astype(np.int64)
    total = grouped_union_ns(group, start, end, count * max(len(view.trace.devices), 1))
    by_path: Column = total.reshape(-1, count).sum(axis=0)
    return by_path


def _shares(view: TraceView) -> NDArray[np.int64]:
    """The window's shares of each path and what is inside it: shape (paths, shares)."""
    phases, count = view.phases, len(view.phases.paths)
    share_of_state = np.array([SHARES.index(SHARE_OF_STATE[s]) for s in State], np.int64)
    own = np.zeros((count + 1, len(SHARES)), np.int64)
    for device in range(len(view.trace.devices)):
        segments = view.window_segments(device)
        phase = phases.at(segments.operation)
        path = np.where(phase >= 0, phases.path_of(phase), count)
        np.add.at(own, (path, share_of_state[segments.state]), segments.end_ns - segments.start_ns)
    total: NDArray[Any] = own[:count].copy()
    # Paths stand after their parents, so going backwards adds whole subtrees.
    for at in range(count - 1, -1, -1):
        if phases.parents[at] >= 0:
            total[phases.parents[at]] += total[at]
    return total
