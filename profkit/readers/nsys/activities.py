"""Rows of the CUPTI activity tables: what devices did, the calls that asked for it, waits, and overhead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN, Calls, CopyKind, OperationKind, Operations, RangeKind, Ranges, Syncs
from profkit.readers.nsys.actors import Actors, process_ids
from profkit.readers.nsys.clock import Clock
from profkit.readers.nsys.columns import NULL, Columns, Integers, distinct
from profkit.readers.nsys.database import Database, Table
from profkit.readers.nsys.devices import Devices
from profkit.readers.nsys.strings import StringIds
from profkit.readers.strings import Strings

__all__ = ["DEVICE_TABLES", "Recorded", "read_calls", "read_device_work", "read_overhead", "read_syncs"]

_TIMES = {"start": NULL, "end": NULL}
_PLACE = {**_TIMES, "globalPid": NULL, "deviceId": 0, "contextId": -1, "streamId": -1, "correlationId": 0}
_NODE = {**_PLACE, "graphNodeId": 0}
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ", "registersPerThread")
_SHARED = ("staticSharedMemory", "dynamicSharedMemory")
_NAMES = ("demangledName", "shortName", "mangledName")

DEVICE_TABLES = {
    OperationKind.KERNEL: (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        {**_NODE, **dict.fromkeys((*_SIZES, *_SHARED, *_NAMES), -1)},
    ),
    OperationKind.COPY: (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        {
            **_NODE,
            **dict.fromkeys(("bytes", "copyKind", "srcKind", "dstKind", "srcDeviceId", "dstDeviceId"), -1),
        },
    ),
    OperationKind.MEMSET: ("CUPTI_ACTIVITY_KIND_MEMSET", {**_NODE, "bytes": -1}),
    OperationKind.GRAPH: ("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", {**_PLACE, "graphId": -1}),
}
"""Where each kind of device work stands: table, and columns with their values for NULL."""

_CALL = {**_TIMES, "globalTid": NULL, "correlationId": 0, "nameId": -1, "eventClass": 0, "callchainId": -1}
_SYNC = {**_TIMES, "globalPid": NULL, "contextId": -1, "streamId": -1, "correlationId": 0, "syncType": 0}
_OVERHEAD = {**_TIMES, "globalTid": NULL, "nameId": -1, "overheadType": 0}

_DRIVER_CLASS = 1
_API_VERSION = re.compile(r"(?:_pt[sd][sz])?(?:_v\d+)?(?:_pt[sd][sz])?$")
_NO_STREAM = 0xFFFFFFFF
_LARGEST_INT32 = 2**31 - 1
_PAGEABLE, _PINNED, _DEVICE, _ARRAY, _DEVICE_STATIC = 0, 1, 2, 3, 5
"""Memory kinds, numbered as in nsys' ENUM_CUDA_MEM_KIND (not as in CUPTI)."""
_SIDES = (
    (CopyKind.HTOD, "H", "D"),
    (CopyKind.DTOH, "D", "H"),
    (CopyKind.DTOD, "D", "D"),
    (CopyKind.HTOH, "H", "H"),
    (CopyKind.HTOA, "H", "A"),
    (CopyKind.ATOH, "A", "H"),
    (CopyKind.ATOD, "A", "D"),
    (CopyKind.DTOA, "D", "A"),
    (CopyKind.ATOA, "A", "A"),
)
_SYNC_NAMES = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_CUDA_OVERHEADS = (2, 6, 7, 8)
"""JIT compiler, module loading, lazy loading, full command buffer: the program's own time (ENUM_CUPTI_OVERHEAD_TYPE)."""
_COPY_NAMES = {
    CopyKind.HTOD: "HtoD",
    CopyKind.DTOH: "DtoH",
    CopyKind.HTOA: "HtoA",
    CopyKind.ATOH: "AtoH",
    CopyKind.ATOA: "AtoA",
    CopyKind.ATOD: "AtoD",
    CopyKind.DTOA: "DtoA",
    CopyKind.DTOD: "DtoD",
    CopyKind.PTOP: "PtoP",
    CopyKind.MANAGED_HTOD: "HtoD (managed)",
    CopyKind.MANAGED_DTOH: "DtoH (managed)",
    CopyKind.MANAGED_DTOD: "DtoD (managed)",
}


@dataclass(frozen=True, eq=False)
class Recorded:
    """The activity tables as they are written, before ids and times are understood."""

    device_work: dict[OperationKind, Columns]
    calls: Columns
    syncs: Columns
    overhead: Columns

    @classmethod
    def of(cls, database: Database) -> Recorded:
        """Read all activity tables; rows without a process are given to the only, or the busiest, process."""
        calls = _integers(database.table("CUPTI_ACTIVITY_KIND_RUNTIME"), _CALL)
        driver = database.table("CUPTI_ACTIVITY_KIND_DRIVER")
        if driver is not None:
            rows = _integers(driver, _CALL)
            calls = _stack(calls, _with(rows, "eventClass", np.full(len(rows), _DRIVER_CLASS)))
        owner = _busiest_process(calls)
        work = {
            kind: _owned(_integers(database.table(name), columns), owner)
            for kind, (name, columns) in DEVICE_TABLES.items()
        }
        copies = work[OperationKind.COPY]
        work[OperationKind.COPY] = copies.take(_copy_kinds(copies) != CopyKind.HTOH)
        return cls(
            device_work=work,
            calls=calls,
            syncs=_owned(_integers(database.table("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION"), _SYNC), owner),
            overhead=_overhead(database),
        )


