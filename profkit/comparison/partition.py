"""The step's difference divided among what the device does: parts that add up to it."""

from __future__ import annotations

from collections import Counter

from profkit.comparison.side import Side, apportioned
from profkit.model.result import Row

__all__ = ["explaining_first", "part_rows", "phase_parts"]

Part = tuple[str, str]


def part_rows(before: Side, after: Side) -> list[Row]:
    """Parts of the step, those first that explain its difference.

    The device's busy time is divided by the family of the kernel that runs, its idle time by cause. Reports that
    were saved before they had these parts are divided by share instead, and so is the other side.

    Returns:
        Rows ``{name, kind, before_ns, after_ns, delta_ns, count_before, count_after}``, kind ``kernels``,
        ``copies``, ``graph``, ``share``, ``idle`` or ``host``; counts are launches per step, null for idle time.
    """
    divide = _by_work if all("parts" in r.window for s in (before, after) for r in s.results) else _by_share
    first, second = (
        apportioned((_by_host if side.on_host else divide)(side), side.divisor) for side in (before, after)
    )
    counts = [_launches(side) for side in (before, after)]
    rows = []
    for name, kind in {**first, **second}:
        was, now = first.get((name, kind), 0), second.get((name, kind), 0)
        counted = kind == "kernels"
        rows.append(
            {
                "name": name,
                "kind": kind,
                "before_ns": was,
                "after_ns": now,
                "delta_ns": now - was,
                "count_before": counts[0].get(name, 0) if counted else None,
                "count_after": counts[1].get(name, 0) if counted else None,
            }
        )
    return explaining_first(rows, after.step_ns - before.step_ns)


def phase_parts(before: Side, after: Side) -> list[Row]:
    """The step by phase: the device's time in each, busy or idle, without the phases inside; adds up to the step.

    Empty when a report has no such parts. The path of what lies in no phase is null.
    """
    if not all("parts" in r.window for s in (before, after) for r in s.results):
        return []
    first, second = (apportioned(_by_phase(side), side.divisor) for side in (before, after))
    rows: list[Row] = [
        {
            "path": path,
            "before_ns": first.get(path, 0),
            "after_ns": second.get(path, 0),
            "delta_ns": second.get(path, 0) - first.get(path, 0),
        }
        for path in {**first, **second}
    ]
    return explaining_first(rows, after.step_ns - before.step_ns)


def explaining_first(rows: list[Row], delta_ns: int) -> list[Row]:
    """The rows that moved the way the step did, by how far; then those that moved against it."""
    sign = -1 if delta_ns < 0 else 1
    return sorted(
        rows,
        key=lambda row: (row["delta_ns"] * sign <= 0, -abs(row["delta_ns"]), -row["before_ns"], str(row)),
    )


def _by_work(side: Side) -> Counter[Part]:
    time: Counter[Part] = Counter()
    for result in side.results:
        for row in result.window["parts"]:
            if row["cause"] is not None:
                time[row["cause"], "idle"] += row["ns"]
            elif row["family"] in ("memcpy", "memset"):
                time[row["family"], "copies"] += row["ns"]
            else:
                family = row["family"] or "other"
                time[family, "graph" if family == "graph" else "kernels"] += row["ns"]
    return time


def _by_phase(side: Side) -> Counter[str | None]:
    time: Counter[str | None] = Counter()
    for result in side.results:
        for row in result.window["parts"]:
            # The rest has no phase, which is not the same as lying in none.
            time["(small parts)" if row.get("rest") else row["phase"]] += row["ns"]
    return time


def _by_share(side: Side) -> Counter[Part]:
    time: Counter[Part] = Counter()
    for result in side.results:
        for share, ns in result.verdict["shares"].items():
            time[share, "share"] += ns
    return time


def _by_host(side: Side) -> Counter[Part]:
    return Counter({("host", "host"): side.total_ns})


def _launches(side: Side) -> dict[str, float]:
    count: Counter[str] = Counter()
    for row in side.rows("kernels"):
        count[str(row["family"])] += row["count"]
    return {family: round(side.per_step(n), 2) for family, n in count.items()}
