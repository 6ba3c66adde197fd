"""Work that moves beside other work: copies and collectives on streams of their own, ranges that are left out."""

from types import SimpleNamespace

import numpy as np
import pytest

from profkit.model import CopyKind
from profkit.simulation.collectives import asked_earlier, beside_kernels, exposed_ns, shrunk
from profkit.simulation.copies import copies_between, on_own_stream
from profkit.simulation.exchanged import Exchanged, transfer_ns
from profkit.simulation.launching import without_ranges
from tests.advice.made_steps import ADD, BF16_GEMM
from tests.simulation.programs import edited, launch, program
from tests.simulation.steps import draft_of, step_of

REDUCE = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
KERNEL, COLLECTIVE = SimpleNamespace(is_collective=False), SimpleNamespace(is_collective=True)


def flags(*chosen, count):
    return np.isin(np.arange(count), chosen)


def test_a_collective_on_a_stream_of_its_own_waits_for_what_it_reads_and_the_optimizer_for_it():
    made = program(
        launch((9, 1)),
        launch((9, 0)),
        launch((5, 0)),
        launch((9, 0)),
        launch((5, 0)),
        launch((9, 0)),
        launch((9, 0)),
        launch(),
    )
    change = edited(made, optimizer=flags(5, 6, count=7))
    beside_kernels(flags(2, 4, count=7))(change)

    assert change.stream.tolist() == [1, 0, 2, 0, 2, 0, 0]
    assert change.after.tolist() == [-1, -1, 1, -1, 3, 4, -1]


def test_a_collective_that_nothing_comes_before_waits_for_nothing():
    made = program(launch((5, 0)), launch((5, 0)), launch((9, 1)), launch())
    change = edited(made)
    beside_kernels(flags(0, 1, count=3))(change)

    assert change.stream.tolist() == [2, 2, 1]
    assert change.after.tolist() == [-1, -1, -1]


def test_a_collective_that_is_gone_does_not_move():
    change = edited(program(launch((9, 0)), launch((5, 0)), launch((5, 0)), launch()))
    change.drop(flags(1, count=3))
    beside_kernels(flags(1, 2, count=3))(change)

    assert change.stream.tolist() == [0, 0, 1]
    assert change.after.tolist() == [-1, -1, 0]


def test_smaller_collectives_are_shorter_by_what_they_save():
    change = edited(program(launch((90,)), launch((50,)), launch((50,)), launch()))
    shrunk(flags(0, 1, count=3), np.array([30.0, -5.0, 20.0]))(change)

    assert change.duration_ns.tolist() == [60, 50, 50]


def overlapped(step, number):
    """Two collectives beside and after a kernel, one alone."""
    at = max(step.device, step.host + 20)
    step.launch(BF16_GEMM, 400, operators=("aten::mm",))
    for index, (start, end) in enumerate(((300, 600), (600, 650), (700, 800))):
        call = (step.host - 4) * 1000 + index * 100
        step.builder.kernel(
            (at + start) * 1000, (at + end) * 1000, launch=(call, call + 50), name=REDUCE, stream=13
        )
    step.device = at + 800


def test_what_no_kernel_hides_of_a_collective_is_exposed():
    facts = step_of(overlapped).facts

    assert exposed_ns(facts, flags(1, 2, count=4)).tolist() == [0, 200_000, 50_000, 0]
    assert exposed_ns(facts, np.ones(4, bool)).tolist() == [0, 200_000, 50_000, 100_000]


def test_collectives_that_are_asked_for_earlier_hide_a_share_of_their_transfer_but_the_first():
    change = draft_of(overlapped)
    transfer = np.array([0.0, 1e6, 30_000.0, 1e6])
    asked_earlier(flags(1, 2, 3, count=4), transfer)(change)

    # Of the second 30 us are transfer, of the third 100 us are exposed; 400 us of kernels can hide that.
    assert change.duration_ns.tolist() == pytest.approx([400_000, 300_000, 20_000, 0])


def test_what_runs_between_collectives_stays_as_it_is():
    def body(step, number):
        for _ in range(3):
            step.launch(REDUCE, 100, operators=("nccl:all_reduce",))
            step.launch("Memcpy DtoH", 20, operators=(), kind=1, copy_kind=CopyKind.DTOH, bytes=1 << 20)
        step.launch(BF16_GEMM, 900, operators=("aten::mm",))

    change = draft_of(body)
    chosen = flags(0, 2, 4, count=7)
    asked_earlier(chosen, np.full(7, 1e6))(change)

    assert change.duration_ns[1:6:2].tolist() == [20_000] * 3
    assert change.duration_ns[:6:2].tolist() == pytest.approx([100_000, 0, 0])


def test_kernels_hide_no_more_than_they_take():
    change = draft_of(overlapped)
    change.duration_ns[0] = 26_000
    asked_earlier(flags(1, 2, 3, count=4), np.full(4, 80_000.0))(change)

    # 50 and 80 us could be hidden, by 26 us of kernels.
    assert change.duration_ns.tolist() == pytest.approx([26_000, 300_000, 40_000, 84_000])


def copies(step, number):
    step.upload(64 * 1024 + 1, 30, blocks=False)
    step.upload(64 * 1024, 30, blocks=False)
    step.launch("Memcpy DtoH", 20, operators=(), kind=1, copy_kind=CopyKind.DTOH, bytes=1 << 20, stream=7)
    step.launch("Memcpy DtoD", 20, operators=(), kind=1, copy_kind=CopyKind.DTOD, bytes=1 << 20)
    step.launch(ADD, 50, stream=9)


