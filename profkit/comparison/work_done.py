"""Whether both sides do the same work in a step: another batch size is no regression."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.comparison.side import Side
from profkit.model.kernel_class import MATRIX_FAMILIES
from profkit.model.report import KernelRow
from profkit.roofline.kernel_names import classify

__all__ = ["Work", "compare_work"]

_MATRIX: Final = frozenset(str(family) for family in MATRIX_FAMILIES)
_SILENT: Final = _MATRIX | {"optimizer", "communication", "reduce", "sort", "random", "other", "layout"}
"""Families whose launch sizes do not follow the batch: persistent or heuristic grids, and parameters."""

_SAME: Final = 0.06
"""Logarithms of ratios that differ by less are one ratio."""

_AGREEING: Final = 0.3
"""Of the time of kernels that both sides launch alike, this share must agree that a launch does other work."""

_HEARD: Final = 0.01
"""A family below this share of the voting time is not asked."""

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


@dataclass(frozen=True)
class _Vote:
    """What one function's launches say."""

    family: str
    grown: float
    """The logarithm of the ratio of elements (or threads) per launch."""
    weight: float
    """The time that it stands for."""


def _votes(before: Side, after: Side) -> list[_Vote]:
    first, second = _launched(before), _launched(after)
    votes = []
    for key in sorted(first.keys() & second.keys()):
        (count, size, time), (count_after, size_after, time_after) = first[key], second[key]
        if size and size_after and abs(count - count_after) < 0.02 * count:
            grown = math.log(size_after / count_after) - math.log(size / count)
            votes.append(_Vote(key[0], grown, time + time_after))
    return votes


def _launched(side: Side) -> dict[tuple[str, str, bool], tuple[float, float, float]]:
    """Launches, elements (or threads) and time per step, by family, function and whether elements are known."""
    found: dict[tuple[str, str, bool], list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for row in side.kernels:
        if row.family in _SILENT or not row.grid:
            continue
        # How many elements a thread takes changes with the version of PyTorch.
        items = classify([row.name])[0].items
        sums = found[row.family, _TYPES.sub("", row.short_name), items is not None]
        sums[0] += side.per_step(row.count)
        sums[1] += side.per_step(row.count * _threads(row) * (items or 1))
        sums[2] += side.per_step(row.total_ns)
    return {key: (sums[0], sums[1], sums[2]) for key, sums in found.items()}


def _threads(row: KernelRow) -> int:
    return math.prod(row.grid or ()) * math.prod(row.block or ())


def _agreed(votes: list[_Vote]) -> float:
    """The ratio other than 1 that the most time agrees on, if that is enough of all, and of half of the families.

    A new version may launch one family another way; a batch changes them all.
    """
    total = sum(vote.weight for vote in votes)
    best: list[_Vote] = []
    for vote in votes:
        agreeing = [other for other in votes if abs(other.grown - vote.grown) <= _SAME]
        if abs(vote.grown) > _SAME and _weight(agreeing) > _weight(best):
            best = agreeing
    families = {vote.family for vote in votes if vote.weight > _HEARD * total}
    if (
        not best
        or _weight(best) < _AGREEING * total
        or 2 * len(families & {v.family for v in best}) < len(families)
    ):
        return 1.0
    return math.exp(sum(vote.grown * vote.weight for vote in best) / _weight(best))


def _weight(votes: Sequence[_Vote]) -> float:
    return sum(vote.weight for vote in votes)


def _flop_ratios(before: Side, after: Side) -> tuple[float | None, float | None]:
    """The ratio of the matrix products' FLOP, and the same per product."""
    totals = []
    for side in (before, after):
        rows = [row for row in side.kernels if row.family in _MATRIX]
        known = [row for row in rows if row.flop]
        time = sum(row.total_ns for row in rows)
        if not known or sum(row.total_ns for row in known) < 0.9 * time:
            return None, None
        flops = sum(row.flop or 0 for row in known)
        totals.append((side.per_step(flops), side.per_step(sum(row.count for row in known))))
    (flop, count), (flop_after, count_after) = totals
    return flop_after / flop, flop_after / flop / (count_after / count)


def _parameters(before: Side, after: Side) -> float | None:
    totals = [
        side.per_step(sum(row.count * _threads(row) for row in side.kernels if row.family == "optimizer" and row.grid))
        for side in (before, after)
    ]  # fmt: skip
    return totals[1] / totals[0] if all(totals) else None
