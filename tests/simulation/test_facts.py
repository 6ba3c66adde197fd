"""What is known of the operations of a step."""

import math

import numpy as np
import pytest

from profkit.model import OperationKind
from profkit.model.kernel_class import Family
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import find_step
from profkit.simulation.kernel_facts import _sizes
from tests.advice.made_steps import ADD, BF16_GEMM, FILL, FUSED_ADAM, GELU
from tests.builders import TraceBuilder
from tests.simulation.programs import launch, program
from tests.simulation.steps import step_of


def training(step, number):
    step.launch(BF16_GEMM, 100, operators=("aten::mm", "aten::linear"), shapes=[[64, 32], [32, 16]])
    step.launch(GELU, 50, operators=("aten::gelu",), shapes=[[64, 16], []])
    step.backward(ADD, 30, operators=("aten::add",), shapes=[[[4, 2], [3]], "x"])
    with step.within("Optimizer.zero_grad#Adam.zero_grad"):
        step.launch(FILL, 10, operators=("aten::zero_",))
    with step.within("Optimizer.step#Adam.step"):
        step.launch(ADD, 20, operators=("aten::_foreach_add_",), shapes="no shapes")
    step.launch(FUSED_ADAM, 20, operators=())
    step.upload(1 << 20, 40)


@pytest.fixture(scope="module")
def facts():
    return step_of(training).facts


def test_each_operation_has_its_kernel_and_its_place_in_training(facts):
    assert facts.count == 7
    assert [k is None for k in facts.kernels] == [False] * 6 + [True]
    assert facts.family.tolist() == [
        Family.GEMM, Family.ELEMENTWISE, Family.ELEMENTWISE, Family.FILL, Family.ELEMENTWISE, Family.OPTIMIZER, None,
    ]  # fmt: skip
    assert facts.dtype.tolist() == ["bf16", "fp32", "fp32", "fp32", "fp32", "fp32", ""]
    assert facts.backward.tolist() == [False, False, True, False, False, False, False]
    assert facts.optimizer.tolist() == [False] * 4 + [True, True, False]
    assert facts.zeroing.tolist() == [False] * 3 + [True] + [False] * 3
    assert facts.matrix.tolist() == [True] + [False] * 6
    assert facts.compiled.tolist() == [False] * 7
    assert facts.token.tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert facts.trains


def test_operators_are_innermost_first_and_found_by_parts_of_their_names(facts):
    assert facts.operators[0] == ("aten::mm", "aten::linear")
    assert facts.operators[5] == ()
    assert facts.named("linear", "gelu").tolist() == [True, True] + [False] * 5
    assert facts.named("evaluate_function").tolist() == [False, False, True] + [False] * 4
    assert facts.innermost("aten::linear", "aten::gelu").tolist() == [False, True] + [False] * 5
    assert facts.of_family(Family.FILL, Family.GEMM).tolist() == [True, False, False, True] + [False] * 3


def test_rows_of_operators_are_the_innermost_with_shapes_and_the_outermost(facts):
    names = [facts.view.trace.strings[i] for i in facts.view.trace.ranges.name.tolist()]

    assert [names[r] for r in facts.operator_row.tolist()[:5]] == [
        "aten::mm", "aten::gelu", "aten::add", "aten::zero_", "aten::_foreach_add_",
    ]  # fmt: skip
    assert facts.operator_row.tolist()[5:] == facts.outer_row.tolist()[5:] == [-1, -1]
    assert names[facts.outer_row[0]] == "aten::linear"
    assert names[facts.outer_row[2]].startswith("autograd::engine::evaluate_function")


def test_sizes_are_elements_of_each_tensor_or_list_of_tensors(facts):
    # A scalar and what is no shape have none; a list of tensors counts as one.
    assert facts.inputs[:4] == [(2048.0, 512.0), (1024.0,), (11.0,), ()]
    assert facts.inputs[4:] == [(), (), ()]
    assert facts.elements.tolist()[:3] == [2048, 1024, 11]
    assert all(math.isnan(e) for e in facts.elements.tolist()[3:])


def test_shares_are_of_the_devices_time(facts):
    chosen = np.array([True, False, False, True, False, False, False])

    assert facts.share(chosen) == pytest.approx(110 / 270)
    assert facts.share(np.zeros(7, bool)) == 0


def test_the_usual_launch_is_the_median_over_kernels_without_fetching_and_allocating(facts):
    gaps = program(
        launch((1,), gap=50, own=4, fetch=20, allocate=6),
        launch((1,), gap=5, own=4, fetch=1, allocate=2),
        launch((1,), gap=90, own=10),
        launch((1,), gap=16, own=4, fetch=3, allocate=4),
        launch((1,), gap=8, own=4),
        launch((1,), gap=7, own=4),
        launch((1,), gap=9_000, own=4),
        launch(),
    )

    # Kernels: 28, 6, 100, 13, 12, 11; the copy is none.
    assert facts.usual_launch_ns(gaps) == 12.5


def test_a_compiled_graph_is_known_by_its_kernels_or_by_its_operator():
    def body(step, number):
        step.launch("triton_poi_fused_add_0", 10, operators=())
        step.launch(ADD, 10, operators=("aten::add", "CompiledFunction"))
        step.launch(ADD, 10, operators=("aten::add", "Torch-Compiled Region: 0/0"))
        step.launch(ADD, 10, operators=("aten::add", "my Torch-Compiled Region"))
        step.launch("my_triton_add", 10, operators=())

    assert step_of(body).facts.compiled.tolist() == [True, True, True, False, False]