def test_copies_of_more_than_a_few_bytes_between_host_and_device_can_have_a_stream():
    change = draft_of(copies)
    chosen = copies_between(change.facts)
    assert chosen.tolist() == [True, False, True, False, False]

    change.drop(flags(2, count=5))
    on_own_stream(chosen)(change)
    assert change.stream.tolist() == [2, 0, 0, 0, 1]


def ranged(gaps_us, ranges, launches=3):
    """Launches with gaps before them, and ranges ``(launch, start, length)`` in those gaps; the edited step and its ranges."""

    def body(step, number):
        for at in range(launches):
            for before, start, length in ranges:
                if before == at:
                    begin = (step.host + start) * 1000
                    step.builder.range(begin, begin + length * 1000, "checking")
            step.idle(gaps_us)
            step.launch(ADD, 10, host=20, operators=())

    change = draft_of(body)
    trace = change.facts.view.trace
    return change, np.array([trace.strings[n] == "checking" for n in trace.ranges.name.tolist()])


def test_ranges_are_left_out_of_the_gap_that_they_lie_in():
    change, chosen = ranged(100, [(1, 10, 40), (1, 60, 20), (2, 5, 500)])
    gap = change.gap_ns.copy()
    without_ranges(chosen)(change)

    # 60 us of it; and all, where the range is longer.
    share = 60_000 / change.facts.program.gap_ns[1]
    assert (gap - change.gap_ns).tolist() == pytest.approx([0, gap[1] * share, gap[2], 0])


def test_of_a_gap_that_is_shorter_without_the_recorder_the_same_share_is_left():
    change, chosen = ranged(100, [(1, 10, 40)])
    recorded = float(change.facts.program.gap_ns[1])
    change.gap_ns[1] = 50_000
    without_ranges(chosen)(change)

    assert change.gap_ns[1] == pytest.approx(50_000 * (1 - 40_000 / recorded))


def test_what_is_fetched_or_allocated_in_a_range_stays():
    change, chosen = ranged(100, [(1, 0, 100)])
    change.input_ns[1], change.allocation_ns[1] = 30_000, 20_000
    without_ranges(chosen)(change)
    assert change.gap_ns[1] == 50_000

    change, chosen = ranged(100, [(1, 0, 100)])
    gap = change.gap_ns[1]
    change.input_ns[1], change.allocation_ns[1] = gap, gap
    without_ranges(chosen)(change)
    assert change.gap_ns[1] == gap


def test_ranges_of_other_steps_are_not_this_ones():
    change, chosen = ranged(100, [])
    gap = change.gap_ns.copy()
    trace = change.facts.view.trace
    elsewhere = np.array([trace.strings[n] == "step" for n in trace.ranges.name.tolist()])
    program_start = int(trace.calls.start_ns[change.facts.program.call[0]]) - int(
        change.facts.program.gap_ns[0]
    )
    elsewhere &= trace.ranges.start_ns < program_start
    without_ranges(elsewhere)(change)

    assert elsewhere.any()
    assert not chosen.any()
    assert change.gap_ns.tolist() == gap.tolist()


def test_collectives_of_two_kinds_are_not_compared():
    def body(step, number):
        step.launch(BF16_GEMM, 400, operators=("aten::mm",))
        step.launch(REDUCE, 100, operators=("nccl:all_reduce",), stream=13)
        step.launch(
            REDUCE.replace("AllReduce_Sum_f32", "AllGather"), 40, operators=("nccl:all_gather",), stream=13
        )
        step.launch(REDUCE, 70, operators=("nccl:all_reduce",), stream=13)

    facts = step_of(body).facts
    assert transfer_ns(Exchanged.of([facts.view]), facts.view, facts.program).tolist() == [
        400_000,
        100_000,
        40_000,
        70_000,
    ]


def test_a_collective_is_compared_with_the_same_of_other_steps_whatever_else_they_run():
    def body(step, number):
        step.launch(BF16_GEMM, 400, operators=("aten::mm",))
        for at in range(1 + number):
            name = REDUCE.replace("AllReduce_Sum_f32", "AllGather")
            step.launch(name, 40 + at, operators=("nccl:all_gather",), stream=13)
        step.launch(REDUCE, 300 - 100 * (number == 0), operators=("nccl:all_reduce",), stream=13)

    step = step_of(body)
    found = transfer_ns(Exchanged.of([step.facts.view]), step.facts.view, step.facts.program)

    # The first step's was the shortest, after fewer of another kind than in the step that is replayed.
    assert step.facts.program.duration_ns[-1] == 300_000
    assert found[-1] == 200_000


def test_a_range_after_the_last_launch_is_left_out_of_the_end_of_the_step():
    def body(step, number):
        step.launch(ADD, 10, host=20, operators=())
        step.launch(ADD, 10, host=20, operators=())
        begin = (step.host + 10) * 1000
        step.builder.range(begin, begin + 50_000, "checking")
        step.idle(100)

    change = draft_of(body)
    trace = change.facts.view.trace
    gap = change.gap_ns.copy()
    without_ranges(np.array([trace.strings[n] == "checking" for n in trace.ranges.name.tolist()]))(change)
    share = 50_000 / change.facts.program.gap_ns[-1]

    assert (gap - change.gap_ns).tolist() == pytest.approx([0, 0, gap[-1] * share])


def test_a_launch_without_a_gap_has_nothing_to_leave_out():
    change, chosen = ranged(100, [(1, 10, 40)])
    change.facts.program.gap_ns[2], change.gap_ns[2] = 0, 0
    without_ranges(chosen)(change)

    assert change.gap_ns[2] == 0
