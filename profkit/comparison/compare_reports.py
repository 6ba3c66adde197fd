"""Results before and after a change, compared: what `profkit.compare/1` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from profkit.comparison.conditions import HOST_COST, setup_warnings
from profkit.comparison.kernel_changes import kernel_pairs
from profkit.comparison.partition import part_rows, phase_parts
from profkit.comparison.side import Side
from profkit.comparison.table_changes import (
    communication_pairs,
    memory_pairs,
    phase_pairs,
    sync_pairs,
)
from profkit.comparison.verdict import NO_CHANGE, NOT_COMPARABLE, Judgement, idle_ns, judge
from profkit.comparison.work_done import Work, compare_work
from profkit.model.result import SHARES, Result, Row
from profkit.units import bytes_text, duration_text

__all__ = ["COMPARE_SCHEMA", "Comparison", "compare_results", "part_label", "signed_text"]

COMPARE_SCHEMA: Final = "profkit.compare/1"
_TOLD: Final = 3
"""Parts that the sentence names, at most."""
_BLIND: Final = 0.05
"""With more noise than this share of the step, no change means little; so much of the profiler is worth telling."""
_WORTH_TELLING: Final = 0.03
"""A part below this share of the difference explains nothing."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Everything that a comparison says, as plain values under the names of `profkit.compare/1`.

    Times are int nanoseconds per step of one device, sizes bytes, unknown is None.
    """

    verdict: str
    """``no change``, ``faster``, ``slower`` or ``not comparable``."""
    sentence: str
    """The verdict with its numbers and what explains it."""
    step: Row
    """``{before_ns, after_ns, noise_ns, delta_ns, change, evidence, reason, work_ratio}``."""
    warnings: list[Row]
    """What differs in the setup: ``{code, effect, message}``, what forbids a conclusion first."""
    parts: list[Row]
    """The step's difference by what the device does; the deltas add up to the step's."""
    phases: list[Row]
    """Device time by phase, busy or idle; the deltas add up to the step's."""
    shares: Row
    """The nine shares of the window: ``{name: {before_ns, after_ns}}``."""
    kernels: list[Row]
    kernel_count: Row
    """Launches of kernels per step: ``{before, after}``."""
    phase_details: list[Row]
    memory: Row | None
    syncs: list[Row]
    communication: list[Row]
    before: Row
    """What was compared: ``{inputs, devices, steps}``."""
    after: Row

    def as_dict(self) -> dict[str, Any]:
        """The comparison as `profkit.compare/1`: JSON types only."""
        return {"schema": COMPARE_SCHEMA, **vars(self)}


def compare_results(before: Sequence[Result], after: Sequence[Result]) -> Comparison:
    """Compare the step before and after a change.

    Args:
        before: One or several reports of the step before; several tell how much recordings differ by chance.
        after: Those of the step after.
    """
    first, second = Side(before), Side(after)
    work = compare_work(first, second)
    warnings = setup_warnings(first, second, work)
    judged = judge(first, second, warnings)
    parts = part_rows(first, second)
    memory = memory_pairs(first, second)
    kernels = kernel_pairs(first, second)
    counts = [side.per_step(sum(row["count"] for row in side.rows("kernels"))) for side in (first, second)]
    return Comparison(
        verdict=judged.verdict,
        sentence=_sentence(judged, _comparable(parts, warnings), memory)
        + _remark(judged, kernels)
        + _unprofiled(first, second),
        step=_step(judged, work),
        warnings=warnings,
        parts=parts,
        phases=phase_parts(first, second),
        shares=_shares(first, second),
        kernels=kernels,
        kernel_count={"before": round(counts[0], 2), "after": round(counts[1], 2)},
        phase_details=phase_pairs(first, second),
        memory=memory,
        syncs=sync_pairs(first, second),
        communication=communication_pairs(first, second),
        before=_compared(first),
        after=_compared(second),
    )


def _step(judged: Judgement, work: Work) -> Row:
    delta = judged.after_ns - judged.before_ns
    return {
        "before_ns": judged.before_ns,
        "after_ns": judged.after_ns,
        "noise_ns": judged.noise_ns,
        "delta_ns": delta,
        "change": delta / judged.before_ns if judged.before_ns else None,
        "evidence": judged.evidence,
        "reason": judged.reason,
        "work_ratio": work.ratio,
    }


