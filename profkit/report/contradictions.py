"""Numbers of a file that contradict each other. Each is a finding; none is believed in silence.

A stream that does two things at once, a clock that goes back, ids that stand for two launches, work that no GPU
can do: every rule was tried on some eighty recordings of several tools and years, and is silent on all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import CopyKind, Finding, OperationKind, Severity
from profkit.model.findings import Param
from profkit.roofline.thresholds import IMPOSSIBLE, MOST_EFFICIENT
from profkit.timeline.view import TraceView

__all__ = ["Contradictions", "contradiction_findings"]

_NOTABLE: Final = 0.01
"""A share of the operations below this is told as information only."""
_RARE: Final = 0.1
"""A share of calls whose ids fall with time, up to which the times are wrong and not the ids."""
_LARGEST_CACHE_BYTES: Final = 256 << 20
"""What no GPU's cache exceeds: as much of a copy may never reach the memory."""

Rows = NDArray[np.int64]
_QUEUE: Final = ("process", "device", "context", "stream")
"""What together names one queue of work: a stream of one context of one process."""


@dataclass(frozen=True, kw_only=True)
class Contradictions:
    """What a trace says that cannot all be true."""

    overruns: int
    """Operations that run past the next but one of their stream."""
    written_ns: int
    """How long these are said to be."""
    possible_ns: int
    """How long they can be."""
    longest: str | None
    device_steps_back: int
    host_steps_back: int
    steps_out_of_order: int
    clashes: int
    kernels_too_efficient: int
    kernels_impossible: int
    highest_efficiency: float
    """Of the kernels that are too efficient; else 0."""
    copies_impossible: int

    @classmethod
    def of(cls, view: TraceView) -> Contradictions:
        """Those of one trace."""
        operations = view.trace.operations
        rows, after = _overrunning(view)
        length = operations.end_ns[rows] - operations.start_ns[rows]
        excess = view.work.excess[~np.isnan(view.work.excess)]
        return cls(
            overruns=len(rows),
            written_ns=int(length.sum()),
            possible_ns=int((operations.start_ns[after] - operations.start_ns[rows]).sum()),
            longest=view.trace.strings[int(operations.name[rows[np.argmax(length)]])] if len(rows) else None,
            device_steps_back=_device_steps_back(view),
            host_steps_back=_host_steps_back(view),
            steps_out_of_order=_steps_out_of_order(view),
            clashes=_clashing(view),
            kernels_too_efficient=len(excess),
            kernels_impossible=int((excess > IMPOSSIBLE).sum()),
            highest_efficiency=float(excess.max(initial=0)),
            copies_impossible=_impossible_copies(view),
        )


def contradiction_findings(found: Sequence[Contradictions], operation_ns: int) -> list[Finding]:
    """What the traces say that cannot all be true.

    Args:
        found: Those of each trace.
        operation_ns: The summed time of all operations.
    """
    return [*_overruns(found, operation_ns), *_clocks(found), *_clashes(found), *_too_efficient(found)]


def _in_queue_order(view: TraceView, rows: Rows) -> tuple[Rows, NDArray[np.bool_]]:
    """Some operations by queue and start, and whether each is in the queue of the one before."""
    operations = view.trace.operations
    keys = [getattr(operations, name)[rows] for name in _QUEUE]
    order = rows[np.lexsort((operations.end_ns[rows], operations.start_ns[rows], *keys[::-1]))]
    same = np.ones(len(order), bool)
    same[:1] = False
    for name in _QUEUE:
        column = getattr(operations, name)[order]
        same[1:] &= column[1:] == column[:-1]
    return order, same


def _own_launches(view: TraceView) -> Rows:
    """Operations that were launched one by one: nodes of a graph run side by side under one stream's number."""
    operations = view.trace.operations
    alone = (operations.graph_node == 0) & (operations.kind != OperationKind.GRAPH)
    calls = np.bincount(view.launches.call[view.launches.linked], minlength=max(len(view.trace.calls), 1))
    shared = np.where(view.launches.linked, calls[view.launches.call] > 1, False)
    return np.flatnonzero(alone & ~shared)


def _overrunning(view: TraceView) -> tuple[Rows, Rows]:
    """Operations that last beyond the start of the next but one of their stream, and the next of each.

    A stream does one thing after the other. Only the next may begin early (programmatic dependent launch).
    """
    order, same = _in_queue_order(view, _own_launches(view))
    if len(order) < 3:
        return order[:0], order[:0]
    operations = view.trace.operations
    over = same[1:-1] & same[2:] & (operations.end_ns[order[:-2]] > operations.start_ns[order[2:]])
    at = np.flatnonzero(over)
    return order[at], order[at + 1]


def _overruns(found: Sequence[Contradictions], operation_ns: int) -> list[Finding]:
    count = sum(each.overruns for each in found)
    if not count:
        return []
    written, possible = sum(each.written_ns for each in found), sum(each.possible_ns for each in found)
    longest = next(each.longest for each in found if each.longest is not None)
    severity = Severity.ERROR if written - possible > _NOTABLE * operation_ns else Severity.WARNING
    params: dict[str, Param] = {"written_ns": written, "possible_ns": possible, "longest": longest[:80]}
    return [Finding("busy-over-100", severity, count=count, params=params)]


