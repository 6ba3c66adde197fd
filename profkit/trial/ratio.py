"""How much faster, from turns of two programs that were timed one after the other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache
from typing import Final

from profkit.model.rows import Interval

__all__ = ["ENOUGH_TURNS", "estimate", "spread_of_times"]

CONFIDENCE: Final = 0.95
ENOUGH_TURNS: Final = 6
"""With fewer pairs no interval of ranks reaches 95 %: 2 * 2**-6 = 3 % is left out by the range of six."""
_STUDENTS: Final = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}
"""Quantiles of Student's t at 97.5 %, by the number of values."""


def estimate(before: Sequence[float], after: Sequence[float]) -> Interval | None:
    """The ratio of paired times, with its 95 % interval; None with fewer than two pairs.

    The turns of a pair are neighbours in time and take turns at being first, so what else the machine does hits both
    alike, and the logarithm of their ratio is spread symmetrically around the true one. That is all that the
    Hodges-Lehmann estimate asks for: the median of all pairwise means, with the interval of Wilcoxon's signed ranks
    (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, 3.2 and 3.3). A turn that was disturbed moves it
    by one rank, not by its size, where a mean would follow it; it is narrower than the interval of a median.

    Ranks of fewer than `ENOUGH_TURNS` pairs say nothing at 95 %: their interval is Student's, wide unless they agree.
    """
    logs = [math.log(a / b) for a, b in zip(before, after, strict=True)]
    if len(logs) < 2:
        return None
    interval = _interval(logs) if len(logs) >= ENOUGH_TURNS else _students(logs)
    low, likely, high = (math.exp(each) for each in interval)
    return Interval(low=low, likely=likely, high=high)


def spread_of_times(times: Sequence[float]) -> Interval:
    """The typical one of some times, with its interval; with fewer than `ENOUGH_TURNS` their range."""
    low, likely, high = _interval(list(times))
    return Interval(low=low, likely=likely, high=high)


def _students(values: list[float]) -> tuple[float, float, float]:
    likely = statistics.fmean(values)
    half = _STUDENTS[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return likely - half, likely, likely + half


def _interval(values: list[float]) -> tuple[float, float, float]:
    means = sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])
    middle = len(means) // 2
    likely = means[middle] if len(means) % 2 else (means[middle - 1] + means[middle]) / 2
    outside = _ranks_outside(len(values))
    return means[outside], likely, means[-1 - outside]


@cache
def _ranks_outside(count: int) -> int:
    """How many of the sorted means lie outside the interval on each side, by the exact distribution of the signed ranks."""
    ways = [1]
    for rank in range(1, count + 1):
        longer = ways + [0] * rank
        for total, number in enumerate(ways):
            longer[total + rank] += number
        ways = longer
    below, allowed = 0, (1 - CONFIDENCE) / 2 * 2**count
    for total, number in enumerate(ways):
        below += number
        if below > allowed:
            return max(total - 1, 0)
    return 0
