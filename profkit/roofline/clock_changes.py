"""Whether the GPU became slower in the course of a recording: the same kernels on the same shapes take longer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import Finding, Severity
from profkit.model.states import State
from profkit.roofline.kernel_table import group_kernels
from profkit.timeline.view import TraceView

__all__ = ["clock_changes", "clock_finding"]

_LEAST_SLOWDOWN: Final = 0.08
"""Medians of equal launches lie within 3 % of each other on our recordings; power limits take off 10 to 30 %."""
_LEAST_LAUNCHES: Final = 12
"""Of a row of the table, so that each side has a median."""
_LEAST_SIDE: Final = 0.2
"""Each side of the change has this share of a row's launches: what is shorter is a disturbance."""
_LEAST_TIME: Final = 0.5
"""Of the judged time, what must have become slower together: one kernel alone has other reasons, its data or a
neighbour; a lower clock slows all that compute."""

Column = NDArray[np.int64]


def clock_changes(view: TraceView) -> list[Finding]:
    """A finding for each device of a trace whose kernels became slower and stayed so."""
    return [found for device in range(len(view.trace.devices)) for found in _slower(view, device)]


def clock_finding(found: Sequence[Finding]) -> list[Finding]:
    """One finding for all devices, with the numbers of the worst."""
    if not found:
        return []
    worst = max(found, key=lambda finding: float(str(finding.params["slowdown_share"])))
    return [Finding(worst.code, worst.severity, count=sum(f.count for f in found), params=worst.params)]


def _slower(view: TraceView, device: int) -> list[Finding]:
    operations = view.trace.operations
    rows, group, _ = group_kernels(view)
    computing = (operations.device[rows] == device) & (view.state[rows] == State.COMPUTE)
    rows, group = rows[computing], group[computing]
    order = np.lexsort((operations.start_ns[rows], group))
    rows, group = rows[order], group[order]
    duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    borders = np.flatnonzero(np.diff(group, prepend=-1, append=-1))
    judged_ns, changes = 0, []
    for begin, end in pairwise(borders.tolist()):
        took = duration[begin:end]
        if len(took) < _LEAST_LAUNCHES:
            continue
        judged_ns += int(took.sum())
        at, slowdown = _step_up(took)
        if slowdown >= _LEAST_SLOWDOWN:
            changes.append((int(took.sum()), slowdown, int(rows[begin + at])))
    slower_ns = sum(ns for ns, _, _ in changes)
    if not changes or slower_ns < _LEAST_TIME * judged_ns:
        return []
    _, _, first = max(changes)
    step = int(view.step_of_operation[first])
    if view.steps.count and step <= int(np.argmax(view.kept_steps)):
        # Inside one step, equal launches differ by their data and by what is in the caches.
        return []
    params = {
        "slowdown_share": sum(ns * slowdown for ns, slowdown, _ in changes) / slower_ns,
        "since_ns": int(operations.start_ns[first]) - view.span[0],
        "step": view.steps.names[step] if 0 <= step < view.steps.count else None,
        "time_share": slower_ns / judged_ns,
    }
    return [Finding("clock-dropped", Severity.WARNING, count=len(changes), params=params)]


def _step_up(took: Column) -> tuple[int, float]:
    """Where a series of durations steps up for good, and by how much of the median before it.

    The step is where two constants explain the series best (least squares of ranks, so that outliers weigh little).
    Launches of one step differ by what runs beside them, so both medians must differ by more than either side spreads.
    """
    count = len(took)
    rank = np.argsort(np.argsort(took, kind="stable"), kind="stable").astype(float)
    before = np.cumsum(rank)[:-1]
    size = np.arange(1, count)
    gain = before**2 / size + (rank.sum() - before) ** 2 / (count - size)
    at = int(np.argmax(gain)) + 1
    if min(at, count - at) < _LEAST_SIDE * count:
        return at, 0.0
    low, high = np.median(took[:at]), np.median(took[at:])
    apart = np.percentile(took[at:], 20) > np.percentile(took[:at], 80)
    return at, float(high / max(low, 1.0) - 1.0) if apart else 0.0
