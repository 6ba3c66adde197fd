"""What every device operation of a recording was: one row a launch, in columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import LAUNCH_SHAPE
from profkit.model.work import Basis, OperationBound
from profkit.roofline.kernel_table import input_shapes
from profkit.timeline.view import TraceView

__all__ = ["LAUNCH_COLUMNS", "launch_columns"]

LAUNCH_COLUMNS: Final = (
    "device", "stream", "step", "phase", "operator", "shapes", "name", "short_name", "dtype", "start_ns", "duration_ns",
    "grid", "block", "bound", "basis", "flop", "dram_bytes", "efficiency",
)  # fmt: skip
"""The columns, in order."""

Column = NDArray[Any]


def launch_columns(view: TraceView, first_device: int, offset_ns: int) -> dict[str, Column]:
    """Every operation of a trace, in the order of their starts, inside of steps or not.

    Args:
        view: The trace.
        first_device: The report's id of its first device.
        offset_ns: What to add to its times: a report starts with the earliest event of its files.

    Returns:
        A column for each of `LAUNCH_COLUMNS`, of one length. Times are int64 ns, FLOP and bytes float64 with NaN for
        unknown; texts and triples are objects, with None for unknown.
    """
    operations, work = view.trace.operations, view.work
    rows = np.argsort(operations.start_ns, kind="stable")
    name = operations.name[rows]
    classes = work.class_of_name
    short = {i: classes[i].short_name if i in classes else text for i, text in enumerate(view.trace.strings)}
    numbers, shapes = input_shapes(view, rows)
    sides = [np.stack([getattr(operations, c)[rows] for c in axes], 1) for axes in _AXES]
    return {
        "device": operations.device[rows].astype(np.int64) + first_device,
        "stream": operations.stream[rows],
        "step": _texts(view.steps.names, view.step_of_operation[rows]),
        "phase": _texts(view.phases.paths, view.phases.path_of(view.phases.of_operation[rows])),
        "operator": _operators(view, rows),
        "shapes": _texts(shapes[:-1], numbers),
        "name": _texts(view.trace.strings, name),
        "short_name": _texts(list(short.values()), name),
        "dtype": _texts(work.dtypes, work.dtype[rows]),
        "start_ns": operations.start_ns[rows] + offset_ns,
        "duration_ns": (operations.end_ns - operations.start_ns)[rows],
        "grid": _triples(sides[0]),
        "block": _triples(sides[1]),
        "bound": _texts([each.name.lower() for each in OperationBound], work.bound[rows]),
        "basis": _texts([each.name.lower() for each in Basis], work.basis[rows]),
        "flop": work.flop[rows],
        "dram_bytes": work.dram_bytes[rows],
        "efficiency": work.efficiency[rows],
    }


_AXES: Final = (LAUNCH_SHAPE[:3], LAUNCH_SHAPE[3:])


def _texts(values: Sequence[object], at: NDArray[Any]) -> Column:
    """Values by number; None for -1."""
    known = np.fromiter([*values, None], object, len(values) + 1)
    taken: Column = known[at.astype(np.int64)]
    return taken


def _triples(sides: NDArray[Any]) -> Column:
    distinct, which = np.unique(sides, axis=0, return_inverse=True)
    return _texts([None if -1 in each else tuple(each) for each in distinct.tolist()], which.reshape(-1))


def _operators(view: TraceView, rows: NDArray[np.int64]) -> Column:
    """The operator that launched each operation; without one of its own, that of the profiler trace beside it."""
    found = _own_operators(view, rows)
    if view.operator_trace is not None:
        match = view.match[rows]
        lent = (view.launches.operator[rows] < 0) & (match >= 0)
        found[lent] = _own_operators(view.operator_trace, match[lent])
    return found


def _own_operators(view: TraceView, rows: NDArray[np.int64]) -> Column:
    operator, names = view.launches.operator[rows], view.trace.ranges.name
    return _texts(
        view.trace.strings, np.where(operator >= 0, names[np.maximum(operator, 0)] if len(names) else -1, -1)
    )
