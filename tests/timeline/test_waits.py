"""What waits cost, against a clock that ticks every nanosecond."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profkit.model import Syncs
from profkit.timeline.intervals import Intervals
from profkit.timeline.waits import blocks, find_waits, spend_credit
from tests.builders import BACKWARD, LOADER, TraceBuilder

END = 60


def ticked(amount, ready, idle, borders):
    """Each nanosecond of demand goes to the oldest credit that is left; what is left lapses at a border."""
    left, cost, charged = {}, [0] * len(amount), set()
    for time in range(END):
        if time in borders:
            left.clear()
        # A wait that returns at a border belongs to the tile that ends there.
        left |= {i: amount[i] for i in range(len(amount)) if ready[i] == time and time not in borders}
        if time in idle and left:
            oldest = min(left)
            cost[oldest] += 1
            charged.add(time)
            left[oldest] -= 1
            if not left[oldest]:
                del left[oldest]
    return cost, charged


@given(
    st.lists(st.tuples(st.integers(0, END - 1), st.integers(1, 25)), max_size=6),
    st.sets(st.integers(0, END - 1)),
    st.sets(st.integers(1, END - 1), max_size=3),
)
def test_credit_is_spent_oldest_first_on_later_idle_time_until_the_step_ends(waits, idle, borders):
    waits = sorted(waits)
    ready, amount = np.array([r for r, _ in waits], np.int64), np.array([a for _, a in waits], np.int64)
    times = np.array(sorted(idle), np.int64)
    cost, charged = spend_credit(
        amount, ready, Intervals.of(times, times + 1), np.array(sorted(borders), np.int64)
    )
    by_hand = ticked(amount.tolist(), ready.tolist(), idle, borders)

    assert cost.tolist() == by_hand[0]
    assert {t for s, e in zip(charged.start, charged.end, strict=True) for t in range(s, e)} == by_hand[1]
    assert charged.total_ns == sum(cost.tolist())


def rows_of(waits):
    return list(
        zip(*(column.tolist() for column in (waits.start_ns, waits.end_ns, waits.thread)), strict=True)
    )


def test_of_calls_within_each_other_only_the_outermost_waits():
    made = TraceBuilder().call(0, 50, "cudaDeviceSynchronize").call(10, 40, "cuCtxSynchronize")
    made.call(60, 70, "cudaMemcpy").call(60, 80, "cudaMemcpyToSymbol").call(90, 95, "cudaLaunchKernel")
    made.call(20, 30, "cuStreamSynchronize_ptsz", thread=LOADER).call(20, 25, "cudaFree", thread=LOADER)

    waits = find_waits(made.trace())
    assert rows_of(waits) == [(0, 50, 0), (60, 80, 0), (20, 30, LOADER)]
    assert waits.call.tolist() == [0, 3, 5]
    assert len(waits) == 3
    assert waits.process.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cudaMemcpy", True),
        ("cudaMemcpyAsync", False),
        ("cuMemcpyDtoH_v2", True),
        ("cudaStreamSynchronize_ptsz", True),
        ("hipMemcpyWithStream", True),
        *((f"cudaMemcpy{kind}", True) for kind in ("2D", "3D", "ToSymbol", "FromSymbol", "Peer")),
        *((f"cuMemcpy{kind}", True) for kind in ("", "HtoD_v2", "Peer_ptds")),
        *((f"hip{name}", True) for name in ("Memcpy", "MemcpyDtoH", "MemcpyHtoD", "DeviceSynchronize")),
        *((f"cuda{name}Synchronize", True) for name in ("Device", "Thread", "Stream", "Event")),
        *((f"cu{name}Synchronize", True) for name in ("Ctx", "Stream", "Event")),
        ("cudaMemcpy2DAsync", False),
        ("cudaMemsetAsync", False),
        ("my_cudaMemcpy", False),
        ("", False),
    ],
)
def test_a_call_blocks_by_its_name(name, expected):
    assert blocks(name) is expected


def two_devices(*syncs):
    """Process 0 has two devices with contexts 11 and 12, process 1 has one; every process waits."""
    made = TraceBuilder(devices=3, processes=3, threads=((0, ()), (1, ()), (2, ())))
    made.kernel(0, 5, device=0, context=11).kernel(0, 5, device=1, context=12)
    made.kernel(0, 5, device=1, context=-1).kernel(0, 5, thread=1, device=2, context=11)
    for correlation in (5, 6, 7, 0):
        made.call(correlation * 10, correlation * 10 + 4, "cudaStreamSynchronize", correlation=correlation)
    made.call(0, 4, "cudaStreamSynchronize", thread=1, correlation=5)
    made.call(0, 4, "cudaStreamSynchronize", thread=2, correlation=5)
    process, correlation, context = zip(*syncs, strict=True)
    table = Syncs.of(len(syncs), process=process, correlation=correlation, context=context)
    return find_waits(replace(made.trace(), syncs=table))


def test_the_device_of_a_wait_is_that_of_its_context_or_the_only_one_of_its_process():
    waits = two_devices((0, 5, 12), (0, 6, 11), (0, 7, 99), (0, 0, 12), (1, 5, 12), (2, 5, 12))

    # In order of time: id 0, then 5, 6, 7; the third process has no device.
    assert waits.device.tolist() == [-1, 1, 0, -1, 2, -1]
    assert waits.process.tolist() == [0, 0, 0, 0, 1, 2]


def test_a_context_that_no_operation_names_is_no_device():
    assert two_devices((0, 5, -1), (0, 6, 12)).device.tolist()[:3] == [-1, -1, 1]


def test_waits_of_another_thread_of_the_process_are_attributed_too():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1))
    made.call(20, 110, "cudaStreamSynchronize", thread=BACKWARD)
    waits = find_waits(made.trace())

    assert (waits.thread.tolist(), waits.device.tolist()) == ([BACKWARD], [0])


def test_a_process_that_never_waits_does_not_matter():
    made = TraceBuilder(devices=3, processes=3, threads=((0, ()), (2, ())))
    made.kernel(0, 5, device=1).kernel(5, 9, thread=1, device=2).kernel(9, 12, thread=1, device=2)
    waits = find_waits(made.call(0, 4, "cudaDeviceSynchronize", thread=1).trace())

    assert (waits.process.tolist(), waits.device.tolist()) == ([2], [2])
