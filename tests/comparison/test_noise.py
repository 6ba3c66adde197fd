import math

import numpy as np
import pytest

from profkit.comparison.noise import (
    Noise,
    _alike,
    _between,
    _periodic,
    _scale,
    measured_noise,
    median_of,
    student_quantile,
)
from profkit.comparison.rows import NoiseCure
from profkit.model.rows import replace
from tests.comparison.recordings import compared, of_steps, recorded, resampled, with_slower_kernels

REPEATS = 100
STEADY = [
    ("gpt_fp32", "nsys"),
    ("gpt_bf16", "nsys"),
    ("elementwise_chain", "nsys"),
    ("big_gemm_bf16", "nsys"),
    ("convnet_fp16_channels_last", "kineto"),
]
"""Recordings whose device seldom waits for the host, and whose steps spread by less than 3 %."""
HOST_BOUND = [
    ("dataloader_stall", "nsys"),
    ("sync_item", "kineto"),
    ("tiny_mlp", "nsys"),
    ("gpt_bf16", "kineto"),
    ("gpt_bf16_compile", "kineto"),
    ("convnet_fp16_channels_last", "nsys"),
]
"""The device waits for the host for a fifth of the step or more. A host drifts by 10 % of its idle time from recording
to recording, so no number of steps in one recording shows 5 % there (docs/comparing.md)."""


def verdicts(result, before, after, **slower):
    """Verdicts of repeats of two recordings with so many steps."""
    random = np.random.default_rng(11)
    found = []
    for _ in range(REPEATS):
        first = resampled(result, before, random, run_spread=0.003)
        second = resampled(result, after, random, run_spread=0.003, **slower)
        found.append(compared([first], [second]).verdict)
    return found


@pytest.mark.parametrize(("name", "folder"), [*STEADY, *HOST_BOUND])
@pytest.mark.parametrize("steps", [3, 10])
def test_the_same_step_twice_is_no_change_in_19_of_20_repeats(name, folder, steps):
    found = verdicts(recorded(name, folder), steps, steps)
    assert found.count("no change") >= 0.95 * REPEATS


@pytest.mark.parametrize(("name", "folder"), STEADY)
def test_a_step_that_became_5_percent_slower_is_slower_in_19_of_20_repeats(name, folder):
    found = verdicts(recorded(name, folder), 10, 10, factor=1.05)
    assert found.count("slower") >= 0.95 * REPEATS


@pytest.mark.parametrize(("name", "folder"), [("gpt_bf16", "kineto"), ("convnet_fp16_channels_last", "nsys")])
def test_kernels_that_idle_time_hides_in_a_step_that_waits_for_the_host_change_nothing(name, folder):
    random, result, found = np.random.default_rng(7), recorded(name, folder), []
    for _ in range(REPEATS):
        sides = []
        for longer in (0, 3_000_000):
            busy, idle = (40_000_000, 25_000_000) * (1 + (0.002, 0.1) * random.standard_normal(2))
            steps = [(busy, idle) * (1 + (0.001, 0.05) * random.standard_normal(2)) for _ in range(10)]
            sides.append(of_steps(result, [[round(b) + longer, round(i) - longer] for b, i in steps]))
        found.append(compared([sides[0]], [sides[1]]))
    assert [f.verdict for f in found].count("no change") >= 0.95 * REPEATS
    assert {f.step.evidence for f in found} == {"step"}


def test_a_host_that_drifts_is_no_change_and_several_recordings_show_a_slower_one():
    random, result = np.random.default_rng(8), recorded("gpt_bf16", "kineto")

    def side(recordings, slower):
        runs = []
        for _ in range(recordings):
            idle = 10_000_000 * (1 + 0.1 * random.standard_normal()) + slower
            waits = idle * (1 + 0.05 * random.standard_normal(10))
            runs.append(of_steps(result, [[30_000_000, round(wait)] for wait in waits]))
        return runs

    same = [compared(side(1, 0), side(1, 0)).verdict for _ in range(REPEATS)]
    slower = [compared(side(10, 0), side(10, 2_800_000)).verdict for _ in range(40)]
    assert same.count("no change") >= 0.95 * REPEATS
    assert slower.count("slower") >= 0.95 * 40


