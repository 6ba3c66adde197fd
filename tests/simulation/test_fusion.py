"""What torch.compile leaves of a chain of kernels, by the formulas of docs/advice.md."""

import numpy as np
import pytest

from profkit.model import CopyKind, OperationKind
from profkit.simulation import changes_named
from profkit.simulation.constants import LIKELY
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.fusion import compile_model, fusible
from tests.advice.made_steps import ADD, BF16_GEMM, FUSED_ADAM, GELU
from tests.builders import BACKWARD
from tests.simulation.programs import with_constants
from tests.simulation.steps import draft_of, step_of

SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)"
SUM = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float, at::native::sum_functor<float, float, float>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, float, 4> >(at::native::ReduceOp<float>)"
CONVOLUTION = "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_kernel_cudnn"
NORM = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*, float const*, float const*, float*, float*, float*)"
SHAPE = [[8192, 8192], [8192, 8192]]
ELEMENTS = 8192 * 8192
CONSTANTS = with_constants(compiled_entry=0.0, light_launch=1.0)


def compiled(body, constants=CONSTANTS):
    edited = draft_of(body, constants)
    before = edited.bytes.copy()
    compile_model(edited)
    return edited, before


def product(step, **options):
    step.launch(BF16_GEMM, 300, operators=("aten::mm",), shapes=[[8192, 4096], [4096, 4096]], **options)


def streamed(edited, moved):
    rate = edited.facts.gpu.bandwidth_bytes_per_s * edited.constants.memory
    return edited.constants.start_ns + moved / rate * 1e9


@pytest.mark.parametrize("beside", [True, False])
def test_in_inference_a_chain_reads_what_it_was_given_and_writes_its_result(beside):
    def body(step, number):
        for name in (ADD, GELU, ADD):
            step.launch(name, 900, shapes=SHAPE)
        if beside:
            product(step)

    edited, before = compiled(body)
    # Two results between are neither written nor read; of what is left, no more than one tensor is written, and two
    # read, or one where the chain is the whole step.
    left = before[:3].sum() - np.minimum(before[:2], ELEMENTS * 4 * 2).sum()
    most = ELEMENTS * 4 * (3 if beside else 2)

    assert edited.alive.tolist() == [True, False, False, True][: len(before)]
    assert edited.bytes[0] == most < left
    assert edited.duration_ns[0] == pytest.approx(streamed(edited, most))


def test_a_chain_of_which_little_is_left_moves_no_more_than_that():
    def body(step, number):
        for _ in range(2):
            step.launch(GELU, 900, operators=("aten::gelu",), shapes=SHAPE)
        product(step)

    edited = draft_of(body, CONSTANTS)
    edited.bytes[:2] = ELEMENTS * 4 * 2
    compile_model(edited)

    assert edited.bytes[0] == ELEMENTS * 4 * 2


def test_intermediate_results_in_16_bits_are_half_as_large():
    def body(step, number):
        for _ in range(2):
            step.launch(ADD.replace("<float>", "<c10::BFloat16>"), 900, shapes=SHAPE)

    edited, _ = compiled(body)

    assert edited.bytes[0] == ELEMENTS * 2 * 2


def test_where_there_is_a_backward_pass_results_before_a_reduction_are_not_written_either():
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch(SOFTMAX, 900, operators=("aten::_softmax",), shapes=[[8192, 8192]])
        step.launch(ADD, 900, shapes=SHAPE)
        product(step)
        for _ in range(2):
            step.backward(ADD, 900, operators=("aten::add",), shapes=SHAPE)

    edited, before = compiled(body)

    assert edited.alive.tolist() == [True, False, False, True, True, False]
    assert edited.bytes[0] == pytest.approx(before[:3].sum() - np.minimum(before[:2], ELEMENTS * 4 * 2).sum())
    # Backward itself keeps nothing.
    assert edited.bytes[4] == pytest.approx(min(before[4:].sum() - ELEMENTS * 4 * 2, ELEMENTS * 4 * 3))


