"""What delays the host: launches that a CUDA graph takes away, waits, allocation, blocking launches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts

__all__ = ["capture", "keep_memory", "lift_waits", "scalar_reads", "stack_reads", "without_ranges"]

_FEWEST_SCALARS: Final = 4
_BETWEEN: Final = 4
"""Operations from one value that is read to the next of the same time."""

Flags = NDArray[np.bool_]


def capture(edited: EditedStep) -> None:
    """The whole step as one graph: its kernels one after the other, launched at once."""
    edited.graphed = True


def lift_waits(edited: EditedStep) -> None:
    """The host waits for nothing; copies of results to the host stay."""
    edited.waits = np.zeros_like(edited.waits)


def scalar_reads(facts: StepFacts) -> Flags:
    """Values that are read one by one at one time, but for the last of each time: hardly anything is launched between."""
    rows = np.flatnonzero(facts.innermost("aten::_local_scalar_dense") & ~facts.backward)
    found = np.zeros(facts.count, bool)
    if len(rows):
        run = np.cumsum(np.diff(rows, prepend=rows[:1]) > _BETWEEN)
        many = np.bincount(run)[run] >= _FEWEST_SCALARS
        last = np.append(run[1:] != run[:-1], True)
        found[rows[many & ~last]] = True
    return found


def stack_reads(edited: EditedStep) -> None:
    """These values are not read by themselves any more: neither copied, nor waited for."""
    chosen = edited.facts.once(scalar_reads)
    tokens = np.unique(edited.facts.token[chosen & edited.alive])
    edited.drop(chosen)
    after = np.intersect1d(tokens + 1, np.flatnonzero(edited.waits))
    edited.waits[after] = False
    edited.gap_ns[after], edited.own_ns[after] = edited.kept_ns[after], 0.0


def keep_memory(edited: EditedStep) -> None:
    """No allocation from the driver: the time of its calls, and the waits that they are, are gone."""
    edited.gap_ns -= edited.allocation_ns
    edited.allocation_ns = np.zeros_like(edited.allocation_ns)


def without_ranges(ranges: Flags) -> Callable[[EditedStep], None]:
    """The host time inside some ranges is gone: of each, up to what lies before the next launch.

    Args:
        ranges: Which rows of `Trace.ranges`; those outside of the step are left alone.
    """

    def change(edited: EditedStep) -> None:
        trace, program = edited.facts.view.trace, edited.facts.program
        rows = np.flatnonzero(ranges)
        start, end = trace.ranges.start_ns[rows], trace.ranges.end_ns[rows]
        called = trace.calls.start_ns[program.call[:-1]]
        since, until = int(called[0]) - int(program.gap_ns[0]), int(called[-1]) + int(program.gap_ns[-1])
        inside = (start >= since) & (start < until)
        token = np.searchsorted(called, start)
        recorded = np.maximum(program.gap_ns, 1)
        spent = np.bincount(token[inside], (end - start)[inside], minlength=program.tokens)
        fixed = edited.input_ns + edited.allocation_ns
        # Of the gap as recorded; without the recorder it is shorter, and so is the range.
        left = edited.gap_ns * (1 - np.minimum(spent / recorded, 1.0))
        edited.gap_ns = np.maximum(left, np.minimum(fixed, edited.gap_ns))

    return change
