"""Optimizers: how they are written, what they update, and what they take in fewer kernels."""

import numpy as np
import pytest

from profkit.model import OperationKind
from profkit.report.assembly import timelines
from profkit.report.views import Options
from profkit.simulation import find_step, optimizers
from profkit.simulation.constants import LIKELY
from profkit.simulation.optimizers import (
    drop_gradients,
    foreach_optimizer,
    fuse_optimizer,
    optimizer_style,
    parameters,
    zeroing,
)
from tests.advice.made_steps import ADD, BF16_GEMM, FILL, FUSED_ADAM, MULTI_TENSOR, loop
from tests.simulation.steps import draft_of, step_of

SIZES = (64, 32, 16)
ADAM = (
    "aten::lerp_",
    "aten::mul_",
    "aten::addcmul_",
    "aten::sqrt",
    "aten::add_",
    "aten::div_",
    "aten::addcdiv_",
)


def facts_of(body):
    return step_of(body).facts


def adam(step, number, us=100, sizes=SIZES):
    step.launch(BF16_GEMM, 100, operators=("aten::mm",))
    with step.within("Optimizer.step#Adam.step"):
        for size in sizes:
            for operator in ADAM:
                step.launch(ADD, us, operators=(operator,), shapes=[[size, size]])


def sgd(step, number, kernels=5):
    with step.within("Optimizer.step#SGD.step"):
        for _ in range(kernels):
            step.launch(ADD, 100, operators=("aten::add_",), shapes=[[8, 8]])


def foreach(
    step, number, names=("aten::_foreach_lerp_", "aten::_foreach_sqrt", "aten::_foreach_addcdiv_"), us=600
):
    for _ in range(4):
        step.backward(ADD, 10, operators=("aten::add_", "torch::autograd::AccumulateGrad"))
    with step.within("Optimizer.step#Adam.step"):
        for operator in names:
            step.launch(MULTI_TENSOR, us, operators=(operator,), shapes=[[[4096, 4096], [8192, 4096]]])


def fused(step, number):
    with step.within("Optimizer.step#Adam.step"):
        step.launch(FUSED_ADAM, 100, operators=("aten::_fused_adamw_",))


def test_the_style_is_told_by_the_kernels():
    assert optimizer_style(facts_of(adam)) == "single"
    assert optimizer_style(facts_of(foreach)) == "foreach"
    assert optimizer_style(facts_of(fused)) == "fused"
    assert optimizer_style(facts_of(lambda step, number: step.launch(ADD, 10))) is None


@pytest.mark.parametrize(("kernels", "style"), [(5, None), (6, "single")])
def test_a_few_kernels_for_no_list_are_no_optimizer_of_single_kernels(kernels, style):
    assert optimizer_style(facts_of(lambda step, number: sgd(step, number, kernels))) == style


@pytest.mark.parametrize(("kernels", "style"), [(5, None), (6, "foreach")])
def test_a_list_copied_in_inference_is_no_optimizer(kernels, style):
    def body(step, number):
        with step.within("optimizer"):
            for _ in range(kernels):
                step.launch(MULTI_TENSOR, 10, operators=("aten::_foreach_copy_",))

    assert optimizer_style(facts_of(body)) == style


def test_a_compiled_optimizer_has_no_style():
    def body(step, number):
        with step.within("Optimizer.step#SGD.step"):
            for index in range(8):
                step.launch(f"triton_poi_fused_{index}", 10, operators=())

    assert optimizer_style(facts_of(body)) is None


def test_parameters_of_adam_are_its_divisions_and_their_sizes():
    assert parameters(facts_of(adam)) == (3, 64**2 + 32**2 + 16**2)


def test_without_divisions_kernels_are_counted_by_what_each_parameter_takes():
    assert parameters(facts_of(lambda step, number: sgd(step, number, 10))) == (4, 640)

    def divided(step, number):
        with step.within("Optimizer.step#Adam.step"):
            for _ in range(14):
                step.launch(ADD, 100, operators=("aten::sqrt",))

    count, elements = parameters(facts_of(divided))
    assert count == 2
    assert np.isnan(elements)


def test_parameters_of_lists_are_the_gradients_of_the_backward_pass():
    assert parameters(facts_of(foreach)) == (4, 4096 * 4096 + 8192 * 4096)


