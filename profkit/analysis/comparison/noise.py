"""How far two means of steps may lie apart by chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUSY_RUN_SPREAD", "IDLE_RUN_SPREAD", "STEP_SPREAD", "noise_of", "student_quantile"]

STEP_SPREAD: Final = 0.01
"""What the steps of one recording are expected to spread (standard deviation over mean), before any is seen."""

BUSY_RUN_SPREAD: Final = 0.005
"""What the busy time of recordings of the same step is expected to spread: clocks, temperature."""

IDLE_RUN_SPREAD: Final = 0.02
"""The same of idle time, which is the host's: its clocks, its other work, where its memory lies."""

_WORTH: Final = 2
"""Degrees of freedom that the expectation of steps is worth: with three steps a side, the sample has four."""

_RUN_WORTH: Final = 4
"""The same of recordings, of which there are seldom more than one a side."""

_Z99: Final = 2.326348
"""The 99 % quantile of the normal distribution: 98 % lie within plus and minus it."""


def noise_of(
    before: Sequence[Sequence[float]], after: Sequence[Sequence[float]], step: float, run_spread: float
) -> float:
    """The half width of the 98 % interval of the difference between two sides, where nothing changed.

    A t-test whose variance is moderated (Smyth 2004, doi:10.2202/1544-6115.1027): where steps spread less than
    expected, the expectation counts like some observations more, as three equal steps are luck; where they spread
    more, it is no longer believed. The spread of whole recordings comes on top, so that many equal steps do not
    pretend that the next recording would be the same.

    98 and not 95 %: who compares twenty pairs of equal steps should seldom see a change in one.

    Args:
        before: The times of the steps of each recording of one side.
        after: Those of the other side.
        step: The step's time, which `STEP_SPREAD` is a share of.
        run_spread: What recordings of the same step are expected to spread, in the unit of the times.

    Returns:
        The half width in the unit of the times.
    """
    sides = [[np.asarray(run, float) for run in side if len(run)] for side in (before, after)]
    counts = [sum(len(run) for run in side) for side in sides]
    if not all(counts):
        return 0.0
    runs = [run for side in sides for run in side]
    free = sum(counts) - len(runs)
    squares = sum(float(((run - run.mean()) ** 2).sum()) for run in runs)
    steps, freedom = squares / max(free, 1), free
    if free == 0 or steps < (STEP_SPREAD * step) ** 2:
        freedom = free + _WORTH
        steps = (squares + _WORTH * (STEP_SPREAD * step) ** 2) / freedom
    between = _between(sides, steps, run_spread)
    variance = sum(steps / count for count in counts) + sum(between / len(side) for side in sides)
    return student_quantile(_Z99, freedom) * float(np.sqrt(variance))


def _between(sides: Sequence[Sequence[NDArray[np.float64]]], steps: float, expected: float) -> float:
    """The variance between recordings of one side, without what the spread of their steps explains."""
    squares, free = 0.0, 0
    for side in sides:
        means = np.array([run.mean() for run in side])
        explained = float(np.mean([steps / len(run) for run in side])) * (len(side) - 1)
        squares += max(float(((means - means.mean()) ** 2).sum()) - explained, 0.0)
        free += len(side) - 1
    return (squares + _RUN_WORTH * expected**2) / (free + _RUN_WORTH)


def student_quantile(z: float, freedom: float) -> float:
    """The quantile of Student's t at the probability of a normal quantile (Abramowitz and Stegun 26.7.5).

    At 99 % it is 5 % too small at 2 degrees of freedom, 1 % at 3, and better from there on.
    """
    n = max(freedom, 2.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3
