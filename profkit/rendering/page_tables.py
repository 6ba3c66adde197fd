"""The page's tables of time: steps, phases, operators, idle time and waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from profkit.model.names import IdleCause
from profkit.model.report import OperatorRow, PhaseRow, SyncRow
from profkit.model.report_time import GapRow
from profkit.rendering.digest import (
    Scale,
    filled_by,
    number_of,
    phase_tree,
    share_text,
    syncs_by_cost,
)
from profkit.rendering.document import Document, StepRow
from profkit.rendering.page_cells import Segment, digits, segments_of
from profkit.rendering.sentences.labels import Term, cause_term
from profkit.units import duration_text

__all__ = [
    "IdleSection",
    "OperatorsSection",
    "PhasesSection",
    "StepsSection",
    "idle_section",
    "operators_section",
    "phases_section",
    "steps_section",
]

_ROWS: Final = 40
_PHASES: Final = 200
_GAPS: Final = 15
_OF_A_PHASE: Final = 10
_MOST_ROWS: Final = 240

_InPhase = TypeVar("_InPhase", OperatorRow, GapRow)


@dataclass(frozen=True)
class Shown(Generic[_InPhase]):
    """A row that is shown always, or (``extra``) when its phase is chosen."""

    row: _InPhase
    extra: bool


@dataclass(frozen=True)
class StepLine:
    """A step as one device sees it: sums over devices are divided by their number."""

    row: StepRow
    device_ns: float
    busy: str
    parts: Sequence[Segment]


@dataclass(frozen=True)
class StepsSection:
    """The steps in order; of many the first and the last."""

    lines: Sequence[StepLine]
    left: int
    kept: int
    digits: int


@dataclass(frozen=True)
class PhaseLine:
    """A phase under those around it."""

    row: PhaseRow
    depth: int
    parts: Sequence[Segment]
    inclusive: float
    """Its time, in per cent of the longest phase's."""
    kernels: str


@dataclass(frozen=True)
class PhasesSection:
    """The phases, children after their parents."""

    lines: Sequence[PhaseLine]
    left: int
    memory: bool
    """Whether their memory is known."""
    timed: bool
    """Whether the device did anything in them."""
    digits: int
    unphased: str | None
    """Busy time in no phase."""


@dataclass(frozen=True)
class OperatorsSection:
    """Operators, most time first."""

    lines: Sequence[Shown[OperatorRow]]
    left: int
    timed: bool
    """Whether they launched anything; else the order is that of host time."""
    digits: int


@dataclass(frozen=True)
class CauseLine:
    """An idle cause with its time."""

    name: IdleCause
    term: Term
    ns: int
    length: float
    """In per cent of the longest one."""
    filled_by: str
    """What the host did for most of it, where that is known."""


@dataclass(frozen=True)
class GapLine:
    """A gap between two operations."""

    row: GapRow
    extra: bool
    label: str
    before: str | None
    after: str | None


@dataclass(frozen=True)
class IdleSection:
    """Idle time by cause, the longest gaps, and waits of the host."""

    total: str
    causes: Sequence[CauseLine]
    gaps: Sequence[GapLine]
    gaps_left: int
    """Those that the page does not show, with those that the report does not list."""
    digits: int
    syncs: Sequence[SyncRow]
    syncs_left: int


def steps_section(report: Document) -> StepsSection:
    """The steps with their shares on one scale."""
    steps, devices = report.window.steps, max(1, len(report.devices))
    shown = steps if len(steps) <= _ROWS else [*steps[: _ROWS // 2], *steps[-_ROWS // 2 :]]
    longest = max((step.device_ns for step in shown), default=0) or 1
    lines = [
        StepLine(
            row=step,
            device_ns=step.device_ns / devices,
            busy=share_text(step.gpu_busy_ns / step.device_ns) if step.device_ns else "–",
            parts=segments_of(step.shares, 1000 * step.device_ns / longest),
        )
        for step in shown
    ]
    return StepsSection(
        lines=lines,
        left=len(steps) - len(shown),
        kept=sum(step.kept for step in steps),
        digits=digits([*(line.device_ns for line in lines), *(step.wall_ns for step in shown)]),
    )


def phases_section(report: Document, scale: Scale) -> PhasesSection:
    """The phases with their share of the longest one."""
    tree = phase_tree(report.phases)
    longest = max((row.gpu_inclusive_ns or row.host_wall_ns for _, row in tree), default=0) or 1
    unphased = report.health.gpu_ns_without_phase
    return PhasesSection(
        lines=[
            PhaseLine(
                row=row,
                depth=min(depth, 8),
                parts=segments_of(row.shares),
                inclusive=round(100 * row.gpu_inclusive_ns / longest, 2),
                kernels=scale.count(row.kernel_count),
            )
            for depth, row in tree[:_PHASES]
        ],
        left=len(tree) - _PHASES,
        memory=any(row.peak_allocated_bytes for row in report.phases),
        timed=any(row.gpu_inclusive_ns for row in report.phases),
        digits=digits([longest / scale.divisor]),
        unphased=duration_text(scale(unphased)) if unphased else None,
    )


def operators_section(report: Document) -> OperatorsSection:
    """Operators by device time, or by host time where they launched nothing."""
    timed = any(row.gpu_ns for row in report.operators)
    ordered = sorted(report.operators, key=lambda row: -number_of(row.gpu_ns if timed else row.host_self_ns))
    shown = _with_each_phase(ordered, _ROWS)
    return OperatorsSection(
        lines=shown,
        left=len(ordered) - _ROWS,
        timed=timed,
        digits=digits(line.row.host_ns for line in shown),
    )


def _with_each_phase(ordered: Sequence[_InPhase], most: int) -> list[Shown[_InPhase]]:
    """The first rows, and the first ones of each phase: those ``extra`` ones are shown when it is chosen."""
    seen: dict[str | None, int] = {}
    shown: list[Shown[_InPhase]] = []
    for at, row in enumerate(ordered):
        seen[row.phase] = seen.get(row.phase, 0) + 1
        if at < most or (row.phase and seen[row.phase] <= _OF_A_PHASE and len(shown) < _MOST_ROWS):
            shown.append(Shown(row, at >= most))
    return shown


def idle_section(report: Document, scale: Scale) -> IdleSection:
    """Why devices were idle, where, and which waits of the host had a part in it."""
    idle = report.idle
    causes = sorted(((name, ns) for name, ns in idle.by_cause.items() if ns), key=lambda item: -item[1])
    longest = max(idle.by_cause.values(), default=0)
    short = {row.name: row.short_name or row.name for row in report.kernels}
    gaps = [
        GapLine(
            row=shown.row,
            extra=shown.extra,
            label=cause_term(shown.row.cause).label,
            before=short.get(shown.row.before or "", shown.row.before),
            after=short.get(shown.row.after or "", shown.row.after),
        )
        for shown in _with_each_phase(idle.gaps, _GAPS)
    ]
    return IdleSection(
        total=duration_text(scale(idle.total_ns)),
        causes=[
            CauseLine(name, cause_term(name), ns, round(100 * ns / longest, 2), filled_by(idle, name, scale))
            for name, ns in causes
        ],
        gaps=gaps,
        gaps_left=max(0, len(idle.gaps) - _GAPS) + idle.gaps_left_out,
        digits=digits(gap.row.dur_ns for gap in gaps),
        syncs=syncs_by_cost(report)[:_ROWS],
        syncs_left=len(report.syncs) - _ROWS,
    )
