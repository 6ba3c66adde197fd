"""Reports before and after a change, compared: what `profkit.compare/1` says, as codes and numbers."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.comparison.conditions import setup_warnings
from profkit.comparison.kernel_changes import kernel_changes
from profkit.comparison.memory_changes import memory_changes
from profkit.comparison.numerics_changes import numerics_changes
from profkit.comparison.partition import part_changes, phase_changes, share_changes
from profkit.comparison.rows import ComparedInput, ComparedSide, Comparison, Counts
from profkit.comparison.side import Side
from profkit.comparison.table_changes import communication_changes, phase_details, sync_changes
from profkit.comparison.verdict import judge, verdict_of
from profkit.comparison.work_done import compare_work
from profkit.model.report import Report

__all__ = ["compare_reports"]


def compare_reports(before: Sequence[Report], after: Sequence[Report]) -> Comparison:
    """Compare the step before and after a change.

    Args:
        before: One or several reports of the step before; several tell how much recordings differ by chance.
        after: Those of the step after.
    """
    first, second = Side(before), Side(after)
    work = compare_work(first, second)
    warnings = setup_warnings(first, second, work)
    judged = judge(first, second, warnings, work.ratio)
    kernels = kernel_changes(first, second)
    counts = [round(side.per_step(sum(row.count for row in side.kernels)), 2) for side in (first, second)]
    return Comparison(
        verdict=verdict_of(judged),
        step=judged,
        warnings=warnings,
        parts=part_changes(first, second, kernels),
        phases=phase_changes(first, second),
        shares=share_changes(first, second),
        kernels=kernels,
        kernel_count=Counts(before=counts[0], after=counts[1]),
        phase_details=phase_details(first, second),
        memory=memory_changes(first, second),
        numerics=numerics_changes(first, second),
        syncs=sync_changes(first, second),
        communication=communication_changes(first, second),
        before=_compared(first),
        after=_compared(second),
    )


def _compared(side: Side) -> ComparedSide:
    devices = {row.name or "unnamed device" for report in side.reports for row in report.devices}
    return ComparedSide(
        inputs=[
            ComparedInput(path=row.path, format=row.format, tool=row.tool, tool_version=row.tool_version)
            for row in side.inputs
        ],
        devices=sorted(devices),
        steps=side.steps,
    )
