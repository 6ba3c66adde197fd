"""Traces of several ranks merged into one: pids are texts, `[TP00] 4242`, and each rank counts ids and devices for itself."""

import json

import numpy as np
import pytest

import profkit
from profkit.readers.kineto import read_kineto
from profkit.verification import verify

US = 1000


def merged(ranks=("[TP00]", "[TP01]"), device=lambda rank: 0, pid=4242):
    """Three steps of each rank: one kernel of 700 us of the first, 600 us of the second, launched under one id."""
    events = []
    for at, label in enumerate(ranks):
        host = {"pid": f"{label} {pid}" if label else pid + at, "tid": 1}
        on_device = {"pid": f"{label} {device(at)}" if label else device(at), "tid": 7}
        for step in range(3):
            start = 1000 * (step + 1)
            events += [
                {"cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": start, "dur": 1000, **host},
                {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": start + 20, "dur": 5, **host,
                 "args": {"correlation": step + 1}},
                {"cat": "kernel", "name": "gemm", "ts": start + 40, "dur": 700 - 100 * at, **on_device,
                 "args": {"device": device(at), "stream": 7, "correlation": step + 1}},
                {"cat": "cuda_sync", "name": "Stream Sync", "ts": start + 900, "dur": 1, **on_device,
                 "args": {"stream": 7, "correlation": 90 + step}},
            ]  # fmt: skip
        events.append({"ph": "i", "name": "[memory]", "ts": 1500, **host,
                       "args": {"Device Type": 1, "Device Id": device(at), "Bytes": 512, "Addr": 1}})  # fmt: skip
    return {"traceEvents": [{"ph": "X", **event} for event in events]}


def trace_of(document):
    return read_kineto(json.dumps(document).encode(), "trace.json")


@pytest.mark.parametrize("device", [lambda rank: 0, lambda rank: rank], ids=["one-number", "own-numbers"])
def test_merged_ranks_are_devices_and_processes_of_their_own(device):
    trace = trace_of(merged(device=device))
    assert [d.ordinal for d in trace.devices] == [device(0), device(1)]
    assert [(p.pid, p.rank) for p in trace.processes] == [(4242, 0), (4242, 1)]
    time = trace.operations.end_ns - trace.operations.start_ns
    assert [int(time[trace.operations.device == d].sum()) for d in (0, 1)] == [2100 * US, 1800 * US]
    assert trace.operations.process.tolist() == trace.operations.device.tolist()
    assert sorted(trace.syncs.process.tolist()) == [0, 0, 0, 1, 1, 1]
    assert trace.memory.device.tolist() == [0, 1]


def test_every_launch_has_the_kernel_of_its_rank(tmp_path):
    file = tmp_path / "merged.json"
    file.write_text(json.dumps(merged()))
    report = profkit.analyze(file)
    assert report.document.health.launches_without_kernel == 0
    assert [row.busy_ns for row in report.document.devices] == [2100 * US, 1800 * US]
    assert [row.rank for row in report.document.devices] == [0, 1]
    assert not verify(report.document, [str(file)]).differing


def test_a_label_of_several_numbers_tells_no_rank():
    trace = trace_of(merged(("[TP00-DP01]", "[TP01-DP01]")))
    assert len(trace.devices) == 2
    assert [p.rank for p in trace.processes] == [None, None]


def test_plain_pids_share_their_devices():
    trace = trace_of(merged(("", "")))
    assert len(trace.devices) == 1
    assert [p.pid for p in trace.processes] == [4242, 4243]
    assert np.array_equal(trace.operations.device, np.zeros(6))
