"""Copies and kernels of several streams: what could overlap and does not, and what should wait and does not."""

from dataclasses import replace

import numpy as np
import pytest

from profkit.model import CopyKind, Syncs
from tests.builders import TraceBuilder
from tests.ranks.reports import summarise

US = 1_000
BATCHES = 5
COPIER = 21


def findings(trace):
    return {f.code: f for f in summarise([trace]).health.findings}


def rows(trace, kind):
    return [row for row in summarise([trace]).method.ranks.streams if row.kind == kind]


def prefetch(
    *, wait=None, batches=BATCHES, beside=True, kind=CopyKind.HTOD, also=None, wait_every=1, wait_thread=0
):
    """Batches on a stream of copies, each beside a kernel of stream 7 that is launched after it.

    Args:
        wait: A call that the program makes after each kernel, or None.
        batches: How many.
        beside: Whether the kernel starts before the copy is over.
        kind: Of the copies; those to the host are launched after their kernel.
        also: Something else that the stream of copies does.
        wait_every: Every how many batches the call is made.
        wait_thread: The thread that makes it.
    """
    builder = TraceBuilder(format="kineto")
    for number in range(batches):
        at = number * 1000 * US
        copy, kernel = (at + 10 * US, at + 200 * US), (at + (100 if beside else 300) * US, at + 600 * US)
        first, second = (at, at + 5 * US), (at + 20 * US, at + 25 * US)
        if kind == CopyKind.DTOH:
            copy, kernel = kernel, copy
            first, second = second, first
        builder.copy(*copy, launch=first, stream=COPIER, kind=kind)
        builder.kernel(*kernel, launch=second, stream=7)
        if wait and number % wait_every == 0:
            builder.call(at + 30 * US, at + 31 * US, wait, thread=wait_thread)
    if also == "kernel":
        builder.kernel(batches * 1000 * US, batches * 1000 * US + 10, launch=(0, 1), stream=COPIER)
    return builder.range(0, batches * 1000 * US, "ProfilerStep#1").trace()


@pytest.mark.parametrize("kind", [CopyKind.HTOD, CopyKind.DTOH])
def test_copies_that_nothing_waits_for_are_told(kind):
    found = findings(prefetch(kind=kind))["copies-without-wait"]
    assert found.count == BATCHES
    assert f"stream {COPIER}" in found.message
    (row,) = rows(prefetch(kind=kind), "unordered")
    assert row.ns == BATCHES * (190 if kind == CopyKind.HTOD else 500) * US


@pytest.mark.parametrize("kind", [CopyKind.HTOD, CopyKind.DTOH])
@pytest.mark.parametrize(
    "wait",
    [
        "cudaStreamWaitEvent", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaDeviceSynchronize",
        "cudaEventQuery", "cudaLaunchHostFunc", "cudaFree", "cudaMemcpy", "cuStreamWaitValue32", "cudaGraphLaunch",
        "hipStreamWaitEvent", "INVALID",
    ],
)  # fmt: skip
def test_any_call_that_may_wait_is_taken_for_the_wait(wait, kind):
    assert "copies-without-wait" not in findings(prefetch(wait=wait, kind=kind))


@pytest.mark.parametrize("call", ["cudaEventRecord", "cudaStreamIsCapturing", "cudaFreeAsync", "cudaMalloc"])
def test_a_call_that_orders_nothing_is_not_taken_for_one(call):
    assert "copies-without-wait" in findings(prefetch(wait=call))


def test_one_wait_between_two_of_the_batches_is_enough_to_say_nothing():
    """The tensors may be used after it, all of them."""
    assert "copies-without-wait" not in findings(prefetch(wait="cudaStreamWaitEvent", wait_every=4))


def test_another_thread_may_wait():
    assert "copies-without-wait" not in findings(prefetch(wait="cudaStreamSynchronize", wait_thread=1))


def test_a_wait_that_only_the_table_of_waits_has_counts():
    """Kineto's cuda_sync records, where calls were not recorded."""
    middle = np.arange(BATCHES) * 1000 * US + 30 * US
    waits = Syncs.of(BATCHES, start_ns=middle, end_ns=middle + 1, stream=np.full(BATCHES, 7))
    assert "copies-without-wait" not in findings(replace(prefetch(), syncs=waits))


@pytest.mark.parametrize(
    "other",
    [{"beside": False}, {"also": "kernel"}, {"batches": 2}],
    ids=["nothing ran beside them", "the stream computes too", "too few to tell"],
)
def test_where_something_else_may_order_them_nothing_is_told(other):
    assert "copies-without-wait" not in findings(prefetch(**other))


def apart(*, at=700, stream=COPIER, pageable=0):
    """Copies of 200 us that start so many us after a kernel of 500 us."""
    builder = TraceBuilder(format="kineto")
    for number in range(BATCHES):
        begin = number * 1000 * US
        builder.kernel(begin + 10 * US, begin + 510 * US, launch=(begin, begin + US), stream=7)
        builder.copy(
            begin + at * US,
            begin + (at + 200) * US,
            launch=(begin + 2 * US, begin + 3 * US),
            stream=stream,
            kind=CopyKind.HTOD,
            pageable=pageable,
        )
    return builder.range(0, BATCHES * 1000 * US, "ProfilerStep#1").trace()


def test_copies_that_have_a_stream_of_their_own_and_run_alone_are_told():
    (row,) = rows(apart(), "alone")
    assert row.ns == BATCHES * 200 * US
    assert row.stream == COPIER
    assert findings(apart())["copies-run-alone"].count == BATCHES


@pytest.mark.parametrize(("at", "told"), [(100, False), (400, False), (420, True)])
def test_copies_that_mostly_run_beside_kernels_are_well_placed(at, told):
    """Of 200 us, those after 510 us run alone."""
    assert ("copies-run-alone" in findings(apart(at=at))) is told


def test_copies_can_hide_behind_no_more_than_all_kernels():
    builder = TraceBuilder(format="kineto").kernel(0, 200 * US, launch=(0, 10))
    builder.copy(300 * US, 9_900 * US, launch=(20, 30)).range(0, 10_000 * US, "ProfilerStep#1")
    (row,) = rows(builder.trace(), "copies")
    assert row.ns == 200 * US


def test_copies_on_the_stream_that_computes_are_told_once():
    found = findings(apart(stream=7))
    assert "copies-on-compute-stream" in found
    assert "copies-run-alone" not in found


def test_pageable_memory_is_named():
    assert "pageable" in findings(apart(pageable=1))["copies-run-alone"].message
    assert "pageable" not in findings(apart(pageable=0))["copies-run-alone"].message


@pytest.mark.parametrize(("streams", "told"), [((7, 20), True), ((19, 20), False)])
def test_turns_with_the_default_stream_say_what_it_waits_for(streams, told):
    builder = TraceBuilder(format="kineto")
    for number in range(10):
        at = number * 3000
        builder.kernel(at + 100, at + 1100, launch=(at, at + 10), stream=streams[0])
        builder.kernel(at + 1200, at + 2000, launch=(at + 20, at + 30), stream=streams[1])
    found = findings(builder.range(0, 30000, "ProfilerStep#1").trace())["streams-take-turns"]
    assert ("cudaStreamNonBlocking" in found.message) is told
