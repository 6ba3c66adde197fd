"""Reads SQLite exports of Nsight Systems, of nsys 2020 to today.

Tables and columns are asked for and never assumed: exports leave out what is empty, and each release changes
some. An export is not trusted either: views and virtual tables are not touched, times and ids are checked, and
of what it holds about the machine only a few facts of a known form are taken.
"""

from __future__ import annotations

import sqlite3
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from profkit.errors import ReadError
from profkit.model import Calls, OperationKind, Operations, Ranges, Severity, Trace
from profkit.readers.nsys.activities import Recorded, read_calls, read_device_work, read_overhead, read_syncs
from profkit.readers.nsys.actors import Actors, process_ids, thread_names
from profkit.readers.nsys.clock import Clock
from profkit.readers.nsys.columns import NULL, Columns, distinct, distinct_pairs
from profkit.readers.nsys.database import Database
from profkit.readers.nsys.devices import Devices
from profkit.readers.nsys.nvtx import Marks, read_ranges
from profkit.readers.nsys.python_samples import python_ranges
from profkit.readers.nsys.report_file import exported
from profkit.readers.nsys.samples import python_frames, read_memory, read_samples
from profkit.readers.nsys.strings import StringIds
from profkit.readers.nsys.target import note_diagnostics, note_schema, recorded_rank, source_of
from profkit.readers.strings import Strings

__all__ = ["exported", "read_nsys", "read_nsys_report"]

_OURS = ("STRINGIDS", "META_DATA_EXPORT", "EXPORT_META_DATA", "NVTX_EVENTS", "ANALYSIS_DETAILS")
_EVENT_TABLES = (
    "OSRT_API",
    "SCHED_EVENTS",
    "COMPOSITE_EVENTS",
    "GPU_METRICS",
    "GENERIC_EVENTS",
    "DIAGNOSTIC_EVENT",
)
_RECORD = "Record it again with: nsys profile -t cuda,nvtx -o report python train.py"


def read_nsys(path: Path, name: str) -> Trace:
    """Read an SQLite export of nsys; the file is only ever read.

    Args:
        path: The export, a real file.
        name: Its name for people.

    Raises:
        ReadError: It is not a readable SQLite database, not an nsys export, or holds no events at all.
    """
    with Database(path, name) as database:
        _check(database, name)
        try:
            return _Reading(database, name).trace()
        except sqlite3.Error as error:
            raise ReadError(name, f"not a readable SQLite database ({error})", "Export it again") from error


def read_nsys_report(path: Path, name: str) -> Trace:
    """Read a ``.nsys-rep`` or ``.qdrep`` report, exported through the nsys on the PATH.

    Raises:
        ReadError: There is no nsys, it cannot export the report, or `read_nsys` cannot read the export.
    """
    with exported(path, name) as export:
        return read_nsys(export, name)


