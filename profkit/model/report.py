"""The report: everything that profkit found out about some recordings, as typed, frozen rows.

Start here. `Report` names the sections in the order in which a reader meets them; each section is a struct, each
table a sequence of structs, each field has its unit in its name and its meaning below it. Times are integer
nanoseconds, sizes integer bytes, parts of a whole 0 to 1, and None is unknown, never zero.

A report holds numbers, codes and names, and no sentences: `profkit.rendering.document` adds these, and what comes
out is the document that ``--format json`` writes, ``profkit.report/2``. The two exceptions are advice, whose rules keep
their words beside their logic, and the labels of the timeline.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from profkit.model.findings import Fact, Finding, Severity
from profkit.model.names import Resource, Shares
from profkit.model.report_kernels import FusionRow, KernelRow, OperatorRow, RangeRow, SourceRow
from profkit.model.report_memory import FitRow, Memory
from profkit.model.report_numerics import Numerics
from profkit.model.report_precision import Autocast, OperatorTypes, PrecisionRow, Tf32Row
from profkit.model.report_ranks import CommunicationRow, RankComparison, RankRow, Straggler
from profkit.model.report_time import (
    Idle,
    PhaseRow,
    StepRow,
    SyncRow,
    Timeline,
    Totals,
    UtilisationRow,
    Window,
)
from profkit.model.report_verdict import AdviceRow, Health, LimitRow, Step, Verdict
from profkit.model.rows import Count, Interval, Ns, Row, replace

__all__ = [
    "REPORT_SCHEMA",
    "AdviceRow",
    "CommunicationRow",
    "DeviceRow",
    "Fact",
    "Finding",
    "FitRow",
    "FusionRow",
    "Health",
    "Idle",
    "InputRow",
    "Interval",
    "KernelRow",
    "LimitRow",
    "Memory",
    "Method",
    "OperatorRow",
    "Options",
    "PhaseRow",
    "PrecisionRow",
    "RangeRow",
    "RankComparison",
    "RankRow",
    "Report",
    "Row",
    "Severity",
    "SourceRow",
    "Step",
    "StepRow",
    "Straggler",
    "SyncRow",
    "Threshold",
    "Timeline",
    "Totals",
    "UtilisationRow",
    "Verdict",
    "Window",
    "replace",
]

REPORT_SCHEMA = "profkit.report/2"
"""The name of the document that is made of a report."""


class InputRow(Row, frozen=True, kw_only=True):
    """A file that was read."""

    path: str
    """Its base name, never a path."""
    format: str
    """The name of its format, as `profkit.readers.registry` has it."""
    tool: str
    """The program that wrote it."""
    tool_version: str | None
    """Its version."""
    ranks: Sequence[int]
    """The ranks that are in it."""
    facts: Mapping[str, str]
    """What it says of the machine and the recording; nothing private."""


class DeviceRow(Row, frozen=True, kw_only=True):
    """A GPU of one file."""

    id: int
    """Its number in the report."""
    ordinal: int
    """Its number in its process."""
    rank: int | None
    """The rank that used it."""
    name: str | None
    """Its model."""
    peaks: Mapping[str, float]
    """Dense peak by type, in TFLOP/s."""
    bandwidth_gbs: float | None
    """Peak memory bandwidth, in GB/s."""
    peaks_source: str | None
    """Where the peaks come from."""
    window_ns: Ns
    """Its time in the window."""
    shares: Shares
    """The same by share."""
    busy_ns: Ns
    """The part of it in which it ran something."""


class Options(Row, frozen=True, kw_only=True):
    """What a person said about the recordings."""

    step: str | None
    """The name of the ranges that are steps."""
    device: int | None
    """The only device that was looked at."""
    phase: str | None = None
    """The only phase that tables by phase show."""
    peaks: str | None
    """The GPU whose peaks were used for every device."""
    plain_step_ns: Ns | None
    """The step without a profiler."""


class Threshold(Row, frozen=True, kw_only=True):
    """A number that a verdict rests on."""

    code: Literal["kernel-overhead", "queue-latency", "unsaturated", "warm-up-step", "runner-up", "undecided"]
    """What it decides."""
    amount: float
    """Its value: ns for overhead and latency, else a ratio."""


class Method(Row, frozen=True, kw_only=True):
    """How the numbers were made."""

    options: Options
    """What a person said."""
    thresholds: Sequence[Threshold]
    """The numbers that decide."""
    steps_found: Sequence[Count]
    """The steps of each timeline."""
    events: Count
    """Operations, calls and ranges that were read."""
    ranks: RankComparison
    """How ranks were compared."""


class Report(Row, frozen=True, kw_only=True):
    """Everything that was found out about some recordings."""

    inputs: Sequence[InputRow]
    """The files."""
    devices: Sequence[DeviceRow]
    """The GPUs, with their part of the window."""
    health: Health
    """How far the files can be trusted."""
    window: Window
    """What the report is about: the kept steps, or the whole recording."""
    step: Step | None = None
    """The median step, recorded and without a profiler."""
    limits: Sequence[LimitRow] = ()
    """What faster resources would bring, most first."""
    pace: Resource | Literal["balanced", "unknown"] = "unknown"
    """The resource that sets the pace of the step."""
    between: Sequence[Resource] = ()
    """The two that take turns, where the pace is balanced."""
    verdict: Verdict
    """What limits the step."""
    totals: Totals
    """Sums over the whole files."""
    phases: Sequence[PhaseRow]
    """Marked parts of the step, parents before children."""
    kernels: Sequence[KernelRow]
    """Kernels, most time first."""
    operators: Sequence[OperatorRow]
    """Operators by phase, most device time first."""
    ranges: Sequence[RangeRow]
    """All other ranges, most device time first."""
    idle: Idle
    """Time in which devices ran nothing, and why."""
    syncs: Sequence[SyncRow]
    """Waits of the host, most costly first."""
    memory: Memory | None
    """Who holds memory; None where nothing recorded it."""
    communication: Sequence[CommunicationRow]
    """Collectives and peer copies, most time first."""
    ranks: Sequence[RankRow]
    """Ranks, compared where their clocks could be brought together."""
    advice: Sequence[AdviceRow]
    """What to change, the largest saving first."""
    sources: Sequence[SourceRow] = ()
    """Modules and functions of the program by what they launched; empty where the files name none."""
    fusion: Sequence[FusionRow] = ()
    """Chains of small kernels that one could do, what saves most bytes first."""
    precision: Sequence[PrecisionRow] = ()
    """Which arithmetic ran where, most time first."""
    operator_types: Sequence[OperatorTypes] = ()
    """Which types operators took and gave, most time first."""
    tf32: Sequence[Tf32Row] = ()
    """Whether products and convolutions of fp32 ran in TF32; only what the GPU could have run so."""
    autocast: Autocast | None = None
    """What autocast did; None where it was not used, or the recording has no types of operators."""
    precision_findings: Sequence[Finding] = ()
    """What the number formats put at risk."""
    numerics: Sequence[Numerics] = ()
    """What tensors held, one for each file that recorded it."""
    fit: Sequence[FitRow] = ()
    """What changes do to memory."""
    timeline: Timeline | None = None
    """One representative step for the page."""
    utilisation: Sequence[UtilisationRow] = ()
    """GPU metrics over time, where a file has them."""
    method: Method
    """How the numbers were made."""
