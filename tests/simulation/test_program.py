"""A step as a program, column by column, from a trace that is spelled out in ns."""

import numpy as np
import pytest

from profkit.model import RangeKind
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation.step_program import LAUNCH, WAIT, step_program
from tests.builders import LOADER, MAIN, TraceBuilder

US = 1_000
MS = 1_000_000


def program_of(made, device=0, **options):
    views, _ = timelines([made.trace()], Options(**options))
    return step_program(views[0], device)


def columns(found, *names):
    return [getattr(found, name).tolist() for name in names]


def a_step():
    """Fetching, two launches on two streams, an allocation, a wait, a copy that blocks, and some time at the end."""
    made = TraceBuilder().range(0, 900, "data").range(1_000, 1_900, "aten::mm", kind=RangeKind.OPERATOR)
    made.kernel(2_000, 9_000, launch=(1_500, 1_800))
    made.call(2_000, 2_600, "cudaMalloc")
    made.kernel(9_400, 12_000, launch=(3_000, 3_100), stream=9)
    made.call(3_500, 12_700, "cudaStreamSynchronize")
    made.copy(13_500, 15_000, launch=(13_000, 15_200))
    made._calls[-1]["name"] = made.text("cudaMemcpy")
    return made.range(15_500, 16_000, "rest").range(0, 16_000, "step")


def test_tokens_are_the_launches_and_waits_in_order_with_the_host_time_before_and_in_them():
    found = program_of(a_step())

    # A blocking copy launches first, then waits for what it launched.
    assert found.kind.tolist() == [LAUNCH, LAUNCH, WAIT, LAUNCH, WAIT, LAUNCH]
    assert found.tokens == 6
    assert found.gap_ns.tolist() == [1_500, 1_200, 400, 300, 0, 800]
    # Of waits: from the device's reaching them to their return.
    assert found.own_ns.tolist() == [300, 100, 700, 0, 200, 0]
    assert found.input_ns.tolist() == [900, 0, 0, 0, 0, 0]
    assert found.allocation_ns.tolist() == [0, 600, 0, 0, 0, 0]
    assert found.call.tolist() == [0, 2, 3, 4, 4, -1]
    assert found.ranges.tolist() == [3, 0, 0, 0, 0, 1]
    assert found.calls.tolist() == [1, 2, 1, 0, 1, 0]
    assert found.first.tolist() == [0, 1, 2, 2, 3, 3, 3]
    assert found.step_ns == 15_000


def test_operations_have_their_streams_and_what_they_waited_for():
    found = program_of(a_step())

    assert columns(found, "row", "duration_ns", "stream") == [
        [0, 1, 2], [7_000, 2_600, 1_500], [0, 1, 0],
    ]  # fmt: skip
    # Too few launches on an idle device to tell their latency. The second kernel waits for no stream by its time.
    assert found.latency_ns == 1_600
    assert found.after.tolist() == [-1, 0, -1]
    # The copy runs while its call does: it starts 1700 before the return.
    assert found.early_ns.tolist() == [0, 0, 1_700]


def by_stream(*kernels, latency=()):
    """Kernels ``(start, end, stream)`` launched early, one after the other; others show the latency."""
    made = TraceBuilder()
    for at, (start, end, stream) in enumerate(kernels):
        made.kernel(start * US, end * US, launch=(at * 100, at * 100 + 50), stream=stream)
    for at, late in enumerate(latency):
        call = (1_000 + at * 100) * US
        made.kernel(call + 50 + late, call + 60 + late, launch=(call, call + 50), stream=7)
    return made


def test_an_operation_waits_for_another_stream_where_neither_its_launch_nor_its_own_stream_holds_it():
    found = program_of(by_stream((1, 100, 7), (3, 40, 8), (101, 120, 8), (130, 150, 9)))

    # The third could have started at 40: it waits for the first, then 1 us. The fourth waits for the third.
    assert found.after.tolist() == [-1, -1, 0, 2]
    assert found.lead_ns.tolist() == [0, 0, 1 * US, 0]
    assert found.stream.tolist() == [0, 1, 1, 2]


def test_what_has_not_ended_is_waited_for_by_nobody():
    assert program_of(by_stream((2, 100, 7), (50, 150, 8))).after.tolist() == [-1, -1]


def test_a_start_within_the_slack_waits_for_nobody():
    assert program_of(by_stream((2, 40, 7), (2, 39, 8), (40, 60, 8))).after.tolist() == [-1, -1, -1]
    made = by_stream((2, 40, 7), (2, 38, 8), (40, 60, 8))
    assert program_of(made).after.tolist() == [-1, -1, 0]
    assert program_of(made).lead_ns.tolist() == [0, 0, 0]


