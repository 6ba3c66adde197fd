"""The gate on many pairs of step series: what it must catch, and what it must leave alone.

The noise model: a run's steps take its level times (1 + spread * normal), busy and idle time alike; the levels of two
runs of the same step differ by 0.3 % (normal). One step in twenty is an outlier of three times its length. The levels
of busy and idle time are those of real recordings, from a device that never waits to one that mostly does.
"""

from collections import Counter

import numpy as np
import pytest

from profkit.comparison import Limits, compare_reports, judge_limits
from tests.comparison.recordings import of_steps, recorded, resampled

LEVELS = [(0.98, 0.02), (0.84, 0.16), (0.5, 0.5), (0.15, 0.85)]
"""Busy and idle parts of a step."""
PAIRS = 200
LIMIT = Limits.of({"max-step": "+3%"})


def run_of(random, level, spread, *, steps=10, slower=1.0, outliers=0.05, kinds=None):
    run = 40e6 * slower * (1 + 0.003 * random.standard_normal())
    times = run * (1 + spread * random.standard_normal(steps))
    if kinds is not None:
        times *= kinds(random, np.arange(steps))
    times *= np.where(random.random(steps) < outliers, 3, 1)
    return of_steps(recorded("gpt_fp32"), [[round(part * time) for part in level] for time in times])


def outcome(before, after):
    (row,) = judge_limits(LIMIT, after, before, compare_reports([before], [after]))
    return row.outcome


def outcomes(pairs):
    return Counter(outcome(before, after) for before, after in pairs)


@pytest.mark.parametrize("spread", [0.001, 0.005, 0.01])
def test_of_equal_quiet_pairs_none_fails_and_at_most_5_percent_cannot_be_judged(spread):
    random = np.random.default_rng(21)
    found = outcomes([run_of(random, LEVELS[n % 4], spread) for _ in "ab"] for n in range(PAIRS))
    assert found["broken"] == 0
    assert found["unknown"] <= 0.05 * PAIRS


@pytest.mark.parametrize("slower", [1.05, 1.07, 1.1, 1.2, 1.4, 1.6])
def test_each_regression_of_5_percent_and_more_over_ten_quiet_steps_is_caught(slower):
    random = np.random.default_rng(22)
    found = outcomes(
        (run_of(random, LEVELS[n % 4], spread), run_of(random, LEVELS[n % 4], spread, slower=slower))
        for n in range(40)
        for spread in (0.001, 0.005, 0.01)
    )
    assert found["kept"] == 0
    assert found["broken"] >= 0.95 * found.total()


@pytest.mark.parametrize("spread", [0.08, 0.15, 0.3])
def test_every_noisy_equal_pair_cannot_be_judged(spread):
    random = np.random.default_rng(23)
    found = outcomes([run_of(random, LEVELS[n % 4], spread) for _ in "ab"] for n in range(PAIRS))
    assert found == {"unknown": PAIRS}


@pytest.mark.parametrize("spread", [0.02, 0.04])
@pytest.mark.parametrize("steps", [3, 10])
def test_no_equal_pair_fails_whatever_its_noise(spread, steps):
    random = np.random.default_rng(24)
    found = outcomes([run_of(random, LEVELS[n % 4], spread, steps=steps) for _ in "ab"] for n in range(PAIRS))
    assert found["broken"] == 0


@pytest.mark.parametrize("slower", [1.2, 1.4, 1.6])
def test_a_noisy_regression_never_opens_the_gate(slower):
    random = np.random.default_rng(25)
    found = outcomes(
        (run_of(random, LEVELS[n % 4], 0.15), run_of(random, LEVELS[n % 4], 0.15, slower=slower))
        for n in range(PAIRS)
    )
    assert found["kept"] == 0


def batches(random, at):
    """Short and long ones, as they come."""
    return np.where(random.random(len(at)) < 0.5, 1.1, 1.0)


@pytest.mark.parametrize("steps", [10, 30])
def test_a_median_between_two_kinds_of_steps_cannot_be_judged(steps):
    random = np.random.default_rng(27)

    def side(level, slower=1.0):
        return run_of(random, level, 0.005, steps=steps, slower=slower, kinds=batches)

    equal = outcomes((side(LEVELS[n % 4]), side(LEVELS[n % 4])) for n in range(PAIRS))
    slower = outcomes((side(LEVELS[n % 4]), side(LEVELS[n % 4], 1.05)) for n in range(PAIRS // 2))
    assert equal["broken"] <= 0.01 * PAIRS
    assert equal["unknown"] >= 0.95 * PAIRS
    assert slower["kept"] <= 0.02 * PAIRS


def drifting(random, at):
    """Each step 0.8 like the one before, as where clocks and neighbours change slowly."""
    steps = random.standard_normal(len(at))
    for n in at[1:]:
        steps[n] = 0.8 * steps[n - 1] + 0.6 * steps[n]
    return 1 + 0.03 * steps


def test_of_steps_that_drift_few_equal_pairs_fail_and_no_regression_opens_the_gate():
    random = np.random.default_rng(29)

    def side(n, slower=1.0):
        return run_of(random, LEVELS[n % 4], 0.0, steps=30, slower=slower, outliers=0, kinds=drifting)

    equal = outcomes((side(n), side(n)) for n in range(100))
    slower = outcomes((side(n), side(n, 1.05)) for n in range(100))
    assert equal["broken"] <= 1  # 7, were the steps taken for independent ones
    assert slower["kept"] <= 2  # 12


@pytest.mark.parametrize(("every", "longer"), [(2, 1.1), (3, 3.0), (4, 1.3), (5, 3.0)])
@pytest.mark.parametrize("phase", [0, 1])
def test_steps_that_are_longer_by_turns_are_judged_as_quiet_ones(every, longer, phase):
    """Each nth step also updates the parameters, or is followed by a validation."""
    random = np.random.default_rng(28)

    def side(level, slower=1.0, first=0):
        def turns(_, at):
            return np.where(at % every == first, longer, 1.0)

        return run_of(random, level, 0.005, slower=slower, outliers=0, kinds=turns)

    found = outcomes((side(LEVELS[n % 4]), side(LEVELS[n % 4], first=phase)) for n in range(40))
    slower = outcomes((side(LEVELS[n % 4]), side(LEVELS[n % 4], 1.05, phase)) for n in range(40))
    assert found["broken"] == 0
    assert found["unknown"] <= 8
    assert slower["kept"] == 0
    assert slower["broken"] >= 32


def test_one_outlier_hides_no_regression_of_40_percent():
    steady = [[9_800_000, 200_000]] * 10
    before = of_steps(recorded("gpt_fp32"), [*steady, [58_800_000, 1_180_000]])
    after = of_steps(recorded("gpt_fp32"), [[13_720_000, 280_000]] * 11)
    assert outcome(before, after) == "broken"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "folder"),
    [("gpt_fp32", "nsys"), ("elementwise_chain", "nsys"), ("big_gemm_bf16", "nsys")],
)  # fmt: skip
def test_resampled_recordings_of_quiet_devices_are_judged_rightly(name, folder):
    random, report = np.random.default_rng(26), recorded(name, folder)

    def side(factor=1.0):
        return resampled(report, 10, random, run_spread=0.003, factor=factor)

    equal = outcomes((side(), side()) for _ in range(PAIRS))
    slower = outcomes((side(), side(1.05)) for _ in range(PAIRS))
    assert equal["broken"] == 0
    assert equal["unknown"] <= 0.05 * PAIRS
    assert slower["kept"] == 0
