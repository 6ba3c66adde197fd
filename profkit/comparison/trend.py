"""Where a number changed over many runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.comparison.noise import student_quantile
from profkit.model.rows import Row

__all__ = ["Change", "Point", "find_changes"]

_EXPECTED_SPREAD: Final = 0.01
"""What a number is expected to spread over equal runs, as a share of it."""

_WORTH: Final = 4
"""Runs that the expectation is worth: a few equal runs do not prove that the next will be equal."""

_CHANCE: Final = 0.02
"""How often a steady series may show a change."""


class Point(Row, frozen=True, kw_only=True):
    """A number of a saved run."""

    run: int
    """The run's id."""
    saved_at: str
    """When it was saved: UTC, ISO 8601."""
    value: float
    """The number."""


@dataclass(frozen=True)
class Change:
    """A place where the mean of a series changed for good."""

    at: int
    """The first value of the new level."""
    before: float
    after: float


def find_changes(values: Sequence[float]) -> list[Change]:
    """Where the level of a series changed, in order.

    Binary segmentation (Scott and Knott 1974): the split with the largest t is a change when it is beyond what the
    largest of so many splits would be by chance (Bonferroni); then both sides are searched.
    """
    series = np.asarray(values, float)
    borders: list[int] = []
    stack = [(0, len(series))]
    while stack:
        first, last = stack.pop()
        at = _split(series[first:last])
        if at is not None:
            borders.append(first + at)
            stack += [(first, first + at), (first + at, last)]
    edges = [0, *sorted(borders), len(series)]
    levels = [float(series[a:b].mean()) for a, b in pairwise(edges) if b > a]
    return [Change(at, *pair) for at, pair in zip(edges[1:-1], pairwise(levels), strict=True)]


def _split(series: NDArray[np.float64]) -> int | None:
    count = len(series)
    if count < 3:
        return None
    left = np.arange(1, count)
    right = count - left
    sums, squares = np.cumsum(series)[:-1], float((series**2).sum())
    mean_left, mean_right = sums / left, (series.sum() - sums) / right
    within = np.maximum(squares - left * mean_left**2 - right * mean_right**2, 0.0)
    expected = (_EXPECTED_SPREAD * np.abs(series).mean()) ** 2
    # As in `noise_of`: the expectation counts where the runs spread less, and is not believed where they spread more.
    freedom, variance = count - 2, within / (count - 2)
    if float(variance.min()) < expected:
        freedom = count - 2 + _WORTH
        variance = (within + _WORTH * expected) / freedom
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(mean_right - mean_left) / np.sqrt(variance * (1 / left + 1 / right))
    t = np.nan_to_num(t, nan=0.0, posinf=math.inf)
    best = int(t.argmax())
    z = NormalDist().inv_cdf(1 - _CHANCE / 2 / (count - 1))
    return int(left[best]) if t[best] > student_quantile(z, freedom) else None
