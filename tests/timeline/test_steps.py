"""Steps of several processes and devices, and the borders of their tiles."""

import numpy as np
import pytest

from profkit.model import RangeKind
from profkit.timeline.launches import find_launches
from profkit.timeline.steps import find_steps, leading_steps_left_out, steps_left_out
from tests.builders import LOADER, TraceBuilder


def steps_of(made, name=None):
    trace = made.trace()
    return find_steps(trace, find_launches(trace), name)


def test_steps_of_two_processes_are_matched_by_their_number_and_cut_to_the_fewer():
    made = TraceBuilder(processes=2, devices=2, threads=((0, ()), (1, ())))
    for start in (0, 100, 200):
        made.range(start, start + 50, "step", thread=0)
    for start in (10, 90):
        made.range(start, start + 70, "step", thread=1)
    found = steps_of(made)

    assert found.names == ["step 1", "step 2"]
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([0, 90], [80, 160])
    assert [each.tolist() for each in found.by_process] == [[[0, 100], [10, 90]], [[50, 150], [80, 160]]]
    assert found.count == 2
    assert found.rows.tolist() == [True] * 5
    # Between steps the next one, outside of them none; of each process its own.
    process, time = np.array([0, 0, 0, 0, 0, 1, 1, 1]), np.array([-1, 0, 50, 99, 150, 9, 80, 159])
    assert found.at(process, time).tolist() == [-1, 0, 1, 1, -1, -1, 1, 1]
    assert found.at(np.array([-1, 2]), np.array([20, 20])).tolist() == [-1, -1]


def test_a_process_without_steps_has_those_of_the_first_that_has_some():
    made = TraceBuilder(processes=3, threads=((0, ()), (1, ()), (2, ())))
    made.range(20, 60, "step", thread=1).range(5, 90, "step", thread=2).range(0, 9, "other", thread=0)
    found = steps_of(made)

    assert [each.tolist() for each in found.by_process] == [[[20], [20], [5]], [[60], [60], [90]]]
    assert found.names == ["step"]


def test_a_step_inside_another_is_none_and_names_that_recur_are_numbered():
    made = TraceBuilder().range(0, 100, "step").range(0, 60, "step").range(20, 100, "step")
    made.range(100, 130, "iteration").range(110, 120, "step", thread=LOADER)
    found = steps_of(made)

    assert found.names == ["step", "iteration"]
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([0, 100], [100, 130])
    assert found.rows.all()


def test_marks_of_the_profiler_come_before_names_that_look_like_steps():
    made = TraceBuilder().range(0, 50, "ProfilerStep#7").range(0, 20, "step").range(60, 90, "ProfilerStep#8")

    assert steps_of(made).names == ["ProfilerStep#7", "ProfilerStep#8"]
    assert steps_of(made, "step").names == ["step"]
    assert steps_of(made, "ste").names == ["step"]  # a prefix
    assert steps_of(made, "tep").names == []


def test_operators_are_no_steps_but_ranges_of_start_and_end_are():
    made = TraceBuilder().range(0, 50, "step", kind=RangeKind.OPERATOR)
    assert steps_of(made).count == 0

    made.range(60, 90, "step", kind=RangeKind.START_END)
    assert steps_of(made).start_ns.tolist() == [60]


def test_without_steps_there_are_no_tiles_and_no_operation_has_a_step():
    found = steps_of(TraceBuilder(devices=2).kernel(0, 5, launch=(0, 1)))

    assert found.tile_start_ns.shape == found.tile_end_ns.shape == (2, 0)
    assert found.found_by == "none"
    assert found.of_operation.tolist() == [-1]
    assert found.at(np.array([0, 0]), np.array([0, 1])).tolist() == [-1, -1]
    assert (found.start_ns.tolist(), found.end_ns.tolist(), found.names) == ([], [], [])


