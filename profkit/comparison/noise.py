"""How far the medians of two sides' steps may lie apart by chance."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.comparison.rows import NoiseCure

__all__ = ["NO_NOISE", "Noise", "measured_noise", "median_of", "spread_of", "student_quantile"]

_WORTH: Final = 4
"""Observations that an expectation is worth. Three steps a side have four degrees of freedom, and seldom are there
several recordings."""

_Z98: Final = 2.326348
"""98 % of a normal distribution lie within plus and minus this many standard deviations. 98 and not 95: who compares
twenty pairs of equal steps should seldom see a change in one."""

_EFFICIENCY: Final = 0.82
"""Degrees of freedom that an observation is worth in Qn (Rousseeuw and Croux 1993, doi:10.1080/01621459.1993.10476408)."""

_QN: Final = 2.2219
_QN_SMALL: Final = {6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
"""Qn's factor for normal observations, and its corrections for few of them (Croux and Rousseeuw 1992)."""

_JUMPS: Final = 2
"""Between two kinds of steps a median moves by more than their spread tells. Of normal steps, one recording in thirty says
so by chance."""

_MOST: Final = 1000
"""Steps whose pairs are formed; of more, so many are taken at equal distances."""

_TRIED: Final = (5, 10, 15, 20, 30, 50, 75, 100, 150, 200, 300, 500)
_TRIED_RECORDINGS: Final = (2, 3, 4, 5, 7, 10, 15, 20)

Times = Sequence[Sequence[float]]
"""The times of the steps of each recording of one side."""
_Sides = Sequence[Sequence[NDArray[np.float64]]]


@dataclass(frozen=True)
class Noise:
    """What is known of the spread of steps and of recordings; variances in the unit of the times, squared."""

    within: float
    """Between the steps of a recording."""
    freedom: float
    """Degrees of freedom of that."""
    between: float
    """Between recordings of the same step."""
    between_freedom: float
    """Degrees of freedom of that; infinite where an expectation is believed."""
    counts: tuple[tuple[int, ...], tuple[int, ...]]
    """The steps of each recording of each side."""
    jumps: bool = False
    """Whether a median lies between two kinds of steps, so that more of them need not steady it."""
    alike: float = 0.0
    """The correlation of a step with the next, 0 to 1: a host that drifts or slows down for a while."""

    @property
    def half_width(self) -> float:
        """Half of the 98 % interval of the difference of two sides where nothing changed; 0 without times."""
        return self._half_width(self.counts, self.freedom)

    def cure(self, allowed: float) -> NoiseCure:
        """How many steps, or how many recordings, would bring the noise to what a limit allows."""

        def enough(recordings: int, steps: int) -> bool:
            side = (steps,) * recordings
            freedom = 2.0 * recordings * (steps - 1) * _EFFICIENCY
            return self._half_width((side, side), freedom) <= allowed

        if self.jumps:
            return NoiseCure(steps=None, recordings=None)
        now = max((count for side in self.counts for count in side), default=0)
        recorded = min(map(len, self.counts))
        return NoiseCure(
            steps=next((n for n in _TRIED if n > now and enough(1, n)), None),
            recordings=next((r for r in _TRIED_RECORDINGS if r > recorded and enough(r, max(now, 3))), None),
        )

    def _half_width(self, counts: Sequence[Sequence[int]], freedom: float) -> float:
        if not all(counts):
            return 0.0
        steps = between = 0.0
        for side in counts:
            each = _of_medians(len(side)) / len(side)
            between += self.between * each
            steps += each * sum(_of_a_median(self.within, n, self.alike) for n in side) / len(side)
        return math.hypot(
            student_quantile(_Z98, freedom) * math.sqrt(steps),
            student_quantile(_Z98, self.between_freedom) * math.sqrt(between),
        )


NO_NOISE: Final = Noise(0.0, 1.0, 0.0, math.inf, ((), ()))
"""Of nothing."""


