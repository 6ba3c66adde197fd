"""The window taken apart: what each nanosecond of device time is, so that two windows can be compared to the last one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import OperationKind
from profkit.model.report_time import PartRow
from profkit.model.rows import replace
from profkit.model.states import BUSY_STATES, CAUSE_OF_STATE, SHARE_OF_STATE, State
from profkit.model.summing import Summed
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.view import TraceView

__all__ = ["MOST_PARTS", "PARTS", "longest_parts", "part_rows"]

MOST_PARTS: Final = 500
"""Rows that name a kernel and a phase; the others are united by share, cause and family."""

_FAMILY_OF_KIND: Final = {
    OperationKind.COPY: "memcpy",
    OperationKind.MEMSET: "memset",
    OperationKind.GRAPH: "graph",
}

PARTS: Final = Summed[PartRow](("share", "cause", "family", "kernel", "phase", "rest"), ("ns",))


def part_rows(view: TraceView) -> list[PartRow]:
    """A trace's window by what its devices were doing; the rows add up to its device time.

    A busy nanosecond belongs to one operation, the one that gives it its share (see `Segments.operation`), so
    kernels that overlap are not counted twice. An idle one has a cause, and the phase of the operation that it
    waits for.
    """
    return PARTS.rows(row for device in range(len(view.trace.devices)) for row in _parts_of(view, device))


def longest_parts(rows: Sequence[PartRow]) -> list[PartRow]:
    """The table, longest first; parts beyond `MOST_PARTS` have no kernel and no phase."""
    order = sorted(rows, key=_place)
    beyond = [replace(row, kernel=None, phase=None, rest=True) for row in order[MOST_PARTS:]]
    return order[:MOST_PARTS] + PARTS.rows(beyond)


def _place(row: PartRow) -> tuple[int, str]:
    return -row.ns, str((row.share, row.cause, row.family, row.kernel, row.phase))


def _parts_of(view: TraceView, device: int) -> list[PartRow]:
    segments = view.window_segments(device)
    if not len(segments.start_ns):
        return []
    operation, state = segments.operation, segments.state.astype(np.int64)
    known = operation >= 0
    busy = np.isin(state, BUSY_STATES) & known
    operations = view.trace.operations
    name = np.where(busy, _of(operations.name, operation), -1)
    kind = np.where(busy, _of(operations.kind, operation), -1)
    path = view.phases.path_of(view.phases.at(operation))
    group, example = group_rows(state, name, kind, path)
    total = sums(group, (segments.end_ns - segments.start_ns).astype(np.int64), len(example))
    rows = []
    for at, ns in zip(example.tolist(), total.tolist(), strict=True):
        what = State(int(state[at]))
        family, kernel = _work(view, int(name[at]), int(kind[at]))
        rows.append(
            PartRow(
                share=SHARE_OF_STATE[what],
                cause=CAUSE_OF_STATE.get(what),
                family=family,
                kernel=kernel,
                phase=_path(view, int(path[at])),
                ns=ns,
            )
        )
    return rows


def _of(column: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(column):
        return np.full(len(rows), -1, np.int64)
    values: NDArray[np.int64] = column[np.maximum(rows, 0)].astype(np.int64)
    return values


def _work(view: TraceView, name: int, kind: int) -> tuple[str | None, str | None]:
    """The family and short name of an operation; a copy is called by its direction."""
    if kind < 0:
        return None, None
    known = view.work.class_of_name.get(name) if kind == OperationKind.KERNEL else None
    if known is not None:
        return str(known.family), known.short_name
    text = view.trace.strings[name] if name >= 0 else None
    return _FAMILY_OF_KIND.get(OperationKind(kind), "other"), text


def _path(view: TraceView, path: int) -> str | None:
    return view.phases.paths[path] if path >= 0 else None
