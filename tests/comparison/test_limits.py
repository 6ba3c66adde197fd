"""What a limit allows, and on which side of it a number falls: each number just within and just beyond."""

import pytest

from profkit.comparison import Limits, compare_reports, judge_limits
from profkit.comparison.gate import _outcome
from profkit.comparison.limits import DEFAULT_LIMIT, Limit
from profkit.errors import AnalysisError
from profkit.model.rows import replace
from tests.comparison.recordings import of_steps, recorded

QUIET = (-0.002, 0.001, 0.0, 0.002, -0.001) * 2
RESTLESS = (-0.2, 0.1, 0.0, 0.2, -0.1) * 2


def step_of(milliseconds, spread=QUIET):
    times = [[round(1e6 * milliseconds * (1 + part)), 0] for part in spread]
    return of_steps(recorded("gpt_fp32"), times)


def judged(limits, report, baseline=None):
    against = compare_reports([baseline], [report]) if baseline else None
    return judge_limits(Limits.of(limits), report, baseline, against)


def outcome(limits, report, baseline=None):
    (row,) = judged(limits, report, baseline)
    return row.outcome


@pytest.mark.parametrize(
    ("limit", "after", "expected"),
    [("+3%", 102.9, "kept"), ("+3%", 103.1, "broken"), ("+3ms", 102.9, "kept"), ("+3ms", 103.1, "broken"),
     ("103ms", 102.9, "kept"), ("103ms", 103.1, "broken"), ("+3%", 50, "kept")],
)  # fmt: skip
def test_a_quiet_step_keeps_its_limit_up_to_its_end(limit, after, expected):
    assert outcome({"max-step": limit}, step_of(after), step_of(100)) == expected


@pytest.mark.parametrize(
    ("after", "expected"),
    [(100, "unknown"), (104, "unknown"), (96, "unknown"), (250, "broken"), (20, "kept")],
)
def test_a_restless_step_is_unknown_but_far_from_the_limit(after, expected):
    report, baseline = step_of(after, RESTLESS), step_of(100, RESTLESS[::-1])
    (row,) = judged({"max-step": "+3%"}, report, baseline)
    assert row.outcome == expected
    assert (row.cure is not None) == (expected == "unknown")


@pytest.mark.parametrize(
    ("delta", "noise", "expected"),
    [(3, 1, "kept"), (3.1, 1, "broken"), (3, 3, "kept"), (3.1, 3, "broken"),
     (13, 5, "unknown"), (13.1, 5, "broken"), (-7, 5, "kept"), (-6.9, 5, "unknown")],
)  # fmt: skip
def test_a_difference_within_twice_the_noise_of_a_limit_of_3_decides_only_where_the_noise_is_smaller(
    delta, noise, expected
):
    assert _outcome(delta, noise, 3) == expected


def test_the_limit_and_not_the_noise_is_what_a_quiet_step_must_keep():
    report, baseline = step_of(102), step_of(100)
    (row,) = judged({"max-step": "+5%"}, report, baseline)
    assert row.params["noise_ns"] < row.params["delta_ns"]  # a change that is seen, and allowed
    assert row.outcome == "kept"


def test_more_noise_than_the_limit_allows_opens_no_gate_though_the_median_did_not_move():
    report, baseline = step_of(100), step_of(100, RESTLESS)
    (row,) = judged({"max-step": "+3%"}, report, baseline)
    assert row.params["noise_ns"] > 0.03 * row.params["before_ns"]
    assert row.outcome == "unknown"


def test_without_any_limit_the_step_has_the_default_one():
    assert outcome({}, step_of(102.5), step_of(100)) == "kept"
    assert outcome({}, step_of(103.5), step_of(100)) == "broken"
    assert (DEFAULT_LIMIT.amount, DEFAULT_LIMIT.relative, DEFAULT_LIMIT.percent) == (0.03, True, True)


def with_phase(report, milliseconds):
    phase = replace(
        recorded("gpt_fp32").phases[0], path="forward", gpu_inclusive_ns=round(1e7 * milliseconds)
    )
    return replace(report, phases=[phase])


@pytest.mark.parametrize(
    ("limit", "after", "expected"),
    [("+5%", 52.4, "kept"), ("+5%", 52.6, "broken"), ("51ms", 50.9, "kept"), ("51ms", 51.1, "broken")],
)
def test_a_phase_keeps_its_limit_up_to_its_end(limit, after, expected):
    before, report = with_phase(step_of(100), 50), with_phase(step_of(100), after)
    assert outcome({"max-phase": {"forward": limit}}, report, before) == expected


