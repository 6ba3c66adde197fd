"""Limits that a step must keep: what they allow, and what breaks them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from profkit.comparison.compare_reports import Comparison, signed_text
from profkit.comparison.side import Side
from profkit.comparison.verdict import NOT_COMPARABLE
from profkit.errors import AnalysisError, ProfkitError
from profkit.model.result import Result
from profkit.units import bytes_text, count_text, duration_text, parse_duration_ns, percent_text

__all__ = ["Limit", "Limits", "broken_limits"]

_PERCENT: Final = re.compile(r"(\d+(?:\.\d+)?)\s*%", re.ASCII)
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]i?)?B", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_POWERS: Final = "KMGT"


@dataclass(frozen=True)
class Limit:
    """The most (or least) that a number may be: ``+3%`` and ``+2ms`` over the baseline, ``42ms`` by itself."""

    text: str
    amount: float
    """In ns, bytes, a count, or a share of one."""
    relative: bool
    """Whether it is counted from the baseline."""
    percent: bool
    """Whether it is a share: of the baseline's number, or of the step."""

    @classmethod
    def parse(cls, name: str, text: str) -> Limit:
        """Read a limit.

        Args:
            name: What it limits, as the option is called.
            text: The limit as people write it.

        Raises:
            AnalysisError: It is no such limit.
        """
        body = text.strip()
        relative = body.startswith("+")
        body = body.removeprefix("+").strip()
        percent = _PERCENT.fullmatch(body)
        amount = float(percent[1]) / 100 if percent else _amount(name, body)
        share = name in _SHARES
        wrong = (relative or not percent) if share else (percent and not relative)
        if amount is None or wrong:
            raise AnalysisError(name, f"{text!r} is no limit for it", f"Write it like {_EXAMPLES[name]}")
        return cls(body if not relative else f"+{body}", amount, relative, percent is not None)


