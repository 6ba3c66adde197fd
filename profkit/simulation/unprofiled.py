"""The recorded step without its recorder: measured where somebody timed it, else estimated, with low and high."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from profkit.model import RangeKind
from profkit.model.rows import Interval
from profkit.model.states import BUSY_STATES
from profkit.simulation.recorder_cost import recorder_cost
from profkit.simulation.replay import DEVICE_ALONE, RecorderCost, replay, slower_host, without_recorder
from profkit.simulation.step_program import Program, step_program
from profkit.timeline.once import once_a_view
from profkit.timeline.view import TraceView

__all__ = ["UnprofiledStep", "unprofiled_step"]

Source = Literal["measured", "estimated", "recorded"]

_UNLIKE: Final = 2.0
"""A replay this far off is of another step: seen in three of 180 files, all without steps, or with a single one."""

_MOST_OFF: Final = 0.10
"""A replay of the recorded step that is further off says nothing about what holds it up (design, section 2)."""

_ESTIMATED: Final = (0.8, 1.25)
"""Factors on the host of an estimate. On 17 models of public libraries under torch.profiler the interval that they give
held the measured step 4 times of 5 (design, section 2)."""

_RECORDED: Final = (0.9, 1.3)
"""The same on a host that was recorded without operators, as nsys does: it costs little, and the program alone was seen to
take longer, too (design, section 2)."""


@dataclass(frozen=True, eq=False)
class UnprofiledStep:
    """The representative step of a device, as it would run without its recorder."""

    recorded: Program
    cost: RecorderCost
    records_operators: bool
    """Whether the recorder wrote every operator, which slows the host most: torch.profiler, or ``emit_nvtx``."""
    plain_step_ns: int | None
    """What it takes where that was measured."""
    busy_ns: int
    """When its operations run, as a union: no estimate is shorter."""

    @cached_property
    def replayed_over_recorded(self) -> float:
        """How long a replay makes the step as it was recorded, as a multiple of its recorded length."""
        return replay(self.recorded).step_ns / max(self.recorded.step_ns, 1)

    @property
    def is_understood(self) -> bool:
        """Whether the recorded step's replay is near enough to it for a change to have a price."""
        return abs(self.replayed_over_recorded - 1) <= _MOST_OFF

    def program_with(self, host: float) -> Program:
        """The step without its recorder, as it would run with a host so much slower.

        Without operators (nsys alone) the step is taken to be as long as it was recorded, which is nearer to the
        unprofiled one than without a part of each call (10 % off against 21 %; design, section 2).
        """
        if self.plain_step_ns is not None or self.records_operators:
            own = replace(self.recorded, gap_ns=self.recorded.gap_ns - self.recorded.profiler_ns)
            return without_recorder(own, self.cost, self.plain_step_ns, host)
        return slower_host(self._as_recorded, host)

    @cached_property
    def _as_recorded(self) -> Program:
        """The recorded program; where the device alone takes that long, the host behind it without its recorder."""
        alone = replay(slower_host(self.recorded, 0.0)).step_ns
        if alone < DEVICE_ALONE * self.recorded.step_ns:
            return self.recorded
        return without_recorder(self.recorded, self.cost)

    @cached_property
    def played(self) -> Mapping[float, tuple[Program, float]]:
        """The program with a fast, the likely and a slow host, by the factor on its time, and how long it takes."""
        factors = sorted({1.0, *self.host_factors})
        programs = {factor: self.program_with(factor) for factor in factors}
        return {factor: (program, replay(program).step_ns) for factor, program in programs.items()}

    @cached_property
    def scale(self) -> float:
        """The step's length over that of its replay: on this scale, all that is replayed is told."""
        return self.likely_ns / max(self._replayed_ns, 1.0)

    @property
    def _replayed_ns(self) -> float:
        return self.played[1.0][1]

    @cached_property
    def likely_ns(self) -> float:
        """The step's length in ns: the measured one, else the likely one."""
        if self.plain_step_ns is not None:
            return float(self.plain_step_ns)
        if not self.records_operators:
            return float(self.recorded.step_ns)
        estimated = self._replayed_ns / max(self.replayed_over_recorded, 1.0)
        # No recorder makes a step shorter, and none makes the device faster.
        return min(max(estimated, float(self.busy_ns)), float(self.recorded.step_ns))

    @property
    def source(self) -> Source:
        """Where its length comes from."""
        if self.plain_step_ns is not None:
            return "measured"
        return "estimated" if self.records_operators else "recorded"

    @property
    def host_factors(self) -> tuple[float, float]:
        """How fast and how slow the host may be, as factors on its likely time."""
        if self.plain_step_ns is not None:
            return (1.0, 1.0)
        return _ESTIMATED if self.records_operators else _RECORDED

    @cached_property
    def length_ns(self) -> Interval:
        """The step's length in ns."""
        likely = self.likely_ns
        low, high = (self.played[factor][1] * self.scale for factor in self.host_factors)
        least = min(float(self.busy_ns), likely)
        return Interval(low=max(min(low, likely), least), likely=likely, high=max(high, likely))


def _busy_ns(view: TraceView, device: int) -> int:
    """When the step's device is busy, also with work whose launch is not recorded, which no replay has."""
    window, segments = view.windows[device], view.segments[device]
    start, end = window.start, window.end
    if view.steps.count:
        at = view.median_step(device)
        start, end = (
            edges[device, at : at + 1] for edges in (view.steps.tile_start_ns, view.steps.tile_end_ns)
        )
    return int(segments.within(start, end)[list(BUSY_STATES)].sum())


@once_a_view
def unprofiled_step(view: TraceView, device: int) -> UnprofiledStep | None:
    """The step of a device without its recorder, or None where there is none that can be replayed.

    What a replay makes more than twice or less than half as long as it was is not understood.
    """
    program = step_program(view, device)
    if program is None or not len(program.row):
        return None
    records_operators = bool((view.trace.ranges.kind == RangeKind.OPERATOR).any())
    step = UnprofiledStep(
        recorded=program,
        cost=recorder_cost(view.trace, program),
        records_operators=records_operators,
        plain_step_ns=view.plain_step_ns,
        busy_ns=_busy_ns(view, device),
    )
    return step if 1 / _UNLIKE <= step.replayed_over_recorded <= _UNLIKE else None
