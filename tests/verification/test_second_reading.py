"""Marks that the profiler's stop lengthens, and names beyond all measure, in both readings."""

import json

import pytest

import profkit
from profkit.verification import verify


def event(category, name, start, length, **args):
    place = {"pid": 0, "tid": 7} if category == "kernel" else {"pid": 1, "tid": 1}
    return {"ph": "X", "cat": category, "name": name, "ts": start, "dur": length, "args": args, **place}


@pytest.mark.parametrize(("name", "length"), [("optimizer", 5_000), ("long " * 2_000, 20)])
def test_both_readings_say_the_same_of_a_phase(name, length, tmp_path):
    events = [
        event("user_annotation", "ProfilerStep#1", 0, 100),
        event("user_annotation", name, 60, length),
        event("cuda_runtime", "cudaLaunchKernel", 65, 5, correlation=3),
        event("kernel", "k", 75, 20, correlation=3, device=0, stream=7),
    ]
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({"traceEvents": events}))
    report = profkit.analyze(file).document
    found = verify(report, [str(file)])

    assert [row.host_wall_ns for row in report.phases] == [min(length, 40) * 1000]
    assert found.differing == []
    assert any(figure.endswith("host_wall_ns") for figure, *_ in found.figures)
