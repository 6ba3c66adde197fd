"""What GPU metric samples of an nsys export say of kernels that last longer than the sampling interval.

A sample stands for one sampling interval: on our recordings for the one after its time stamp (kernels of matrix
units and the metric ``Tensor Active`` then correlate with 0.94, against 0.56 for the one before); each file decides
by that correlation. Only samples that lie wholly inside a kernel count, and only kernels that ran alone meanwhile;
kernels alike in name, launch and length share theirs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn, Operations, Trace
from profkit.roofline.activity import Activity
from profkit.roofline.kernel_groups import group_rows
from profkit.roofline.thresholds import FEWEST_SAMPLES

__all__ = ["sampled_activity"]

_Column = NDArray[np.float64]
_FEWEST_TO_ALIGN = 16


def sampled_activity(
    trace: Trace, rows: NDArray[np.intp], alike: NDArray[np.intp], tensor_core: NDArray[np.bool_]
) -> Activity | None:
    """Means of the samples inside the kernels ``rows``; None when the file has none that count.

    Args:
        trace: The timeline.
        rows: Rows of kernels in ``trace.operations``.
        alike: For each of them a group number: kernels of one group share their samples.
        tensor_core: For each of them whether it surely runs on Tensor Cores.
    """
    if not len(trace.samples):
        return None
    wanted = _metrics(trace)
    if "dram" not in wanted:
        return None
    after = _stands_for_after(trace, rows[tensor_core], wanted)
    alone = _alone(trace.operations, rows)
    group = _by_length(trace.operations, rows, alike)
    columns = {}
    for metric in ("dram", "tensor", "issue"):
        total, count = np.zeros(len(rows)), np.zeros(len(rows))
        for identifiers in wanted.get(metric, ()):
            one, samples = _inside(trace, rows, identifiers, after)
            total += one
            count = samples
        count = np.where(alone, count, 0.0)
        total = np.where(alone, total, 0.0)
        sums, counts = np.bincount(group, total), np.bincount(group, count)
        mean = np.where(counts >= FEWEST_SAMPLES, sums / np.maximum(counts, 1.0), np.nan)
        columns[metric] = mean[group] / 100.0
    return None if np.isnan(columns["dram"]).all() else Activity(**columns)


def _metrics(trace: Trace) -> dict[str, list[list[int]]]:
    """Ids of the metrics of interest; reads and writes of DRAM are two metrics that add up."""
    wanted: dict[str, list[list[int]]] = {}
    for number in np.unique(trace.samples.metric).tolist():
        name = trace.strings[number].lower() if number >= 0 else ""
        if "%" not in name and "throughput" not in name:
            continue
        if "dram" in name and ("read" in name or "write" in name):
            wanted.setdefault("dram", []).append([number])
        elif "tensor active" in name:
            wanted.setdefault("tensor", [[number]])
        elif "sm issue" in name:
            wanted.setdefault("issue", [[number]])
    return wanted


def _series(trace: Trace, metrics: list[int], device: int) -> tuple[NDArray[np.int64], _Column]:
    """Times and values of one metric on one device, in order."""
    samples = trace.samples
    mine = np.flatnonzero(np.isin(samples.metric, metrics) & (samples.device == device))
    mine = mine[np.argsort(samples.time_ns[mine], kind="stable")]
    return samples.time_ns[mine].astype(np.int64), np.nan_to_num(samples.value[mine])


def _stands_for_after(trace: Trace, rows: NDArray[np.intp], wanted: dict[str, list[list[int]]]) -> bool:
    """Whether samples stand for the interval after their time stamp, by which matrix kernels explain better."""
    if not len(rows) or "tensor" not in wanted:
        return True
    device = int(np.bincount(trace.operations.device[rows]).argmax())
    time, value = _series(trace, wanted["tensor"][0], device)
    if len(time) < _FEWEST_TO_ALIGN:
        return True
    mine = rows[trace.operations.device[rows] == device]
    covered = _covered(np.sort(trace.operations.start_ns[mine]), np.sort(trace.operations.end_ns[mine]), time)
    if not covered.any() or np.ptp(covered) == 0 or np.ptp(value[:-1]) == 0 or np.ptp(value[1:]) == 0:
        return True
    return bool(np.corrcoef(covered, value[:-1])[0, 1] >= np.corrcoef(covered, value[1:])[0, 1])


def _covered(start: IntColumn, end: IntColumn, time: NDArray[np.int64]) -> _Column:
    """The time that intervals cover between each two successive instants (overlaps counted twice)."""

    def until(instants: NDArray[np.int64], borders: IntColumn) -> _Column:
        passed = np.searchsorted(borders, instants, side="right")
        sums = np.concatenate([[0], np.cumsum(borders.astype(np.int64) - time[0])])
        return np.asarray(passed * (instants - time[0]) - sums[passed], dtype=float)

    return np.diff(until(time, start) - until(time, end))


def _inside(trace: Trace, rows: NDArray[np.intp], metrics: list[int], after: bool) -> tuple[_Column, _Column]:
    """Sum and number of one metric's samples wholly inside each kernel, device by device."""
    total, count = np.zeros(len(rows)), np.zeros(len(rows))
    operations = trace.operations
    for device in np.unique(operations.device[rows]):
        time, value = _series(trace, metrics, int(device))
        if len(time) < 2:
            continue
        here = np.flatnonzero(operations.device[rows] == device)
        # Sample i covers the time from stamp i-1 to stamp i, or from i to i+1 where stamps come first.
        first = np.searchsorted(time, operations.start_ns[rows[here]], side="left") + (0 if after else 1)
        last = np.searchsorted(time, operations.end_ns[rows[here]], side="right") - (1 if after else 0)
        sums = np.concatenate([[0.0], np.cumsum(value)])
        last = np.maximum(last, first)
        first, last = np.minimum(first, len(time)), np.minimum(last, len(time))
        total[here], count[here] = sums[last] - sums[first], last - first
    return total, count


def _alone(operations: Operations, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Kernels during which nothing else ran on their device."""
    alone = np.ones(len(rows), bool)
    for device in np.unique(operations.device[rows]):
        everything = np.flatnonzero(operations.device == device)
        order = everything[np.lexsort((operations.end_ns[everything], operations.start_ns[everything]))]
        start, end = operations.start_ns[order], operations.end_ns[order]
        before = np.concatenate([[np.iinfo(np.int64).min], np.maximum.accumulate(end)[:-1]])
        after = np.concatenate([start[1:], [np.iinfo(np.int64).max]])
        free = np.zeros(len(operations), bool)
        free[order] = (before <= start) & (after >= end)
        here = operations.device[rows] == device
        alone[here] = free[rows[here]]
    return alone


def _by_length(operations: Operations, rows: NDArray[np.intp], alike: NDArray[np.intp]) -> NDArray[np.intp]:
    """Groups cut further by duration in steps of a fifth: one name and launch may serve several shapes."""
    duration = np.maximum(operations.end_ns[rows] - operations.start_ns[rows], 1).astype(float)
    step = np.round(np.log(duration) / np.log(1.2)).astype(np.int64)
    return group_rows([alike, step])[1]
