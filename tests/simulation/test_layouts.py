"""Kernels that only exist because of how things were written, and what is left without them."""

import numpy as np
import pytest

from profkit.simulation import layouts
from profkit.simulation.constants import LIKELY
from profkit.simulation.layouts import (
    channels_last,
    fuse_attention,
    handmade_attention,
    keep_activations,
    laid_out,
    recomputed,
    transposes,
)
from tests.advice.made_steps import ADD, BF16_GEMM, GELU, SGEMM
from tests.simulation.steps import CONVOLUTION, NHWC, draft_of, step_of

NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512, true, 1, true>(cudnnTensorStruct, float const*)"
NORM_LAST = NORM.replace("NCHW", "nhwc")
SOFTMAX = "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*, float const*)"
LOG_SOFTMAX = SOFTMAX.replace("9, false, false", "9, true, false")
SCORES = [[256, 2048, 2048], [256, 2048, 64]]
IMAGE = [[64, 64, 112, 112], [64]]
LN = "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)"


def test_channels_last_drops_transposes_and_streams_batch_norm():
    def body(step, number):
        step.launch(NHWC, 50, operators=("aten::cudnn_convolution",))
        step.launch(CONVOLUTION, 200, operators=("aten::cudnn_convolution",))
        step.launch(NORM, 900, operators=("aten::cudnn_batch_norm",), shapes=IMAGE)
        step.launch(NORM_LAST, 900, operators=("aten::cudnn_batch_norm",), shapes=IMAGE)
        step.launch(NORM, 900, operators=("aten::native_layer_norm",), shapes=IMAGE)
        step.launch(NORM, 900, operators=("aten::cudnn_batch_norm",))

    edited = draft_of(body)
    edited.bytes[2:5], edited.bytes[5] = 8e8, np.nan
    channels_last(edited)
    rate = edited.facts.gpu.bandwidth_bytes_per_s * LIKELY.memory

    assert transposes(edited.facts).tolist() == [True] + [False] * 5
    assert laid_out(edited.facts).tolist() == [False, True, False, True, False, False]
    assert edited.alive.tolist() == [False] + [True] * 5
    assert LIKELY.start_ns + 8e8 / rate * 1e9 < LIKELY.normed * 900_000
    assert edited.duration_ns.tolist() == pytest.approx(
        [50_000, 200_000, LIKELY.normed * 900_000, 900_000, 900_000, 900_000]
    )


def test_a_batch_norm_in_channels_last_takes_as_long_as_its_bytes():
    edited = draft_of(
        lambda step, number: step.launch(NORM, 900, operators=("aten::cudnn_batch_norm",), shapes=IMAGE)
    )
    edited.bytes[:] = 2.4e9
    channels_last(edited)
    rate = edited.facts.gpu.bandwidth_bytes_per_s * LIKELY.memory

    assert edited.duration_ns[0] == pytest.approx(LIKELY.start_ns + 2.4e9 / rate * 1e9)


def attention(step, between=1, product=SGEMM, softmax=SOFTMAX, operator="aten::_softmax", bmm="aten::bmm"):
    step.launch(product, 200, operators=(bmm,), shapes=SCORES)
    for _ in range(between):
        step.launch(ADD, 50, operators=("aten::add",), shapes=SCORES)
    step.launch(softmax, 50, operators=(operator,), shapes=SCORES[:1])
    step.launch(product, 200, operators=(bmm,), shapes=SCORES)


def test_handmade_attention_is_all_from_product_to_product_around_a_softmax():
    def body(step, number):
        step.launch(ADD, 10)
        attention(step)
        step.launch(ADD, 10)

    assert handmade_attention(step_of(body).facts).tolist() == [False, True, True, True, True, False]


@pytest.mark.parametrize(
    "options",
    [
        {"softmax": LOG_SOFTMAX},
        {"operator": "aten::_log_softmax"},
        {"bmm": "aten::mm"},
        {"between": 39},
        {"softmax": GELU},
    ],
)
def test_what_is_no_attention_is_left_alone(options):
    assert not handmade_attention(step_of(lambda step, number: attention(step, **options)).facts).any()


def test_up_to_forty_kernels_may_lie_between_the_products():
    found = handmade_attention(step_of(lambda step, number: attention(step, between=38)).facts)

    assert found.tolist() == [True] * 41


def test_a_softmax_without_a_product_on_one_side_is_none():
    def before(step, number):
        step.launch(SOFTMAX, 50, operators=("aten::_softmax",))
        step.launch(SGEMM, 200, operators=("aten::bmm",), shapes=SCORES)

    def after(step, number):
        step.launch(SGEMM, 200, operators=("aten::bmm",), shapes=SCORES)
        step.launch(SOFTMAX, 50, operators=("aten::_softmax",))

    for body in (before, after):
        assert not handmade_attention(step_of(body).facts).any()


def test_products_without_operators_count_and_a_compiled_step_does_not():
    def nameless(step, number):
        step.launch(SGEMM, 200, operators=())
        step.launch(SOFTMAX, 50, operators=())
        step.launch(SGEMM, 200, operators=())

    def compiled(step, number):
        attention(step)
        step.launch("triton_poi_fused_add_0", 10, operators=())

    assert handmade_attention(step_of(nameless).facts).all()
    assert not handmade_attention(step_of(compiled).facts).any()


