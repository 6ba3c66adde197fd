"""How far the files can be trusted: what is missing, what contradicts itself, what to record instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profkit.advice.audience import audience_of
from profkit.model import Finding, OperationKind, Severity, Trace
from profkit.model.findings import Fact, Param
from profkit.model.report_verdict import Health
from profkit.model.states import State
from profkit.report.contradictions import contradictions, overrun_ns
from profkit.report.importer import importer_findings
from profkit.report.step_findings import step_findings, too_few_whole
from profkit.report.verdict import UNDECIDED
from profkit.roofline.beside_collectives import overlap_findings
from profkit.roofline.clock_changes import clock_findings
from profkit.timeline.host_step import host_facts, records_no_gpu
from profkit.timeline.launches import launches_captured, launches_without_kernel, unstarted_launches
from profkit.timeline.phase_table import unattributed_ns
from profkit.timeline.phases import DEEPEST_PHASE
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import states_of

__all__ = ["health_row", "undecided_reason"]

_NOTABLE: Final = 0.01
"""A share of lost or unlinked work below this is told as information only."""

_MOST_FINDINGS: Final = 60


def health_row(views: Sequence[TraceView], findings: Sequence[Finding], dropped: dict[str, int]) -> Health:
    """The health section.

    Args:
        views: The traces, with their windows.
        findings: What the readers found.
        dropped: Events that the readers left out, by reason.
    """
    found = [*findings, *_counters(views), *_dropped(dropped)]
    views = [v for v in views if v.has_timeline]
    unlaunched = sum(_unlaunched(v) for v in views)
    lost = sum(launches_without_kernel(v.trace, v.launches) for v in views)
    without_phase = unattributed_ns(views)
    unstarted = sum(int(unstarted_launches(v.trace, v.launches).sum()) for v in views)
    found += [*_lost(views, unlaunched, lost - unstarted), *_causality(views), *contradictions(views)]
    if unstarted:
        found.append(Finding("launches-unstarted", Severity.INFO, count=unstarted))
    if all(f.code != "graphs-opaque" for f in findings):
        found += _graphs(views)
    found += _captured(views) + clock_findings(views) + overlap_findings(views)
    found += (
        _attribution(views, without_phase)
        + _warm_up(views)
        + step_findings(views)
        + importer_findings(views)
        + _without_work(views)
        + _too_deep(views)
    )
    found.sort(key=lambda f: f.severity, reverse=True)
    moved = sum(int(states_of(v, d)[State.PROFILER]) for v in views for d in range(len(v.trace.devices)))
    return Health(
        ok=all(f.severity < Severity.WARNING for f in found),
        findings=found[:_MOST_FINDINGS],
        kernels_without_launch=unlaunched,
        launches_without_kernel=lost,
        warm_up_tail=sum(int(v.warm_up_tail.sum()) for v in views),
        gpu_ns_without_phase=without_phase,
        events_dropped=dict(sorted(dropped.items())),
        profiler_overhead_ns=moved if moved else None,
    )


def undecided_reason(views: Sequence[TraceView]) -> Fact | None:
    """Why the files cannot give a verdict, or None when they can."""
    if views and not any(v.has_timeline for v in views):
        return Fact("counters-only")
    if not any(len(v.trace.operations) for v in views):
        lost = sum(launches_without_kernel(v.trace, v.launches) for v in views)
        if lost:
            return Fact("no-kernel-records", {"launches": lost})
        if records_no_gpu(views) and (told := host_facts(views[0])):
            return Fact("host-only", told[0].params)
        any_host = any(len(v.trace.ranges) or len(v.trace.calls) for v in views)
        return Fact("no-gpu-events" if any_host else "no-events")
    states = np.zeros(len(State), np.int64)
    for view in views:
        for device in range(len(view.trace.devices)):
            states += states_of(view, device)
    overrun = sum(overrun_ns(v) for v in views)
    if overrun > UNDECIDED * max(sum(_summed_ns(v) for v in views), 1):
        return Fact("impossible-times")
    if steps := _steps_reason(views):
        return steps
    if states[State.UNCLASSIFIED] > UNDECIDED * max(int(states.sum()), 1):
        opaque = any((v.trace.operations.kind == OperationKind.GRAPH).any() for v in views)
        return Fact("graphs-opaque" if opaque else "kernels-unrecognised")
    return _missing_reason(views)


def _steps_reason(views: Sequence[TraceView]) -> Fact | None:
    """Why the steps cannot give a verdict: most are damaged, or empty."""
    damaged, steps = too_few_whole(views)
    if damaged:
        return Fact("steps-damaged", {"damaged": damaged, "steps": steps})
    idle, steps = _idle_steps(views)
    if idle >= UNDECIDED * max(steps, 1):
        # Steps whose kernels are lost only look empty.
        return _missing_reason(views) or Fact("steps-without-work", {"idle": idle, "steps": steps})
    return None


def _missing_reason(views: Sequence[TraceView]) -> Fact | None:
    """Why the file cannot give a verdict when most of its kernels are missing; a lost graph hides as many as others have."""
    kernels = sum(int((v.trace.operations.kind == OperationKind.KERNEL).sum()) for v in views)
    lost = sum(launches_without_kernel(v.trace, v.launches) for v in views)
    if lost > UNDECIDED * (lost + kernels):
        return Fact("kernels-lost", {"lost": lost, "kernels": kernels})
    hidden, graphs = (sum(counts) for counts in zip(*map(_hidden_in_graphs, views), strict=True))
    if kernels and hidden > UNDECIDED * (hidden + kernels):
        return Fact("graphs-lost", {"graphs": graphs, "hidden": hidden, "kernels": kernels})
    return None


def _counters(views: Sequence[TraceView]) -> list[Finding]:
    """What hardware counters have no timeline for, and what each file of them gave to the timelines."""
    alone = sum(len(v.trace.counters) for v in views if not v.has_timeline)
    found = [Finding("counters-only", Severity.INFO, count=alone)] if alone else []
    files = {id(used.counters): used.counters for view in views for used in view.counters}
    return found + [_matched_counters(views, counters) for counters in files.values()]


def _matched_counters(views: Sequence[TraceView], counters: Trace) -> Finding:
    kernels, covered_ns, kernel_ns = set[int](), 0, 0
    for view in views:
        operations = view.trace.operations
        duration = np.where(
            operations.kind == OperationKind.KERNEL, operations.end_ns - operations.start_ns, 0
        )
        kernel_ns += int(duration.sum())
        for used in view.counters:
            if used.counters is counters:
                kernels.update(used.match[used.match >= 0].tolist())
                covered_ns += int(duration[used.match >= 0].sum())
    file, counted = counters.source.name, len(counters.counters)
    if not kernels:
        params: dict[str, Param] = {"file": file, "counted": counted}
        return Finding("counters-unlike", Severity.WARNING, count=counted, params=params)
    params = {"file": file, "counted": counted, "time_share": covered_ns / max(kernel_ns, 1)}
    return Finding("counters-matched", Severity.INFO, count=len(kernels), params=params)


def _captured(views: Sequence[TraceView]) -> list[Finding]:
    """Launches that were captured: they launched nothing, so that nothing of them is missing."""
    count = sum(launches_captured(v.trace, v.launches) for v in views)
    if not count:
        return []
    return [Finding("launches-captured", Severity.INFO, count=count)]


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


def _summed_ns(view: TraceView) -> int:
    operations = view.trace.operations
    return int((operations.end_ns - operations.start_ns).sum())


def _unlaunched(view: TraceView) -> int:
    kernels = view.trace.operations.kind == OperationKind.KERNEL
    return int((kernels & ~view.launches.linked & ~view.warm_up_tail).sum())


def _lost(views: Sequence[TraceView], unlaunched: int, lost: int) -> list[Finding]:
    kernels = sum(int((v.trace.operations.kind == OperationKind.KERNEL).sum()) for v in views)
    found = []
    if unlaunched:
        severity = Severity.WARNING if unlaunched > _NOTABLE * kernels else Severity.INFO
        found.append(
            Finding("kernels-without-launch", severity, count=unlaunched, params={"kernels": kernels})
        )
    if lost:
        severity = Severity.WARNING if lost > _NOTABLE * (lost + kernels) else Severity.INFO
        found.append(Finding("launches-without-kernel", severity, count=lost))
    return found


def _dropped(dropped: dict[str, int]) -> list[Finding]:
    return [
        Finding(f"dropped-{reason.replace('_', '-')}", Severity.WARNING, count=count)
        for reason, count in sorted(dropped.items())
        if count
    ]


def _causality(views: Sequence[TraceView]) -> list[Finding]:
    early, most_ns = 0, 0
    for view in views:
        linked = view.launches.linked
        lead = view.launches.time_ns[linked] - view.trace.operations.start_ns[linked]
        early += int((lead > 0).sum())
        most_ns = max(most_ns, int(lead.max(initial=0)))
    total = sum(len(v.trace.operations) for v in views)
    if not early:
        return []
    severity = Severity.WARNING if early > _NOTABLE * total else Severity.INFO
    return [Finding("kernel-before-launch", severity, count=early, params={"most_ns": most_ns})]


def _graphs(views: Sequence[TraceView]) -> list[Finding]:
    graphs = sum(int((v.trace.operations.kind == OperationKind.GRAPH).sum()) for v in views)
    return [Finding("graphs-opaque", Severity.WARNING, count=graphs)] if graphs else []


def _attribution(views: Sequence[TraceView], without_phase_ns: int) -> list[Finding]:
    if not any(len(v.trace.operations) for v in views):
        return []
    if not any(v.phases.paths for v in views):
        # profkit's own marks are Python's: a program without it can have NVTX ranges.
        programs = [audience_of(v) for v in views]
        words = "no-phases" if any(p.trains for p in programs) else "no-ranges"
        return [Finding(words if any(p.torch for p in programs) else "no-torch", Severity.INFO)]
    busy = sum(int(states_of(v, d)[: State.INPUT].sum()) for v in views for d in range(len(v.trace.devices)))
    if busy and without_phase_ns > 0.1 * busy:
        return [Finding("time-without-phase", Severity.INFO, params={"share": without_phase_ns / busy})]
    return []


def _too_deep(views: Sequence[TraceView]) -> list[Finding]:
    count = sum(view.phases.too_deep for view in views)
    params = {"deepest": DEEPEST_PHASE}
    return [Finding("phases-too-deep", Severity.WARNING, count=count, params=params)] if count else []


def _idle_steps(views: Sequence[TraceView]) -> tuple[int, int]:
    """How many steps have no work on any device, of how many; of recordings some of whose steps have some."""
    counts = [
        np.bincount(v.step_of_operation + 1, minlength=v.steps.count + 1)[1:][~v.steps.damaged] for v in views
    ]
    counts = [count for count in counts if count.any()]
    return sum(int((count == 0).sum()) for count in counts), sum(map(len, counts))


def _without_work(views: Sequence[TraceView]) -> list[Finding]:
    idle, steps = _idle_steps(views)
    if not idle:
        return []
    severity = Severity.WARNING if idle >= UNDECIDED * steps else Severity.INFO
    return [Finding("steps-without-work", severity, count=idle, params={"steps": steps})]


def _warm_up(views: Sequence[TraceView]) -> list[Finding]:
    stepped = [v for v in views if v.steps.count]
    if not stepped:
        return []
    steps = stepped[0].steps.count
    before = ~stepped[0].steps.damaged[: int(np.argmax(stepped[0].kept_steps))]
    left_out = int(np.count_nonzero(before))
    return (
        [Finding("warm-up-steps", Severity.INFO, count=left_out, params={"steps": steps})] if left_out else []
    )
