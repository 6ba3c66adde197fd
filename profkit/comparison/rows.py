"""What a comparison and a gate return: typed rows of codes and numbers; `profkit.rendering` says them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from profkit.comparison.numerics_rows import NumericsComparison
from profkit.model.findings import Fact, Param
from profkit.model.rows import Count, Ns, Row

__all__ = [
    "Change",
    "CommunicationChange",
    "Comparison",
    "ComparedInput",
    "ComparedSide",
    "Counts",
    "Effect",
    "Judgement",
    "KernelChange",
    "LimitResult",
    "MemoryChange",
    "MemoryComparison",
    "NoiseCure",
    "Outcome",
    "PartChange",
    "PeakChange",
    "PhaseChange",
    "PhaseDetail",
    "SetupWarning",
    "ShareChange",
    "SyncChange",
    "VerdictName",
]

VerdictName: TypeAlias = Literal["no change", "faster", "slower", "not comparable"]
"""What a comparison says of the step."""

Effect: TypeAlias = Literal["forbids", "host cost", "weakens", "note"]
"""What a difference of the setup does to the conclusion: ``forbids`` any, ``host cost`` one from idle time,
``weakens`` it; a ``note`` may be the change itself."""

Outcome: TypeAlias = Literal["kept", "broken", "unknown"]
"""Whether a limit is kept; ``unknown`` where the recordings cannot tell."""

PartKind: TypeAlias = Literal["kernels", "copies", "graph", "idle", "share", "host"]
MatchedBy: TypeAlias = Literal[
    "name", "short name", "operator and shape", "operator", "shape", "function", "none"
]


class Counts(Row, frozen=True, kw_only=True):
    """A number before and after, per step."""

    before: float
    """Before."""
    after: float
    """After."""


class Change(Row, frozen=True, kw_only=True):
    """A number before and after; its unit is in the name of the field that holds it."""

    before: float | None
    """Before; None where it is unknown."""
    after: float | None
    """After; None where it is unknown."""
    change: float | None
    """After minus before; None where one is unknown."""

    @classmethod
    def of(cls, before: float | None, after: float | None) -> Change:
        """The change between two numbers."""
        known = before is not None and after is not None
        return cls(before=before, after=after, change=round(after - before, 2) if known else None)  # type: ignore[operator]


class SetupWarning(Row, frozen=True, kw_only=True):
    """A difference of the setup."""

    code: str
    """What differs: ``gpu``, ``unlike``, ``batch``, ``format``, ``steps``..."""
    effect: Effect
    """What it does to the conclusion."""
    params: Mapping[str, Param]
    """The values in its sentence."""


class NoiseCure(Row, frozen=True, kw_only=True):
    """What would make the noise smaller than a limit; None where that many would not do."""

    steps: Count | None
    """Steps in one recording of each side."""
    recordings: Count | None
    """Recordings of each side, with as many steps as now."""


class Judgement(Row, frozen=True, kw_only=True):
    """The step's change; times in ns per typical (median) step of one device."""

    before_ns: Ns
    """The median step before."""
    after_ns: Ns
    """The median step after."""
    noise_ns: Ns
    """What the step may differ by chance: within it, nothing is called a change."""
    delta_ns: int
    """After minus before."""
    change: float | None
    """The same as a part of before; None where before is 0."""
    evidence: Literal["step", "busy"]
    """``busy`` where the noise of the device's busy time decides."""
    incomparable: Fact | None
    """Why the sides are not comparable."""
    work_ratio: float
    """The work of a launch after over that of one before."""
    busy_noise_ns: Ns
    """The noise of the busy time alone."""
    hidden_ns: int
    """What the busy time changed by, where idle time may hide that; else 0."""
    unprofiled_before_ns: Ns
    """The step before without the known cost of the profiler."""
    unprofiled_after_ns: Ns
    """The same of the step after."""


class PartChange(Row, frozen=True, kw_only=True):
    """What the device does in a step, before and after."""

    name: str
    """A family of kernels, a kind of copy, a cause of idle time, or a share."""
    kind: PartKind
    """Which of these."""
    before_ns: Ns
    """Before."""
    after_ns: Ns
    """After."""
    delta_ns: int
    """After minus before; those of all parts add up to the step's."""
    count_before: float | None
    """Launches per step; None for idle time."""
    count_after: float | None
    """The same after."""
    kernel: str | None = None
    """The short name of a kernel that is new or gone and makes most of the change."""


class PhaseChange(Row, frozen=True, kw_only=True):
    """The time of a phase, without the phases inside it."""

    path: str | None
    """Its path; None for what lies in no phase."""
    before_ns: Ns
    """Before."""
    after_ns: Ns
    """After."""
    delta_ns: int
    """After minus before; those of all rows add up to the step's."""


class ShareChange(Row, frozen=True, kw_only=True):
    """A share of the step, before and after."""

    before_ns: Ns
    """Before."""
    after_ns: Ns
    """After."""