def test_tiles_of_each_device_start_with_the_first_step_of_its_processes_and_end_with_their_work():
    made = TraceBuilder(processes=2, devices=3, threads=((0, ()), (1, ())))
    for thread, start in ((0, 0), (1, 7)):
        made.range(start, start + 20, "step", thread=thread)
        made.range(start + 20, start + 40, "step", thread=thread)
    # Device 0: the second step's work ends before the first's, whose tile then takes all.
    made.kernel(10, 90, launch=(5, 6)).kernel(30, 40, launch=(25, 26), stream=8)
    # Device 1, of the other process: one operation whose launch is lost is nobody's.
    made.kernel(12, 15, launch=(8, 9), thread=1, device=1).kernel(20, 35, launch=(30, 31), thread=1, device=1)
    made.kernel(70, 80, thread=1, device=1)
    found = steps_of(made)

    assert found.of_operation.tolist() == [0, 1, 0, 1, -1]
    # Device 2 has no operation: it starts with the earliest step.
    assert found.tile_start_ns.tolist() == [[0, 90], [7, 15], [0, 0]]
    assert found.tile_end_ns.tolist() == [[90, 90], [15, 35], [0, 0]]


def test_a_launch_belongs_to_the_steps_of_its_own_process():
    made = TraceBuilder(processes=2, devices=2, threads=((0, ()), (1, ())))
    made.range(0, 20, "step", thread=0).range(20, 40, "step", thread=0)
    made.range(0, 30, "step", thread=1).range(30, 60, "step", thread=1)
    made.kernel(50, 60, launch=(25, 26)).kernel(50, 60, launch=(25, 26), thread=1, device=1)

    assert steps_of(made).of_operation.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("lengths", "left_out"),
    [
        ([[120, 100, 100], [100, 100, 100]], 0),
        ([[130, 100, 100], [120, 100, 100]], 1),
        ([[130, 100, 100], []], 1),
        ([[300, 100, 100], [100, 100]], 0),
        ([], 0),
        ([[110, 100, 100]], 0),
        ([[111, 100, 100]], 1),
    ],
)
def test_warm_up_is_left_out_of_all_recordings_at_once(lengths, left_out):
    each = [np.array(one, np.int64) for one in lengths]
    assert int(steps_left_out(each, [[""] * len(one) for one in lengths]).sum()) == left_out


def test_a_first_step_at_the_very_ratio_is_kept():
    # 1.1 times 20 is 22 in floating point, too.
    assert leading_steps_left_out(np.array([22, 20, 20])) == 0
    assert leading_steps_left_out(np.array([23, 20, 20])) == 1


def test_the_median_is_that_of_all_later_steps():
    assert leading_steps_left_out(np.array([115, 130, 100])) == 0


def test_two_steps_remain_however_slow_they_are():
    assert leading_steps_left_out(np.array([900, 500, 300, 200])) == 2


def test_a_tile_begins_with_what_waited_for_work_of_before_the_recording():
    for begun, expected in ((8_000_000, 8_000_000), (900_000, 0)):
        made = TraceBuilder().range(0, 2_000_000, "step")
        made.kernel(begun, begun + 5_000, launch=(10_000, 20_000))
        made.kernel(begun + 6_000, begun + 9_000, launch=(30_000, 40_000))
        found = steps_of(made)

        assert found.tile_start_ns.tolist() == [[expected]]
        assert found.tile_end_ns.tolist() == [[begun + 9_000]]


def test_a_step_that_launched_late_keeps_the_time_before_its_first_operation():
    made = TraceBuilder().range(0, 400_000_000, "step")
    made.kernel(395_000_000, 395_045_000, launch=(331_000_000, 331_010_000))
    found = steps_of(made)

    assert found.tile_start_ns.tolist() == [[0]]
    assert found.tile_end_ns.tolist() == [[395_045_000]]


def test_a_long_later_step_does_not_hide_warm_up():
    """Of the later steps the median counts: their mean would be as long as the first."""
    assert leading_steps_left_out(np.array([150, 100, 100, 100, 400])) == 1