def test_forward_and_backward_are_graphs_of_their_own():
    def body(step, number):
        for _ in range(2):
            step.launch(ADD, 900, shapes=SHAPE)
        for _ in range(2):
            step.backward(ADD, 900, operators=("aten::add",), shapes=SHAPE)

    edited, _ = compiled(body)

    assert edited.alive.tolist() == [True, False, True, False]
    # Nothing is kept between them: what is only pointwise is computed again.
    assert edited.bytes[[0, 2]].tolist() == [ELEMENTS * 4 * 3] * 2


@pytest.mark.parametrize(("rows", "fused"), [(8192, True), (8192 * 1024, False)])
def test_what_summarises_rows_joins_the_kernel_over_them(rows, fused):
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch(ADD, 5, shapes=[[rows, 1], [rows, 1]])
        step.launch(ADD, 900, shapes=SHAPE)

    assert compiled(body)[0].alive.tolist() == ([True, False, False] if fused else [True, True, False])


def test_halves_that_are_put_together_are_one_kernel():
    def body(step, number):
        for _ in range(4):
            step.launch(ADD, 100, shapes=[[4096, 8192], [4096, 8192]])
        step.launch(ADD, 200, operators=("aten::cat",), shapes=SHAPE)

    assert compiled(body)[0].alive.sum() == 1


def test_a_kernel_that_reduces_rows_too_reaches_as_much_of_the_bandwidth():
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch(SOFTMAX, 900, operators=("aten::_softmax",), shapes=[[8192, 8192]])

    edited, _ = compiled(body)

    assert edited.alive.tolist() == [True, False]
    assert edited.duration_ns[0] == pytest.approx(streamed(edited, edited.bytes[0]))


def test_at_least_half_of_the_largest_kernels_bytes_are_left():
    def body(step, number):
        for _ in range(2):
            step.launch(GELU, 900, operators=("aten::gelu",), shapes=[[8192, 8192]])

    edited = draft_of(body, CONSTANTS)
    edited.bytes[:] = [1e8, 1.5e8]
    compile_model(edited)
    assert edited.bytes[0] == 1.5e8
    edited = draft_of(body, CONSTANTS)
    edited.bytes[:] = [4e8, 1e8]
    compile_model(edited)
    assert edited.bytes[0] == 2e8


def test_a_fused_kernel_takes_no_longer_than_its_parts_and_no_less_than_a_start():
    def body(step, number):
        for us in (1, 2):
            step.launch(ADD, us, shapes=[[64, 64], [64, 64]])
        product(step)
        for _ in range(2):
            step.launch(ADD, 0.5, shapes=[[2048, 2048]])

    edited, _ = compiled(body)

    assert edited.duration_ns[0] == pytest.approx(streamed(edited, edited.bytes[0]))
    assert LIKELY.start_ns < edited.duration_ns[0] < 1_600
    assert edited.duration_ns[3] == 1_000


def test_without_shapes_reductions_are_fused_alike():
    def body(step, number):
        for _ in range(3):
            step.launch(SUM, 900, operators=("aten::sum",))

    edited, _ = compiled(body)

    assert edited.alive.tolist() == [True, False, False]
    assert edited.duration_ns[0] == 900_000


def test_without_shapes_small_kernels_stay_and_one_alone_is_what_it_was():
    def body(step, number):
        step.launch(SUM, 3, operators=("aten::sum",))
        step.launch(SUM, 3, operators=("aten::sum",))
        step.launch(SUM, 4, operators=("aten::sum",))

    edited, _ = compiled(body)

    assert edited.alive.all()
    assert edited.duration_ns.tolist() == [3_000, 3_000, 4_000]


def test_sums_over_columns_in_the_backward_pass_stay_kernels_of_their_own():
    def body(step, number):
        step.backward(ADD, 900, operators=("aten::add",), shapes=SHAPE)
        step.backward(SUM, 900, operators=("aten::sum",), shapes=SHAPE)
        step.backward(ADD, 900, operators=("aten::add",), shapes=SHAPE)
        product(step)
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch(SUM, 900, operators=("aten::sum",), shapes=SHAPE)

    assert compiled(body)[0].alive.tolist() == [True, True, False, True, True, False]


@pytest.mark.parametrize(("us", "kept"), [(1, [True, True, False]), (2, [True, True, True])])
def test_a_small_memset_is_no_border_of_a_chain(us, kept):
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch("Memset", us, operators=(), kind=OperationKind.MEMSET)
        step.launch(ADD, 900, shapes=SHAPE)

    assert compiled(body)[0].alive.tolist() == kept


