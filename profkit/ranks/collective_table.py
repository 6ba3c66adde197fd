"""Collectives: how much they moved, how fast, and what of them nothing else hid."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import DTYPE_BYTES
from profkit.model import OperationKind
from profkit.model.report_ranks import CommunicationRow, CommunicationSize
from profkit.model.rows import replace
from profkit.model.states import State
from profkit.model.summing import Summed
from profkit.model.work import OperationBound
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.nesting import Nesting
from profkit.timeline.once import once_a_view
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = [
    "Described",
    "with_waiting",
    "bus_factor",
    "communication_rows",
    "describe_communication",
    "merge_communication",
]

Column = NDArray[np.int64]
Key = tuple[str, str | None, str | None]
"""Collective, process group, type of the elements."""

_WORDS: Final = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "sendrecv": "send_recv",
    "send": "send_recv",
    "recv": "send_recv",
    "gather": "gather",
    "scatter": "scatter",
    "reduce": "reduce",
}
_DTYPES: Final = {
    "bfloat16": "bf16", "half": "fp16", "float16": "fp16", "float": "fp32", "float32": "fp32", "double": "fp64",
    "float64": "fp64", "long": "int64", "int64": "int64", "int": "int32", "int32": "int32", "byte": "uint8",
    "uint8": "uint8", "char": "int8", "int8": "int8", "bool": "bool",
}  # fmt: skip

_LIBRARY_CALL: Final = re.compile(
    r"(?:nccl|rccl):(?!coalesced)|(?:nccl|rccl)(?:AllReduce|AllGather|ReduceScatter|AllToAll|Alltoall|Broadcast|Bcast|Reduce|Gather|Scatter)"
)
_SIZES: Final = Summed[CommunicationSize](("bytes", "bus_factor"), ("count", "total_ns", "exposed_ns"))


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests' PERFORMANCE.md defines it."""
    if ranks < 2:
        return 1.0
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


@dataclass(frozen=True, eq=False)
class Described:
    """The collectives and peer copies of a trace and what they are; the rows are those of the whole file."""

    rows: Column
    """Rows in `Trace.operations`."""
    kind: Column
    """Index of each into ``keys``, ``sizes`` and ``factors``."""
    keys: list[Key]
    sizes: list[int | None]
    """Bytes of one, as nccl-tests counts them: the larger of what a rank gives and gets."""
    factors: list[float | None]
    """Bus bandwidth over algorithm bandwidth."""
    sequence: Column
    """The number of each in its group where the file has it, or -1."""


@once_a_view  # tables of ranks, of parallelism and each price ask, and a file may hold a hundred thousand kinds
def describe_communication(view: TraceView) -> Described:
    """Say of each collective and peer copy what it is.

    As the file has it; else by the range around its launch, else by the kernel's name.
    """
    trace, collectives = view.trace, view.trace.collectives
    rows = np.flatnonzero(view.work.bound == OperationBound.COMMUNICATION)
    said = np.full(len(trace.operations), -1, np.int64)
    said[collectives.operation] = np.arange(len(collectives))
    at = said[rows]
    named = _names_around(view, rows)
    kind, example = _kinds(view, rows, at, named)
    details = [_describe(view, int(rows[e]), int(at[e]), int(named[e])) for e in example.tolist()]
    sequence = np.where(at >= 0, collectives.sequence[at] if len(collectives) else -1, -1)
    return Described(
        rows, kind, [d[0] for d in details], [d[1] for d in details], [d[2] for d in details], sequence
    )


def communication_rows(view: TraceView) -> list[CommunicationRow]:
    """The collectives and peer copies of a trace's window, by collective, group and type, and inside these by size."""
    return merge_communication(_rows_of(view))


def merge_communication(parts: Sequence[CommunicationRow]) -> list[CommunicationRow]:
    """Rows of several traces as one table: what has the same collective, group and type is one row."""
    merged: dict[Key, list[CommunicationSize]] = {}
    for part in parts:
        merged.setdefault((part.collective, part.group, part.dtype), []).extend(part.sizes)
    rows = [_table_row(key, _SIZES.rows(sizes)) for key, sizes in merged.items()]
    return sorted(rows, key=lambda r: (-r.total_ns, r.collective, str(r.group), str(r.dtype)))


def with_waiting(
    rows: Sequence[CommunicationRow],
    waiting: Mapping[tuple[Any, ...], int],
    buffered: Collection[tuple[Any, ...]] = (),
) -> list[CommunicationRow]:
    """Tell waiting from transfer, where ranks were compared, and give the bandwidth of the transfer alone.

    Args:
        rows: The table.
        waiting: By (collective, group, type, bytes of one): the time before the last rank entered, in ns.
        buffered: Those whose data went into a buffer before the receiver came: what that one takes is no bandwidth
            of the network.
    """
    made = []
    for row in rows:
        keys = [(row.collective, row.group, row.dtype, size.bytes) for size in row.sizes]
        sizes = [
            _split(size, min(waiting[key], size.total_ns) if key in waiting else None, key in buffered)
            for size, key in zip(row.sizes, keys, strict=True)
        ]
        known = [size.waiting_ns for size in sizes if size.waiting_ns is not None]
        whole = _split(row, sum(known) if known else None, any(key in buffered for key in keys))
        made.append(replace(whole, sizes=sizes))
    return made


R = TypeVar("R", CommunicationRow, CommunicationSize)


def _split(row: R, waiting_ns: int | None, buffered: bool) -> R:
    transfer = None if waiting_ns is None else row.total_ns - waiting_ns
    bus = None if buffered or not transfer or row.bus_gbs is None else row.bus_gbs * row.total_ns / transfer
    return replace(row, waiting_ns=waiting_ns, transfer_ns=transfer, transfer_bus_gbs=bus)


