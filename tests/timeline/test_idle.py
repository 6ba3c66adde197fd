"""Every idle nanosecond has the cause that the design gives it."""

from dataclasses import replace

import pytest

from profkit.model import Device, RangeKind, Syncs
from profkit.model.report_time import GapActivity, IdleRange
from profkit.model.states import CAUSE_OF_STATE
from profkit.report.assembly import summarise
from profkit.report.views import Options, analysed_views
from tests.builders import BACKWARD, LOADER, MAIN, TraceBuilder


def causes(builder, **options):
    """Idle time by cause over the whole recording, also before its first operation and after the last."""
    (view,) = analysed_views([builder.trace()], Options(**options))
    found = {}
    for segments in view.segments:
        for state, cause in CAUSE_OF_STATE.items():
            found[cause] = found.get(cause, 0) + segments.in_state(state).total_ns
    return {cause: ns for cause, ns in found.items() if ns}


Q = 3_000
"""The H100's queue latency."""
LATE = 5_000
"""What a late launch may take to reach an idle device."""


def test_a_gap_is_cut_at_the_return_of_the_launch_that_ends_it_and_after_the_queue_latency():
    made = TraceBuilder().kernel(0, 100, launch=(-20, 0)).kernel(150, 250, launch=(110, 130))
    returned_later = TraceBuilder().kernel(0, 100, launch=(-20, 0)).kernel(150, 250, launch=(110, 160))
    in_time = TraceBuilder().kernel(0, 100, launch=(-20, 0)).kernel(150, 250, launch=(1, 100))
    long_before = TraceBuilder().kernel(0, 100, launch=(-20, 0)).kernel(90_000, 90_100, launch=(110, 600))

    assert causes(made) == {"host": 20 + 30, "queue": 20}  # before the first kernel, too
    assert causes(returned_later) == {"host": 20 + 50}
    assert causes(in_time) == {"host": 20, "queue": 50}
    assert causes(long_before) == {"host": 20 + 500, "queue": LATE, "unknown": 90_000 - 600 - LATE}


def test_what_is_left_behind_another_stream_is_a_dependency_and_behind_its_own_unknown():
    made = TraceBuilder().kernel(0, 100, launch=(-20, 0)).kernel(90_000, 90_100, launch=(1, 50), stream=8)
    both = (
        TraceBuilder()
        .kernel(0, 100, launch=(-20, 0))
        .kernel(50, 100, launch=(10, 20), stream=8)
        .kernel(90_000, 90_100, launch=(21, 50))
    )

    assert causes(made) == {"host": 20, "queue": Q, "dependency": 89_900 - Q}
    assert causes(both) == {"host": 20, "queue": Q, "dependency": 89_900 - Q}


def test_a_gap_before_a_kernel_without_launch_is_unknown_and_after_the_last_it_is_the_tail():
    made = TraceBuilder().kernel(0, 100, launch=(-20, 0)).kernel(130, 200).range(0, 260, "work")

    assert causes(made) == {"host": 20, "unknown": 30, "tail": 60}


def test_what_the_launching_thread_did_decides_by_precedence():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-20, 0))
        .range(100, 400, "dataloader")
        .call(150, 250, "cudaMalloc")
        .call(260, 280, "cuModuleLoadData")
        .call(290, 320, "nvrtcCompileProgram")
        .call(310, 330, "cudaStreamBeginCapture")
        .call(340, 350, "cudaStreamEndCapture")
        .call(360, 370, "cudaProfilerStart")
        .kernel(500, 600, launch=(450, 460))
    )

    assert causes(made) == {
        "initialisation": 20, "capture": 40, "allocation": 100, "compilation": 20, "profiler": 10,
        "input": 300 - 190, "host": 20 + 60, "queue": 40,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "fetches"),
    [
        *((name, True) for name in (
            "data", "train/data", "inputs", "get_batch", "getNextBatch", "data_loading", "load-data", "next batch", "collate_fn",
            "tokenize", "MyDataLoader.next", "prepare_inputs", "read.input", "fetch",
        )),
        *((name, False) for name in (
            "prefetch", "DistributedDataParallel", "DataParallel.forward", "input_proj", "input_norm", "metadata", "batch_norm",
            "database", "forward", "train_batch", "get_lr", "loading_model",
        )),
    ],
)  # fmt: skip
def test_a_phase_is_input_by_the_words_of_its_name(name, fetches):
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, -1))
        .range(100, 400, name)
        .kernel(500, 600, launch=(450, 460))
    )
    assert ("input" in causes(made)) == fetches


