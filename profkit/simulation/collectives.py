"""Collectives: what of them is transfer, smaller ones, ones that run beside kernels, ones that are asked for earlier."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_table import describe_communication
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.step_program import Program
from profkit.timeline.grouping import group_rows
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView

__all__ = [
    "Kind",
    "Shortest",
    "asked_earlier",
    "beside_kernels",
    "exposed_ns",
    "kinds_of",
    "shortest",
    "shortest_of",
    "shrunk",
    "transfer_ns",
]

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Column = NDArray[np.int64]
Kind = tuple[tuple[str, str | None, str | None], int | None, int]
"""Collective, process group, type of the elements; the size; where that is unknown, the place in the step, else -1."""
Shortest = Mapping[Kind, tuple[int, int]]
"""Of each kind of collective the shortest in ns, and on how many devices it was seen."""


def transfer_ns(views: Sequence[TraceView], own: TraceView, program: Program) -> Floats:
    """What each collective of a step takes once all ranks are there; its whole duration for other operations.

    A rank that comes early waits inside the kernel. The one that comes last does not, so the shortest of the same
    collective over steps, devices and files is the nearest to its transfer.

    Args:
        views: All traces of the job.
        own: The trace of the step.
        program: The step.
    """
    seen = shortest_of([shortest(view) for view in views])
    kinds, number = kinds_of(own, program)
    known = np.array([seen[kind][0] for kind in kinds] or [0], float)
    return np.where(number >= 0, known[number], program.duration_ns)


def shortest(view: TraceView) -> Shortest:
    """The shortest collectives of a trace."""
    rows, kinds, number = _described(view)
    operations = view.trace.operations
    least = np.full(len(kinds), np.iinfo(np.int64).max)
    np.minimum.at(least, number, (operations.end_ns - operations.start_ns)[rows])
    devices = np.zeros(len(kinds), np.int64)
    for device in range(len(view.trace.devices)):
        devices[np.unique(number[operations.device[rows] == device])] += 1
    return dict(zip(kinds, zip(least.tolist(), devices.tolist(), strict=True), strict=True))


def shortest_of(parts: Sequence[Shortest]) -> Shortest:
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


def exposed_ns(facts: StepFacts, chosen: Flags) -> Floats:
    """Of some operations of a step, the time in which no kernel computes; 0 for the others."""
    operations, rows = facts.view.trace.operations, facts.program.row
    kernels = np.array([k is not None and not k.is_collective for k in facts.kernels], bool)
    computing = Intervals.of(operations.start_ns[rows[kernels]], operations.end_ns[rows[kernels]])
    start, end = operations.start_ns[rows], operations.end_ns[rows]
    alone = (end - start - computing.within(start, end)).astype(float)
    return np.where(chosen, alone, 0.0)


def shrunk(chosen: Flags, saved_ns: Floats) -> Callable[[EditedStep], None]:
    """Some collectives are shorter, each by so much."""

    def change(edited: EditedStep) -> None:
        edited.retime(chosen, edited.duration_ns - saved_ns)

    return change


def beside_kernels(chosen: Flags) -> Callable[[EditedStep], None]:
    """Some collectives of the computing stream run on one of their own, between what they read and the optimizer."""

    def change(edited: EditedStep) -> None:
        facts, rows = edited.facts, np.flatnonzero(chosen & edited.alive)
        if not len(rows):
            return
        side = int(edited.stream.max()) + 1
        for row in rows.tolist():
            before = np.flatnonzero((edited.stream[:row] == edited.stream[row]) & ~chosen[:row])
            edited.after[row] = before[-1] if len(before) else -1
        edited.stream[rows] = side
        readers = np.flatnonzero(facts.optimizer & ~chosen & (np.arange(facts.count) > rows[-1]))
        if len(readers):
            edited.after[readers[0]] = rows[-1]

    return change


def asked_earlier(chosen: Flags, transfer: Floats) -> Callable[[EditedStep], None]:
    """Some collectives are asked for a layer ahead: what kernels there are hides most of their transfer.

    The first of them has nothing to hide behind.

    Args:
        chosen: The collectives.
        transfer: What of each is transfer, in ns: waiting for a late rank stays.
    """

    def change(edited: EditedStep) -> None:
        kernels = np.array([k is not None and not k.is_collective for k in edited.facts.kernels], bool)
        later = chosen & edited.alive & (np.cumsum(chosen) > 1)
        could = np.where(later, np.minimum(exposed_ns(edited.facts, later), transfer), 0.0)
        room = float(edited.duration_ns[kernels & edited.alive].sum()) / max(float(could.sum()), 1.0)
        edited.retime(later, edited.duration_ns - could * min(1.0, room))

    return change
