"""What changes would do to the memory of a step, for the report: each change alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.memory import MemoryFound
from profkit.model import Trace
from profkit.model.report_memory import FitRow
from profkit.simulation.answer import first_step
from profkit.simulation.block_operators import block_operators
from profkit.simulation.fit import fit_program, gpu_bytes, wanted_bytes
from profkit.simulation.fit_changes import FitChanges
from profkit.simulation.loss_memory import find_loss
from profkit.simulation.memory_program import memory_program
from profkit.simulation.recompute_memory import find_segments
from profkit.timeline.view import TraceView

__all__ = ["fit_rows"]

_ASKED: Final = (
    FitChanges(bf16=True),
    FitChanges(fused_attention=True),
    FitChanges(fused_loss=True),
    FitChanges(recompute="all"),
    FitChanges(fused_optimizer=True),
    FitChanges(optimizer="adam8bit"),
    FitChanges(batch=2),
)
_WORTH_SAYING: Final = 0.01
"""Of the peak: what changes less is not told."""


def fit_rows(memory: MemoryFound | None, traces: Sequence[Trace], views: Sequence[TraceView]) -> list[FitRow]:
    """The changes that move the peak by 1 % or more; none without a memory history and the step of a trace.

    Args:
        memory: The memory section, and the snapshot that it is of.
        traces: The traces of the report.
        views: Those that are timelines; the step is of the one that was recorded with the snapshot, where one was.
    """
    if memory is None or memory.history is None:
        return []
    step = first_step([memory.view] if memory.view else views)
    program = memory_program(memory.history) if step is not None else None
    if program is None:
        return []
    operators = next((made for each in traces if (made := block_operators(program, each))), None)
    layered, wanted = bool(find_segments(program)), wanted_bytes(program)
    rows = []
    for asked in _ASKED:
        if (asked.recompute and not layered) or (asked.without_operators() and operators is None):
            continue
        if asked.fused_loss and operators is not None and find_loss(operators) is None:
            continue
        found = fit_program(program, asked, operators, step=step, gpu_bytes=gpu_bytes(traces, program))
        peak = found.after.peak_bytes
        if found.after.step_ns is not None and abs(peak.likely - wanted) >= _WORTH_SAYING * wanted:
            rows.append(
                FitRow(
                    change=found.changes[0],
                    peak_bytes=peak,
                    step_ns=found.after.step_ns,
                    fits=found.fits,
                    memory_bytes=found.memory_bytes,
                    by_category=found.by_category,
                )
            )
    return rows
