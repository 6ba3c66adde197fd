"""How far two means of steps may lie apart by chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUSY_SPREAD", "IDLE_SPREAD", "noise_of", "student_quantile"]

BUSY_SPREAD: Final = 0.005
"""What the busy time of equal steps, and of recordings of one step, is expected to spread (standard deviation over
mean): clocks and temperature. Steps of 41 programs on an H200 that never wait for the host spread by 0.2 %."""

IDLE_SPREAD: Final = 0.12
"""The same of idle time, which is the host's and drifts: of 420 pairs of equal loops of programs that wait for the host,
96 % are within the noise that follows; with 8 %, 89 % are (reports/comparison/power.py)."""

_WORTH: Final = 4
"""Observations that an expectation is worth. Three steps a side have four degrees of freedom, and seldom are there
several recordings."""

_REFUTED: Final = 2.0
"""Steps that spread this many times more than expected are something else than expected: then only they count."""

_Z98: Final = 2.326348
"""98 % of a normal distribution lie within plus and minus this many standard deviations."""


def noise_of(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], expected_spread: float
) -> float:
    """The half width of the 98 % interval of the difference between two sides, where nothing changed.

    A t-test whose variances are moderated (Smyth 2004, doi:10.2202/1544-6115.1027): that of steps and that of whole
    recordings are each drawn towards an expectation that is worth some observations. So three steps that happen to
    be equal, or one outlier among them, do not decide alone, and many equal steps do not pretend that the next
    recording would be the same.

    98 and not 95 %: who compares twenty pairs of equal steps should seldom see a change in one.

    Args:
        before: The times of the steps of each recording of one side.
        after: Those of the other side.
        expected_spread: The expected standard deviation of steps and of recordings, in the unit of the times.

    Returns:
        The half width in the unit of the times; 0 when a side has no times.
    """
    sides = [[np.asarray(run, float) for run in side if len(run)] for side in (before, after)]
    counts = [sum(len(run) for run in side) for side in sides]
    if not all(counts):
        return 0.0
    runs = [run for side in sides for run in side]
    free = sum(counts) - len(runs) + _WORTH
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in runs)
    steps = (squares + _WORTH * expected_spread**2) / free
    if squares > (free - _WORTH) * (_REFUTED * expected_spread) ** 2:
        free -= _WORTH
        steps = squares / free
    between = _between(sides, steps, expected_spread)
    return math.hypot(
        student_quantile(_Z98, free) * math.sqrt(sum(steps / count for count in counts)),
        _Z98 * math.sqrt(sum(between / len(side) for side in sides)),
    )


def _between(sides: Sequence[Sequence[NDArray[np.float64]]], steps: float, expected: float) -> float:
    """The variance between recordings of one side, without what the spread of their steps explains."""
    squares, free = 0.0, 0
    for side in sides:
        means = np.array([run.mean() for run in side])
        explained = float(np.mean([steps / len(run) for run in side])) * (len(side) - 1)
        squares += max(float(((means - means.mean()) ** 2).sum()) - explained, 0.0)
        free += len(side) - 1
    return (squares + _WORTH * expected**2) / (free + _WORTH)


def student_quantile(z: float, freedom: float) -> float:
    """The quantile of Student's t at the probability of a normal quantile (Abramowitz and Stegun 26.7.5).

    At 99 % it is 5 % too small at 2 degrees of freedom, 1 % at 3, and better from there on.
    """
    n = max(freedom, 2.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3
