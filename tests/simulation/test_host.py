"""The host's time: what the recorder took of it, and what a change takes off."""

from dataclasses import replace

import numpy as np
import pytest

from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import CHANGES, changes_named, find_step
from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.launching import without_ranges
from profkit.simulation.predict import Step
from profkit.simulation.recorder_cost import recorder_cost
from profkit.simulation.replay import RecorderCost, without_recorder
from tests.advice.made_steps import ADD, BF16_GEMM, MULTI_TENSOR, SGEMM, loop
from tests.simulation.steps import CONVOLUTION, MS, NHWC, step_of, two_adds


def test_the_recorder_is_taken_off_the_host_and_never_put_on():
    program = step_of(two_adds).facts.program

    cheaper = without_recorder(program, RecorderCost(2_000, 2_000))

    assert (cheaper.gap_ns + cheaper.own_ns).sum() == pytest.approx(
        (program.gap_ns + program.own_ns).sum() - 2_000 * (program.ranges + program.calls).sum(), abs=10
    )
    assert without_recorder(program, RecorderCost(0, 0), plain_step_ns=10**12) is program


def recorded_with_launches_of(us, launches=60):
    def body(step, number):
        for _ in range(launches):
            step.launch(ADD, 5)

    step = step_of(body)
    trace = step.facts.view.trace
    calls = replace(trace.calls, end_ns=trace.calls.start_ns + round(us * 1_000))
    return recorder_cost(replace(trace, calls=calls), step.facts.program)


@pytest.mark.parametrize(("us", "more_us"), [(2.0, 0.0), (3.7, 0.0), (5.7, 2.0), (9.7, 6.0)])
def test_most_of_an_events_cost_is_what_a_launch_took_beyond_a_plain_one(us, more_us):
    cost, plain = recorded_with_launches_of(us), recorded_with_launches_of(3.7)

    assert cost.range_ns - plain.range_ns == pytest.approx(0.875 * more_us * 1_000, abs=1)
    assert cost.call_ns == cost.range_ns / 2
    assert recorded_with_launches_of(100.0).range_ns == 8_000  # no recorder takes more


@pytest.mark.parametrize("host_us", [4, 12, 90])
def test_the_rest_is_a_share_of_what_the_host_took_for_an_event(host_us):
    def body(step, number):
        for _ in range(60):
            step.launch(ADD, 5, host=host_us)

    step = step_of(body)
    trace = step.facts.view.trace
    calls = replace(trace.calls, end_ns=trace.calls.start_ns + 1)
    cost = recorder_cost(replace(trace, calls=calls), step.facts.program)
    each = host_us / 1.5  # a range, and half as much for its call
    assert cost.range_ns == pytest.approx(min(0.15 * each, 8) * 1_000, rel=0.1, abs=60)


def test_too_few_launches_tell_nothing_of_the_recorder():
    few = [recorded_with_launches_of(us, launches=9).range_ns for us in (5, 9)]
    enough = [recorded_with_launches_of(us, launches=10).range_ns for us in (5, 9)]
    assert few[0] == few[1]
    assert enough[1] - enough[0] == pytest.approx(0.875 * 4_000)


@pytest.mark.parametrize(("us", "cost_us"), [(8, 2.0), (400, 8.0)])
def test_without_operators_a_call_costs_a_share_of_its_time_up_to_a_bound(us, cost_us):
    def body(step, number):
        for _ in range(60):
            step.launch(ADD, 5, host=us, operators=())

    step = step_of(body)
    cost = recorder_cost(step.facts.view.trace, step.facts.program)

    assert cost.range_ns == cost.call_ns == pytest.approx(cost_us * 1_000, rel=0.05)


def test_the_way_into_an_operator_stays_when_only_its_first_kernels_go():
    def body(step, number):
        for _ in range(4):
            step.launch(NHWC, 20, host=90, operators=("aten::cudnn_convolution",))
            step.launch(NHWC, 20, host=7, operators=("aten::cudnn_convolution",))
            step.launch(CONVOLUTION, 20, host=7, operators=("aten::cudnn_convolution",))

    step = step_of(body)
    edited = EditedStep(step.facts, step.program, LIKELY)
    before = edited.program()
    CHANGES["channels-last"][0](edited)
    after = edited.program()

    assert len(after.row) == 4
    saved = int((before.gap_ns + before.own_ns).sum() - (after.gap_ns + after.own_ns).sum())
    # Two launches of each convolution; the way to its first kernel is most of the host's time.
    assert 0 < saved < 0.25 * (before.gap_ns + before.own_ns).sum()
    assert step.predict(changes_named(["channels-last"])).likely < 1.25


@pytest.mark.parametrize(("change", "most"), [("fused-optimizer", 0.65), ("foreach-optimizer", 1.0)])
def test_an_optimizer_over_lists_takes_its_share_of_the_host_after_the_change(change, most):
    def body(step, number):
        for _ in range(40):
            step.launch(BF16_GEMM, 2, host=60, operators=("aten::mm",))
        with step.within("Optimizer.step#Adam.step"):
            for index in range(8):
                step.launch(MULTI_TENSOR, 2, host=200, operators=(f"aten::_foreach_op{index}_",))

    step = step_of(body)
    edited = EditedStep(step.facts, step.program, LIKELY)
    host = [float((edited.gap_ns + edited.own_ns)[-9:].sum())]
    CHANGES[change][0](edited)
    after = edited.program()
    host.append(float((after.gap_ns + after.own_ns)[40:].sum()))

    assert 0.3 * host[0] < host[1] <= most * host[0]