def read_device_work(
    device_work: Mapping[OperationKind, Columns],
    texts: tuple[StringIds, Strings],
    devices: Devices,
    actors: Actors,
    clock: Clock,
) -> Operations:
    """Kernels, copies, memsets and opaque graphs, of which only credible rows are given, as operations."""
    parts = []
    for kind, rows in device_work.items():
        if not len(rows):
            continue
        parts.append(
            Operations.of(
                len(rows),
                start_ns=clock.session_ns(rows["start"]),
                end_ns=clock.session_ns(rows["end"]),
                kind=np.full(len(rows), kind, np.int8),
                device=devices.index(rows["globalPid"], rows["deviceId"]),
                process=actors.process(rows["globalPid"]),
                stream=rows["streamId"],
                context=rows["contextId"],
                correlation=rows["correlationId"],
                **_details(kind, rows, *texts),
            )
        )
    if not parts:
        return Operations.empty()
    joined = {f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Operations)}
    return Operations(**joined)


def read_calls(
    rows: Columns, string_ids: StringIds, actors: Actors, clock: Clock, stacks: dict[int, int]
) -> Calls:
    """Runtime and driver calls. A call that both APIs recorded keeps both rows.

    Args:
        rows: Rows of the calls' table.
        string_ids: The export's strings.
        actors: Who called.
        clock: Where time zero lies.
        stacks: String of the Python frame by the id of a call chain.
    """
    rows = clock.credible(rows)
    values, places = distinct(rows["callchainId"])
    frames = np.fromiter((stacks.get(chain, UNKNOWN) for chain in values.tolist()), np.int32, len(values))
    return Calls.of(
        len(rows),
        start_ns=clock.session_ns(rows["start"]),
        end_ns=clock.session_ns(rows["end"]),
        thread=actors.thread(rows["globalTid"]),
        name=string_ids.first_of(rows["nameId"], clean=_plain_name),
        correlation=rows["correlationId"],
        driver=rows["eventClass"] == _DRIVER_CLASS,
        stack=frames[places],
    )


def read_syncs(rows: Columns, strings: Strings, actors: Actors, clock: Clock) -> Syncs:
    """Rows of the synchronisation table."""
    rows = clock.credible(rows)
    values, places = distinct(rows["syncType"])
    names = np.array([strings.add(_SYNC_NAMES.get(value, "Sync")) for value in values.tolist()], np.int32)
    return Syncs.of(
        len(rows),
        start_ns=clock.session_ns(rows["start"]),
        end_ns=clock.session_ns(rows["end"]),
        process=actors.process(rows["globalPid"]),
        stream=np.where(rows["streamId"] == _NO_STREAM, UNKNOWN, rows["streamId"]),
        context=rows["contextId"],
        correlation=rows["correlationId"],
        name=names[places] if len(rows) else None,
    )


def read_overhead(rows: Columns, string_ids: StringIds, actors: Actors, clock: Clock) -> Ranges:
    """Time that the profiler itself took, as ranges."""
    rows = clock.credible(rows)
    return Ranges.of(
        len(rows),
        start_ns=clock.session_ns(rows["start"]),
        end_ns=clock.session_ns(rows["end"]),
        thread=actors.thread(rows["globalTid"]),
        kind=np.full(len(rows), RangeKind.OVERHEAD, np.int8),
        name=string_ids.first_of(rows["nameId"]),
    )


def _details(
    kind: OperationKind, rows: Columns, string_ids: StringIds, strings: Strings
) -> dict[str, NDArray[Any]]:
    """The columns that only some kinds of operation have."""
    if kind is OperationKind.GRAPH:
        values, places = distinct(rows["graphId"])
        names = [
            strings.add(f"CUDA graph {value}" if value >= 0 else "CUDA graph") for value in values.tolist()
        ]
        return {"name": np.array(names, np.int32)[places]}
    node = {"graph_node": rows["graphNodeId"]}
    if kind is OperationKind.MEMSET:
        return {**node, "name": np.full(len(rows), strings.add("Memset")), "bytes": rows["bytes"]}
    if kind is OperationKind.COPY:
        return {**node, **_copy_details(rows, strings)}
    sizes = {
        **{f"grid_{axis}": rows[f"grid{axis.upper()}"] for axis in "xyz"},
        **{f"block_{axis}": rows[f"block{axis.upper()}"] for axis in "xyz"},
        "registers": rows["registersPerThread"],
    }
    shared = [np.clip(rows[name], 0, _LARGEST_INT32) for name in _SHARED]
    known = (rows[_SHARED[0]] >= 0) | (rows[_SHARED[1]] >= 0)
    return {
        **node,
        "name": string_ids.first_of(*(rows[name] for name in _NAMES)),
        **{name: np.clip(column, UNKNOWN, _LARGEST_INT32) for name, column in sizes.items()},
        "shared_bytes": np.where(known, shared[0] + shared[1], UNKNOWN),
    }


