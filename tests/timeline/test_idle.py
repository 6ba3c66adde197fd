"""Every idle nanosecond has the cause that the design gives it."""

from dataclasses import replace

import pytest

from profkit.model import Device, Syncs
from profkit.report.assembly import summarise
from profkit.report.views import Options
from tests.builders import BACKWARD, LOADER, MAIN, TraceBuilder


def causes(builder, **options):
    return {
        c: ns for c, ns in summarise([builder.trace()], Options(**options)).idle["by_cause"].items() if ns
    }


def test_a_launch_that_returned_after_the_gap_began_is_the_hosts_fault_even_if_it_returned_after_it_ended():
    late = TraceBuilder().kernel(0, 100, launch=(-20, -10)).kernel(150, 250, launch=(110, 160))
    in_time = TraceBuilder().kernel(0, 100, launch=(-20, -10)).kernel(150, 250, launch=(-9, 100))

    assert causes(late) == {"host": 50 + 20}  # before the first kernel, too
    assert causes(in_time) == {"host": 20, "queue": 50}


def test_a_long_gap_before_a_launch_in_time_is_a_dependency():
    made = TraceBuilder().kernel(0, 100, launch=(-20, -10)).kernel(90_000, 90_100, launch=(-9, 50))

    assert causes(made) == {"host": 20, "dependency": 89_900}


def test_a_gap_before_a_kernel_without_launch_is_unknown_and_after_the_last_it_is_the_tail():
    made = TraceBuilder().kernel(0, 100, launch=(-20, -10)).kernel(130, 200).range(0, 260, "work")

    assert causes(made) == {"host": 20, "unknown": 30, "tail": 60}


def test_what_the_launching_thread_did_decides_by_precedence():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-20, -10))
        .range(100, 400, "dataloader")
        .call(150, 250, "cudaMalloc")
        .call(260, 280, "cuModuleLoadData")
        .kernel(500, 600, launch=(450, 460))
    )

    assert causes(made) == {"allocation": 100, "compilation": 20, "input": 180, "host": 20 + 100}


def test_words_that_only_contain_data_are_no_input():
    for name in ("prefetch", "DistributedDataParallel", "input_proj", "metadata"):
        made = (
            TraceBuilder()
            .kernel(0, 100, launch=(-5, -1))
            .range(100, 400, name)
            .kernel(500, 600, launch=(450, 460))
        )
        assert "input" not in causes(made), name


def test_another_threads_allocation_is_not_charged():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, -1))
        .call(100, 300, "cudaMalloc", thread=LOADER)
        .kernel(400, 500, launch=(350, 360))
    )

    assert causes(made) == {"host": 5 + 300}


def test_while_the_autograd_thread_did_nothing_the_thread_whose_phase_it_has_answers():
    made = (
        TraceBuilder()
        .range(0, 1000, "backward")
        .kernel(0, 100, launch=(-5, -1))
        .call(100, 300, "cudaMalloc", thread=MAIN)
        .kernel(400, 500, launch=(350, 360), thread=BACKWARD)
    )

    assert causes(made)["allocation"] == 200


def test_a_wait_is_charged_to_later_idle_host_time_oldest_first_and_never_more_than_it_blocked():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, -1))
        .call(20, 110, "cudaStreamSynchronize")
        .kernel(150, 200, launch=(140, 145))
        .kernel(400, 500, launch=(380, 390))
    )
    result = summarise([made.trace()])

    # 10 ns of the first gap are inside the wait: host. It blocked 90: 40 in the first gap, 50 in the second.
    assert {c: ns for c, ns in result.idle["by_cause"].items() if ns} == {"host": 5 + 10 + 150, "sync": 90}
    assert [(s["api"], s["count"], s["blocked_ns"], s["cost_ns"]) for s in result.syncs] == [
        ("cudaStreamSynchronize", 1, 90, 90)
    ]


def test_calls_that_only_order_streams_or_ask_do_not_wait():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, -1))
        .call(20, 110, "cudaStreamWaitEvent")
        .call(20, 110, "cudaEventQuery")
    )

    assert summarise([made.kernel(150, 200, launch=(140, 145)).trace()]).syncs == []


def test_a_harmless_wait_on_a_busy_device_costs_nothing():
    made = (
        TraceBuilder()
        .kernel(0, 1000, launch=(-5, -1))
        .kernel(1000, 2000, launch=(0, 5))
        .call(10, 900, "cudaEventSynchronize")
    )

    assert summarise([made.trace()]).syncs[0]["cost_ns"] == 0


def test_credit_lapses_with_the_step():
    made = (
        TraceBuilder()
        .range(-10, 210, "step")
        .range(210, 800, "step")
        .kernel(0, 200, launch=(-5, -1))
        .call(5, 150, "cudaDeviceSynchronize")
        .kernel(400, 500, launch=(380, 390))
    )

    assert causes(made) == {"host": 10 + 200}