def test_the_busy_time_decides_only_where_the_step_shows_its_change():
    result = recorded("gpt_fp32")

    def judged(*steps):
        restless = (-0.04, 0.05, 0.0, -0.06, 0.05) * 2
        sides = ([[busy, round(idle * (1 + part))] for part in restless] for busy, idle in steps)
        return compared(*([of_steps(result, side)] for side in sides)).step

    shown = judged((50_000_000, 8_000_000), (52_000_000, 8_100_000))
    hidden = judged((50_000_000, 8_000_000), (52_000_000, 6_900_000))
    assert (shown.evidence, hidden.evidence) == ("busy", "step")
    assert shown.noise_ns < hidden.noise_ns


@pytest.mark.parametrize("name", ["gpt_fp32", "elementwise_chain", "big_gemm_bf16"])
def test_kernels_that_became_5_percent_slower_are_seen_with_three_steps(name):
    found = compared([recorded(name)], [with_slower_kernels(name, 1.05)])
    assert found.verdict == "slower"
    assert found.parts[0].kind == "kernels"
    assert sum(p.delta_ns for p in found.parts) == found.step.delta_ns


def test_slower_kernels_that_idle_time_hides_are_no_slower_step():
    found = compared([recorded("gpt_bf16")], [with_slower_kernels("gpt_bf16", 1.05)])
    assert found.verdict == "no change"  # the device was idle for 16 % of the step, and is less so now
    assert sum(p.delta_ns for p in found.parts if p.kind == "idle") < -1e6


def test_kernels_of_the_same_length_are_no_change():
    assert compared([recorded("gpt_bf16")], [with_slower_kernels("gpt_bf16", 1.0)]).verdict == "no change"


def test_a_change_is_told_exactly_when_it_is_beyond_the_noise():
    random = np.random.default_rng(3)
    for factor in np.linspace(0.9, 1.1, 60):
        first = resampled(recorded("gpt_bf16"), 5, random)
        second = resampled(recorded("gpt_bf16"), 5, random, factor=factor)
        found = compared([first], [second])
        beyond = abs(found.step.delta_ns) > found.step.noise_ns
        assert beyond == (found.verdict in ("slower", "faster"))


def test_recordings_of_one_side_that_differ_widen_the_noise():
    result = recorded("gpt_fp32")

    def run(ms):
        return of_steps(result, [[round(ms * 1e6), 1_000_000]] * 5)

    alike = compared([run(60), run(60)], [run(64), run(64)])
    apart = compared([run(56), run(64)], [run(60), run(68)])
    assert alike.verdict == "slower"
    assert apart.verdict == "no change"
    assert apart.step.noise_ns > 2 * alike.step.noise_ns


def half_width(before, after, expected=0.0, drift=0.0):
    return measured_noise(before, after, expected=expected, drift=drift).half_width


def test_more_steps_make_the_noise_smaller():
    random = np.random.default_rng(5)
    times = (100 + 5 * random.standard_normal(400)).tolist()
    widths = [half_width([times[:n]], [times[200 : 200 + n]]) for n in (3, 10, 50, 200)]
    assert widths == sorted(widths, reverse=True)


def test_the_width_is_that_of_medians_where_there_are_many_steps():
    random = np.random.default_rng(6)
    before, after = (100 + 5 * random.standard_normal((2, 2000))).tolist()
    expected = 2.326 * 5 * (math.pi / 2 * 2 / 2000) ** 0.5
    assert half_width([before], [after]) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("steps", [3, 6, 10, 25])
def test_two_equal_sides_lie_within_the_noise_in_98_of_100_draws(steps):
    random, within = np.random.default_rng(steps), 0
    for _ in range(1000):
        before, after = 100 + 5 * random.standard_normal((2, steps))
        within += abs(np.median(after) - np.median(before)) <= half_width([before], [after])
    assert within >= 970


@pytest.mark.parametrize("outlier", [0.1, 500, 1e9])
def test_an_outlier_changes_neither_the_median_nor_the_noise_much(outlier):
    random = np.random.default_rng(9)
    before, after = 100 + random.standard_normal((2, 10))
    odd = [*before, outlier]
    assert median_of([odd]) == pytest.approx(median_of([before]), rel=0.01)
    assert half_width([odd], [after]) == pytest.approx(half_width([before], [after]), rel=0.35)


