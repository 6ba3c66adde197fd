"""Tables of a report as DataFrames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from profkit.errors import AnalysisError
from profkit.model import rows
from profkit.model.report import (
    AdviceRow,
    CommunicationRow,
    DeviceRow,
    FusionRow,
    KernelRow,
    OperatorRow,
    PhaseRow,
    RangeRow,
    RankRow,
    SourceRow,
    SyncRow,
)
from profkit.model.report_memory import HolderRow
from profkit.model.report_precision import OperatorTypes, PrecisionRow
from profkit.model.report_time import GapRow
from profkit.rendering.digest import scale_of
from profkit.rendering.document import Document, Finding, StepRow
from profkit.units import NS_PER_MS

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Per", "TABLES", "table_of"]

Per = Literal["step", "window"]


class IdleRow(rows.Row, frozen=True, kw_only=True):
    """Idle time of one cause."""

    cause: str
    """Why the devices ran nothing."""
    total_ns: rows.Ns
    """The window's idle time of this cause, over the devices."""


TABLES: Final[Mapping[str, type[rows.Row]]] = {
    "kernels": KernelRow,
    "phases": PhaseRow,
    "steps": StepRow,
    "devices": DeviceRow,
    "operators": OperatorRow,
    "precision": PrecisionRow,
    "operator_types": OperatorTypes,
    "ranges": RangeRow,
    "sources": SourceRow,
    "fusion": FusionRow,
    "syncs": SyncRow,
    "idle": IdleRow,
    "gaps": GapRow,
    "memory": HolderRow,
    "communication": CommunicationRow,
    "ranks": RankRow,
    "advice": AdviceRow,
    "health": Finding,
}
"""The tables that a report has, by name, and what their rows are."""

_SUMS: Final = frozenset(
    {
        "count", "kernel_count", "total_ns", "host_wall_ns", "gpu_inclusive_ns", "gpu_exclusive_ns", "host_ns", "host_self_ns",
        "gpu_ns", "gpu_self_ns", "gpu_backward_ns", "blocked_ns", "cost_ns", "exposed_ns", "waiting_ns", "transfer_ns", "flop", "dram_bytes",
        "bytes", "ns", "flop_ns",
    }
)  # fmt: skip
"""Columns that add up over the window, wherever they occur."""
_SUMMED: Final = frozenset(
    {"kernels", "phases", "operators", "ranges", "sources", "syncs", "idle", "communication", "precision"}
)
"""Tables of what occurs in every step; the others are of single things."""


def table_of(report: Document, name: str, per: Per = "window") -> pd.DataFrame:
    """A table of a report.

    Args:
        report: The report.
        name: One of `TABLES`.
        per: Whether sums are over the window, in ns, or what one step of one device has, in ms.

    Raises:
        AnalysisError: There is no such table, or nothing that it may be per.
    """
    if name not in TABLES:
        raise AnalysisError(f"table {name!r}", "a report has no such table", f"It has {', '.join(TABLES)}")
    if per not in ("step", "window"):
        raise AnalysisError(f"per={per!r}", "a table is per step or per window", 'Write "step" or "window"')
    frame = _frame(TABLES[name], _rows(report, name))
    return _per_step(frame, scale_of(report).divisor) if per == "step" and name in _SUMMED else frame


def _rows(report: Document, name: str) -> Sequence[rows.Row]:
    if name == "steps":
        return report.window.steps
    if name == "gaps":
        return report.idle.gaps
    if name == "idle":
        causes = sorted(msgspec.to_builtins(report.idle.by_cause).items(), key=lambda each: -each[1])
        return [IdleRow(cause=cause, total_ns=ns) for cause, ns in causes]
    if name == "memory":
        return report.memory.at_peak if report.memory else ()
    found: Sequence[rows.Row] = report.health.findings if name == "health" else getattr(report, name)
    return found


def _frame(kind: type[rows.Row], table: Sequence[rows.Row]) -> pd.DataFrame:
    """A table as a DataFrame with all columns of its rows, also where it is empty."""
    import pandas as pd

    return pd.DataFrame(msgspec.to_builtins(table), columns=list(kind.__struct_encode_fields__))


def _per_step(frame: pd.DataFrame, divisor: int) -> pd.DataFrame:
    """Sums divided, and times in ms: ``total_ns`` becomes ``total_ms``."""
    for column in _SUMS.intersection(frame.columns):
        unit = NS_PER_MS if column.endswith("_ns") else 1
        frame[column] = frame[column].astype(float) / (divisor * unit)
    return frame.rename(columns={c: f"{c.removesuffix('_ns')}_ms" for c in _SUMS if c.endswith("_ns")})
