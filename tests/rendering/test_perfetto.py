"""The exported timeline says the same as the report of the same files."""

import gzip
import json

import pytest

import profkit
from profkit.api import export_timeline
from profkit.model.report_memory import MemoryCurve
from profkit.rendering.perfetto import render_perfetto
from profkit.report.assembly import timelines
from profkit.report.views import Options
from tests.advice.made_steps import ADD, loop
from tests.shared import DATA

TRACE, SNAPSHOT = DATA / "kineto/sync_item.json.gz", DATA / "snapshot/sync_item.pickle.gz"


def events_of(files):
    return json.loads(gzip.decompress(export_timeline(files)))["traceEvents"]


@pytest.mark.parametrize("files", [[TRACE, SNAPSHOT], [SNAPSHOT]], ids=["beside a trace", "alone"])
def test_memory_is_a_counter_with_the_reports_peaks(files):
    memory = profkit.analyze(files).as_dict()["memory"]
    counters = [each["args"] for each in events_of(files) if each["name"].startswith("memory")]
    assert max(each["allocated"] for each in counters) == memory["peak_allocated_bytes"]
    assert max(each["reserved"] for each in counters) == memory["peak_reserved_bytes"]


def test_what_is_unknown_of_memory_is_left_out():
    curve = MemoryCurve(id=0, device=0, time_ns=[1500], allocated_bytes=None, reserved_bytes=[7], phases=[])
    timeless = MemoryCurve(id=1, device=1, time_ns=None, allocated_bytes=[3], reserved_bytes=[7], phases=[])
    text = gzip.decompress(render_perfetto([], [], [curve, timeless]))
    assert json.loads(text)["traceEvents"] == [
        {"ph": "C", "pid": 1, "tid": 0, "ts": 1.5, "name": "memory of device 0", "args": {"reserved": 7}}
    ]


@pytest.mark.parametrize("file", ["kineto/tiny_mlp.json.gz", "nsys/ddp.sqlite.gz"])
def test_every_kernel_is_on_it(file):
    report = profkit.analyze(DATA / file).as_dict()
    slices = [event for event in events_of(DATA / file) if event["ph"] == "X"]
    kernels = {kernel["name"]: kernel["count"] for kernel in report["totals"]["kernels"]}
    drawn = dict.fromkeys(kernels, 0)
    for each in slices:
        if each["args"].get("name") in kernels:
            drawn[each["args"]["name"]] += 1
    assert drawn == kernels
    assert all(each["dur"] >= 0 for each in slices)


def test_the_launch_queue_is_what_was_launched_and_has_not_begun():
    def body(step, number):
        for _ in range(3):
            step.launch(ADD, 300, host=10)

    trace = loop(body)
    views, _ = timelines([trace], Options())
    text = gzip.decompress(render_perfetto(views, [0]))
    found = [each for each in json.loads(text)["traceEvents"] if each["name"] == "launch queue"]
    launched, begun = views[0].launches.time_ns.tolist(), trace.operations.start_ns.tolist()

    assert max(each["args"]["operations"] for each in found) > 2
    assert found[-1]["args"]["operations"] == 0
    for each in found:
        at = each["ts"] * 1000
        expected = sum(time <= at + 0.5 for time in launched) - sum(time <= at + 0.5 for time in begun)
        assert each["args"]["operations"] == expected
