"""Whether the step became faster: the difference against the noise, as far as the setup allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.comparison.conditions import FORBIDS, HOST_COST
from profkit.comparison.noise import BUSY_SPREAD, IDLE_SPREAD, noise_of
from profkit.comparison.side import Side
from profkit.model.result import Row
from profkit.units import duration_text

__all__ = ["FASTER", "NOT_COMPARABLE", "NO_CHANGE", "SLOWER", "Judgement", "idle_ns", "judge"]

NO_CHANGE: Final = "no change"
FASTER: Final = "faster"
SLOWER: Final = "slower"
NOT_COMPARABLE: Final = "not comparable"
_OF_THE_HOST: Final = ("allocation", "compilation", "host", "input", "profiler")
"""Causes of idle time that shrink when kernels take longer, as far as the host ran ahead."""
_OPPOSITE: Final = {FASTER: SLOWER, SLOWER: FASTER}
_IN_STEP: Final = 0.5
"""With less of a change of the busy time in the step, idle time may have hidden it all."""
_HOST_BOUND: Final = 0.2
"""A device that waits for the host for more of the step may do so less or more, whatever its kernels take."""


@dataclass(frozen=True)
class Judgement:
    """A verdict with what it rests on; times in ns per step of one device."""

    verdict: str
    before_ns: int
    after_ns: int
    noise_ns: int
    """What the step may differ by chance: within it nothing is called a change."""
    evidence: str
    """``step``, or ``busy`` where the device's busy time decides: see `judge`."""
    reason: str | None
    """Why the sides are not comparable."""
    hidden_ns: int
    """What the busy time changed by beyond its own noise, where idle time may hide that; else 0."""


def judge(before: Side, after: Side, warnings: Sequence[Row]) -> Judgement:
    """Judge a step's difference.

    The step is what counts, and its noise is mostly that of the host. Where the idle time did not change beyond
    its own noise but the busy time did, the busy time is the whole change that can be told, so its smaller noise
    decides. Not so where idle time may hide what kernels take: in a step that waits for the host, or that shows less
    than half of the change. Where the two recorders slow the host by other amounts, busy time must agree with the
    step.
    """
    was, now = before.step_ns, after.step_ns
    change, noise = _changes(before, after)
    busy_decides = abs(change["busy"]) > noise["busy"] and abs(change["idle"]) <= noise["idle"]
    shown = busy_decides and (now - was) / change["busy"] >= _IN_STEP
    evidence = "busy" if shown and max(map(_host_share, (before, after))) < _HOST_BOUND else "step"
    limit = round(min(noise[evidence], noise["step"]))
    verdict = _direction(now - was, limit)
    reason = next((str(w["message"]) for w in warnings if w["effect"] == FORBIDS), None)
    if not was or not now:
        reason = reason or "A recording holds no times of steps"
    elif reason is None and any(w["effect"] == HOST_COST for w in warnings) and not before.on_host:
        reason = _disagreement(before, after, verdict, _direction(change["busy"], noise["busy"]))
    reason = reason or _profiled_only(before, after, verdict, limit)
    hidden = round(change["busy"]) if evidence == "step" and abs(change["busy"]) > noise["busy"] else 0
    return Judgement(NOT_COMPARABLE if reason else verdict, was, now, limit, evidence, reason, hidden)


def _disagreement(before: Side, after: Side, of_step: str, of_busy: str) -> str | None:
    if of_step == of_busy:
        return None
    first, second = (duration_text(_mean(_times(side, "busy"))) for side in (before, after))
    return (
        "The recorders slow the host by different amounts, and of the device's busy time alone "
        f"({first} before, {second} after) the verdict would be {of_busy!r}"
    )


def _changes(first: Side, second: Side) -> tuple[dict[str, float], dict[str, float]]:
    """The change of the step and of its busy and idle time, and the noise of each."""
    times = {what: [_times(side, what) for side in (first, second)] for what in ("step", "busy", "idle")}
    means = {what: [_mean(side) for side in sides] for what, sides in times.items()}
    spread = {
        "busy": BUSY_SPREAD * sum(means["busy"]) / 2,
        "idle": IDLE_SPREAD * sum(means["idle"]) / 2,
    }
    spread["step"] = math.hypot(spread["busy"], spread["idle"])
    change = {what: now - was for what, (was, now) in means.items()}
    return change, {what: noise_of(before, after, spread[what]) for what, (before, after) in times.items()}


def _host_share(side: Side) -> float:
    """The share of the step that the device waits for the host to come to the next launch."""
    waits = sum(idle_ns(side, cause) for cause in _OF_THE_HOST)
    return waits / side.step_ns if side.step_ns else 0.0


def idle_ns(side: Side, cause: str) -> int:
    """The idle time of a cause in a step; 0 where the reports do not tell."""
    rows = (part for result in side.results for part in result.window.get("parts") or ())
    return round(side.per_step(sum(part["ns"] for part in rows if part["cause"] == cause)))


def _profiled_only(before: Side, after: Side, verdict: str, noise: int) -> str | None:
    """Whether the step without the profiler's cost changed the other way; why then nothing is said."""
    was, now = (side.step_ns - idle_ns(side, "profiler") for side in (before, after))
    if verdict == NO_CHANGE or _direction(now - was, noise) in (NO_CHANGE, verdict):
        return None
    return (
        f"Without a profiler the step would be {_OPPOSITE[verdict]}: "
        f"{duration_text(was)} before, {duration_text(now)} after"
    )


def _times(side: Side, what: str) -> list[list[float]]:
    """The times of each report; one without steps is as one step, one without a time has none."""
    times = []
    for result, steps in zip(side.results, side.step_times(what), strict=True):
        devices = max(len(result.devices), 1)
        busy = sum(int(d["busy_ns"]) for d in result.devices) / devices
        whole = {"step": int(result.window["device_ns"]) / devices, "busy": busy}
        whole["idle"] = whole["step"] - busy
        times.append((steps or [whole[what]]) if side.has_time(result) else [])
    return times


def _mean(times: Sequence[Sequence[float]]) -> float:
    flat = [time for run in times for time in run]
    return sum(flat) / len(flat) if flat else 0.0


def _direction(change: float, noise: float) -> str:
    return NO_CHANGE if abs(change) <= noise else SLOWER if change > 0 else FASTER
