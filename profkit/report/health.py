"""How far the files can be trusted: what is missing, what contradicts itself, what to record instead."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from profkit.model import Finding, OperationKind, Severity
from profkit.model.result import Row
from profkit.model.states import State
from profkit.report.contradictions import contradictions, overrun_ns
from profkit.report.verdict import UNDECIDED
from profkit.timeline.launches import launches_without_kernel
from profkit.timeline.phase_table import unattributed_ns
from profkit.timeline.phases import DEEPEST_PHASE
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import states_of
from profkit.units import duration_text, noun_text

__all__ = ["health_row", "undecided_reason"]

_NOTABLE: Final = 0.01
"""A share of lost or unlinked work below this is told as information only."""

_MOST_FINDINGS: Final = 60


def health_row(views: Sequence[TraceView], findings: Sequence[Finding], dropped: dict[str, int]) -> Row:
    """The health section.

    Args:
        views: The traces, with their windows.
        findings: What the readers found.
        dropped: Events that the readers left out, by reason.
    """
    unlaunched = sum(_unlaunched(v) for v in views)
    lost = sum(launches_without_kernel(v.trace, v.launches) for v in views)
    without_phase = unattributed_ns(views)
    found = [*findings, *_lost(views, unlaunched, lost), *_dropped(dropped), *_causality(views)]
    found += contradictions(views)
    if all(f.code != "graphs-opaque" for f in findings):
        found += _graphs(views)
    found += _attribution(views, without_phase) + _warm_up(views) + _without_work(views) + _too_deep(views)
    found.sort(key=lambda f: f.severity, reverse=True)
    moved = sum(int(states_of(v, d)[State.PROFILER]) for v in views for d in range(len(v.trace.devices)))
    return {
        "ok": all(f.severity < Severity.WARNING for f in found),
        "findings": [
            {
                "code": f.code,
                "severity": f.severity.name.lower(),
                "message": f.message,
                "count": f.count,
                "params": dict(f.params),
            }
            for f in found[:_MOST_FINDINGS]
        ],
        "kernels_without_launch": unlaunched,
        "launches_without_kernel": lost,
        "gpu_ns_without_phase": without_phase,
        "events_dropped": dict(sorted(dropped.items())),
        "profiler_overhead_ns": moved if moved else None,
        "warm_up_tail": sum(int(v.warm_up_tail.sum()) for v in views),
    }


def undecided_reason(views: Sequence[TraceView]) -> str | None:
    """Why the files cannot give a verdict and what to record instead, or None when they can."""
    if not any(len(v.trace.operations) for v in views):
        lost = sum(launches_without_kernel(v.trace, v.launches) for v in views)
        if lost:
            return (
                f"its {lost} launches have no kernel record, so the GPU's side is missing. "
                "Record again with no other profiler attached, and stop only after torch.cuda.synchronize()"
            )
        if any(len(v.trace.ranges) or len(v.trace.calls) for v in views):
            return (
                "it has no GPU events. Record with ProfilerActivity.CUDA, or with nsys profile -t cuda,nvtx"
            )
        return "there are no CPU or GPU events in it. Record a few steps while the model trains"
    states = np.zeros(len(State), np.int64)
    for view in views:
        for device in range(len(view.trace.devices)):
            states += states_of(view, device)
    overrun = sum(overrun_ns(v) for v in views)
    if overrun > UNDECIDED * max(sum(_summed_ns(v) for v in views), 1):
        return "most of its GPU time is impossible: operations are said to run past later ones of their own stream. Record it again"
    if states[State.UNCLASSIFIED] > UNDECIDED * max(int(states.sum()), 1):
        if any((v.trace.operations.kind == OperationKind.GRAPH).any() for v in views):
            return "most of its time lies in CUDA graphs recorded as one piece. Record with nsys --cuda-graph-trace=node"
        return "most of its GPU time lies in kernels that nothing is known of. Record with record_shapes=True"
    idle, steps = _idle_steps(views)
    if idle > UNDECIDED * max(steps, 1):
        return f"{idle} of its {steps} steps launched nothing on a device. Record steps that do, from their start to their end"
    return _missing_reason(views)


def _missing_reason(views: Sequence[TraceView]) -> str | None:
    """Why the file cannot give a verdict when most of its kernels are missing; a lost graph hides as many as others have."""
    kernels = sum(int((v.trace.operations.kind == OperationKind.KERNEL).sum()) for v in views)
    lost = sum(launches_without_kernel(v.trace, v.launches) for v in views)
    if kernels and lost > UNDECIDED * (lost + kernels):
        return f"{lost} launches have no kernel record, more than the {kernels} that have. Record fewer steps at once"
    hidden, graphs = (sum(counts) for counts in zip(*map(_hidden_in_graphs, views), strict=True))
    if kernels and hidden > UNDECIDED * (hidden + kernels):
        return (
            f"{graphs} CUDA graph launches have no kernel record, which hides about {hidden} kernels, more than the {kernels} "
            "that it has: its idle time is not real. Record fewer steps at once"
        )
    return None


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
        found.append(
            Finding(
                "kernels-without-launch",
                Severity.WARNING if unlaunched > _NOTABLE * kernels else Severity.INFO,
                f"{unlaunched} of {kernels} kernels have no launch record: their time counts, their phase is unknown",
                unlaunched,
            )
        )
    if lost:
        found.append(
            Finding(
                "launches-without-kernel",
                Severity.WARNING if lost > _NOTABLE * (lost + kernels) else Severity.INFO,
                f"GPU activity is missing: {lost} launches have no kernel record (the recording was cut, or CUPTI lost them)",
                lost,
            )
        )
    return found


def _dropped(dropped: dict[str, int]) -> list[Finding]:
    return [
        Finding(
            f"dropped-{reason.replace('_', '-')}",
            Severity.WARNING,
            f"{count} events were left out: {reason.replace('_', ' ')}",
            count,
        )
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
    return [
        Finding(
            "kernel-before-launch",
            Severity.WARNING if early > _NOTABLE * total else Severity.INFO,
            f"{noun_text(early, 'operation')} started before the launch call, by up to {duration_text(most_ns)}: "
            "the clocks of host and device disagree",
            early,
        )
    ]


def _graphs(views: Sequence[TraceView]) -> list[Finding]:
    graphs = sum(int((v.trace.operations.kind == OperationKind.GRAPH).sum()) for v in views)
    if not graphs:
        return []
    message = f"{graphs} CUDA graph launches were captured at graph level: their time is known, their kernels are not. Re-run nsys with --cuda-graph-trace=node"
    return [Finding("graphs-opaque", Severity.WARNING, message, graphs)]


def _attribution(views: Sequence[TraceView], without_phase_ns: int) -> list[Finding]:
    if not any(len(v.trace.operations) for v in views):
        return []
    if not any(v.phases.paths for v in views):
        return [
            Finding(
                "no-phases", Severity.INFO, 'No phases are marked. Mark them with @profkit.phase("forward")'
            )
        ]
    busy = sum(int(states_of(v, d)[: State.INPUT].sum()) for v in views for d in range(len(v.trace.devices)))
    if busy and without_phase_ns > 0.1 * busy:
        share = f"{without_phase_ns / busy:.0%}"
        return [
            Finding(
                "time-without-phase",
                Severity.INFO,
                f"{share} of the GPU's busy time was launched outside every phase",
            )
        ]
    return []


def _too_deep(views: Sequence[TraceView]) -> list[Finding]:
    count = sum(view.phases.too_deep for view in views)
    if not count:
        return []
    message = (
        f"{count} phases lie more than {DEEPEST_PHASE} deep in others and count to the outer ones: "
        "are all ranges closed that the program opens?"
    )
    return [Finding("phases-too-deep", Severity.WARNING, message, count)]


def _idle_steps(views: Sequence[TraceView]) -> tuple[int, int]:
    """How many steps have no work on any device, of how many; of recordings some of whose steps have some."""
    counts = [np.bincount(v.step_of_operation + 1, minlength=v.steps.count + 1)[1:] for v in views]
    counts = [count for count in counts if count.any()]
    return sum(int((count == 0).sum()) for count in counts), sum(map(len, counts))


def _without_work(views: Sequence[TraceView]) -> list[Finding]:
    idle, steps = _idle_steps(views)
    if not idle:
        return []
    message = (
        f"{idle} of {noun_text(steps, 'step')} launched nothing on a device: they are empty, or their GPU side is missing "
        "(a recording that was cut, or CUPTI lost it)"
    )
    return [
        Finding(
            "steps-without-work",
            Severity.WARNING if idle > UNDECIDED * steps else Severity.INFO,
            message,
            idle,
        )
    ]


def _warm_up(views: Sequence[TraceView]) -> list[Finding]:
    stepped = [v for v in views if v.steps.count]
    if not stepped:
        if not any(len(v.trace.operations) for v in views):
            return []
        message = "No steps are marked: the window is the whole recording. Mark a range named step, or give --step NAME"
        return [Finding("no-steps", Severity.INFO, message)]
    left_out = stepped[0].first_kept
    if left_out:
        which = "step was" if left_out == 1 else f"{left_out} steps were"
        message = (
            f"The first {which} slower than the rest of the {stepped[0].steps.count} and left out as warm-up"
        )
        return [Finding("warm-up-steps", Severity.INFO, message, left_out)]
    return []
