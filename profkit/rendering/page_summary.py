"""The page's sections in words: the verdict, the health of the recording, advice, and how the numbers were made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from profkit.model.names import ShareBound
from profkit.model.report import AdviceRow, DeviceRow
from profkit.readers.registry import role_of
from profkit.rendering.digest import (
    Scale,
    change_text,
    code_lines,
    facts,
    findings_by_weight,
    headline_of,
    health_note,
    launch_parts,
    recorded_beside,
    scale_of,
    share_text,
    what_to_record,
)
from profkit.rendering.document import Document, Finding, Threshold
from profkit.rendering.input_lines import input_lines
from profkit.rendering.page_cells import Segment, clip, segments_of, with_units
from profkit.rendering.sentences.first_action import first_action
from profkit.rendering.sentences.labels import BASES, CONFIDENCES, SHARES, Term
from profkit.units import count_text, duration_text

__all__ = [
    "AdviceEntry",
    "HealthSection",
    "MethodSection",
    "VerdictSection",
    "advice_entry",
    "health_section",
    "method_section",
    "verdict_section",
]

_FINDINGS = 40


@dataclass(frozen=True)
class AdviceEntry:
    """A piece of advice."""

    row: AdviceRow
    saving: str | None
    change: str | None
    """The times that the saving is the difference of."""
    speedup: str | None
    range: str | None
    code: str
    href: str | None


@dataclass(frozen=True)
class VerdictSection:
    """The verdict with the numbers beside it."""

    kind: str | None
    """What stands before the colon of the sentence."""
    rest: str
    more: str
    """The sentences after the first."""
    bound: ShareBound
    facts: Sequence[str]
    bar: Sequence[Segment]
    """The largest share first, as the rows below it."""
    numbers: Sequence[tuple[str, str]]
    """A number as text, and what it is."""
    scale: Scale
    """Of the bar."""
    beside: str | None
    """The step as it was recorded."""
    launch: str | None
    record: str | None
    first: AdviceEntry | None
    action: str | None
    """What to do first where no advice is it."""
    caveats: Sequence[str]
    confidence: str | None
    """With what it means; None where there is no verdict to trust."""


@dataclass(frozen=True)
class HealthSection:
    """How far the recording can be trusted."""

    note: str
    ok: bool
    findings: Sequence[Finding]
    left: int
    counts: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class MethodSection:
    """How the numbers were made."""

    inputs: Sequence[tuple[str, str]]
    """Files, and what wrote them."""
    devices: Sequence[tuple[str, DeviceRow]]
    """Devices, those that are alike as one."""
    thresholds: Sequence[Threshold]
    basis: Sequence[tuple[str, str]]
    terms: Mapping[str, Term]
    """Shares that the page shows, with their meaning."""
    options: Sequence[tuple[str, str]]
    more: Sequence[tuple[str, str]]


def verdict_section(report: Document, scale: Scale) -> VerdictSection:
    """The verdict, its bar, and the first thing to do."""
    verdict = report.verdict
    sentence, more = _first_sentence(with_units(verdict.sentence))
    kind, _, rest = sentence.partition(": ") if verdict.bound != "unknown" else ("", "", sentence)
    shares, own_scale = headline_of(report)
    record = what_to_record(verdict)
    # Advice is about a rank's own step: where it waits for another rank, that is not what to do first.
    action = first_action(report)
    first = report.advice[0] if report.advice and verdict.straggler is None and action is None else None
    return VerdictSection(
        kind=kind if rest and kind else None,
        rest=rest or kind,
        more=more,
        bound=verdict.bound,
        facts=facts(report),
        bar=segments_of(shares, largest_first=True),
        numbers=_numbers(report, scale),
        scale=own_scale,
        beside=recorded_beside(report),
        launch=launch_parts(report),
        record=record[:1].upper() + record[1:] if record else None,
        first=advice_entry(report, first) if first else None,
        action=action,
        caveats=verdict.caveats,
        confidence=CONFIDENCES.get(verdict.confidence),
    )


def _first_sentence(text: str) -> tuple[str, str]:
    """The first statement, which is the headline, and the others."""
    end = re.search(r"\. (?=[A-Z])|; ", text)
    if end is None:
        return text, ""
    others = text[end.end() :]
    return f"{text[: end.start()]}.", others[:1].upper() + others[1:]


def _numbers(report: Document, scale: Scale) -> list[tuple[str, str]]:
    """Figures of the recording; where the verdict is of the step without a profiler, they say so and leave its length to that."""
    if {role_of(each.format) for each in report.inputs} == {
        "counters"
    }:  # no time is told but that of kernels
        alone = duration_text(report.totals.kernel_sum_ns)
        return [
            (alone, "in kernels, each run by itself"),
            (count_text(report.totals.kernel_count or 0), "kernels"),
        ]
    window, unlike = report.window, recorded_beside(report) is not None
    recorded = ", with the profiler" if unlike else ""
    numbers = []
    if window.device_ns:
        busy = sum(device.busy_ns for device in report.devices)
        if not unlike:
            numbers.append((duration_text(scale(window.device_ns)), f"{scale.label}, on the device"))
        numbers.append((share_text(busy / window.device_ns), f"of the time the device is busy{recorded}"))
    if window.wall_ns and not unlike:
        steps = max(1, scale.divisor // max(1, len(report.devices)))
        clock = "on the host" if steps == 1 else "per step on average, on the host"
        numbers.append((duration_text(window.wall_ns / steps), clock))
    if kernels := sum(row.count for row in report.kernels):
        count = scale.count(kernels)
        numbers.append((count, f"{'kernel' if count == '1' else 'kernels'} {scale.label}"))
    return numbers


def health_section(report: Document) -> HealthSection:
    """The findings, the worst first, and counts of what is missing."""
    health, scale = report.health, scale_of(report)
    found = findings_by_weight(report)
    counts = [
        (
            "kernels without a launch",
            count_text(health.kernels_without_launch),
            health.kernels_without_launch,
        ),
        (
            "launches without a kernel",
            count_text(health.launches_without_kernel),
            health.launches_without_kernel,
        ),
        (
            "kernels launched before the recording, left out",
            count_text(health.warm_up_tail),
            health.warm_up_tail,
        ),
        (
            f"profiler's own time, {scale.label}",
            duration_text(scale(health.profiler_overhead_ns)),
            health.profiler_overhead_ns,
        ),
        *((f"dropped: {clip(reason)}", count_text(n), n) for reason, n in health.events_dropped.items()),
    ]
    return HealthSection(
        note=health_note(report),
        ok=health.ok,
        findings=found[:_FINDINGS],
        left=len(found) - _FINDINGS,
        counts=[(name, text) for name, text, value in counts if value],
    )


def advice_entry(report: Document, row: AdviceRow) -> AdviceEntry:
    """A piece of advice with its gain as text."""
    return AdviceEntry(
        row=row,
        saving=duration_text(row.saving_ns) if row.saving_ns else None,
        change=change_text(report, row),
        speedup=f"{row.speedup.likely:.2f}×" if row.speedup else None,
        range=f"{row.speedup.low:.2f}× to {row.speedup.high:.2f}×" if row.speedup else None,
        code="\n".join(code_lines(row.code)),
        # Only to a place in the page, or to a web page: never a scheme that runs.
        href=row.link if row.link.startswith(("#", "https://")) else None,
    )


def method_section(report: Document) -> MethodSection:
    """What a person said, what the bounds rest on, the thresholds, and what was read."""
    method, ranks = report.method, report.method.ranks
    options = method.options
    given = [
        ("step", options.step),
        ("device", None if options.device is None else str(options.device)),
        ("phase", options.phase),
        ("peaks", options.peaks),
        ("step without a profiler", options.plain_step_ns and duration_text(options.plain_step_ns)),
    ]
    more = [
        ("steps found", ", ".join(map(str, method.steps_found))),
        ("events", count_text(method.events)),
        ("collectives found on several ranks", "" if ranks.matched is None else count_text(ranks.matched)),
        ("collectives without a partner", count_text(ranks.unmatched) if ranks.unmatched else ""),
        ("parallelism", ", ".join(f"{row.kind} ({row.basis})" for row in ranks.parallelism)),
    ]
    return MethodSection(
        inputs=input_lines(report.inputs),
        devices=_devices(report.devices),
        thresholds=method.thresholds,
        basis=[
            (BASES[name], share_text(share)) for name, share in report.verdict.basis_shares.items() if share
        ],
        terms={
            name: term for name, term in SHARES.items() if any(shares.get(name) for shares in _bars(report))
        },
        options=[(name, text) for name, text in given if text],
        more=[(name, text) for name, text in more if text],
    )


def _bars(report: Document) -> Iterator[Mapping[Any, int]]:
    """The shares of each bar of the page."""
    yield headline_of(report)[0]
    for rows in ([report.verdict], report.window.steps, report.phases, report.ranks):
        yield from (row.shares for row in rows)


def _devices(devices: Sequence[DeviceRow]) -> list[tuple[str, DeviceRow]]:
    alike: dict[tuple[object, ...], list[DeviceRow]] = {}
    for row in devices:
        key = (row.name, tuple(row.peaks.items()), row.bandwidth_gbs, row.peaks_source)
        alike.setdefault(key, []).append(row)
    return [
        (f"{count_text(len(rows))} devices" if len(rows) > 1 else f"Device {rows[0].id}", rows[0])
        for rows in alike.values()
    ]