def backward_attention(step, apart=0):
    """Two products, the softmax's gradient, two products; more kernels between those of each pair."""
    for at in range(4):
        if at == 2:
            step.backward(SOFTMAX, 50, operators=("aten::_softmax_backward_data",), shapes=SCORES[:1])
        elif at == 1:
            for _ in range(apart):
                step.backward(ADD, 10, operators=("aten::add",))
        step.backward(SGEMM, 200, operators=("aten::bmm",), shapes=SCORES)
        if at == 2:
            for _ in range(apart):
                step.backward(ADD, 10, operators=("aten::add",))


@pytest.mark.parametrize(("apart", "pairs"), [(0, True), (10, True), (11, False)])
def test_in_the_backward_pass_two_products_on_each_side_belong_to_it(apart, pairs):
    found = handmade_attention(step_of(lambda step, number: backward_attention(step, apart)).facts)

    assert found.sum() == (5 + 2 * apart if pairs else 3)
    assert found[0] == found[-1] == pairs


def test_the_backward_of_attention_is_found_late_in_a_step_too():
    def body(step, number):
        for _ in range(60):
            step.launch(ADD, 10)
        backward_attention(step)

    assert handmade_attention(step_of(body).facts).tolist() == [False] * 60 + [True] * 5


def test_a_softmax_between_products_of_forward_and_backward_is_none():
    def body(step, number):
        step.launch(SGEMM, 200, operators=("aten::bmm",), shapes=SCORES)
        step.launch(SOFTMAX, 50, operators=("aten::_softmax",))
        step.backward(SGEMM, 200, operators=("aten::bmm",), shapes=SCORES)

    assert not handmade_attention(step_of(body).facts).any()


def fused_ns(edited, flop, dtype, share):
    peak = edited.facts.gpu.best_peaks()[dtype]
    return 2 * LIKELY.start_ns + flop / (peak * LIKELY.attention * share) * 1e9 * 0.75


@pytest.mark.parametrize(("product", "dtype", "share"), [(BF16_GEMM, "bf16", 1.0), (SGEMM, "tf32", 1 / 6)])
def test_fused_attention_takes_the_products_arithmetic_at_its_own_rate(product, dtype, share):
    def body(step, number):
        attention(step, product=product)
        for _ in range(8):
            step.launch(ADD, 10, host=7)

    edited = draft_of(body)
    edited.facts.flop[[0, 3]] = 3e9
    usual, host = edited.usual_launch_ns, edited.host_ns(np.arange(4))
    fuse_attention(edited)

    assert edited.alive.tolist() == [True, False, False, False] + [True] * 8
    assert edited.duration_ns[0] == pytest.approx(fused_ns(edited, 6e9, dtype, share))
    left = float((edited.gap_ns + edited.own_ns)[:4].sum())
    assert left == pytest.approx(min(host, layouts._FUSED_LAUNCHES * usual))
    assert left == layouts._FUSED_LAUNCHES * usual < host


def test_the_backward_of_attention_does_a_quarter_more():
    def body(step, number):
        for at in range(5):
            name = SOFTMAX if at == 2 else BF16_GEMM
            step.backward(name, 900, operators=("aten::_softmax_backward_data" if at == 2 else "aten::bmm",))

    edited = draft_of(body)
    edited.facts.flop[[0, 1, 3, 4]] = 1e10
    host, usual = edited.host_ns(np.arange(5)), edited.usual_launch_ns
    fuse_attention(edited)

    assert edited.duration_ns[0] == pytest.approx(fused_ns(edited, 4e10 * 1.25, "bf16", 1.0))
    assert 4 * usual < host
    assert float((edited.gap_ns + edited.own_ns)[:5].sum()) == pytest.approx(4 * usual)


def test_each_attention_is_fused_by_itself_and_no_longer_than_it_was():
    def body(step, number):
        for _ in range(2):
            attention(step)
            step.launch(ADD, 10)

    edited = draft_of(body)
    edited.facts.flop[[0, 3]] = 1e15
    edited.facts.flop[[5, 8]] = 0
    fuse_attention(edited)

    assert edited.alive.tolist() == [True, False, False, False, True] * 2
    # Without any arithmetic that is known, a share of the time.
    assert edited.duration_ns[[0, 5]].tolist() == pytest.approx([500_000, 150_000])


def test_casts_around_attention_tell_that_it_takes_16_bits():
    cast = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16_copy_kernel_cuda"
        "(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
    )

    def body(before, after):
        def step_body(step, number):
            step.launch(cast, 10, operators=("aten::copy_",))
            for _ in range(before):
                step.launch(ADD, 10)
            attention(step)
            for _ in range(after):
                step.launch(ADD, 10)
            step.launch(cast if after else ADD, 10, operators=("aten::copy_",))

        return step_body

    def took(before, after):
        edited = draft_of(body(before, after))
        edited.facts.flop[:] = 3e9
        fuse_attention(edited)
        return (
            edited.duration_ns[before + 1],
            fused_ns(edited, 6e9, "bf16", 1),
            fused_ns(edited, 6e9, "tf32", 1 / 6),
        )

    for before, after, half in ((5, 0, True), (6, 0, False), (9, 5, True), (9, 6, False)):
        found, in_half, in_full = took(before, after)
        assert found == pytest.approx(in_half if half else in_full), (before, after)


