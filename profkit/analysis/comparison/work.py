"""Whether both sides do the same work in a step: another batch size is no regression."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from profkit.analysis.comparison.side import Side
from profkit.analysis.result import Row
from profkit.analysis.work.families import MATRIX_FAMILIES

__all__ = ["Work", "compare_work"]

_MATRIX: Final = frozenset(str(family) for family in MATRIX_FAMILIES)
_SILENT: Final = _MATRIX | {"optimizer", "communication", "reduce", "sort", "random", "other", "layout"}
"""Families whose launch sizes do not follow the batch: persistent or heuristic grids, and parameters."""

_SAME: Final = 0.06
"""Logarithms of ratios that differ by less are one ratio."""

_AGREEING: Final = 0.3
"""Of the time of kernels that both sides launch alike, this share must agree that a launch does other work."""

_TYPES: Final = re.compile(r"<[^<>]*>|\b(?:bf16|fp16|fp32|fp64|tf32|fp8)\b")


@dataclass(frozen=True)
class Work:
    """The work of a step, after over before."""

    ratio: float
    """Of the batch: how much more each launch does; 1 when it is the same, or nothing tells."""
    parameters: float | None
    """Of the optimizer's launches: what the model's size changed by; None when nothing tells."""
    flop: float | None
    """Of the matrix products' FLOP, where both sides know them."""


def compare_work(before: Side, after: Side) -> Work:
    """Compare what the launches of a step work on.

    A kernel over rows or elements has a grid in proportion to them. So kernels of the same function with equally
    many launches vote with the ratio of their threads, weighted by their time; kernels over parameters vote for 1
    and are outvoted. Where FLOP of matrix products are known, their ratio over that of their number votes too.
    """
    flop, per_product = _flop_ratios(before, after)
    ratio = _agreed(_votes(before, after))
    # Other kernels for the same products change their number, and recomputed ones both: neither is another batch.
    if ratio == 1.0 and flop is not None and per_product is not None:
        grown = [math.log(flop), math.log(per_product)]
        if min(map(abs, grown)) > 2 * _SAME and grown[0] * grown[1] > 0:
            ratio = flop
    return Work(ratio, _parameters(before, after), flop)


def _votes(before: Side, after: Side) -> list[tuple[float, float]]:
    """Logarithms of ratios of threads per launch, with the time that each stands for."""
    first, second = _launched(before), _launched(after)
    votes = []
    for key in first.keys() & second.keys():
        (count, threads, time), (count_after, threads_after, time_after) = first[key], second[key]
        if threads and threads_after and abs(count - count_after) < 0.02 * count:
            votes.append(
                (math.log(threads_after / count_after) - math.log(threads / count), time + time_after)
            )
    return votes


def _launched(side: Side) -> dict[tuple[str, str], tuple[float, float, float]]:
    """Launches, threads and time per step by function."""
    found: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in side.rows("kernels"):
        if str(row["family"]) in _SILENT or not row.get("grid"):
            continue
        sums = found[str(row["family"]), _TYPES.sub("", row["short_name"])]
        sums[0] += side.per_step(row["count"])
        sums[1] += side.per_step(row["count"] * _threads(row))
        sums[2] += side.per_step(row["total_ns"])
    return {key: (sums[0], sums[1], sums[2]) for key, sums in found.items()}


def _threads(row: Row) -> int:
    return math.prod(row["grid"]) * math.prod(row.get("block") or [1])


def _agreed(votes: list[tuple[float, float]]) -> float:
    """The ratio other than 1 that the most time agrees on, if that is enough of all."""
    total = sum(weight for _, weight in votes)
    best, support = 0.0, 0.0
    for value, _ in votes:
        agreeing = [(v, w) for v, w in votes if abs(v - value) <= _SAME]
        weight = sum(w for _, w in agreeing)
        if abs(value) > _SAME and weight > support:
            support, best = weight, sum(v * w for v, w in agreeing) / weight
    return math.exp(best) if total and support >= _AGREEING * total else 1.0


def _flop_ratios(before: Side, after: Side) -> tuple[float | None, float | None]:
    """The ratio of the matrix products' FLOP, and the same per product."""
    totals = []
    for side in (before, after):
        rows = [row for row in side.rows("kernels") if str(row["family"]) in _MATRIX]
        known = [row for row in rows if row["flop"]]
        time = sum(row["total_ns"] for row in rows)
        if not known or sum(row["total_ns"] for row in known) < 0.9 * time:
            return None, None
        totals.append(
            (side.per_step(sum(r["flop"] for r in known)), side.per_step(sum(r["count"] for r in known)))
        )
    (flop, count), (flop_after, count_after) = totals
    return flop_after / flop, flop_after / flop / (count_after / count)


def _parameters(before: Side, after: Side) -> float | None:
    totals = [
        side.per_step(sum(row["count"] * _threads(row) for row in side.rows("kernels") if str(row["family"]) == "optimizer" and row.get("grid")))
        for side in (before, after)
    ]  # fmt: skip
    return totals[1] / totals[0] if all(totals) else None