def _copy_details(rows: Columns, strings: Strings) -> dict[str, NDArray[Any]]:
    kinds = _copy_kinds(rows)
    source, target = rows["srcDeviceId"], rows["dstDeviceId"]
    peer = kinds == CopyKind.PTOP
    values, places = distinct(kinds)
    names = [strings.add(f"Memcpy {_COPY_NAMES.get(CopyKind(kind), '')}".strip()) for kind in values.tolist()]
    host_side = np.full(len(rows), UNKNOWN, np.int64)
    for kind, side in (
        (CopyKind.HTOD, "srcKind"),
        (CopyKind.HTOA, "srcKind"),
        (CopyKind.DTOH, "dstKind"),
        (CopyKind.ATOH, "dstKind"),
    ):
        host_side = np.where(kinds == kind, rows[side], host_side)
    return {
        "name": np.array(names, np.int32)[places],
        "bytes": rows["bytes"],
        "copy_kind": kinds,
        "source_device": np.where(peer, np.clip(source, UNKNOWN, _LARGEST_INT32), UNKNOWN),
        "target_device": np.where(peer, np.clip(target, UNKNOWN, _LARGEST_INT32), UNKNOWN),
        "pageable": np.where(host_side < 0, UNKNOWN, host_side == _PAGEABLE),
    }


def _copy_kinds(rows: Columns) -> Integers:
    """Directions: as written, else from the kinds of memory; between two devices it is a peer copy."""
    kinds = np.where(
        (rows["copyKind"] >= 0) & (rows["copyKind"] <= max(CopyKind)), rows["copyKind"], CopyKind.UNKNOWN
    )
    unknown = kinds == CopyKind.UNKNOWN
    if unknown.any():
        source, target = _side(rows["srcKind"]), _side(rows["dstKind"])
        for kind, start, end in _SIDES:
            kinds[unknown & (source == start) & (target == end)] = kind
    across = (
        (rows["srcDeviceId"] >= 0) & (rows["dstDeviceId"] >= 0) & (rows["srcDeviceId"] != rows["dstDeviceId"])
    )
    within = np.isin(kinds, (CopyKind.UNKNOWN, CopyKind.DTOD, CopyKind.ATOA, CopyKind.ATOD, CopyKind.DTOA))
    kinds[across & within] = CopyKind.PTOP
    return kinds


def _side(memory: Integers) -> NDArray[np.str_]:
    sides = np.full(len(memory), "?")
    sides[np.isin(memory, (_PAGEABLE, _PINNED))] = "H"
    sides[np.isin(memory, (_DEVICE, _DEVICE_STATIC))] = "D"
    sides[memory == _ARRAY] = "A"
    return sides


def _overhead(database: Database) -> Columns:
    """Both tables of overhead, without what is the program's own time."""
    tables = [database.table("PROFILER_OVERHEAD"), database.table("CUPTI_ACTIVITY_KIND_OVERHEAD")]
    rows = _stack(*(_integers(table, _OVERHEAD) for table in tables))
    return rows.take(~np.isin(rows["overheadType"], _CUDA_OVERHEADS))


def _plain_name(name: str) -> str:
    return _API_VERSION.sub("", name)


def _integers(table: Table | None, columns: dict[str, int]) -> Columns:
    if table is None or "start" not in table or "end" not in table:
        return Columns(0, dict.fromkeys(columns, np.empty(0, np.int64)))
    return table.integers(columns)


def _stack(first: Columns, second: Columns) -> Columns:
    values = {name: np.concatenate([column, second[name]]) for name, column in first.values.items()}
    return Columns(len(first) + len(second), values)


def _with(rows: Columns, name: str, column: NDArray[Any]) -> Columns:
    return Columns(len(rows), {**rows.values, name: column})


def _busiest_process(calls: Columns) -> int:
    processes, places = distinct(process_ids(calls["globalTid"]))
    return int(processes[np.bincount(places).argmax()]) if len(processes) else 0


def _owned(rows: Columns, owner: int) -> Columns:
    """Old exports do not say whose the work on a device is."""
    unknown = rows["globalPid"] == NULL
    if not unknown.any():
        return _with(rows, "globalPid", process_ids(rows["globalPid"]))
    return _with(rows, "globalPid", np.where(unknown, owner, process_ids(rows["globalPid"])))
