"""The step without a profiler: estimated where nobody timed it, its shares, and what sets its pace."""

import json
import shutil

import pytest

import profkit
from tests.builders import TraceBuilder
from tests.shared import DATA


@pytest.mark.parametrize(
    ("file", "measured_ms", "bound"),
    [
        ("kineto/gpt_bf16.json.gz", (35.3, 38.3), "memory"),
        ("kineto/gpt_bf16_compile.json.gz", (27.3, 28.0), "compute"),
        ("kineto/tiny_mlp.json.gz", (13.0, 24.0), "launch"),
    ],
)
def test_a_recorded_step_is_replayed_without_its_recorder(file, measured_ms, bound):
    document = profkit.analyze(DATA / file).document
    step, verdict = document.step, document.verdict

    assert (step.source, verdict.bound) == ("estimated", bound)
    # Measured without a profiler; the estimate is held to 15 % beyond the range.
    assert measured_ms[0] * 0.85 <= step.unprofiled_ns.likely / 1e6 <= measured_ms[1] * 1.15
    assert step.unprofiled_ns.low <= step.unprofiled_ns.likely <= step.unprofiled_ns.high
    assert sum(verdict.unprofiled_shares.values()) == step.unprofiled_ns.likely
    assert "an estimate of" in verdict.caveats[-1]


def test_nothing_is_estimated_where_the_step_was_timed():
    document = profkit.analyze(DATA / "kineto/gpt_bf16.json.gz", plain_step_ns=38_300_000).document

    assert (document.step.source, document.step.unprofiled_ns.likely) == ("measured", 38_300_000)
    assert sum(document.verdict.unprofiled_shares.values()) == 38_300_000
    assert document.verdict.caveats == []


def test_where_the_device_is_the_limit_the_estimate_needs_no_word():
    assert profkit.analyze(DATA / "kineto/gpt_fp32.json.gz").verdict.caveats == []


def test_under_nsys_the_recorded_step_stands_and_may_be_longer_without_it():
    step = profkit.analyze(DATA / "nsys/tiny_mlp.sqlite.gz").document.step

    assert (step.source, step.unprofiled_ns.likely) == ("recorded", step.recorded_ns)
    assert step.unprofiled_ns.low < step.recorded_ns < step.unprofiled_ns.high


@pytest.mark.parametrize(
    ("listed", "plain_ns", "source"),
    [
        (["trace.json.gz"], 38_300_000, "measured"),
        (["other.json.gz"], 38_300_000, "estimated"),
        # The GPU is busy for 34 ms of each step.
        (["trace.json.gz"], 20_000_000, "estimated"),
    ],
)
def test_a_run_file_counts_for_what_it_lists_and_when_it_is_possible(tmp_path, listed, plain_ns, source):
    shutil.copy(DATA / "kineto/gpt_bf16.json.gz", tmp_path / "trace.json.gz")
    run = {"schema": "profkit.run/1", "plain_step_median_ns": plain_ns, "files": listed}
    (tmp_path / "run.json").write_text(json.dumps(run))

    for path in (tmp_path, tmp_path / "trace.json.gz"):
        assert profkit.analyze(path).document.step.source == source


def test_a_recording_without_steps_has_no_estimate():
    from profkit.report.assembly import summarise

    made = (
        TraceBuilder(format="kineto")
        .kernel(0, 10_000, launch=(-5_000, -1_000))
        .kernel(90_000, 99_000, launch=(80_000, 81_000))
    )

    doubts = [fact.code for fact in summarise([made.trace()]).verdict.doubts]
    assert doubts == ["profiler-slows-host"]
