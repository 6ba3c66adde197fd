from dataclasses import replace

import numpy as np
import pytest

from profkit.comparison import compare_results
from profkit.comparison.noise import noise_of
from tests.comparison.recordings import of_steps, recorded, resampled, with_slower_kernels

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
        found.append(compare_results([first], [second]).verdict)
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
        found.append(compare_results([sides[0]], [sides[1]]))
    assert [f.verdict for f in found].count("no change") >= 0.95 * REPEATS
    assert {f.step["evidence"] for f in found} == {"step"}


def test_a_host_that_drifts_is_no_change_and_several_recordings_show_a_slower_one():
    random, result = np.random.default_rng(8), recorded("gpt_bf16", "kineto")

    def side(recordings, slower):
        runs = []
        for _ in range(recordings):
            idle = 10_000_000 * (1 + 0.1 * random.standard_normal()) + slower
            waits = idle * (1 + 0.05 * random.standard_normal(10))
            runs.append(of_steps(result, [[30_000_000, round(wait)] for wait in waits]))
        return runs

    same = [compare_results(side(1, 0), side(1, 0)).verdict for _ in range(REPEATS)]
    slower = [compare_results(side(10, 0), side(10, 2_800_000)).verdict for _ in range(40)]
    assert same.count("no change") >= 0.95 * REPEATS
    assert slower.count("slower") >= 0.95 * 40


def test_the_busy_time_decides_only_where_the_step_shows_its_change():
    result = recorded("gpt_fp32")

    def judged(*steps):
        return compare_results(*([of_steps(result, [list(step)] * 10)] for step in steps)).step

    shown = judged((50_000_000, 8_000_000), (52_000_000, 8_100_000))
    hidden = judged((50_000_000, 8_000_000), (52_000_000, 6_900_000))
    assert (shown["evidence"], hidden["evidence"]) == ("busy", "step")
    assert shown["noise_ns"] < hidden["noise_ns"]


@pytest.mark.parametrize("name", ["gpt_fp32", "elementwise_chain", "big_gemm_bf16"])
def test_kernels_that_became_5_percent_slower_are_seen_with_three_steps(name):
    found = compare_results([recorded(name)], [with_slower_kernels(name, 1.05)])
    assert found.verdict == "slower"
    assert found.parts[0]["kind"] == "kernels"
    assert sum(p["delta_ns"] for p in found.parts) == found.step["delta_ns"]


def test_slower_kernels_that_idle_time_hides_are_no_slower_step():
    found = compare_results([recorded("gpt_bf16")], [with_slower_kernels("gpt_bf16", 1.05)])
    assert found.verdict == "no change"  # the device was idle for 16 % of the step, and is less so now
    assert sum(p["delta_ns"] for p in found.parts if p["kind"] == "idle") < -1e6


def test_kernels_of_the_same_length_are_no_change():
    assert (
        compare_results([recorded("gpt_bf16")], [with_slower_kernels("gpt_bf16", 1.0)]).verdict == "no change"
    )


def test_a_change_is_told_exactly_when_it_is_beyond_the_noise():
    random = np.random.default_rng(3)
    for factor in np.linspace(0.9, 1.1, 60):
        first = resampled(recorded("gpt_bf16"), 5, random)
        second = resampled(recorded("gpt_bf16"), 5, random, factor=factor)
        found = compare_results([first], [second])
        beyond = abs(found.step["delta_ns"]) > found.step["noise_ns"]
        assert beyond == (found.verdict in ("slower", "faster"))


def test_recordings_of_one_side_that_differ_widen_the_noise():
    result = recorded("gpt_fp32")

    def run(ms):
        return of_steps(result, [[round(ms * 1e6), 1_000_000]] * 5)

    alike = compare_results([run(60), run(60)], [run(64), run(64)])
    apart = compare_results([run(56), run(64)], [run(60), run(68)])
    assert alike.verdict == "slower"
    assert apart.verdict == "no change"
    assert apart.step["noise_ns"] > 2 * alike.step["noise_ns"]


def test_more_steps_make_the_noise_smaller():
    random = np.random.default_rng(5)
    times = (100 + 5 * random.standard_normal(400)).tolist()
    widths = [noise_of([times[:n]], [times[200 : 200 + n]], 0) for n in (3, 10, 50, 200)]
    assert widths == sorted(widths, reverse=True)


def test_the_width_is_that_of_a_t_test_where_there_are_many_steps():
    random = np.random.default_rng(6)
    before, after = (100 + 5 * random.standard_normal((2, 2000))).tolist()
    expected = 2.326 * 5 * (2 / 2000) ** 0.5
    assert noise_of([before], [after], 0) == pytest.approx(expected, rel=0.05)


def test_nothing_measured_has_no_noise():
    assert noise_of([[]], [[1.0]], 1) == 0


def with_profiler(result, busy_ms, host_ms, profiler_ms):
    """Ten steps of which the profiler costs a part."""
    found = of_steps(result, [[round(1e6 * busy_ms), round(1e6 * (host_ms + profiler_ms))]] * 10)
    busy, gap = (next(p for p in found.window["parts"] if bool(p["cause"]) == idle) for idle in (False, True))
    gaps = [
        gap | {"cause": cause, "ns": round(1e7 * ms)}
        for cause, ms in (("host", host_ms), ("profiler", profiler_ms))
    ]
    return replace(found, window=found.window | {"parts": [busy, *gaps]})


def test_what_the_profiler_costs_is_told_and_is_no_verdict():
    result = recorded("gpt_fp32")
    before, slower, faster = (with_profiler(result, *ms) for ms in ((40, 1, 1), (10, 3, 60), (10, 3, 15)))
    told = compare_results([before], [faster])
    assert told.verdict == "faster"
    assert told.sentence.endswith("Without what the profiler costs: 41.0 ms → 13.0 ms.")
    opposite = compare_results([before], [slower])
    assert opposite.verdict == "not comparable"
    assert "Without a profiler the step would be faster: 41.0 ms before, 13.0 ms after" in opposite.sentence
