"""Other arithmetic for matrix products, by the formulas of docs/advice.md."""

import numpy as np
import pytest

from profkit.simulation.constants import LIKELY
from profkit.simulation.precision import (
    align_matrices,
    autocast,
    known_flop,
    misaligned,
    simt_products,
    to_fp32,
    use_tf32,
    wide_products,
)
from tests.advice.made_steps import ADD, BF16_GEMM, FUSED_ADAM, SGEMM
from tests.simulation.steps import draft_of, step_of

DGEMM = "ampere_dgemm_64x64_nn"
TF32 = "ampere_tf32_s1688gemm_fp32_128x128_ldg8_stages_32x1_nn"
DOUBLE_ADD = ADD.replace("<float>", "<double>")
SQUARE = [[4096, 4096], [4096, 4096]]
FLOP = 2 * 4096**3
ATTENTION = "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)"
ALIGN2 = "cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_align2"


def product(step, name=SGEMM, us=6_000, shapes=SQUARE, operator="aten::mm", **options):
    step.launch(name, us, operators=(operator,), shapes=shapes, **options)


def at_rate(edited, dtype, flop=FLOP, share=LIKELY.matrix, unit="tensor"):
    return LIKELY.start_ns + flop / (edited.facts.gpu.peak(dtype, unit) * share) * 1e9


def streamed(edited, moved):
    return moved / (edited.facts.gpu.bandwidth_bytes_per_s * LIKELY.memory) * 1e9


def test_products_of_fp32_on_the_ordinary_units_are_what_tf32_makes_faster():
    def body(step, number):
        product(step)
        product(step, operator="aten::dot")
        product(step, operator="aten::mv")
        product(step, BF16_GEMM)
        product(step, TF32)
        step.launch(ADD, 10)
        product(step, DGEMM)

    step = step_of(body)

    assert simt_products(step.facts).tolist() == [True] + [False] * 6
    assert wide_products(step.facts).tolist() == [True, True, True, False, True, False, False]


def test_tf32_changes_time_and_type_of_those_only():
    def body(step, number):
        product(step)
        product(step, BF16_GEMM, 900)
        step.launch(ADD, 10)

    edited = draft_of(body)
    moved = edited.bytes.copy()
    use_tf32(edited)

    assert edited.duration_ns.tolist() == pytest.approx([at_rate(edited, "tf32"), 900_000, 10_000])
    assert edited.dtype.tolist() == ["tf32", "bf16", "fp32"]
    assert edited.bytes.tolist()[:2] == moved.tolist()[:2]


@pytest.mark.parametrize(
    ("rows", "depth", "columns", "operator", "odd"),
    [
        (4096, 4096, 4097, "aten::mm", True),
        (4096, 4094, 4096, "aten::mm", True),
        (4097, 4096, 4096, "aten::mm", False),
        (4096, 4096, 4100, "aten::mm", False),
    ],
)
def test_products_of_odd_sizes_reach_less_on_tensor_cores(rows, depth, columns, operator, odd):
    shapes = [[rows, depth], [depth, columns]]
    edited = draft_of(lambda step, number: product(step, us=60_000, shapes=shapes, operator=operator))
    edited.facts.flop[:] = FLOP
    use_tf32(edited)

    share = LIKELY.misaligned if odd else LIKELY.matrix
    assert edited.duration_ns.tolist() == pytest.approx([at_rate(edited, "tf32", share=share)])


def test_what_is_gone_is_not_changed():
    def body(step, number):
        product(step)
        product(step)

    edited = draft_of(body)
    edited.drop(np.array([True, False]))
    use_tf32(edited)

    assert edited.dtype.tolist() == ["fp32", "tf32"]
    assert edited.duration_ns[0] == 6_000_000


