"""What each collective takes once all ranks are there: the shortest of its kind over steps, devices and files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_table import describe_communication
from profkit.simulation.step_program import Program
from profkit.timeline.grouping import group_rows
from profkit.timeline.view import TraceView

__all__ = ["Exchanged", "Kind", "Shortest", "kinds_of", "paces_ns", "transfer_ns"]

Floats = NDArray[np.float64]
Column = NDArray[np.int64]
Kind = tuple[tuple[str, str | None, str | None], int | None, int]
"""Collective, process group, type of the elements; the size; where that is unknown, the place in the step, else -1."""
Shortest = Mapping[Kind, tuple[int, int]]
"""Of each kind of collective the shortest in ns, and on how many devices it was seen."""


@dataclass(frozen=True)
class Exchanged:
    """The collectives of some traces, which add up."""

    shortest: Shortest = field(default_factory=dict)
    devices: int = 0
    """How many have some."""

    @classmethod
    def of(cls, views: Sequence[TraceView]) -> Exchanged:
        """Those of some traces."""
        rows = [view.trace.operations.device[describe_communication(view).rows] for view in views]
        return cls(
            _shortest_of([_shortest(view) for view in views]), sum(len(np.unique(each)) for each in rows)
        )

    @classmethod
    def together(cls, parts: Sequence[Exchanged]) -> Exchanged:
        """Those of several parts as one."""
        return cls(_shortest_of([part.shortest for part in parts]), sum(part.devices for part in parts))


def transfer_ns(exchanged: Exchanged, own: TraceView, program: Program) -> Floats:
    """What each collective of a step takes once all ranks are there; its whole duration for other operations.

    A rank that comes early waits inside the kernel. The one that comes last does not, so the shortest of the same
    collective over steps, devices and files is the nearest to its transfer.

    Args:
        exchanged: The collectives of all traces of the job.
        own: The trace of the step.
        program: The step.
    """
    kinds, number = kinds_of(own, program)
    known = np.array([exchanged.shortest[kind][0] for kind in kinds] or [0], float)
    return np.where(number >= 0, known[number], program.duration_ns)


def paces_ns(view: TraceView, *, of_ranks: bool) -> list[int]:
    """How much each device of a trace has to do with the step's length: the one with most sets the pace.

    Args:
        view: The analysed trace.
        of_ranks: Whether ranks wait for each other. Then that is the window without collectives: who waits least is the
            one that the others wait for. Else it is what the device did.
    """
    operations, count = view.trace.operations, len(view.trace.devices)
    duration = (operations.end_ns - operations.start_ns).astype(np.int64)
    if not of_ranks:
        return [int(duration[operations.device == device].sum()) for device in range(count)]
    rows = describe_communication(view).rows
    kept = np.ones(len(rows), bool)
    if view.steps.count:
        step = view.step_of_operation[rows]
        kept = view.kept_steps[np.maximum(step, 0)] & (step >= 0)
    collectives = np.bincount(operations.device[rows][kept], duration[rows][kept], count)
    return [view.windows[device].total_ns - int(collectives[device]) for device in range(count)]


def _shortest(view: TraceView) -> Shortest:
    """The shortest collectives of a trace."""
    rows, kinds, number = _described(view)
    operations = view.trace.operations
    least = np.full(len(kinds), np.iinfo(np.int64).max)
    np.minimum.at(least, number, (operations.end_ns - operations.start_ns)[rows])
    devices = np.zeros(len(kinds), np.int64)
    for device in range(len(view.trace.devices)):
        devices[np.unique(number[operations.device[rows] == device])] += 1
    return dict(zip(kinds, zip(least.tolist(), devices.tolist(), strict=True), strict=True))


def _shortest_of(parts: Sequence[Shortest]) -> Shortest:
    """Those of several traces as one: parts may be united in any grouping."""
    united: dict[Kind, tuple[int, int]] = {}
    for part in parts:
        for kind, (least, devices) in part.items():
            before, seen = united.get(kind, (least, 0))
            united[kind] = (min(before, least), seen + devices)
    return united


def kinds_of(view: TraceView, program: Program) -> tuple[Sequence[Kind], Column]:
    """The kinds of a trace's collectives, and the number of each of a step's operations among them, or -1."""
    rows, kinds, number = _described(view)
    of_row = np.full(len(view.trace.operations), -1, np.int64)
    of_row[rows] = number
    return kinds, of_row[program.row]


def _described(view: TraceView) -> tuple[Column, Sequence[Kind], Column]:
    """The rows of a trace's collectives, their kinds, and the number of each among them."""
    described, operations = describe_communication(view), view.trace.operations
    rows = described.rows
    nameless = np.array([size is None for size in described.sizes] or [True])[described.kind]
    group, _ = group_rows(described.kind, operations.device[rows], view.step_of_operation[rows])
    order = np.argsort(group, kind="stable")
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.searchsorted(group[order], group[order])
    number, first = group_rows(described.kind, np.where(nameless, place, -1))
    numbers: dict[Kind, int] = {}
    codes = []
    for kind, at in zip(described.kind[first].tolist(), place[first].tolist(), strict=True):
        size = described.sizes[kind]
        named = (described.keys[kind], size, at if size is None else -1)
        codes.append(numbers.setdefault(named, len(numbers)))
    return rows, list(numbers), np.array(codes or [0], np.int64)[number]