def test_kernels_of_two_streams_are_not_fused():
    def body(step, number):
        for stream in (7, 8, 7, 8):
            step.launch(ADD, 900, shapes=SHAPE, stream=stream)

    assert compiled(body)[0].alive.tolist() == [True, True, False, False]


def test_what_the_compiler_does_not_see_is_left_alone():
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        step.backward(ADD, 900, operators=("aten::add_", "torch::autograd::AccumulateGrad"), shapes=SHAPE)
        with step.within("Optimizer.zero_grad#SGD.zero_grad"):
            step.launch(ADD, 900, shapes=SHAPE)
        with step.within("Optimizer.step#SGD.step"):
            step.launch(ADD, 900, shapes=SHAPE)
        step.launch("triton_poi_fused_add_0", 900, operators=())
        step.launch(FUSED_ADAM, 900, operators=())
        product(step)

    assert fusible(step_of(body).facts).tolist() == [True] + [False] * 6


def test_launches_get_cheaper_and_each_entry_costs():
    def body(step, number):
        for _ in range(3):
            product(step, host=40)
            step.launch(ADD, 100, host=40, shapes=SHAPE)
        product(step, host=40)
        step.backward(ADD, 900, operators=("aten::add",), host=40, shapes=SHAPE)
        with step.within("Optimizer.step#SGD.step"):
            step.launch(ADD, 100, host=40, shapes=SHAPE)

    edited = draft_of(body, with_constants(compiled_entry=20.0, light_launch=0.5))
    host, usual = edited.gap_ns + edited.own_ns, edited.usual_launch_ns
    compile_model(edited)

    # The way to the model stays, then all launches are alike. One entry, and in the backward pass what the gradients take:
    # two for each three products. The optimizer is outside.
    likely = np.array([max(host[0] - usual, 0) + usual / 2, *[usual / 2] * 7, *host[8:]])
    likely[0] += 10 * usual
    likely[7] += 20 * usual * (4 / 3 * 2) ** 0.5
    assert (edited.gap_ns + edited.own_ns).tolist() == pytest.approx(likely.tolist())


def test_chains_are_fused_across_waits_that_are_lifted():
    def body(step, number):
        for _ in range(3):
            step.launch(ADD, 900, shapes=SHAPE)
            step.wait()

    step = step_of(body)
    edited = EditedStep(step.facts, step.program, CONSTANTS)
    for change in changes_named(["compile", "no-sync"]):
        change(edited)

    assert edited.alive.sum() == 1


def test_what_is_compiled_in_part_is_entered_already():
    def body(step, number):
        step.launch(ADD, 900, operators=("aten::add", "CompiledFunction"), shapes=SHAPE)
        product(step)
        step.backward(ADD, 900, operators=("aten::add",), shapes=SHAPE)

    edited = draft_of(body, with_constants(compiled_entry=1000.0))
    host = (edited.gap_ns + edited.own_ns).sum()
    compile_model(edited)

    assert (edited.gap_ns + edited.own_ns).sum() <= host


def test_a_copy_that_no_tensor_asked_for_ends_a_chain():
    def body(step, number):
        for _ in range(2):
            step.launch(ADD, 900, shapes=SHAPE)
            step.launch(
                "Memcpy DtoD (Device -> Device)", 900, operators=("c10d::copy",), shapes=SHAPE,
                kind=OperationKind.COPY, copy_kind=CopyKind.DTOD, bytes=ELEMENTS * 4,
            )  # fmt: skip

    assert compiled(body)[0].alive.all()


def test_convolutions_and_attention_are_called_as_before():
    def body(step, number):
        product(step, host=40)
        for name in (CONVOLUTION, *[BF16_GEMM] * 3):
            step.launch(name, 300, operators=("aten::mm",), host=40)

    edited = draft_of(body, with_constants(compiled_entry=0.0, light_launch=0.5))
    host = edited.gap_ns + edited.own_ns
    compile_model(edited)

    after = edited.gap_ns + edited.own_ns
    assert after[1] == host[1]
    assert after[2] == 0.5 * edited.usual_launch_ns < host[2]


