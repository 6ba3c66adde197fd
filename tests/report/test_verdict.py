"""The verdict on grounds that are spelled out: times by state, and what they rest on."""

import numpy as np
import pytest

from profkit.model.findings import Fact
from profkit.model.report_verdict import LaunchTimes, RunnerUp
from profkit.model.rows import Interval
from profkit.model.states import State
from profkit.model.work import Basis
from profkit.report.assembly import summarise, timelines
from profkit.report.unprofiled import DeviceStep, UnprofiledSteps
from profkit.report.verdict import Grounds, verdict_on
from profkit.report.views import Options
from tests.builders import TraceBuilder

MS = 1_000_000
NO_STEPS = UnprofiledSteps()


def grounds(times, *, steps=None, devices=1, slow_host=False, basis=None):
    """Times by state in ms."""
    states, rests = np.zeros(len(State), np.int64), np.zeros(len(Basis), np.int64)
    for state, ms in times.items():
        states[state] = ms * MS
    for each, ms in (basis or {}).items():
        rests[each] = ms * MS
    return Grounds(states, rests, steps, devices, slow_host)


def verdict(times, *, undecided=None, unprofiled=NO_STEPS, **options):
    return verdict_on(grounds(times, **options), undecided=undecided, unprofiled=unprofiled)


def test_the_largest_share_is_the_bound_and_one_within_ten_points_is_named():
    found = verdict({State.COMPUTE: 50, State.MEMORY: 40, State.TAIL: 10})

    assert (found.bound, found.share) == ("compute", 0.5)
    assert found.runner_up == RunnerUp(bound="memory", share=0.4)
    assert found.shares["other"] == 10 * MS
    assert found.undecided is None


def test_one_further_behind_is_not():
    found = verdict({State.COMPUTE: 51, State.MEMORY: 40, State.TAIL: 9})

    assert found.runner_up is None


def test_a_share_of_nothing_is_no_runner_up():
    found = verdict({State.COMPUTE: 100})

    assert (found.share, found.runner_up) == (1.0, None)


@pytest.mark.parametrize(
    ("state", "cause"),
    [(State.HOST, "host"), (State.QUEUE, "queue"), (State.SMALL_KERNELS, "small_kernels")],
)
def test_launch_overhead_is_told_by_its_largest_part(state, cause):
    times = {State.HOST: 20, State.QUEUE: 20, State.SMALL_KERNELS: 20, State.TAIL: 5}
    found = verdict({**times, state: 30})

    assert found.bound == "launch"
    assert found.cause == cause
    parts = {"host": 20 * MS, "queue": 20 * MS, "small_kernels": 20 * MS, cause: 30 * MS}
    assert found.launch == LaunchTimes(**parts)


@pytest.mark.parametrize(
    ("state", "cause"), [(State.ALLOCATION, "allocation"), (State.DEPENDENCY, "dependency")]
)
def test_other_idle_time_is_told_by_its_largest_cause_and_never_by_the_profiler(state, cause):
    found = verdict({state: 60, State.PROFILER: 300, State.COMPUTE: 50})

    # The profiler's own time is in the share, and is left out where the largest is chosen.
    assert (found.bound, found.share) == ("other", 60 / 410)
    assert found.cause == cause
    assert found.shares["other"] == 360 * MS


def test_the_profilers_time_makes_no_bound():
    found = verdict({State.COMPUTE: 60, State.MEMORY: 45, State.PROFILER: 300})

    assert found.bound == "compute"
    assert found.runner_up == RunnerUp(bound="memory", share=45 / 405)


def test_what_the_file_cannot_decide_is_unknown_with_its_reason():
    reason = Fact("kernels-lost", {"lost": 9, "kernels": 1})
    found = verdict({State.COMPUTE: 60, State.MEMORY: 55}, undecided=reason)

    assert (found.bound, found.share, found.runner_up) == ("unknown", 0.0, None)
    assert found.undecided == reason


def test_without_time_nothing_is_known():
    found = verdict({})

    assert (found.bound, found.share, found.confidence, found.basis_shares) == (
        "unknown", 0.0, "unknown", {},
    )  # fmt: skip
    assert found.doubts == []


def test_the_confidence_is_what_most_kernel_time_rests_on():
    found = verdict({State.COMPUTE: 9}, basis={Basis.MODELLED: 3, Basis.INFERRED: 5})

    assert found.confidence == "inferred"
    assert found.basis_shares == {"modelled": 0.375, "inferred": 0.625}


@pytest.mark.parametrize("cause", [State.HOST, State.SYNC, State.INPUT])
def test_a_recording_that_is_mostly_idle_for_the_hosts_sake_may_show_the_profilers_cost(cause):
    assert len(verdict({cause: 51, State.COMPUTE: 49}).doubts) == 1
    assert verdict({cause: 50, State.COMPUTE: 50}).doubts == []
    known = steps("measured", {State.COMPUTE: 49})
    assert verdict({cause: 51, State.COMPUTE: 49}, unprofiled=known).doubts == []


def test_idle_time_that_no_recorder_makes_longer_is_no_caveat():
    assert verdict({State.ALLOCATION: 90, State.COMPUTE: 10}).doubts == []


