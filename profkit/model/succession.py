"""Recordings of one program that follow each other, as one trace on one clock."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from profkit.model.columns import UNKNOWN, Table
from profkit.model.trace import Process, Thread, Trace

__all__ = ["first_event_ns", "one_after_another"]

Change = Callable[[NDArray[Any]], NDArray[Any]]
T = TypeVar("T")

_IDS: Final = {
    "correlation": ("operations", "calls", "syncs"),
    "external": ("operations", "ranges"),
    "sequence": ("ranges",),
}
"""The kinds of ids that a tool numbers anew in each recording, and the tables that have them."""


def one_after_another(traces: Sequence[Trace]) -> Trace:
    """One trace of several recordings of the same processes and devices.

    It has the clock, the name and the facts of the first; texts, processes, threads and devices that are the same in
    several stand in it once, and ids that a tool gave twice differ.

    Args:
        traces: In the order of time, with the Unix times of their zeros known for all or for none.
    """
    first = traces[0]
    changes: list[dict[str, Change]] = [{"time": _moved(first, each)} for each in traces]
    strings = _numbered([trace.strings for trace in traces], changes, "strings", str)
    processes = _numbered([trace.processes for trace in traces], changes, "processes", _same_process)
    of_process = [change["processes"] for change in changes]
    threads = _numbered(
        [
            [replace(t, process=int(renumber(np.array([t.process]))[0])) for t in trace.threads]
            for trace, renumber in zip(traces, of_process, strict=True)
        ],
        changes,
        "threads",
        _same_thread,
    )
    devices = _numbered(
        [trace.devices for trace in traces], changes, "devices", lambda d: (d.ordinal, d.uuid)
    )
    before = np.cumsum([0, *(len(trace.operations) for trace in traces)]).tolist()
    for change, offset in zip(changes, before, strict=False):
        change["operations"] = _added(offset)
    for kind, tables in _IDS.items():
        _keep_apart(traces, changes, kind, tables)
    return replace(
        first,
        strings=strings,
        processes=processes,
        threads=threads,
        devices=devices,
        **_tables(traces, changes),
        resumed_ns=[
            at for trace, change in zip(traces, changes, strict=True) for at in _resumed(trace, change)
        ][1:],
        findings=[finding for trace in traces for finding in trace.findings],
        dropped=_summed([trace.dropped for trace in traces]),
    )


def first_event_ns(trace: Trace) -> int:
    """When the first thing happens in a trace, on its own clock; 0 where nothing does."""
    starts = [int(t.start_ns.min()) for t in (trace.operations, trace.calls, trace.ranges) if len(t)]
    return min(starts, default=0)


def _moved(first: Trace, trace: Trace) -> Change:
    return _added((trace.unix_epoch_ns or 0) - (first.unix_epoch_ns or 0))


def _resumed(trace: Trace, change: Mapping[str, Change]) -> list[int]:
    moved: list[int] = change["time"](np.array([first_event_ns(trace), *trace.resumed_ns], np.int64)).tolist()
    return moved


def _added(offset: int) -> Change:
    """Numbers with an offset; unknown ones stay unknown."""
    return lambda values: np.where(values == UNKNOWN, UNKNOWN, values + offset) if offset else values


def _numbered(
    parts: Sequence[Sequence[T]], changes: list[dict[str, Change]], kind: str, same: Callable[[T], Hashable]
) -> list[T]:
    """All different things of several lists; their numbers in it are noted in the changes."""
    found: dict[Hashable, int] = {}
    things: list[T] = []
    for part, change in zip(parts, changes, strict=True):
        place = []
        for thing in part:
            at = found.setdefault(same(thing), len(things))
            if at == len(things):
                things.append(thing)
            place.append(at)
        change[kind] = _looked_up(np.array([*place, UNKNOWN], np.int64))
    return things


def _looked_up(place: NDArray[np.int64]) -> Change:
    # The last one is what an unknown number, -1, becomes.
    return lambda values: place[values]


def _same_process(process: Process) -> Hashable:
    return process.pid, process.rank


def _same_thread(thread: Thread) -> Hashable:
    return thread.process, thread.tid


def _keep_apart(
    traces: Sequence[Trace], changes: list[dict[str, Change]], kind: str, tables: Sequence[str]
) -> None:
    """Number the ids of a kind through, in their order: sums with an offset might not fit."""
    used = 0
    for trace, change in zip(traces, changes, strict=True):
        columns = [getattr(getattr(trace, table), kind) for table in tables]
        ids = np.unique(np.concatenate(columns))
        ids = ids[ids >= 0] if kind == "sequence" else ids[ids != 0]
        change[kind] = _ranked(ids, used + 1)
        used += len(ids)


def _ranked(ids: NDArray[Any], first: int) -> Change:
    def renumber(values: NDArray[Any]) -> NDArray[Any]:
        if not len(ids):
            return values
        at = np.minimum(np.searchsorted(ids, values), len(ids) - 1)
        return np.where(ids[at] == values, at + first, values)

    return renumber


def _tables(traces: Sequence[Trace], changes: Sequence[Mapping[str, Change]]) -> Mapping[str, Any]:
    """Every table of events, with the rows of all."""
    found = {}
    for name in (f.name for f in fields(Trace)):
        tables = [getattr(trace, name) for trace in traces]
        if isinstance(tables[0], Table):
            changed = [table.renumbered(change) for table, change in zip(tables, changes, strict=True)]
            found[name] = type(tables[0]).together(changed)
    return found


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, count in each.items():
            total[reason] = total.get(reason, 0) + count
    return total
