"""Whether the step became faster: the difference against the noise, as far as the setup allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.analysis.comparison.noise import BUSY_SPREAD, IDLE_SPREAD, noise_of
from profkit.analysis.comparison.setup import FORBIDS, HOST_COST
from profkit.analysis.comparison.side import Side
from profkit.analysis.result import Row
from profkit.units import duration_text

__all__ = ["FASTER", "NOT_COMPARABLE", "NO_CHANGE", "SLOWER", "Judgement", "judge"]

NO_CHANGE: Final = "no change"
FASTER: Final = "faster"
SLOWER: Final = "slower"
NOT_COMPARABLE: Final = "not comparable"


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


def judge(before: Side, after: Side, warnings: Sequence[Row]) -> Judgement:
    """Judge a step's difference.

    The step is what counts, and its noise is mostly that of the host. Where the idle time did not change beyond
    its own noise but the busy time did, the busy time is the whole change that can be told, so its smaller noise
    decides. Where the two recorders slow the host by other amounts, busy time must agree with the step.
    """
    was, now = before.step_ns, after.step_ns
    change, noise = _changes(before, after)
    busy_decides = abs(change["busy"]) > noise["busy"] and abs(change["idle"]) <= noise["idle"]
    evidence = "busy" if busy_decides and change["busy"] * (now - was) > 0 else "step"
    limit = round(min(noise[evidence], noise["step"]))
    verdict = _direction(now - was, limit)
    reason = next((str(w["message"]) for w in warnings if w["effect"] == FORBIDS), None)
    if not was or not now:
        reason = reason or "A recording holds no times of steps"
    elif reason is None and any(w["effect"] == HOST_COST for w in warnings) and not before.on_host:
        reason = _disagreement(before, after, verdict, _direction(change["busy"], noise["busy"]))
    return Judgement(NOT_COMPARABLE if reason else verdict, was, now, limit, evidence, reason)


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


def _times(side: Side, what: str) -> list[list[float]]:
    """The times of each report; one without steps is as one step."""
    times = []
    for result, steps in zip(side.results, side.step_times(what), strict=True):
        devices = max(len(result.devices), 1)
        busy = sum(int(d["busy_ns"]) for d in result.devices) / devices
        whole = {"step": int(result.window["device_ns"]) / devices, "busy": busy}
        whole["idle"] = whole["step"] - busy
        times.append(steps or [whole[what]])
    return times


def _mean(times: Sequence[Sequence[float]]) -> float:
    flat = [time for run in times for time in run]
    return sum(flat) / len(flat) if flat else 0.0


def _direction(change: float, noise: float) -> str:
    return NO_CHANGE if abs(change) <= noise else SLOWER if change > 0 else FASTER
