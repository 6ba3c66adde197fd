"""Steps of which records are missing leave the window, and are told."""

import pytest

from profkit.report.assembly import summarise
from tests.builders import TraceBuilder

US = 1_000


def steps(*kernels, lost=0, lost_in=(), length=100):
    """Steps of 100 us with so many kernels each of 8 us; some steps launch others that left no record."""
    made = TraceBuilder()
    for at, count in enumerate(kernels):
        start = at * length * US
        made.range(start, start + length * US, f"step {at}")
        for each in range(count):
            begin = start + each * 9 * US
            made.kernel(begin + 2 * US, begin + 10 * US, launch=(begin, begin + US))
        for each in range(lost if at in lost_in else 0):
            made.call(
                start + (50 + each) * US,
                start + (51 + each) * US,
                "cudaLaunchKernel",
                correlation=10_000 + 100 * at + each,
            )
    return made


def told(result):
    return {finding.code: finding for finding in result.health.findings}


def test_a_step_that_took_the_host_as_long_with_fewer_kernels_is_damaged():
    result = summarise([steps(10, 10, 1, 10, 0, 10).trace()])

    assert [row.kept for row in result.window.steps] == [True, True, False, True, False, True]
    assert (told(result)["steps-damaged"].severity, told(result)["steps-damaged"].count) == (
        "warning",
        2,
    )
    assert "steps-without-work" not in told(result)
    assert result.window.device_ns <= 4 * 100 * US


def test_launches_without_kernels_damage_a_step():
    result = summarise([steps(10, 10, 10, lost=3, lost_in=(1,)).trace()])
    assert [row.kept for row in result.window.steps] == [True, False, True]


@pytest.mark.parametrize("counts", [(10, 8, 10, 8), (10, 10, 10)])
def test_steps_that_differ_a_little_or_all_lose_alike_are_whole(counts):
    assert "steps-damaged" not in told(summarise([steps(*counts, lost=1, lost_in=range(9)).trace()]))


def test_one_kernel_more_or_less_of_a_few_is_no_damage():
    result = summarise([steps(2, 1, 9, 5).trace()])
    assert "steps-damaged" not in told(result)
    assert [row.kept for row in result.window.steps] == [True] * 4


def test_one_whole_step_of_many_is_too_few_for_a_verdict():
    result = summarise([steps(10, 0, 1, 0).trace()])
    assert result.verdict.bound == "unknown"
    assert result.verdict.undecided.code == "steps-damaged"


def test_a_step_whose_work_had_not_started_when_the_recording_ended_is_damaged_and_no_importers_fault():
    made = TraceBuilder().range(0, 100 * US, "step")
    made.kernel(10 * US, 900 * US, launch=(1 * US, 2 * US))
    made.call(3 * US, 4 * US, "cudaLaunchKernel", correlation=10_000)
    result = summarise([made.trace()])

    assert result.verdict.undecided.code == "steps-damaged"
    assert "launches-unstarted" in told(result)
    assert "importer-lost-rows" not in told(result)
