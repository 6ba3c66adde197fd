"""Which ranges are phases, and which phase each operation belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model import PHASE_DOMAIN, OperationKind, RangeKind, Trace
from profkit.timeline.distinct import distinct
from profkit.timeline.launches import Launches
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import is_library, is_operator_name, matching

__all__ = ["DEEPEST_PHASE", "Phases", "find_phases", "is_within", "phase_at"]

Column = NDArray[np.int64]


DEEPEST_PHASE = 64
"""Levels of phases. A path names all levels, so that the paths of endless nesting would fill the memory."""


@dataclass(frozen=True, eq=False)
class Phases:
    """The phases of a trace and what they own."""

    rows: NDArray[np.bool_]
    """Which rows of `Trace.ranges` are phases."""
    nesting: Nesting
    of_operation: Column
    """Row in `Trace.ranges` of each operation's innermost phase, or -1."""
    host_thread: Column
    """For each operation: the thread whose phase it has; differs from the launching thread in backward."""
    path: Column
    """For every row of `Trace.ranges`: its path's index in ``paths`` where it is a phase, else -1."""
    paths: list[str]
    """Distinct paths, ``forward/loss``, in order of first start."""
    parents: list[int]
    """For each path: the index of the path one level up, or -1."""
    autograd_threads: frozenset[int]
    too_deep: int = 0
    """Ranges that would be phases, but lie in `DEEPEST_PHASE` others: what is pushed and never popped."""

    def at(self, operations: NDArray[Any]) -> Column:
        """Phase rows of operations; -1, no operation, stays -1, also where a trace has none at all."""
        if not len(self.of_operation):
            return np.full(len(operations), -1, np.int64)
        return np.where(operations >= 0, self.of_operation[operations], -1)

    def path_of(self, rows: NDArray[Any]) -> Column:
        """Path indices for phase rows; -1 stays -1."""
        return np.where(rows >= 0, self.path[np.maximum(rows, 0)] if len(self.path) else -1, -1)


def find_phases(trace: Trace, launches: Launches, steps: NDArray[np.bool_]) -> Phases:
    """Find the phases, and give each operation that of the moment of its launch.

    Args:
        trace: The timeline.
        launches: Its launches.
        steps: Which ranges are steps: never phases.

    Returns:
        The phases. An operation launched by an autograd thread without a phase of its own takes the innermost
        phase of the only thread of its process that has one open then; of several such threads, none.
    """
    rows = _phase_rows(trace, steps)
    nesting = Nesting.of(trace.ranges, rows)
    shallow = nesting.down_to(rows, DEEPEST_PHASE)
    too_deep = int(np.count_nonzero(rows)) - int(np.count_nonzero(shallow))
    if too_deep:
        rows, nesting = shallow, Nesting.of(trace.ranges, shallow)
    autograd = _autograd_threads(trace, launches, rows)
    of_operation, host_thread = _attribute(trace, launches, nesting, autograd)
    path, paths, parents = _paths(trace, rows, nesting)
    return Phases(rows, nesting, of_operation, host_thread, path, paths, parents, autograd, too_deep)


