"""What a slow recorder hides is estimated, and said to be an estimate."""

import re

import pytest

import profkit
from tests.builders import TraceBuilder
from tests.shared import DATA


@pytest.mark.parametrize(
    ("file", "measured_ms", "bound"),
    [
        ("kineto/gpt_bf16.json.gz", (35.3, 38.3), "memory-bound"),
        ("kineto/gpt_bf16_compile.json.gz", (27.3, 28.0), "compute-bound"),
        ("kineto/tiny_mlp.json.gz", (13.0, 24.0), "launch-bound"),
    ],
)
def test_a_recorded_step_is_replayed_without_its_recorder(file, measured_ms, bound):
    caveat = profkit.analyze(DATA / file).verdict.caveats[-1]
    found = re.search(r"about ([\d.]+) ms and be ([\w-]+)", caveat)

    assert found, caveat
    assert found[2] == bound
    # Measured without a profiler; the estimate is held to 15 % beyond the range.
    assert measured_ms[0] * 0.85 <= float(found[1]) <= measured_ms[1] * 1.15


def test_nothing_is_estimated_where_the_step_was_timed_or_the_device_is_the_limit():
    file = DATA / "kineto/gpt_bf16.json.gz"

    assert profkit.analyze(file, plain_step_ns=38_300_000).verdict.caveats == []
    assert profkit.analyze(DATA / "kineto/gpt_fp32.json.gz").verdict.caveats == []


def test_a_recording_without_steps_has_no_estimate():
    from profkit.report.assembly import summarise

    made = (
        TraceBuilder(format="kineto")
        .kernel(0, 10_000, launch=(-5_000, -1_000))
        .kernel(90_000, 99_000, launch=(80_000, 81_000))
    )

    doubts = [fact.code for fact in summarise([made.trace()]).verdict.doubts]
    assert doubts == ["profiler-slows-host"]
