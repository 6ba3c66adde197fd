"""How far the files can be trusted: what is missing, what contradicts itself, what to record instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import Finding, Severity
from profkit.model.findings import Fact, Param
from profkit.model.report_verdict import Health
from profkit.model.rows import replace
from profkit.model.states import State
from profkit.report.contradictions import contradiction_findings
from profkit.report.joining import Joined
from profkit.report.step_findings import idle_steps, step_findings, too_few_whole
from profkit.report.trace_health import CounterUse, TraceHealth
from profkit.report.verdict import UNDECIDED
from profkit.roofline.beside_collectives import overlap_findings
from profkit.roofline.clock_changes import clock_finding
from profkit.timeline.phases import DEEPEST_PHASE

__all__ = ["health_row", "told_together", "undecided_reason"]

_NOTABLE: Final = 0.01
"""A share of lost or unlinked work below this is told as information only."""

_MOST_FINDINGS: Final = 60

_MOST_ALIKE: Final = 3
"""Of one finding with other numbers in each file, these are told; the rest is counted."""

Traces = Sequence[TraceHealth]


def health_row(joined: Joined, findings: Sequence[Finding], dropped: Mapping[str, int]) -> Health:
    """The health section.

    Args:
        joined: The timelines.
        findings: What was found in the files, but for their timelines.
        dropped: Events that the readers left out, by reason.
    """
    traces = [trace.health for trace in joined.part.traces]
    found = [*findings, *_counters(traces), *_dropped(dropped)]
    traces = [t for t in traces if t.has_timeline]
    unlaunched, lost = sum(t.unlaunched for t in traces), sum(t.launches_lost for t in traces)
    unstarted = sum(t.launches_unstarted for t in traces)
    found += [*_lost(traces, unlaunched, lost - unstarted), *_causality(traces)]
    found += contradiction_findings([t.contradictions for t in traces], sum(t.operation_ns for t in traces))
    found += _counted("launches-unstarted", Severity.INFO, unstarted)
    if all(f.code != "graphs-opaque" for f in findings):
        found += _counted("graphs-opaque", Severity.WARNING, sum(t.graphs for t in traces))
    # Launches that were captured launched nothing, so that nothing of them is missing.
    found += _counted("launches-captured", Severity.INFO, sum(t.launches_captured for t in traces))
    found += clock_finding([each for t in traces for each in t.clock])
    found += overlap_findings([t.slowed for t in traces])
    found += _attribution(traces)
    found += _steps(traces, joined)
    found += [t.importer for t in traces if t.importer][:1]
    found += _without_work(traces)
    found += _too_deep(traces)
    found.sort(key=lambda f: f.severity, reverse=True)
    return Health(
        ok=all(f.severity < Severity.WARNING for f in found),
        findings=found[:_MOST_FINDINGS],
        kernels_without_launch=unlaunched,
        launches_without_kernel=lost,
        warm_up_tail=sum(t.warm_up_tail for t in traces),
        gpu_ns_without_phase=sum(t.without_phase_ns for t in traces),
        events_dropped=dict(sorted(dropped.items())),
        profiler_overhead_ns=sum(t.profiler_ns for t in traces) or None,
    )


def told_together(files: Sequence[tuple[str | None, Sequence[Finding]]]) -> list[Finding]:
    """What is the same in several files, once; and of what only has other numbers in each, the worst.

    Args:
        files: The name of each file, where it is one, and what was found in it.
    """
    same: dict[tuple[str, str], list[tuple[int, Finding]]] = {}
    for at, (_, findings) in enumerate(files):
        for finding in findings:
            same.setdefault((finding.code, repr(finding.params)), []).append((at, finding))
    told: dict[str, list[Finding]] = {}
    for group in same.values():
        (at, first), more = group[0], len({at for at, _ in group}) - 1
        name = files[at][0]
        of_several: dict[str, Param] = {"in_file": name} if name is not None and len(files) > 1 else {}
        if more:
            of_several["same_files"] = more
        once = replace(first, count=sum(f.count for _, f in group), params={**first.params, **of_several})
        told.setdefault(once.code, []).append(once)
    return [each for alike in told.values() for each in _worst(alike)]


def _worst(alike: Sequence[Finding]) -> list[Finding]:
    if len(alike) <= _MOST_ALIKE:
        return list(alike)
    order = sorted(alike, key=lambda f: (f.severity.rank, f.count), reverse=True)
    *kept, last = order[:_MOST_ALIKE]
    more = sum(1 + int(str(f.params.get("same_files", 0))) for f in order[_MOST_ALIKE:])
    return [*kept, replace(last, params={**last.params, "alike_files": more})]


def undecided_reason(traces: Traces, states: NDArray[np.int64]) -> Fact | None:
    """Why the files cannot give a verdict, or None when they can.

    Args:
        traces: What is known of their health.
        states: The window's time in each `State`, in ns, over all devices.
    """
    if traces and not any(t.has_timeline for t in traces):
        return Fact("counters-only")
    if not any(t.operations for t in traces):
        if lost := sum(t.launches_lost for t in traces):
            return Fact("no-kernel-records", {"launches": lost})
        if traces and all(t.ran_on_cpu for t in traces) and traces[0].host:
            return Fact("host-only", traces[0].host[0].params)
        return Fact("no-gpu-events" if any(t.shows_host for t in traces) else "no-events")
    overrun_ns = sum(t.contradictions.written_ns - t.contradictions.possible_ns for t in traces)
    if overrun_ns > UNDECIDED * max(sum(t.operation_ns for t in traces), 1):
        return Fact("impossible-times")
    if steps := _steps_reason(traces):
        return steps
    if states[State.UNCLASSIFIED] > UNDECIDED * max(int(states.sum()), 1):
        return Fact("graphs-opaque" if any(t.graphs for t in traces) else "kernels-unrecognised")
    return _missing_reason(traces)


def _steps_reason(traces: Traces) -> Fact | None:
    """Why the steps cannot give a verdict: most are damaged, or empty."""
    damaged, steps = too_few_whole([t.steps for t in traces])
    if damaged:
        return Fact("steps-damaged", {"damaged": damaged, "steps": steps})
    idle, steps = idle_steps([t.steps for t in traces])
    if idle >= UNDECIDED * max(steps, 1):
        # Steps whose kernels are lost only look empty.
        return _missing_reason(traces) or Fact("steps-without-work", {"idle": idle, "steps": steps})
    return None


def _missing_reason(traces: Traces) -> Fact | None:
    """Why the file cannot give a verdict when most of its kernels are missing; a lost graph hides as many as others have."""
    kernels, lost = sum(t.kernels for t in traces), sum(t.launches_lost for t in traces)
    if lost > UNDECIDED * (lost + kernels):
        return Fact("kernels-lost", {"lost": lost, "kernels": kernels})
    hidden, graphs = sum(t.hidden_kernels for t in traces), sum(t.graphs_lost for t in traces)
    if kernels and hidden > UNDECIDED * (hidden + kernels):
        return Fact("graphs-lost", {"graphs": graphs, "hidden": hidden, "kernels": kernels})
    return None


def _counted(code: str, severity: Severity, count: int) -> list[Finding]:
    return [Finding(code, severity, count=count)] if count else []


def _counters(traces: Traces) -> list[Finding]:
    """What hardware counters have no timeline for, and what each file of them gave to the timelines."""
    found = _counted("counters-only", Severity.INFO, sum(t.counters for t in traces if not t.has_timeline))
    files: dict[tuple[str, int], list[CounterUse]] = {}
    for used in (used for t in traces for used in t.counters_used):
        files.setdefault((used.file, used.counted), []).append(used)
    kernel_ns = sum(t.kernel_ns for t in traces)
    return found + [_matched_counters(uses, kernel_ns) for uses in files.values()]


def _matched_counters(uses: Sequence[CounterUse], kernel_ns: int) -> Finding:
    file, counted = uses[0].file, uses[0].counted
    matched = frozenset[int]().union(*(used.rows for used in uses))
    if not matched:
        params: dict[str, Param] = {"file": file, "counted": counted}
        return Finding("counters-unlike", Severity.WARNING, count=counted, params=params)
    share = sum(used.covered_ns for used in uses) / max(kernel_ns, 1)
    params = {"file": file, "counted": counted, "time_share": share}
    return Finding("counters-matched", Severity.INFO, count=len(matched), params=params)


def _lost(traces: Traces, unlaunched: int, lost: int) -> list[Finding]:
    kernels = sum(t.kernels for t in traces)
    found = []
    if unlaunched:
        severity = Severity.WARNING if unlaunched > _NOTABLE * kernels else Severity.INFO
        params: dict[str, Param] = {"kernels": kernels}
        found.append(Finding("kernels-without-launch", severity, count=unlaunched, params=params))
    severity = Severity.WARNING if lost > _NOTABLE * (lost + kernels) else Severity.INFO
    return found + _counted("launches-without-kernel", severity, lost)


def _dropped(dropped: Mapping[str, int]) -> list[Finding]:
    return [
        each
        for reason, count in sorted(dropped.items())
        for each in _counted(f"dropped-{reason.replace('_', '-')}", Severity.WARNING, count)
    ]


def _causality(traces: Traces) -> list[Finding]:
    early = sum(t.early for t in traces)
    if not early:
        return []
    severity = Severity.WARNING if early > _NOTABLE * sum(t.operations for t in traces) else Severity.INFO
    params = {"most_ns": max(t.most_early_ns for t in traces)}
    return [Finding("kernel-before-launch", severity, count=early, params=params)]


def _attribution(traces: Traces) -> list[Finding]:
    if not any(t.operations for t in traces):
        return []
    if not any(t.has_phases for t in traces):
        # profkit's own marks are Python's: a program without it can have NVTX ranges.
        words = "no-phases" if any(t.program.trains for t in traces) else "no-ranges"
        return [Finding(words if any(t.program.torch for t in traces) else "no-torch", Severity.INFO)]
    busy_ns, without_ns = sum(t.busy_ns for t in traces), sum(t.without_phase_ns for t in traces)
    if busy_ns and without_ns > 0.1 * busy_ns:
        return [Finding("time-without-phase", Severity.INFO, params={"share": without_ns / busy_ns})]
    return []


def _steps(traces: Traces, joined: Joined) -> list[Finding]:
    if any(t.steps.count for t in traces):
        return step_findings([t.steps for t in traces], joined.window, joined.part.device_count)
    step = joined.recorded_step
    if step is None or not any(t.operations for t in traces):
        return []
    params: dict[str, Param] = {
        "startup_ns": step.startup_ns or 0,
        "teardown_ns": step.teardown_ns or 0,
        "weights": any(t.steps.leaves_weights_out for t in traces),
    }
    return [Finding("no-steps", Severity.INFO, params=params)]


def _without_work(traces: Traces) -> list[Finding]:
    idle, steps = idle_steps([t.steps for t in traces])
    severity = Severity.WARNING if idle >= UNDECIDED * steps else Severity.INFO
    params = {"steps": steps}
    return [Finding("steps-without-work", severity, count=idle, params=params)] if idle else []


def _too_deep(traces: Traces) -> list[Finding]:
    count = sum(t.phases_too_deep for t in traces)
    params = {"deepest": DEEPEST_PHASE}
    return [Finding("phases-too-deep", Severity.WARNING, count=count, params=params)] if count else []