class KernelChange(Row, frozen=True, kw_only=True):
    """Kernels of both sides that are the same; sums of durations per step."""

    name: str | None
    """The name before; None where the kernel is new."""
    name_after: str | None
    """The name after; None where the kernel is gone."""
    short_name: str
    """Its name for people."""
    family: str
    """What kind of work it does."""
    matched_by: MatchedBy
    """What the two have in common."""
    before_ns: Ns
    """Before."""
    after_ns: Ns
    """After."""
    delta_ns: int
    """After minus before."""
    count_before: float
    """Launches per step before."""
    count_after: float
    """Launches per step after."""


class PhaseDetail(Row, frozen=True, kw_only=True):
    """The numbers of a phase per step of one device."""

    path: str
    """Its path."""
    gpu_inclusive_ns: Change
    """Busy time with the phases inside it."""
    gpu_exclusive_ns: Change
    """Busy time without them."""
    host_wall_ns: Change
    """Host time."""
    kernel_count: Change
    """Kernels."""
    peak_allocated_bytes: Change
    """The peak of memory."""


class SyncChange(Row, frozen=True, kw_only=True):
    """Waits of the host per step."""

    api: str
    """The call."""
    operator: str | None
    """The operator that a person called."""
    where: str | None
    """File and function."""
    phase: str | None
    """The phase around it."""
    count: Change
    """How often."""
    blocked_ns: Change
    """How long the host was blocked."""
    cost_ns: Change
    """The idle time that the waits explain."""


class CommunicationChange(Row, frozen=True, kw_only=True):
    """Collectives per step of one device."""

    collective: str
    """Its name."""
    dtype: str | None
    """Its type."""
    count: Change
    """How often."""
    bytes: Change
    """How much."""
    total_ns: Change
    """How long."""
    exposed_ns: Change
    """The part that nothing hides."""


class MemoryChange(Row, frozen=True, kw_only=True):
    """An owner's memory at the peak, in bytes."""

    category: str | None
    """What it is."""
    where: str | None
    """Whose it is."""
    before: int
    """Before."""
    after: int
    """After."""
    change: int
    """After minus before."""


class PeakChange(Row, frozen=True, kw_only=True):
    """The peak of allocated memory inside a phase, in bytes."""

    path: str
    """Its path."""
    before: int | None
    """Before."""
    after: int | None
    """After."""
    change: int | None
    """After minus before."""


class MemoryComparison(Row, frozen=True, kw_only=True):
    """Two snapshots, compared."""

    peak_allocated_bytes: Change
    """The peak of allocated memory."""
    peak_reserved_bytes: Change
    """The peak of reserved memory."""
    owners: Sequence[MemoryChange]
    """By owner, the largest change first."""
    categories: Sequence[MemoryChange]
    """By category."""
    by_phase: Sequence[PeakChange]
    """By phase."""


class ComparedInput(Row, frozen=True, kw_only=True):
    """A file of a side."""

    path: str
    """Its base name."""
    format: str
    """The kind of file."""
    tool: str
    """The program that wrote it."""
    tool_version: str | None
    """Its version."""


class ComparedSide(Row, frozen=True, kw_only=True):
    """What was compared."""

    inputs: Sequence[ComparedInput]
    """Its files."""
    devices: Sequence[str]
    """The names of its GPUs."""
    steps: Count
    """Its counted steps."""


class Comparison(Row, frozen=True, kw_only=True):
    """Everything that a comparison finds. Times are ns per step of one device, sizes bytes, unknown is None."""

    verdict: VerdictName
    """Whether the step became faster."""
    step: Judgement
    """The step's change, and how sure it is."""
    warnings: Sequence[SetupWarning]
    """What differs in the setup; what forbids a conclusion first."""
    parts: Sequence[PartChange]
    """The step's difference by what the device does; the deltas add up to the step's."""
    phases: Sequence[PhaseChange]
    """Device time by phase, busy or idle; the deltas add up to the step's."""
    shares: Mapping[str, ShareChange]
    """The shares of the step."""
    kernels: Sequence[KernelChange]
    """Kernels, those whose time changed most first."""
    kernel_count: Counts
    """Launches of kernels per step."""
    phase_details: Sequence[PhaseDetail]
    """Phases by path."""
    memory: MemoryComparison | None
    """None where a side has no memory."""
    numerics: NumericsComparison | None = None
    """None where a side has no numerics."""
    syncs: Sequence[SyncChange]
    """Waits of the host."""
    communication: Sequence[CommunicationChange]
    """Collectives."""
    before: ComparedSide
    """What was compared."""
    after: ComparedSide
    """What it was compared with."""


class LimitResult(Row, frozen=True, kw_only=True):
    """What a gate finds about one limit."""

    limit: str
    """The limit's name: ``max-step``."""
    of: str | None
    """The phase's path, for ``max-phase``."""
    allowed: str
    """The limit as it was given: ``+3%``."""
    outcome: Outcome
    """Whether it is kept."""
    code: str
    """Why: the sentence of `profkit.rendering`."""
    params: Mapping[str, Param]
    """The values in its sentence."""
    cure: NoiseCure | None = None
    """What would decide, where the noise is larger than the limit."""
