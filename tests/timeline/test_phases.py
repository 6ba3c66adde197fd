"""Which ranges are phases, their paths, and who has them."""

import numpy as np

from profkit.model import PHASE_DOMAIN, OperationKind, RangeKind
from profkit.timeline.launches import find_launches
from profkit.timeline.phases import DEEPEST_PHASE, find_phases, phase_at
from tests.builders import BACKWARD, LOADER, MAIN, TraceBuilder


def phases_of(made, steps=()):
    trace = made.trace()
    return find_phases(trace, find_launches(trace), np.isin(np.arange(len(trace.ranges)), steps))


def test_paths_are_names_under_those_of_their_parents_in_order_of_first_start():
    made = TraceBuilder().range(50, 90, "b").range(55, 60, "loss").range(0, 40, "a").range(5, 30, "loss")
    made.range(6, 20, "mse/x").range(95, 99, "a").range(96, 97, "loss").range(3, 4, "zz")
    found = phases_of(made)

    assert found.paths == ["a", "a/zz", "a/loss", "a/loss/mse∕x", "b", "b/loss"]
    assert found.parents == [-1, 0, 0, 2, -1, 4]
    assert found.path.tolist() == [4, 5, 0, 2, 3, 0, 2, 1]
    assert found.path_of(np.array([-1, 0, 3])).tolist() == [-1, 4, 2]
    assert found.rows.all()
    assert found.too_deep == 0


def test_a_parent_comes_before_its_child_where_both_start_at_once_and_names_in_order():
    made = TraceBuilder().range(0, 10, "z").range(0, 5, "a").range(0, 20, "b", thread=LOADER)

    assert phases_of(made).paths == ["b", "z", "z/a"]


def test_a_range_without_a_name_has_one_that_says_so():
    assert phases_of(TraceBuilder().range(0, 10, "")).paths == ["<unnamed>"]


def test_a_trace_without_ranges_has_no_phases():
    found = phases_of(TraceBuilder().kernel(0, 5, launch=(0, 1)).kernel(5, 6))

    assert (found.paths, found.parents, found.rows.tolist()) == ([], [], [])
    assert found.path_of(np.array([-1, -1])).tolist() == [-1, -1]
    assert found.at(np.array([-1, 0, 1])).tolist() == [-1, -1, -1]
    assert phases_of(TraceBuilder().range(0, 5, "a")).at(np.array([-1])).tolist() == [-1]


def test_steps_operators_libraries_and_other_domains_are_no_phases():
    made = TraceBuilder().range(0, 90, "step").range(1, 80, "forward")
    made.range(2, 70, "aten::mm", kind=RangeKind.OPERATOR).range(3, 60, "nccl:all_reduce")
    made.range(4, 50, "forward", domain="CCCL").range(5, 40, "forward", kind=RangeKind.START_END)
    made.range(6, 30, "aten::add")

    assert phases_of(made, steps=[0]).rows.tolist() == [False, True] + [False] * 5


def test_the_first_text_of_a_file_may_be_a_domain():
    assert phases_of(TraceBuilder().range(4, 50, "forward", domain="CCCL")).paths == []


def test_marks_of_profkit_leave_no_other_phase_in_their_process_and_all_in_others():
    made = TraceBuilder(processes=2, threads=((0, ()), (1, ()), (0, ())))
    made.range(0, 90, "mine", domain=PHASE_DOMAIN).range(5, 60, "other").range(0, 30, "third", thread=LOADER)
    made.range(0, 90, "elsewhere", thread=1)

    assert phases_of(made).paths == ["elsewhere", "mine"]


def test_operations_have_the_phase_open_at_their_launch():
    made = TraceBuilder().range(0, 40, "a").range(10, 30, "b").range(0, 99, "c", thread=LOADER)
    made.kernel(100, 110, launch=(5, 6)).kernel(110, 120, launch=(30, 31)).kernel(120, 130, launch=(40, 41))
    made.kernel(130, 140, launch=(10, 11)).kernel(140, 150).kernel(150, 160, launch=(7, 8), thread=LOADER)
    found = phases_of(made)

    assert found.of_operation.tolist() == [0, 0, -1, 1, -1, 2]
    assert found.host_thread.tolist() == [MAIN, MAIN, MAIN, MAIN, -1, LOADER]
    assert found.at(np.array([3, -1, 5])).tolist() == [1, -1, 2]