def test_another_threads_allocation_is_not_attributed():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, -1))
        .call(100, 300, "cudaMalloc", thread=LOADER)
        .kernel(400, 500, launch=(350, 360))
    )

    assert causes(made) == {"host": 4 + 260, "queue": 1 + 40}


def test_while_the_autograd_thread_did_nothing_the_thread_whose_phase_it_has_answers():
    made = (
        TraceBuilder()
        .range(0, 1000, "backward")
        .kernel(0, 100, launch=(-5, -1))
        .call(100, 300, "cudaMalloc", thread=MAIN)
        .kernel(400, 500, launch=(350, 360), thread=BACKWARD)
    )

    assert causes(made)["allocation"] == 200


def test_a_wait_is_attributed_to_later_idle_host_time_oldest_first_and_never_more_than_it_blocked():
    made = (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, -1))
        .call(20, 110, "cudaStreamSynchronize")
        .kernel(150, 200, launch=(140, 145))
        .kernel(400, 500, launch=(380, 390))
    )
    result = summarise([made.trace()])

    # 10 ns of the first gap are inside the wait: host. It blocked 90: 35 in the first gap, 55 in the second.
    assert causes(made) == {
        "host": 4 + 10 + 135, "sync": 90, "queue": 1 + 5 + 10,
    }  # fmt: skip
    assert [(s.api, s.count, s.blocked_ns, s.cost_ns) for s in result.syncs] == [
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

    assert summarise([made.trace()]).syncs[0].cost_ns == 0


def test_credit_lapses_with_the_step():
    made = (
        TraceBuilder()
        .range(-10, 210, "step")
        .range(210, 800, "step")
        .kernel(0, 200, launch=(-5, -1))
        .call(5, 150, "cudaDeviceSynchronize")
        .kernel(400, 500, launch=(380, 390))
    )

    assert causes(made) == {"host": 9 + 190, "queue": 1 + 10, "tail": 300}


def test_the_profilers_cost_is_taken_from_launch_first_and_stays_out_of_the_verdict():
    us, made = 1000, TraceBuilder()
    for at in (0, 1000 * us, 2000 * us):
        made.range(at - 10 * us, at + 500 * us, "step").kernel(
            at, at + 300 * us, launch=(at - 5 * us, at - us)
        )
    plain = summarise([made.trace()])
    told = summarise([made.trace()], Options(plain_step_ns=350 * us))

    assert plain.verdict.bound == "launch"
    assert plain.idle.by_cause["host"] == (9 + 699 + 699) * us
    assert told.idle.by_cause["profiler"] == told.health.profiler_overhead_ns == (2310 - 3 * 350) * us
    assert told.idle.by_cause["host"] == (1407 - 1260) * us
    assert told.verdict.bound == "compute"
    assert sum(told.verdict.shares.values()) == told.window.device_ns == 2310 * us
    assert [sum(s.shares.values()) for s in told.window.steps] == [s.device_ns for s in told.window.steps]


@pytest.mark.parametrize(("start", "beyond"), [(5_100, {}), (5_101, {"unknown": 1})])
def test_the_queue_has_its_latency_of_a_gap_and_no_more(start, beyond):
    made = TraceBuilder(devices=1)
    made._devices[0] = Device(0, "Unknown card")
    made.kernel(0, 100, launch=(-20, 0)).kernel(start, start + 9, launch=(1, 50))

    assert causes(made) == {"host": 20, "queue": 5_000, **beyond}


def test_a_launch_that_returned_when_the_gap_began_was_in_time():
    made = TraceBuilder().kernel(0, 100, launch=(-20, -10)).kernel(150, 250, launch=(90, 101))

    assert causes(made) == {"host": 10 + 1, "queue": 10 + 49}


def test_gaps_of_two_processes_on_one_device_are_attributed_to_the_threads_of_each():
    made = TraceBuilder(processes=2, threads=((0, ()), (1, ())))
    made.kernel(0, 100, launch=(-5, -1), thread=0).call(100, 160, "cudaMalloc", thread=1)
    made.kernel(200, 300, launch=(180, 190), thread=0).kernel(400, 500, launch=(380, 390), thread=1)
    made.call(300, 330, "cudaFree", thread=1).call(330, 390, "cudaMalloc", thread=0)
    made.call(120, 140, "cudaStreamSynchronize", thread=0)
    result = summarise([made.trace()])

    # The first process had waited for 20; the second's allocation takes 30 of its own gap.
    assert causes(made) == {
        "host": 4 + 70 + 60, "sync": 20, "allocation": 30, "queue": 1 + 10 + 10,
    }  # fmt: skip
    assert sum(step.cost_ns for step in result.syncs) == 20


def test_a_wait_for_one_device_is_not_attributed_to_another():
    made = TraceBuilder(devices=2).kernel(0, 100, launch=(-5, -1))
    for at, device in enumerate((0, 1)):
        made.kernel(200, 300, launch=(180 + at, 190), device=device, context=11 + device)
    made._operations[0]["context"] = 11
    made.kernel(90, 100, launch=(80, 81), device=1, context=12)
    made.call(20, 110, "cudaStreamSynchronize", correlation=77)
    trace = made.trace()
    one = replace(trace, syncs=Syncs.of(1, process=[0], correlation=[77], context=[11]))
    either = summarise([trace]).idle.by_cause["sync"]

    # Without a row that says which, both devices pay: from 110 to 190 each.
    assert either == 160
    assert summarise([one]).idle.by_cause["sync"] == 80


def test_of_waits_that_return_together_the_one_that_began_first_is_the_oldest():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1)).kernel(200, 300, launch=(185, 190))
    made.call(50, 110, "cudaDeviceSynchronize", thread=LOADER).call(90, 110, "cudaStreamSynchronize")
    result = summarise([made.trace()])

    # 80 ns of later idle time before the launch returned: 60 for the one, 20 for the other.
    assert {row.api: row.cost_ns for row in result.syncs} == {
        "cudaDeviceSynchronize": 60, "cudaStreamSynchronize": 20,
    }  # fmt: skip
    assert result.idle.by_cause["sync"] == 80


