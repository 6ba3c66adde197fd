"""Collectives: how much they moved, how fast, and what of them nothing else hid."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from profkit.analysis.result import Row
from profkit.analysis.states import State
from profkit.analysis.tables.grouping import group_rows, sums
from profkit.analysis.view import TraceView
from profkit.analysis.work.work import OperationBound
from profkit.hardware import DTYPE_BYTES
from profkit.model import OperationKind

__all__ = ["bus_factor", "communication_rows"]

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


def bus_factor(collective: str, ranks: int) -> float:
    """Bus bandwidth over algorithm bandwidth, as nccl-tests' PERFORMANCE.md defines it."""
    if ranks < 2:
        return 1.0
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in ("all_gather", "reduce_scatter", "all_to_all") else 1.0


def communication_rows(views: Sequence[TraceView]) -> list[Row]:
    """The collectives and peer copies of the window, by collective, group and type."""
    merged: dict[tuple[Any, ...], Row] = {}
    for view in views:
        for key, own in _rows_of(view):
            row = merged.setdefault(key, {"count": 0, "bytes": 0, "total_ns": 0, "exposed_ns": 0, "bus": 0.0})
            for name in ("count", "total_ns", "exposed_ns"):
                row[name] += own[name]
            for name in ("bytes", "bus"):
                row[name] = None if row[name] is None or own[name] is None else row[name] + own[name]
    rows = [
        {
            "collective": key[0],
            "group": key[1],
            "dtype": key[2],
            **{name: row[name] for name in ("count", "bytes", "total_ns", "exposed_ns")},
            "bus_gbs": row["bus"] / row["total_ns"] if row["bus"] is not None and row["total_ns"] else None,
        }
        for key, row in merged.items()
    ]
    return sorted(
        rows, key=lambda r: (-r["total_ns"], str(r["collective"]), str(r["group"]), str(r["dtype"]))
    )


def _rows_of(view: TraceView) -> list[tuple[tuple[Any, ...], Row]]:
    trace, operations = view.trace, view.trace.operations
    rows = np.flatnonzero((view.work.bound == OperationBound.COMMUNICATION) & view.kept)
    if not len(rows):
        return []
    said = np.full(len(operations), -1, np.int64)
    said[trace.collectives.operation] = np.arange(len(trace.collectives))
    exposed = _exposed(view)
    details = [_describe(view, int(row), int(said[row])) for row in _examples(view, rows, said)]
    group, example = _groups(view, rows, said)
    duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    count = np.bincount(group)
    total, hidden = sums(group, duration, len(example)), sums(group, exposed[rows], len(example))
    found = []
    for at, (key, size, factor) in enumerate(details):
        moved = None if size is None else size * int(count[at])
        found.append(
            (
                key,
                {
                    "count": int(count[at]),
                    "bytes": moved,
                    "total_ns": int(total[at]),
                    "exposed_ns": int(hidden[at]),
                    "bus": None if moved is None or factor is None else moved * factor,
                },
            )
        )
    return found


def _groups(view: TraceView, rows: Any, said: Any) -> tuple[Any, Any]:
    operations, collectives = view.trace.operations, view.trace.collectives
    at = said[rows]
    columns = [np.where(at >= 0, getattr(collectives, c)[at] if len(collectives) else -1, -1) for c in
               ("name", "dtype", "group", "in_elements", "out_elements", "group_size")]  # fmt: skip
    size = np.where(operations.kind[rows] == OperationKind.COPY, operations.bytes[rows], -1)
    return group_rows(operations.name[rows], size, *columns)


def _examples(view: TraceView, rows: Any, said: Any) -> list[int]:
    chosen: list[int] = rows[_groups(view, rows, said)[1]].tolist()
    return chosen


def _describe(view: TraceView, row: int, said: int) -> tuple[tuple[Any, ...], int | None, float | None]:
    """(collective, group, dtype), bytes of one, and the bus factor."""
    trace, operations, collectives = view.trace, view.trace.operations, view.trace.collectives
    kernel = trace.strings[operations.name[row]]
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