def test_fp64_in_fp32_is_half_the_bytes_and_the_rate_of_the_ordinary_units():
    def body(step, number):
        product(step, DGEMM, 9_000)
        step.launch(DOUBLE_ADD, 100, shapes=SQUARE)
        step.launch(DOUBLE_ADD, 0.9, shapes=[[4]])
        step.launch(ADD, 100, shapes=SQUARE)
        product(step, DGEMM, 9_000, shapes=[[1 << 22, 16], [16, 16]])

    edited = draft_of(body)
    moved = edited.bytes.copy()
    to_fp32(edited)

    assert edited.dtype.tolist() == ["fp32"] * 5
    assert edited.duration_ns[0] == pytest.approx(at_rate(edited, "fp32", unit="vector"))
    # What it takes to start stays.
    assert edited.duration_ns[1] == pytest.approx(LIKELY.start_ns + (100_000 - LIKELY.start_ns) / 2)
    assert edited.duration_ns.tolist()[2:4] == [900, 100_000]
    assert edited.duration_ns[4] == pytest.approx(LIKELY.start_ns + streamed(edited, moved[4] / 2))
    assert (edited.bytes / moved).tolist() == [0.5, 0.5, 0.5, 1.0, 0.5]


def test_what_is_fp32_after_another_change_is_tf32_after_this_one():
    def body(step, number):
        product(step, DGEMM, 9_000)
        step.launch(DOUBLE_ADD, 100, shapes=SQUARE)
        step.launch(ADD, 100, shapes=SQUARE)

    edited = draft_of(body)
    to_fp32(edited)
    use_tf32(edited)

    assert edited.dtype.tolist() == ["tf32", "fp32", "fp32"]
    moving = LIKELY.start_ns + streamed(edited, edited.bytes[0])
    assert edited.duration_ns[0] == pytest.approx(max(at_rate(edited, "tf32"), moving))


def test_only_misaligned_products_of_16_bits_become_aligned():
    def body(step, number):
        product(step, ALIGN2, 900)
        product(step, ALIGN2.replace("bf16", "f16"), 900)
        product(step, ALIGN2.replace("align2", "align8"), 900)
        product(step, "ampere_sgemm_128x64_align1_tn", 900)

    edited = draft_of(body)
    align_matrices(edited)

    assert misaligned(edited.facts).tolist() == [True, True, False, False]
    assert edited.duration_ns.tolist() == pytest.approx(
        [at_rate(edited, "bf16"), at_rate(edited, "fp16"), 900_000, 900_000]
    )


@pytest.mark.parametrize(("align", "gains"), [("align1", True), ("align2", True), ("align4", False)])
def test_products_in_tf32_want_rows_of_four_elements(align, gains):
    name = f"void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x256_32x3_nt_{align}>(cutlass::Params)"

    edited = draft_of(lambda step, number: product(step, name, 9_000))
    align_matrices(edited)

    assert misaligned(edited.facts).tolist() == [gains]
    assert edited.duration_ns[0] == pytest.approx(at_rate(edited, "tf32") if gains else 9_000_000)


def test_autocast_halves_the_traffic_around_products_and_adds_casts():
    def body(step, number):
        product(step, host=50)
        step.launch(ADD, 100, shapes=SQUARE, host=50)
        step.backward(SGEMM, 6_000, shapes=SQUARE, host=50)
        with step.within("Optimizer.step#SGD.step"):
            step.launch(ADD, 100, shapes=SQUARE, host=50)
        step.launch(FUSED_ADAM, 100, host=50)
        product(step, BF16_GEMM, 900, host=50)

    edited = draft_of(body)
    moved, gap = edited.bytes.copy(), edited.gap_ns.copy()
    usual = edited.usual_launch_ns
    autocast(edited)
    elements = 4096 * 4096

    # Two casts before a forward product: three quarters of both matrices, 6 bytes an element.
    forward = at_rate(edited, "bf16") + 2 * LIKELY.start_ns + streamed(edited, 2 * elements * 0.75 * 6)
    # One after the backward products of it, so a half: of the smaller matrix.
    backward = at_rate(edited, "bf16") + LIKELY.start_ns + streamed(edited, elements / 2 * 6)
    soft = LIKELY.start_ns + (100_000 - LIKELY.start_ns) * 0.5
    assert edited.duration_ns.tolist() == pytest.approx([forward, soft, backward, 100_000, 100_000, 900_000])
    assert edited.dtype.tolist() == ["bf16", "fp32", "bf16", "fp32", "fp32", "bf16"]
    assert (edited.bytes[:4] / moved[:4]).tolist() == pytest.approx([0.5, 0.5, 0.5, 1.0])
    assert (edited.gap_ns - gap).tolist() == pytest.approx(
        [2 * LIKELY.light_launch * usual, 0, LIKELY.light_launch * usual, 0, 0, 0, 0]
    )


