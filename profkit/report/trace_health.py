"""What the health of a report needs of each trace: counts, small beside the trace, that add up over traces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.advice.audience import Audience, audience_of
from profkit.model import Finding, OperationKind
from profkit.model.findings import Fact
from profkit.model.states import State
from profkit.report.contradictions import Contradictions
from profkit.report.importer import importer_finding
from profkit.report.step_findings import StepHealth
from profkit.roofline.beside_collectives import SlowedKernels, slowed_kernels
from profkit.roofline.clock_changes import clock_changes
from profkit.timeline.host_step import host_facts, ran_on_cpu
from profkit.timeline.launches import launches_captured, launches_without_kernel, unstarted_launches
from profkit.timeline.phase_table import unattributed_ns
from profkit.timeline.view import MatchedCounters, TraceView
from profkit.timeline.window_table import states_of

__all__ = ["CounterUse", "TraceHealth"]


@dataclass(frozen=True, kw_only=True, eq=False)
class CounterUse:
    """What a file of hardware counters gave to a trace."""

    file: str
    counted: int
    """How many kernels the file has counters of."""
    rows: frozenset[int]
    """Which of them the trace has too."""
    covered_ns: int
    """The time of the trace's kernels that have counters."""

    @classmethod
    def of(cls, view: TraceView, used: MatchedCounters) -> CounterUse:
        """That of one file."""
        found = used.match >= 0
        return cls(
            file=used.counters.source.name,
            counted=len(used.counters.counters),
            rows=frozenset(used.match[found].tolist()),
            covered_ns=int(_kernel_ns(view)[found].sum()),
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class TraceHealth:
    """How far a trace can be trusted, in counts."""

    has_timeline: bool
    operations: int
    operation_ns: int
    kernels: int
    kernel_ns: int
    graphs: int
    """Graphs that are one operation each, with their kernels hidden."""
    counters: int
    """Kernels with counters of its own."""
    counters_used: Sequence[CounterUse]
    unlaunched: int
    warm_up_tail: int
    launches_lost: int
    launches_unstarted: int
    """Of those lost, the last ones: the recording ended before their kernels began."""
    launches_captured: int
    graphs_lost: int
    """Graph launches that left no record."""
    hidden_kernels: int
    """About how many kernels these had."""
    early: int
    """Operations that start before they were launched."""
    most_early_ns: int
    has_phases: bool
    without_phase_ns: int
    busy_ns: int
    phases_too_deep: int
    profiler_ns: int
    program: Audience
    shows_host: bool
    ran_on_cpu: bool
    host: Sequence[Fact]
    """What the host's time goes to, of a trace without operations."""
    steps: StepHealth
    contradictions: Contradictions
    slowed: SlowedKernels
    clock: Sequence[Finding]
    importer: Finding | None

    @classmethod
    def of(cls, view: TraceView) -> TraceHealth:
        """That of one trace, with its window."""
        trace, launches = view.trace, view.launches
        operations = trace.operations
        kernels = operations.kind == OperationKind.KERNEL
        states = sum((states_of(view, d) for d in range(len(trace.devices))), np.zeros(len(State), np.int64))
        lead_ns = launches.time_ns[launches.linked] - operations.start_ns[launches.linked]
        hidden, lost = _hidden_in_graphs(view)
        return cls(
            has_timeline=view.has_timeline,
            operations=len(operations),
            operation_ns=int((operations.end_ns - operations.start_ns).sum()),
            kernels=int(kernels.sum()),
            kernel_ns=int(_kernel_ns(view).sum()),
            graphs=int((operations.kind == OperationKind.GRAPH).sum()),
            counters=len(trace.counters),
            counters_used=[CounterUse.of(view, used) for used in view.counters],
            unlaunched=int((kernels & ~launches.linked & ~view.warm_up_tail).sum()),
            warm_up_tail=int(view.warm_up_tail.sum()),
            launches_lost=launches_without_kernel(trace, launches),
            launches_unstarted=int(unstarted_launches(trace, launches).sum()),
            launches_captured=launches_captured(trace, launches),
            graphs_lost=lost,
            hidden_kernels=hidden,
            early=int((lead_ns > 0).sum()),
            most_early_ns=int(lead_ns.max(initial=0)),
            has_phases=bool(view.phases.paths),
            without_phase_ns=unattributed_ns(view),
            busy_ns=int(states[: State.INPUT].sum()),
            phases_too_deep=view.phases.too_deep,
            profiler_ns=int(states[State.PROFILER]),
            program=audience_of(view),
            shows_host=bool(len(trace.ranges) or len(trace.calls)),
            ran_on_cpu=ran_on_cpu(trace),
            host=host_facts(view) if not len(operations) else [],
            steps=StepHealth.of(view),
            contradictions=Contradictions.of(view),
            slowed=slowed_kernels(view),
            clock=clock_changes(view),
            importer=importer_finding(view),
        )


def _kernel_ns(view: TraceView) -> NDArray[np.int64]:
    """The time of each operation that is a kernel, else 0."""
    operations = view.trace.operations
    time: NDArray[np.int64] = np.where(
        operations.kind == OperationKind.KERNEL, operations.end_ns - operations.start_ns, 0
    )
    return time


def _hidden_in_graphs(view: TraceView) -> tuple[int, int]:
    """About how many kernels are missing because graph launches left no record, and how many of these there are."""
    calls, operations = view.trace.calls, view.trace.operations
    graph = np.array(["GraphLaunch" in text for text in view.trace.strings] or [False])[calls.name] & (
        calls.driver == 0
    )
    if not graph.any() or not view.launches.linked.any():
        return 0, 0
    of_call = np.bincount(
        view.launches.call[view.launches.linked & (operations.kind == OperationKind.KERNEL)],
        minlength=len(calls),
    )
    recorded = graph & (of_call > 0)
    lost = int((graph & (of_call == 0)).sum())
    return (round(lost * float(of_call[recorded].mean())), lost) if recorded.any() else (0, 0)
