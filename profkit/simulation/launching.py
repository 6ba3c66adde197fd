"""What holds the host up: launches that a CUDA graph takes away, waits, allocation, blocking launches."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.edited_step import Draft

__all__ = ["capture", "keep_memory", "lift_waits", "without_ranges"]

Flags = NDArray[np.bool_]


def capture(draft: Draft) -> None:
    """The whole step as one graph: its kernels one after the other, launched at once."""
    draft.graphed = True


def lift_waits(draft: Draft) -> None:
    """The host waits for nothing; copies of results to the host stay."""
    chosen = np.unique(draft.facts.token[draft.facts.innermost("aten::_local_scalar_dense") & draft.alive])
    draft.gap_ns[chosen] *= draft.constants.asked
    draft.own_ns[chosen] *= draft.constants.asked
    draft.own_ns = np.where(draft.waits, np.maximum(draft.own_ns, draft.constants.lifted_ns), draft.own_ns)
    draft.waits = np.zeros_like(draft.waits)


def keep_memory(draft: Draft) -> None:
    """No allocation from the driver: the time of its calls, and the waits that they are, are gone."""
    draft.gap_ns -= draft.allocation_ns
    draft.allocation_ns = np.zeros_like(draft.allocation_ns)


def without_ranges(ranges: Flags) -> Callable[[Draft], None]:
    """The host time inside some ranges is gone: of each, up to what lies before the next launch.

    Args:
        ranges: Which rows of `Trace.ranges`; those outside of the step are left alone.
    """

    def change(draft: Draft) -> None:
        trace, program = draft.facts.view.trace, draft.facts.program
        rows = np.flatnonzero(ranges)
        start, end = trace.ranges.start_ns[rows], trace.ranges.end_ns[rows]
        called = trace.calls.start_ns[program.call[:-1]]
        since, until = int(called[0]) - int(program.gap_ns[0]), int(called[-1]) + int(program.gap_ns[-1])
        inside = (start >= since) & (start < until)
        token = np.searchsorted(called, start)
        recorded = np.maximum(program.gap_ns, 1)
        spent = np.bincount(token[inside], (end - start)[inside], minlength=program.tokens)
        fixed = draft.input_ns + draft.allocation_ns
        # Of the gap as recorded; without the recorder it is shorter, and so is the range.
        left = draft.gap_ns * (1 - np.minimum(spent / recorded, 1.0))
        draft.gap_ns = np.maximum(left, np.minimum(fixed, draft.gap_ns))

    return change
