"""Python loops over a tensor: found by runs of equal launches, and replaced by one of them."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts

__all__ = ["repeated", "vectorise"]

_LOOPED: Final = ("aten::select", "aten::slice", "aten::index_put_")
_FEWEST_IN_A_LOOP: Final = 24


def repeated(facts: StepFacts) -> NDArray[np.bool_]:
    """The later launches of long runs of one kernel with one grid, on parts of known and equal shapes."""
    operations, rows = facts.view.trace.operations, facts.program.row
    outer = [names[-1] if names else "" for names in facts.operators]
    shapes = np.full(facts.count, -1)
    known = np.array([bool(sizes) for sizes in facts.inputs], bool)
    shapes[known] = facts.view.trace.ranges.shapes[facts.operator_row[known]]
    parts = facts.named(*_LOOPED) | facts.innermost("aten::copy_")
    columns = (operations.name, operations.grid_x, operations.grid_y, operations.grid_z, operations.stream)
    key = np.stack([np.unique(outer, return_inverse=True)[1].ravel(), shapes, *(c[rows] for c in columns)])
    new = np.append(True, (key[:, 1:] != key[:, :-1]).any(axis=0))
    run = np.cumsum(new) - 1
    long = np.bincount(run) >= _FEWEST_IN_A_LOOP
    of_loops = long[run] & ~new & (parts & (shapes >= 0))[np.flatnonzero(new)[run]]
    found: NDArray[np.bool_] = of_loops & ~facts.optimizer & ~facts.backward & ~facts.compiled
    return found


def vectorise(edited: EditedStep) -> None:
    """One launch for each loop does the work of all."""
    chosen = edited.facts.once(repeated)
    work = np.where(chosen, np.maximum(edited.duration_ns - edited.constants.start_ns, 0.0), 0.0)
    run = np.cumsum(~chosen)
    first = ~chosen & np.append(chosen[1:], False)
    edited.duration_ns = edited.duration_ns + np.where(first, np.bincount(run, work)[run], 0.0)
    edited.drop(chosen)
