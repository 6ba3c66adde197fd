"""Lists of events to columns, one piece of the file after another."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import LAUNCH_SHAPE, PHASE_DOMAIN, PHASE_MARK, UNKNOWN, CopyKind, OperationKind, RangeKind
from profkit.readers.kineto.fields import (
    CallFields,
    DeviceFields,
    MemoryFields,
    MetaFields,
    OperatorFields,
    SyncFields,
    fields_of,
    integers,
    opaque,
    opaques,
    triples,
)
from profkit.readers.kineto.merged import MergedRanks, labelled
from profkit.readers.kineto.text import Event
from profkit.readers.kineto.times import nanoseconds
from profkit.readers.strings import Strings

__all__ = ["Interned", "TraceColumns"]

_CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "copy",
    "memcpy": "copy",
    "gpu_memset": "memset",
    "memset": "memset",
    "cuda_sync": "sync",
    "cpu_op": "operator",
    "operator": "operator",
    "user_annotation": "annotation",
    "user": "annotation",
    "python_function": "python",
    "overhead": "overhead",
    "runtime": "runtime",
    "trace": "",
    "gpu_user_annotation": "",
    "external_correlation": "",
    "cuda_event": "",
    "cuda_profiler_range": "",
    "collective_comm": "",
}
"""Categories of all versions, in lower case, to what they are here; ``""`` is known and not needed."""

_ANNOTATION = re.compile(
    r"ProfilerStep#\d+|Optimizer\.(?:step|zero_grad)#.*|enumerate\(DataLoader\)#.*", re.DOTALL
)
"""Names that torch gives to annotations only; before 1.9 they had the category of operators."""

_VERSION = re.compile(r"_v\d+$|_ptsz$|_ptds$")
_DIRECTION = re.compile(
    r"\b(?:Copy)?(H|D|A|P|Host|Device|Array|Peer)to(H|D|A|P|Host|Device|Array|Peer)\b", re.IGNORECASE
)


class Interned(dict[Any, int]):
    """Numbers keys in the order of their appearance, and keeps what is to be known of each, made once."""

    def __init__(self, make: Callable[[Any], tuple[int, ...]], width: int) -> None:
        super().__init__()
        self._make = make
        self._width = width
        self._rows: list[tuple[int, ...]] = []

    def __missing__(self, key: Any) -> int:
        self[key] = number = len(self._rows)
        self._rows.append(self._make(key))
        return number

    def column(self, keys: Sequence[Any]) -> NDArray[np.int32]:
        """The numbers of ``keys``."""
        return np.fromiter(map(self.__getitem__, keys), np.int32, len(keys))

    def table(self) -> NDArray[np.int64]:
        """What was made of the keys: a row for each."""
        return np.array(self._rows, np.int64).reshape(-1, self._width)


Parts = defaultdict[str, list[NDArray[Any]]]


class TraceColumns:
    """Collects the columns of a trace, as written: nothing is dropped, and times may be missing."""

    def __init__(self) -> None:
        self.strings = Strings()
        self.operations: Parts = defaultdict(list)
        self.collectives: Parts = defaultdict(list)
        self.messages: Parts = defaultdict(list)
        self.calls: Parts = defaultdict(list)
        self.ranges: Parts = defaultdict(list)
        self.syncs: Parts = defaultdict(list)
        self.memory: Parts = defaultdict(list)
        self.thread_names: dict[tuple[int, int], str] = {}
        self.unknown_categories: Counter[str] = Counter()
        self.begin_end = 0
        self.events = 0
        self._operation_count = 0
        add = self.strings.add
        self.merged = MergedRanks()
        self.threads = Interned(lambda key: (self.merged.process(key[0]), opaque(key[1])), 2)
        self.names = Interned(lambda name: (add(name or ""),), 1)
        self.call_names = Interned(lambda name: (add(_without_version(name or "")),), 1)
        self.range_names = Interned(self._range_name, 3)
        self.copy_names = Interned(self._copy_name, 3)
        self.json_texts = Interned(self._json_text, 1)

    def add(self, events: Sequence[Event]) -> None:
        """Append the events of one piece."""
        buckets: dict[str, list[Event]] = defaultdict(list)
        appends: dict[tuple[str, str | None], Callable[[Event], None]] = {}
        for event in events:
            key = (event.ph, event.cat)
            if key not in appends:
                appends[key] = buckets[_bucket(*key)].append
            appends[key](event)
        self.events += len(events)
        self.begin_end += len(buckets["begin_end"])
        self.unknown_categories.update(event.cat or "none" for event in buckets["unknown"])
        for bucket, add in (
            ("meta", self._add_meta),
            ("kernel", self._add_kernels),
            ("copy", self._add_copies),
            ("memset", self._add_memsets),
            ("runtime", self._add_calls),
            ("driver", self._add_driver_calls),
            ("sync", self._add_syncs),
            ("operator", self._add_operators),
            ("annotation", self._add_annotations),
            ("python", self._add_python),
            ("overhead", self._add_overhead),
            ("memory", self._add_memory),
        ):
            if buckets[bucket]:
                add(buckets[bucket])

    def _add_meta(self, events: list[Event]) -> None:
        events = [event for event in events if event.name == "thread_name"]
        for event, found in zip(events, fields_of(events, MetaFields), strict=True):
            if found.name and not found.name.startswith("stream "):
                self.thread_names[self.merged.process(event.pid), opaque(event.tid)] = found.name

    def _add_kernels(self, events: list[Event]) -> None:
        found = fields_of(events, DeviceFields)
        grid, block = triples([f.grid for f in found]), triples([f.block for f in found])
        self._add_operations(
            events,
            found,
            OperationKind.KERNEL,
            name=self.names.column([event.name for event in events]),
            grid_x=grid[0],
            grid_y=grid[1],
            grid_z=grid[2],
            block_x=block[0],
            block_y=block[1],
            block_z=block[2],
            registers=integers([f.registers for f in found], "i4"),
            shared_bytes=integers([f.shared_bytes for f in found]),
        )
        self._add_collectives(found)

    def _add_copies(self, events: list[Event]) -> None:
        found = fields_of(events, DeviceFields)
        names = [(event.name, f.kind) for event, f in zip(events, found, strict=True)]
        for f in found:
            if f.runner != UNKNOWN:
                f.device = f.runner
        self._add_operations(events, found, OperationKind.COPY, name=self.copy_names.column(names))

    def _add_memsets(self, events: list[Event]) -> None:
        found = fields_of(events, DeviceFields)
        names = self.names.column([event.name for event in events])
        self._add_operations(events, found, OperationKind.MEMSET, name=names)

    def _add_operations(
        self, events: list[Event], found: list[DeviceFields], kind: OperationKind, **columns: NDArray[Any]
    ) -> None:
        count = len(events)
        pairs = list(zip(events, found, strict=True))
        unknown = np.full(count, UNKNOWN)
        columns |= _times(events) | {
            "kind": np.full(count, kind),
            "rank": self.merged.labels_of(events),
            "device": opaques(
                [
                    (labelled(event.pid) or (0, event.pid))[1] if f.device is None else f.device
                    for event, f in pairs
                ]
            ),
            "stream": opaques([event.tid if f.stream is None else f.stream for event, f in pairs]),
            "context": opaques([UNKNOWN if f.context is None else f.context for f in found]),
            "correlation": opaques([f.correlation or 0 for f in found]),
            "bytes": integers([f.bytes for f in found]),
            "source_device": integers([f.source for f in found], "i4"),
            "target_device": integers([f.target for f in found], "i4"),
            "graph_node": integers([f.graph_node for f in found], fill=0),
            "external": opaques([f.external or f.old_external or 0 for f in found]),
            "module": self._optional([f.module for f in found]),
        }
        for name in _LAUNCH_SHAPE:
            columns.setdefault(name, unknown)
        _extend(self.operations, columns)
        self._operation_count += count

    def _add_collectives(self, found: list[DeviceFields]) -> None:
        """Of the kernels that were added last."""
        rows = [row for row, f in enumerate(found) if f.collective]
        said = [found[row] for row in rows]
        first = self._operation_count - len(found)
        _extend(self.collectives, {"operation": np.array(rows, np.int64) + first, **self._said_of(said)})

    def _add_messages(self, events: list[Event]) -> None:
        """Of operators, those that ask for a send or a receive."""
        asked = [event for event in events if event.name == _MESSAGE]
        found = fields_of(asked, DeviceFields)
        rows = [row for row, f in enumerate(found) if _peer(f) >= 0]
        if rows:
            said = self._said_of([found[row] for row in rows])
            _extend(self.messages, self._host_times([asked[row] for row in rows]) | said)

    def _said_of(self, said: Sequence[DeviceFields]) -> dict[str, NDArray[Any]]:
        return {
            "name": self.names.column([f.collective for f in said]),
            "dtype": self._optional([f.dtype for f in said]),
            "in_elements": integers([f.in_elements for f in said]),
            "out_elements": integers([f.out_elements for f in said]),
            "group_size": integers([f.group_size for f in said], "i4"),
            "group": self._optional([_group(f) for f in said]),
            "sequence": integers([f.sequence for f in said]),
            "peer": integers([_peer(f) for f in said], "i4"),
        }

    def _optional(self, texts: Sequence[str | None]) -> NDArray[Any]:
        return np.array([self.names[text] if text else UNKNOWN for text in texts], np.int64)

    def _add_calls(self, events: list[Event], driver: int = 0) -> None:
        found = fields_of(events, CallFields)
        columns = self._host_times(events) | {
            "name": self.call_names.column([event.name for event in events]),
            "correlation": opaques([f.correlation or 0 for f in found]),
            "external": opaques([f.external or 0 for f in found]),
            "driver": np.full(len(events), driver),
        }
        _extend(self.calls, columns)

    def _add_driver_calls(self, events: list[Event]) -> None:
        self._add_calls(events, driver=1)

    def _add_syncs(self, events: list[Event]) -> None:
        found = fields_of(events, SyncFields)
        columns = _times(events) | {
            "rank": self.merged.labels_of(events),
            "name": self.names.column([event.name for event in events]),
            "stream": opaques([f.stream for f in found]),
            "context": opaques([f.context for f in found]),
            "correlation": opaques([f.correlation or 0 for f in found]),
        }
        _extend(self.syncs, columns)

    def _add_operators(self, events: list[Event]) -> None:
        self._add_messages(events)
        found = fields_of(events, OperatorFields)
        text = self.json_texts.column
        self._add_ranges(
            events,
            RangeKind.OPERATOR,
            sequence=integers([f.sequence for f in found]),
            external=opaques([f.external or f.old_external or 0 for f in found]),
            shapes=text([bytes(f.shapes) or bytes(f.old_shapes) for f in found]),
            dtypes=text([bytes(f.dtypes) for f in found]),
            strides=text([bytes(f.strides) for f in found]),
            scalars=text([bytes(f.scalars) for f in found]),
        )

    def _add_annotations(self, events: list[Event]) -> None:
        on_host = [event for event in events if not str(event.tid).startswith("stream")]
        self._add_ranges(on_host, RangeKind.ANNOTATION)

    def _add_python(self, events: list[Event]) -> None:
        self._add_ranges(events, RangeKind.PYTHON)

    def _add_overhead(self, events: list[Event]) -> None:
        self._add_ranges(events, RangeKind.OVERHEAD)

    def _add_ranges(self, events: list[Event], kind: RangeKind, **columns: NDArray[Any]) -> None:
        count = len(events)
        columns |= self._host_times(events)
        columns["kind"] = np.full(count, kind, np.int8)
        columns["name"] = self.range_names.column([event.name for event in events])
        if "sequence" not in columns:
            columns["sequence"], columns["external"] = np.full(count, UNKNOWN), np.zeros(count, np.int64)
            nothing = np.full(count, self.json_texts[b""], np.int32)
            columns |= dict.fromkeys(("shapes", "dtypes", "strides", "scalars"), nothing)
        _extend(self.ranges, columns)

    def _add_memory(self, events: list[Event]) -> None:
        events = [event for event in events if event.name == "[memory]"]
        found = fields_of(events, MemoryFields)
        columns = self._host_times(events) | {
            "device": integers([UNKNOWN if f.device_type == 0 else f.device for f in found]),
            "bytes": integers([f.bytes for f in found], fill=0),
            "address": integers([f.address for f in found]),
            "total_allocated": integers([f.allocated for f in found]),
            "total_reserved": integers([f.reserved for f in found]),
        }
        columns["dur"] = np.zeros(len(events), np.int64)
        _extend(self.memory, columns)

    def _host_times(self, events: list[Event]) -> dict[str, NDArray[Any]]:
        return _times(events) | {"thread": self.threads.column([(event.pid, event.tid) for event in events])}

    def _range_name(self, name: str | None) -> tuple[int, int, int]:
        """A range's name: string, domain, and whether it is an annotation whatever its category."""
        if name and name.startswith(PHASE_MARK):
            return self.strings.add(name.removeprefix(PHASE_MARK)), self.strings.add(PHASE_DOMAIN), 1
        return self.strings.add(name or ""), UNKNOWN, int(_ANNOTATION.fullmatch(name or "") is not None)

    def _copy_name(self, key: tuple[str | None, str | None]) -> tuple[int, int, int]:
        """A copy's name: string, direction, and whether its host side is pageable."""
        name = key[0] or ""
        match = _DIRECTION.search(name) or _DIRECTION.search(key[1] or "")
        kind = CopyKind.UNKNOWN
        if match:
            direction = f"{match[1][0]}to{match[2][0]}".upper()
            kind = CopyKind.__members__.get(direction, CopyKind.UNKNOWN)
        pageable = UNKNOWN
        if kind in (CopyKind.HTOD, CopyKind.DTOH, CopyKind.HTOA, CopyKind.ATOH):
            pageable = 1 if "Pageable" in name else 0 if "Pinned" in name or "Managed" in name else UNKNOWN
        return self.strings.add(name), int(kind), pageable

    def _json_text(self, text: bytes) -> tuple[int]:
        return (
            self.strings.add_whole(text.decode("utf-8", "replace")) if text.startswith(b"[") else UNKNOWN,
        )