def test_the_profilers_cost_is_taken_from_launch_first_and_stays_out_of_the_verdict():
    us, made = 1000, TraceBuilder()
    for at in (0, 1000 * us, 2000 * us):
        made.range(at - 10 * us, at + 500 * us, "step").kernel(
            at, at + 300 * us, launch=(at - 5 * us, at - us)
        )
    plain = summarise([made.trace()])
    told = summarise([made.trace()], Options(plain_step_ns=350 * us))

    assert plain.verdict["bound"] == "launch"
    assert plain.idle["by_cause"]["host"] == (10 + 700 + 700) * us
    assert told.idle["by_cause"]["profiler"] == told.health["profiler_overhead_ns"] == (2310 - 3 * 350) * us
    assert told.idle["by_cause"]["host"] == (1410 - 1260) * us
    assert told.verdict["bound"] == "compute"
    assert sum(told.verdict["shares"].values()) == told.window["device_ns"] == 2310 * us
    assert [sum(s["shares"].values()) for s in told.window["steps"]] == [
        s["device_ns"] for s in told.window["steps"]
    ]


@pytest.mark.parametrize(("start", "cause"), [(5_100, "queue"), (5_101, "dependency")])
def test_a_gap_of_the_queues_latency_is_the_queues_and_a_longer_one_a_dependency(start, cause):
    made = TraceBuilder(devices=1)
    made._devices[0] = Device(0, "Unknown card")
    made.kernel(0, 100, launch=(-20, -10)).kernel(start, start + 9, launch=(-9, 50))

    assert causes(made) == {"host": 20, cause: start - 100}


def test_a_launch_that_returned_when_the_gap_began_was_in_time():
    made = TraceBuilder().kernel(0, 100, launch=(-20, -10)).kernel(150, 250, launch=(90, 101))

    assert causes(made)["host"] == 20 + 50


def test_gaps_of_two_processes_on_one_device_are_charged_to_the_threads_of_each():
    made = TraceBuilder(processes=2, threads=((0, ()), (1, ())))
    made.kernel(0, 100, launch=(-5, -1), thread=0).call(100, 160, "cudaMalloc", thread=1)
    made.kernel(200, 300, launch=(180, 190), thread=0).kernel(400, 500, launch=(380, 390), thread=1)
    made.call(300, 330, "cudaFree", thread=1).call(330, 390, "cudaMalloc", thread=0)
    made.call(120, 140, "cudaStreamSynchronize", thread=0)
    result = summarise([made.trace()])

    # The first process had waited for 20; the second's allocation takes 30 of its own gap.
    assert {c: ns for c, ns in result.idle["by_cause"].items() if ns} == {
        "host": 5 + 80 + 70, "sync": 20, "allocation": 30,
    }  # fmt: skip
    assert sum(step["cost_ns"] for step in result.syncs) == 20


def test_a_wait_for_one_device_is_not_charged_to_another():
    made = TraceBuilder(devices=2).kernel(0, 100, launch=(-5, -1))
    for at, device in enumerate((0, 1)):
        made.kernel(200, 300, launch=(180 + at, 190), device=device, context=11 + device)
    made._operations[0]["context"] = 11
    made.call(20, 110, "cudaStreamSynchronize", correlation=77)
    trace = made.trace()
    one = replace(trace, syncs=Syncs.of(1, process=[0], correlation=[77], context=[11]))
    either = summarise([trace]).idle["by_cause"]["sync"]

    # Without a row that says which, both devices pay: from 110 to 200 each.
    assert either == 180
    assert summarise([one]).idle["by_cause"]["sync"] == 90


def test_of_waits_that_return_together_the_one_that_began_first_is_the_oldest():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1)).kernel(200, 300, launch=(185, 190))
    made.call(50, 110, "cudaDeviceSynchronize", thread=LOADER).call(90, 110, "cudaStreamSynchronize")
    result = summarise([made.trace()])

    # 90 ns of later idle time: 60 for the one, 20 for the other.
    assert {row["api"]: row["cost_ns"] for row in result.syncs} == {
        "cudaDeviceSynchronize": 60, "cudaStreamSynchronize": 20,
    }  # fmt: skip
    assert result.idle["by_cause"]["sync"] == 80


def test_gaps_that_touch_at_an_instant_of_other_work_keep_their_own_enders():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1)).range(0, 180, "a").range(180, 700, "b")
    made.kernel(200, 200, launch=(150, 160)).kernel(200, 300, launch=(170, 175)).kernel(
        400, 500, launch=(390, 395)
    )
    result = summarise([made.trace()])

    assert result.idle["by_cause"]["host"] == 5 + 100 + 100
    launches = {row["path"]: row["shares"]["launch"] for row in result.phases}
    # Each has a gap and a small kernel of 100.
    assert launches == {"a": 200, "b": 200}


def test_waits_are_paid_in_the_order_in_which_they_returned():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1)).kernel(200, 300, launch=(190, 195))
    made.call(10, 150, "cudaDeviceSynchronize", thread=LOADER).call(60, 110, "cudaStreamSynchronize")
    result = summarise([made.trace()])

    # From 110 on the one that blocked 50, though it began later; then 40 are left for the other.
    assert {row["api"]: row["cost_ns"] for row in result.syncs} == {
        "cudaDeviceSynchronize": 40, "cudaStreamSynchronize": 50,
    }  # fmt: skip