_SHARES: Final = ("min-busy", "max-idle")
_EXAMPLES: Final = {
    "max-step": "+3%, +2ms or 42ms",
    "max-phase": "forward=+5% or forward=12ms",
    "max-memory": "+2% or 40GiB",
    "max-launches": "+5% or 800",
    "min-busy": "80%",
    "max-idle": "20%",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The limits of a gate; without any, the step may not become slower than the noise allows."""

    max_step: Limit | None = None
    max_memory: Limit | None = None
    max_launches: Limit | None = None
    min_busy: Limit | None = None
    max_idle: Limit | None = None
    max_phase: Mapping[str, Limit] = field(default_factory=dict)
    """By the phase's path."""

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Limits:
        """Limits from texts under the names of the options, ``max-phase`` a mapping by phase.

        Raises:
            AnalysisError: A name or a text is wrong.
        """
        read: dict[str, Any] = {}
        for name, text in given.items():
            if name not in _EXAMPLES:
                raise AnalysisError(name, "there is no such limit", f"There are {', '.join(_EXAMPLES)}")
            if name == "max-phase":
                if not isinstance(text, Mapping):
                    raise AnalysisError(name, "names no phase", f"Write it like {_EXAMPLES[name]}")
                read["max_phase"] = {str(path): Limit.parse(name, str(each)) for path, each in text.items()}
            else:
                read[name.replace("-", "_")] = Limit.parse(name, str(text))
        return cls(**read)

    @property
    def need_a_baseline(self) -> bool:
        """Whether some limit says nothing by itself."""
        single = (self.max_step, self.max_memory, self.max_launches, self.min_busy, self.max_idle)
        given = [limit for limit in (*single, *self.max_phase.values()) if limit is not None]
        return not given or any(limit.relative for limit in given)


def broken_limits(limits: Limits, result: Result, comparison: Comparison | None) -> list[str]:
    """What breaks the limits, one sentence each; empty when all are kept.

    A time over the baseline breaks a limit when it is beyond both the limit and the noise. A number that cannot be
    judged breaks it too: a gate that does not know must not open.

    Args:
        limits: The limits.
        result: The report to judge.
        comparison: The report against its baseline, where there is one.
    """
    return [
        *_step(limits, result, comparison),
        *_phases(limits, result, comparison),
        *_memory(limits, result, comparison),
        *_launches(limits, result, comparison),
        *_shares(limits, result),
    ]


def _step(limits: Limits, result: Result, comparison: Comparison | None) -> Iterator[str]:
    limit = limits.max_step
    if limit is None and limits == Limits():
        limit = Limit("+0%", 0.0, True, True)
    if limit is None:
        return
    now = Side([result]).step_ns
    if not now:
        yield "max-step: the report holds no times of steps"
    elif not limit.relative:
        if now > limit.amount:
            yield f"max-step: the step takes {duration_text(now)}, the limit is {limit.text}"
    elif (why := _unjudged(comparison)) is not None:
        yield f"max-step: the step cannot be judged. {why}"
    elif comparison is not None:
        step = comparison.step
        allowed = _allowed(limit, step["before_ns"])
        if step["delta_ns"] > max(allowed, step["noise_ns"]):
            yield (
                f"max-step: {duration_text(step['before_ns'])} → {duration_text(step['after_ns'])} per step "
                f"({signed_text(step['delta_ns'])}), the limit is {limit.text}, the noise ±{duration_text(step['noise_ns'])}"
            )


def _phases(limits: Limits, result: Result, comparison: Comparison | None) -> Iterator[str]:
    side = Side([result])
    times = {row["path"]: side.per_step(row["gpu_inclusive_ns"] or 0) for row in result.phases}
    details = {row["path"]: row["gpu_inclusive_ns"] for row in comparison.phase_details} if comparison else {}
    for path, limit in limits.max_phase.items():
        if path not in times:
            yield f"max-phase: the report has no phase {path!r}"
        elif not result.devices:
            yield f"max-phase: {path} cannot be judged. The report holds no device times"
        elif not limit.relative:
            if times[path] > limit.amount:
                yield f"max-phase: {path} takes {duration_text(times[path])} of GPU time, the limit is {limit.text}"
        elif (why := _unjudged(comparison)) is not None:
            yield f"max-phase: {path} cannot be judged. {why}"
        elif comparison is not None:
            was, now = details[path]["before"], details[path]["after"]
            noise = comparison.step["noise_ns"] * (was or 0) / max(comparison.step["before_ns"], 1)
            if not was:
                yield f"max-phase: the baseline has no phase {path!r}"
            elif now - was > max(_allowed(limit, was), noise):
                yield f"max-phase: {path} went from {duration_text(was)} to {duration_text(now)} of GPU time, the limit is {limit.text}"


def _memory(limits: Limits, result: Result, comparison: Comparison | None) -> Iterator[str]:
    limit = limits.max_memory
    if limit is None:
        return
    now = (result.memory or {}).get("peak_allocated_bytes")
    if now is None:
        yield "max-memory: the report holds no memory. Record a snapshot too: memory=True"
    elif not limit.relative:
        if now > limit.amount:
            yield f"max-memory: the peak is {bytes_text(now)}, the limit is {limit.text}"
    else:
        memory = comparison.memory if comparison else None
        was = memory["peak_allocated_bytes"]["before"] if memory else None
        if was is None:
            yield "max-memory: the baseline holds no memory"
        elif int(now) - int(was) > _allowed(limit, was):
            yield f"max-memory: the peak went from {bytes_text(was)} to {bytes_text(now)}, the limit is {limit.text}"


def _launches(limits: Limits, result: Result, comparison: Comparison | None) -> Iterator[str]:
    limit = limits.max_launches
    if limit is None:
        return
    now = Side([result]).per_step(sum(row["count"] for row in result.kernels))
    if not now:
        yield "max-launches: the report has no kernels"
    elif not limit.relative:
        if now > limit.amount:
            yield f"max-launches: {count_text(round(now))} kernels per step, the limit is {limit.text}"
    elif comparison is None:
        yield "max-launches: there is no baseline"
    else:
        was = comparison.kernel_count["before"]
        if not was:
            yield "max-launches: the baseline has no kernels"
        elif now - was > _allowed(limit, was):
            yield f"max-launches: {count_text(round(was))} → {count_text(round(now))} kernels per step, the limit is {limit.text}"


def _shares(limits: Limits, result: Result) -> Iterator[str]:
    whole = sum(int(d["window_ns"]) for d in result.devices)
    busy = sum(int(d["busy_ns"]) for d in result.devices) / whole if whole else None
    for name, limit in (("min-busy", limits.min_busy), ("max-idle", limits.max_idle)):
        if limit is None:
            continue
        least = limit.amount if name == "min-busy" else 1 - limit.amount
        if busy is None:
            yield f"{name}: the report holds no device times"
        elif busy < least:
            yield f"{name}: the device is busy for {percent_text(busy)} of the step, the limit is {limit.text}"


def _allowed(limit: Limit, before: float) -> float:
    return limit.amount * before if limit.percent else limit.amount


def _unjudged(comparison: Comparison | None) -> str | None:
    if comparison is None:
        return "There is no baseline"
    return comparison.step["reason"] if comparison.verdict == NOT_COMPARABLE else None


def _amount(name: str, text: str) -> float | None:
    if name in ("max-step", "max-phase"):
        try:
            return float(parse_duration_ns(text))
        except ProfkitError:
            return None
    if name == "max-memory":
        match = _SIZE.fullmatch(text)
        return float(match[1]) * _unit(match[2]) if match else None
    return float(text) if _NUMBER.fullmatch(text) else None


def _unit(prefix: str | None) -> float:
    if not prefix:
        return 1.0
    return float((1024 if prefix.endswith("i") else 1000) ** (_POWERS.index(prefix[0]) + 1))