def test_a_product_with_a_bias_has_one_cast_more_and_the_smaller_matrix_is_halved():
    def body(step, number):
        product(step, shapes=[[1024], [8192, 2048], [2048, 1024]], operator="aten::addmm")
        step.backward(SGEMM, 6_000, shapes=[[8192, 2048], [2048, 1024]])

    edited = draft_of(body)
    autocast(edited)
    flop, large, small = 2 * 8192 * 2048 * 1024, 8192 * 2048, 2048 * 1024

    assert edited.duration_ns[0] == pytest.approx(
        at_rate(edited, "bf16", flop) + 3 * LIKELY.start_ns + streamed(edited, (large + small) * 0.75 * 6)
    )
    assert edited.duration_ns[1] == pytest.approx(
        at_rate(edited, "bf16", flop) + LIKELY.start_ns + streamed(edited, small / 2 * 6)
    )


def test_without_shapes_inputs_are_two_thirds_of_what_a_product_moves():
    def body(step, number):
        product(step, shapes=None)
        step.backward(SGEMM, 6_000)

    edited = draft_of(body)
    edited.facts.bytes[:] = [12e6, np.nan]
    edited.duration_ns[:] = 0
    autocast(edited)

    # 12 MB are 2 M elements of 4 bytes in inputs.
    assert edited.duration_ns.tolist() == pytest.approx(
        [2 * LIKELY.start_ns + streamed(edited, 2e6 * 6), LIKELY.start_ns]
    )


def test_one_size_is_no_product_of_two():
    def body(step, number):
        product(step, shapes=[[64, 64]])
        step.backward(ADD, 10)

    edited = draft_of(body)
    edited.facts.bytes[:] = 12e6
    edited.duration_ns[:] = 0
    autocast(edited)

    assert edited.duration_ns[0] == pytest.approx(2 * LIKELY.start_ns + streamed(edited, 2e6 * 6))


def test_backward_products_without_shapes_cast_half_as_much():
    def body(step, number):
        step.backward(SGEMM, 6_000)

    edited = draft_of(body)
    edited.facts.bytes[:] = 12e6
    edited.duration_ns[:] = 0
    autocast(edited)

    assert edited.duration_ns.tolist() == pytest.approx([LIKELY.start_ns + streamed(edited, 1e6 * 6)])


def test_attention_runs_at_the_rate_of_attention_and_without_casts():
    def body(step, number):
        shapes = [[8, 16, 2048, 64]] * 3
        step.launch(ATTENTION, 6_000, operators=("aten::_efficient_attention_forward",), shapes=shapes)

    edited = draft_of(body)
    gap = edited.gap_ns.copy()
    edited.facts.flop[:] = 1e11
    autocast(edited)

    assert edited.duration_ns.tolist() == pytest.approx([at_rate(edited, "bf16", 1e11, LIKELY.attention)])
    assert edited.gap_ns.tolist() == gap.tolist()
    assert edited.dtype.tolist() == ["bf16"]


def test_unknown_flop_are_those_of_the_units_peak_at_the_usual_share():
    def body(step, number):
        product(step, shapes=None)
        product(step)

    edited = draft_of(body)
    edited.facts.flop[0] = np.nan
    peak = edited.facts.gpu.peak("fp32", "vector")

    assert known_flop(edited).tolist() == pytest.approx([peak * 6e-3 * LIKELY.matrix, FLOP])


def test_on_a_card_without_the_rate_nothing_changes():
    edited = draft_of(product_of_two)
    edited.facts.__dict__["gpu"] = None
    for change in (use_tf32, align_matrices):
        change(edited)

    assert edited.duration_ns.tolist() == [6_000_000, 900_000]


def product_of_two(step, number):
    product(step)
    product(step, ALIGN2, 900)


