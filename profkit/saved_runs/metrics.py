"""The numbers that a history can follow, each as a query for one run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from profkit.errors import AnalysisError

__all__ = ["Metric", "SUBJECTS", "metric_of"]


@dataclass(frozen=True)
class Metric:
    """A number of a run."""

    label: str
    """What it is, with its unit."""
    query: str
    """An SQL expression over a row of ``runs``."""
    values: tuple[str, ...]
    """The expression's parameters."""
    factor: float
    """What the stored number is multiplied with."""


_MS: Final = 1e-6
_GIB: Final = 1 / (1 << 30)
_RUN: Final = {
    "step_ms": ("runs.step_ns", _MS),
    "busy_ms": ("runs.busy_ns", _MS),
    "idle_ms": ("runs.idle_ns", _MS),
    "busy_percent": ("1.0 * runs.busy_ns / runs.step_ns", 100.0),
    "kernel_count": ("runs.kernel_count", 1.0),
    "peak_allocated_gib": ("runs.peak_allocated_bytes", _GIB),
    "peak_reserved_gib": ("runs.peak_reserved_bytes", _GIB),
}
_PHASE: Final = {
    "gpu_ms": ("gpu_ns", _MS),
    "gpu_exclusive_ms": ("gpu_exclusive_ns", _MS),
    "host_ms": ("host_ns", _MS),
    "kernel_count": ("kernel_count", 1.0),
    "peak_allocated_gib": ("peak_allocated_bytes", _GIB),
}
_KERNEL: Final = {"gpu_ms": ("sum(ns)", _MS), "kernel_count": ("sum(count)", 1.0)}
_IDLE: Final = {"idle_ms": ("ns", _MS)}
_KERNELS_OF: Final = (
    "SELECT {} FROM kernels WHERE kernels.run = runs.id AND kernel IN (SELECT id FROM kernel_names WHERE {})"
)

SUBJECTS: Final[Mapping[str, tuple[Mapping[str, tuple[str, float]], str, int]]] = {
    "phase": (_PHASE, "SELECT {} FROM phases WHERE phases.run = runs.id AND path = ?", 1),
    "family": (_KERNEL, _KERNELS_OF.format("{}", "family = ?"), 1),
    "kernel": (_KERNEL, _KERNELS_OF.format("{}", "short_name = ? OR name = ?"), 2),
    "idle": (_IDLE, "SELECT {} FROM idle WHERE idle.run = runs.id AND cause = ?", 1),
}
"""What a number may be of, beside the whole run: its numbers, their query, and how often that takes the name."""


def metric_of(name: str | None = None, *, subject: str | None = None, of: str = "") -> Metric:
    """The metric of that name.

    Args:
        name: Such as ``gpu_ms``; the first of the subject when not given.
        subject: One of `SUBJECTS`; None is the whole run.
        of: Which phase, family, kernel or idle cause.

    Raises:
        AnalysisError: There is no such metric.
    """
    columns, query, count = SUBJECTS[subject] if subject else (_RUN, "{}", 0)
    name = name or next(iter(columns))
    if name not in columns:
        what = f"of a {subject}" if subject else "of a run"
        raise AnalysisError(name, f"there is no metric {what}", f"Choose one of {', '.join(columns)}")
    column, factor = columns[name]
    label = f"{of} {name}" if subject else name
    return Metric(label, query.format(column), (of,) * count, factor)