def test_a_stream_that_pauses_after_itself_has_a_lead_and_no_dependency():
    found = program_of(by_stream((2, 40, 7), (50, 60, 7)))

    assert found.after.tolist() == [-1, -1]
    assert found.lead_ns.tolist() == [0, 10 * US]


def test_the_latency_is_the_median_over_launches_on_an_idle_stream():
    found = program_of(by_stream((1, 2, 7), latency=(900, 2_000, 700, 800, 3_000)))
    assert found.latency_ns == 900
    # What is later than usual is a lead, what is earlier is none.
    assert found.lead_ns.tolist() == [0, 0, 1_100, 0, 0, 2_100]
    # Four are too few.
    assert program_of(by_stream((1, 2, 7), latency=(900, 2_000, 700, 800))).latency_ns == 1_600
    # One before its launch returned counts as none.
    assert program_of(by_stream((1, 2, 7), latency=(-20, 2_000, -10, 0, 3_000))).latency_ns == 0


def test_operations_that_wait_for_their_stream_tell_no_latency():
    queued = [(at, at + 10, 7) for at in range(1, 91, 10)]

    assert program_of(by_stream(*queued)).latency_ns == 1_600


def test_a_kernel_that_starts_within_its_call_waits_for_its_return_and_a_copy_does_not():
    made = TraceBuilder().kernel(150, 300, launch=(100, 200)).copy(400, 450, launch=(320, 500))
    made.copy(520, 550, launch=(530, 600)).copy(900, 950, launch=(620, 700))
    found = program_of(made)

    # At most the length of the call, at least nothing.
    assert found.early_ns.tolist() == [0, 100, 70, 0]


def test_the_median_step_is_the_program_with_the_host_time_since_the_step_before():
    made = TraceBuilder()
    for number, (start, length) in enumerate(((0, 50), (1_000, 80), (2_000, 60), (3_000, 70))):
        made.range(start, start + 200, "step")
        made.kernel(start + 30, start + 30 + length, launch=(start + 10, start + 20), name=f"k{number}")
        made.call(start + 150, start + 160, "cudaStreamSynchronize")
    found = program_of(made)

    # They take 80, 1030, 980 and 1010 on the device.
    assert found.row.tolist() == [2]
    assert found.step_ns == 980
    # 1000 - 200 since the step before, then 10 to the launch.
    assert found.gap_ns.tolist() == [810, 130, 40]
    assert found.own_ns.tolist() == [10, 10, 0]


def test_the_first_step_begins_with_its_own_range():
    made = TraceBuilder().range(100, 300, "step").kernel(130, 200, launch=(110, 120))
    made.call(40, 60, "cudaStreamSynchronize").call(320, 330, "cudaStreamSynchronize")
    found = program_of(made)

    assert found.kind.tolist() == [LAUNCH, LAUNCH]
    assert found.gap_ns.tolist() == [10, 180]
    assert found.step_ns == 100


def test_host_time_after_the_last_launch_is_at_most_the_usual_one():
    made = TraceBuilder()
    for start, length in ((0, 50), (1_000, 50), (2_000, 50)):
        made.range(start, start + (900 if start == 1_000 else 200), "step")
        made.kernel(start + 30, start + 30 + length, launch=(start + 10, start + 20))

    assert program_of(made).gap_ns.tolist()[-1] == 180
    # What is launched after the last step says nothing of its end.
    made.kernel(2_600, 2_700, launch=(2_500, 2_510))
    assert program_of(made).gap_ns.tolist()[-1] == 180


def test_launches_and_waits_of_other_processes_and_devices_are_no_part_of_the_step():
    made = TraceBuilder(processes=2, devices=2, threads=((0, ()), (1, ())))
    made.kernel(30, 50, launch=(10, 20)).kernel(30, 90, launch=(21, 29), device=1, thread=1)
    made.call(60, 70, "cudaStreamSynchronize").call(60, 95, "cudaStreamSynchronize", thread=1)
    made.range(0, 99, "step").range(0, 99, "step", thread=1)
    found = program_of(made)

    assert found.row.tolist() == [0]
    assert found.kind.tolist() == [LAUNCH, WAIT, LAUNCH]
    # The device was done at 50, the wait at 70.
    assert found.own_ns.tolist() == [10, 10, 0]
    assert program_of(made, device=1).row.tolist() == [1]


def test_operations_of_one_launch_belong_to_one_token_in_the_order_of_their_start():
    made = TraceBuilder().kernel(30, 50, launch=(10, 20)).kernel(60, 70).kernel(55, 75).kernel(90, 95)
    for row in (1, 2):
        made._operations[row]["correlation"] = 1
    found = program_of(made)

    # The last has no launch.
    assert found.row.tolist() == [0, 2, 1]
    assert found.first.tolist() == [0, 3, 3]
    assert found.kind.tolist() == [LAUNCH, LAUNCH]