def measured_noise(before: Times, after: Times, *, expected: float, drift: float) -> Noise:
    """The noise of the difference between two sides.

    The spread of steps is Qn, which an outlier does not move. It and the spread of whole recordings are each drawn
    towards an expectation that is worth some observations (as Smyth 2004, doi:10.2202/1544-6115.1027), unless they
    refute it. So three steps that happen to be equal do not decide alone, and many equal steps do not pretend that
    the next recording would be the same. Steps that are like the ones before them are worth fewer. A median that may
    jump, but only away from the other side, takes nothing off a change.

    Args:
        before: The times of the steps of each recording of one side.
        after: Those of the other side.
        expected: The expected standard deviation of the steps of a recording, in the unit of the times.
        drift: That of recordings of the same step.
    """
    sides = [[np.asarray(run, float) for run in side if len(run)] for side in (before, after)]
    if not all(sides):
        return NO_NOISE
    change = abs(median_of(after) - median_of(before))
    noise = _noise(sides, expected, drift, apart=True)
    return noise if change > noise.half_width else _noise(sides, expected, drift, apart=False)


def _noise(sides: _Sides, expected: float, drift: float, *, apart: bool) -> Noise:
    """The noise where the sides differ, if ``apart``: without what would only take them further apart."""
    first, second = map(median_of, sides)
    towards = (second, first) if apart else (None, None)
    spreads = [_spread(run, end) for side, end in zip(sides, towards, strict=True) for run in side]
    within, freedom = _moderated(*_pooled(sides, [spread for spread, _ in spreads]), expected)
    # A run that jumps from one kind of steps to another is like itself on both sides of the jump, which is counted already.
    alike = _alike([run for side in sides for run in side if not _spread(run)[1]])
    between, between_freedom = _between(sides, within, drift, alike)
    counts = tuple(len(run) for run in sides[0]), tuple(len(run) for run in sides[1])
    return Noise(within, freedom, between, between_freedom, counts, any(jumps for _, jumps in spreads), alike)


def spread_of(before: Times, after: Times, expected: float) -> float:
    """The standard deviation of steps within recordings, drawn towards an expectation."""
    sides = [[np.asarray(run, float) for run in side if len(run)] for side in (before, after)]
    spreads = [_spread(run)[0] for side in sides for run in side]
    return math.sqrt(_moderated(*_pooled(sides, spreads), expected)[0])


def median_of(times: Times | Sequence[NDArray[np.float64]]) -> float:
    """The typical step of a side: the median of its recordings' medians; 0 without any."""
    medians = [statistics.median(run) for run in times if len(run)]
    return float(statistics.median(medians)) if medians else 0.0


def student_quantile(z: float, freedom: float) -> float:
    """The quantile of Student's t at the probability of a normal quantile (Abramowitz and Stegun 26.7.5).

    At 99 % it is 7 % too small at 2 degrees of freedom, 2 % at 3, and less than 1 % from 4 on.
    """
    n = max(freedom, 2.0)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def _pooled(sides: _Sides, spreads: Sequence[float]) -> tuple[float, float]:
    """The variance of steps within recordings from the spread of each, and its degrees of freedom."""
    squares = freedom = 0.0
    for run, spread in zip((run for side in sides for run in side), spreads, strict=True):
        free = _EFFICIENCY * (len(run) - 1) if len(run) in _QN_SMALL or len(run) > 9 else len(run) - 1.0
        squares += free * spread**2
        freedom += free
    return (squares / freedom if freedom else 0.0), freedom


def _spread(run: NDArray[np.float64], towards: float | None = None) -> tuple[float, bool]:
    """The standard deviation that the median's spread tells of, and whether that is a jump between two kinds.

    Args:
        run: The times of a recording's steps.
        towards: Where a jump must lead; anywhere without.
    """
    scale, jump = _scale(run), _jump(run, towards)
    return (jump, True) if jump > _JUMPS * scale else (scale, False)


