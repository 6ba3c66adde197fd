"""Sections of a report that judge: the verdict, the step without a profiler, its pace, health and advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from profkit.model.findings import Fact, Finding
from profkit.model.names import (
    Basis,
    Confidence,
    FoundBy,
    IdleCause,
    LaunchPart,
    Level,
    Resource,
    ShareBound,
    ShareName,
    Shares,
)
from profkit.model.report_ranks import Straggler
from profkit.model.rows import Count, Interval, Ns, Ratio, Row

__all__ = ["AdviceRow", "Health", "LaunchTimes", "LimitRow", "RunnerUp", "Step", "Verdict"]


class Step(Row, frozen=True, kw_only=True):
    """The median step: as it was recorded, and as it is without a profiler."""

    recorded_ns: Ns | None
    """The median device time of the kept steps; None without steps."""
    unprofiled_ns: Interval | None
    """The step without a profiler; None where nothing tells."""
    source: Literal["measured", "estimated", "recorded"]
    """Where ``unprofiled_ns`` comes from: a timing, the replay, or the recording itself."""
    found_by: FoundBy
    """How the steps were found."""
    startup_ns: Ns | None
    """Recorded time before the first step, or before the first device operation where there are no steps."""
    teardown_ns: Ns | None
    """Recorded time after the last step, or after the last device operation."""
    mfu: float | None
    """Model FLOP of products over the unprofiled step times the peak of the types used; null where they are not known."""
    hfu: float | None
    """The same with what backward computes a second time."""


class LimitRow(Row, frozen=True, kw_only=True):
    """What a faster resource would bring."""

    resource: Resource
    """The resource."""
    saving_if_twice_as_fast_ns: Interval | None
    """What the unprofiled step would save; None where it cannot be told."""


class LaunchTimes(Row, frozen=True, kw_only=True):
    """The parts of the share ``launch``."""

    host: Ns
    """Waiting for the host's next launch."""
    queue: Ns
    """Between one queued operation and the next."""
    small_kernels: Ns
    """In kernels too small to do more than start and end."""


class RunnerUp(Row, frozen=True, kw_only=True):
    """A second share close to the first."""

    bound: ShareName
    """Its name."""
    share: Ratio
    """Its part of the window."""


class Verdict(Row, frozen=True, kw_only=True):
    """What limits the step, as numbers and codes."""

    bound: ShareBound
    """The largest share, of the step without a profiler where it is known."""
    share: Ratio
    """Its part of the window; 0 where it is unknown."""
    confidence: Confidence
    """The basis that most busy time rests on."""
    shares: Shares
    """The recorded window by share; they add up to ``window.device_ns``."""
    launch: LaunchTimes
    """The parts of the share ``launch``."""
    basis_shares: Mapping[Basis, Ratio]
    """Busy kernel time by the basis that it rests on."""
    runner_up: RunnerUp | None
    """A second share within ten points of the first."""
    straggler: Straggler | None = None
    """Waiting for late ranks; absent in JSON where it is not notable."""
    recorded_bound: ShareBound | None = None
    """The largest share of the recorded window."""
    unprofiled_shares: Shares | None = None
    """The step without a profiler by share; they add up to ``step.unprofiled_ns.likely``."""
    cause: LaunchPart | IdleCause | None = None
    """What most of the share ``launch`` or ``other`` is, where that is the bound."""
    step_count: Count | None = None
    """Kept steps; None where there are none."""
    device_count: Count | None = None
    """The devices that the shares are summed over."""
    undecided: Fact | None = None
    """Why the files cannot decide, and so what to record instead."""
    doubts: Sequence[Fact] = ()
    """What may make the verdict another one."""


class Health(Row, frozen=True, kw_only=True):
    """How far the files can be trusted."""

    ok: bool
    """Whether no finding is a warning or an error."""
    findings: Sequence[Finding]
    """What was found, most severe first."""
    kernels_without_launch: Count
    """Kernels whose launch record is missing."""
    launches_without_kernel: Count
    """Launches whose kernel record is missing."""
    warm_up_tail: Count
    """Kernels that were launched before the recording began, which is no fault."""
    gpu_ns_without_phase: Ns
    """Busy time of the window that no phase launched."""
    events_dropped: Mapping[str, Count]
    """Events that readers left out, by reason."""
    profiler_overhead_ns: Ns | None
    """Idle time beyond the step without a profiler; None where that step is unknown."""


class AdviceRow(Row, frozen=True, kw_only=True):
    """What to change, and what that brings. Its words are those of its rule in `profkit.advice`."""

    id: str
    """The rule: ``cuda-graphs``."""
    title: str
    """What to do, in a few words."""
    why: str
    """What was seen, as a sentence with numbers."""
    evidence: Sequence[str]
    """The kernels, calls or ranges that it rests on, most costly first."""
    action: str
    """How to do it."""
    code: str
    """The same as code."""
    verify: str
    """How to see that it worked."""
    caveats: Sequence[str]
    """When it does not help, or harms."""
    remedy: str | None = None
    """What to do in its place, where its precondition is not met."""
    saving_ns: int | None
    """What it takes off a step without a profiler; None where a recording cannot tell."""
    speedup: Interval | None
    """The step's time over what it would be."""
    before_ns: Ns | None
    """The step without a profiler."""
    after_ns: Ns | None
    """The same after the change."""
    limit: Literal["host", "device", "waiting", "loader"] | None
    """What limits the step after the change."""
    confidence: Level
    """How sure it is."""
    link: str
    """Where to read more; empty where there is nothing."""
    change: str | None = None
    """Its name in the registry of changes; None where it has no price."""
    precondition_unmet: str | None = None
    """What keeps the change from being made as things are."""