def test_compiled_code_around_convolutions_keeps_half_of_the_launches_that_are_gone():
    def body(step, number):
        for _ in range(2):
            step.launch(CONVOLUTION, 300, operators=("aten::cudnn_convolution",), host=40)
            step.launch(ADD, 100, host=40, shapes=SHAPE)
            step.launch(ADD, 100, host=40, shapes=SHAPE)

    edited = draft_of(body, with_constants(compiled_entry=20.0, light_launch=0.5))
    host = edited.gap_ns + edited.own_ns
    compile_model(edited)

    assert edited.alive.tolist() == [True, True, False] * 2
    half = np.array([1, 1, 0.5] * 2 + [1])
    assert (edited.gap_ns + edited.own_ns).tolist() == pytest.approx((host * half).tolist(), rel=0.02)


def test_the_interval_of_compile_holds_a_host_that_gains_nothing():
    def body(step, number):
        for _ in range(10):
            step.launch(BF16_GEMM, 5, operators=("aten::mm",), host=40)
            step.launch(ADD, 5, host=40, shapes=[[64]])
            step.launch(ADD, 5, host=40, shapes=[[64]])

    step = step_of(body)
    price = step.predict(changes_named(["compile"]))

    assert price.likely > 1.5
    assert price.low < 1.0


def test_what_follows_a_wait_for_a_value_is_entered_anew():
    def body(step, number):
        step.wait()
        step.launch(ADD, 900, shapes=SHAPE)
        step.wait()
        step.launch(ADD, 900, shapes=SHAPE)
        step.wait()

    edited = draft_of(body, with_constants(compiled_entry=20.0, light_launch=1.0))
    gap, entry = edited.gap_ns.copy(), 10 * edited.usual_launch_ns
    compile_model(edited)

    # Waits before the first and after the last kernel break nothing.
    assert (edited.gap_ns - gap).tolist() == pytest.approx([0, entry, entry, 0, 0, 0])


def test_a_model_of_products_only_is_entered_too():
    def body(step, number):
        product(step)
        step.wait()
        product(step)
        step.wait()

    edited = draft_of(body, with_constants(compiled_entry=20.0, light_launch=1.0))
    host, usual = edited.gap_ns + edited.own_ns, edited.usual_launch_ns
    compile_model(edited)

    left = edited.gap_ns + edited.own_ns
    # After the wait for the first product the graph is entered anew.
    assert left[0] == pytest.approx(max(host[0] - usual, 0) + 11 * usual)
    assert left[1] == pytest.approx(host[1] + 10 * usual)
    assert left[2] == pytest.approx(min(host[2], usual))


def test_without_a_kernel_to_compile_nothing_is_entered():
    def body(step, number):
        with step.within("Optimizer.step#SGD.step"):
            step.launch(ADD, 900, shapes=SHAPE)

    edited = draft_of(body)
    gap = edited.gap_ns.copy()
    compile_model(edited)

    assert edited.gap_ns.tolist() == gap.tolist()


def test_a_chain_with_a_loss_in_it_stays_outside_of_the_graph():
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        product(step)
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch(ADD, 900, operators=("aten::mse_loss",), shapes=SHAPE)

    edited = draft_of(body, with_constants(compiled_entry=0.0, light_launch=0.5))
    host = edited.gap_ns + edited.own_ns
    compile_model(edited)

    assert edited.alive.all()
    after = (edited.gap_ns + edited.own_ns)[:4]
    usual = edited.usual_launch_ns
    assert after.tolist() == pytest.approx([max(host[0] - usual, 0) + usual / 2, usual / 2, *host[2:4]])


def test_a_step_that_is_nothing_but_a_loss_is_compiled():
    def body(step, number):
        for _ in range(3):
            step.launch(ADD, 900, operators=("aten::mse_loss",), shapes=SHAPE)

    assert compiled(body)[0].alive.tolist() == [True, False, False]


