"""Operations and the calls that launched them."""

import numpy as np

from profkit.model import RangeKind
from profkit.timeline.launches import (
    find_launches,
    launch_calls,
    launches_without_kernel,
    unstarted_launches,
)
from tests.builders import LOADER, MAIN, TraceBuilder


def called(made, **columns):
    """A kernel that a call with this correlation may have launched."""
    made.kernel(100, 110)
    made._operations[-1].update(columns)
    return made


def lost(made):
    trace = made.trace()
    return launches_without_kernel(trace, find_launches(trace))


def test_the_runtime_call_is_the_launch_also_where_the_driver_call_came_first():
    made = TraceBuilder().call(1, 9, "cuLaunchKernel", correlation=5, driver=1)
    made.call(2, 8, "cudaLaunchKernel", correlation=5).call(0, 10, "cudaLaunchKernel", correlation=6)
    found = find_launches(called(called(made, correlation=5), correlation=6).trace())

    assert found.call.tolist() == [1, 2]
    assert (found.time_ns.tolist(), found.return_ns.tolist()) == ([2, 0], [8, 10])
    assert found.linked.tolist() == [True, True]


def test_of_calls_of_one_kind_the_earliest_is_the_launch():
    made = TraceBuilder().call(5, 6, "cuLaunchKernelEx", correlation=5, driver=1)
    made.call(4, 7, "cuLaunchKernel", correlation=5, driver=1, thread=LOADER)
    found = find_launches(called(made, correlation=5).trace())

    assert (found.call.tolist(), found.thread.tolist()) == ([1], [LOADER])


def test_operations_without_a_call_have_no_launch_thread_or_operator():
    made = TraceBuilder().range(0, 50, "aten::mm", kind=RangeKind.OPERATOR)
    made.call(5, 6, "cudaLaunchKernel", correlation=3).call(7, 8, "cudaFree")
    for correlation in (0, 2, 3, 4, 99):
        called(made, correlation=correlation)
    found = find_launches(made.trace())

    assert found.call.tolist() == [-1, -1, 0, -1, -1]
    assert found.thread.tolist() == [-1, -1, MAIN, -1, -1]
    assert found.operator.tolist() == [-1, -1, 0, -1, -1]
    assert (found.time_ns[2], found.return_ns[2]) == (5, 6)
    assert found.linked.tolist() == [False, False, True, False, False]


def test_a_trace_without_calls_or_operations_has_no_launches():
    assert find_launches(TraceBuilder().kernel(0, 5).trace()).call.tolist() == [-1]
    assert find_launches(TraceBuilder().call(0, 5, "cudaLaunchKernel").trace()).call.tolist() == []
    assert lost(TraceBuilder().kernel(0, 5)) == 0


def test_each_process_has_its_own_correlation_ids():
    made = TraceBuilder(processes=2, threads=((1, ()), (0, ())))
    made.call(1, 2, "cudaLaunchKernel", thread=0, correlation=5)
    made.call(3, 4, "cudaLaunchKernel", thread=1, correlation=5)
    called(made, correlation=5, process=0)
    called(made, correlation=5, process=1)

    assert find_launches(made.trace()).call.tolist() == [1, 0]


def test_a_process_without_operations_does_not_matter():
    made = TraceBuilder(processes=3, threads=((0, ()), (2, ())))
    made.call(1, 2, "cudaLaunchKernel", thread=0, correlation=5)
    made.call(3, 4, "cudaLaunchKernel", thread=1, correlation=5)

    assert find_launches(called(made, correlation=5, process=2).trace()).call.tolist() == [1]


def test_the_operator_is_the_innermost_on_the_launching_thread():
    made = TraceBuilder().range(0, 50, "aten::linear", kind=RangeKind.OPERATOR)
    made.range(0, 50, "forward").range(4, 10, "aten::addmm", kind=RangeKind.OPERATOR)
    made.kernel(60, 70, launch=(5, 6)).kernel(70, 80, launch=(20, 21)).kernel(
        80, 90, launch=(5, 6), thread=LOADER
    )

    assert find_launches(made.trace()).operator.tolist() == [2, 0, -1]