def _sentence(judged: Judgement, parts: Sequence[Row], memory: Row | None) -> str:
    peak = (memory or {}).get("peak_allocated_bytes", {})
    if not (judged.before_ns or judged.after_ns) and peak.get("before") and peak.get("after"):
        sizes = f"{bytes_text(peak['before'])} → {bytes_text(peak['after'])}"
        share = f"{peak['change'] / peak['before']:+.1%}".replace("%", " %").replace("-", "−")
        return f"No times to compare, only memory: the peak is {sizes} allocated ({share})."
    delta = judged.after_ns - judged.before_ns
    change = (
        f"{delta / judged.before_ns:+.1%}".replace("%", " %").replace("-", "−")
        if judged.before_ns
        else "from nothing"
    )
    times = f"{duration_text(judged.before_ns)} → {duration_text(judged.after_ns)} per step ({change}"
    of = " of the busy time" if judged.evidence == "busy" else ""
    noise = f"noise{of} ±{duration_text(judged.noise_ns)}"
    if judged.verdict == NOT_COMPARABLE:
        return f"Not comparable: {judged.reason}. The step is {times})."
    if judged.verdict == NO_CHANGE:
        return f"No change beyond the noise: {times}, {noise})."
    told = [
        f"{part_label(row['name'], row['kind'])} {signed_text(row['delta_ns'])}"
        for row in parts[:_TOLD]
        if row["delta_ns"] * delta > 0 and abs(row["delta_ns"]) >= _WORTH_TELLING * abs(delta)
    ]
    because = f"; most of it: {', '.join(told)}" if told else ""
    return f"{judged.verdict.capitalize()}: {times}, {noise}){because}."


def _comparable(parts: Sequence[Row], warnings: Sequence[Row]) -> Sequence[Row]:
    """The parts that may be said to explain it: without idle time, where the recorders cost the host other amounts."""
    other_cost = any(row["effect"] == HOST_COST for row in warnings)
    return [row for row in parts if not (other_cost and row["kind"] == "idle")]


def _remark(judged: Judgement, kernels: Sequence[Row]) -> str:
    """What to know of a step that did not change: why it may not have, and what would tell more."""
    if judged.verdict != NO_CHANGE or not judged.before_ns:
        return ""
    remarks = []
    if judged.hidden_ns:
        more = "longer" if judged.hidden_ns > 0 else "shorter"
        remarks.append(
            f"The device is busy {duration_text(abs(judged.hidden_ns))} {more}, which idle time hides."
        )
    if kernels and all(
        row["matched_by"] == "name" and row["count_before"] == row["count_after"] for row in kernels
    ):
        remarks.append("Both sides run the same kernels, each as often.")
    if judged.noise_ns > _BLIND * judged.before_ns:
        remarks.append("Steps spread widely: record each side several times (--before, --after).")
    return "".join(f" {remark}" for remark in remarks)


def _unprofiled(before: Side, after: Side) -> str:
    """The step without the profiler's cost, where that is known and large."""
    costs = [idle_ns(side, "profiler") for side in (before, after)]
    if not any(c > _BLIND * side.step_ns for c, side in zip(costs, (before, after), strict=True)):
        return ""
    was, now = (side.step_ns - c for c, side in zip(costs, (before, after), strict=True))
    return f" Without what the profiler costs: {duration_text(was)} → {duration_text(now)}."


def signed_text(ns: float) -> str:
    """A difference of times with its sign: ``+1.23 ms``."""
    return f"{'+' if ns > 0 else '−' if ns < 0 else '±'}{duration_text(abs(ns))}"


_LABELS: Final = {
    "gemm": "matrix products",
    "elementwise": "pointwise kernels",
    "copy": "casts and copies",
    "norm": "norm kernels",
    "memcpy": "copies by the copy engine",
    "memset": "memory sets",
    "graph": "opaque graphs",
    "other": "other kernels",
    "host": "the host launches late",
    "queue": "launch latency",
    "input": "input data",
    "sync": "synchronisation",
}


def part_label(name: str, kind: str) -> str:
    """What a part is called in text."""
    if kind == "host":
        return "host time"
    if kind == "share":
        return f"share {name}"
    label = _LABELS.get(name, name)
    if kind == "idle":
        return f"idle: {label}"
    return label if kind != "kernels" or "kernels" in label or name in _LABELS else f"{label} kernels"


def _shares(before: Side, after: Side) -> Row:
    return {
        share: {
            f"{word}_ns": round(side.per_step(sum(r.verdict["shares"].get(share, 0) for r in side.results)))
            for word, side in (("before", before), ("after", after))
        }
        for share in SHARES
    }


def _compared(side: Side) -> Row:
    return {
        "inputs": [
            {key: row[key] for key in ("path", "format", "tool", "tool_version")}
            for row in side.rows("inputs")
        ],
        "devices": sorted({row["name"] or "unnamed device" for row in side.rows("devices")}),
        "steps": side.steps,
    }