def test_gaps_that_touch_at_an_instant_of_other_work_keep_their_own_enders():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1)).range(0, 180, "a").range(180, 700, "b")
    made.kernel(200, 200, launch=(150, 160)).kernel(200, 300, launch=(170, 175)).kernel(
        400, 500, launch=(390, 395)
    )
    result = summarise([made.trace()])

    assert result.idle.by_cause["host"] == 75 + 95
    launches = {row.path: row.shares["launch"] for row in result.phases}
    # Each has a gap and a small kernel of 100.
    assert launches == {"a": 200, "b": 200}


def test_waits_are_paid_in_the_order_in_which_they_returned():
    made = TraceBuilder().kernel(0, 100, launch=(-5, -1)).kernel(200, 300, launch=(190, 195))
    made.call(10, 150, "cudaDeviceSynchronize", thread=LOADER).call(60, 110, "cudaStreamSynchronize")
    result = summarise([made.trace()])

    # From 110 on the one that blocked 50, though it began later; then 35 are left for the other, to the launch's return.
    assert {row.api: row.cost_ns for row in result.syncs} == {
        "cudaDeviceSynchronize": 35, "cudaStreamSynchronize": 50,
    }  # fmt: skip


MS, US = 1_000_000, 1_000


def idle_of(builder):
    return summarise([builder.trace()]).idle


def with_pause(name, length=700 * US, **columns):
    """Two kernels, and between them a range in which nothing is launched."""
    return (
        TraceBuilder()
        .kernel(0, 100, launch=(-5, 0))
        .range(1_000, 1_000 + length, name, **columns)
        .kernel(2 * MS, 3 * MS, launch=(2 * MS - 20, 2 * MS))
    )


def test_a_long_range_that_launches_nothing_is_the_programs_own_work_and_is_named():
    idle = idle_of(with_pause("log_images"))

    assert idle.by_cause["host_work"] == 700 * US
    assert idle.by_range == [IdleRange(cause="host_work", name="log_images", ns=700 * US)]
    assert [(gap.cause, gap.range) for gap in idle.gaps][:1] == [("host", "log_images")]
    assert idle.gaps[0].doing == [GapActivity(kind="range", name="log_images", ns=700 * US)]