def test_without_shapes_the_innermost_operator_counts():
    def body(step, number):
        step.launch(ADD, 10, operators=("aten::add", "aten::outer"))
        step.launch(ADD, 10, operators=("aten::add",), shapes=[])

    facts = step_of(body).facts
    names = [facts.view.trace.strings[i] for i in facts.view.trace.ranges.name.tolist()]
    assert [names[r] for r in facts.operator_row.tolist()] == ["aten::add", "aten::add"]
    assert facts.inputs == [(), ()]


def test_shapes_of_an_outer_operator_count_where_the_inner_one_has_no_tensor():
    def body(step, number):
        step.launch(ADD, 10, operators=("aten::add",), shapes=[[]])
        at = step.host * 1000 - 20_000
        step.builder.operator(at, at + 20_000, "aten::outer", [[8, 8], [8]])

    facts = step_of(body).facts
    assert facts.operators == [("aten::add", "aten::outer")]
    assert facts.inputs == [(64.0, 8.0)]


def test_a_thread_that_only_looks_like_the_engines_is_no_backward_pass():
    def body(step, number):
        step.launch(ADD, 10)
        step.launch(ADD, 10)

    step = step_of(body)
    # Without phases the main thread launches without one, too.
    assert step.facts.view.phases.autograd_threads >= {0}
    assert not step.facts.trains


def test_phases_with_the_name_of_an_optimizer_are_it_and_ranges_count_from_start_to_end():
    def body(step, number):
        step.launch(ADD, 10)
        with step.within("Optim Step"):
            step.launch(ADD, 10)
        with step.within("my_optimizer_x"):
            step.launch(ADD, 10)
        with step.within("zero_grad"):
            step.launch(FILL, 10)
        step.launch(ADD, 10)

    facts = step_of(body).facts
    assert facts.optimizer.tolist() == [False, True, False, False, False]
    assert facts.zeroing.tolist() == [False, False, False, True, False]


def test_an_optimizer_of_another_thread_is_not_this_ones():
    def body(step, number):
        with step.within("Optimizer.step#SGD.step", thread=2):
            step.launch(ADD, 10)

    assert step_of(body).facts.optimizer.tolist() == [False]


def test_graphs_and_memsets_are_no_kernels():
    def body(step, number):
        step.launch("graph", 10, operators=(), kind=OperationKind.GRAPH)
        step.launch("Memset", 10, operators=(), kind=OperationKind.MEMSET)
        step.launch(ADD, 10)

    facts = step_of(body).facts
    assert [k is None for k in facts.kernels] == [True, True, False]
    assert facts.gpu is facts.view.gpus[0]


def test_the_very_first_range_of_a_trace_is_an_operator_like_others():
    def body(step, number):
        step.launch(ADD, 10, operators=("aten::add",), shapes=[[8, 8], [8, 8]])

    facts = step_of(body, steps=1).facts
    assert facts.operators == [("aten::add",)]
    assert facts.operator_row.tolist() == facts.outer_row.tolist() == [0]
    assert facts.inputs == [(64.0, 64.0)]


@pytest.mark.parametrize(("call", "inside"), [(99, False), (100, True), (199, True), (200, False)])
def test_a_range_holds_launches_from_its_start_to_before_its_end(call, inside):
    made = TraceBuilder().range(100, 200, "Optimizer.step#SGD.step")
    made.kernel(300, 400, launch=(call, call + 1)).kernel(500, 600, launch=(50, 60)).kernel(
        700, 800, launch=(250, 260)
    )
    views, _ = timelines([made.trace()], Options())

    assert find_step(views[0], 0).facts.optimizer.tolist().count(True) == inside


@pytest.mark.parametrize("call", [100, 150, 199])
def test_a_range_holds_the_only_launch_of_a_step(call):
    made = TraceBuilder().range(100, 200, "Optimizer.step#SGD.step").kernel(300, 400, launch=(call, 250))
    views, _ = timelines([made.trace()], Options())

    assert find_step(views[0], 0).facts.optimizer.tolist() == [True]


def test_an_operator_of_a_single_tensor_has_shapes_and_one_of_numbers_has_none():
    def body(step, number):
        for shapes, outer in (([[8, 8]], [[64, 8], [8, 8]]), ([[], []], [[64, 8]])):
            since = step.host
            step.launch(ADD, 10, operators=("aten::inner",), shapes=shapes)
            step.builder.operator(since * 1_000, step.host * 1_000, "aten::outer", outer)

    facts = step_of(body).facts

    assert [names[:2] for names in facts.operators] == [("aten::inner", "aten::outer")] * 2
    assert facts.inputs == [(64.0,), (512.0,)]


@pytest.mark.parametrize("size", ["9" * 400, "4611686018427387904", "1e200"])
def test_sizes_beyond_any_card_are_not_known(size):
    assert _sizes(f"[[{size}, 2], [8, 8]]") == (64.0,)
    assert _sizes(f"[[[{size}], [8, 8]], [4]]") == (64.0, 4.0)
