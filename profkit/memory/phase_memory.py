"""Phases and steps of a memory history: the annotations, placed among the states of a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.memory.replay import DeviceReplay
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_memory import MemoryPhase, MemoryStep, PhaseSpan
from profkit.timeline.phases import DEEPEST_PHASE
from profkit.timeline.range_names import is_library, is_operator_name, profiler_step, step_like

__all__ = [
    "Stretch",
    "Stretches",
    "find_stretches",
    "merged_phases",
    "merged_steps",
    "phases_of_device",
    "stretch_rows",
]


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
            found.append(PhaseSpan(path=path, start_ns=start, end_ns=end))
        return self._found(found)

    def spans(self, spans: Sequence[PhaseSpan]) -> list[Stretch]:
        if not self._timed:
            return []
        return self._found(sorted(spans, key=lambda span: (span.start_ns, -span.end_ns)))

    def _found(self, spans: Sequence[PhaseSpan]) -> list[Stretch]:
        first = np.searchsorted(self._times, [span.start_ns for span in spans], side="left").tolist()
        last = np.searchsorted(self._times, [span.end_ns for span in spans], side="right").tolist()
        return [
            Stretch(span.path, span.start_ns, span.end_ns, *states)
            for span, *states in zip(spans, first, last, strict=True)
        ]


def stretch_rows(replayed: DeviceReplay, stretches: Sequence[Stretch]) -> list[MemoryPhase]:
    """For each stretch its peak, net growth and churn in bytes; None where nothing was recorded."""
    if not replayed.recorded:
        return [
            MemoryPhase(path=each.path, peak_allocated_bytes=None, net_bytes=None, count=1)
            for each in stretches
        ]
    lives = replayed.lifetimes
    grown = np.zeros(len(replayed.allocated) + 1, np.int64)
    traced = lives.allocated > 0
    np.add.at(grown, lives.allocated[traced], lives.bytes[traced])
    total = np.cumsum(grown)
    rows = []
    for each in stretches:
        inside = replayed.allocated[each.first : each.last + 1]
        rows.append(
            MemoryPhase(
                path=each.path,
                peak_allocated_bytes=int(inside.max()),
                net_bytes=int(inside[-1] - inside[0]),
                count=1,
                churn_bytes=int(total[each.last] - total[each.first]),
            )
        )
    return rows


def phases_of_device(rows: Iterable[MemoryPhase]) -> list[MemoryPhase]:
    """One row for each path of one device: the highest peak, all growth, in order of first start."""
    merged: dict[str, MemoryPhase] = {}
    for row in rows:
        known = merged.get(row.path)
        merged[row.path] = row if known is None else _joined(known, row, known.count + row.count)
    return list(merged.values())


def merged_phases(devices: Iterable[Sequence[MemoryPhase]]) -> list[MemoryPhase]:
    """The phases of all devices as one: they were entered at the same times, so the counts are those of one."""
    merged: dict[str, MemoryPhase] = {}
    for row in (row for rows in devices for row in rows):
        known = merged.get(row.path)
        merged[row.path] = row if known is None else _joined(known, row, known.count)
    return list(merged.values())


def merged_steps(devices: Iterable[Sequence[MemoryPhase]]) -> list[MemoryStep]:
    """The steps of all devices as one, in order; equal names stay apart."""
    merged: dict[tuple[int, str], MemoryPhase] = {}
    for step, row in (numbered for rows in devices for numbered in enumerate(rows)):
        known = merged.get((step, row.path))
        merged[step, row.path] = row if known is None else _joined(known, row, known.count)
    return [
        MemoryStep(
            step=step,
            path=path,
            peak_allocated_bytes=row.peak_allocated_bytes,
            net_bytes=row.net_bytes,
            churn_bytes=row.churn_bytes,
        )
        for (step, path), row in merged.items()
    ]


def _joined(first: MemoryPhase, second: MemoryPhase, count: int) -> MemoryPhase:
    return MemoryPhase(
        path=first.path,
        peak_allocated_bytes=_of_known(max, first.peak_allocated_bytes, second.peak_allocated_bytes),
        net_bytes=_of_known(sum, first.net_bytes, second.net_bytes),
        count=count,
        churn_bytes=_of_known(sum, first.churn_bytes, second.churn_bytes),
    )


def _of_known(combine: Callable[[list[int]], int], *values: int | None) -> int | None:
    """What is known combined; None where nothing is."""
    known = [value for value in values if value is not None]
    return combine(known) if known else None