def test_a_phase_of_a_restless_step_cannot_be_judged_and_is_noisier_than_its_share():
    before, report = with_phase(step_of(100, RESTLESS), 25), with_phase(step_of(100, RESTLESS[::-1]), 26)
    (row,) = judged({"max-phase": {"forward": "+5%"}}, report, before)
    step = judged({"max-step": "+5%"}, report, before)[0]
    assert row.outcome == "unknown"
    assert row.params["noise_ns"] == pytest.approx(step.params["noise_ns"] / 2, rel=0.02)


def test_5_percent_of_a_quarter_of_the_step_take_as_many_steps_as_2_and_a_half_of_the_whole():
    """A quarter has half the noise, and so is as hard to judge as the step to half of the limit."""
    spread = [part / 6 for part in RESTLESS]
    before, report = with_phase(step_of(100, spread), 25), with_phase(step_of(100, spread[::-1]), 26)
    (row,) = judged({"max-phase": {"forward": "+5%"}}, report, before)
    (as_much,) = judged({"max-step": "+2.5%"}, report, before)
    (as_little,) = judged({"max-step": "+1.25%"}, report, before)
    assert row.cure == as_much.cure != as_little.cure
    assert row.cure.steps


def with_memory(size):
    memory = replace(recorded_memory(), peak_allocated_bytes=size)
    return replace(step_of(100), memory=memory)


def recorded_memory():
    import profkit
    from tests.shared import DATA

    return profkit.analyze(DATA / "snapshot" / "leak.pickle.gz").document.memory


@pytest.mark.parametrize(
    ("limit", "size", "expected"),
    [("+2%", 1020, "kept"), ("+2%", 1021, "broken"), ("1KiB", 1024, "kept"), ("1KiB", 1025, "broken"),
     ("1KB", 1000, "kept"), ("1KB", 1001, "broken"), ("+100B", 1100, "kept"), ("+100B", 1101, "broken")],
)  # fmt: skip
def test_memory_keeps_its_limit_up_to_its_end(limit, size, expected):
    assert outcome({"max-memory": limit}, with_memory(size), with_memory(1000)) == expected


def with_launches(each):
    report = step_of(100)
    return replace(report, kernels=[replace(recorded("gpt_fp32").kernels[0], count=10 * each)])


@pytest.mark.parametrize(
    ("limit", "count", "expected"),
    [("+5%", 105, "kept"), ("+5%", 106, "broken"), ("105", 105, "kept"), ("105", 106, "broken"), ("+5", 106, "broken")],
)  # fmt: skip
def test_launches_keep_their_limit_up_to_its_end(limit, count, expected):
    assert outcome({"max-launches": limit}, with_launches(count), with_launches(100)) == expected


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"min-busy": "80%"}, "kept"), ({"min-busy": "81%"}, "broken"), ({"max-idle": "20%"}, "kept"), ({"max-idle": "19%"}, "broken")],
)  # fmt: skip
def test_shares_keep_their_limit_up_to_its_end(limits, expected):
    report = of_steps(recorded("gpt_fp32"), [[80_000_000, 20_000_000]] * 10)
    assert outcome(limits, report) == expected


@pytest.mark.parametrize(
    ("text", "amount"),
    [("40B", 40), ("2KB", 2e3), ("2KiB", 2048), ("3MB", 3e6), ("3MiB", 3 << 20), ("4GiB", 4 << 30), ("1TB", 1e12), ("1.5 GiB", 1.5 * (1 << 30))],
)  # fmt: skip
def test_sizes_are_read_with_their_unit(text, amount):
    assert Limit.parse("max-memory", text).amount == amount


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("max-step", "3%"),
        ("min-busy", "+80%"),
        ("min-busy", "80"),
        ("max-memory", "3"),
        ("max-launches", "3kg"),
    ],
)
def test_what_is_no_limit_is_refused(name, text):
    with pytest.raises(AnalysisError, match="is no limit for it"):
        Limit.parse(name, text)


def test_only_limits_over_a_baseline_need_one():
    assert Limits.of({}).need_a_baseline
    assert Limits.of({"max-step": "+3%", "min-busy": "80%"}).need_a_baseline
    assert Limits.of({"max-phase": {"forward": "+3%"}}).need_a_baseline
    assert not Limits.of({"max-step": "42ms", "max-phase": {"forward": "3ms"}}).need_a_baseline
