"""A step under change, column by column."""

import numpy as np
import pytest

from profkit.simulation.constants import LIKELY, SCENARIOS, Constants
from profkit.simulation.copies import load_with
from profkit.simulation.launching import capture, keep_memory, lift_waits
from profkit.simulation.step_program import LAUNCH, WAIT
from tests.simulation.programs import edited, launch, program, wait, with_constants


def three_launches():
    """Two operations by the first launch, one by the others; a wait before the last."""
    return program(
        launch((100, 0), (50, 1, 8, 0, 3), gap=20, own=10, ranges=1, calls=2),
        launch((70, 0), gap=40, own=12, fetch=30, allocate=5, ranges=3, calls=4),
        wait(gap=6, own=2),
        launch((60, 1, 0, 2), gap=30, own=14, allocate=4),
        launch(gap=9),
    )


def rows(*chosen, count=4):
    return np.isin(np.arange(count), chosen)


def test_an_unchanged_draft_is_its_program():
    made = three_launches()
    same = edited(made).program()

    for name, value in vars(made).items():
        assert np.array_equal(getattr(same, name), value), name


def test_a_launch_goes_with_its_last_operation_and_what_it_fetched_passes_to_the_next():
    change = edited(three_launches())
    change.drop(rows(2))
    found = change.program()

    assert found.kind.tolist() == [LAUNCH, WAIT, LAUNCH, LAUNCH]
    assert found.gap_ns.tolist() == [20, 6 + 35, 30, 9]
    assert found.own_ns.tolist() == [10, 2, 14, 0]
    assert found.first.tolist() == [0, 2, 2, 3, 3]
    assert found.row.tolist() == [0, 1, 3]
    assert found.duration_ns.tolist() == [100, 50, 60]
    assert found.stream.tolist() == [0, 1, 1]
    assert found.lead_ns.tolist() == [0, 8, 0]
    assert found.early_ns.tolist() == [0, 3, 0]
    assert found.call.tolist() == [0, 2, 3, -1]
    assert (found.ranges.tolist(), found.calls.tolist()) == ([1, 0, 0, 0], [2, 0, 0, 0])
    assert found.allocation_ns.tolist() == [0, 0, 4, 0]
    # The last waited for the one that is gone.
    assert found.after.tolist() == [-1, 0, -1]


def test_a_launch_stays_while_one_of_its_operations_does_and_dependencies_are_numbered_anew():
    change = edited(three_launches())
    change.drop(rows(1))
    found = change.program()

    assert found.gap_ns.tolist() == [20, 40, 6, 30, 9]
    assert found.first.tolist() == [0, 1, 2, 2, 3, 3]
    assert found.after.tolist() == [-1, -1, 1]


def test_a_share_of_the_host_time_may_stay():
    change = edited(three_launches())
    change.drop(rows(2, 3), host=0.5)

    # Of 40, 35 are fetching and allocating.
    assert change.gap_ns.tolist() == [20, 35 + 2.5, 6, 4 + 13, 9]
    assert change.own_ns.tolist() == [10, 6, 2, 7, 0]
    # What has no operation left is one gap with what follows, its call included.
    assert change.program().gap_ns.tolist() == [20, 6 + 37 + 6, 9 + 17 + 7]


def test_a_second_change_finds_nothing_at_what_is_gone():
    change = edited(three_launches())
    change.drop(rows(2), host=0.5)
    gap = change.gap_ns.tolist()
    change.drop(rows(2))

    assert change.gap_ns.tolist() == gap


def test_the_way_into_an_operator_stays_where_only_its_kernels_go():
    made = program(*(launch((5,), gap=20, own=4, fetch=1) for _ in range(4)), launch())
    change = edited(made)
    change.drop(rows(0, 1, 3), within=True)

    # Each run's first keeps what led to it.
    assert change.gap_ns.tolist() == [20, 1, 20, 20, 0]
    assert change.own_ns.tolist() == [0, 0, 4, 0, 0]


def test_the_host_time_of_chosen_launches_is_scaled_and_fetching_is_not():
    change = edited(three_launches())
    change.drop(rows(3))
    change.scale_host(rows(2, 3), 3.0)

    assert change.gap_ns.tolist() == [20, 35 + 5 * 3, 6, 4, 9]
    assert change.own_ns.tolist() == [10, 36, 2, 0, 0]


