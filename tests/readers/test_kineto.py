"""Every trace that we have, against a second reading that shares no code with the first."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from profkit.errors import ReadError
from profkit.model import OperationKind, RangeKind, Severity, Trace
from profkit.readers import read
from profkit.readers.kineto import read_kineto
from tests.readers import kineto_by_hand as hand
from tests.shared import DATA, SHARED, needs_shared

OURS = sorted((DATA / "kineto").glob("*.json.gz"))
CORPUS = sorted((SHARED / "corpus" / "kineto").glob("*")) if SHARED.is_dir() else []
NO_TRACE = ("ibm__", "mlcommons__", "memory_timeline", "simple_add_et")
"""Parts of the names of the files that are no traces of torch.profiler."""

LARGE = 1_500_000
"""Bytes of a file that is read by plain loops for seconds."""


def slow_if_large(path: Path) -> list[pytest.MarkDecorator]:
    return [pytest.mark.slow] if path.stat().st_size > LARGE else []


TRACES = [pytest.param(path, id=path.name[:60]) for path in OURS] + [
    pytest.param(path, id=path.name[:60], marks=[pytest.mark.shared, *slow_if_large(path)])
    for path in CORPUS
    if not any(part in path.name for part in NO_TRACE)
]


def test_recordings_are_there() -> None:
    assert len(OURS) >= 10


@pytest.mark.parametrize("path", TRACES)
def test_same_as_by_hand(path: Path) -> None:
    trace, document = read(path), hand.load(path)
    assert isinstance(trace, Trace)
    _same_device_work(trace, document)
    _same_host_work(trace, document)
    assert trace.dropped == {}
    told = [finding for finding in trace.findings if finding.code != "other-accelerator"]
    assert all(finding.severity is Severity.INFO for finding in told)


def _same_device_work(trace: Trace, document: dict) -> None:
    epoch = trace.unix_epoch_ns or 0
    shift = 0 if "baseTimeNanoseconds" in document else epoch
    for kind, categories in (
        (OperationKind.KERNEL, hand.KERNEL),
        (OperationKind.COPY, hand.COPY),
        (OperationKind.MEMSET, hand.MEMSET),
    ):
        events = hand.of_category(document, categories)
        rows = trace.operations.take(trace.operations.kind == kind)
        spans = list(zip((rows.start_ns + shift).tolist(), (rows.end_ns + shift).tolist(), strict=True))
        assert sorted(spans) == sorted(hand.intervals(events))
        assert hand.union(spans) == hand.union(hand.intervals(events))
        sums: Counter = Counter()
        for name, dur in zip(trace.names(rows.name), (rows.end_ns - rows.start_ns).tolist(), strict=True):
            sums[name] += dur
        assert sums == hand.sums_by_name(events)
        link = hand.link_of(document)
        correlations = Counter(int(e.get("args", {}).get(link, 0)) for e in events)
        assert Counter(rows.correlation.tolist()) == correlations
        assert Counter(rows.bytes.tolist()) == Counter(e.get("args", {}).get("bytes", -1) for e in events)


def _same_host_work(trace: Trace, document: dict) -> None:
    calls = hand.of_category(document, hand.CALL)
    assert len(trace.calls) == len(calls)
    link = hand.link_of(document)
    assert Counter(trace.calls.correlation.tolist()) == Counter(e["args"].get(link, 0) for e in calls)
    assert int((trace.calls.end_ns - trace.calls.start_ns).sum()) == sum(hand.ns(e["dur"]) for e in calls)
    ranges = hand.of_category(
        document, ("cpu_op", "operator", "user_annotation", "python_function", "overhead")
    )
    assert Counter(trace.names(trace.ranges.name)) == Counter(e["name"] for e in ranges)
    assert int((trace.ranges.end_ns - trace.ranges.start_ns).sum()) == sum(hand.ns(e["dur"]) for e in ranges)
    with_sequence = [e["args"]["Sequence number"] for e in ranges if "Sequence number" in e.get("args", {})]
    known = trace.ranges.sequence[trace.ranges.sequence != -1]
    assert Counter(known.tolist()) == Counter(s for s in with_sequence if s != -1)
    assert len(trace.syncs) == len(hand.of_category(document, ("cuda_sync",)))
    instants = [e for e in document["traceEvents"] if e.get("ph") == "i" and e.get("name") == "[memory]"]
    assert Counter(trace.memory.bytes.tolist()) == Counter(e["args"]["Bytes"] for e in instants)


@pytest.mark.shared
@pytest.mark.parametrize(
    "path", [p for p in CORPUS if any(part in p.name for part in NO_TRACE)], ids=lambda p: p.name[:50]
)
def test_other_files_are_refused_in_one_line(path: Path) -> None:
    with pytest.raises(ReadError) as caught:
        read(path)
    assert "\n" not in str(caught.value)
    assert path.name in str(caught.value)


def test_ranges_are_of_the_right_kind() -> None:
    trace = read(DATA / "kineto" / "gpt_bf16.json.gz")
    names = trace.names(trace.ranges.name)
    annotations = set(names[trace.ranges.kind == RangeKind.ANNOTATION])
    assert {"forward", "backward", "optimizer"} <= annotations
    assert any(name.startswith("ProfilerStep#") for name in annotations)
    assert all("::" not in name or name.startswith(("nccl:", "FSDP::")) for name in annotations)
    operators = set(names[trace.ranges.kind == RangeKind.OPERATOR])
    assert "aten::mm" in operators


def test_shapes_and_types_of_operators_are_kept_as_they_are_written() -> None:
    path = DATA / "kineto" / "gpt_bf16.json.gz"
    trace, document = read(path), hand.load(path)
    written = Counter(
        (str(e["args"].get("Input Dims")), str(e["args"].get("Input type")).replace("'", '"'))
        for e in hand.of_category(document, ("cpu_op",))
        if "Input Dims" in e["args"]
    )
    rows = trace.ranges.take(trace.ranges.shapes >= 0)
    assert Counter(zip(trace.names(rows.shapes), trace.names(rows.dtypes), strict=True)) == written


def test_launches_keep_their_shape() -> None:
    path = DATA / "kineto" / "big_gemm_bf16.json.gz"
    trace, document = read(path), hand.load(path)
    kernels = hand.of_category(document, hand.KERNEL)
    rows = trace.operations.take(trace.operations.kind == OperationKind.KERNEL)
    got = Counter(
        zip(
            rows.grid_x.tolist(),
            rows.grid_y.tolist(),
            rows.block_x.tolist(),
            rows.registers.tolist(),
            rows.shared_bytes.tolist(),
            strict=True,
        )
    )
    assert got == Counter(
        (
            e["args"]["grid"][0],
            e["args"]["grid"][1],
            e["args"]["block"][0],
            e["args"]["registers per thread"],
            e["args"]["shared memory"],
        )
        for e in kernels
    )
    assert set(rows.stream.tolist()) == {e["args"]["stream"] for e in kernels}


def test_collectives_point_at_their_kernels() -> None:
    trace = read(DATA / "kineto" / "ddp_rank1.json.gz")
    assert len(trace.collectives) == 30
    kernels = trace.names(trace.operations.name[trace.collectives.operation])
    assert all(name.startswith("ncclDevKernel_AllReduce") for name in kernels)
    assert set(trace.names(trace.collectives.name)) == {"allreduce"}
    assert set(trace.names(trace.collectives.group)) == {"default_pg (0)"}
    assert set(trace.collectives.group_size.tolist()) == {2}
    assert set(trace.collectives.in_elements.tolist()) == {7085568, 7087872, 7680000, 7683840}


def test_collectives_point_at_their_kernels_when_others_are_dropped() -> None:
    def kernel(name: str, dur: int, **args: object) -> dict:
        return {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": 0,
            "tid": 7,
            "ts": 9,
            "dur": dur,
            "args": args,
        }

    said = {"Collective name": "allreduce", "Group size": 4, "Process Group Name": "7"}
    events = [kernel("a", -1), kernel("lost", -1, **said), kernel("b", 1), kernel("nccl", 2, **said)]
    trace = read_kineto(json.dumps(events).encode(), "x")
    assert trace.names(trace.operations.name[trace.collectives.operation]).tolist() == ["nccl"]
    assert (trace.names(trace.collectives.group).tolist(), trace.collectives.group_size.tolist()) == (
        ["7"],
        [4],
    )


def test_a_rank_its_device_and_its_machine() -> None:
    trace = read(DATA / "kineto" / "ddp_rank1.json.gz")
    assert trace.source.rank == 1
    assert [p.rank for p in trace.processes] == [1]
    device = trace.devices[0]
    assert (device.ordinal, device.name, device.sm_count, device.compute_capability) == (
        1,
        "NVIDIA H200",
        132,
        (9, 0),
    )
    assert trace.unix_epoch_ns == 1790857026 * 10**9
    assert trace.source.facts["cuda_runtime_version"] == "13.0"
    assert {name for thread in trace.threads for name in thread.names} == {"python", "pt_autograd_1"}


def test_devices_of_memory_events_are_those_of_kernels() -> None:
    """An AMD trace in a container numbers kernels by the machine's devices, and memory by the visible ones."""
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 2,
        "tid": 0,
        "ts": 1,
        "dur": 1,
        "args": {"device": 2},
    }
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 9, "tid": 9, "ts": 1}
    memory["args"] = {"Device Type": 1, "Device Id": 0, "Bytes": 512}
    host = memory | {"args": {"Device Type": 0, "Device Id": -1, "Bytes": 64}}
    trace = read_kineto(json.dumps([kernel, memory, host]).encode(), "x")
    assert [d.ordinal for d in trace.devices] == [2]
    assert sorted(zip(trace.memory.device.tolist(), trace.memory.bytes.tolist(), strict=True)) == [
        (-1, 64),
        (0, 512),
    ]


