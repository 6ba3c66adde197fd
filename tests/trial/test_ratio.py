"""The interval of a ratio from turns."""

import math

import numpy as np
import pytest

from profkit.model.rows import Interval
from profkit.trial.baselines import noise_of
from profkit.trial.curves import Likeness
from profkit.trial.ratio import estimate
from profkit.trial.sentences import verdict_on


def turns(generator, count, ratio, noise=0.05, disturbed=0.0):
    """Times of two sides: each with noise of its own, and some turns that something else made longer."""

    def times(level):
        longer = 1 + (generator.random(count) < disturbed) * generator.exponential(3.0, count)
        return level * np.exp(generator.normal(0, noise, count)) * longer

    return times(10.0 * ratio), times(10.0)


def test_the_ratio_of_even_times_is_exact():
    found = estimate([20.0] * 6, [10.0] * 6)
    assert (found.low, found.likely, found.high) == pytest.approx((2, 2, 2))


def test_a_single_turn_has_no_interval():
    assert estimate([2.0], [1.0]) is None


def test_a_few_turns_that_agree_are_clear_and_others_are_not():
    assert estimate([2.0, 2.02], [1.0, 1.0]).low > 1.8
    assert estimate([1.0, 1.2], [1.0, 1.0]).low < 1


def test_six_turns_are_bounded_by_their_range():
    ratios = [1.1, 1.2, 1.3, 1.4, 1.5, 1.6]
    found = estimate(ratios, [1.0] * 6)
    assert found.low == pytest.approx(1.1)
    assert found.high == pytest.approx(1.6)


@pytest.mark.parametrize("count", [2, 3, 5, 6, 8, 12, 20])
@pytest.mark.parametrize("disturbed", [0.0, 0.15])
def test_the_interval_holds_the_truth_as_often_as_it_says(count, disturbed):
    generator = np.random.default_rng(count)
    held = 0
    for _ in range(600):
        found = estimate(*turns(generator, count, 1.2, disturbed=disturbed))
        held += found.low <= 1.2 <= found.high
    assert held / 600 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 600)


def test_it_is_narrower_than_that_of_the_median_and_hardly_moved_by_disturbed_turns():
    generator = np.random.default_rng(1)
    widths, ranges, moved = [], [], []
    for _ in range(200):
        before, after = turns(generator, 20, 1.2)
        found = estimate(before, after)
        logs = np.sort(np.log(before / after))
        widths.append(math.log(found.high / found.low))
        ranges.append(logs[14] - logs[5])  # the 95.9 % interval of the median of 20
        before[3] *= 30
        moved.append(estimate(before, after).likely / found.likely)
    assert np.median(widths) < np.median(ranges)
    assert max(moved) < 1.05


@pytest.mark.parametrize(
    ("low", "likely", "high", "noise"),
    [
        pytest.param(0.70, 0.96, 1.30, 0.01, id="turns scatter by more"),
        pytest.param(0.99, 1.002, 1.01, 0.01, id="alike"),
        pytest.param(1.28, 1.30, 1.32, 0.30, id="a difference that is sure"),
    ],
)
def test_noise_is_what_two_unchanged_programs_differ_by_beyond_the_scatter_of_turns(low, likely, high, noise):
    assert noise_of(Interval(low=low, likely=likely, high=high)) == pytest.approx(noise, abs=0.01)


def test_faster_within_the_noise_is_not_called_no_faster():
    ruling = verdict_on(
        Interval(low=1.09, likely=1.16, high=1.25), 0.25, Likeness(True, 0.0, 0.0, "loss unchanged")
    )
    assert not ruling.kept
    assert "not beyond the noise of 25.0%" in ruling.why


@pytest.mark.parametrize(
    ("low", "likely", "high", "undecided"),
    [(0.12, 8.9, 691.0, True), (0.98, 1.0, 1.11, True), (0.98, 1.0, 1.09, False), (0.5, 0.7, 0.9, False)],
)
def test_a_wide_interval_is_no_verdict(low, likely, high, undecided):
    ruling = verdict_on(Interval(low=low, likely=likely, high=high), 0.01, Likeness(True, 0.0, 0.0, ""))
    assert not ruling.kept
    assert ruling.undecided == undecided
    assert ("scatter too much to tell" in ruling.why) == undecided