def test_the_host_time_of_a_range_goes_up_to_the_next_launch_and_fetching_stays():
    def body(step, number):
        with step.within("checking"):
            step.idle(5_000)
        with step.within("data"):
            step.idle(2_000)
        step.launch(ADD, 10)

    step = step_of(body)
    edited = EditedStep(step.facts, step.program, LIKELY)
    trace = step.facts.view.trace
    before = edited.gap_ns.sum()
    without_ranges(np.array([trace.strings[n] == "checking" for n in trace.ranges.name]))(edited)

    assert before - edited.gap_ns.sum() == pytest.approx(5 * MS, rel=0.05)
    without_ranges(np.ones(len(trace.ranges), bool))(edited)
    assert edited.gap_ns.sum() >= 2 * MS


def test_host_time_after_the_last_launch_is_that_of_a_usual_step():
    def body(step, number):
        step.launch(ADD, 10)
        # The recorder stops within the last step.
        step.idle(9_000 if number == 3 else 10)

    views, _ = timelines([loop(body)], Options())
    step = max((find_step(v, 0) for v in views), key=lambda s: s.facts.program.step_ns)

    assert step.facts.program.gap_ns[-1] < MS


def waiting(step, number):
    for _ in range(4):
        step.launch(SGEMM, 900, host=40, operators=("aten::mm",), shapes=[[4096, 4096], [4096, 4096]])
        step.wait()
        step.idle(150)


def test_lifting_waits_saves_no_more_than_the_device_stood_idle_after_them():
    step = step_of(waiting)
    view = step.facts.view
    cost = view.wait_cost_ns[0].reshape(-1, 4).sum(axis=1).max()  # four waits a step
    lifted, tf32 = changes_named(["no-sync"]), changes_named(["tf32"])

    assert 0 < step.predict(lifted).saving_ns <= cost

    # The same step, had the waits cost nothing: other changes still bring what they bring.
    harmless = replace(view, wait_cost_ns=np.zeros_like(view.wait_cost_ns))
    same = Step(replace(step.facts, view=harmless), step.unprofiled)
    assert same.predict(lifted).saving_ns <= 0
    assert same.predict([*tf32, *lifted]).after_ns == pytest.approx(same.predict(tf32).after_ns)
    assert step.predict([*tf32, *lifted]).after_ns < same.predict(tf32).after_ns


@pytest.mark.parametrize("plain_us", [4_900, 4_990, 5_010, 5_200])
def test_a_plain_time_that_the_device_alone_takes_says_nothing_of_the_host(plain_us):
    def slow_device(step, number):
        for _ in range(20):
            step.launch(ADD, 250, host=100)

    program = step_of(slow_device).facts.program
    cost = RecorderCost(2_000, 2_000)

    found = without_recorder(program, cost, plain_step_ns=plain_us * 1_000)

    recorded, left = ((p.gap_ns + p.own_ns).sum() for p in (program, found))
    assert left == pytest.approx(recorded - 2_000 * (program.ranges + program.calls).sum(), rel=0.01)


def test_a_plain_time_that_the_host_takes_scales_the_host():
    def slow_host(step, number):
        for _ in range(20):
            step.launch(ADD, 20, host=100)

    program = step_of(slow_host).facts.program

    found = without_recorder(program, RecorderCost(0, 0), plain_step_ns=1_200_000)

    assert (found.gap_ns + found.own_ns).sum() == pytest.approx(1_200_000 / 0.95, rel=0.02)


@pytest.mark.parametrize("change", ["compile", "cuda-graphs"])
def test_a_pause_of_the_program_is_no_launching(change):
    def body(step, number):
        for index in range(40):
            if index == 20:
                step.idle(30_000)
            step.launch(ADD, 5, host=20, shapes=[[64, 64]])

    step = step_of(body)
    after = step.predict(changes_named([change])).after_ns

    assert 25 * MS < after < step.plain_ns


def test_memory_that_is_asked_for_while_data_is_fetched_counts_once():
    def body(step, number):
        with step.within("data"):
            step.idle(5_000)
        step.launch(ADD, 100)

    program = step_of(body).facts.program

    assert (program.input_ns + program.allocation_ns <= program.gap_ns).all()


def test_a_cost_of_less_than_nothing_is_none():
    step = step_of(lambda step, number: [step.launch(ADD, 5, operators=()) for _ in range(40)])
    program = replace(step.facts.program, input_ns=step.facts.program.gap_ns + 10_000)

    assert recorder_cost(step.facts.view.trace, program).range_ns == 0.0


def test_what_a_launch_takes_is_not_told_by_graphs():
    def body(step, number):
        step.launch(ADD, 10, host=800)

    facts = step_of(body).facts
    count = 40
    many = replace(
        facts,
        kernels=facts.kernels * count,
        token=np.repeat(facts.token, count),
    )

    assert not facts.in_graph.any()
    assert many.in_graph.all()
    assert facts.usual_launch_ns(facts.program) > 300_000 > many.usual_launch_ns(facts.program) > 0