def test_device_events_are_of_the_process_that_launched_them() -> None:
    def event(cat: str, pid: int, correlation: int) -> dict:
        return {
            "ph": "X",
            "cat": cat,
            "name": "n",
            "pid": pid,
            "tid": 1,
            "ts": 9,
            "dur": 1,
            "args": {"correlation": correlation},
        }

    calls = [event("cuda_runtime", pid, correlation) for pid, correlation in ((70, 1), (70, 2), (80, 3))]
    kernels = [event("kernel", 0, correlation) for correlation in (3, 1, 0, 9)]
    python = [{"ph": "X", "cat": "python_function", "name": "f", "pid": 0, "tid": 0, "ts": 1, "dur": 1}]
    trace = read_kineto(json.dumps(calls + kernels + python).encode(), "x")
    assert [p.pid for p in trace.processes] == [70, 80]
    assert dict(
        zip(trace.operations.correlation.tolist(), trace.operations.process.tolist(), strict=True)
    ) == {3: 1, 1: 0, 0: 0, 9: 0}
    assert trace.threads[int(trace.ranges.thread[0])].process == 0


def test_nothing_that_says_who_recorded_is_kept() -> None:
    for path in OURS:
        trace = read(path)
        assert not {"host_name", "username", "trace_id", "traceName"} & set(trace.source.facts)


