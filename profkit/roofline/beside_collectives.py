"""Kernels that run beside a collective, and what that costs them: both share memory, links and multiprocessors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from profkit.model import Finding, Severity
from profkit.model.findings import Param
from profkit.model.states import State
from profkit.roofline.kernel_table import group_kernels
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView

__all__ = ["SlowedKernels", "overlap_findings", "slowed_kernels"]

_LEAST_SLOWDOWN: Final = 0.05
_LEAST_LAUNCHES: Final = 3
"""Beside a collective, and alone: fewer have no median worth the name."""
_LEAST_SHARE: Final = 0.01
"""Of the kernels' time: less is not worth a sentence."""


@dataclass(frozen=True)
class SlowedKernels:
    """The kernels of a trace that are slower beside a collective."""

    kernels: Sequence[tuple[int, str, float]]
    """What it costs in ns, the name, and by how much the kernel is slower."""
    total_ns: int
    """The time of all kernels that are no collective."""


def overlap_findings(found: Sequence[SlowedKernels]) -> list[Finding]:
    """A finding where kernels take longer beside a collective than the same kernels alone: one for all traces."""
    slowed = [kernel for each in found for kernel in each.kernels]
    lost_ns = sum(ns for ns, _, _ in slowed)
    if not slowed or lost_ns < _LEAST_SHARE * sum(each.total_ns for each in found):
        return []
    _, name, slowdown = max(slowed)
    params: dict[str, Param] = {"lost_ns": lost_ns, "kernel": name, "slowdown_share": slowdown}
    return [Finding("slowed-by-collectives", Severity.INFO, count=len(slowed), params=params)]


def slowed_kernels(view: TraceView) -> SlowedKernels:
    """Which kernels of a trace are slower beside a collective."""
    operations = view.trace.operations
    rows, group, keys = group_kernels(view)
    if not (view.state[rows] == State.COMMUNICATION).any():
        return SlowedKernels((), 0)
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    duration = (end - start).astype(np.int64)
    beside_ns = np.zeros(len(rows), np.int64)
    sends = view.state[rows] == State.COMMUNICATION
    for device in range(len(view.trace.devices)):
        mine = operations.device[rows] == device
        busy = Intervals.of(start[mine & sends], end[mine & sends])
        beside_ns[mine] = busy.within(start[mine], end[mine])
    slowed: list[tuple[int, str, float]] = []
    for at in np.unique(group[~sends & (2 * beside_ns > duration)]).tolist():
        own = (group == at) & ~sends
        beside, alone = duration[own & (2 * beside_ns > duration)], duration[own & (beside_ns == 0)]
        if min(len(beside), len(alone)) < _LEAST_LAUNCHES:
            continue
        usual = float(np.median(alone))
        slowdown = float(np.median(beside)) / max(usual, 1.0) - 1.0
        if slowdown >= _LEAST_SLOWDOWN:
            made = view.work.class_of_name[int(operations.name[rows[own][0]])]
            slowed.append(
                (int(beside.sum() - usual * len(beside)), made.short_name or keys[at].name, slowdown)
            )
    return SlowedKernels(slowed, int(duration[~sends].sum()))
