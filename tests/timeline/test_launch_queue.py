"""Calls that the device holds up: launches before a full queue, copies whose stream is busy."""

import pytest

from profkit.model import OperationKind
from profkit.report.assembly import summarise
from profkit.report.views import view_trace
from profkit.timeline.launch_queue import find_queue
from profkit.timeline.launches import find_launches
from tests.builders import TraceBuilder
from tests.exactness.brute_idle import BruteIdle
from tests.exactness.comparison import told, worked_out
from tests.exactness.plain_files import Call, Op, Recording
from tests.exactness.strategies import trace_of

US = 1_000


def queue_of(builder):
    trace = builder.trace()
    return find_queue(trace, find_launches(trace))


def launched_ahead(count, *, blocked_us=90, stream_of_last=7, **columns):
    """So many kernels of 100 us, launched in 5 us each; the last call takes longer."""
    made = TraceBuilder()
    made.kernel(-100 * US, 0, launch=(-120 * US, -115 * US))
    for at in range(count):
        made.kernel(
            at * 100 * US + 90_000 * US,
            (at + 1) * 100 * US + 90_000 * US,
            launch=(at * 5 * US, at * 5 * US + 5 * US),
        )
    at = count * 5 * US
    return made.kernel(
        10**9, 10**9 + US, launch=(at, at + blocked_us * US), stream=stream_of_last, **columns
    )  # fmt: skip


@pytest.mark.parametrize(
    ("made", "blocked"),
    [
        (launched_ahead(1_000), True),
        (launched_ahead(999), False),
        (launched_ahead(1_000, blocked_us=25), False),  # five usual calls
        (launched_ahead(1_000, blocked_us=26), True),
        (launched_ahead(1_000, stream_of_last=8), False),  # its own stream is empty, and its device is idle
        (launched_ahead(1_000, kind=OperationKind.COPY, api="cudaMemcpyAsync"), False),
    ],
)
def test_a_launch_call_blocks_by_the_depth_of_its_stream_and_by_its_length(made, blocked):
    queue = queue_of(made)

    assert bool(queue.blocked[-1]) == blocked
    assert not queue.blocked[:-1].any()
    assert queue.usual_ns == 5 * US


def test_where_most_calls_block_the_usual_call_is_one_that_found_room():
    made = launched_ahead(1_000)
    at = 1_000 * 5 * US + 90 * US
    for _ in range(2_000):
        made.kernel(10**9, 10**9 + US, launch=(at, at + 90 * US))
        at += 95 * US

    queue = queue_of(made)

    assert queue.blocked.sum() == 2_001
    assert queue.usual_ns == 5 * US


@pytest.mark.parametrize(("busy_from", "blocked"), [(25, True), (26, False)])
def test_before_the_first_recorded_start_of_its_stream_a_busy_device_tells(busy_from, blocked):
    made = TraceBuilder()
    made.kernel(busy_from * US, 100 * US).kernel(200 * US, 300 * US, launch=(0, 100 * US))
    for at in range(9):
        made.kernel((300 + at) * US, (301 + at) * US, launch=((101 + at) * US, (102 + at) * US))

    assert queue_of(made).blocked.tolist() == [blocked] + [False] * 9


def test_idle_time_in_a_blocked_call_waits_for_the_device():
    made = launched_ahead(1_000, blocked_us=300_000)
    idle = summarise([made.trace()]).idle.by_cause

    # The device is idle from 190 ms, when the work before has ended, to the blocked call's end.
    assert idle["host"] == 5 * US
    assert idle["dependency"] == (305_000 - 190_000) * US


@pytest.mark.parametrize(
    ("start", "call_end", "wait"),
    [(50, 200, 100), (50, 149, 0), (50, 150, 0), (50, 151, 100), (131, 200, 0), (129, 200, 21)],
)
def test_a_copy_call_waits_until_the_operation_before_it_on_its_stream_is_done(start, call_end, wait):
    made = (
        TraceBuilder().kernel(0, 150 * US, launch=(-9 * US, 0)).kernel(0, 180 * US, launch=(1, 2), stream=8)
    )
    made.copy(150 * US, 160 * US, launch=(start * US, call_end * US))
    queue = queue_of(made)

    assert queue.wait_end_ns[-1] == (start + wait) * US
    assert queue.launching.tolist() == [True, True, False]


def test_the_brute_force_agrees_on_a_full_queue():
    recording = Recording()
    for at in range(1_200):
        start = at * 5 * US if at < 1_022 else (at - 1_000) * 20 * US
        end = start + (5 * US if at < 1_022 else 19 * US)
        recording.calls.append(Call("cudaLaunchKernel", start, end, (0, 1), at + 1))
        begin = 12_000 * US + at * 100 * US if at % 50 else start + US
        recording.ops.append(
            Op("kernel", "mystery", begin, begin + 60 * US, 0, 0, at + 1, (1,) * 6, 7 + at % 2)
        )
    by_hand, ours = worked_out(BruteIdle(recording, 5_000)), told(summarise([trace_of(recording)]))

    assert ours["idle"] == by_hand["idle"]
    assert ours["idle"]["dependency"] > 0


def test_a_view_knows_its_queue():
    view = view_trace(launched_ahead(1_000).trace(), [None])

    assert view.queue.blocked.sum() == 1