def test_calls_that_launch_are_known_by_name():
    names = (
        "cudaLaunchKernel",
        "cuLaunchCooperativeKernel",
        "hipModuleLaunchKernel",
        "cudaGraphLaunch_v10000",
    )
    others = ("hipExtLaunchMultiKernelMultiDevice", "cudaMemcpyAsync", "cudaStreamSynchronize")
    made = TraceBuilder()
    for name in (*names, *others):
        made.call(0, 1, name)
    trace = made.trace()

    assert launch_calls(trace, trace.calls.name).tolist() == [True] * 5 + [False] * 2
    assert launch_calls(trace, np.array([6, 0])).tolist() == [False, True]


def test_launches_that_no_operation_has_are_counted_once_an_id():
    made = TraceBuilder().kernel(0, 5, launch=(0, 1))
    # Inside the used call, a driver call of its id: the same launch.
    made.call(0, 1, "cuLaunchKernel", correlation=1, driver=1)
    # One lost launch in two calls, another in one; id 0 is none; a copy is no launch.
    made.call(2, 9, "cudaLaunchKernel", correlation=7).call(3, 8, "cuLaunchKernel", correlation=7, driver=1)
    made.call(10, 11, "cudaLaunchKernel", correlation=8).call(12, 13, "cudaLaunchKernel")
    made.call(14, 15, "cudaMemcpyAsync", correlation=9)

    assert lost(made) == 2


def test_a_lost_launch_of_one_process_is_not_found_in_another():
    made = TraceBuilder(processes=2, threads=((0, ()), (1, ()))).kernel(0, 5, launch=(0, 1))
    made.call(2, 3, "cudaLaunchKernel", thread=1, correlation=1)
    made.call(4, 5, "cudaLaunchKernel", thread=1, correlation=4).call(6, 7, "cudaFree", thread=1)

    assert lost(made) == 2


def _numbered(external, launch=(60, 65), **columns):
    made = TraceBuilder().range(10, 50, "aten::mm", kind=RangeKind.OPERATOR, external=2)
    made.range(52, 92, "aten::add_", kind=RangeKind.OPERATOR, external=3)
    made.kernel(200, 300, launch=launch, external=external, **columns)
    trace = made.trace()
    row = find_launches(trace).operator[0]
    return trace.strings[trace.ranges.name[row]] if row >= 0 else None


def test_a_number_names_the_operator_where_calls_are_stamped_late():
    assert _numbered(2) == "aten::mm"


def test_without_a_number_the_time_decides():
    assert _numbered(0) == "aten::add_"
    assert _numbered(99) == "aten::add_"


def test_a_number_of_an_operator_long_over_is_of_another_space():
    assert _numbered(2, launch=(25_000_000, 25_000_005)) is None


def test_a_number_that_two_operators_have_names_none():
    made = TraceBuilder().range(10, 50, "aten::mm", kind=RangeKind.OPERATOR, external=2)
    made.range(52, 92, "aten::add_", kind=RangeKind.OPERATOR, external=2).kernel(
        200, 300, launch=(60, 65), external=2
    )
    assert find_launches(made.trace()).operator.tolist() == [1]


def test_launches_behind_the_last_recorded_operation_had_not_started():
    made = TraceBuilder().call(50, 51, "cudaLaunchKernel", correlation=90)
    made.kernel(60, 900, launch=(55, 56))
    for at, start in enumerate((400, 500, 950)):
        made.call(start, start + 1, "cudaLaunchKernel", correlation=91 + at)
    trace = made.trace()

    # One was lost before that operation, and one was made when the device had long been idle.
    calls = unstarted_launches(trace, find_launches(trace))
    assert sorted(trace.calls.start_ns[calls].tolist()) == [400, 500]
    assert launches_without_kernel(trace, find_launches(trace)) == 4