def _table_row(key: Key, sizes: Sequence[CommunicationSize]) -> CommunicationRow:
    listed = [
        _with_rates(size) for size in sorted(sizes, key=lambda s: (-s.total_ns, str((s.bytes, s.bus_factor))))
    ]
    total = sum(size.total_ns for size in listed)
    moved = _sum_if_known([s.bytes if s.bytes is None else s.bytes * s.count for s in listed])
    bus = _sum_if_known([s.bus_gbs if s.bus_gbs is None else s.bus_gbs * s.total_ns for s in listed])
    return CommunicationRow(
        collective=key[0],
        group=key[1],
        dtype=key[2],
        count=sum(size.count for size in listed),
        bytes=moved,
        total_ns=total,
        exposed_ns=sum(size.exposed_ns for size in listed),
        algorithm_gbs=moved / total if moved is not None and total else None,
        bus_gbs=bus / total if bus is not None and total else None,
        waiting_ns=None,
        transfer_ns=None,
        transfer_bus_gbs=None,
        sizes=listed,
    )


def _with_rates(size: CommunicationSize) -> CommunicationSize:
    rate = size.bytes * size.count / size.total_ns if size.bytes is not None and size.total_ns else None
    bus = None if rate is None or size.bus_factor is None else rate * size.bus_factor
    return replace(size, algorithm_gbs=rate, bus_gbs=bus)


def _sum_if_known(values: Sequence[Any]) -> Any:
    return None if any(v is None for v in values) else sum(values)


def _rows_of(view: TraceView) -> list[CommunicationRow]:
    described = describe_communication(view)
    kept = view.kept[described.rows]
    rows, kind = described.rows[kept], described.kind[kept]
    kinds = len(described.keys)
    operations = view.trace.operations
    count = np.bincount(kind, minlength=kinds)
    total = sums(kind, (operations.end_ns - operations.start_ns)[rows].astype(np.int64), kinds)
    exposed = sums(kind, _exposed(view)[rows], kinds)
    return [
        _table_row(
            key,
            [
                CommunicationSize(
                    bytes=described.sizes[at],
                    bus_factor=described.factors[at],
                    count=int(count[at]),
                    total_ns=int(total[at]),
                    exposed_ns=int(exposed[at]),
                    algorithm_gbs=None,
                    bus_gbs=None,
                    waiting_ns=None,
                    transfer_ns=None,
                    transfer_bus_gbs=None,
                )
            ],
        )
        for at, key in enumerate(described.keys)
        if count[at]
    ]


def _names_around(view: TraceView, rows: Column) -> Column:
    """The string of the innermost range of a communication library open at each launch, or -1.

    Kernels of send and receive also serve all-to-all and gather; only the range tells.
    """
    ranges, launches = view.trace.ranges, view.launches
    named = matching(view.trace.strings, ranges.name, lambda text: _LIBRARY_CALL.match(text) is not None)
    found = np.full(len(rows), -1, np.int64)
    linked = np.flatnonzero(launches.linked[rows])
    if named.any() and len(linked):
        nesting = Nesting.of(ranges, named)
        around = nesting.innermost(launches.thread[rows[linked]], launches.time_ns[rows[linked]])
        found[linked] = np.where(around >= 0, ranges.name[np.maximum(around, 0)], -1)
    return found


def _kinds(view: TraceView, rows: Column, said: Column, named: Column) -> tuple[Column, Column]:
    operations, collectives = view.trace.operations, view.trace.collectives
    columns = [np.where(said >= 0, getattr(collectives, c)[said] if len(collectives) else -1, -1) for c in
               ("name", "dtype", "group", "in_elements", "out_elements", "group_size")]  # fmt: skip
    size = np.where(operations.kind[rows] == OperationKind.COPY, operations.bytes[rows], -1)
    return group_rows(operations.name[rows], size, named, *columns)


def _describe(view: TraceView, row: int, said: int, named: int) -> tuple[Key, int | None, float | None]:
    """The key, the bytes of one, and the bus factor."""
    trace, operations, collectives = view.trace, view.trace.operations, view.trace.collectives
    kernel = trace.strings[named] if named >= 0 else trace.strings[operations.name[row]]
    if operations.kind[row] == OperationKind.COPY:
        size = int(operations.bytes[row])
        return ("peer copy", None, None), size if size >= 0 else None, 1.0
    if said < 0:
        return (_collective(kernel), None, None), None, None

    def text(column: Any) -> str | None:
        return trace.strings[column[said]] if column[said] >= 0 else None

    name = _collective(text(collectives.name) or kernel)
    written = text(collectives.dtype)
    dtype = _DTYPES.get(written.lower(), written.lower()) if written else None
    elements = max(int(collectives.in_elements[said]), int(collectives.out_elements[said]))
    known = elements >= 0 and dtype in DTYPE_BYTES
    ranks = int(collectives.group_size[said])
    size_bytes = round(elements * DTYPE_BYTES[str(dtype)]) if known else None
    return (name, text(collectives.group), dtype), size_bytes, bus_factor(name, ranks) if ranks > 0 else None


def _collective(name: str) -> str:
    plain = re.sub(r"[^a-z]", "", name.lower()[:200])
    return next((word for stem, word in _WORDS.items() if stem in plain), "other")


def _exposed(view: TraceView) -> Any:
    exposed = np.zeros(len(view.trace.operations), np.int64)
    for device in range(len(view.trace.devices)):
        segments = view.window_segments(device)
        shown = segments.state == State.COMMUNICATION
        np.add.at(exposed, segments.operation[shown], (segments.end_ns - segments.start_ns)[shown])
    return exposed
