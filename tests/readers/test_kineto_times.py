"""Nanoseconds are exact in every way that a trace has been seen to write them, and order changes nothing."""

import json
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from profkit.model import OperationKind
from profkit.readers.kineto import read_kineto
from profkit.readers.kineto.times import IMPLAUSIBLE, MISSING, nanoseconds

EPOCH_NS = 1_712_345_678_901_234_567
MONTHS_NS = 7_889_238 * 10**9

FORMS = {
    "padded": lambda ns: f"{ns // 1000}.{ns % 1000:03d}",
    "quoted": lambda ns: f'"{ns // 1000}.{ns % 1000:03d}"',
    "shortest": lambda ns: f"{ns // 1000}.{ns % 1000:03d}".rstrip("0").rstrip("."),
}


def text_of(events: list[tuple[int, int]], form: str, header: str = "") -> bytes:
    write = FORMS[form]
    rows = [
        f'{{"ph": "X", "cat": "kernel", "name": "k{at}", "pid": 0, "tid": 7, "ts": {write(start)}, '
        f'"dur": {write(dur)}, "args": {{"device": 0, "stream": 7, "correlation": {at + 1}}}}}'
        for at, (start, dur) in enumerate(events)
    ]
    return f'{{{header} "traceEvents": [{", ".join(rows)}]}}'.encode()


durations = st.integers(0, 10**10)
relative = st.tuples(st.integers(1, MONTHS_NS - 1), durations)
near = st.tuples(st.integers(1, 10**12), durations)


@given(st.lists(relative, min_size=1, max_size=5), st.sampled_from(sorted(FORMS)))
def test_relative_times_are_exact_for_the_whole_quarter(events: list[tuple[int, int]], form: str) -> None:
    one = [events[0]]
    trace = read_kineto(text_of(one, form, '"baseTimeNanoseconds": 1000000000000000000,'), "x")
    assert trace.operations.start_ns.tolist() == [one[0][0]]
    assert (trace.operations.end_ns - trace.operations.start_ns).tolist() == [one[0][1]]
    values = [json.loads(FORMS["padded"](start)) for start, _ in events]
    assert nanoseconds(values).tolist() == [start for start, _ in events]


@given(st.lists(near, min_size=1, max_size=20), st.sampled_from(sorted(FORMS)))
def test_unix_times_with_fractions_are_exact(events: list[tuple[int, int]], form: str) -> None:
    trace = read_kineto(text_of([(EPOCH_NS + start, dur) for start, dur in events], form), "x")
    assert trace.unix_epoch_ns is not None
    absolute = trace.operations.start_ns + trace.unix_epoch_ns
    assert absolute.tolist() == [EPOCH_NS + start for start, _ in events]
    assert (trace.operations.end_ns - trace.operations.start_ns).tolist() == [dur for _, dur in events]
    assert trace.operations.start_ns.min() >= 0
    assert trace.operations.start_ns.max() < 2 * 10**12


@given(st.lists(near, min_size=2, max_size=12), st.randoms(use_true_random=False))
@settings(max_examples=50)
def test_the_order_of_events_changes_nothing(events: list[tuple[int, int]], rng: random.Random) -> None:
    document = json.loads(text_of(events, "padded"))
    document["traceEvents"] += [
        {
            "ph": "X",
            "cat": "cuda_runtime",
            "name": "cudaLaunchKernel",
            "pid": 5,
            "tid": 5,
            "ts": s / 1000,
            "dur": 1,
            "args": {"correlation": at + 1},
        }
        for at, (s, _) in enumerate(events)
    ]
    shuffled = {"traceEvents": list(document["traceEvents"])}
    rng.shuffle(shuffled["traceEvents"])
    facts = []
    for version in (document, shuffled):
        trace = read_kineto(json.dumps(version).encode(), "x")
        operations = zip(
            trace.names(trace.operations.name),
            trace.operations.start_ns.tolist(),
            trace.operations.end_ns.tolist(),
            strict=True,
        )
        calls = zip(trace.calls.start_ns.tolist(), trace.calls.correlation.tolist(), strict=True)
        facts.append((sorted(operations), sorted(calls), trace.unix_epoch_ns, dict(trace.dropped)))
    assert facts[0] == facts[1]


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (0, 0),
        (7, 7000),
        (-3, -3000),
        ("12.5", 12500),
        ("-0.001", -1),
        ("1e3", 1000000),
        (2**63, IMPLAUSIBLE),
        (-(2**63), IMPLAUSIBLE),
        (1e308, IMPLAUSIBLE),
        (float("inf"), IMPLAUSIBLE),
        (float("nan"), MISSING),
        (None, MISSING),
        ("soon", MISSING),
        ("1e999999999", IMPLAUSIBLE),
        (10**4000, IMPLAUSIBLE),
    ],
)
def test_values_that_are_no_plain_times(value: object, ns: int) -> None:
    assert nanoseconds([value]).tolist() == [ns]
    assert nanoseconds([value, "1", 2.5]).tolist() == [ns, 1000, 2500]


def test_times_of_different_kinds_in_one_file() -> None:
    assert nanoseconds([1, 2.5, 3]).tolist() == [1000, 2500, 3000]
    assert nanoseconds([]).dtype == np.int64


@pytest.mark.parametrize("launch", [{}, {"ts": 900_000, "dur": 1}, {"ts": 1e308, "dur": 1}])
def test_a_kernel_without_times_is_lost_also_where_its_launch_has_none(launch: dict[str, float]) -> None:
    kernel = {
        "ph": "X",
        "cat": "kernel",
        "name": "k",
        "pid": 0,
        "tid": 7,
        "args": {"device": 0, "correlation": 1},
    }
    call = {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel",
        "pid": 5,
        "tid": 5,
        "args": {"correlation": 1},
    }
    events = [
        kernel | {"ts": 0, "dur": 0},
        call | launch,
        kernel | {"ts": 900_000, "dur": 5, "args": {"device": 0}},
    ]
    trace = read_kineto(json.dumps({"traceEvents": events}).encode(), "x")
    assert trace.operations.start_ns.tolist() == [900_000_000]
    assert trace.dropped["lost_timestamps"] == 1


def test_events_that_cannot_be_are_dropped_and_counted() -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": str(at), "pid": 0, "tid": 7, "ts": 1000 + at, "dur": 5}
        for at in range(9)
    ]
    events[0]["dur"] = -1
    events[1].pop("dur")
    events[2].pop("ts")
    events[3]["ts"] = 10**15
    events[4]["dur"] = 10**14
    events[5]["dur"] = 0
    trace = read_kineto(json.dumps(events).encode(), "x")
    assert trace.dropped == {"reversed_times": 1, "missing_times": 2, "implausible_times": 2}
    assert sorted(trace.names(trace.operations.name)) == ["5", "6", "7", "8"]
    assert set(trace.operations.kind.tolist()) == {OperationKind.KERNEL}
