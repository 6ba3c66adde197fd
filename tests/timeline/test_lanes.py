"""The representative step: each bar says which phase it belongs to."""

import json
from pathlib import Path

import pytest

import profkit

DATA = Path(__file__).parents[1] / "data"


@pytest.mark.parametrize("name", ["nsys/gpt_bf16.sqlite.gz", "kineto/gpt_bf16.json.gz"])
def test_idle_bars_have_the_phase_of_the_gap_that_they_are(name):
    result = profkit.analyze([DATA / name]).document
    bars = {bar[0]: bar for lane in result.timeline.lanes if lane.kind == "idle" for bar in lane.bars}
    phases = {
        gap.phase: (gap.phase, bars[gap.start_ns][4]) for gap in result.idle.gaps if gap.start_ns in bars
    }
    assert len(phases) > 1
    assert all(gap == bar for gap, bar in phases.values())


@pytest.mark.parametrize("name", ["nsys/gpt_bf16.sqlite.gz", "kineto/gpt_bf16.json.gz"])
def test_bars_of_streams_and_threads_name_phases_of_the_report(name):
    result = profkit.analyze([DATA / name]).document
    known = {row.path for row in result.phases} | {None}
    for kind in ("stream", "thread"):
        found = {bar[4] for lane in result.timeline.lanes if lane.kind == kind for bar in lane.bars}
        assert found <= known
        assert {"forward", "backward"} <= {path.split("/")[0] for path in found if path}


def test_threads_of_one_name_are_told_apart_by_their_number(tmp_path):
    events = [
        {
            "ph": "X",
            "cat": "user_annotation",
            "name": "ProfilerStep#1",
            "pid": 1,
            "tid": 11,
            "ts": 0,
            "dur": 900,
        }
    ]
    for thread, name in ((11, "python"), (12, "python"), (13, "loader")):
        times = {"pid": 1, "tid": thread, "ts": 10 * thread, "dur": 5}
        events += [
            {"ph": "M", "name": "thread_name", "pid": 1, "tid": thread, "args": {"name": name}},
            {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", **times, "args": {"correlation": thread}},
            {"ph": "X", "cat": "kernel", "name": f"k{thread}", "pid": 0, "tid": 7, "ts": 10 * thread + 5, "dur": 8,
             "args": {"correlation": thread, "device": 0, "stream": 7}},
        ]  # fmt: skip
    (tmp_path / "trace.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    lanes = profkit.analyze([tmp_path / "trace.json"]).document.timeline.lanes
    labels = {lane.label for lane in lanes if lane.kind == "thread"}
    assert labels == {"python (thread 11)", "python (thread 12)", "loader"}
