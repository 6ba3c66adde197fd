"""Whether the step became faster: the difference against the noise, as far as the setup allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.comparison.noise import Noise, measured_noise, median_of, spread_of
from profkit.comparison.rows import Judgement, SetupWarning, VerdictName
from profkit.comparison.side import Side, TimeKind
from profkit.model.findings import Fact

__all__ = ["DRIFT", "IDLE_SPREAD", "idle_ns", "judge", "noises", "verdict_of"]

_OF_THE_HOST: Final = ("allocation", "compilation", "host", "input", "profiler")
"""Causes of idle time that shrink when kernels take longer, as far as the host ran ahead."""
_OPPOSITE: Final[dict[VerdictName, VerdictName]] = {"faster": "slower", "slower": "faster"}
_IN_STEP: Final = 0.5
"""With less of a change of the busy time in the step, idle time may have hidden it all."""
_HOST_BOUND: Final = 0.2
"""A device that waits for the host for more of the step may do so less or more, whatever its kernels take."""

_BUSY_SPREAD: Final = 0.005
"""What the busy time of the steps of a recording is expected to spread (standard deviation over mean): clocks and
temperature. Steps of 41 programs on an H200 that never wait for the host spread by 0.2 %."""

DRIFT: Final = 0.003
"""What recordings of one step are expected to differ by at least."""

IDLE_SPREAD: Final = 0.12
"""The same of idle time, which is the host's and drifts: of 420 pairs of equal loops of programs that wait for the
host, 96 % are within the noise that follows; with 8 %, 89 % are."""

_RESTLESS: Final = 0.05
"""A host whose idle time spreads by less than this within a recording drifts less from one to the next. The hosts that
were measured spread by 6 to 16 %, and drift by `IDLE_SPREAD`."""


@dataclass(frozen=True)
class _Times:
    """The times of both sides, and what is expected of their spread."""

    kind: TimeKind
    before: list[list[float]]
    after: list[list[float]]

    @property
    def level(self) -> float:
        return (median_of(self.before) + median_of(self.after)) / 2

    @property
    def change(self) -> float:
        return median_of(self.after) - median_of(self.before)


def judge(before: Side, after: Side, warnings: Sequence[SetupWarning], work_ratio: float) -> Judgement:
    """Judge a step's difference.

    The step is what counts, and its noise is mostly that of the host. Where the idle time did not change beyond
    its own noise but the busy time did, the busy time is the whole change that can be told, so its smaller noise
    decides. Not so where idle time may hide what kernels take: in a step that waits for the host, or that shows less
    than half of the change. Where the two recorders slow the host by other amounts, busy time must agree with the
    step.
    """
    was, now = before.step_ns, after.step_ns
    change = {kind: _times(before, after, kind).change for kind in ("step", "busy", "idle")}
    noise = {kind: each.half_width for kind, each in noises(before, after).items()}
    beyond = abs(change["busy"]) > noise["busy"]
    shown = beyond and abs(change["idle"]) <= noise["idle"] and (now - was) / change["busy"] >= _IN_STEP
    on_busy = shown and max(map(_host_share, (before, after))) < _HOST_BOUND
    limit = round(min(noise["busy"], noise["step"]) if on_busy else noise["step"])
    verdict = _direction(now - was, limit)
    reason = next((Fact(w.code, w.params) for w in warnings if w.effect == "forbids"), None)
    if not was or not now:
        reason = reason or Fact("no-step-times")
    elif reason is None and any(w.effect == "host cost" for w in warnings) and not before.on_host:
        reason = _disagreement(before, after, verdict, _direction(change["busy"], noise["busy"]))
    unprofiled = [max(side.step_ns - idle_ns(side, "profiler"), 0) for side in (before, after)]
    reason = reason or _profiled_only(unprofiled, verdict, limit)
    return Judgement(
        before_ns=was,
        after_ns=now,
        noise_ns=limit,
        delta_ns=now - was,
        change=(now - was) / was if was else None,
        evidence="busy" if on_busy else "step",
        incomparable=reason,
        work_ratio=work_ratio,
        busy_noise_ns=round(noise["busy"]),
        hidden_ns=round(change["busy"]) if beyond and not on_busy else 0,
        unprofiled_before_ns=unprofiled[0],
        unprofiled_after_ns=unprofiled[1],
    )


def verdict_of(judged: Judgement) -> VerdictName:
    """What a judgement says."""
    return "not comparable" if judged.incomparable else _direction(judged.delta_ns, judged.noise_ns)


def noises(before: Side, after: Side) -> dict[TimeKind, Noise]:
    """The noise of the step, and of its busy and its idle time."""
    times: dict[TimeKind, _Times] = {kind: _times(before, after, kind) for kind in ("step", "busy", "idle")}
    level = {kind: max(each.level, 0.0) for kind, each in times.items()}
    spread = {"busy": _BUSY_SPREAD * level["busy"], "idle": IDLE_SPREAD * level["idle"]}
    drift = {"busy": DRIFT * level["busy"], "idle": _idle_drift(times["idle"], spread["idle"])}
    spread["step"] = math.hypot(spread["busy"], spread["idle"])
    drift["step"] = max(math.hypot(drift["busy"], drift["idle"]), DRIFT * level["step"])
    return {
        kind: measured_noise(each.before, each.after, expected=spread[kind], drift=drift[kind])
        for kind, each in times.items()
    }


def idle_ns(side: Side, cause: str) -> int:
    """The idle time of a cause in a step; 0 where the reports do not tell."""
    parts = (part for report in side.reports for part in report.window.parts)
    return round(side.per_step(sum(part.ns for part in parts if part.cause == cause)))


def _times(before: Side, after: Side, kind: TimeKind) -> _Times:
    return _Times(kind, before.times(kind), after.times(kind))


def _idle_drift(idle: _Times, expected: float) -> float:
    """What the idle time of recordings differs by: as expected, but of a quiet host less, by the cube of its spread."""
    if not idle.level or not expected:
        return 0.0
    quiet = spread_of(idle.before, idle.after, expected) / (_RESTLESS * idle.level)
    return max(expected * min(quiet**3, 1.0), DRIFT * idle.level)


def _disagreement(before: Side, after: Side, of_step: VerdictName, of_busy: VerdictName) -> Fact | None:
    if of_step == of_busy:
        return None
    first, second = (round(median_of(side.times("busy"))) for side in (before, after))
    return Fact("busy-disagrees", {"before_ns": first, "after_ns": second, "verdict": of_busy})


def _host_share(side: Side) -> float:
    """The share of the step that the device waits for the host to come to the next launch."""
    waits = sum(idle_ns(side, cause) for cause in _OF_THE_HOST)
    return waits / side.step_ns if side.step_ns else 0.0


def _profiled_only(unprofiled: Sequence[int], verdict: VerdictName, noise: int) -> Fact | None:
    """Whether the step without the profiler's cost changed the other way; why then nothing is said."""
    was, now = unprofiled
    if verdict not in _OPPOSITE or _direction(now - was, noise) in ("no change", verdict):
        return None
    return Fact("only-profiled", {"verdict": _OPPOSITE[verdict], "before_ns": was, "after_ns": now})


def _direction(change: float, noise: float) -> VerdictName:
    return "no change" if abs(change) <= noise else "slower" if change > 0 else "faster"