def _scale(run: NDArray[np.float64]) -> float:
    """A robust standard deviation: Qn; of few steps, which cannot tell an outlier from noise, the usual one."""
    run = run[:: -(-len(run) // _MOST)]
    count = len(run)
    if count < min(_QN_SMALL):
        return float(run.std(ddof=1)) if count > 1 else 0.0
    half = count // 2 + 1
    first, second = np.triu_indices(count, 1)
    apart = np.partition(np.abs(run[first] - run[second]), half * (half - 1) // 2 - 1)
    few = _QN_SMALL.get(count) or count / (count + (1.4 if count % 2 else 3.8))
    return float(apart[half * (half - 1) // 2 - 1]) * _QN * few


def _jump(run: NDArray[np.float64], towards: float | None) -> float:
    """The standard deviation of steps whose median would move as far as to the ends of its 98 % interval.

    Qn is the spread within one of two kinds of steps, such as short and long batches, though half are of the other. The
    interval is that of the median of steps drawn anew from these: of ten steps it begins at the third.
    """
    count = len(run)
    if count < min(_QN_SMALL):
        return 0.0
    ordered, middle = np.sort(run), float(statistics.median(run))
    low = round(count / 2 - _Z98 * math.sqrt(count) / 2 + 0.5)
    ends = [end - middle for end in (ordered[low], ordered[count - 1 - low])]
    reach = max((e for e in ends if towards is None or e * (towards - middle) > 0), key=abs, default=0.0)
    if _periodic((run - middle) * np.sign(reach) > abs(reach) / 2):
        return 0.0
    return float(abs(reach)) / (_Z98 * math.sqrt(_of_medians(count) / count))


def _periodic(other: NDArray[np.bool_]) -> bool:
    """Whether every so manieth step is of the other kind: as many in each recording, so that no median moves."""
    at = np.flatnonzero(other)
    if len(at) < 3:
        return False
    apart = int(at[1] - at[0])
    whole = at[0] < apart and len(other) - at[-1] <= apart and bool((np.diff(at) == apart).all())
    return whole and (apart > 2 or len(other) % 2 == 0)


def _alike(runs: Sequence[NDArray[np.float64]]) -> float:
    """The correlation of a step with the next within recordings, 0 to 1: of a host that drifts, or is slow for a while.

    That of ranks (Bartels 1982, doi:10.1080/01621459.1982.10477764), since an outlier is no drift. 0 where independent
    steps show as much in one case of a hundred: ten steps a side tell of a correlation from 0.5 on.
    """
    apart = whole = chance = 0.0
    for run in (run for run in runs if len(run) >= min(_QN_SMALL)):
        count = len(run)
        _, places, often = np.unique(run, return_inverse=True, return_counts=True)
        ranks = (np.cumsum(often) - (often - 1) / 2)[places] - (count + 1) / 2
        apart += float((np.diff(ranks) ** 2).sum()) / count**2
        whole += float((ranks**2).sum()) / count**2
        chance += (count / 12) ** 2 * 5 / (5 * count + 7)
    if not whole:
        return 0.0
    found = 1 - apart / whole / 2
    return found if found > _Z98 * math.sqrt(chance) / whole else 0.0


def _between(sides: _Sides, within: float, drift: float, alike: float = 0.0) -> tuple[float, float]:
    """The variance between recordings of one side without what their steps explain, and its degrees of freedom."""
    squares, freedom = 0.0, 0
    for side in sides:
        medians = np.array([statistics.median(run) for run in side])
        explained = sum(_of_a_median(within, len(run), alike) for run in side) / len(side)
        squares += max(float(((medians - medians.mean()) ** 2).sum()) - explained * (len(side) - 1), 0.0)
        freedom += len(side) - 1
    if freedom and squares > _likely(freedom, drift)[1] * freedom:
        return squares / freedom, float(freedom)
    # A few recordings that agree do not prove that the next one would.
    return (squares + _WORTH * drift**2) / (freedom + _WORTH), math.inf


def _moderated(variance: float, freedom: float, expected: float) -> tuple[float, float]:
    """A variance drawn towards an expectation, unless it refutes it; with its degrees of freedom."""
    if not freedom:
        return expected**2, float(_WORTH)
    least, most = _likely(freedom, expected)
    if not least <= variance <= most:
        return variance, freedom
    return (freedom * variance + _WORTH * expected**2) / (freedom + _WORTH), freedom + _WORTH


def _likely(freedom: float, expected: float) -> tuple[float, float]:
    """Between what a variance lies in 98 % of cases, where the expectation is right (Wilson and Hilferty 1931)."""
    middle, width = 1 - 2 / (9 * freedom), _Z98 * math.sqrt(2 / (9 * freedom))
    return max(middle - width, 0.0) ** 3 * expected**2, (middle + width) ** 3 * expected**2


def _of_a_median(within: float, count: int, alike: float) -> float:
    """The variance of the median of some steps of a recording, from that of a step.

    Steps that are like the ones before them tell as much as (1 - r) / (1 + r) of them.
    """
    return within * _of_medians(count) / max(count * (1 - alike) / (1 + alike), 1.0)


def _of_medians(count: int) -> float:
    """The variance of a median over that of a mean of as many normal observations: 1 of one, pi / 2 of many."""
    return 1 + (math.pi / 2 - 1) * (1 - 1 / count)