def test_tables_are_whole() -> None:
    trace = read(DATA / "kineto" / "ddp_rank0.json.gz")
    assert trace.operations.device.max() < len(trace.devices)
    assert trace.calls.thread.max() < len(trace.threads)
    assert trace.ranges.thread.max() < len(trace.threads)
    for column in (trace.operations.name, trace.calls.name, trace.ranges.name, trace.ranges.shapes):
        assert column.max() < len(trace.strings)
        assert column.min() >= -1
    assert np.all(trace.operations.end_ns >= trace.operations.start_ns)


@needs_shared
@pytest.mark.shared
def test_the_version_of_torch_is_read_from_its_stacks() -> None:
    trace = read(SHARED / "recordings" / "kineto" / "gpt_bf16_stack.json.gz")
    assert trace.source.tool_version == "2.11"
    assert (trace.ranges.kind == RangeKind.PYTHON).sum() == 8828
    assert trace.memory.total_allocated.max() > 0


def test_ranges_that_outlast_the_last_step_end_where_the_profiler_stops() -> None:
    """A program that calls step() within its own range charged the profiler's stop and export to it."""

    def event(name: str, ts: float, dur: float, pid: int = 1, cat: str = "user_annotation") -> dict:
        return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "args": {}}

    events = [
        event("ProfilerStep#1", 100, 50),
        event("optimizer", 140, 20),
        event("ProfilerStep#2", 150, 50),
        event("optimizer", 190, 9000),
        event("aten::add", 195, 8000, cat="cpu_op"),
        event("later", 300, 10),
        event("elsewhere", 100, 500, pid=2),
    ]
    trace = read_kineto(json.dumps({"traceEvents": events}).encode(), "trace.json")
    ends = [
        (trace.strings[name], start, end - start)
        for name, start, end in zip(
            trace.ranges.name, trace.ranges.start_ns, trace.ranges.end_ns, strict=True
        )
    ]
    assert sorted(ends) == sorted(
        [
            ("ProfilerStep#1", 100_000, 50_000),
            ("optimizer", 140_000, 20_000),
            ("ProfilerStep#2", 150_000, 50_000),
            ("optimizer", 190_000, 10_000),
            ("aten::add", 195_000, 5_000),
            ("later", 300_000, 10_000),
            ("elsewhere", 100_000, 500_000),
        ]
    )
