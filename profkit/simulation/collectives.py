"""Collectives: what of them is transfer, smaller ones, ones that run beside kernels, ones that are asked for earlier."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts
from profkit.timeline.intervals import Intervals

__all__ = [
    "asked_earlier",
    "beside_kernels",
    "exposed_ns",
    "shrunk",
]

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
Column = NDArray[np.int64]


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