@pytest.mark.parametrize(
    "pause",
    [
        with_pause("log_images", 500 * US),  # not longer than half a millisecond
        with_pause("log_images").range(3 * MS, 3 * MS + 9, "log_images").call(3 * MS, 3 * MS + 5, "cudaLaunchKernel"),
        with_pause("log_images").call(9_000, 9_010, "cuLaunchKernel", thread=LOADER),  # its record is missing
        with_pause("Optimizer.step#SGD.step"),
        with_pause("nccl:all_reduce"),
        with_pause("aten::sort", kind=RangeKind.OPERATOR),
        with_pause("any", domain="NCCL"),
        with_pause("/usr/lib/torch/nn/modules/module.py(1532): _call_impl", kind=RangeKind.PYTHON),
        with_pause("torch\\optim\\sgd.py(80): step", kind=RangeKind.PYTHON),
        with_pause("<built-in method sleep>", kind=RangeKind.PYTHON),
        with_pause("nn.Module: Linear_0", kind=RangeKind.PYTHON),
        with_pause("step"),
        with_pause("log_images", thread=LOADER),  # the launching thread did nothing that is known
    ],
)  # fmt: skip
def test_what_is_no_work_of_the_program(pause):
    assert idle_of(pause).by_cause["host_work"] == 0


def test_a_copy_inside_the_work_does_not_make_it_launching_and_waits_in_it_are_not_work():
    made = with_pause("log_images").call(2_000, 3_000, "cudaMemcpyAsync")
    made.call(10_000, 110_000, "cudaDeviceSynchronize")
    idle = idle_of(made).by_cause

    assert idle["sync"] == 100 * US
    assert idle["host_work"] == 500 * US


def test_a_function_of_python_is_named_with_its_line_and_a_mark_goes_before_it():
    made = with_pause("/home/me/tok.py(12): encode_batch", 1_500 * US, kind=RangeKind.PYTHON)
    made.range(1_000, 601_000, "log_images")

    assert idle_of(made).by_range == [
        IdleRange(cause="host_work", name="tok.py:12 encode_batch", ns=900 * US),
        IdleRange(cause="host_work", name="log_images", ns=600 * US),
    ]


def test_a_gap_that_data_fills_names_the_phase():
    idle = idle_of(with_pause("get_batch"))

    assert idle.by_range == [IdleRange(cause="input", name="get_batch", ns=700 * US)]
    assert idle.gaps[0].range == "get_batch"


@pytest.mark.parametrize(("ms", "cause"), [(400, "initialisation"), (60, "allocation")])
def test_a_free_of_a_tenth_of_a_second_hides_the_first_use_of_a_library(ms, cause):
    made = TraceBuilder().kernel(0, MS, launch=(0, 10)).call(2 * MS, (2 + ms) * MS, "cudaFree")
    made.kernel((ms + 4) * MS, (ms + 5) * MS, launch=((ms + 3) * MS, (ms + 3) * MS + 10))
    assert causes(made)[cause] == ms * MS


def test_a_long_first_call_and_other_long_calls_initialise():
    made = (
        TraceBuilder()
        .call(0, 2 * MS, "cudaFree")
        .call(3 * MS, 5 * MS, "cudaFree")
        .call(6 * MS, 8 * MS, "cudaStreamCreate")
        .call(9 * MS, 9 * MS + 900 * US, "cudaStreamCreate")
        .call(10 * MS, 12 * MS, "cudaEventSynchronize")
        .call(13 * MS, 15 * MS, "cudaMemcpyAsync")
        .kernel(19 * MS, 20 * MS, launch=(16 * MS, 19 * MS))
        .kernel(26 * MS, 27 * MS, launch=(21 * MS, 26 * MS), api="cudaGraphLaunch")
    )
    found = causes(made)

    assert found["initialisation"] == (2 + 2 + 3) * MS
    assert found["allocation"] == 2 * MS
    assert found["sync"] == 2 * MS


def test_a_first_call_in_the_middle_of_a_run_makes_no_context():
    made = (
        TraceBuilder()
        .kernel(-5, 0)
        .call(0, 2 * MS, "cudaFree")
        .kernel(3 * MS, 4 * MS, launch=(3 * MS - 9, 3 * MS))
    )

    assert causes(made) == {"allocation": 2 * MS, "host": MS}


def test_what_was_captured_launched_nothing_and_is_not_lost():
    made = TraceBuilder().kernel(0, 100, launch=(-5, 0))
    made.call(200, 210, "cudaStreamBeginCapture").call(300, 310, "cudaStreamEndCapture")
    made.call(220, 230, "cudaLaunchKernel", correlation=70).call(
        240, 250, "cudaLaunchKernel", thread=BACKWARD, correlation=71
    )
    made.call(320, 330, "cudaLaunchKernel", correlation=72)
    result = summarise([made.kernel(400, 500, launch=(390, 400)).trace()])

    assert result.health.launches_without_kernel == 1
    assert [f.count for f in result.health.findings if f.code == "launches-captured"] == [2]
    assert result.idle.by_cause["capture"] == 110