@pytest.mark.parametrize(
    ("state", "caveats"), [(State.HOST, 1), (State.SYNC, 1), (State.INPUT, 1), (State.MEMORY, 0)]
)
def test_torch_profiler_slows_every_host_down(state, caveats):
    times = {state: 40, State.COMPUTE: 30, State.TRANSFER: 30}

    assert len(verdict(times, slow_host=True).doubts) == caveats
    assert verdict(times).doubts == []
    assert verdict(times, slow_host=True, unprofiled=steps("measured", times)).doubts == []


def steps(source, times, *, low=None, high=None, savings=None, recorded_ns=None):
    """The step of one device without a profiler, by state in ms."""
    states = np.zeros(len(State), np.int64)
    for state, ms in times.items():
        states[state] = ms * MS
    likely = int(states.sum())
    length = Interval(low=low or likely, likely=likely, high=high or likely)
    return UnprofiledSteps(
        [DeviceStep(length_ns=length, source=source, states_ns=states, savings=savings)], recorded_ns
    )


def test_the_verdict_is_of_the_step_without_a_profiler_and_the_recorded_one_stands_beside_it():
    recorded = {State.HOST: 60, State.COMPUTE: 30, State.MEMORY: 10}
    unprofiled = steps(
        "estimated", {State.HOST: 5, State.COMPUTE: 30, State.MEMORY: 10}, high=50 * MS, recorded_ns=100 * MS
    )
    found = verdict(recorded, unprofiled=unprofiled, slow_host=True)

    assert (found.bound, found.recorded_bound, found.share) == ("compute", "launch", 30 / 45)
    assert found.shares["launch"] == 60 * MS
    assert sum(found.unprofiled_shares.values()) == 45 * MS
    assert found.doubts == [
        Fact(
            "step-estimated",
            {"low_ns": 45 * MS, "high_ns": 50 * MS, "recorded_ns": 100 * MS, "recorded_bound": "launch"},
        )
    ]


def test_an_estimate_that_is_what_was_recorded_is_not_worth_a_sentence():
    times = {State.COMPUTE: 99, State.HOST: 1}
    near = steps("estimated", times, low=98 * MS, high=102 * MS, recorded_ns=100 * MS)

    assert verdict(times, unprofiled=near).doubts == []


def test_a_close_second_makes_the_confidence_low():
    found = verdict({State.COMPUTE: 50, State.MEMORY: 45}, basis={Basis.MODELLED: 3})

    assert found.confidence == "low"
    assert verdict({State.COMPUTE: 80, State.MEMORY: 15}, basis={Basis.MODELLED: 3}).confidence == "modelled"


def test_grounds_of_files_add_up_and_have_the_fewest_steps():
    parts = [
        grounds({State.HOST: 3}, steps=7, devices=2, basis={Basis.INFERRED: 1}),
        grounds({State.HOST: 4, State.TAIL: 5}, devices=1, slow_host=True, basis={Basis.INFERRED: 2}),
        grounds({}, steps=4, devices=1),
    ]
    found = Grounds.together(parts)

    assert (found.states[State.HOST], found.states[State.TAIL]) == (7 * MS, 5 * MS)
    assert found.basis_ns[Basis.INFERRED] == 3 * MS
    assert (found.steps, found.devices, found.slow_host) == (4, 4, True)
    assert Grounds.together(parts[:1]).slow_host is False
    assert Grounds.together(parts[1:2]).steps is None
    assert Grounds.together([]).states.tolist() == [0] * len(State)


def test_grounds_of_a_trace_are_its_window_its_kept_steps_and_its_busy_time():
    made = TraceBuilder(devices=2, format="kineto")
    # The first step is warm-up.
    for start, end in ((0, 500), (500, 600), (600, 700), (700, 800)):
        made.range(start, end, "step").kernel(start + 10, end, launch=(start, start + 5))
        made.kernel(start + 10, end - 40, launch=(start, start + 5), device=1, name="Mystery")
    views, _ = timelines([made.trace()], Options())
    found = Grounds.of(views)

    assert (found.steps, found.devices, found.slow_host) == (3, 2, True)
    window = summarise([made.trace()]).window.device_ns
    assert found.states.sum() == window
    assert found.basis_ns.sum() == found.states[: State.COMMUNICATION].sum() == 270 + 150
    assert (
        Grounds.of(timelines([TraceBuilder().kernel(0, 9, launch=(0, 1)).trace()], Options())[0]).steps
        is None
    )


def test_nothing_is_no_runner_up_where_the_profiler_took_nearly_all():
    found = verdict({State.COMPUTE: 5, State.PROFILER: 95})

    assert (found.bound, found.runner_up) == ("compute", None)


def test_grounds_of_traces_have_the_fewest_steps():
    def loop(steps):
        made = TraceBuilder()
        for at in range(0, 100 * steps, 100):
            made.range(at, at + 100, "step").kernel(at + 10, at + 100, launch=(at, at + 5))
        return made.trace()

    views, _ = timelines([loop(3), loop(5), TraceBuilder().kernel(0, 9, launch=(0, 1)).trace()], Options())
    assert Grounds.of(views).steps == 3