def test_a_copy_of_the_whole_on_the_device_is_fused_and_a_closing_mean_holds_nothing_up():
    def body(step, number):
        step.launch(ADD, 900, shapes=SHAPE)
        step.launch(
            "Memcpy DtoD (Device -> Device)", 900, operators=("aten::copy_",), shapes=SHAPE,
            kind=OperationKind.COPY, copy_kind=CopyKind.DTOD, bytes=ELEMENTS * 4,
        )  # fmt: skip
        step.launch(SUM, 900, operators=("aten::mean",), shapes=SHAPE)
        product(step)
        step.backward(ADD, 900, operators=("aten::add",), shapes=SHAPE)

    edited, _ = compiled(body)

    assert edited.alive.tolist() == [True, False, False, True, True]
    assert edited.bytes[0] <= ELEMENTS * 4 * 3


def test_a_step_that_is_compiled_already_does_not_change():
    def body(step, number):
        for _ in range(3):
            step.launch(ADD, 900, operators=("aten::add", "CompiledFunction"), shapes=SHAPE)

    step = step_of(body)
    edited = EditedStep(step.facts, step.program, LIKELY)
    before = edited.program()
    compile_model(edited)
    after = edited.program()

    assert edited.alive.all()
    assert (after.gap_ns.tolist(), after.own_ns.tolist()) == (before.gap_ns.tolist(), before.own_ns.tolist())
    assert BACKWARD not in step.facts.view.launches.thread


BLOCKS = {"grid_x": 4096, "grid_y": 1, "grid_z": 1, "block_x": 128}


def pointwise(step, us=100, **blocks):
    step.launch(ADD, us, operators=("aten::add",), **{**BLOCKS, **blocks})


@pytest.mark.parametrize("kernels", [2, 3])
def test_without_shapes_what_one_kernel_of_a_chain_moves_is_left(kernels):
    def body(step, number):
        for _ in range(kernels):
            pointwise(step)

    edited, _ = compiled(body)

    assert edited.alive.sum() == 1
    assert edited.duration_ns[0] == 100_000


def test_in_training_chains_of_forward_and_backward_are_fused_apart():
    def body(step, number):
        for _ in range(3):
            pointwise(step)
        product(step)
        for _ in range(2):
            step.backward(ADD, 80, operators=("aten::add",), **BLOCKS)

    edited, _ = compiled(body)

    assert (edited.duration_ns[0], edited.duration_ns[4]) == (100_000, 80_000)


def test_of_the_longest_kernel_of_a_chain_its_output_is_left():
    def body(step, number):
        for us in (10, 100, 10, 10, 10):
            pointwise(step, us)

    edited, _ = compiled(body)

    assert edited.duration_ns[0] == 100_000 / 2


def test_one_kernel_alone_takes_what_it_took():
    edited, _ = compiled(lambda step, number: pointwise(step))

    assert edited.duration_ns.tolist() == [100_000]


def test_a_chain_of_which_some_bytes_are_unknown_is_one_without_shapes():
    def body(step, number):
        for _ in range(2):
            step.launch(ADD, 900, shapes=SHAPE)

    edited = draft_of(body, CONSTANTS)
    edited.bytes[1] = np.nan
    compile_model(edited)

    assert edited.duration_ns[0] == 900_000


BATCH_NORM = "void at::native::batch_norm_collect_statistics_channels_last_kernel<at::native::Var, float, float, 4>(float const*)"


def test_the_statistics_of_a_batch_are_a_kernel_of_their_own():
    images = [[64, 64, 128, 128]]

    def body(step, number):
        since = step.host
        for _ in range(2):
            step.launch(BATCH_NORM, 900, operators=())
        step.builder.operator(since * 1_000, step.host * 1_000, "aten::native_batch_norm", images)
        step.launch(ADD, 900, operators=("aten::clamp_min",), shapes=images)

    edited, _ = compiled(body)

    assert edited.alive.tolist() == [True, True, False]


def test_a_generated_sum_over_columns_is_two_kernels():
    def body(step, number):
        for _ in range(3):
            product(step)
            step.backward(SUM, 900, operators=("aten::sum",), shapes=[[8192, 64]])

    edited = draft_of(body, CONSTANTS)
    host, usual = edited.gap_ns + edited.own_ns, edited.usual_launch_ns
    compile_model(edited)

    # The first launch has the way to the model with it; of six kernels three are launched twice.
    assert edited.alive.all()
    likely = host[0] + np.minimum(host[1:6], usual).sum() + 3 * usual
    assert (edited.gap_ns + edited.own_ns)[:6].sum() == pytest.approx(likely)
