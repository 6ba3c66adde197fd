"""One step as a program: what the host did in order, and what each launch made the device do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind, RangeKind
from profkit.model.states import State
from profkit.timeline.view import TraceView

__all__ = ["LAUNCH", "WAIT", "Program", "step_program"]

LAUNCH: Final = 0
WAIT: Final = 1

_MOST_OPERATIONS: Final = 12_000
"""A longer step is not replayed, to keep the time of an analysis bounded: there is no advice on it."""

_ENOUGH: Final = 5
"""Launches on an idle device that give a latency; with fewer, the usual one is taken."""

_USUAL_LATENCY_NS: Final = 1_600
"""The median over the recordings in tests/data that have enough."""

_CLOCKS_APART_NS: Final = 50_000
"""Host and device times differ by less (see `profkit.timeline.launches`)."""

_MOST_STREAMS: Final = 62
"""Streams that have a bit of their own; those beyond are always waited for."""

_SLACK_NS: Final = 1_000
"""An operation this much later than its launch and its stream allow waited for another stream."""

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Program:
    """The representative step of a device: host tokens in order, and the operations that they launch.

    A token is a launch call (with the operations it launched) or a wait; the last one launches nothing and stands
    for the host time up to the end of the step. All times are ns as recorded.
    """

    step_ns: int
    """The recorded length of the step on the device."""
    kind: NDArray[np.int8]
    gap_ns: Column
    """Host time between the token before and this one."""
    input_ns: Column
    """Of the gap: fetching data."""
    allocation_ns: Column
    """Of the gap: cudaMalloc, cudaFree and the like."""
    work_ns: Column
    """Of the gap: the program's own work, which launches nothing: no change of launching takes it away."""
    profiler_ns: Column
    """Of the gap: the recorder at work, by its own account."""
    own_ns: Column
    """Of a launch: its call, without the time for which a full queue or its stream held it up. Of a wait: from the
    device's reaching it to its return."""
    held: NDArray[np.bool_]
    """Launches of copies that first wait until their stream is free."""
    unawaited: Column
    """Of a wait: the streams that it does not wait for, stream n as bit n."""
    ranges: Column
    """Recorded ranges in the gap and of the token: each cost the recorder time."""
    calls: Column
    """Recorded calls in the gap and of the token: each cost the recorder time."""
    call: Column
    """Row in `Trace.calls`; for the end of the step, -1."""
    first: Column
    """The token's first operation; its operations are ``first[k]`` to ``first[k + 1]``."""
    row: Column
    """For each operation: its row in `Trace.operations`."""
    duration_ns: Column
    stream: Column
    """A small number."""
    lead_ns: Column
    """Time between the moment when everything that it waits for was done and its start."""
    after: Column
    """The operation of another stream that it waits for, or -1."""
    early_ns: Column
    """How long before the return of its launch an operation may start: copies that the call itself carries out."""
    latency_ns: int
    """From a launch's return to the start of its operation on an idle device."""

    @property
    def tokens(self) -> int:
        """How many tokens there are."""
        return len(self.kind)

    @property
    def kept_ns(self) -> Column:
        """Of each gap: what has nothing to do with launching, fetching data, allocation and the program's work."""
        return self.input_ns + self.allocation_ns + self.work_ns


def step_program(view: TraceView, device: int) -> Program | None:
    """The program of the kept step of median length, or None where there is none to replay.

    Without steps, the window is one step: from its first launch to the end of the last operation.
    """
    rows, since, until = _representative(view, device)
    rows = rows[view.launches.linked[rows]]
    if not 0 < len(rows) <= _MOST_OPERATIONS:
        return None
    launches, operations = view.launches, view.trace.operations
    rows = rows[np.lexsort((operations.start_ns[rows], launches.time_ns[rows]))]
    call, first = np.unique(launches.call[rows], return_index=True)
    order = np.argsort(first)
    call, first = call[order], first[order]
    wait = _waits(view, rows, since, until)
    tokens = _tokens(view, call, wait, (since, until))
    tokens["gap_ns"][-1] = min(tokens["gap_ns"][-1], _usual_tail(view, device))
    # Memory that is asked for while data is fetched is part of the fetching.
    tokens["input_ns"] = np.minimum(tokens["input_ns"], tokens["gap_ns"])
    tokens["allocation_ns"] = np.minimum(tokens["allocation_ns"], tokens["gap_ns"] - tokens["input_ns"])
    left = tokens["gap_ns"] - tokens["input_ns"] - tokens["allocation_ns"]
    tokens["work_ns"] = np.minimum(tokens["work_ns"], left)
    tokens["profiler_ns"] = np.minimum(tokens["profiler_ns"], left - tokens["work_ns"])
    stream, lead, after, latency = _device_side(view, rows)
    early = _early(view, rows)
    counts = np.append(np.diff(np.append(first, len(rows))), 0)
    op_first = np.concatenate(([0], np.cumsum(_spread(tokens["kind"], counts))))
    tokens["unawaited"] = _unawaited(view, wait, rows, stream, tokens)
    return Program(
        step_ns=until - since
        if not view.steps.count
        else int(view.steps.tile_ns[device, view.median_step(device)]),
        first=op_first.astype(np.int64),
        row=rows,
        duration_ns=(operations.end_ns - operations.start_ns)[rows].astype(np.int64),
        stream=stream,
        lead_ns=lead,
        after=after,
        early_ns=early,
        latency_ns=latency,
        **tokens,
    )


