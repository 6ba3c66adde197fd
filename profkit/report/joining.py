"""The one assembler: from what traces give, which adds up, to the tables of a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

from profkit.advice import of_job
from profkit.model.findings import Fact
from profkit.model.report import DeviceRow, InputRow, Method, Report
from profkit.model.report_memory import FitRow, Memory
from profkit.model.report_numerics import Numerics
from profkit.model.report_time import Timeline, Window
from profkit.model.report_verdict import AdviceRow, Health, Step, Verdict
from profkit.model.rows import replace
from profkit.ranks import RankSection, rank_section, report_offsets, verdict_on_ranks
from profkit.report.part import Part
from profkit.report.unprofiled import UnprofiledSteps
from profkit.report.verdict import verdict_on
from profkit.roofline.autocast import shown_autocast
from profkit.roofline.kernel_table import kernel_rows
from profkit.roofline.precision_map import busiest_types
from profkit.timeline.idle_tables import costliest_syncs, idle_together
from profkit.timeline.phase_table import judged_phases
from profkit.timeline.range_tables import busiest_operators, busiest_ranges
from profkit.timeline.source_tables import busiest_sources
from profkit.timeline.step_times import median_step
from profkit.timeline.window_table import totals_together, windows_together

__all__ = ["Joined", "Told"]


@dataclass(frozen=True, kw_only=True, eq=False)
class Told:
    """What is told of the whole report from a few recordings alone."""

    memory: Memory | None = None
    fit: Sequence[FitRow] = ()
    advice: Sequence[AdviceRow] = ()
    timeline: Timeline | None = None


@dataclass(frozen=True, eq=False)
class Joined:
    """Traces on one clock, their devices numbered through, and their ranks compared."""

    part: Part
    first_device: Sequence[int]
    """The report's id of each trace's first device."""
    ranks: RankSection
    offsets: Sequence[int]
    """What to add to each trace's times to have report times, in ns."""

    @classmethod
    def of(cls, part: Part, first_device: int = 0) -> Joined:
        """Compare the ranks of some traces.

        Args:
            part: What the traces give.
            first_device: The report's id of the first device.
        """
        traces = part.traces
        first = list(accumulate((len(trace.devices) for trace in traces), initial=first_device))[
            : len(traces)
        ]
        files = [
            trace.ranks.numbered(at, own) for at, (trace, own) in enumerate(zip(traces, first, strict=True))
        ]
        ranks = rank_section(files, part.communication)
        spans = [(trace.span, trace.epoch_ns) for trace in traces]
        return cls(part, first, ranks, report_offsets(spans, ranks.found.clocks))

    @property
    def device_ids(self) -> list[list[int]]:
        """The report's id of each device of each trace."""
        pairs = zip(self.part.traces, self.first_device, strict=True)
        return [[first + at for at in range(len(trace.devices))] for trace, first in pairs]

    def devices(self) -> list[DeviceRow]:
        """The devices of all traces."""
        pairs = zip(self.part.traces, self.first_device, strict=True)
        return [replace(row, id=first + row.id) for trace, first in pairs for row in trace.devices]

    def report(
        self,
        told: Told,
        *,
        inputs: Sequence[InputRow],
        health: Health,
        verdict: Verdict,
        numerics: Sequence[Numerics],
        method: Method,
    ) -> Report:
        """The report.

        Args:
            told: What a few recordings tell for all.
            inputs: The files.
            health: How far they can be trusted.
            verdict: What limits the step.
            numerics: What tensors held.
            method: How all was made, but for the comparison of ranks.
        """
        part, traces, devices = self.part, self.part.traces, self.devices()
        kernels = [kernel.numbered(min(self.first_device, default=0)) for kernel in part.kernels]
        pace = self.unprofiled.pace
        return Report(
            inputs=inputs,
            devices=devices,
            health=health,
            window=self.window,
            step=self.unprofiled.of_step(self.recorded_step),
            limits=pace.limits,
            pace=pace.pace,
            between=pace.between,
            verdict=verdict,
            totals=totals_together([trace.totals for trace in traces], self.first_device),
            phases=judged_phases(part.phases, told.memory),
            kernels=kernel_rows(kernels, sum(device.busy_ns for device in devices)),
            operators=busiest_operators(part.operators),
            ranges=busiest_ranges(part.ranges),
            sources=busiest_sources(part.sources),
            idle=idle_together([trace.idle for trace in traces], self.offsets, self.first_device),
            syncs=costliest_syncs(part.syncs),
            memory=told.memory,
            fit=told.fit,
            communication=self.ranks.communication,
            ranks=self.ranks.found.rows,
            fusion=self.unprofiled.fusion,
            precision=part.precision,
            operator_types=busiest_types(part.operator_types),
            tf32=part.tf32,
            precision_findings=part.precision_findings,
            autocast=shown_autocast(part.autocast),
            numerics=numerics,
            advice=[of_job(row, self.unprofiled.length_ns) for row in told.advice],
            timeline=told.timeline,
            utilisation=[
                replace(row, device=row.device + first, time_ns=[time + offset for time in row.time_ns])
                for trace, offset, first in zip(traces, self.offsets, self.first_device, strict=True)
                for row in trace.utilisation
            ],
            method=replace(method, ranks=self.ranks.method),
        )

    @cached_property
    def window(self) -> Window:
        """The window of all traces as one."""
        return windows_together([trace.window for trace in self.part.traces], self.offsets, self.part.parts)

    @cached_property
    def recorded_step(self) -> Step | None:
        """The median step as recorded."""
        devices = max(sum(len(trace.devices) for trace in self.part.traces), 1)
        kept = [step.device_ns / devices for step in self.window.steps if step.kept]
        return median_step([trace.step for trace in self.part.traces], kept)

    @cached_property
    def unprofiled(self) -> UnprofiledSteps:
        """The steps of all devices without a profiler."""
        step = self.recorded_step
        return UnprofiledSteps(
            self.part.unprofiled, step.recorded_ns if step else None, self.part.exchanged.shortest
        )

    def verdict(self, *, undecided: Fact | None, facts: Sequence[Fact] = ()) -> Verdict:
        """The verdict over all devices.

        Args:
            undecided: Why the files cannot decide; None when they can.
            facts: What else is to be said.
        """
        verdict = verdict_on(self.part.grounds, undecided=undecided, unprofiled=self.unprofiled)
        verdict = replace(verdict, doubts=[*verdict.doubts, *facts])
        return verdict_on_ranks(verdict, self.ranks.found)