def test_without_nodes_there_are_two_parameters_for_each_matrix_with_three_products():
    def body(step, number):
        for _ in range(9):
            step.launch(BF16_GEMM, 10, operators=("aten::mm",))
        fused(step, number)

    assert parameters(facts_of(body))[0] == pytest.approx(6)
    assert parameters(facts_of(fused))[0] == 1


def host(edited, tokens=slice(None)):
    return float((edited.gap_ns + edited.own_ns)[tokens].sum())


def test_one_pass_over_all_parameters_streams_them_once():
    edited = draft_of(lambda step, number: adam(step, number, us=200, sizes=(8192, 4096)))
    before = host(edited, slice(1, 15))
    fuse_optimizer(edited)
    elements = 8192**2 + 4096**2
    streamed = elements * 28 / (edited.facts.gpu.bandwidth_bytes_per_s * LIKELY.memory) * 1e9

    assert edited.alive.tolist() == [True, True] + [False] * 13
    assert edited.duration_ns[1] == pytest.approx(streamed + LIKELY.start_ns)
    # 12 usual launches and 0.6 for each of two parameters, of 10.4 for each.
    assert host(edited, slice(1, 15)) == pytest.approx(before * (12 + 1.2) / 20.8)


def test_one_pass_takes_no_more_of_the_host_than_a_few_kernels_did():
    edited = draft_of(lambda step, number: adam(step, number, sizes=(64,)))
    before = host(edited, slice(1, -1))
    fuse_optimizer(edited)

    assert host(edited, slice(1, -1)) == pytest.approx(before)


def test_the_host_needs_less_for_many_parameters():
    edited = draft_of(lambda step, number: adam(step, number, sizes=(64,) * 31))
    before = host(edited, slice(1, -1))
    device = edited.duration_ns[1:].sum()
    fuse_optimizer(edited)

    assert host(edited, slice(1, -1)) == pytest.approx(before * (12 + 0.6 * 31) / (10.4 * 31))
    # Their sizes are too small for what the kernels took: a share of that, and two launches for 31 tensors.
    long = device - 31 * 7 * LIKELY.start_ns
    assert edited.duration_ns[1] == pytest.approx(long * optimizers._FUSED_TRAFFIC + 2 * LIKELY.start_ns)


def test_lists_take_the_same_time_in_fewer_launches():
    edited = draft_of(lambda step, number: adam(step, number, sizes=(64,) * 31))
    before, device = host(edited, slice(1, -1)), edited.duration_ns[1:].sum()
    foreach_optimizer(edited)

    assert host(edited, slice(1, -1)) == pytest.approx(before * (25 + 1.6 * 31) / (10.4 * 31))
    assert edited.duration_ns[1] == pytest.approx(device - 31 * 7 * LIKELY.start_ns + 16 * LIKELY.start_ns)
    assert edited.alive.sum() == 2


def test_the_new_kernel_takes_no_longer_than_the_old_ones():
    edited = draft_of(lambda step, number: adam(step, number, us=0.3))
    foreach_optimizer(edited)

    assert edited.duration_ns[1] == 6_299


def test_lists_become_one_pass_too():
    edited = draft_of(foreach)
    before = host(edited, slice(4, 7))
    fuse_optimizer(edited)
    elements = 4096**2 + 8192 * 4096
    streamed = elements * 28 / (edited.facts.gpu.bandwidth_bytes_per_s * LIKELY.memory) * 1e9

    assert edited.duration_ns[4] == pytest.approx(streamed + LIKELY.start_ns)
    assert host(edited, slice(4, 7)) == pytest.approx(before * (12 + 0.6 * 4) / (25 + 1.6 * 4))


@pytest.mark.parametrize("change", [fuse_optimizer, foreach_optimizer])
def test_what_is_fused_or_gone_stays_as_it_is(change):
    edited = draft_of(fused)
    change(edited)
    assert edited.duration_ns.tolist() == [100_000]

    edited = draft_of(adam)
    edited.drop(edited.facts.optimizer)
    left = edited.duration_ns.tolist()
    change(edited)
    assert edited.duration_ns.tolist() == left


def test_lists_stay_lists():
    edited = draft_of(foreach)
    foreach_optimizer(edited)

    assert edited.alive.all()
    assert edited.duration_ns[4] == 600_000


