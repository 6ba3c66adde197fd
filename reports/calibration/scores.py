"""The study's scores: shares of GPU time in which profkit agrees with hardware counters."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from study import KernelRow, VerdictRow

LONG_NS = 10_000
GROUPS = ("matrix, compute", "matrix, memory", "other kernels")
SPLITS = ("fit", "held out", "blind", "blind again")
DEMANDS = {
    "bytes_within_25_pct": (0.80, "at least"),
    "side_agrees": (0.90, "at least"),
    "slow_called_slow": (0.90, "at least"),
    "busy_flagged": (0.05, "at most"),
}

Share = dict[str, float]
Rows = Sequence[KernelRow]


def share(rows: Iterable[KernelRow], hit: Callable[[KernelRow], bool]) -> Share:
    """The part of the rows' time that is a hit, and that time in ms of one step of each workload."""
    rows = list(rows)
    total = sum(r.time_ns for r in rows)
    hits = sum(r.time_ns for r in rows if hit(r))
    return {"share": hits / total if total else float("nan"), "ms": total / 1e6, "kernels": len(rows)}


def bytes_ratio(row: KernelRow) -> float:
    return row.bytes / max(row.measured_bytes, 1.0)


def demanded(rows: Rows) -> dict[str, Any]:
    """The four numbers that the study must reach; sides also by group."""
    told = [r for r in rows if r.expected]
    slow = [r for r in rows if max(r.sm, r.dram) < 35]
    busy = [r for r in rows if max(r.sm, r.dram) > 60]
    return {
        "bytes_within_25_pct": share(
            (r for r in rows if r.time_ns > LONG_NS), lambda r: abs(bytes_ratio(r) - 1) <= 0.25
        ),
        "side_agrees": share(told, lambda r: r.bound == r.expected),
        "side_agrees_by_group": {
            g: share((r for r in told if r.group == g), lambda r: r.bound == r.expected) for g in GROUPS
        },
        "slow_called_slow": share(slow, lambda r: r.unsaturated or r.bound == "overhead"),
        "busy_flagged": share(busy, lambda r: r.unsaturated),
    }


def by_split(rows: Rows) -> dict[str, dict[str, Any]]:
    """Scores by recorder and split."""
    recorders = list(dict.fromkeys(r.recorder for r in rows))
    return {
        recorder: {
            s: demanded([r for r in rows if r.recorder == recorder and r.workload.split == s])
            for s in splits(rows)
        }
        for recorder in recorders
    }


def splits(rows: Iterable[KernelRow | VerdictRow]) -> list[str]:
    """The splits that were recorded, in their order."""
    recorded = {r.workload.split for r in rows}
    return [split for split in SPLITS if split in recorded]


def by_kind(rows: Rows) -> dict[str, dict[str, Any]]:
    """Scores by the kind of workload, over all splits of the rows."""
    kinds = list(dict.fromkeys(r.workload.kind for r in rows))
    return {kind: demanded([r for r in rows if r.workload.kind == kind]) for kind in kinds}


def counter_side(row: KernelRow) -> str:
    """What the counters say of a kernel, for the confusion matrix."""
    if row.expected:
        return row.expected
    return "neither (both under 35 %)" if max(row.sm, row.dram) < 35 else "between (35 to 45 %)"


def confusion(rows: Rows) -> dict[str, dict[str, float]]:
    """Time in ms by what the counters say and what profkit calls it; flagged kernels apart."""
    table: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for r in rows:
        table[counter_side(r)][r.bound + (", unsaturated" if r.unsaturated else "")] += r.time_ns / 1e6
    return {side: dict(row) for side, row in table.items()}


def disagreements(rows: Rows, first: int = 12) -> list[dict[str, Any]]:
    """Where the most time is called otherwise than the counters say."""
    wrong = sorted((r for r in rows if r.expected and r.bound != r.expected), key=lambda r: -r.time_ns)
    return [kernel_dict(r) for r in wrong[:first]]


def kernel_dict(row: KernelRow) -> dict[str, Any]:
    return {
        "workload": row.workload.name,
        "split": row.workload.split,
        "recorder": row.recorder,
        "kernel": row.name,
        "ms": row.time_ns / 1e6,
        "sm_pct": row.sm,
        "dram_pct": row.dram,
        "measured_mb": row.measured_bytes / 1e6,
        "bytes_ratio": bytes_ratio(row),
        "counters": row.expected or "",
        "bound": row.bound,
        "unsaturated": row.unsaturated,
        "efficiency": row.efficiency,
        "basis": row.basis,
    }


def counter_sides(rows: Rows) -> dict[str, str]:
    """For each workload, the side on which its kernels spend most of the time that the counters decide."""
    time: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for r in rows:
        if r.expected:
            time[r.workload.name][r.expected] += r.time_ns
    return {name: max(sides, key=lambda s: sides[s]) for name, sides in time.items()}


def right_answers(row: VerdictRow, sides: dict[str, str]) -> set[str]:
    """The truth by construction and what was measured: the counters' side; launch where most of the plain step is idle."""
    answers = {row.workload.truth, sides.get(row.workload.name, row.workload.truth)}
    if row.plain_ms and row.busy_ms < row.plain_ms / 2 and row.workload.truth in ("compute", "memory"):
        answers.add("launch")
    return answers


def verdict_scores(rows: Sequence[VerdictRow], sides: dict[str, str]) -> dict[str, Any]:
    """How many verdicts are the truth by construction, and how many that or what was measured; probes have none."""
    judged = [r for r in rows if r.workload.truth != "none"]

    def count(kept: Sequence[VerdictRow]) -> dict[str, int]:
        return {
            "recordings": len(kept),
            "right": sum(r.bound == r.workload.truth for r in kept),
            "right_knowing_plain_step": sum(r.bound_plain == r.workload.truth for r in kept),
            "right_by_truth_or_measurement": sum(r.bound_plain in right_answers(r, sides) for r in kept),
        }

    return {
        recorder: {
            s: count([r for r in judged if r.recorder == recorder and r.workload.split == s])
            for s in splits(judged)
        }
        for recorder in dict.fromkeys(r.recorder for r in judged)
    }


def busy_differences(rows: Sequence[VerdictRow]) -> list[dict[str, Any]]:
    """The same step by nsys and Kineto: the largest difference of a share of busy time, in points."""
    found: dict[str, dict[str, VerdictRow]] = defaultdict(dict)
    for row in rows:
        found[row.workload.name][row.recorder] = row
    table = []
    for name, pair in found.items():
        if {"nsys", "kineto"} <= set(pair):
            a, b = pair["nsys"], pair["kineto"]
            points = {k: 100 * (a.busy_shares[k] - b.busy_shares[k]) for k in a.busy_shares}
            worst = max(points, key=lambda k: abs(points[k]))
            table.append(
                {
                    "workload": name, "split": a.workload.split, "points": abs(points[worst]), "share": worst,
                    "plain_ms": a.plain_ms, "nsys_ms": a.step_ms, "kineto_ms": b.step_ms,
                    "nsys_busy_ms": a.busy_ms, "kineto_busy_ms": b.busy_ms,
                }
            )  # fmt: skip
    return table