def test_a_product_that_another_change_took_out_of_16_bits_is_not_aligned():
    edited = draft_of(product_of_two)
    edited.dtype[1] = "fp8"
    align_matrices(edited)

    assert edited.duration_ns.tolist() == [6_000_000, 900_000]


def test_attention_in_16_bits_stays_as_it_is_under_autocast():
    def body(step, number):
        product(step)
        step.launch(ATTENTION, 6_000, operators=("aten::_efficient_attention_forward",))

    edited = draft_of(body)
    edited.facts.dtype[1] = "fp16"
    edited.facts.flop[1] = 1e10
    autocast(edited)

    assert edited.duration_ns[1] == 6_000_000


@pytest.mark.parametrize(
    ("operator", "share"), [("aten::cudnn_batch_norm", 0.5), ("aten::native_layer_norm", 1.0)]
)
def test_a_batch_norm_takes_16_bits_under_autocast_and_a_layer_norm_does_not(operator, share):
    norm = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(int)"

    def body(step, number):
        product(step, SGEMM, 9_000)
        step.launch(norm, 500, operators=(operator,), shapes=[[64, 64, 56, 56]])

    edited = draft_of(body)
    autocast(edited)

    assert edited.duration_ns[1] == pytest.approx(LIKELY.start_ns + (500_000 - LIKELY.start_ns) * share)


def test_what_follows_an_operator_that_stays_in_fp32_keeps_its_bytes_up_to_the_next_product():
    def body(step, number):
        product(step)
        step.launch(ADD, 100, operators=("aten::mul",), shapes=SQUARE)
        step.launch(ADD, 100, operators=("aten::exp",), shapes=SQUARE)
        step.launch(ADD, 100, operators=("aten::mul",), shapes=SQUARE)
        product(step)
        step.launch(ADD, 100, operators=("aten::expand_copy",), shapes=SQUARE)
        # Backward, the other way round.
        step.backward(ADD, 100, operators=("aten::mul",), shapes=SQUARE)
        step.backward(SGEMM, 6_000, shapes=SQUARE)
        step.backward(ADD, 100, operators=("aten::mul",), shapes=SQUARE)
        step.backward(ADD, 100, operators=("aten::exp",), shapes=SQUARE)
        step.backward(ADD, 100, operators=("aten::mul",), shapes=SQUARE)
        step.backward(SGEMM, 6_000, shapes=SQUARE)

    edited = draft_of(body)
    autocast(edited)

    pointwise = edited.duration_ns <= 100_000
    halved = edited.duration_ns[pointwise] < 100_000
    assert halved.tolist() == [True, False, False, True, True, False, False, True]


@pytest.mark.parametrize(
    ("norm", "operators", "shapes", "halved"),
    [
        ("aten::native_layer_norm", "aten::add", [[64, 4096], [64, 4096]], False),
        ("aten::native_layer_norm", "aten::add", [[64, 4096], [4096]], True),
        ("aten::native_layer_norm", "aten::mul", [[64, 4096], [64, 4096]], True),
        ("aten::cudnn_batch_norm", "aten::add", [[64, 4096], [64, 4096]], True),
    ],
)
def test_the_sum_of_layers_is_in_fp32_where_layer_norms_take_it(norm, operators, shapes, halved):
    name = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(int)"

    def body(step, number):
        step.launch(name, 100, operators=(norm,), shapes=[[64, 4096]])
        product(step)
        step.launch(ADD, 100, operators=(operators,), shapes=shapes)
        step.backward(SGEMM, 6_000, shapes=SQUARE)

    edited = draft_of(body)
    autocast(edited)

    assert (edited.duration_ns[2] < 100_000) == halved


def test_a_model_that_only_runs_is_loaded_in_16_bits_and_casts_nothing():
    def body(step, number):
        product(step)
        step.launch(ADD, 100, operators=("aten::exp",), shapes=SQUARE)

    edited = draft_of(body)
    gap = edited.gap_ns.copy()
    autocast(edited)

    assert edited.duration_ns[0] == pytest.approx(at_rate(edited, "bf16"))
    assert edited.duration_ns[1] < 100_000
    assert edited.gap_ns.tolist() == gap.tolist()
