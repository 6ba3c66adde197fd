"""Operations belong to the phase and step of their launch."""

import pytest

from profkit.model import PHASE_DOMAIN, RangeKind
from profkit.report.assembly import summarise
from profkit.report.views import Options
from profkit.timeline.steps import leading_steps_left_out
from tests.builders import BACKWARD, GEMM, LOADER, TraceBuilder


def phases(builder, **options):
    return {p.path: p for p in summarise([builder.trace()], Options(**options)).phases}


def test_a_kernel_belongs_to_the_phase_open_at_its_launch_not_at_its_run():
    made = TraceBuilder().range(0, 10, "forward").range(10, 20, "backward").kernel(15, 40, launch=(5, 6))

    assert {p: row.kernel_count for p, row in phases(made).items()} == {"forward": 1, "backward": 0}


def test_inclusive_and_exclusive_are_unions():
    made = TraceBuilder().range(0, 100, "forward").range(10, 50, "loss")
    made.kernel(200, 300, launch=(5, 6)).kernel(250, 350, launch=(20, 21)).kernel(
        250, 360, launch=(22, 23), stream=8
    )
    made = phases(made)

    assert made["forward"].gpu_inclusive_ns == 160
    assert made["forward"].gpu_exclusive_ns == 100
    assert made["forward/loss"].gpu_exclusive_ns == 110


def test_backward_kernels_take_the_phase_of_the_only_thread_that_has_one():
    made = TraceBuilder().range(0, 100, "backward").kernel(10, 20, launch=(5, 6), thread=BACKWARD)
    assert phases(made)["backward"].kernel_count == 1

    ambiguous = TraceBuilder().range(0, 100, "backward").range(0, 100, "other", thread=LOADER)
    ambiguous.kernel(10, 20, launch=(5, 6), thread=BACKWARD)
    assert {p.kernel_count for p in phases(ambiguous).values()} == {0}


def test_a_loader_threads_copy_is_not_the_main_threads_work():
    made = TraceBuilder(threads=((0, ("python",)), (0, ("pt_autograd_0",)), (0, ("loader",)))).range(
        0, 100, "forward"
    )
    made.copy(10, 20, launch=(5, 6), thread=LOADER).kernel(10, 30, launch=(7, 8), thread=LOADER)

    assert phases(made)["forward"].gpu_inclusive_ns == 0


@pytest.mark.parametrize(
    "name",
    ["nccl:all_reduce", "Optimizer.step#AdamW.step", "FSDP::pre_forward", "aten::mm", "ProfilerStep#3"],
)
def test_library_marks_operators_and_steps_are_no_phases(name):
    assert phases(TraceBuilder().range(0, 100, name).kernel(10, 20, launch=(5, 6))) == {}


def test_with_profkit_marks_only_those_are_phases():
    made = (
        TraceBuilder()
        .range(0, 100, "forward", domain=PHASE_DOMAIN)
        .range(0, 100, "else")
        .kernel(10, 20, launch=(5, 6))
    )

    assert list(phases(made)) == ["forward"]


def test_ranges_of_other_domains_are_listed_but_are_no_phases():
    made = TraceBuilder().range(0, 100, "ncclAllReduce", domain="NCCL").kernel(10, 20, launch=(5, 6)).trace()
    result = summarise([made])

    assert result.phases == []
    assert [(r.domain, r.name, r.gpu_inclusive_ns) for r in result.ranges] == [("NCCL", "ncclAllReduce", 10)]


def test_a_start_end_range_owns_what_any_thread_launches_meanwhile():
    made = TraceBuilder().range(0, 100, "span", kind=RangeKind.START_END)
    made.kernel(10, 20, launch=(5, 6)).kernel(30, 50, launch=(7, 8), thread=LOADER)

    assert [(r.kind, r.gpu_inclusive_ns) for r in summarise([made.trace()]).ranges] == [("start_end", 30)]


def test_steps_tile_the_devices_time_with_the_work_that_they_launched():
    made = TraceBuilder().range(0, 30, "step").range(30, 60, "step")
    made.kernel(50, 100, launch=(10, 11)).kernel(120, 150, launch=(40, 41)).kernel(200, 210, launch=(70, 71))
    window = summarise([made.trace()]).window

    assert [(s.name, s.device_ns, s.gpu_busy_ns) for s in window.steps] == [
        ("step 1", 100, 50),
        ("step 2", 50, 30),
    ]
    assert window.device_ns == 150


def test_an_operation_launched_between_steps_goes_to_the_next_and_after_the_last_to_none():
    made = TraceBuilder().range(0, 10, "step").range(20, 30, "step")
    made.kernel(5, 8, launch=(1, 2)).kernel(40, 50, launch=(15, 16), name="between")
    made.kernel(51, 55, launch=(21, 22)).kernel(60, 70, launch=(35, 36), name="after")
    result = summarise([made.trace()])

    assert [(s.kept, s.device_ns) for s in result.window.steps] == [(True, 8), (True, 47)]
    assert {k.name for k in result.kernels} == {GEMM, "between"}
    assert result.totals.kernel_count == 4


def test_a_step_without_operations_has_an_empty_tile():
    made = TraceBuilder().range(0, 10, "step").range(20, 30, "step").kernel(5, 8, launch=(1, 2))

    assert [s.device_ns for s in summarise([made.trace()]).window.steps] == [8, 0]


def test_another_name_can_be_the_step():
    made = TraceBuilder().range(0, 10, "microbatch").kernel(5, 8, launch=(1, 2)).trace()

    assert len(summarise([made], Options(step_name="microbatch")).window.steps) == 1
    assert summarise([made]).window.steps == []


@pytest.mark.parametrize(
    ("lengths", "left_out"),
    [
        ([120, 100, 100], 1),
        ([109, 100, 100], 0),
        ([120, 100], 0),
        ([300, 120, 100, 100], 2),
        ([100, 200, 100], 0),
        ([], 0),
    ],
)
def test_only_leading_slow_steps_are_left_out_while_two_remain(lengths, left_out):
    assert leading_steps_left_out(lengths) == left_out


def test_ids_of_two_processes_are_never_mixed():
    made = TraceBuilder(processes=2, devices=2, threads=((0, ()), (1, ())))
    made.kernel(10, 20, launch=(1, 2), thread=0)
    made.kernel(10, 30, thread=1, device=1)  # same correlation space, no launch of its own
    made._operations[-1]["correlation"] = 1

    assert summarise([made.trace()]).health.kernels_without_launch == 1