def test_of_few_steps_an_outlier_is_noise():
    assert half_width([[10, 6, 10, 14]], [[8, 16, 24]]) > 6


@pytest.mark.parametrize(("steps", "refuted"), [(3, False), (10, True)])
def test_an_expectation_counts_until_enough_steps_refute_it(steps, refuted):
    random = np.random.default_rng(4)
    before, after = 100 + random.standard_normal((2, steps))
    believed = half_width([before], [after], expected=3) > 1.2 * half_width([before], [after], expected=1)
    assert believed is not refuted


def test_recordings_that_agree_do_not_prove_that_the_next_one_would_but_others_refute_an_expectation():
    def side(*levels):
        return [[level - 0.1, level, level + 0.1] * 4 for level in levels]

    agreeing = half_width(side(100, 100, 100), side(100, 100, 100), drift=3)
    alone = half_width(side(100), side(100), drift=3)
    apart = half_width(side(90, 100, 110), side(90, 100, 110), drift=0.01)
    assert 1 < agreeing < alone
    assert alone == pytest.approx(2.326 * 3 * 2**0.5, rel=0.05)
    assert apart > 2.326 * 10 * (2 / 3) ** 0.5


def test_a_cure_is_the_least_number_of_steps_that_would_do():
    random = np.random.default_rng(2)
    noise = measured_noise(*([100 + 4 * random.standard_normal(10)] for _ in "ab"), expected=0, drift=0)
    cure = noise.cure(1.5)
    assert cure.steps is not None
    enough, fewer = (
        measured_noise(*([100 + 4 * random.standard_normal(n)] for _ in "ab"), expected=0, drift=0)
        for n in (2 * cure.steps, cure.steps // 2)
    )
    assert enough.half_width < 1.5 < fewer.half_width


def test_where_recordings_differ_only_recordings_are_a_cure():
    steady = [100.0, 100.1, 99.9] * 4
    noise = measured_noise([steady], [steady], expected=0.1, drift=2)
    assert noise.cure(3).steps is None
    assert noise.cure(3).recordings == 10
    assert noise.cure(0).recordings is None


def test_nothing_measured_has_no_noise():
    assert half_width([[]], [[1.0]], expected=1) == 0
    assert median_of([[]]) == 0


@pytest.mark.parametrize(
    ("freedom", "expected", "within"),
    [(2, 6.965, 0.075), (3, 4.541, 0.02), (4, 3.747, 0.008), (5, 3.365, 0.004), (10, 2.764, 0.001), (30, 2.457, 0.001), (math.inf, 2.326, 0.001)],
)  # fmt: skip
def test_the_quantiles_are_those_of_the_tables(freedom, expected, within):
    assert student_quantile(2.326348, freedom) == pytest.approx(expected, rel=within)


def with_profiler(result, busy_ms, host_ms, profiler_ms):
    """Ten steps of which the profiler costs a part."""
    found = of_steps(result, [[round(1e6 * busy_ms), round(1e6 * (host_ms + profiler_ms))]] * 10)
    busy, gap = (next(p for p in found.window.parts if bool(p.cause) == idle) for idle in (False, True))
    gaps = [
        replace(gap, cause=cause, ns=round(1e7 * ms))
        for cause, ms in (("host", host_ms), ("profiler", profiler_ms))
    ]
    return replace(found, window=replace(found.window, parts=[busy, *gaps]))


def test_what_the_profiler_costs_is_told_and_is_no_verdict():
    result = recorded("gpt_fp32")
    before, slower, faster = (with_profiler(result, *ms) for ms in ((40, 1, 1), (10, 3, 60), (10, 3, 15)))
    told = compared([before], [faster])
    assert told.verdict == "faster"
    assert told.sentence.endswith("Without the profiler's cost: 41.0 ms → 13.0 ms.")
    opposite = compared([before], [slower])
    assert opposite.verdict == "not comparable"
    assert "Without a profiler the step would be faster: 41.0 ms before, 13.0 ms after" in opposite.sentence


@pytest.mark.parametrize("count", [6, 7, 8, 9, 11, 12, 25])
def test_the_robust_spread_of_normal_steps_is_their_standard_deviation_whatever_their_number(count):
    random = np.random.default_rng(31)
    assert np.mean([_scale(random.standard_normal(count)) for _ in range(1500)]) == pytest.approx(1, rel=0.04)


def test_recordings_that_differ_as_their_steps_explain_leave_the_expectation_that_is_worth_four():
    sides = [[np.zeros(5), np.ones(5)], [np.zeros(5)]]
    assert _between(sides, within=100.0, drift=2.0) == (4 * 2.0**2 / 5, math.inf)
    assert _between(sides, within=0.0, drift=2.0)[0] == pytest.approx((0.5 + 4 * 2.0**2) / 5)


def test_a_cure_asks_for_more_recordings_than_there_are():
    noise = Noise(1.0, 50.0, 0.0, math.inf, ((3, 10), (3, 10)))
    whole = Noise(1.0, 50.0, 0.0, math.inf, ((10, 10), (10, 10)))
    allowed = (noise.half_width + whole.half_width) / 2
    assert whole.half_width < allowed < noise.half_width
    assert noise.cure(allowed).recordings == 3


def test_steps_that_are_like_the_ones_before_them_are_worth_fewer():
    times = [100.0, 101, 102, 103, 104, 105, 106, 107, 108, 109]
    mixed = [times[n] for n in (6, 0, 8, 3, 9, 1, 5, 2, 7, 4)]
    assert half_width([times], [times]) == pytest.approx(10**0.5 * half_width([mixed], [mixed]), rel=0.01)
    assert _alike([np.array(times)] * 2) == pytest.approx(0.945, abs=0.001)
    assert _alike([np.array(mixed)] * 2) == _alike([np.ones(10)] * 2) == _alike([np.arange(5.0)] * 2) == 0


@pytest.mark.parametrize("steps", [6, 10, 30])
def test_independent_steps_seldom_look_alike(steps):
    random = np.random.default_rng(32)
    found = [_alike(list(random.standard_normal((2, steps)))) > 0 for _ in range(1000)]
    assert sum(found) <= 20


def test_more_steps_are_a_cure_where_they_are_alike_and_take_longer_to_be():
    independent, alike = (Noise(4.0, 50.0, 0.0, math.inf, ((10,), (10,)), alike=r) for r in (0.0, 0.5))
    assert alike.half_width == pytest.approx(3**0.5 * independent.half_width)
    assert (independent.cure(1.5).steps, alike.cure(1.5).steps) == (50, 100)


@pytest.mark.parametrize(
    ("other", "expected"),
    [("0101010101", True), ("1010101010", True), ("010101010", False), ("001001001", True), ("0010010010", True),
     ("0010010000", False), ("0001001001", False), ("0010001001", False), ("0000000000", False), ("0100000001", False)],
)  # fmt: skip
def test_steps_of_another_kind_come_by_turns_from_one_end_of_the_recording_to_the_other(other, expected):
    assert _periodic(np.array([place == "1" for place in other])) == expected


def test_where_one_side_jumps_more_steps_are_no_cure():
    steady, jumping = (
        [100.0, 100.1, 99.9, 100.0, 100.1] * 2,
        [100.0, 110, 110, 100, 100, 110, 100, 110, 110, 100],
    )
    for sides in ((steady, jumping), (jumping, steady)):
        noise = measured_noise(*([side] for side in sides), expected=0.1, drift=0)
        assert noise.jumps
        assert noise.cure(3) == NoiseCure(steps=None, recordings=None)
    assert not measured_noise([steady], [steady], expected=0.1, drift=0).jumps


def test_more_steps_than_there_are_is_what_a_cure_asks_for():
    noise = Noise(4.0, 16.0, 0.0, math.inf, ((12,), (20,)))
    assert noise.cure(noise.half_width).steps == 30  # 20 are there, on one side


def test_a_jump_between_kinds_of_steps_is_no_drift():
    """Eight steps of fp32 to TF32, three of 15 ms and five of 20: the jump is told as such, and counts once."""
    steady = [[23.12, 23.14, 23.12, 23.1, 23.1, 23.07, 23.09]]
    jumps = [[15.18, 14.93, 15.75, 20.34, 20.39, 20.38, 20.53, 19.95]]
    assert measured_noise(steady, jumps, expected=0.2, drift=0.05).alike == 0
    drifts = [[15.0, 15.4, 16.1, 16.7, 17.2, 17.8, 18.3, 18.9]]
    assert measured_noise(steady, drifts, expected=0.2, drift=0.05).alike > 0.4