def _spread(kind: NDArray[np.int8], counts: Column) -> Column:
    spread = np.zeros(len(kind), np.int64)
    spread[kind == LAUNCH] = counts
    return spread


def _representative(view: TraceView, device: int) -> tuple[Column, int, int]:
    """The operations of the step, and the host time from the end of the step before to its own end."""
    mine = view.trace.operations.device == device
    if not view.steps.count:
        rows = np.flatnonzero(mine & view.kept)
        launched = rows[view.launches.linked[rows]]
        since, until = view.window_hull(device)
        return rows, int(view.launches.time_ns[launched].min(initial=since)), until
    step = view.median_step(device)
    since = int(view.steps.start_ns[step] if view.steps.resumes[step] else view.steps.end_ns[step - 1])
    return np.flatnonzero(mine & (view.steps.of_operation == step)), since, int(view.steps.end_ns[step])


def _usual_tail(view: TraceView, device: int) -> int:
    """Host time from the last launch of a step to its end, the median: a recorder that stops there is no part of it."""
    step = view.steps.of_operation
    rows = np.flatnonzero(
        (view.trace.operations.device == device)
        & np.append(view.kept_steps, False)[step]
        & view.launches.linked
    )
    if not view.steps.count or not len(rows):
        return int(np.iinfo(np.int64).max)
    last = np.full(view.steps.count, np.iinfo(np.int64).min)
    np.maximum.at(last, step[rows], view.launches.return_ns[rows])
    launching = np.unique(step[rows])
    return max(int(np.median(view.steps.end_ns[launching] - last[launching])), 0)


def _waits(view: TraceView, rows: Column, since: int, until: int) -> Column:
    """The waits of the step's process, by row of `Waits`."""
    waits = view.waits
    process = np.unique(view.trace.operations.process[rows])
    inside = (waits.start_ns >= since) & (waits.start_ns < until)
    return np.flatnonzero(inside & np.isin(waits.process, process))


def _tokens(view: TraceView, call: Column, wait: Column, span: tuple[int, int]) -> dict[str, NDArray[Any]]:
    calls, waits = view.trace.calls, view.waits
    since, until = span
    # A blocking copy is both: it launches, then waits.
    start = np.concatenate((calls.start_ns[call], waits.start_ns[wait])).astype(np.int64)
    end = np.concatenate((calls.end_ns[call], waits.end_ns[wait])).astype(np.int64)
    kind = np.repeat(np.array([LAUNCH, WAIT], np.int8), [len(call), len(wait)])
    order = np.lexsort((kind, start))
    start, end, kind = start[order], end[order], kind[order]
    row = np.concatenate((call, waits.call[wait]))[order]
    both = np.isin(call, waits.call[wait])
    end = np.where((kind == LAUNCH) & np.isin(row, call[both]), start, end)
    # The end of the step: nothing is launched, but the host is not done before it.
    last = max(until, int(end.max()))
    start, end = np.append(start, last), np.append(end, last)
    kind, row = np.append(kind, np.int8(LAUNCH)), np.append(row, row[-1])
    reach = np.concatenate(([since], np.maximum.accumulate(np.maximum(end, since))[:-1]))
    begin = np.minimum(reach, start)
    gap = np.maximum(start - reach, 0)
    release = _release(view, kind, start, end)
    held, call_ns = _own(view, kind, row, start, end)
    parts = _within_gaps(view, row, reach, start)
    row[-1] = -1
    return {
        "kind": kind,
        "gap_ns": gap,
        **parts,
        "own_ns": np.where(kind == LAUNCH, call_ns, release),
        "held": held,
        **_events(view, begin, end),
        "call": row,
    }


def _unawaited(
    view: TraceView, wait: Column, rows: Column, stream: Column, tokens: dict[str, NDArray[Any]]
) -> Column:
    """Of each wait, the streams of the step that still ran what was launched before, when it returned.

    Where that is every stream with work, it waited for a moment inside one of them, which is not known.
    """
    waits, launched = view.waits, view.launches.time_ns[rows]
    end = view.trace.operations.end_ns[rows]
    found = np.zeros(len(wait), np.int64)
    for at, (begun, over) in enumerate(
        zip(waits.start_ns[wait].tolist(), waits.end_ns[wait].tolist(), strict=True)
    ):
        working = launched < begun
        running = np.unique(stream[working & (end > over + _CLOCKS_APART_NS)])
        if len(running) < len(np.unique(stream[working])):
            found[at] = sum(1 << line for line in running.tolist() if line < _MOST_STREAMS)
    spread = np.zeros(len(tokens["kind"]), np.int64)
    spread[tokens["kind"] == WAIT] = found[np.argsort(waits.start_ns[wait], kind="stable")]
    return spread


