"""What an analysis returns: the report's tables and scalars, under the names of `profkit.report/1`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final

__all__ = ["REPORT_SCHEMA", "SHARES", "Result", "Row"]

REPORT_SCHEMA: Final = "profkit.report/1"

SHARES: Final = (
    "compute",
    "memory",
    "launch",
    "unclassified",
    "communication",
    "transfer",
    "input",
    "sync",
    "host_work",
    "other",
)
"""The ten shares of a window; they add up to it, per device, to the nanosecond."""

Row = dict[str, Any]
"""A row of a report table: the keys are those of the JSON Schema, unknown is None."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """Everything a report says, as plain values; field names and keys are those of `profkit.report/1`.

    Times are int nanoseconds from the report's origin, sizes int bytes, shares 0..1, unknown is None.
    """

    inputs: Sequence[Any]
    devices: Sequence[Any]
    health: Any
    window: Any
    step: Any = None
    """A `profkit.model.report_verdict.Step`, or a dictionary of a report that was read back."""
    limits: Sequence[Any] = field(default_factory=list)
    pace: str = "unknown"
    between: Sequence[str] = field(default_factory=list)
    verdict: Any
    totals: Any
    phases: Sequence[Any] = field(default_factory=list)
    kernels: Sequence[Any] = field(default_factory=list)
    operators: Sequence[Any] = field(default_factory=list)
    ranges: Sequence[Any] = field(default_factory=list)
    idle: Any
    syncs: Sequence[Any] = field(default_factory=list)
    memory: Any = None
    """TRANSITIONAL: a `profkit.model.report_memory.Memory`, or a dictionary of a report that was read back."""
    communication: Sequence[Any] = field(default_factory=list)
    ranks: Sequence[Any] = field(default_factory=list)
    advice: Sequence[Any] = field(default_factory=list)
    fit: Sequence[Any] = field(default_factory=list)
    """Rows of `profkit.model.report_memory.FitRow`: what each change would do to memory."""
    timeline: Any = None
    """One representative step for the page: ``{step, device, start_ns, end_ns, lanes[], left_out}``; a lane is
    ``{kind: "phase"|"stream"|"thread"|"idle", label, bars[]}``, a bar ``[start_ns, dur_ns, name, tone, phase]`` with
    a share's, bound's or idle cause's name as its tone, and the path of its phase or null."""
    utilisation: Sequence[Any] = field(default_factory=list)
    """GPU metrics over time when the file has them: ``{device, metric, time_ns[], value[]}``, resampled."""
    method: Any = field(default_factory=dict)
    """How the numbers were made: versions, options, thresholds with their sources, what was left out."""

    def as_dict(self) -> Row:
        """The report as `profkit.report/1`: JSON types only."""
        return {"schema": REPORT_SCHEMA, **vars(self)}

    @classmethod
    def from_dict(cls, document: Row) -> Result:
        """A result from a report that was read back; names that this version does not know are left out.

        Args:
            document: An instance of `profkit.report/1`, checked against its schema before.
        """
        return cls(**{f.name: document[f.name] for f in fields(cls) if f.name in document})