def test_momentum_makes_no_adam():
    edited = draft_of(lambda step, number: sgd(step, number, 100))
    before = host(edited, slice(0, 100))
    fuse_optimizer(edited)

    # 40 parameters, 4 launches for each.
    assert host(edited, slice(0, 100)) == pytest.approx(before * (12 + 0.6 * 40) / (4.0 * 40))
    edited = draft_of(lambda step, number: sgd(step, number, 100))
    foreach_optimizer(edited)
    assert host(edited, slice(0, 100)) == pytest.approx(before * (15 + 1.1 * 40) / (4.0 * 40))


def zeroed(step, number):
    with step.within("Optimizer.zero_grad#Adam.zero_grad"):
        step.launch(FILL, 10, operators=("aten::zero_",))
        step.launch("Memset", 10, operators=(), kind=OperationKind.MEMSET)
        step.launch(ADD, 10, operators=("aten::add",))
    for _ in range(2):
        step.backward(ADD, 10, operators=("aten::add_", "torch::autograd::AccumulateGrad"))
    step.backward(FILL, 10, operators=("aten::fill_", "torch::autograd::AccumulateGrad"))
    step.launch(FILL, 10, operators=("aten::fill_",))


def test_zeroing_is_fills_in_zero_grad_and_what_is_added_to_zeros():
    edited = draft_of(zeroed)
    assert zeroing(edited.facts).tolist() == [True, True, False, True, True, False, False]

    drop_gradients(edited)
    assert edited.alive.tolist() == [False, False, True, False, False, True, True]


@pytest.mark.parametrize(("fills", "found"), [(2, [True, True, False]), (1, [False, False])])
def test_without_its_range_several_fills_of_an_optimizer_are_zeroing(fills, found):
    def body(step, number):
        with step.within("optimizer"):
            for _ in range(fills):
                step.launch(FILL, 10, operators=("aten::zero_",))
            step.launch(ADD, 10)

    assert zeroing(facts_of(body)).tolist() == found


def test_one_fill_in_zero_grad_is_enough():
    def body(step, number):
        with step.within("Optimizer.zero_grad#Adam.zero_grad"):
            step.launch(FILL, 10, operators=("aten::zero_",))
        step.launch(ADD, 10)

    assert zeroing(facts_of(body)).tolist() == [True, False]


def test_gradients_are_counted_for_each_step():
    assert parameters(step_of(foreach, steps=1).facts)[0] == 4
    assert parameters(step_of(foreach, steps=5).facts)[0] == 4


def test_an_optimizer_with_a_few_other_kernels_has_the_style_of_its_lists():
    def mixed(body):
        def step_body(step, number):
            body(step, number)
            with step.within("Optimizer.step#Adam.step"):
                step.launch(ADD, 1, operators=("aten::add",))

        return optimizer_style(facts_of(step_body))

    assert mixed(foreach) == "foreach"
    assert mixed(fused) == "fused"


def test_sizes_are_those_of_the_division_where_others_are_recorded_in_part():
    def body(step, number):
        with step.within("Optimizer.step#Adam.step"):
            for size in (8, 8, 8, 8):
                step.launch(ADD, 10, operators=("aten::sqrt",), shapes=[[size, size]])
            for size in (64, 32):
                step.launch(ADD, 10, operators=("aten::addcdiv_",), shapes=[[size, size]])
                step.launch(ADD, 10, operators=("aten::mul_",), shapes=[[2, 2]])

    assert parameters(facts_of(body)) == (2, 64**2 + 32**2)


def test_kernels_that_only_start_and_end_move_nothing():
    edited = draft_of(lambda step, number: adam(step, number, us=0.9))
    foreach_optimizer(edited)

    assert edited.duration_ns[1] == 8 * LIKELY.start_ns


def test_sizes_that_explain_less_than_a_quarter_of_the_time_are_recorded_in_part():
    edited = draft_of(lambda step, number: adam(step, number, us=450, sizes=(8192, 4096)))
    streamed = (8192**2 + 4096**2) * 28 / (edited.facts.gpu.bandwidth_bytes_per_s * LIKELY.memory) * 1e9
    long = 14 * (450_000 - LIKELY.start_ns)
    fuse_optimizer(edited)

    assert 0.125 * long < streamed < 0.25 * long
    assert edited.duration_ns[1] == pytest.approx(long * optimizers._FUSED_TRAFFIC + LIKELY.start_ns)


def test_without_steps_all_gradients_are_those_of_one():
    trace = loop(foreach, steps=1)
    trace.strings[trace.strings.index("step")] = "part"
    views, _ = timelines([trace], Options())

    assert views[0].steps.count == 0
    assert parameters(find_step(views[0], 0).facts)[0] == 4
