"""Collectives: what of them is transfer, smaller ones, ones that run beside kernels, ones that are asked for earlier."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from profkit.ranks.collective_table import describe_communication
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.step_program import Program
from profkit.timeline.grouping import group_rows
from profkit.timeline.intervals import Intervals
from profkit.timeline.view import TraceView

__all__ = ["asked_earlier", "beside_kernels", "exposed_ns", "shrunk", "transfer_ns"]

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Column = NDArray[np.int64]
Key = tuple[str, str | None, str | None]
"""Collective, process group, type of the elements."""


def transfer_ns(views: Sequence[TraceView], own: TraceView, program: Program) -> Floats:
    """What each collective of a step takes once all ranks are there; its whole duration for other operations.

    A rank that comes early waits inside the kernel. The one that comes last does not, so the shortest of the same
    collective over steps, devices and files is the nearest to its transfer.

    Args:
        views: All traces of the job.
        own: The trace of the step.
        program: The step.
    """
    whole = program.duration_ns.astype(float)
    numbers: dict[tuple[Key, int | None], int] = {}
    parts = [_lasted(view, numbers) for view in views]
    kind, place, ns = (np.concatenate([part[at] for part in parts]) for at in (1, 2, 3))
    if not len(ns):
        return whole
    group, _ = group_rows(kind, place)
    shortest = np.full(int(group.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(shortest, group, ns)
    mine = next(at for at, view in enumerate(views) if view is own)
    first = sum(len(part[0]) for part in parts[:mine])
    rows = parts[mine][0]
    known = np.full(len(own.trace.operations), -1, np.int64)
    known[rows] = shortest[group[first : first + len(rows)]]
    found = known[program.row]
    return np.where(found >= 0, found, whole)


def _lasted(
    view: TraceView, numbers: dict[tuple[Key, int | None], int]
) -> tuple[Column, Column, Column, Column]:
    """The rows of a trace's collectives, what each is by number, its place in the step where it has no size, its ns."""
    described, operations = describe_communication(view), view.trace.operations
    rows = described.rows
    pairs = list(zip(described.keys, described.sizes, strict=True))
    number = np.array([numbers.setdefault(pair, len(numbers)) for pair in pairs] or [0], np.int64)
    nameless = np.array([size is None for size in described.sizes] or [True])[described.kind]
    group, _ = group_rows(described.kind, operations.device[rows], view.step_of_operation[rows])
    order = np.argsort(group, kind="stable")
    place = np.empty(len(rows), np.int64)
    place[order] = np.arange(len(rows)) - np.searchsorted(group[order], group[order])
    lasted = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    return rows, number[described.kind], np.where(nameless, place, -1), lasted


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