_MESSAGE = "record_param_comms"
_LAUNCH_SHAPE = (*LAUNCH_SHAPE, "registers", "shared_bytes")


def _bucket(phase: str, category: str | None) -> str:
    """Which of the tables an event of this phase and category belongs to; ``""`` for none."""
    lowered = (category or "").lower()
    if phase == "M":
        return "meta"
    if phase in ("i", "I"):
        return "memory" if lowered in ("", "cpu_instant_event") else ""
    if phase in ("B", "E"):
        return "begin_end"
    if phase != "X":
        return ""
    if lowered.endswith(("_runtime", "_driver")):
        return lowered.rpartition("_")[2]
    return _CATEGORIES.get(lowered, "unknown")


def _times(events: list[Event]) -> dict[str, NDArray[Any]]:
    return {
        "start_ns": nanoseconds([event.ts for event in events]),
        "dur": nanoseconds([event.dur for event in events]),
    }


def _group(found: DeviceFields) -> str | None:
    """The process group: what it is for, and its name, which is what the ranks share."""
    name = None if found.group_name is None else str(found.group_name)
    if found.group_description and found.group_description != "undefined":
        return f"{found.group_description} ({name})" if name else found.group_description
    return name


def _peer(found: DeviceFields) -> int:
    """The other rank of a send or a receive."""
    if found.collective == "send":
        return found.target_rank
    return found.source_rank if found.collective == "recv" else UNKNOWN


def _without_version(name: str) -> str:
    while (shorter := _VERSION.sub("", name)) != name:
        name = shorter
    return name


def _extend(parts: Parts, columns: dict[str, NDArray[Any]]) -> None:
    for name, column in columns.items():
        parts[name].append(column)
