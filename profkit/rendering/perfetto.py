"""Timelines for Perfetto (https://ui.perfetto.dev): Chrome's trace event format, gzip-compressed.

Rows of events become JSON text column by column; each name is escaped once.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model.report_memory import MemoryCurve
from profkit.model.states import CAUSE_OF_STATE, SHARE_OF_STATE, State
from profkit.timeline.queue_depth import queue_depth
from profkit.timeline.view import TraceView

__all__ = ["render_perfetto"]

_HOST: Final = 1_000_000
"""Process numbers of hosts start here; devices are numbered from 1."""
_GAPS: Final = 1 << 30
"""The track of a device's idle time."""


def render_perfetto(
    views: Sequence[TraceView], offsets: Sequence[int], memory: Sequence[MemoryCurve] = ()
) -> bytes:
    """Kernels by stream, idle time by cause, the launch queue, phases by thread and memory, as a ``.json.gz``.

    Args:
        views: The traces; their whole recording is written, not only the window.
        offsets: What to add to each trace's times, in ns.
        memory: Memory over time, by device.
    """
    events: list[str] = []
    device = 0
    for number, (view, offset) in enumerate(zip(views, offsets, strict=True)):
        events += _phases(view, offset, _HOST + number)
        for at in range(len(view.trace.devices)):
            device += 1
            events += _operations(view, at, offset, device)
            events += _gaps(view, at, offset, device)
            events += _queue(view, at, offset, device)
    events += _memory(memory, device + 1)
    # The level that is a good bargain, and no time stamp: the same input gives the same bytes.
    text = '{"displayTimeUnit":"ns","traceEvents":[\n' + ",\n".join(events) + "\n]}\n"
    return gzip.compress(text.encode(), compresslevel=6, mtime=0)


def _named(process: int, name: str, threads: dict[int, str]) -> Iterator[str]:
    yield json.dumps({"ph": "M", "name": "process_name", "pid": process, "tid": 0, "args": {"name": name}})
    for thread, label in threads.items():
        yield json.dumps(
            {"ph": "M", "name": "thread_name", "pid": process, "tid": thread, "args": {"name": label}}
        )


def _us(ns: int) -> str:
    """Microseconds as the format wants them, without rounding."""
    sign, size = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{size // 1000}.{size % 1000:03d}"


def _slices(process: int, rows: Sequence[tuple[int, int, int, str, str]]) -> Iterator[str]:
    """Complete events from (start, end, track, escaped name, escaped arguments)."""
    for start, end, track, name, args in rows:
        yield f'{{"ph":"X","pid":{process},"tid":{track},"ts":{_us(start)},"dur":{_us(end - start)},"name":{name},"args":{args}}}'


def _escaped(view: TraceView, ids: NDArray[Any], text: Any = None) -> dict[int, str]:
    strings = view.trace.strings
    return {
        i: json.dumps((text or strings.__getitem__)(i) if i >= 0 else "<unnamed>")
        for i in np.unique(ids).tolist()
    }


def _phases(view: TraceView, offset: int, process: int) -> Iterator[str]:
    ranges, threads = view.trace.ranges, view.trace.threads
    rows = np.flatnonzero(view.phases.rows | view.steps.rows)
    if not len(rows):
        return
    used = np.unique(ranges.thread[rows]).tolist()
    labels = {t: (threads[t].names or (f"thread {threads[t].tid}",))[0] for t in used}
    yield from _named(process, f"host: {view.trace.source.name}", labels)
    names = _escaped(view, ranges.name[rows])
    start, end = ranges.start_ns[rows] + offset, ranges.end_ns[rows] + offset
    columns = zip(
        start.tolist(), end.tolist(), ranges.thread[rows].tolist(), ranges.name[rows].tolist(), strict=True
    )
    yield from _slices(process, [(s, e, t, names[n], "{}") for s, e, t, n in columns])


def _operations(view: TraceView, device: int, offset: int, process: int) -> Iterator[str]:
    operations, work = view.trace.operations, view.work.class_of_name
    rows = np.flatnonzero(operations.device == device)
    # Streams may be 64-bit pointers; a track is a small number.
    streams, track = np.unique(operations.stream[rows], return_inverse=True)
    name = view.trace.devices[device].name or f"device {device}"
    labels = {at + 1: f"stream {stream}" for at, stream in enumerate(streams.tolist())}
    yield from _named(process, f"{name}: {view.trace.source.name}", {**labels, _GAPS: "idle, by cause"})
    full = _escaped(view, operations.name[rows])
    short = _escaped(
        view, operations.name[rows], lambda i: work[i].short_name if i in work else view.trace.strings[i]
    )
    path = view.phases.path_of(view.phases.of_operation[rows])
    paths = {-1: "null", **{at: json.dumps(text) for at, text in enumerate(view.phases.paths)}}
    bound = {s: json.dumps(SHARE_OF_STATE[s]) for s in State}
    columns = zip(
        (operations.start_ns[rows] + offset).tolist(),
        (operations.end_ns[rows] + offset).tolist(),
        (track + 1).tolist(),
        operations.name[rows].tolist(),
        path.tolist(),
        view.state[rows].tolist(),
        strict=True,
    )
    yield from _slices(
        process,
        [
            (s, e, t, short[n], f'{{"bound":{bound[State(b)]},"phase":{paths[p]},"name":{full[n]}}}')
            for s, e, t, n, p, b in columns
        ],
    )


def _gaps(view: TraceView, device: int, offset: int, process: int) -> Iterator[str]:
    segments = view.segments[device]
    idle = segments.state >= State.INPUT
    start, end = segments.start_ns[idle] + offset, segments.end_ns[idle] + offset
    causes = [json.dumps(CAUSE_OF_STATE[State(s)]) for s in segments.state[idle].tolist()]
    yield from _slices(
        process,
        [(s, e, _GAPS, c, "{}") for s, e, c in zip(start.tolist(), end.tolist(), causes, strict=True)],
    )


def _queue(view: TraceView, device: int, offset: int, process: int) -> Iterator[str]:
    """A counter of what has been launched and not begun: an empty queue means that the device waits for the host."""
    time, depth = queue_depth(view, device)
    for time_ns, queued in zip((time + offset).tolist(), depth.tolist(), strict=True):
        yield _counter(process, time_ns, '"launch queue"', {"operations": queued})


def _counter(process: int, time_ns: int, label: str, values: dict[str, int]) -> str:
    return (
        f'{{"ph":"C","pid":{process},"tid":0,"ts":{_us(time_ns)},"name":{label},"args":{json.dumps(values)}}}'
    )


def _memory(curves: Sequence[MemoryCurve], process: int) -> Iterator[str]:
    """Counters of what is known; a history without times has no place on a timeline."""
    for curve in curves:
        if curve.time_ns is None:
            continue
        both = {"allocated": curve.allocated_bytes, "reserved": curve.reserved_bytes}
        known = {name: sizes for name, sizes in both.items() if sizes}
        label = json.dumps(f"memory of device {curve.device}")
        for time_ns, *sizes in zip(curve.time_ns, *known.values(), strict=True):
            yield _counter(process, time_ns, label, dict(zip(known, sizes, strict=True)))