def _clocks(found: Sequence[Contradictions]) -> list[Finding]:
    params = {
        "operations": sum(each.device_steps_back for each in found),
        "calls": sum(each.host_steps_back for each in found),
        "steps": sum(each.steps_out_of_order for each in found),
    }
    count = sum(params.values())
    return [Finding("clock-went-back", Severity.WARNING, count=count, params=params)] if count else []


def _device_steps_back(view: TraceView) -> int:
    """A stream keeps the order in which one thread fills it."""
    operations, launches = view.trace.operations, view.launches
    rows = _own_launches(view)
    rows = rows[launches.linked[rows]]
    keys = [getattr(operations, name)[rows] for name in _QUEUE] + [launches.thread[rows]]
    order = rows[np.lexsort((operations.start_ns[rows], launches.time_ns[rows], *keys[::-1]))]
    back = operations.start_ns[order[1:]] < operations.start_ns[order[:-1]]
    for column in (*(getattr(operations, name) for name in _QUEUE), launches.thread):
        back &= column[order[1:]] == column[order[:-1]]
    return int(np.count_nonzero(back))


def _host_steps_back(view: TraceView) -> int:
    """Ids are given out in order, so that of one thread's calls the later has the greater.

    Where ids do not mostly rise with time, somebody has numbered the calls anew, and they tell nothing.
    """
    calls = view.trace.calls
    rows = np.flatnonzero(calls.correlation != 0)
    order = rows[np.lexsort((calls.correlation[rows], calls.driver[rows], calls.thread[rows]))]
    back = calls.start_ns[order[1:]] < calls.start_ns[order[:-1]]
    back &= calls.correlation[order[1:]] != calls.correlation[order[:-1]]
    pairs = np.ones(len(back), bool)
    for column in (calls.driver, calls.thread):
        pairs &= column[order[1:]] == column[order[:-1]]
    count = int(np.count_nonzero(back & pairs))
    return count if count <= _RARE * np.count_nonzero(pairs) else 0


def _steps_out_of_order(view: TraceView) -> int:
    """Steps are in the order of their starts; so must be the numbers that torch.profiler gave them."""
    numbers = [name.partition("#")[2] for name in view.steps.names if name.startswith("ProfilerStep#")]
    found = np.array([int(number) for number in numbers if number.isdecimal() and len(number) < 19], np.int64)
    return int(np.count_nonzero(found[1:] < found[:-1]))


def _clashes(found: Sequence[Contradictions]) -> list[Finding]:
    count = sum(each.clashes for each in found)
    return [Finding("correlation-clash", Severity.WARNING, count=count)] if count else []


def _clashing(view: TraceView) -> int:
    """Two launches, one after the other, with one id: which of them launched the operation is not known."""
    trace = view.trace
    calls = trace.calls
    if not len(calls):
        return 0
    used = np.isin(calls.correlation, trace.operations.correlation) & (calls.correlation != 0)
    rows = np.flatnonzero(used)
    process = np.array([thread.process for thread in trace.threads] or [-1], np.int64)[calls.thread]
    order = rows[np.lexsort((calls.start_ns[rows], calls.correlation[rows], process[rows]))]
    same = (process[order[1:]] == process[order[:-1]]) & (
        calls.correlation[order[1:]] == calls.correlation[order[:-1]]
    )
    # A driver call inside its runtime call has its id, and is the same launch.
    apart = same & (calls.start_ns[order[1:]] >= calls.end_ns[order[:-1]])
    pairs = np.stack([process[order[1:]][apart], calls.correlation[order[1:]][apart]])
    return int(np.unique(pairs, axis=1).shape[1])


def _too_efficient(found: Sequence[Contradictions]) -> list[Finding]:
    kernels = sum(each.kernels_too_efficient for each in found)
    copies = sum(each.copies_impossible for each in found)
    if not kernels and not copies:
        return []
    wrong = copies + sum(each.kernels_impossible for each in found)
    params: dict[str, Param] = {
        "limit_share": MOST_EFFICIENT,
        "kernels": kernels,
        "highest_share": max(each.highest_efficiency for each in found),
        "copies": copies,
        "impossible": wrong,
    }
    severity = Severity.WARNING if wrong else Severity.INFO
    return [Finding("efficiency-over-105", severity, count=kernels + copies, params=params)]


def _impossible_copies(view: TraceView) -> int:
    operations = view.trace.operations
    memset = operations.kind == OperationKind.MEMSET
    within = (operations.kind == OperationKind.COPY) & (operations.copy_kind == CopyKind.DTOD)
    peer = (operations.source_device >= 0) & (operations.source_device != operations.target_device)
    rate = np.array([gpu.bandwidth_bytes_per_s if gpu else np.nan for gpu in view.gpus] or [np.nan])
    moved = operations.bytes * np.where(within, 2.0, 1.0)
    seconds = np.maximum(operations.end_ns - operations.start_ns, 1) / 1e9
    limit = MOST_EFFICIENT * rate[np.maximum(operations.device, 0)] * seconds
    return int(np.count_nonzero((memset | (within & ~peer)) & (moved - _LARGEST_CACHE_BYTES > limit)))
