"""The replay against clocks that are worked out by hand, in ns."""

import pytest

from profkit.simulation import replay as module
from profkit.simulation.replay import RecorderCost, Replay, replay, without_recorder
from tests.simulation.programs import launch, program, wait


def test_a_kernel_starts_a_latency_after_its_launch_has_returned_and_a_wait_holds_the_host():
    # 10 + 5 host, 7 latency, 100 kernel; the wait ends at 122 and takes 3 more; 4 to the end of the step.
    made = program(launch((100,), gap=10, own=5), wait(gap=20, own=3), launch(gap=4), latency=7)

    assert replay(made) == Replay(step_ns=10 + 5 + 7 + 100 + 3 + 4, device_busy_ns=100, host_ns=42)


def test_a_host_that_is_behind_does_not_wait():
    made = program(launch((100,), gap=10, own=5), wait(gap=200, own=3), launch(gap=4), latency=7)

    assert replay(made).step_ns == 10 + 5 + 200 + 3 + 4


def test_operations_of_a_stream_follow_each_other_and_those_of_two_run_side_by_side():
    one = program(launch((100,), own=5), launch((60,), own=5), launch())
    two = program(launch((100, 0), own=5), launch((60, 1), own=5), wait(), launch())

    assert replay(one) == Replay(160, 160, 10)
    assert replay(two) == Replay(105, 160, 10)


def test_what_an_operation_waits_for_on_another_stream_and_its_lead_delay_it():
    made = program(launch((100, 0), own=5), launch((60, 1, 8, 0), own=5), wait(), launch())

    assert replay(made).step_ns == 5 + 100 + 8 + 60


def test_an_operation_may_start_within_its_call_but_not_before_it():
    within = program(launch((50, 0, 0, -1, 15), own=40), wait(), launch(), latency=2)
    before = program(launch((50, 0, 0, -1, 99), own=40), wait(), launch(), latency=2)

    assert replay(within).step_ns == 40 + 2 - 15 + 50
    assert replay(before).step_ns == 40 + 2 - 40 + 50


def test_all_operations_of_one_launch_are_ready_at_once():
    made = program(launch((10, 0), (20, 1), (30, 1), own=5), wait(), launch())

    assert replay(made) == Replay(5 + 50, 60, 5)


def test_a_launch_blocks_while_the_queue_of_the_device_is_full(monkeypatch):
    monkeypatch.setattr(module, "QUEUE_DEPTH", 2)
    made = program(*[launch((100,), own=1) for _ in range(4)], launch(gap=350), wait(), launch())

    # The third launch waits for the first kernel (101), the fourth for the second (201); then 350 of host.
    assert replay(made).step_ns == 201 + 350
    monkeypatch.setattr(module, "QUEUE_DEPTH", 4)
    assert replay(made).step_ns == 401


def test_the_period_is_that_of_later_rounds_where_the_queue_is_full_of_work():
    # The host runs 50 ahead each round; the device is the limit.
    assert replay(program(launch((100,), own=50), launch())).step_ns == 100
    # The device runs dry each round; the host is the limit, however late its first kernel.
    assert replay(program(launch((100,), own=150), launch(gap=30), latency=1_000)).step_ns == 180


def test_the_recorders_events_are_taken_off_the_gap_and_the_call_that_hold_them_down_to_a_quarter():
    made = program(
        launch((10,), gap=600, own=400, ranges=2, calls=1),
        launch((10,), gap=600, own=400, ranges=100),
        launch(gap=500, fetch=300, calls=2),
    )
    found = without_recorder(made, RecorderCost(range_ns=100, call_ns=50))

    # 250 of 1000 are the recorder's; all but a quarter may be; fetching is the program's own.
    assert found.gap_ns.tolist() == [450, 150, 300 + 200 * 0.8]
    assert found.own_ns.tolist() == [300, 100, 0]


def test_nothing_is_taken_off_where_there_is_nothing():
    made = program(launch((10,)), launch(gap=1))

    assert without_recorder(made, RecorderCost(100, 50)).gap_ns.tolist() == [0, 1]


