"""Which limits a report keeps. A gate opens only on knowledge: what cannot be told is neither kept nor broken."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from profkit.comparison.limits import DEFAULT_LIMIT, Limit, Limits
from profkit.comparison.noise import NO_NOISE, Noise
from profkit.comparison.rows import Comparison, LimitResult, NoiseCure, Outcome
from profkit.comparison.side import Side
from profkit.comparison.verdict import noises
from profkit.model.findings import Param
from profkit.model.report import Report

__all__ = ["judge_limits"]

_SURE = 2
"""The noise holds 98 % of equal pairs, and a gate is asked hundreds of times: twice the noise holds all but 1 in 10,000."""


@dataclass(frozen=True)
class _Judged:
    """What limits are judged by."""

    report: Report
    baseline: Report | None
    comparison: Comparison | None
    """Of the two, where there is a baseline."""

    @property
    def side(self) -> Side:
        return Side([self.report])

    @property
    def incomparable(self) -> bool:
        return self.comparison is not None and self.comparison.step.incomparable is not None

    @property
    def is_the_baseline(self) -> bool:
        """Whether both are of the same recording, which does not differ from itself by chance."""
        before, after = self.baseline, self.report
        return before is not None and (before.inputs, before.window) == (after.inputs, after.window)

    def noises(self) -> tuple[Noise, Noise]:
        """Of the step, and of its busy time."""
        if self.baseline is None or self.is_the_baseline:
            return NO_NOISE, NO_NOISE
        found = noises(Side([self.baseline]), self.side)
        return found["step"], found["busy"]


def judge_limits(
    limits: Limits, report: Report, baseline: Report | None, comparison: Comparison | None
) -> list[LimitResult]:
    """What is found about each limit.

    Where the noise is no larger than what a limit allows, the difference decides. Where it is larger, only a difference
    that is far from the limit, by twice the noise; every other is unknown.

    Args:
        limits: The limits.
        report: The report to judge.
        baseline: The report to compare it with.
        comparison: The report against the baseline, where there is one.
    """
    judged = _Judged(report, baseline, comparison)
    return [
        *_step(limits, judged),
        *_phases(limits, judged),
        *_memory(limits.max_memory, judged),
        *_launches(limits.max_launches, judged),
        *_shares(limits, report),
    ]


def _step(limits: Limits, judged: _Judged) -> Iterator[LimitResult]:
    limit = limits.max_step or (DEFAULT_LIMIT if limits == Limits() else None)
    if limit is None:
        return
    now = judged.side.step_ns
    if not now:
        yield _result("max-step", limit, "unknown", "no-step-times")
    elif not limit.relative:
        yield _result("max-step", limit, _kept(now <= limit.amount), "step", now_ns=now)
    elif judged.comparison is None:
        yield _result("max-step", limit, "unknown", "no-baseline")
    elif judged.incomparable:
        yield _result("max-step", limit, "unknown", "not-comparable")
    else:
        step = judged.comparison.step
        allowed = limit.allowed(step.before_ns)
        noise, _ = judged.noises()
        # The busy time's noise may decide where it is small enough; what is beyond it is judged by the step's own.
        noise_ns = (
            step.noise_ns if 0 < step.noise_ns <= min(allowed, noise.half_width) else round(noise.half_width)
        )
        outcome = _outcome(step.delta_ns, noise_ns, allowed)
        cure = noise.cure(allowed) if outcome == "unknown" else None
        yield _result(
            "max-step", limit, outcome, "step-over-baseline", cure=cure,
            before_ns=step.before_ns, after_ns=step.after_ns, delta_ns=step.delta_ns, noise_ns=noise_ns,
        )  # fmt: skip


def _phases(limits: Limits, judged: _Judged) -> Iterator[LimitResult]:
    times = {row.path: judged.side.busy_per_step(row.gpu_inclusive_ns) for row in judged.report.phases}
    for path, limit in limits.max_phase.items():
        if path not in times:
            yield _result("max-phase", limit, "broken", "no-such-phase", of=path)
        elif not judged.report.devices:
            yield _result("max-phase", limit, "unknown", "no-device-times", of=path)
        elif not limit.relative:
            now = round(times[path])
            yield _result("max-phase", limit, _kept(now <= limit.amount), "phase", of=path, now_ns=now)
        elif judged.comparison is None:
            yield _result("max-phase", limit, "unknown", "no-baseline", of=path)
        elif judged.incomparable:
            yield _result("max-phase", limit, "unknown", "not-comparable", of=path)
        else:
            yield _phase_over_baseline(path, limit, judged, judged.comparison)


def _phase_over_baseline(path: str, limit: Limit, judged: _Judged, comparison: Comparison) -> LimitResult:
    change = next(row.gpu_inclusive_ns for row in comparison.phase_details if row.path == path)
    was, now = change.before or 0, change.after or 0
    if not was:
        return _result("max-phase", limit, "unknown", "no-such-phase-before", of=path)
    noise = judged.noises()[1]
    # Parts of a step spread independently, so that variances add up: a part is noisier than its share.
    busy = max(sum(row.before_ns for row in comparison.parts if row.kind != "idle"), was)
    scale = math.sqrt(was / busy)
    allowed = limit.allowed(was)
    outcome = _outcome(now - was, noise.half_width * scale, allowed)
    cure = noise.cure(allowed / scale) if outcome == "unknown" else None
    return _result(
        "max-phase", limit, outcome, "phase-over-baseline", of=path, cure=cure,
        before_ns=round(was), after_ns=round(now), delta_ns=round(now - was), noise_ns=round(noise.half_width * scale),
    )  # fmt: skip


def _memory(limit: Limit | None, judged: _Judged) -> Iterator[LimitResult]:
    if limit is None:
        return
    now = _peak(judged.report)
    if now is None:
        yield _result("max-memory", limit, "unknown", "no-memory")
    elif not limit.relative:
        yield _result("max-memory", limit, _kept(now <= limit.amount), "memory", now_bytes=now)
    elif (was := _peak(judged.baseline)) is None:
        yield _result("max-memory", limit, "unknown", "no-memory-before")
    else:
        outcome = _kept(now - was <= limit.allowed(was))
        yield _result("max-memory", limit, outcome, "memory-over-baseline", before_bytes=was, after_bytes=now)


def _peak(report: Report | None) -> int | None:
    return None if report is None or report.memory is None else report.memory.peak_allocated_bytes


def _launches(limit: Limit | None, judged: _Judged) -> Iterator[LimitResult]:
    if limit is None:
        return
    now = judged.side.per_step(sum(row.count for row in judged.report.kernels))
    if not now:
        yield _result("max-launches", limit, "unknown", "no-kernels")
    elif not limit.relative:
        yield _result("max-launches", limit, _kept(now <= limit.amount), "launches", now=round(now))
    elif judged.comparison is None or judged.baseline is None:
        yield _result("max-launches", limit, "unknown", "no-baseline")
    else:
        before = Side([judged.baseline])
        was = before.per_step(sum(row.count for row in before.kernels))
        if not was:
            yield _result("max-launches", limit, "unknown", "no-kernels-before")
            return
        outcome = _kept(now - was <= limit.allowed(was))
        yield _result(
            "max-launches", limit, outcome, "launches-over-baseline", before=round(was), after=round(now)
        )


def _shares(limits: Limits, report: Report) -> Iterator[LimitResult]:
    whole = sum(device.window_ns for device in report.devices)
    busy = sum(device.busy_ns for device in report.devices) / whole if whole else None
    for name, limit in (("min-busy", limits.min_busy), ("max-idle", limits.max_idle)):
        if limit is None:
            continue
        least = limit.amount if name == "min-busy" else 1 - limit.amount
        if busy is None:
            yield _result(name, limit, "unknown", "no-device-times")
        else:
            yield _result(name, limit, _kept(busy >= least), "busy", busy_share=busy)


def _outcome(delta: float, noise: float, allowed: float) -> Outcome:
    if noise <= allowed:
        return _kept(delta <= allowed)
    if delta + _SURE * noise <= allowed:
        return "kept"
    return "broken" if delta - _SURE * noise > allowed else "unknown"


def _kept(kept: bool) -> Outcome:
    return "kept" if kept else "broken"


def _result(
    name: str,
    limit: Limit,
    outcome: Outcome,
    code: str,
    *,
    of: str | None = None,
    cure: NoiseCure | None = None,
    **params: Param,
) -> LimitResult:
    return LimitResult(
        limit=name, of=of, allowed=limit.text, outcome=outcome, code=code, params=params, cure=cure
    )