def test_a_backward_thread_has_the_phase_of_the_only_thread_of_its_process_that_has_one_open():
    made = TraceBuilder(processes=2, threads=((0, ()), (0, ("pt_autograd_0",)), (0, ()), (1, ())))
    made.range(0, 50, "backward").range(40, 90, "other", thread=LOADER).range(0, 99, "apart", thread=3)
    for start in (10, 40, 60, 95):
        made.kernel(100 + start, 101 + start, launch=(start, start + 1), thread=BACKWARD)
    found = phases_of(made)

    # Two have one open between 40 and 50.
    assert found.of_operation.tolist() == [0, -1, 1, -1]
    assert found.host_thread.tolist() == [MAIN, BACKWARD, LOADER, BACKWARD]
    assert found.autograd_threads == {BACKWARD}
    thread, time = np.array([BACKWARD, LOADER, BACKWARD]), np.array([39, 10, 49])
    assert phase_at(made.trace(), found, thread, time).tolist() == [0, -1, -1]


def test_a_backward_thread_with_a_phase_of_its_own_keeps_it():
    made = TraceBuilder().range(5, 30, "hook", thread=BACKWARD).range(0, 50, "backward")
    made.kernel(60, 70, launch=(6, 7), thread=BACKWARD).kernel(70, 80, launch=(40, 41), thread=BACKWARD)
    found = phases_of(made)

    assert found.of_operation.tolist() == [0, 1]
    assert found.host_thread.tolist() == [BACKWARD, MAIN]


def test_threads_of_the_autograd_engine_are_known_by_name_by_ranges_or_by_launching_without_phases():
    threads = ((0, ("python",)), (0, ("x", "pt_autograd_1")), (0, ("w",)), (0, ()), (0, ("named",)), (0, ()))
    made = TraceBuilder(threads=threads).range(0, 9, "main", thread=0)
    made.range(0, 9, "autograd::engine::evaluate_function: X", thread=2, kind=RangeKind.OPERATOR)
    made.range(0, 9, "torch::autograd::AccumulateGrad", thread=5, kind=RangeKind.OPERATOR)
    for thread in (0, 2, 3, 4):
        made.kernel(10, 20, launch=(1, 2), thread=thread)
    # A thread that only copies launches nothing.
    made.copy(10, 20, launch=(1, 2), thread=5)

    assert phases_of(made).autograd_threads == {1, 2, 3}


def test_a_nameless_thread_beside_a_named_one_that_launches_nothing_is_the_engines():
    made = TraceBuilder(threads=((0, ("python",)), (0, ()))).kernel(10, 20, launch=(1, 2), thread=1)

    assert phases_of(made).autograd_threads == {1}


def test_a_nameless_thread_that_opens_phases_is_none_of_the_engine():
    made = TraceBuilder(threads=((0, ()), (0, ()))).range(0, 9, "a", thread=1)
    made.kernel(10, 20, launch=(1, 2), thread=1).kernel(10, 20, kind=OperationKind.GRAPH, launch=(1, 2))

    assert phases_of(made).autograd_threads == {0}


def test_ranges_that_nest_without_end_are_phases_down_to_a_depth():
    made = TraceBuilder()
    for depth in range(DEEPEST_PHASE + 3):
        made.range(depth, 500 - depth, f"p{depth}")
    made.kernel(600, 700, launch=(200, 201))
    found = phases_of(made)

    assert found.too_deep == 3
    assert found.rows.sum() == len(found.paths) == DEEPEST_PHASE
    assert found.of_operation.tolist() == [DEEPEST_PHASE - 1]
    assert found.paths[-1].count("/") == DEEPEST_PHASE - 1