def _release(view: TraceView, kind: NDArray[np.int8], start: Column, end: Column) -> Column:
    """Of each wait, the time after the device was done: at most what the call took."""
    ends = np.sort(view.trace.operations.end_ns, kind="stable")
    at = np.searchsorted(ends, end, side="right") - 1
    done = np.where(at >= 0, ends[np.maximum(at, 0)], start) if len(ends) else start
    released: Column = end - np.clip(done, start, end)
    return released


def _own(
    view: TraceView, kind: NDArray[np.int8], row: Column, start: Column, end: Column
) -> tuple[NDArray[np.bool_], Column]:
    """Which copies wait for their stream, and how long each launch call takes when nothing holds it up."""
    queue, waits = view.queue, view.waits
    launch = (kind == LAUNCH) & (end > start)
    free = np.minimum(queue.wait_end_ns[row], end)
    # The wait of a blocking copy is a token of its own.
    held = launch & (free > start) & ~np.isin(row, waits.call)
    length = np.where(held, end - free, end - start)
    return held, np.where(launch & queue.blocked[row], np.minimum(length, queue.usual_ns), length)


def _within_gaps(view: TraceView, row: Column, reach: Column, start: Column) -> dict[str, Column]:
    thread = view.trace.calls.thread[row]
    states = {
        "input_ns": State.INPUT,
        "allocation_ns": State.ALLOCATION,
        "work_ns": State.HOST_WORK,
        "profiler_ns": State.PROFILER,
    }
    found = {name: np.zeros(len(row), np.int64) for name in states}
    for each in np.unique(thread).tolist():
        mine = thread == each
        doing = view.activity.of_thread(each)
        until = np.maximum(start[mine], reach[mine])
        for name, state in states.items():
            found[name][mine] = doing[state].within(reach[mine], until)
    return found


def _events(view: TraceView, begin: Column, end: Column) -> dict[str, Column]:
    """Host events that the recorder wrote between each token's predecessor and its end."""
    ranges, calls = view.trace.ranges, view.trace.calls
    # A Python frame costs far less than a range that torch makes; and its time is mostly that of its children.
    host = np.isin(ranges.kind, (RangeKind.ANNOTATION, RangeKind.OPERATOR))
    found = {}
    for name, start in (("ranges", ranges.start_ns[host]), ("calls", calls.start_ns)):
        times = np.sort(start, kind="stable")
        found[name] = np.searchsorted(times, end) - np.searchsorted(times, begin)
    return found


def _device_side(view: TraceView, rows: Column) -> tuple[Column, Column, Column, int]:
    """Streams, leads, dependencies and the launch latency of the step's operations."""
    operations = view.trace.operations
    # From the earliest event of the step, so that -1 is before all.
    origin = int(min(view.launches.time_ns[rows].min(), operations.start_ns[rows].min()))
    start = (operations.start_ns[rows] - origin).astype(np.int64)
    end = (operations.end_ns[rows] - origin).astype(np.int64)
    _, stream = np.unique(operations.stream[rows], return_inverse=True)
    stream = np.ravel(stream).astype(np.int64)
    returned = view.launches.return_ns[rows] - origin
    before = _previous_end(start, end, stream)
    late = start - np.maximum(returned, before)
    idle = (returned > before) & (late > -_CLOCKS_APART_NS)
    idle &= before >= 0
    latency = int(np.median(np.maximum(late[idle], 0))) if idle.sum() >= _ENOUGH else _USUAL_LATENCY_NS
    ready = np.maximum(returned + latency, before)
    after = np.full(len(rows), -1, np.int64)
    order = np.argsort(end, kind="stable")
    last = np.searchsorted(end[order], start, side="right") - 1
    candidate = np.where(last >= 0, order[np.maximum(last, 0)], -1)
    waits = (
        (start - ready > _SLACK_NS)
        & (candidate >= 0)
        & (stream[candidate] != stream)
        & (end[candidate] > ready)
    )
    after[waits] = candidate[waits]
    ready = np.where(after >= 0, np.maximum(ready, end[after]), ready)
    # What the first operation of a stream waited for lies before the step.
    lead = np.where(before >= 0, np.clip(start - ready, 0, None), 0)
    return stream, lead, after, latency


def _early(view: TraceView, rows: Column) -> Column:
    """A copy of pageable memory runs while its call does; a kernel starts when the call has returned."""
    operations, launches = view.trace.operations, view.launches
    copies = operations.kind[rows] == OperationKind.COPY
    ahead = np.minimum(
        launches.return_ns[rows] - operations.start_ns[rows],
        launches.return_ns[rows] - launches.time_ns[rows],
    )
    early: Column = np.where(copies, np.maximum(ahead, 0), 0).astype(np.int64)
    return early


def _previous_end(start: Column, end: Column, stream: Column) -> Column:
    """The end of the operation before on the same stream; -1 for the first."""
    before = np.full(len(start), -1, np.int64)
    for each in np.unique(stream).tolist():
        mine = np.flatnonzero(stream == each)
        mine = mine[np.argsort(start[mine], kind="stable")]
        before[mine[1:]] = np.maximum.accumulate(end[mine])[:-1]
    return before