def test_host_time_of_launches_is_without_fetching_and_is_given_back_beside_it():
    change = edited(three_launches())

    assert change.host_ns(np.array([0, 1])) == 20 + 10 + 5 + 12
    change.give_host(1, 100.0)
    assert (change.gap_ns[1], change.own_ns[1]) == (35 + 88, 12)
    change.give_host(3, 6.0)
    assert (change.gap_ns[3], change.own_ns[3]) == (4, 6)


def test_work_that_is_put_before_an_operation_takes_device_and_host_time():
    change = edited(three_launches())
    change.add(2, 30.0, 7.0)

    assert change.duration_ns.tolist() == [100, 50, 100, 60]
    assert change.gap_ns.tolist() == [20, 47, 6, 30, 9]


def test_only_chosen_operations_get_shorter():
    change = edited(three_launches())
    change.retime(rows(0, 1), np.array([80.0, 90.0, 1.0, 1.0]))

    assert change.duration_ns.tolist() == [80, 50, 70, 60]


def test_a_time_below_nothing_is_none():
    change = edited(three_launches())
    change.duration_ns[0], change.lead_ns[1], change.early_ns[1] = -5, -6, -7
    change.gap_ns[0], change.own_ns[0] = -8, -9
    found = change.program()

    assert (found.duration_ns[0], found.lead_ns[1], found.early_ns[1]) == (0, 0, 0)
    assert (found.gap_ns[0], found.own_ns[0]) == (0, 0)


def test_fetching_and_allocating_are_at_most_the_gap():
    change = edited(program(launch((5,), gap=10, fetch=25, allocate=30), launch()))

    assert (change.input_ns[0], change.allocation_ns[0]) == (10, 10)


def test_a_graph_is_one_launch_after_what_the_host_still_has_to_do():
    change = edited(three_launches(), with_constants(node_ns=11.0))
    change.usual_launch_ns = 20.0
    change.early_ns[0] = 4
    change.drop(rows(1))
    capture(change)
    found = change.program()

    assert found.kind.tolist() == [LAUNCH]
    assert found.gap_ns.tolist() == [30 + 5 + 4]
    assert found.own_ns.tolist() == [20]
    assert found.first.tolist() == [0, 3]
    assert found.call.tolist() == [-1]
    assert found.row.tolist() == [0, 2, 3]
    assert found.lead_ns.tolist() == [11, 11, 11]
    assert found.early_ns.tolist() == [0, 0, 0]
    assert found.after.tolist() == [-1, -1, 1]
    for name in ("input_ns", "allocation_ns", "ranges", "calls"):
        assert getattr(found, name).tolist() == [0], name


def test_a_lifted_wait_is_a_call_of_the_host_that_holds_nothing_up():
    change = edited(three_launches())
    lift_waits(change)

    assert change.own_ns.tolist() == [10, 12, 2, 14, 0]


def test_without_allocation_its_time_is_gone():
    change = edited(three_launches())
    keep_memory(change)

    assert change.gap_ns.tolist() == [20, 35, 6, 26, 9]
    assert change.allocation_ns.tolist() == [0] * 5


@pytest.mark.parametrize(
    ("workers", "fetch_us", "gap_us", "least_us"),
    [(4, 2_000, 300 + 200, 500), (1, 100, 300 + 100, 100), (0, 2_000, 500, 2_000), (2, 0, 300, 0)],
)
def test_workers_leave_the_taking_of_a_batch_and_bound_the_step(workers, fetch_us, gap_us, least_us):
    made = program(launch((5,), gap=(300 + fetch_us) * 1_000, fetch=fetch_us * 1_000), launch())
    change = edited(made)
    load_with(workers)(change)

    assert change.gap_ns[0] == pytest.approx(gap_us * 1_000)
    assert change.input_ns[0] == pytest.approx((gap_us - 300) * 1_000)
    assert change.least_ns == pytest.approx(least_us * 1_000)


def test_the_first_scenarios_change_nothing_but_the_host():
    slow, quick = SCENARIOS[:2]

    assert 0.5 <= quick.host < LIKELY.host < slow.host <= 1.5
    assert all(Constants(**{**vars(each), "host": 1.0}) == LIKELY for each in (slow, quick))


def test_a_graph_and_a_dropped_launch_leave_the_programs_own_work():
    made = program(launch((10, 0), gap=500, own=10), launch((10, 0), gap=90), launch(), work=[400, 80, 0])
    graph, less = edited(made), edited(made)

    graph.graphed = True
    less.drop(np.array([True, False]))

    assert graph.program().gap_ns.tolist() == [480]
    assert less.program().gap_ns.tolist() == [490, 0]
