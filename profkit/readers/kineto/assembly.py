"""Columns as written to a `Trace`: what is not credible is dropped and counted, then everything is joined."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import (
    UNKNOWN,
    Calls,
    Collectives,
    CopyKind,
    MemoryEvents,
    OperationKind,
    Operations,
    Process,
    RangeKind,
    Ranges,
    Syncs,
    Thread,
)
from profkit.readers.kineto.columns import Parts, TraceColumns
from profkit.readers.kineto.times import IMPLAUSIBLE, MISSING

__all__ = ["Assembly"]

Columns = dict[str, NDArray[Any]]

_LONGEST_NS = 30 * 24 * 3600 * 10**9
"""Nothing is recorded for longer; what lies further from the middle of a trace is damage."""
_EARLIEST_UNIX_NS = 10**18
"""September 2001: times above are Unix times, times below count from elsewhere."""
_CLOCK_SKEW_NS = 10**6
"""A device event without times is lost when its launch came later than that after time zero."""
_DEVICE_LIMIT = 2**31 - 1
_OF_A_RANK = 1 << 32
"""Devices of merged ranks are numbered apart by this."""
_POOL_THREAD = re.compile(r"thread -?\d+ \((.*)\)", re.DOTALL)


class Assembly:
    """The tables of a trace from its columns."""

    def __init__(self, columns: TraceColumns) -> None:
        self.dropped: Counter[str] = Counter()
        self.unix_epoch_ns: int | None = None
        self._columns = columns
        self._tables = {
            "operations": _joined(columns.operations),
            "calls": _joined(columns.calls),
            "ranges": _joined(columns.ranges),
            "syncs": _joined(columns.syncs),
            "memory": _joined(columns.memory),
            "messages": _joined(columns.messages),
        }
        self._collectives = _joined(columns.collectives)
        self._link_old_rocm()
        self._drop_host_copies()
        self._drop_lost()
        self._drop_incredible()
        self._find_hosts()
        self.ordinals = self._find_devices()

    def _keep(self, table: str, keep: NDArray[np.bool_]) -> None:
        if keep.all():
            return
        if table == "operations" and self._collectives:
            rows = self._collectives["operation"]
            kept = keep[rows]
            self._collectives = {name: column[kept] for name, column in self._collectives.items()}
            self._collectives["operation"] = (np.cumsum(keep) - 1)[rows[kept]]
        self._tables[table] = {name: column[keep] for name, column in self._tables[table].items()}

    def _link_old_rocm(self) -> None:
        """Where no row has a correlation id, as roctracer once wrote, calls and kernels share the external id."""
        operations, calls = self._tables["operations"], self._tables["calls"]
        external = calls.pop("external", np.empty(0, np.int64))
        if (
            not operations
            or operations["correlation"].any()
            or not external.any()
            or calls["correlation"].any()
        ):
            return
        shared = np.isin(operations["external"], external) & (operations["external"] != 0)
        operations["correlation"] = np.where(shared, operations["external"], 0)
        operations["external"] = np.where(shared, 0, operations["external"])
        calls["correlation"] = external

    def _drop_host_copies(self) -> None:
        """Gives copies their name, direction and kind of memory; those within the host are no device work."""
        operations = self._tables["operations"]
        if not operations:
            return
        is_copy = operations["kind"] == OperationKind.COPY
        copies, names = self._columns.copy_names.table(), self._columns.names.table()
        row = operations["name"]
        operations["module"] = np.append(names[:, 0], UNKNOWN)[operations["module"]]
        operations["copy_kind"] = np.full(len(row), int(CopyKind.UNKNOWN), np.int8)
        operations["pageable"] = np.full(len(row), UNKNOWN, np.int8)
        operations["name"] = np.full(len(row), UNKNOWN, np.int32)
        operations["name"][~is_copy] = names[row[~is_copy], 0]
        operations["name"][is_copy] = copies[row[is_copy], 0]
        operations["copy_kind"][is_copy] = copies[row[is_copy], 1]
        operations["pageable"][is_copy] = copies[row[is_copy], 2]
        self._keep("operations", operations["copy_kind"] != CopyKind.HTOH)

    def _drop_lost(self) -> None:
        """Drop device events whose times were lost: written as 0, long before what launched them."""
        operations, calls = self._tables["operations"], self._tables["calls"]
        if not operations:
            return
        zero = (operations["start_ns"] == 0) & (operations["dur"] == 0)
        if not zero.any():
            return
        others = [t["start_ns"] for t in self._tables.values() if t]
        elsewhere = np.concatenate(others)
        elsewhere = elsewhere[elsewhere > 0]
        earliest = int(elsewhere.min()) if len(elsewhere) else 0
        launched = np.full(len(zero), earliest)
        if calls:
            order = np.argsort(calls["correlation"], kind="stable")
            ids = calls["correlation"][order]
            at = np.minimum(np.searchsorted(ids, operations["correlation"]), len(ids) - 1)
            linked = (ids[at] == operations["correlation"]) & (operations["correlation"] != 0)
            start = calls["start_ns"][order][at]
            launched = np.where(linked & (start > IMPLAUSIBLE), start, launched)
        lost = zero & (launched > _CLOCK_SKEW_NS)
        self.dropped["lost_timestamps"] += int(lost.sum())
        self._keep("operations", ~lost)

    def _drop_incredible(self) -> None:
        """Drop events without times, that end before they start, or lie outside of any recording."""
        for table, columns in self._tables.items():
            if columns:
                start, dur = columns["start_ns"], columns["dur"]
                beyond = (start == IMPLAUSIBLE) | (dur == IMPLAUSIBLE) | (dur > _LONGEST_NS)
                self._drop(table, beyond, "implausible_times")
                columns = self._tables[table]
                missing = (columns["start_ns"] == MISSING) | (columns["dur"] == MISSING)
                self._drop(table, missing, "missing_times")
                self._drop(table, self._tables[table]["dur"] < 0, "reversed_times")
        starts = [columns["start_ns"] for columns in self._tables.values() if columns]
        everything = np.concatenate(starts) if starts else np.empty(0, np.int64)
        if not len(everything):
            return
        middle = np.partition(everything, len(everything) // 2)[len(everything) // 2]
        for table, columns in self._tables.items():
            if columns:
                far = np.abs(columns["start_ns"] // 2 - middle // 2) > _LONGEST_NS // 2
                self._drop(table, far, "implausible_times")
        if middle >= _EARLIEST_UNIX_NS:
            self._count_from_zero(everything, int(middle))

    def _drop(self, table: str, wrong: NDArray[np.bool_], reason: str) -> None:
        count = int(wrong.sum())
        if count:
            # Messages are ranges too, and counted as such.
            self.dropped[reason] += count if table != "messages" else 0
            self._keep(table, ~wrong)

    def _count_from_zero(self, starts: NDArray[Any], middle: int) -> None:
        """Unix times become times since the second in which the recording started."""
        first = int(starts[starts >= middle - _LONGEST_NS].min())
        self.unix_epoch_ns = first - first % 10**9
        for columns in self._tables.values():
            if columns:
                columns["start_ns"] = columns["start_ns"] - self.unix_epoch_ns

    def _find_hosts(self) -> None:
        """Number threads and processes; the first process is the one that made most calls."""
        keys = self._columns.threads.table()
        unique, number = np.unique(keys, axis=0, return_inverse=True)
        number = number.reshape(-1)
        hosts = [
            columns for table in ("calls", "ranges", "memory", "messages") if (columns := self._tables[table])
        ]
        count = np.zeros(len(unique), np.int64)
        for columns in hosts:
            columns["thread"] = number[columns["thread"]]
            count += np.bincount(columns["thread"], minlength=len(unique))
        used = np.flatnonzero(count)
        for columns in hosts:
            columns["thread"] = np.searchsorted(used, columns["thread"])
        pids, merged = self._find_pids(unique[used, 0]), self._columns.merged
        index = {pid: at for at, pid in enumerate(pids)}
        self.processes = [Process(merged.pid_of(pid), merged.rank_of(pid)) for pid in pids]
        self._label = np.array([merged.label_of(pid) for pid in pids], np.int64)
        self.threads = [self._thread(int(pid), int(tid), index) for pid, tid in unique[used]]

    def _find_pids(self, pid_of: NDArray[np.int64]) -> list[int]:
        """The processes: by calls, then by operators and annotations.

        The profiler's own rows, and Python threads that it could not place, carry -1 or 0 instead of a
        process; they are taken to be of the first one.
        """
        calls, ranges = self._tables["calls"], self._tables["ranges"]
        threads = [calls["thread"]] if calls else []
        if ranges:
            placed = np.isin(ranges["kind"], (RangeKind.OPERATOR, RangeKind.ANNOTATION))
            threads.append(ranges["thread"][placed])
        counts = [Counter(pid_of[column].tolist()) for column in threads] + [Counter(pid_of.tolist())]
        certain = [pid for count in counts[:-1] for pid, _ in count.most_common() if pid >= 0]
        return list(dict.fromkeys(certain)) or [pid for pid in counts[-1] if pid >= 0][:1] or [0]

    def _thread(self, pid: int, tid: int, index: dict[int, int]) -> Thread:
        name = self._columns.thread_names.get((pid, tid), "")
        match = _POOL_THREAD.fullmatch(name.strip())
        name = match[1] if match else name
        return Thread(index.get(pid, 0), tid, (name,) if name else ())

    def _find_devices(self) -> list[int]:
        """Replace the ordinals of devices by indices; the ordinals, in order."""
        operations, memory = self._tables["operations"], self._tables["memory"]
        if operations and memory:
            self._same_devices(operations["device"], memory)
        self._apart_by_rank()
        found = [t["device"][t["device"] >= 0] for t in (operations, memory) if t]
        ordinals = np.unique(np.concatenate(found)) if found else np.empty(0, np.int64)
        if operations and (operations["device"] < 0).any():
            if not len(ordinals):
                ordinals = np.zeros(1, np.int64)
            operations["device"] = np.where(operations["device"] < 0, ordinals[0], operations["device"])
        for table in (operations, memory):
            if table:
                at = np.searchsorted(ordinals, table["device"])
                table["device"] = np.where(table["device"] < 0, UNKNOWN, at)
        if self._columns.merged.labels:
            ordinals &= _OF_A_RANK - 1
        return [int(ordinal) if ordinal <= _DEVICE_LIMIT else at for at, ordinal in enumerate(ordinals)]

    def _apart_by_rank(self) -> None:
        """Give devices of merged ranks numbers of their own: each rank counts from 0."""
        operations, memory = self._tables["operations"], self._tables["memory"]
        ranks = [(operations, operations["rank"])] if operations else []
        if memory:
            process = np.array([thread.process for thread in self.threads], np.int64)[memory["thread"]]
            ranks.append((memory, self._label[process]))
        for table, rank in ranks if self._columns.merged.labels else ():
            device = table["device"]
            table["device"] = np.where(
                (rank >= 0) & (device >= 0), device % _OF_A_RANK + rank * _OF_A_RANK, device
            )

    @staticmethod
    def _same_devices(device: NDArray[Any], memory: Columns) -> None:
        """Give memory events the ordinals of operations where the two count devices differently.

        AMD traces number kernels by the machine's devices and memory events by the visible ones.
        """
        used, seen = np.unique(device[device >= 0]), np.unique(memory["device"][memory["device"] >= 0])
        if len(used) == len(seen) and not np.array_equal(used, seen):
            at = np.searchsorted(seen, memory["device"])
            memory["device"] = np.where(memory["device"] < 0, UNKNOWN, used[np.minimum(at, len(used) - 1)])

    def _process_of(self, table: Columns) -> NDArray[np.int64]:
        """The process of device events: that of the call that launched them, else the first; of their own rank."""
        rank = table.pop("rank")
        calls = self._tables["calls"]
        found = np.zeros(len(rank), np.int64)
        if len(self.processes) < 2:
            return found
        call_process = (
            np.array([thread.process for thread in self.threads], np.int64)[calls["thread"]]
            if calls
            else found[:0]
        )
        for label in np.unique(rank).tolist():
            mine, own = rank == label, np.flatnonzero(self._label == label)
            rows = (
                np.flatnonzero(self._label[call_process] == label)
                if len(own)
                else np.arange(len(call_process))
            )
            first = int(own[0]) if len(own) else 0
            ids = calls["correlation"][rows] if calls else rows
            found[mine] = _linked(table["correlation"][mine], ids, call_process[rows], first)
        return found

    def operations(self) -> Operations:
        """The table of what devices did."""
        table = self._tables["operations"]
        if not table:
            return Operations.empty()
        process = self._process_of(table)
        return Operations.of(len(process), process=process, **_ends(table))

    def calls(self) -> Calls:
        """The table of calls."""
        table = self._tables["calls"]
        if not table:
            return Calls.empty()
        table["name"] = self._columns.call_names.table()[table["name"], 0]
        return Calls.of(len(table["start_ns"]), **_ends(table))

    def ranges(self) -> Ranges:
        """The table of ranges."""
        table = self._tables["ranges"]
        if not table:
            return Ranges.empty()
        names, texts = (
            self._columns.range_names.table()[table["name"]],
            self._columns.json_texts.table()[:, 0],
        )
        table["name"], table["domain"] = names[:, 0], names[:, 1]
        renamed = (names[:, 2] == 1) & (table["kind"] == RangeKind.OPERATOR)
        table["kind"] = np.where(renamed, RangeKind.ANNOTATION, table["kind"])
        for column in ("shapes", "dtypes", "strides", "scalars"):
            table[column] = texts[table[column]]
        self._cut_at_last_step(table)
        return Ranges.of(len(table["start_ns"]), **_ends(table))

    def _cut_at_last_step(self, table: Columns) -> None:
        """Cut marks and operators that outlast their process' last ``ProfilerStep``: there the profiler stops."""
        texts = enumerate(self._columns.strings.texts)
        marks = [index for index, text in texts if text.startswith("ProfilerStep#")]
        steps = np.isin(table["name"], marks) & (table["kind"] == RangeKind.ANNOTATION)
        if not steps.any():
            return
        process = np.array([thread.process for thread in self.threads])[table["thread"]]
        end = table["start_ns"] + table["dur"]
        last = np.full(len(self.processes), np.iinfo(np.int64).min)
        np.maximum.at(last, process[steps], end[steps])
        stop = last[process]
        host = np.isin(table["kind"], (RangeKind.ANNOTATION, RangeKind.OPERATOR))
        cut = host & (table["start_ns"] < stop) & (end > stop)
        table["dur"] = np.where(cut, stop - table["start_ns"], table["dur"])

    def syncs(self) -> Syncs:
        """The table of synchronisation records."""
        table = self._tables["syncs"]
        if not table:
            return Syncs.empty()
        table["name"] = self._columns.names.table()[table["name"], 0]
        process = self._process_of(table)
        return Syncs.of(len(process), process=process, **_ends(table))

    def collectives(self) -> Collectives:
        """The table of collectives."""
        return self._said(self._collectives)

    def messages(self) -> Collectives:
        """The sends and receives that the host asked for."""
        table = dict(self._tables["messages"])
        if table:
            table["time_ns"] = table.pop("start_ns")
            del table["dur"]
        return self._said(table)

    def _said(self, table: Columns) -> Collectives:
        if not table:
            return Collectives.empty()
        names = np.append(self._columns.names.table()[:, 0], UNKNOWN)
        for column in ("name", "dtype", "group"):
            table[column] = names[table[column]]
        return Collectives.of(len(table["name"]), **table)

    def memory(self) -> MemoryEvents:
        """The table of memory events."""
        table = dict(self._tables["memory"])
        if not table:
            return MemoryEvents.empty()
        table["time_ns"] = table.pop("start_ns")
        del table["dur"]
        return MemoryEvents.of(len(table["time_ns"]), **table)


def _linked(
    correlation: NDArray[Any], ids: NDArray[Any], process: NDArray[np.int64], first: int
) -> NDArray[np.int64]:
    """The process of the first call with each correlation id, else ``first``."""
    if not len(ids):
        return np.full(len(correlation), first)
    order = np.argsort(ids, kind="stable")
    ids = ids[order]
    at = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
    linked = (ids[at] == correlation) & (correlation != 0)
    return np.where(linked, process[order][at], first)


def _joined(parts: Parts) -> Columns:
    """The parts of each column as one; empty when there are none."""
    made = {}
    for name in list(parts):
        made[name] = np.concatenate(parts.pop(name))
    return made


def _ends(table: Columns) -> Columns:
    ends = dict(table)
    ends["end_ns"] = ends["start_ns"] + ends.pop("dur")
    return ends