def test_what_another_thread_fetches_is_not_the_launching_threads_time():
    made = TraceBuilder().range(0, 80, "data", thread=LOADER).range(0, 50, "dataloader", thread=MAIN)
    made.kernel(130, 150, launch=(100, 110)).range(110, 160, "data").kernel(170, 180, launch=(160, 165))
    made.range(0, 180, "step")

    assert program_of(made).input_ns.tolist() == [50, 50, 0]


def test_overlapping_calls_of_threads_leave_no_negative_gap():
    made = TraceBuilder().kernel(130, 150, launch=(0, 100)).kernel(150, 160, launch=(40, 60), thread=LOADER)
    made.kernel(160, 170, launch=(105, 115)).range(0, 170, "step")
    found = program_of(made)

    assert found.gap_ns.tolist() == [0, 0, 5, 55]
    assert found.own_ns.tolist() == [100, 20, 10, 0]


@pytest.mark.parametrize(("most", "found"), [(2, True), (1, False)])
def test_a_step_of_too_many_operations_has_no_program(monkeypatch, most, found):
    monkeypatch.setattr("profkit.simulation.step_program._MOST_OPERATIONS", most)
    made = TraceBuilder().kernel(30, 50, launch=(10, 20)).kernel(60, 70, launch=(21, 22))

    assert (program_of(made) is not None) is found


def test_without_linked_operations_there_is_no_program():
    assert program_of(TraceBuilder().kernel(30, 50)) is None


def test_a_device_that_is_done_within_a_wait_releases_the_host_then():
    made = TraceBuilder().kernel(30, 65, launch=(10, 20)).call(60, 70, "cudaStreamSynchronize")

    assert program_of(made).own_ns.tolist() == [10, 5, 0]


@pytest.mark.parametrize("made", [a_step, lambda: by_stream((1, 2, 7), (4, 9, 8), latency=(900,) * 6)])
def test_a_step_is_the_same_program_whenever_it_ran(made):
    later = made()
    for table in (later._operations, later._calls, later._ranges):
        for row in table:
            row.update(start_ns=row["start_ns"] + 10**12, end_ns=row["end_ns"] + 10**12)

    found = program_of(later)
    for name, value in vars(program_of(made())).items():
        assert np.array_equal(getattr(found, name), value), name


def test_a_launch_that_a_full_queue_held_up_takes_what_others_take():
    made = TraceBuilder()
    for at in range(1_000):
        made.kernel((at + 100) * 100 * US, (at + 101) * 100 * US, launch=(at * 5 * US, at * 5 * US + 4 * US))
    made.kernel(200_000 * US, 200_001 * US, launch=(5_000 * US, 90_000 * US))

    found = program_of(made)

    assert found.own_ns[-2] == 4 * US
    assert found.gap_ns[-2] == 1 * US


def test_a_copy_that_waits_for_its_stream_is_held_and_the_rest_of_its_call_is_the_hosts():
    made = TraceBuilder().kernel(10 * US, 500 * US, launch=(0, 5 * US))
    made.copy(500 * US, 560 * US, launch=(20 * US, 570 * US))

    found = program_of(made)

    assert found.held.tolist() == [False, True, False]
    assert found.own_ns.tolist() == [5 * US, 70 * US, 0]


def test_the_programs_own_work_in_a_gap_is_told_apart():
    made = TraceBuilder().kernel(10 * US, 20 * US, launch=(0, 5 * US)).range(10 * US, 910 * US, "tokenise")
    made.kernel(1_000 * US, 1_100 * US, launch=(950 * US, 960 * US))

    assert program_of(made).work_ns.tolist() == [0, 900 * US, 0]


def test_without_steps_the_weights_that_were_moved_once_are_not_replayed():
    made = TraceBuilder()
    for number in range(10):
        made.copy(number * MS, number * MS + 900 * US, launch=(number * MS, number * MS + 950 * US))
    made.kernel(20 * MS, 21 * MS, launch=(19 * MS, 19 * MS + 10 * US))
    made.kernel(21 * MS, 23 * MS, launch=(20 * MS, 20 * MS + 10 * US))
    found = program_of(made)

    assert found.duration_ns.tolist() == [MS, 2 * MS]
    assert found.step_ns == 4 * MS


@pytest.mark.parametrize(("ends_us", "unawaited"), [(900, 0b10), (140, 0)])
def test_a_wait_waits_for_no_stream_that_still_runs_when_it_returns(ends_us, unawaited):
    made = TraceBuilder().range(0, 1_000_000, "step")
    made.kernel(10_000, 90_000, stream=7, launch=(1_000, 2_000))
    made.kernel(20_000, ends_us * 1000, stream=20, launch=(3_000, 4_000))
    made.call(5_000, 95_000, "cudaStreamSynchronize")
    found = program_of(made)

    assert found.unawaited[found.kind == WAIT].tolist() == [unawaited]