class _Reading:
    """One export on its way to a trace: each step needs what the former have found."""

    def __init__(self, database: Database, name: str) -> None:
        self.database = database
        self.name = name
        self.strings = Strings()
        self.string_ids = StringIds(database, self.strings)
        self.recorded = Recorded.of(database)
        self.marks = Marks.of(database, self.string_ids, self.strings)
        activities = [*self.recorded.device_work.values(), self.recorded.calls]
        self.clock = Clock.of(database, activities if any(map(len, activities)) else [self.marks.rows])
        self.work = {kind: self.clock.credible(rows) for kind, rows in self.recorded.device_work.items()}
        self.devices = Devices.of(database, _users(self.work))
        self.active = set(self.devices.processes()).union(
            *(
                distinct(process_ids(rows["globalTid"]))[0].tolist()
                for rows in (self.recorded.calls, self.marks.rows)
            )
        )
        # helpers of the recorded program (shells, compilers) are profiled too, and tell nothing
        helpers = ~np.isin(process_ids(self.recorded.overhead["globalTid"]), list(self.active))
        self.overhead = self.recorded.overhead.take(~helpers)
        rank = recorded_rank(database) if len(set(self.devices.processes())) == 1 else None
        self.source = replace(source_of(database, name), rank=rank)
        self.actors = Actors.of(
            on_device=self.devices.processes(),
            others=distinct(self.recorded.syncs["globalPid"])[0].tolist(),
            thread_ids=[rows["globalTid"] for rows in (self.recorded.calls, self.overhead, self.marks.rows)],
            names=thread_names(database, self.string_ids, self.marks.thread_names),
            rank=rank,
        )

    def trace(self) -> Trace:
        """Everything that the export holds.

        Raises:
            ReadError: There are no events in it.
        """
        texts = (self.string_ids, self.strings)
        operations = read_device_work(self.work, texts, self.devices, self.actors, self.clock)
        frames = python_frames(self.database, self.string_ids, self.strings)
        calls = read_calls(self.recorded.calls, self.string_ids, self.actors, self.clock, frames)
        last = max((int(rows["end"].max()) for rows in self.work.values() if len(rows)), default=NULL)
        if len(calls):
            last = max(last, int(calls.end_ns.max()) + self.clock.shift_ns)
        ranges = read_ranges(self.database, self.marks, self.strings, self.actors, self.clock, last)
        overhead = read_overhead(self.overhead, self.string_ids, self.actors, self.clock)
        python = python_ranges(self.database, *texts, self.actors, self.clock)
        self._note_graphs(
            operations, {self.strings.add(launch) for launch in ("cudaGraphLaunch", "cuGraphLaunch")}, calls
        )
        self._note_emptiness(len(operations), len(calls) + len(ranges))
        note_schema(self.database, self.source.facts.get("schema"))
        note_diagnostics(self.database, self.active, has_ranges=len(ranges) > 0)
        return Trace(
            source=self.source,
            processes=self.actors.processes,
            threads=self.actors.threads,
            devices=self.devices.devices,
            operations=operations,
            calls=calls,
            ranges=_together(ranges, overhead, python),
            syncs=read_syncs(self.recorded.syncs, self.strings, self.actors, self.clock),
            memory=read_memory(self.database, self.devices, self.clock),
            samples=read_samples(self.database, self.strings, self.devices, self.clock),
            strings=self.strings.texts,
            unix_epoch_ns=self.clock.unix_epoch_ns,
            findings=tuple(self.database.findings),
            dropped=dict(self.clock.dropped),
        )

    def _note_graphs(self, operations: Operations, launches: set[int], calls: Calls) -> None:
        """Say when CUDA graphs hide their kernels: as one piece, or, in old exports, altogether."""
        opaque = int(np.count_nonzero(operations.kind == OperationKind.GRAPH))
        if opaque:
            self.database.note("graphs-opaque", Severity.WARNING, opaque)
        replays = calls.correlation[np.isin(calls.name, list(launches))]
        unseen = int(np.count_nonzero(~np.isin(replays, operations.correlation))) if len(replays) else 0
        if unseen:
            self.database.note("graphs-invisible", Severity.WARNING, unseen)

    def _note_emptiness(self, device_events: int, host_events: int) -> None:
        if device_events:
            return
        if not host_events and not self._has_other_events():
            raise ReadError(self.name, "an nsys export without events", _RECORD)
        self.database.note("no-device-work", Severity.ERROR, host_events=host_events)

    def _has_other_events(self) -> bool:
        tables = [self.database.table(name) for name in _EVENT_TABLES]
        return bool(self.clock.dropped) or any(table is not None and table.count() for table in tables)


def _check(database: Database, name: str) -> None:
    """Tell an nsys export from other SQLite files.

    Raises:
        ReadError: It is not one; the message says what it looks like.
    """
    kernels = database.tables.get("CUPTI_ACTIVITY_KIND_KERNEL")
    nvprof = "STRINGTABLE" in database.tables and "STRINGIDS" not in database.tables
    if any(table in database.tables for table in _OURS) or (kernels and not nvprof):
        return
    tables = sorted(database.tables.values())
    if not tables:
        raise ReadError(
            name, "an SQLite database without tables, not an nsys export", "Was the export cut short?"
        )
    if nvprof or any(table.upper().startswith("CUPTI_ACTIVITY_KIND_") for table in tables):
        looks = "looks like an nvprof or Visual Profiler file"
    elif any("dlprof" in table.lower() for table in tables) or {"OPS", "KERNELS", "ITERATIONS"} & set(
        database.tables
    ):
        looks = "looks like a DLProf database"
    else:
        looks = f"its tables are {', '.join(tables[:3])}{'...' if len(tables) > 3 else ''}"
    raise ReadError(name, f"an SQLite database, but not an nsys export ({looks})", _RECORD)


def _users(work: dict[OperationKind, Columns]) -> set[tuple[int, int]]:
    """Which processes ran work on which device ordinals."""
    users: set[tuple[int, int]] = set()
    for rows in work.values():
        users.update(distinct_pairs(rows["globalPid"], rows["deviceId"])[0])
    return users


def _together(*tables: Ranges) -> Ranges:
    return Ranges(
        **{f.name: np.concatenate([getattr(table, f.name) for table in tables]) for f in fields(Ranges)}
    )