def checkpointed(step, number):
    """A block of four kernels, run again inside of the checkpoint's node before its gradients."""
    block = ("aten::native_layer_norm", "aten::addmm", "aten::view_copy", "aten::gelu")
    for name, operator in zip((LN, BF16_GEMM, ADD, GELU), block, strict=True):
        step.launch(name, 100, operators=(operator,), shapes=[[64, 64], [64]])
    step.backward(ADD, 100, node="MeanBackward0", operators=("aten::div",))
    at = step.host
    nodes = ("CheckpointFunctionBackward", "autograd::engine::evaluate_function: CheckpointFunctionBackward")
    for name, operator in zip((LN, BF16_GEMM, ADD, GELU), block, strict=True):
        step.launch(name, 100, operators=(operator,), shapes=[[64, 64], [64]], thread=1)
    for depth, node in enumerate(nodes):
        step.builder.operator(at * 1000 - depth, step.host * 1000 + depth, node, thread=1)
    step.backward(BF16_GEMM, 100, operators=("aten::mm",), host=90)


def test_what_the_backward_pass_runs_again_is_dropped_and_what_follows_is_launched_as_usual():
    edited = draft_of(checkpointed)
    gap = edited.gap_ns.copy()

    assert recomputed(edited.facts).tolist() == [False] * 5 + [True] * 4 + [False]
    keep_activations(edited)
    assert edited.alive.tolist() == [True] * 5 + [False] * 4 + [True]
    assert edited.usual_launch_ns < gap[9]
    assert edited.gap_ns[9] == edited.usual_launch_ns
    assert edited.gap_ns[:5].tolist() == gap[:5].tolist()


def test_gradients_with_the_same_kernels_are_not_recomputed():
    def body(step, number):
        for operator in ("aten::addmm", "aten::gelu", "aten::add"):
            step.launch(ADD, 100, operators=(operator,), shapes=[[64, 64], [64]])
        for operator in ("aten::add", "aten::add"):
            step.backward(ADD, 100, operators=(operator,), shapes=[[64, 64], [64]])

    assert not recomputed(step_of(body).facts).any()


@pytest.mark.parametrize(("again", "found"), [(2, True), (1, False)])
def test_one_operator_alone_may_run_twice(again, found):
    def body(step, number):
        for _ in range(again):
            step.launch(ADD, 100, operators=("aten::addmm",), shapes=[[64, 64], [64]])
        for _ in range(again):
            step.backward(ADD, 100, operators=("aten::addmm",), shapes=[[64, 64], [64]])

    assert recomputed(step_of(body).facts).tolist() == [False] * again + [found] * again


def test_the_same_operator_on_other_sizes_or_with_another_kernel_is_not_recomputed():
    def body(step, number):
        for _ in range(2):
            step.launch(ADD, 100, operators=("aten::addmm",), shapes=[[64, 64], [64]])
        step.backward(ADD, 100, operators=("aten::addmm",), shapes=[[64, 32], [64]])
        step.backward(GELU, 100, operators=("aten::addmm",), shapes=[[64, 64], [64]])
        step.backward(ADD, 100, operators=("aten::gelu",), shapes=[[64, 64], [64]])
        with step.within("Optimizer.step#SGD.step"):
            step.launch(ADD, 100, operators=("aten::addmm",), shapes=[[8, 8], [8]])
        step.backward(ADD, 100, operators=("aten::addmm",), shapes=[[8, 8], [8]])

    assert not recomputed(step_of(body).facts).any()


def test_attention_is_found_late_in_a_step_too():
    def body(step, number):
        for _ in range(60):
            step.launch(ADD, 10)
        attention(step)

    assert handmade_attention(step_of(body).facts).tolist() == [False] * 60 + [True] * 4


def test_on_an_unknown_card_attention_stays_as_it_is():
    edited = draft_of(lambda step, number: attention(step))
    edited.facts.__dict__["gpu"] = None
    fuse_attention(edited)

    assert edited.alive.all()


def test_any_operator_of_a_checkpoint_that_ran_before_is_recomputed():
    def body(step, number):
        block = ("aten::addmm", "aten::gelu", "aten::mul")
        for operator in block:
            step.launch(ADD, 100, operators=(operator,), shapes=[[64, 64], [64]])
        at = step.host
        for operator in block:
            step.launch(ADD, 100, operators=(operator,), shapes=[[64, 64], [64]], thread=1)
        step.builder.operator(at * 1000, step.host * 1000, "CheckpointFunctionBackward", thread=1)
        step.backward(ADD, 100, operators=("aten::mul",), shapes=[[64, 64], [64]])

    # The last is a gradient that happens to look the same.
    assert recomputed(step_of(body).facts).tolist() == [False] * 3 + [True] * 3 + [False]
