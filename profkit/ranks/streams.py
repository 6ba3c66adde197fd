"""Streams within a rank: copies and collectives that share the compute stream, and streams that never overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model import Finding, OperationKind, Severity
from profkit.model.report_ranks import StreamRow
from profkit.model.rows import replace
from profkit.model.states import State
from profkit.model.work import OperationBound
from profkit.ranks.unordered import DEFAULT_STREAM, unordered_copies
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView

__all__ = ["stream_findings", "stream_rows"]

_NOTABLE: Final = 0.01
"""Of a device's window."""

_OVERLAPPED: Final = 0.05
"""Of the smaller stream's time: with less beside the other's, two streams take turns."""


def stream_rows(view: TraceView, device_ids: Sequence[int]) -> list[StreamRow]:
    """What could overlap on each device of a trace and does not.

    ``copies`` and ``collectives`` are issued on the stream that computes, and run alone there: no other order of
    the same stream could hide them. Copies can hide behind no more than all kernels. ``alone`` is the time of copies that have streams of their own, and yet mostly
    run while nothing computes. ``turns`` is the time of the second-busiest stream when it hardly ever runs beside
    the busiest one. ``ns`` is the most that overlap could bring. ``unordered`` are copies that no stream is made to
    wait for (`profkit.ranks.unordered`); their ``ns`` is their time.
    """
    found = []
    for device, number in enumerate(device_ids):
        found += [*_of_device(view, device, number), *unordered_copies(view, device, number)]
    return found


def stream_findings(rows: Sequence[StreamRow]) -> list[Finding]:
    """The notable rows as findings."""
    found = []
    for kind, code in _CODES.items():
        mine = [row for row in rows if row.kind == kind]
        ns, window = sum(row.ns for row in mine), sum(row.window_ns for row in mine)
        if mine and window:
            params = {
                "total_ns": ns,
                "share": ns / window,
                "devices": len(mine),
                "stream": mine[0].stream,
                "default_stream": any(row.default for row in mine),
                "pageable": sum(row.pageable for row in mine),
            }
            count = sum(row.count for row in mine)
            found.append(Finding(code, Severity.INFO, count=count, params=params))
    return found


_CODES: Final = {
    "copies": "copies-on-compute-stream",
    "collectives": "collectives-on-compute-stream",
    "alone": "copies-run-alone",
    "unordered": "copies-without-wait",
    "turns": "streams-take-turns",
}


def _of_device(view: TraceView, device: int, number: int) -> list[StreamRow]:
    operations = view.trace.operations
    window = view.windows[device]
    inside = (operations.device == device) & (window.within(operations.start_ns, operations.end_ns) > 0)
    kernel = inside & (operations.kind == OperationKind.KERNEL)
    kernel &= view.work.bound != OperationBound.COMMUNICATION
    streams, time = _busy_streams(view, np.flatnonzero(kernel))
    if not len(streams):
        return []
    segments = view.window_segments(device)
    length = segments.end_ns - segments.start_ns
    empty = StreamRow(
        device=number, kind="alone", stream=-1, ns=0, count=0, window_ns=view.windows[device].total_ns
    )
    found = []
    most_ns = (
        Intervals.of(operations.start_ns[kernel], operations.end_ns[kernel]).intersection(window).total_ns
    )
    for kind, state in _ON_COMPUTE_STREAM.items():
        shown = segments.state == state
        shown &= operations.stream[np.maximum(segments.operation, 0)] == streams[0]
        row = replace(_shown(view, empty, segments.operation[shown], length[shown]), kind=kind)
        found.append(replace(row, ns=min(row.ns, most_ns)) if kind == "copies" else row)
    alone = segments.state == State.TRANSFER
    alone &= ~np.isin(operations.stream[np.maximum(segments.operation, 0)], streams)
    row = _shown(view, empty, segments.operation[alone], length[alone])
    copies = inside & (operations.kind == OperationKind.COPY) & ~np.isin(operations.stream, streams)
    copied = (
        Intervals.of(operations.start_ns[copies], operations.end_ns[copies]).intersection(window).total_ns
    )
    found += [replace(row, ns=min(row.ns, most_ns))] if row.ns * 2 > copied else []
    if len(time) > 1:
        both = time[0].intersection(time[1]).total_ns
        turns = time[1].total_ns if both <= _OVERLAPPED * time[1].total_ns else 0
        default = DEFAULT_STREAM in streams[:2]
        second = {"stream": streams[1], "ns": turns, "count": len(time[1]), "default": default}
        found.append(replace(empty, kind="turns", **second))
    return [row for row in found if row.ns >= _NOTABLE * window.total_ns]


_ON_COMPUTE_STREAM: Final[Mapping[Literal["copies", "collectives"], State]] = {
    "copies": State.TRANSFER,
    "collectives": State.COMMUNICATION,
}


def _shown(
    view: TraceView, empty: StreamRow, operation: NDArray[np.int64], length: NDArray[np.int64]
) -> StreamRow:
    """Copies or collectives by the segments in which they run alone."""
    operations, rows = view.trace.operations, np.unique(operation)
    stream = int(operations.stream[rows[0]]) if len(rows) else -1
    pageable = int((operations.pageable[rows] == 1).sum())
    return replace(
        empty,
        stream=stream,
        ns=int(length.sum()),
        count=len(rows),
        pageable=pageable,
        default=stream == DEFAULT_STREAM,
    )


def _busy_streams(view: TraceView, rows: NDArray[np.int64]) -> tuple[list[int], list[Intervals]]:
    """The streams that run kernels, busiest first, and when they do."""
    operations = view.trace.operations
    stream = operations.stream[rows]
    found = []
    for each in np.unique(stream).tolist():
        mine = rows[stream == each]
        found.append((each, Intervals.of(operations.start_ns[mine], operations.end_ns[mine])))
    found.sort(key=lambda item: (-item[1].total_ns, item[0]))
    return [each for each, _ in found], [when for _, when in found]
