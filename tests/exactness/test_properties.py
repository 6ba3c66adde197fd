"""What holds for every recording, tried on random ones; and the brute force once more, on those."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from profkit.model import Trace
from profkit.model.report import DeviceRow, Report
from profkit.report.assembly import summarise
from profkit.timeline.idle import QUEUE_LATENCY_NS
from tests.exactness.brute_idle import BruteIdle
from tests.exactness.comparison import told, worked_out
from tests.exactness.plain_files import Recording
from tests.exactness.strategies import recordings, trace_of

thorough = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@thorough
@given(recordings())
def test_every_number_equals_the_brute_force(recording: Recording) -> None:
    ours = told(summarise([trace_of(recording)]))
    by_hand = worked_out(BruteIdle(recording, QUEUE_LATENCY_NS))
    for number, value in by_hand.items():
        assert ours[number] == value, number


@thorough
@given(recordings())
def test_shares_add_up_to_the_window_and_no_time_is_counted_twice(recording: Recording) -> None:
    result = summarise([trace_of(recording)])
    for device in result.devices:
        assert min(device.shares.values()) >= 0
        assert sum(device.shares.values()) == device.window_ns
        assert device.busy_ns <= device.window_ns
    busy = sum(device.busy_ns for device in result.devices)
    assert busy + result.idle.total_ns == result.window.device_ns
    assert sum(result.idle.by_cause.values()) == result.idle.total_ns
    assert sum(result.verdict.shares.values()) == result.window.device_ns
    assert sum(row.cost_ns for row in result.syncs) == result.idle.by_cause["sync"]
    assert sum(device.window_ns for device in result.devices) == result.window.device_ns


@thorough
@given(recordings())
def test_steps_tile_the_window(recording: Recording) -> None:
    result = summarise([trace_of(recording)])
    kept = [step for step in result.window.steps if step.kept]
    for step in result.window.steps:
        assert sum(step.shares.values()) == step.device_ns
        assert 0 <= step.gpu_busy_ns <= step.device_ns
    if kept:
        assert sum(step.device_ns for step in kept) == result.window.device_ns
        damaged = {
            n for row in result.health.findings if row.code == "steps-damaged" for n in row.params["numbers"]
        }
        after_the_first = [
            n for n, step in enumerate(result.window.steps) if n >= result.window.steps.index(kept[0])
        ]
        assert [n for n in after_the_first if not result.window.steps[n].kept] == [
            n for n in after_the_first if n in damaged and result.window.steps[n] is not kept[0]
        ]
        for share, ns in result.verdict.shares.items():
            assert sum(step.shares[share] for step in kept) == ns


@thorough
@given(recordings())
def test_phases_and_what_has_none_divide_the_window(recording: Recording) -> None:
    result = summarise([trace_of(recording)])
    outermost = [row for row in result.phases if "/" not in row.path]
    for share, ns in result.verdict.shares.items():
        assert 0 <= sum(row.shares[share] for row in outermost) <= ns
    busy = ("compute", "memory", "unclassified", "communication", "transfer")
    in_phases = sum(row.shares[share] for row in outermost for share in busy)
    assert in_phases + result.health.gpu_ns_without_phase <= result.totals.gpu_busy_ns
    shares = {row.path: row.shares for row in result.phases}
    for path, inner in shares.items():
        outer = shares.get(path.rpartition("/")[0], inner)
        assert all(0 <= inner[share] <= outer[share] for share in inner)
    for row in result.phases:
        assert 0 <= row.gpu_exclusive_ns <= row.gpu_inclusive_ns <= result.totals.gpu_busy_ns


@pytest.mark.slow
@thorough
@given(recordings(), st.randoms(use_true_random=False))
def test_the_order_of_rows_changes_nothing(recording: Recording, random: Random) -> None:
    shuffled = Recording(
        *(random.sample(rows, len(rows)) for rows in (recording.ops, recording.calls, recording.spans))
    )
    shuffled.thread_names = recording.thread_names
    assert numbers(summarise([trace_of(shuffled)])) == numbers(summarise([trace_of(recording)]))


@pytest.mark.slow
@thorough
@given(recordings(), st.integers(-(10**6), 10**15))
def test_the_clock_that_a_recording_starts_at_changes_nothing(recording: Recording, shift: int) -> None:
    assert numbers(summarise([shifted(trace_of(recording), shift)])) == numbers(
        summarise([trace_of(recording)])
    )


@pytest.mark.slow
@thorough
@given(recordings(), recordings())
def test_two_recordings_of_one_report_have_the_numbers_of_each(one: Recording, other: Recording) -> None:
    traces = [_of_rank(trace_of(recording), rank) for rank, recording in enumerate((one, other))]
    together, alone = summarise(traces), [summarise([trace]) for trace in traces]
    assert together.totals.kernel_count == sum(single.totals.kernel_count or 0 for single in alone)
    for total in (
        "kernel_sum_ns",
        "kernel_union_ns",
        "gpu_busy_ns",
        "gpu_span_ns",
        "copy_ns",
        "communication_exposed_ns",
    ):
        assert getattr(together.totals, total) == sum(getattr(single.totals, total) for single in alone)
    # Steps are left out for all devices at once, so windows agree where neither leaves one out for the other.
    left_out = {_left_out(result) for result in (together, *alone)}
    if len({len(single.window.steps) for single in alone}) == 1 and len(left_out) == 1:
        assert [_of_device(row) for row in together.devices] == [
            _of_device(row) for single in alone for row in single.devices
        ]


def _of_rank(trace: Trace, rank: int) -> Trace:
    """Of another rank than the others: two of one rank follow each other, or are two runs."""
    return replace(trace, source=replace(trace.source, rank=rank))


def _left_out(result: Report) -> tuple[int, ...]:
    return tuple(number for number, step in enumerate(result.window.steps) if not step.kept)


def _of_device(row: DeviceRow) -> dict[str, Any]:
    return {key: getattr(row, key) for key in ("window_ns", "busy_ns", "shares")}


def numbers(result: Report) -> dict[str, Any]:
    """All that is a number of time; names of examples (the gap's neighbours, say) may depend on the order."""
    steps = [step.shares for step in result.window.steps]
    shares = [device.shares for device in result.devices]
    return {
        **told(result),
        "shares of steps": steps,
        "shares of devices": shares,
        "verdict": result.verdict.bound,
    }


def shifted(trace: Trace, shift: int) -> Trace:
    tables = {name: getattr(trace, name) for name in ("operations", "calls", "ranges")}
    moved = {
        name: replace(table, start_ns=table.start_ns + shift, end_ns=table.end_ns + shift)
        for name, table in tables.items()
    }
    return replace(trace, **moved)