def test_with_the_plain_time_known_the_host_is_scaled_to_it_and_fetching_is_not():
    made = program(launch((10,), gap=1_000_000, own=200_000, fetch=400_000), launch())
    found = without_recorder(made, RecorderCost(0, 0), plain_step_ns=600_000)

    # 400 of fetching and 800 of the rest, to what a replay is off by.
    left = 600_000 / 0.95 - 400_000
    assert replay(found).step_ns == pytest.approx(600_000 / 0.95, abs=200)
    assert found.gap_ns.tolist() == [pytest.approx(400_000 + left * 0.75, abs=150), 0]
    assert found.own_ns.tolist() == [pytest.approx(left * 0.25, abs=50), 0]
    unchanged = without_recorder(made, RecorderCost(0, 0))
    near = without_recorder(made, RecorderCost(0, 0), plain_step_ns=round(1_200_000 * 0.96))
    assert near.gap_ns.tolist() == unchanged.gap_ns.tolist()
    assert without_recorder(made, RecorderCost(0, 0), plain_step_ns=2_000_000) is made


def test_a_plain_time_that_is_the_device_s_bounds_the_host_by_what_the_replay_is_off_by():
    # The device needs 1 ms, which nearly is the plain step: of the 40 us before the kernel it tells nothing.
    hidden = program(launch((1_000_000,), gap=40_000, own=5), launch(gap=800_000), wait(), launch())
    longer = program(launch((1_000_000,), gap=40_000, own=5), launch(gap=1_400_000), wait(), launch())

    assert without_recorder(hidden, RecorderCost(0, 0), 1_005_000).gap_ns.tolist() == hidden.gap_ns.tolist()
    bounded = without_recorder(longer, RecorderCost(0, 0), 1_005_000)
    assert replay(bounded).step_ns == pytest.approx(1_005_000 / 0.95, rel=1e-3)


def test_a_host_that_is_too_fast_is_slowed_up_to_the_plain_time():
    made = program(launch((10,), gap=1_000_000), launch())
    found = without_recorder(made, RecorderCost(0, 0), plain_step_ns=900_000, host=0.5)

    assert replay(found).step_ns == pytest.approx(900_000 * 0.95, rel=1e-3)


def test_a_held_copy_waits_for_its_stream_and_for_no_other():
    held = program(launch((100, 0)), launch((900, 1)), launch((10, 0), own=5), launch(gap=50), held=[2])

    # The copy's launch waits for 100, then takes 5; the copy follows, and the host goes on meanwhile.
    assert replay(program(launch((100, 0)), launch((10, 0), own=5), launch(gap=50), held=[1])).step_ns == 155
    assert replay(held).step_ns == 900


def test_the_programs_own_work_is_neither_the_recorders_nor_launching():
    made = program(launch((10, 0), gap=500, own=10), launch(gap=20), work=[400, 0])

    assert without_recorder(made, RecorderCost(0, 0), host=0.5).gap_ns.tolist() == [450, 10]


@pytest.mark.parametrize("gap", [0, 40, 400])
@pytest.mark.parametrize("depth", [3, 1_024])
def test_a_program_that_is_steady_early_is_not_run_on_and_has_the_same_period(monkeypatch, gap, depth):
    monkeypatch.setattr(module, "QUEUE_DEPTH", depth)
    made = program(
        launch((100, 0), gap=gap, own=5), launch((60, 1, 8, 0), own=5), launch((30,), gap=7, own=9), latency=7
    )
    early, rounds = replay(made), len(module._run(made)[0])

    monkeypatch.setattr(module, "_is_steady", lambda *_: False)
    assert replay(made) == early
    assert len(module._run(made)[0]) == module._ROUNDS
    assert (rounds == 2) == (gap == 400)


def test_a_wait_for_one_stream_is_not_held_by_another():
    tokens = (launch((100, 0), own=5), launch((900, 1), own=5), wait(), launch((10, 0), gap=50), launch())

    assert replay(program(*tokens)).step_ns == pytest.approx(960)
    # Stream 1 goes on while the host does: it is its 900 ns that set the period.
    assert replay(program(*tokens, unawaited=0b10)).step_ns == pytest.approx(900)
