"""Changes of a step's memory: each makes another program of blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import (
    GRADIENT,
    OPTIMIZER,
    OPTIMIZER_STATE,
    PARAMETER,
    TEMPORARY,
)
from profkit.model import IntColumn
from profkit.simulation.memory_program import MemoryProgram

__all__ = [
    "MemoryChange",
    "accumulate_over",
    "batch_times",
    "fuse_optimizer",
    "keep_gradients",
    "offload_optimizer",
    "optimizer_kind",
]

MemoryChange: TypeAlias = Callable[[MemoryProgram], MemoryProgram]


def batch_times(factor: float) -> MemoryChange:
    """The batch so many times as large."""
    return lambda program: program.scaled(program.batched, factor)


def accumulate_over(parts: int) -> MemoryChange:
    """The batch in so many parts, one after another, whose gradients add up."""
    return lambda program: keep_gradients(program.scaled(program.batched, 1 / parts))


def keep_gradients(program: MemoryProgram) -> MemoryProgram:
    """Gradients stay from step to step (``set_to_none=False``); each backward makes another one to add to each."""
    rows = np.flatnonzero((program.use == GRADIENT) & ~program.before & (program.requested > 0))
    bounds = program.step_bounds
    step = np.clip(np.searchsorted(bounds, program.allocated[rows]), 1, len(bounds) - 1)
    new = program.allocated[rows]
    added = program.with_rows(rows, freed=new + 1, reusable=new + 1, use=np.full(len(rows), TEMPORARY))
    allocated, freed, reusable = added.allocated.copy(), added.freed.copy(), added.reusable.copy()
    allocated[rows] = bounds[step - 1] + 1
    freed[rows] = reusable[rows] = np.maximum(bounds[step], new + 1)
    return added.with_columns(allocated=allocated, freed=freed, reusable=reusable)


def offload_optimizer(program: MemoryProgram) -> MemoryProgram:
    """The optimizer's state and its update in the host's memory."""
    return fuse_optimizer(program.without(program.use == OPTIMIZER_STATE))


def fuse_optimizer(program: MemoryProgram) -> MemoryProgram:
    """The optimizer in one kernel, which needs no temporaries."""
    return program.without((program.use == TEMPORARY) & program.born_in(OPTIMIZER))


_ADAM = 2.0
_STATES = {"sgd": 0.0, "adam": _ADAM, "adam8bit": 0.5 + 2 * 4 / 4 / 256}
"""State by parameter, as a multiple of it in fp32. bitsandbytes keeps two bytes, and a float for each block of 256."""
_SMALL_BYTES = 4 * 4096
"""bitsandbytes keeps the states of smaller parameters in fp32 (``min_8bit_size`` of its optimizers)."""


def optimizer_kind(kind: str, *, foreach: bool) -> MemoryChange:
    """Another optimizer: ``sgd`` without momentum, ``adam`` in fp32, ``adam8bit`` with states of one byte.

    The kernels of bitsandbytes need no temporaries, and neither does SGD without momentum. ``foreach`` is: an Adam that was not
    there needs them.
    """

    def change(program: MemoryProgram) -> MemoryProgram:
        parameters = program.use == PARAMETER
        states = program.use == OPTIMIZER_STATE
        small = states & (program.requested < _SMALL_BYTES) if _STATES[kind] else np.zeros_like(states)
        fixed, held = (int(program.requested[rows].sum()) for rows in (small, states))
        wanted = float((_multiples(program.requested, kind) * program.requested)[parameters].sum())
        if held > fixed and held >= wanted:
            changed = program.scaled(states & ~small, max(wanted - fixed, 0.0) / (held - fixed))
        else:
            changed = _with_states(program.without(states), kind)
            changed = _with_roots(changed) if foreach and kind == "adam" else changed
        return changed if kind == "adam" else fuse_optimizer(changed)

    return change


def _with_roots(program: MemoryProgram) -> MemoryProgram:
    """At the end of each step the square roots of all second moments at once (``_multi_tensor_adam`` of torch)."""
    rows = np.flatnonzero((program.use == PARAMETER) & (program.requested > 0))
    ends = np.repeat(program.step_bounds[1:] - 1, len(rows))
    return program.with_rows(
        np.tile(rows, len(program.step_bounds) - 1),
        allocated=ends,
        freed=ends + 1,
        reusable=ends + 1,
        use=np.full(len(ends), TEMPORARY),
    )


def _multiples(requested: IntColumn, kind: str) -> NDArray[np.float64]:
    small = (requested < _SMALL_BYTES) & (_STATES[kind] > 0)
    return np.where(small, _ADAM, _STATES[kind])


def _with_states(program: MemoryProgram, kind: str) -> MemoryProgram:
    rows = np.flatnonzero((program.use == PARAMETER) & (program.requested > 0))
    count = int(np.ceil(_STATES[kind]))
    copies = np.repeat(rows, count)
    each = _multiples(program.requested, kind)[copies] / max(count, 1)
    return program.with_rows(
        copies,
        requested=np.ceil(program.requested[copies] * each).astype(np.int64),
        rest=np.zeros(len(copies), np.int64),
        use=np.full(len(copies), OPTIMIZER_STATE),
    )
