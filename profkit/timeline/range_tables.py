"""Operators, and every other named range: steps, library marks, start/end ranges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model import Finding, RangeKind, Severity
from profkit.model.report_kernels import OperatorRow, RangeRow
from profkit.model.summing import Summed
from profkit.timeline.distinct import distinct, rows_by_value
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.intervals import Intervals, grouped_union_ns
from profkit.timeline.nesting import DEEPEST, Nesting
from profkit.timeline.phases import phase_at
from profkit.timeline.view import TraceView

__all__ = [
    "OPERATORS",
    "RANGES",
    "busiest_operators",
    "busiest_ranges",
    "device_time",
    "operator_rows",
    "range_rows",
    "ranges_too_deep",
]

_MOST_ROWS: Final = 2_000
"""Rows of each table that a report keeps."""

Column = NDArray[np.int64]

OPERATORS: Final = Summed[OperatorRow](
    ("name", "phase"), ("count", "host_ns", "host_self_ns", "gpu_ns", "gpu_self_ns")
)
RANGES: Final = Summed[RangeRow](("domain", "kind", "name"), ("count", "host_wall_ns", "gpu_inclusive_ns"))
_KINDS: Final[dict[int, Literal["step", "annotation", "operator", "start_end"]]] = {
    -1: "step",
    RangeKind.ANNOTATION: "annotation",
    RangeKind.OPERATOR: "operator",
    RangeKind.START_END: "start_end",
}

_PIECE: Final = 1 << 20
"""Operations, each in a range, whose time is joined at once."""


def busiest_operators(rows: Sequence[OperatorRow]) -> list[OperatorRow]:
    """The table of operators: most device time first, then most host time."""
    return sorted(rows, key=lambda r: (-r.gpu_self_ns, -r.host_self_ns, r.name, str(r.phase)))[:_MOST_ROWS]


def operator_rows(view: TraceView) -> list[OperatorRow]:
    """Operators of a trace by name and phase."""
    ranges, nesting = view.trace.ranges, view.launches.operators
    rows = np.flatnonzero((ranges.kind == RangeKind.OPERATOR) & _in_window(view))
    if not len(rows):
        return []
    duration = (ranges.end_ns - ranges.start_ns).astype(np.int64)
    inside = np.zeros(len(ranges), np.int64)
    nested = rows[nesting.parent[rows] >= 0]
    np.add.at(inside, nesting.parent[nested], duration[nested])
    own, below = device_time(view)
    phase = phase_at(view.trace, view.phases, ranges.thread[rows], ranges.start_ns[rows])
    path = view.phases.path_of(phase)
    group, example = group_rows(ranges.name[rows], path)
    # An operator inside one of the same name adds nothing to the inclusive times.
    outer = ~_same_name_above(ranges.name, nesting.parent, rows)
    count = len(example)
    columns = {
        "count": np.bincount(group, minlength=count),
        "host_ns": sums(group, np.where(outer, duration[rows], 0), count),
        "host_self_ns": sums(group, np.maximum(duration[rows] - inside[rows], 0), count),
        "gpu_ns": sums(group, np.where(outer, below[rows], 0), count),
        "gpu_self_ns": sums(group, own[rows], count),
    }
    return [
        OperatorRow(
            name=view.trace.strings[ranges.name[rows[example[at]]]],
            phase=view.phases.paths[path[example[at]]] if path[example[at]] >= 0 else None,
            **{key: int(column[at]) for key, column in columns.items()},
        )
        for at in range(count)
        if view.shows(view.phases.paths[path[example[at]]] if path[example[at]] >= 0 else None)
    ]


def device_time(view: TraceView) -> tuple[Column, Column]:
    """For every range: the summed time of the operations launched right in it, and in it and its children."""
    operations, nesting = view.trace.operations, view.launches.operators
    own = np.zeros(len(view.trace.ranges), np.int64)
    launched = np.flatnonzero((view.launches.operator >= 0) & view.kept)
    np.add.at(own, view.launches.operator[launched], (operations.end_ns - operations.start_ns)[launched])
    below = own.copy()
    row = np.flatnonzero(own)
    carried = own[row]
    while len(row):
        up = nesting.parent[row]
        row, carried = up[up >= 0], carried[up >= 0]
        np.add.at(below, row, carried)
    return own, below


def _same_name_above(name: NDArray[Any], parent: Column, rows: Column) -> NDArray[np.bool_]:
    found = np.zeros(len(rows), bool)
    at, above = np.arange(len(rows)), parent[rows]
    while len(at):
        at, above = at[above >= 0], above[above >= 0]
        same = name[above] == name[rows[at]]
        found[at[same]] = True
        at, above = at[~same], parent[above[~same]]
    return found


def _in_window(view: TraceView) -> NDArray[np.bool_]:
    """Ranges that began in the kept steps; without steps, all."""
    ranges = view.trace.ranges
    return view.begun_in_window(ranges.thread, ranges.start_ns)


def busiest_ranges(rows: Sequence[RangeRow]) -> list[RangeRow]:
    """The table of ranges: most device time first, then most host time."""
    return sorted(rows, key=lambda r: (-r.gpu_inclusive_ns, -r.host_wall_ns, r.name, r.kind))[:_MOST_ROWS]


def ranges_too_deep(count: int) -> list[Finding]:
    """What is said of ranges that lie too deep for device work to be counted to them."""
    if not count:
        return []
    return [Finding("ranges-too-deep", Severity.WARNING, count=count, params={"deepest": DEEPEST})]


def range_rows(view: TraceView) -> tuple[list[RangeRow], int]:
    """Every range that is no phase, by domain, kind and name, and how many ranges lie too deep for device work to be counted to them."""
    ranges = view.trace.ranges
    wanted = np.isin(ranges.kind, (RangeKind.ANNOTATION, RangeKind.OPERATOR, RangeKind.START_END))
    rows = np.flatnonzero(wanted & ~view.phases.rows & (_in_window(view) | view.steps.rows))
    if not len(rows):
        return [], 0
    kind = np.where(view.steps.rows[rows], -1, ranges.kind[rows])
    group, example = group_rows(ranges.domain[rows], kind, ranges.name[rows])
    group_of_range = np.full(len(ranges), -1, np.int64)
    group_of_range[rows] = group
    count = len(example)
    device_ns, too_deep = _projected(view, group_of_range, count)
    wall = sums(group, (ranges.end_ns - ranges.start_ns)[rows].astype(np.int64), count)
    occurrences = np.bincount(group, minlength=count)
    made = [
        RangeRow(
            domain=view.trace.strings[ranges.domain[row]] if ranges.domain[row] >= 0 else None,
            kind=_KINDS[int(kind[at])],
            name=view.trace.strings[ranges.name[row]],
            count=int(occurrences[group[at]]),
            host_wall_ns=int(wall[group[at]]),
            gpu_inclusive_ns=int(device_ns[group[at]]),
        )
        for at, row in zip(example.tolist(), rows[example].tolist(), strict=True)
    ]
    return made, too_deep


def _projected(view: TraceView, group_of_range: Column, count: int) -> tuple[Column, int]:
    """The union of the operations launched inside the ranges of each group, domain by domain.

    Returns:
        The time of each group in ns, and how many ranges lie too deep to take part.
    """
    ranges, launches, operations = view.trace.ranges, view.launches, view.trace.operations
    launched = np.flatnonzero(launches.linked & (view.kept | (view.steps.of_operation >= 0)))
    pairs: list[tuple[Column, Column]] = []
    chosen, too_deep = group_of_range >= 0, 0
    stacked = chosen & (ranges.kind != RangeKind.START_END) & ~view.steps.rows
    for domain in distinct(ranges.domain[stacked])[0].tolist():
        rows = stacked & (ranges.domain == domain)
        nesting = Nesting.of(ranges, rows)
        shallow = nesting.down_to(rows, DEEPEST)
        if shallow is not rows:
            too_deep += int(np.count_nonzero(rows & ~shallow))
            nesting = Nesting.of(ranges, shallow)
        row = nesting.innermost(launches.thread[launched], launches.time_ns[launched])
        operation = launched
        while len(row):
            operation, row = operation[row >= 0], row[row >= 0]
            around = nesting.parent[row]
            # What lies in another range of its group counts there.
            outer = (around < 0) | (group_of_range[around] != group_of_range[row])
            pairs.append((operation[outer].astype(np.int32), group_of_range[row[outer]].astype(np.int32)))
            row = around
    wide = np.flatnonzero(chosen & ~stacked)
    kept = wide[_open_at_start(view, wide) <= DEEPEST]
    too_deep += len(wide) - len(kept)
    pairs += _process_wide(view, kept, launched, group_of_range)
    operation = np.concatenate([p[0] for p in pairs] or [np.empty(0, np.int32)])
    group = np.concatenate([p[1] for p in pairs] or [np.empty(0, np.int32)])
    pairs.clear()
    by_group = np.zeros(count, np.int64)
    piece = np.cumsum(np.bincount(group, minlength=count)) // _PIECE
    for each in distinct(piece)[0].tolist():
        mine = piece[group] == each
        rows = operation[mine]
        key, example = group_rows(operations.device[rows], group[mine])
        total = grouped_union_ns(key, operations.start_ns[rows], operations.end_ns[rows], len(example))
        np.add.at(by_group, group[mine][example], total)
    return by_group, too_deep


def _processes(view: TraceView, rows: Column) -> Column:
    found: Column = np.array([t.process for t in view.trace.threads] or [-1], np.int64)[
        view.trace.ranges.thread[rows]
    ]
    return found


def _open_at_start(view: TraceView, rows: Column) -> Column:
    """How many of some ranges are open in its process when each starts, itself among them."""
    ranges, count = view.trace.ranges, np.zeros(len(rows), np.int64)
    for _, mine in rows_by_value(_processes(view, rows)):
        start, end = ranges.start_ns[rows[mine]], np.sort(ranges.end_ns[rows[mine]])
        begun = np.searchsorted(np.sort(start), start, side="right")
        count[mine] = begun - np.searchsorted(end, start, side="right")
    return count


def _process_wide(
    view: TraceView, rows: Column, launched: Column, group_of_range: Column
) -> list[tuple[Column, Column]]:
    """What any thread of its process launched during the start/end ranges or steps of each group."""
    ranges, trace = view.trace.ranges, view.trace
    process_of = _processes(view, rows)
    pairs = []
    for process in np.unique(process_of).tolist():
        mine = launched[trace.operations.process[launched] == process]
        mine = mine[np.argsort(view.launches.time_ns[mine], kind="stable")]
        time = view.launches.time_ns[mine]
        own = rows[process_of == process]
        for group in distinct(group_of_range[own])[0].tolist():
            chosen = own[group_of_range[own] == group]
            open_time = Intervals.of(ranges.start_ns[chosen], ranges.end_ns[chosen])
            first, last = np.searchsorted(time, open_time.start), np.searchsorted(time, open_time.end)
            inside = np.concatenate(
                [mine[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)] or [mine[:0]]
            )
            pairs.append((inside, np.full(len(inside), group, np.int64)))
    return pairs
