"""Phases and steps of a memory history: the annotations, placed among the states of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.memory.replay import DeviceReplay
from profkit.analysis.phases import DEEPEST_PHASE
from profkit.analysis.range_names import is_library, is_operator_name, profiler_step, step_like
from profkit.analysis.result import Row
from profkit.model import MemoryHistory

__all__ = ["PhaseSpan", "Stretch", "Stretches", "find_stretches", "phase_rows", "stretch_rows"]


PhaseSpan = tuple[str, int, int]
"""Path, start and end in ns of a phase that another recording of the same process knows."""


@dataclass(frozen=True)
class Stretch:
    """One time that a phase or step was entered, in ns and in states of one device's replay."""

    path: str
    start_ns: int
    end_ns: int
    first: int
    """The state in which it began."""
    last: int
    """The state in which it ended."""


@dataclass(frozen=True)
class Stretches:
    """The stretches of one device's replay, each kind by start."""

    phases: list[Stretch]
    steps: list[Stretch]
    optimizer: list[Stretch]
    """Optimizer steps, which torch marks by itself."""

    def phase_of_events(self, events: int) -> NDArray[np.int64]:
        """For each event the index in ``phases`` of the innermost one, -1 outside."""
        owner = np.full(events, -1, np.int64)
        for index, stretch in enumerate(self.phases):
            owner[stretch.first : stretch.last] = index
        return owner


def find_stretches(
    history: MemoryHistory, replayed: DeviceReplay, others: Sequence[PhaseSpan] = ()
) -> Stretches:
    """Sort the annotations into phases, steps and optimizer steps.

    Marks of ``profkit.phase`` are the phases where there are any; else all annotations that are no step, no
    operator and no mark of a library; else ``others``, the phases of a trace of the same process in Unix time.
    """
    names = [history.text(int(name)) or "" for name in history.annotations.name]
    steps = [step_like(name) or profiler_step(name) for name in names]
    marked = history.annotations.marked == 1
    rows = _Placed(history, replayed, names)
    phases = [
        i
        for i, name in enumerate(names)
        if (marked[i] if marked.any() else not (steps[i] or is_library(name) or is_operator_name(name)))
    ]
    profiler = [i for i, name in enumerate(names) if profiler_step(name)]
    return Stretches(
        rows.stretches(phases, nested=True) if phases else rows.spans(others),
        rows.stretches(
            profiler or [i for i, step in enumerate(steps) if step and not marked[i]], nested=False
        ),
        rows.stretches(
            [i for i, name in enumerate(names) if name.startswith("Optimizer.step#")], nested=False
        ),
    )


class _Placed:
    """Annotations among the events of a device."""

    def __init__(self, history: MemoryHistory, replayed: DeviceReplay, names: list[str]) -> None:
        # Threads may write a few entries out of order; states need a time that never goes back.
        self._times = (
            np.maximum.accumulate(replayed.events.time_ns) if len(replayed.events) else np.zeros(0, np.int64)
        )
        self._timed = bool(len(self._times)) and int(self._times[0]) >= 0
        self._annotations = history.annotations
        self._names = names

    def stretches(self, rows: list[int], nested: bool) -> list[Stretch]:
        if not self._timed:
            return []
        starts, ends = self._annotations.start_ns, self._annotations.end_ns
        latest = max(int(self._times[-1]), int(starts.max()) if len(starts) else 0)
        # a clock that was set back, or a damaged file, ends an annotation before it starts
        closed = np.where(ends >= 0, np.maximum(starts, ends), latest)
        placed = [(int(starts[i]), int(closed[i]), self._names[i]) for i in rows]
        placed.sort(key=lambda stretch: (stretch[0], -stretch[1]))
        opened: list[tuple[int, str]] = []
        found: list[PhaseSpan] = []
        for start, end, name in placed:
            while opened and (opened[-1][0] <= start or opened[-1][0] < end):
                opened.pop()
            if len(opened) >= DEEPEST_PHASE:  # a path names all levels; it counts to the outer ones
                continue
            path = f"{opened[-1][1]}/{name}" if opened and nested else name
            opened.append((end, path))
            found.append((path, start, end))
        return self._found(found)

    def spans(self, spans: Sequence[PhaseSpan]) -> list[Stretch]:
        if not self._timed:
            return []
        return self._found(sorted(spans, key=lambda span: (span[1], -span[2])))

    def _found(self, spans: Sequence[PhaseSpan]) -> list[Stretch]:
        first = np.searchsorted(self._times, [start for _, start, _ in spans], side="left").tolist()
        last = np.searchsorted(self._times, [end for _, _, end in spans], side="right").tolist()
        return [Stretch(*span, *states) for span, *states in zip(spans, first, last, strict=True)]


def stretch_rows(replayed: DeviceReplay, stretches: list[Stretch]) -> list[Row]:
    """For each stretch its peak, net growth and churn in bytes; null where nothing was recorded."""
    lives = replayed.lifetimes
    grown = np.zeros(len(replayed.allocated) + 1, np.int64)
    traced = lives.allocated > 0
    np.add.at(grown, lives.allocated[traced], lives.bytes[traced])
    total = np.cumsum(grown)
    rows = []
    for stretch in stretches:
        inside = replayed.allocated[stretch.first : stretch.last + 1]
        rows.append(
            {
                "path": stretch.path,
                "peak_allocated_bytes": int(inside.max()) if replayed.recorded else None,
                "net_bytes": int(inside[-1] - inside[0]) if replayed.recorded else None,
                "churn_bytes": int(total[stretch.last] - total[stretch.first]) if replayed.recorded else None,
            }
        )
    return rows


def phase_rows(rows: list[Row]) -> list[Row]:
    """One row for each path: the highest peak, all growth, in order of first start."""
    merged: dict[str, Row] = {}
    for row in rows:
        known = merged.get(row["path"])
        if known is None:
            merged[row["path"]] = {**row, "count": 1}
            continue
        known["count"] += 1
        if row["peak_allocated_bytes"] is None:
            continue
        known["peak_allocated_bytes"] = max(known["peak_allocated_bytes"] or 0, row["peak_allocated_bytes"])
        for key in ("net_bytes", "churn_bytes"):
            known[key] = (known[key] or 0) + row[key]
    return list(merged.values())
