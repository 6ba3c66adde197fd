"""Host calls that block, and what their waiting cost the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN, Syncs, Trace
from profkit.timeline.distinct import distinct, sorted_distinct
from profkit.timeline.intervals import Intervals, previous_enclosing
from profkit.timeline.range_names import matching

__all__ = ["Waits", "find_waits", "spend_credit"]

Column = NDArray[np.int64]

# CUDA runtime and driver API references, and HIP's: these return only when the device has reached a point.
_BLOCKING: Final = frozenset(
    {
        "cudaDeviceSynchronize",
        "cudaThreadSynchronize",
        "cudaStreamSynchronize",
        "cudaEventSynchronize",
        "cuCtxSynchronize",
        "cuStreamSynchronize",
        "cuEventSynchronize",
        "cudaMemcpy",
        "cudaMemcpy2D",
        "cudaMemcpy3D",
        "cudaMemcpyToSymbol",
        "cudaMemcpyFromSymbol",
        "cudaMemcpyPeer",
        "cuMemcpy",
        "cuMemcpyDtoH",
        "cuMemcpyHtoD",
        "cuMemcpyPeer",
        "hipDeviceSynchronize",
        "hipStreamSynchronize",
        "hipEventSynchronize",
        "hipCtxSynchronize",
        "hipMemcpy",
        "hipMemcpyDtoH",
        "hipMemcpyHtoD",
        "hipMemcpyWithStream",
    }
)


@dataclass(frozen=True, eq=False)
class Waits:
    """Calls that block, outermost only."""

    call: Column
    """Row in `Trace.calls`."""
    start_ns: Column
    end_ns: Column
    thread: Column
    process: Column
    device: Column
    """Index into `Trace.devices` where the file tells which device was waited for, else -1: any."""

    def __len__(self) -> int:
        return len(self.call)


def blocks(name: str) -> bool:
    """Whether a call blocks, by its name (version suffixes such as ``_v2`` or ``_ptsz`` do not matter)."""
    return name in _BLOCKING or name.split("_", 1)[0] in _BLOCKING


def find_waits(trace: Trace) -> Waits:
    """The calls that block: stream, device and event synchronisation, blocking copies."""
    calls = trace.calls
    rows = np.flatnonzero(matching(trace.strings, calls.name, blocks))
    rows = rows[np.lexsort((-calls.end_ns[rows], calls.start_ns[rows], calls.thread[rows]))]
    outermost = np.ones(len(rows), bool)
    borders = np.flatnonzero(np.diff(calls.thread[rows])) + 1
    for part in np.split(np.arange(len(rows)), borders):
        outermost[part] = previous_enclosing(calls.end_ns[rows[part]].astype(np.int64)) < 0
    rows = rows[outermost]
    thread = calls.thread[rows].astype(np.int64)
    process = np.array([t.process for t in trace.threads] or [-1], np.int64)[thread]
    device = _waited_device(trace, process, calls.correlation[rows])
    return Waits(
        rows,
        calls.start_ns[rows].astype(np.int64),
        calls.end_ns[rows].astype(np.int64),
        thread,
        process,
        device,
    )


def _waited_device(trace: Trace, process: Column, correlation: NDArray[Any]) -> Column:
    """The device of each wait: by the context of its synchronisation row, else the only one of its process."""
    operations = trace.operations
    found = np.full(len(process), -1, np.int64)
    for each in distinct(process)[0]:
        mine = process == each
        own = operations.process == each
        devices = distinct(operations.device[own])[0]
        if len(devices) == 1:
            found[mine] = devices[0]
            continue
        pairs = np.unique(np.stack((operations.context[own], operations.device[own])), axis=1)
        device_of_context = {c: d for c, d in pairs.T.tolist() if c != UNKNOWN}
        contexts = _contexts(trace.syncs, int(each))
        found[mine] = [
            device_of_context.get(contexts.get(c, UNKNOWN), -1) for c in correlation[mine].tolist()
        ]
    return found


def _contexts(syncs: Syncs, process: int) -> dict[int, int]:
    mine = (syncs.process == process) & (syncs.correlation != 0)
    return dict(zip(syncs.correlation[mine].tolist(), syncs.context[mine].tolist(), strict=True))


def spend_credit(
    amount: Column, ready: Column, demand: Intervals, borders: Column
) -> tuple[Column, Intervals]:
    """Attribute later idle time to earlier waits, oldest first.

    Each wait brings a credit of the time that it blocked. From its return on, the demand uses it up; what is
    left lapses at the next border. That is a queue with one server, in the clock that runs only while there
    is demand: a wait is served from the later of its arrival and the end of the one before (Lindley, 1952).

    Args:
        amount: The time that each wait blocked, in ns, ordered by ``ready``.
        ready: When each wait returned.
        demand: Idle time of the device that may be attributed to a wait.
        borders: Where credit lapses: the ends of the step tiles.

    Returns:
        The idle time attributed to each wait, in ns, and when that was.
    """
    cost = np.zeros(len(amount), np.int64)
    served_start, served_end = np.zeros(len(amount), np.int64), np.zeros(len(amount), np.int64)
    region = np.searchsorted(borders, ready, side="left")
    arrival = demand.before(ready)
    lapse = np.append(demand.before(borders), demand.total_ns)
    for each in np.unique(region):
        mine = np.flatnonzero(region == each)
        before = np.concatenate(([0], np.cumsum(amount[mine])[:-1]))
        start = np.maximum.accumulate(arrival[mine] - before) + before
        served_start[mine] = np.minimum(start, lapse[each])
        served_end[mine] = np.minimum(start + amount[mine], lapse[each])
        cost[mine] = served_end[mine] - served_start[mine]
    return cost, _on_the_clock(demand, Intervals.of(served_start, served_end))


def _on_the_clock(demand: Intervals, spent: Intervals) -> Intervals:
    """Intervals of the demand's own clock as intervals of real time."""
    if not len(spent):
        return Intervals.none()
    offset = np.concatenate(([0], np.cumsum(demand.end - demand.start)))
    cuts = sorted_distinct(np.concatenate((offset, spent.start, spent.end)))
    left, right = cuts[:-1], cuts[1:]
    kept = spent.contains(left)
    left, right = left[kept], right[kept]
    index = np.searchsorted(offset, left, side="right") - 1
    start = demand.start[index] + left - offset[index]
    return Intervals.of(start, start + (right - left))
