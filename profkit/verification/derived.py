"""Prices, the step without a profiler and efficiencies: worked out again from what they rest on.

No replay is done a second time. What must hold whatever the replay does is: a step without a profiler is no shorter
than 0.85 of the device's work in the files (the recorder may lengthen it), and an estimate no longer than the recorded
step; twice as fast, one resource saves at most half of a step; a saving is the difference of two lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.model.report import Report
from profkit.model.rows import Interval
from profkit.verification.timeline import Timeline

__all__ = ["derived_figures"]

Claim = tuple[str, int | None, int | None]
"""A name, what the report says, what follows from the rest."""

_OF_ITS_WORK: Final = 0.85
_SETS_THE_PACE: Final = 0.1
_MOST_SAVED: Final = 0.51
"""Half of the step, and what overlap with the step after it adds."""
_ROUNDING: Final = 0.01
"""Of an efficiency or a speed-up: bytes and lengths are told in whole numbers."""


def derived_figures(report: Report, timelines: Sequence[Timeline]) -> list[Claim]:
    """The estimated step between the files' busy and recorded times, the pace, prices, and memory-bound efficiencies.

    Args:
        report: The report.
        timelines: All of its recordings that are timelines.
    """
    return [*_step(report, timelines), *_pace(report), *_advice(report), *_kernels(report)]


def _step(report: Report, timelines: Sequence[Timeline]) -> list[Claim]:
    step = report.step
    if step is None or step.unprofiled_ns is None:
        return []
    found = _ordered("step.unprofiled_ns", step.unprofiled_ns)
    likely = round(step.unprofiled_ns.likely)
    if step.source == "estimated" and step.recorded_ns is not None:
        found.append(("step.unprofiled_ns of the recorded", likely, min(likely, step.recorded_ns)))
    busy = [
        max(timeline.busy_ns(device, *tile) for device, tile in timeline.tiles(number).items())
        for timeline in timelines
        if timeline.devices
        for number in range(timeline.number_of_steps)
        if timeline.is_kept(number)
    ]
    if busy:
        found.append(("step.unprofiled_ns of its work", likely, max(likely, round(_OF_ITS_WORK * min(busy)))))
    return found


def _pace(report: Report) -> list[Claim]:
    step = report.step.unprofiled_ns if report.step is not None else None
    told = [
        (row.resource, row.saving_if_twice_as_fast_ns)
        for row in report.limits
        if row.saving_if_twice_as_fast_ns
    ]
    if step is None or not told:
        return []
    found: list[Claim] = []
    most = [max(saved.likely for _, saved in told[at:]) for at in range(len(told))]
    for (resource, saved), largest in zip(told, most, strict=True):
        name, likely = f"limits[{resource}]", round(saved.likely)
        found += _ordered(name, saved)
        found += [
            (name, likely, round(largest)),
            (f"{name} of half a step", likely, min(likely, round(_MOST_SAVED * step.likely))),
        ]
    if report.pace not in ("balanced", "unknown"):
        saving: dict[str, int] = {resource: round(saved.likely) for resource, saved in told}
        found.append(("pace", saving[report.pace], max(saving.values())))
        least = round(_SETS_THE_PACE * step.likely)
        found.append(("pace of a tenth", saving[report.pace], max(saving[report.pace], least)))
    return found


def _advice(report: Report) -> list[Claim]:
    found: list[Claim] = []
    for row in report.advice:
        if row.saving_ns is None or row.speedup is None or row.before_ns is None or not row.after_ns:
            continue
        name = f"advice[{row.id}]"
        found.append(
            (f"{name}.saving_ns", row.saving_ns, _near(row.saving_ns, row.before_ns - row.after_ns, 2))
        )
        found += [(f"{name}.speedup", *_alike(row.speedup.likely, row.before_ns / row.after_ns))]
        found += _ordered(f"{name}.speedup", row.speedup, 1000)
    return found


def _kernels(report: Report) -> list[Claim]:
    """Of kernels that the memory bounds: bytes over time, over the bandwidth; all devices are of one kind."""
    rates = {device.bandwidth_gbs for device in report.devices}
    rate = rates.pop() if len(rates) == 1 else None
    if not rate:
        return []
    return [
        (
            f"kernels[{row.short_name}].efficiency",
            *_alike(row.efficiency, row.dram_bytes / rate / row.total_ns),
        )
        for row in report.kernels
        if row.bound == "memory" and row.efficiency is not None and row.dram_bytes and row.total_ns
    ]


def _ordered(name: str, interval: Interval, scale: int = 1) -> list[Claim]:
    low, likely, high = (round(scale * value) for value in (interval.low, interval.likely, interval.high))
    return [(f"{name}.low", low, min(low, likely)), (f"{name}.high", high, max(likely, high))]


def _near(told: int, found: int, apart: int) -> int:
    return told if abs(told - found) <= apart else found


def _alike(told: float, found: float) -> tuple[int, int]:
    """Both in thousandths; what differs by rounding alone is the same."""
    same = abs(told - found) <= _ROUNDING * max(1.0, abs(found))
    return round(1000 * told), round(1000 * (told if same else found))
