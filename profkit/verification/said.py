"""What a report says of the counted time, beside what the raw files say: causes, waits, phases, steps, the verdict."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from profkit.model.names import ShareName
from profkit.model.report import Report
from profkit.verification.host import Host
from profkit.verification.idle import IdleTime
from profkit.verification.phases import PhaseTotals, phase_totals
from profkit.verification.timeline import Timeline

__all__ = ["Claim", "said_figures"]

Claim = tuple[str, int | None, int | None]
"""A name, what the report says, what the files say."""

_QUEUE_NS: Final = 5_000
_COMPARED: Final = 5_900
"""Characters of a name."""
_OWN_SHARE: Final[Sequence[ShareName]] = ("input", "sync", "host_work")
_LAUNCH: Final = ("host", "queue")


def said_figures(report: Report, timelines: Sequence[Timeline]) -> list[Claim]:
    """Idle time by cause and what follows of it, waits, phases, the median step, and the verdict's own arithmetic.

    Args:
        report: The report.
        timelines: All of its recordings that are timelines.
    """
    hosts = [Host(timeline) for timeline in timelines]
    whole = report.method.options.phase is None
    figures = [*_step(report, timelines), *_verdict(report)]
    figures += _phases(report, timelines, hosts) if whole else []
    if report.step is not None and report.step.source == "measured":
        # Idle time beyond the measured step was given to the profiler.
        return figures
    if any(_drives_several(timeline) for timeline in timelines):
        # Which device a call waits for is told by contexts, which the second reading leaves out.
        return figures
    queue = [row.amount for row in report.method.thresholds if row.code == "queue-latency"]
    idle = [
        IdleTime(t, host, int(queue[0] if queue else _QUEUE_NS))
        for t, host in zip(timelines, hosts, strict=True)
    ]
    return figures + _idle(report, idle) + (_waits(report, idle) if whole else [])


def _drives_several(timeline: Timeline) -> bool:
    devices = defaultdict(set)
    for op in timeline.ops:
        devices[op.process].add(op.device)
    return any(len(each) > 1 for each in devices.values())


def _idle(report: Report, idle: Iterable[IdleTime]) -> list[Claim]:
    by_cause: dict[str, int] = defaultdict(int)
    for each in idle:
        for cause, ns in each.by_cause.items():
            by_cause[cause] += ns
    figures: list[Claim] = [("idle.total_ns", report.idle.total_ns, sum(by_cause.values()))]
    figures += [(f"idle.by_cause.{cause}", ns, by_cause[cause]) for cause, ns in report.idle.by_cause.items()]
    shares = report.verdict.shares
    figures += [(f"verdict.shares.{name}", shares[name], by_cause[name]) for name in _OWN_SHARE]
    rest = sum(ns for cause, ns in by_cause.items() if cause not in _OWN_SHARE and cause not in _LAUNCH)
    figures.append(("verdict.shares.other", shares["other"], rest))
    for cause in _LAUNCH:
        figures.append((f"verdict.launch.{cause}", getattr(report.verdict.launch, cause), by_cause[cause]))
    return figures


def _waits(report: Report, idle: Sequence[IdleTime]) -> list[Claim]:
    told: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    counted: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in report.syncs:
        for at, value in enumerate((row.count, row.blocked_ns, row.cost_ns or 0)):
            told[row.api][at] += value
    for each in idle:
        for call in each.blocked:
            for at, value in enumerate((1, call.end - call.start, each.cost[id(call)])):
                counted[call.name][at] += value
    return [
        (f"syncs[{api}].{name}", told[api][at], counted[api][at])
        for api in dict.fromkeys([*told, *counted])
        for at, name in enumerate(("count", "blocked_ns", "cost_ns"))
    ]


def _phases(report: Report, timelines: Sequence[Timeline], hosts: Sequence[Host]) -> list[Claim]:
    found: dict[str, list[PhaseTotals]] = defaultdict(list)
    for timeline, host in zip(timelines, hosts, strict=True):
        for path, totals in phase_totals(timeline, host).items():
            found[_beginning(path)].append(totals)
    rows = {_beginning(row.path): row for row in report.phases if row.count or row.gpu_inclusive_ns}
    figures: list[Claim] = []
    for path in dict.fromkeys([*rows, *found]):
        row, parts = rows.get(path), found.get(path, [])
        values = {
            name: sum(getattr(part, name) for part in parts)
            for name in ("count", "host_wall_ns", "gpu_inclusive_ns", "gpu_exclusive_ns")
        }
        if not any(values.values()) and row is None:
            continue
        figures += [
            (f"phases[{path}].{name}", getattr(row, name, 0), value) for name, value in values.items()
        ]
        if row is not None and row.kernel_count is not None:
            kernels = sum(part.kernels for part in parts)
            figures.append((f"phases[{path}].kernel_count", row.kernel_count, kernels))
    return figures


def _beginning(path: str) -> str:
    """What is left of a phase's names where they are very long: a report keeps 6,000 characters of each."""
    return "/".join(name[:_COMPARED] for name in path.split("/"))


def _step(report: Report, timelines: Sequence[Timeline]) -> list[Claim]:
    """The median over the kept steps of their mean time over the devices."""
    stepped = [timeline for timeline in timelines if timeline.number_of_steps]
    devices = sum(len(timeline.devices) for timeline in stepped)
    count = min((timeline.number_of_steps for timeline in stepped), default=0)
    kept = [number for number in range(count) if all(timeline.is_kept(number) for timeline in stepped)]
    if report.step is None or report.step.recorded_ns is None or not devices or not kept:
        return []
    lengths = [sum(timeline.device_ns(number) for timeline in stepped) / devices for number in kept]
    return [("step.recorded_ns", report.step.recorded_ns, round(median(lengths)))]


def _verdict(report: Report) -> list[Claim]:
    """The headline: its bound is the largest share of the time that it speaks of, and its share is that of the whole."""
    verdict = report.verdict
    shares = dict(verdict.unprofiled_shares or verdict.shares)
    if verdict.unprofiled_shares is None:
        shares["other"] -= report.idle.by_cause.get("profiler", 0)
    total = sum((verdict.unprofiled_shares or verdict.shares).values())
    figures: list[Claim] = []
    if (
        verdict.unprofiled_shares is not None
        and report.step is not None
        and report.step.unprofiled_ns is not None
    ):
        figures.append(("verdict.unprofiled_shares", total, round(report.step.unprofiled_ns.likely)))
    if verdict.bound == "unknown" or not total:
        return figures
    largest = max(shares.values())
    figures.append((f"verdict.share[{verdict.bound}]", round(verdict.share * total), largest))
    return figures
