"""What the allocator reserves for a program's blocks: played from a warm start, as in a long run."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import OPTIMIZER, OPTIMIZER_STATE
from profkit.model import IntColumn
from profkit.simulation.caching_allocator import most_reserved
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["reserved_bytes"]


@lru_cache(maxsize=4)
def reserved_bytes(program: MemoryProgram, limit: int | None = None) -> int | None:
    """The most that the allocator reserves for the blocks of a program; None when they do not fit into ``limit``.

    A history that begins in the middle of a run does not tell how its old blocks came to lie where they do. So
    its first steps are played twice: once without the optimizer's state, which a first step makes at its end, in the
    places that activations left; then with it.
    """
    sizes = np.where(program.requested > 0, program.rules.rounded(program.requested), 0)
    if not program.before.any():
        return most_reserved(sizes, program.allocated, program.reusable, program.stream, program.rules, limit)
    last = _played_until(program)
    rows = np.flatnonzero(program.allocated < last)
    fresh = rows[~program.before[rows]]
    start, stop = _first_time(program, rows, last)
    again = last + 1 + np.minimum(program.reusable[fresh], last)
    return most_reserved(
        np.concatenate([sizes[rows], sizes[fresh]]),
        np.concatenate([start, last + 1 + program.allocated[fresh]]),
        np.concatenate([stop, again]),
        program.stream[np.concatenate([rows, fresh])],
        program.rules,
        limit,
    )


def _first_time(
    program: MemoryProgram, rows: IntColumn, last: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """When the blocks of the first time begin and end: old ones stay, new ones that stay are the next step's old ones."""
    before, ends = program.before[rows], program.reusable[rows]
    state = before & (program.use[rows] == OPTIMIZER_STATE)
    updates = np.flatnonzero(program.activity[:last] == OPTIMIZER)
    update = int(updates[0]) if len(updates) else last
    start = np.where(state, update, program.allocated[rows])
    stop = np.where(before & (ends >= last), 2 * last + 2, np.minimum(ends, last))
    return start, np.maximum(stop, np.where(state, last + 1, stop))


def _played_until(program: MemoryProgram) -> int:
    """The end of the step with the peak, of the second at least; the last state where no steps are known."""
    steps = program.stretches.steps or program.stretches.optimizer
    peak = int(program.curve().argmax())
    ends = [step.last for step in steps if step.last > 0][1:]
    return next((end for end in ends if end >= peak), program.end)