def _phase_rows(trace: Trace, steps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    ranges = trace.ranges
    candidate: NDArray[np.bool_] = (ranges.kind == RangeKind.ANNOTATION) & ~steps
    marked: NDArray[np.bool_] = candidate & matching(
        trace.strings, ranges.domain, lambda text: text == PHASE_DOMAIN
    )
    plain: NDArray[np.bool_] = candidate & (ranges.domain < 0)
    plain[plain] = ~matching(
        trace.strings, ranges.name[plain], lambda text: is_library(text) or is_operator_name(text)
    )
    if not marked.any():
        return plain
    process_of = np.array([t.process for t in trace.threads] or [-1], np.int64)
    process = process_of[ranges.thread] if len(ranges) else np.empty(0, np.int64)
    plain &= ~np.isin(process, distinct(process[marked])[0])
    return marked | plain


def _autograd_threads(trace: Trace, launches: Launches, phases: NDArray[np.bool_]) -> frozenset[int]:
    """Threads of the autograd engine: by name, by their autograd ranges, else by launching without phases."""
    ranges = trace.ranges
    named = {i for i, t in enumerate(trace.threads) if any(n.startswith("pt_autograd_") for n in t.names)}
    autograd = (ranges.kind == RangeKind.OPERATOR) & matching(
        trace.strings, ranges.name, lambda text: text.startswith(("autograd::engine::", "torch::autograd::"))
    )
    marked = set(distinct(ranges.thread[autograd])[0].tolist())
    kernels = np.isin(trace.operations.kind, (OperationKind.KERNEL, OperationKind.GRAPH)) & launches.linked
    launching = set(distinct(launches.thread[kernels])[0].tolist())
    opening = set(distinct(ranges.thread[phases])[0].tolist())
    nameless = {t for t in launching - opening if not trace.threads[t].names}
    return frozenset((named | marked | nameless) & (launching | named) - {-1})


def _attribute(
    trace: Trace, launches: Launches, nesting: Nesting, autograd: frozenset[int]
) -> tuple[Column, Column]:
    found, thread = np.full(len(launches.call), -1, np.int64), launches.thread.copy()
    linked = np.flatnonzero(launches.linked)
    found[linked], thread[linked] = _innermost(
        trace, nesting, autograd, thread[linked], launches.time_ns[linked]
    )
    return found, thread


def is_within(path: str | None, name: str) -> bool:
    """Whether a phase's path is that of a named phase or lies in it; the name may be several levels: ``forward/loss``."""
    return path is not None and f"/{name}/" in f"/{path}/"


def phase_at(trace: Trace, phases: Phases, thread: NDArray[Any], time: NDArray[Any]) -> Column:
    """The phase, as a row of `Trace.ranges` or -1, of what threads do at some instants.

    As for launches: an autograd thread without a phase of its own has that of the only thread that has one open.
    """
    return _innermost(trace, phases.nesting, phases.autograd_threads, thread, time)[0]


def _innermost(
    trace: Trace, nesting: Nesting, autograd: frozenset[int], thread: NDArray[Any], time: NDArray[Any]
) -> tuple[Column, Column]:
    """The innermost phase at each instant of a thread, and the thread that has it open."""
    found, owner = nesting.innermost(thread, time), thread.astype(np.int64)
    orphan = np.flatnonzero((found < 0) & np.isin(thread, sorted(autograd)))
    if len(orphan):
        process = np.array([t.process for t in trace.threads], np.int64)[thread[orphan]]
        rows, threads = _only_open(trace, nesting, process, time[orphan])
        found[orphan] = rows
        owner[orphan] = np.where(rows >= 0, threads, owner[orphan])
    return found, owner


def _only_open(trace: Trace, nesting: Nesting, process: NDArray[Any], time: Column) -> tuple[Column, Column]:
    """The innermost phase at each instant, where exactly one thread of the process has one open."""
    row = np.full(len(time), -1, np.int64)
    owner = np.full(len(time), -1, np.int64)
    holders = np.zeros(len(time), np.int64)
    for thread in nesting.threads:
        mine = np.flatnonzero(process == trace.threads[thread].process)
        open_row = nesting.open_on(thread, time[mine])
        is_open = open_row >= 0
        row[mine[is_open]], owner[mine[is_open]] = open_row[is_open], thread
        holders[mine[is_open]] += 1
    return np.where(holders == 1, row, -1), np.where(holders == 1, owner, -1)


def _paths(trace: Trace, rows: NDArray[np.bool_], nesting: Nesting) -> tuple[Column, list[str], list[int]]:
    """Intern the path of every phase: its name under that of its parents, level by level."""
    path = np.full(len(rows), -1, np.int64)
    names: list[str] = []
    ids: dict[tuple[int, int], int] = {}
    above: list[int] = []
    level = np.flatnonzero(rows & (nesting.parent < 0))
    while len(level):
        parents = np.where(nesting.parent[level] >= 0, path[nesting.parent[level]], -1)
        keys, inverse = np.unique(np.stack((parents, trace.ranges.name[level])), axis=1, return_inverse=True)
        for parent, name in keys.T.tolist():
            if (parent, name) not in ids:
                ids[parent, name] = len(names)
                text = trace.strings[name].replace("/", "∕") or "<unnamed>"
                names.append(f"{names[parent]}/{text}" if parent >= 0 else text)
                above.append(parent)
        known = np.array([ids[p, n] for p, n in keys.T.tolist()], np.int64)
        path[level] = known[np.ravel(inverse)]
        level = np.flatnonzero(
            rows & (path < 0) & (path[np.maximum(nesting.parent, 0)] >= 0) & (nesting.parent >= 0)
        )
    return _by_first_start(trace, path, names, above)


def _by_first_start(
    trace: Trace, path: Column, names: list[str], above: list[int]
) -> tuple[Column, list[str], list[int]]:
    has = np.flatnonzero(path >= 0)
    first = np.full(len(names), np.iinfo(np.int64).max)
    np.minimum.at(first, path[has], trace.ranges.start_ns[has])
    # A parent starts no later than its child; where both start at once, the shorter path is the parent.
    order = sorted(range(len(names)), key=lambda i: (first[i], names[i].count("/"), names[i]))
    place = np.empty(len(names) + 1, np.int64)
    place[order] = np.arange(len(names))
    place[-1] = -1
    return place[path], [names[i] for i in order], [int(place[above[i]]) for i in order]
