"""What a person asks for is there, or is said not to be."""

import pytest

import profkit
from profkit.report.assembly import summarise
from profkit.report.views import Options
from tests.builders import TraceBuilder
from tests.shared import DATA

CASES = DATA / "cases"


def test_a_step_that_no_range_is_named_after_is_refused_with_the_names_that_there_are():
    made = TraceBuilder().range(0, 10, "microbatch").kernel(5, 8, launch=(1, 2)).trace()

    with pytest.raises(profkit.AnalysisError, match=r"foo.*no range has this name.*microbatch"):
        summarise([made], Options(step_name="foo"))


@pytest.mark.parametrize("device", [-1, 2])
def test_a_device_that_is_not_there_is_refused(device):
    made = TraceBuilder(devices=2).kernel(5, 8, launch=(1, 2)).trace()

    with pytest.raises(profkit.AnalysisError, match="0 to 1"):
        summarise([made], Options(device=device))


def test_one_device_of_several_is_reported_alone():
    made = TraceBuilder(devices=2).kernel(5, 8, launch=(1, 2)).kernel(20, 50, launch=(3, 4), device=1).trace()
    result = summarise([made], Options(device=1))

    assert [row.id for row in result.devices] == [1]
    assert result.totals.kernel_sum_ns == 30


def test_one_file_of_several_may_fail_and_is_named():
    report = profkit.analyze([CASES / "22b_empty_file.json", CASES / "21_async_step_tail.json"])
    found = [f for f in report.document.health.findings if f.code == "file-failed"]

    assert len(found) == 1
    assert "22b_empty_file.json" in found[0].message
    assert report.document.totals.kernel_count == 3


def test_when_all_files_fail_one_says_why():
    with pytest.raises(profkit.ReadError):
        profkit.analyze([CASES / "22b_empty_file.json", CASES / "93c_not_a_database.sqlite"])


def test_advice_without_steps_speaks_of_the_recording_and_is_trusted_less():
    files = [DATA / "nsys/tiny_mlp.sqlite.gz"]
    stepped, whole = profkit.analyze(files), profkit.analyze(files, step="forward")
    plain = profkit.analyze(DATA / "cases/27_launch_api_names.json")

    assert stepped.document.advice
    assert len(whole.document.window.steps) == 3
    assert all("a step" not in row.why for row in plain.document.advice)
    assert {row.confidence for row in plain.document.advice} <= {"low"}


def test_allocating_while_it_starts_is_no_churn_of_steps():
    report = profkit.analyze(DATA / "nsys/tiny_mlp.sqlite.gz")
    made = TraceBuilder(format="kineto").kernel(-500, 0, launch=(-900, -800)).call(0, 900_000, "cudaMalloc")
    made.kernel(1_000_000, 1_400_000, launch=(950_000, 960_000)).kernel(
        1_400_000, 1_900_000, launch=(970_000, 980_000)
    )
    whole = summarise([made.trace()])
    made.range(-100_000, 1_950_000, "step")

    assert whole.idle.by_cause["allocation"] == 900_000
    assert "allocator-churn" not in {row.id for row in [*whole.advice, *report.document.advice]}
    assert any("lloc" in row.title for row in summarise([made.trace()]).advice)
