"""Copies that no other stream is ever made to wait for, though other streams run meanwhile.

No recording says which memory a kernel reads, so a missing ``wait_stream`` is told only where nothing could stand in
for it: from one batch of copies to the next, the program makes no call that waits for anything, and a kernel was seen
to run beside the copy that it should come after (or before), so that no implicit order held it back either.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import CopyKind, OperationKind
from profkit.model.report_ranks import StreamRow
from profkit.model.work import OperationBound
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["DEFAULT_STREAM", "unordered_copies"]

Column = NDArray[np.int64]

_ORDERS: Final = re.compile(
    r".*(?:Synchroni[sz]e|Wait|Query|Callback|HostFunc|GraphLaunch|Free(?!Async)).*|(?:cuda|cu|hip)Mem(?:cpy|set)(?!.*Async).*"
    r"|INVALID|(?:unknown|\d).*|",
    re.IGNORECASE | re.DOTALL,
)
"""Calls that make the host or a stream wait, or may; and those whose name is lost."""

DEFAULT_STREAM: Final = 7
"""The number that CUPTI gives to the legacy default stream of a context."""

_FEWEST: Final = 3
"""Batches of copies: after fewer, the wait may lie outside of the recording."""


def unordered_copies(view: TraceView, device: int, number: int) -> list[StreamRow]:
    """Streams of a device that only copy, and that nothing else is ordered with.

    Args:
        view: The trace.
        device: The device's place in it.
        number: The report's id of the device.
    """
    operations, launches = view.trace.operations, view.launches
    mine = operations.device == device
    if (mine & ((operations.kind == OperationKind.GRAPH) | (operations.graph_node != 0))).any():
        return []
    mine &= launches.linked
    kernel = mine & (operations.kind == OperationKind.KERNEL)
    to_device = mine & (operations.copy_kind == CopyKind.HTOD)
    to_host = mine & (operations.copy_kind == CopyKind.DTOH)
    busy = np.unique(operations.stream[mine & ~(to_device | to_host)])
    working = np.flatnonzero(kernel & (view.work.bound != OperationBound.COMMUNICATION))
    found = []
    for copies, late in ((to_device, False), (to_host, True)):
        for stream in np.setdiff1d(operations.stream[copies], busy).tolist():
            rows = np.flatnonzero(copies & (operations.stream == stream))
            if _is_unordered(view, rows, working, reads=late):
                ns = int((operations.end_ns[rows] - operations.start_ns[rows]).sum())
                found.append(
                    StreamRow(
                        device=number,
                        kind="unordered",
                        stream=stream,
                        ns=ns,
                        count=len(rows),
                        window_ns=view.windows[device].total_ns,
                        default=stream == DEFAULT_STREAM,
                    )
                )
    return found


def _is_unordered(view: TraceView, copies: Column, kernels: Column, *, reads: bool) -> bool:
    """Whether nothing orders these copies of one stream with the kernels of others.

    Args:
        view: The trace.
        copies: Rows of the copies of one stream.
        kernels: Rows of kernels of other streams.
        reads: Whether the copies take what kernels made, and should come after them; else they should come before.
    """
    operations, launched = view.trace.operations, view.launches.time_ns
    copies = copies[np.argsort(launched[copies], kind="stable")]
    before = np.searchsorted(np.sort(launched[kernels]), launched[copies])
    # A batch ends where a kernel of another stream is launched.
    opens = np.flatnonzero(np.diff(before, prepend=-1))
    closes = np.append(opens[1:], len(copies)) - 1
    if len(opens) < _FEWEST:
        return False
    orders = _ordering_calls(view, int(operations.process[copies[0]]))
    since, until = launched[copies[closes[:-1]]], launched[copies[opens[1:]]]
    if (np.searchsorted(orders, until) > np.searchsorted(orders, since)).any():
        return False
    after = np.searchsorted(launched[copies[opens]], launched[kernels], "right") - 1
    between = (after >= 0) & (after < len(opens) - 1)
    batch, kernels = after[between] + reads, kernels[between]
    start = np.minimum.reduceat(operations.start_ns[copies], opens)
    end = np.maximum.reduceat(operations.end_ns[copies], opens)
    beside = (operations.start_ns[kernels] < end[batch]) & (operations.end_ns[kernels] > start[batch])
    return bool(beside.any())


def _ordering_calls(view: TraceView, process: int) -> Column:
    """When the process makes calls that order work, or waits are recorded otherwise, in order."""
    calls, waits = view.trace.calls, view.trace.syncs
    of_process = np.array([t.process == process for t in view.trace.threads] or [False])[calls.thread]
    orders = matching(view.trace.strings, calls.name, lambda text: _ORDERS.fullmatch(text) is not None)
    waited = waits.start_ns[waits.process == process]
    return np.sort(np.concatenate((calls.start_ns[of_process & orders], waited))).astype(np.int64)
