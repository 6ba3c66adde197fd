"""What a step takes that only infers: no gradients, no optimizer, and results end where they are last taken."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import ACTIVATION, BACKWARD, GRADIENT, OPTIMIZER, OPTIMIZER_STATE
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.memory_changes import MemoryChange
from profkit.simulation.memory_program import MemoryProgram

__all__ = ["infer_only"]

_BYTES = (1, 2, 4, 8)
"""Of one element."""


def infer_only(operators: BlockOperators) -> MemoryChange:
    """The forward pass alone, under ``torch.no_grad()``."""

    def change(program: MemoryProgram) -> MemoryProgram:
        gone = np.isin(program.use, (GRADIENT, OPTIMIZER_STATE))
        gone |= program.born_in(BACKWARD) | program.born_in(OPTIMIZER)
        last = operators.spread(
            _last_taken(program.recorded, operators), len(program.recorded.requested), 0.0
        )
        lasts = np.append(last, 0.0)[program.source].astype(np.int64)
        ends = np.maximum(program.allocated + 1, program.allocated + lasts)
        kept = (program.use == ACTIVATION) & ~program.before
        freed, reusable = (np.where(kept, np.minimum(ends, c), c) for c in (program.freed, program.reusable))
        return program.without(gone).with_columns(freed=freed, reusable=reusable)

    return change


def _last_taken(program: MemoryProgram, operators: BlockOperators) -> NDArray[np.float64]:
    """For each of the step's rows: how many states after it is made a forward operator takes it for the last time.

    An operator takes the latest results that have the sizes of its inputs.
    """
    rows = operators.rows
    made: dict[int, list[int]] = {}
    for index, call in enumerate(operators.call.tolist()):
        made.setdefault(call, []).append(index)
    by_bytes: dict[int, list[int]] = {}
    taken = np.zeros(len(rows))
    for number, call in enumerate(operators.calls):
        if call.backward:
            continue
        used: set[int] = set()
        for size in call.sizes:
            near = [i for each in _BYTES for i in by_bytes.get(size * each, [])[-3:] if i not in used]
            if size and near:
                latest = max(near)
                used.add(latest)
                taken[latest] = call.last - program.allocated[rows[latest]] + 1
        for index in made.get(number, []):
            by_bytes.setdefault(int(program.requested[rows[index]]), []).append(index)
    return np.maximum(taken, 1.0)
