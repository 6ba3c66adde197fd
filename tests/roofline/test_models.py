"""Formulas against numbers worked out by hand, and against torch's counter where that is right."""

import json
import math

import pytest

from profkit.hardware import Gpu
from profkit.model.work import Work
from profkit.roofline.attention import visible_pairs
from profkit.roofline.kernel_names import classify
from profkit.roofline.list_names import list_traffic
from profkit.roofline.operator_models import Answer, model_work
from profkit.roofline.operator_shapes import parse_call
from profkit.roofline.traffic import scattered_bytes

GEMM_BF16 = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
GEMM_FP32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma"
FPROP = "sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1"
DGRAD, WGRAD = FPROP.replace("fprop", "dgrad"), FPROP.replace("fprop", "wgrad")
FLASH = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64_4x1x1"
LAYER_NORM = "void at::native::vectorized_layer_norm_kernel<float, float, false>(int, float)"
GAMMA_BETA = "void at::native::GammaBetaBackwardCUDAKernelTemplate<float, float, 32u, 32u, 256u, false, true, false>(long)"
LAYER_NORM_DX = "void at::native::layer_norm_grad_input_kernel_vectorized<float, float, false>(float const*)"
REDUCE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::func_wrapper_t<float>>>(T3)"
FUSED_ADAM = (
    "void at::native::multi_tensor_apply_kernel<at::native::FusedOptimizerTensorListMetadata<4>, "
    "at::native::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false> >(T1)"
)
FOREACH_ADD = (
    "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, "
    "at::native::BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>(T1)"
)


def pointwise_name(functor, arrays):
    return (
        f"void at::native::vectorized_elementwise_kernel<4, {functor}, std::array<char*, {arrays}ul> >(int)"
    )


ADD = pointwise_name("at::native::CUDAFunctor_add<float>", 3)


def work(operator, kernel, shapes, dtypes=(), scalars=(), strides=()):
    texts = [json.dumps(list(part)) if part else "" for part in (shapes, dtypes, strides, scalars)]
    return model_work(parse_call(operator, *texts), classify([kernel])[0])


def test_mm_is_two_mnk_and_each_matrix_once():
    found = work("aten::mm", GEMM_BF16, [[16384, 768], [768, 3072]], ["c10::BFloat16"] * 2)
    assert found.flop == 2 * 16384 * 768 * 3072
    assert found.read_bytes == 2 * (16384 * 768 + 768 * 3072)
    assert found.write_bytes == 2 * 16384 * 3072


def test_addmm_reads_its_bias_and_takes_the_matrices_after_it():
    found = work(
        "aten::addmm", GEMM_FP32, [[768], [4096, 3072], [3072, 768], [], []], ["float"] * 3 + ["Scalar"] * 2
    )
    assert found.flop == 2 * 4096 * 3072 * 768
    assert found.total_bytes == 4 * (768 + 4096 * 3072 + 3072 * 768 + 4096 * 768)


def test_batched_products_count_every_batch():
    found = work(
        "aten::baddbmm",
        GEMM_BF16,
        [[8, 64, 32], [8, 64, 16], [8, 16, 32], [], []],
        ["c10::Half"] * 3 + ["Scalar"] * 2,
    )
    assert found.flop == 2 * 8 * 64 * 16 * 32
    assert work("aten::bmm", GEMM_BF16, [[8, 64, 16], [8, 16, 32]], ["c10::Half"] * 2).flop == found.flop


def test_linear_and_matrix_times_vector():
    linear = work("aten::linear", GEMM_BF16, [[4, 128, 64], [256, 64], [256]], ["c10::BFloat16"] * 3)
    assert linear.flop == 2 * 4 * 128 * 64 * 256
    gemv = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(T11)"
    assert work("aten::mv", gemv, [[1000, 500], [500]], ["float"] * 2).flop == 2 * 1000 * 500


def test_fp8_products_read_one_byte_an_element():
    kernel = "nvjet_sm90_qqtst_128x256_128x4_2x1_v_bz_coopA_TNT"
    found = work(
        "aten::_scaled_mm",
        kernel,
        [[64, 512], [512, 128], [], []],
        ["c10::Float8_e4m3fn"] * 2 + ["float", "float"],
    )
    assert found.read_bytes == 64 * 512 + 512 * 128
    assert found.write_bytes == 2 * 64 * 128


def test_the_types_come_from_the_name_when_only_sizes_are_recorded():
    assert work("aten::mm", GEMM_BF16, [[64, 32], [32, 16]]).read_bytes == 2 * (64 * 32 + 32 * 16)


CONV_SCALARS = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
CONV_TYPES = [
    "c10::Half",
    "c10::Half",
    "",
    "ScalarList",
    "ScalarList",
    "ScalarList",
    "Scalar",
    "ScalarList",
    "Scalar",
]


def test_convolution_forward():
    shapes = [[8, 16, 32, 32], [64, 16, 3, 3], [], [], [], [], [], [], []]
    found = work("aten::convolution", FPROP, shapes, CONV_TYPES, CONV_SCALARS)
    assert found.flop == 2 * 8 * 64 * 16 * 16 * 16 * 9
    assert found.total_bytes == 2 * (8 * 16 * 32 * 32 + 64 * 16 * 9 + 8 * 64 * 16 * 16)


def test_cudnn_convolution_writes_padding_before_stride():
    shapes = [[8, 16, 32, 32], [64, 4, 3, 3], [], [], [], []]
    scalars = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "4"]
    found = work(
        "aten::cudnn_convolution",
        FPROP,
        shapes,
        ["c10::Half", "c10::Half", *["ScalarList"] * 3, "Scalar"],
        scalars,
    )
    assert found.flop == 2 * 8 * 64 * 16 * 16 * 4 * 9


def test_transposed_convolution_spreads_its_input():
    shapes = [[8, 64, 16, 16], [64, 32, 2, 2], [], [], [], [], [], [], []]
    scalars = ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"]
    found = work("aten::convolution", DGRAD, shapes, CONV_TYPES, scalars)
    assert found.flop == 2 * (8 * 64 * 16 * 16) * 32 * 4
    assert found.write_bytes == 2 * 8 * 32 * 32 * 32


CUTLASS_FPROP = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_128x128_32x5_nhwc_align8>(int)"
IMAGE, PADDED = 2 * 64 * 3 * 224 * 224, 2 * 64 * 8 * 224 * 224


def first_layer(kernel, outputs=64):
    shapes = [[64, 3, 224, 224], [outputs, 3, 7, 7], [], [], [], [], [], [], []]
    return work("aten::convolution", kernel, shapes, CONV_TYPES, CONV_SCALARS)


def test_matrix_kernels_find_three_channels_padded_to_eight():
    weights = 2 * 64 * 3 * 49
    assert first_layer(FPROP).read_bytes == PADDED + weights
    assert first_layer(FPROP.replace("implicit_gemm", "image_first_layer")).read_bytes == IMAGE + weights
    assert first_layer(f"{FPROP}_aligna2_alignc8").read_bytes == IMAGE + weights
    assert first_layer("volta_scudnn_128x64_relu_interior_nn_v1").read_bytes == IMAGE + weights


def test_cutlass_goes_over_the_image_once_for_four_tiles_of_channels():
    assert [first_layer(CUTLASS_FPROP, outputs).repeated for outputs in (512, 513, 1025)] == [
        (PADDED, 0.0),
        (PADDED, 1.0),
        (PADDED, 2.0),
    ]
    assert first_layer(FPROP, 1025).repeated[1] == 0


def test_phases_of_a_strided_gradient_share_the_sectors_of_narrow_pixels():
    shapes = [[64, 64, 112, 112], [64, 3, 224, 224], [64, 3, 7, 7], *[[]] * 8]
    scalars = ["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    types = ["c10::Half"] * 3 + ["ScalarList"] * 8
    strided = DGRAD + "_strided"
    found = work("aten::convolution_backward", strided, shapes, types, scalars)
    result, weights = 2 * 64 * 64 * 112 * 112, 2 * 64 * 3 * 49
    assert found.repeated == (result, 3.0)  # four phases
    assert found.write_bytes == 2 * PADDED  # 16 of the 32 bytes of a sector at a time
    assert found.read_bytes == result + weights + 2 * PADDED
    wide = [[64, 64, 112, 112], [64, 16, 224, 224], [64, 16, 7, 7], *[[]] * 8]
    whole = work("aten::convolution_backward", strided, wide, types, scalars)
    assert whole.write_bytes == 2 * 64 * 16 * 224 * 224
    assert whole.read_bytes == result + 2 * 64 * 16 * 49


def test_a_gradient_named_by_cutlass_has_its_direction():
    name = "_ZN17cutlass__5x_cudnn6KernelINS_4conv6kernel23ImplicitGemmConvolutionI52Conv2dWgradOutputGradientTile"
    shapes = [[4, 32, 16, 16], [4, 16, 16, 16], [32, 16, 3, 3], *[[]] * 8]
    assert work("aten::convolution_backward", name, shapes).role == "wgrad"


def test_attention_computes_whole_blocks_of_queries_and_keys():
    def executed(queries, keys):
        shapes = [[2, 8, queries, 64], [2, 8, keys, 64], [2, 8, keys, 64], *[[]] * 4]
        scalars = ["", "", "", "0.0", "False", "False", ""]
        return work("aten::_scaled_dot_product_flash_attention", FLASH, shapes, (), scalars).executed

    assert executed(128, 64) == executed(4096, 4096) == 1
    assert executed(49, 49) == pytest.approx(128 / 49 * 64 / 49)
    split = "void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4, false, false, cutlass::half_t>>(int)"
    shapes = [[2, 8, 4, 64], [2, 8, 4096, 64], [2, 8, 4096, 64]]
    assert work("aten::_scaled_dot_product_flash_attention", split, shapes).executed == 64 / 4
    assert executed(1, 4096) == 1  # one token: kernels for it pack heads into the rows


def test_a_bias_of_attention_is_read_again_for_each_sequence():
    kernel = "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel::Params)"
    heads = [[8, 16, 256, 64]] * 3
    types = ["c10::BFloat16"] * 4 + ["Scalar"] * 4
    scalars = ["", "", "", "", "True", "0.", "False", ""]
    operator = "aten::_scaled_dot_product_efficient_attention"
    plain = work(operator, kernel, [*heads, *[[]] * 5], [*types[:3], "", *types[4:]], scalars)
    strides = [[], [], [], [0, 65536, 256, 1], [], [], [], []]
    biased = work(operator, kernel, [*heads, [8, 16, 256, 256], [], [], [], []], types, scalars, strides)
    size = 2 * 16 * 256 * 256
    assert plain.repeated[1] == 0
    assert biased.read_bytes == plain.read_bytes + size
    assert biased.repeated == (size, 7.0)
    bare = work(operator, kernel, [*heads, [8, 16, 256, 256]])  # as emit_nvtx writes it: sizes alone
    assert (bare.repeated, bare.guessed, bare.flop) == ((size, 7.0), True, biased.flop)


@pytest.mark.parametrize(
    "shapes", [[[], [8, 16, 32, 32], [64, 16, 3, 3]], [[8, 64, 32], [8, 16, 32], [64, 16, 3, 3]]]
)
@pytest.mark.parametrize("kernel", [DGRAD, "void cudnn::nchwToNhwcKernel<__half>(int)"])
def test_gradients_of_unlike_dimensions_have_no_work(kernel, shapes):
    assert not isinstance(work("aten::convolution_backward", kernel, shapes, ["c10::Half"] * 3), Work)


def test_a_tile_of_no_rows_and_tensors_beyond_counting_are_no_trouble():
    assert classify([GEMM_BF16.replace("256x128", "0x128")])[0].tile is None
    huge = [2**47] * 40
    assert not isinstance(work("aten::mm", GEMM_BF16, [huge, huge]), Work)


def test_each_gradient_of_a_convolution_costs_a_forward_grouped_ones_too():
    shapes = [[4, 32, 16, 16], [4, 16, 16, 16], [32, 4, 3, 3], *[[]] * 8]
    scalars = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "4", "[True, True, False]"]
    types = ["c10::Half"] * 3 + ["ScalarList"] * 8
    forward = 2 * (4 * 32 * 16 * 16) * 4 * 9
    data, weight = (
        work("aten::convolution_backward", kernel, shapes, types, scalars) for kernel in (DGRAD, WGRAD)
    )
    assert (data.flop, data.role) == (forward, "dgrad")
    assert (weight.flop, weight.role) == (forward, "wgrad")
    assert weight.read_bytes == 2 * (4 * 32 * 256 + 4 * 16 * 256)
    assert weight.write_bytes == 2 * (32 * 4 * 3 * 3)
    unnamed = work(
        "aten::convolution_backward", "volta_scudnn_128x64_relu_interior_nn_v1", shapes, types, scalars
    )
    assert (unnamed.flop, unnamed.role) == (2 * forward, "either")


def test_visible_pairs_count_causal_as_causal():
    assert visible_pairs(4, 4, causal=False) == 16
    assert visible_pairs(4, 4, causal=True) == 10
    assert visible_pairs(2, 4, causal=True) == 3  # top-left: query 0 sees key 0, query 1 sees keys 0 and 1
    assert visible_pairs(4, 2, causal=True) == 1 + 2 + 2 + 2


ATTENTION = [[2, 8, 128, 64], [2, 4, 128, 64], [2, 4, 128, 64], [], [], [], [], [], [], [], [], [], []]


def attention(causal):
    scalars = ["", "", "", "", "", "", "128", "128", "True", "0.", causal, "False", ""]
    return work(
        "aten::_cudnn_attention_forward", FLASH, ATTENTION, ["c10::BFloat16"] * 3 + [""] * 10, scalars
    )


def test_attention_counts_query_heads_in_flop_and_key_heads_in_bytes():
    found = attention("False")
    assert found.flop == 2 * 2 * 8 * 128 * 128 * (64 + 64)
    assert found.read_bytes == 2 * 2 * 128 * 64 * (8 + 4 + 4)
    assert found.write_bytes == 2 * 2 * 128 * 64 * 8 + 4 * 2 * 8 * 128
    assert attention("True").flop == 2 * 2 * 8 * (128 * 129 / 2) * 128


def test_attention_backward_is_five_products():
    shapes = [[2, 128, 8, 64]] * 6 + [[]] * 14
    scalars = [""] * 20
    scalars[11] = "True"
    found = work(
        "aten::_flash_attention_backward",
        FLASH.replace("fprop", "bprop"),
        shapes,
        ["c10::Half"] * 6 + [""] * 14,
        scalars,
    )
    assert found.flop == 2 * 2 * 8 * (128 * 129 / 2) * 5 * 64


def test_efficient_attention_knows_its_mask_by_number():
    shapes = [[2, 128, 8, 64]] * 3 + [[]] * 11
    for number, pairs in (("0", 128 * 128), ("1", 128 * 129 / 2)):
        scalars = [""] * 9 + [number] + [""] * 4
        kernel = (
            "fmha_cutlassF_f32_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<float>::Params)"
        )
        assert work(
            "aten::_efficient_attention_forward", kernel, shapes, ["float"] * 3 + [""] * 11, scalars
        ).flop == (2 * 2 * 8 * pairs * 128)


def test_attention_without_scalars_is_marked_as_a_guess():
    found = work("aten::_cudnn_attention_forward", FLASH, [[2, 8, 128, 64]] * 3)
    assert found.guessed
    assert found.flop == 2 * 2 * 8 * (128 * 129 / 2) * 128


def test_pointwise_reads_inputs_as_they_lie_in_memory():
    plain = work("aten::add", ADD, [[64, 128], [64, 128], []], ["float", "float", "Scalar"])
    assert (plain.read_bytes, plain.write_bytes) == (2 * 4 * 64 * 128, 4 * 64 * 128)
    row = work("aten::add", ADD, [[64, 128], [128], []], ["float", "float", "Scalar"])
    assert row.read_bytes == 4 * (64 * 128 + 128)
    expanded = work(
        "aten::add",
        ADD,
        [[64, 128], [64, 128], []],
        ["float", "float", "Scalar"],
        strides=[[128, 1], [1, 0], []],
    )
    assert expanded.read_bytes == 4 * (64 * 128 + 64)


def test_every_second_element_costs_whole_sectors():
    kernel = pointwise_name("at::native::AbsFunctor<float>", 2)
    found = work("aten::abs", kernel, [[1024]], ["float"], strides=[[2]])
    assert found.read_bytes == 1024 * 8
    assert work("aten::abs", kernel, [[1024]], ["float"], strides=[[64]]).read_bytes == 1024 * 32


def test_mixed_types_promote_and_comparisons_give_bytes():
    cast_add = "void at::native::unrolled_elementwise_kernel<at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>, 4, LoadWithCast<2>>(int)"
    mixed = work("aten::add", cast_add, [[1000], [1000], []], ["float", "c10::BFloat16", "Scalar"])
    assert (mixed.read_bytes, mixed.write_bytes) == (6000, 4000)
    compare = pointwise_name(
        "at::native::compare_scalar_kernel<float>(at::TensorIteratorBase&)::{lambda(float)#1}", 2
    )
    assert work("aten::eq", compare, [[1000], []], ["float", "Scalar"]).write_bytes == 1000


def test_an_in_place_operator_writes_what_it_read():
    mul = pointwise_name("at::native::BUnaryFunctor<c10::Half, c10::Half, c10::Half, MulFunctor<float>>", 2)
    found = work("aten::mul_", mul, [[1000], []], ["c10::Half", "double"])
    assert (found.read_bytes, found.write_bytes) == (2000, 2000)


def test_an_out_argument_is_not_read():
    found = work("aten::add", ADD, [[1000], [1000], [], [1000]], ["float", "float", "Scalar", "float"])
    assert (found.read_bytes, found.write_bytes) == (8000, 4000)


def test_copies_casts_and_fills():
    cast = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
    found = work("aten::copy_", cast, [[1000], [1000], []], ["c10::BFloat16", "float", "Scalar"])
    assert (found.read_bytes, found.write_bytes) == (4000, 2000)
    fill = pointwise_name("at::native::FillFunctor<float>", 1)
    assert work("aten::fill_", fill, [[1000], []], ["float", "Scalar"]).total_bytes == 4000


def test_cat_moves_everything_twice():
    kernel = "void at::native::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 4, 64, 64>(T1)"
    found = work("aten::cat", kernel, [[[8, 64], [8, 32]], []], ["TensorList", "Scalar"])
    assert found.total_bytes == 2 * 2 * 8 * 96


def test_layer_norm_forward_and_its_two_backward_kernels():
    size = 4 * 512 * 768
    forward = work(
        "aten::native_layer_norm",
        LAYER_NORM,
        [[512, 768], [], [768], [768], []],
        ["float", "ScalarList", "float", "float", "Scalar"],
    )
    assert forward.total_bytes == 2 * size + 2 * 4 * 768 + 8 * 512
    shapes = [[512, 768], [512, 768], [], [512, 1], [512, 1], [768], [768], []]
    types = ["float", "float", "ScalarList", "float", "float", "float", "float", "ScalarList"]
    dx, weights = (
        work("aten::native_layer_norm_backward", kernel, shapes, types)
        for kernel in (LAYER_NORM_DX, GAMMA_BETA)
    )
    assert dx.total_bytes == 3 * size
    assert (weights.read_bytes, weights.role) == (2 * size, "weights")


def test_softmax_and_its_gradient():
    forward = (
        "void at::native::cunn_SoftMaxForwardSmem<4, float, float, float, LogSoftMaxForwardEpilogue>(float*)"
    )
    backward = "void at::native::cunn_SoftMaxBackwardSmem<4, float, float, float, LogSoftMaxBackwardEpilogue>(float*)"
    assert (
        work(
            "aten::_log_softmax",
            forward,
            [[64, 1000], [], []],
            ["float", "Scalar", "Scalar"],
            ["", "1", "False"],
        ).total_bytes
        == 2 * 256_000
    )
    gradient = work(
        "aten::_log_softmax_backward_data",
        backward,
        [[64, 1000], [64, 1000], [], []],
        ["float", "float", "Scalar", "Scalar"],
        ["", "", "1", "6"],
    )
    assert gradient.total_bytes == 3 * 256_000


def test_reductions_keep_what_is_not_reduced():
    found = work(
        "aten::sum",
        REDUCE,
        [[64, 32, 16], [], [], []],
        ["float", "ScalarList", "Scalar", ""],
        ["", "[0, -1]", "False", ""],
    )
    assert (found.read_bytes, found.write_bytes) == (4 * 64 * 32 * 16, 4 * 32)
    assert work("aten::sum", REDUCE, [[64, 32], []], ["float", ""], ["", ""]).write_bytes == 4


def test_embedding_reads_each_row_once_at_most():
    gather = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)"
    few = work("aten::embedding", gather, [[1_000_000, 64], [100]], ["float", "long int"])
    assert few.read_bytes == pytest.approx(100 * 256 + 800, rel=1e-3)
    many = work("aten::embedding", gather, [[10, 64], [1000]], ["float", "long int"])
    assert many.read_bytes == pytest.approx(10 * 256 + 8000, rel=1e-3)
    assert many.write_bytes == 1000 * 256


def test_fused_adam_moves_28_bytes_a_parameter():
    lists = [[[100, 10], [24]]] * 4
    found = work("aten::_fused_adam_", FUSED_ADAM, [*lists, [], []], ["TensorList"] * 4 + ["", ""])
    assert found.total_bytes == 28 * 1024


def test_a_foreach_operator_reads_its_lists_and_writes_one():
    found = work(
        "aten::_foreach_add_", FOREACH_ADD, [[[1000]], [[1000]], []], ["TensorList", "TensorList", "Scalar"]
    )
    assert found.total_bytes == 12_000


def test_list_functors_tell_their_traffic_in_the_name():
    assert list_traffic(FUSED_ADAM) == (4.0, 3.0)
    assert list_traffic(FOREACH_ADD) == (2.0, 1.0)
    assert (
        list_traffic(
            "multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float, (NormType)1, float, 1, 1, 0>>"
        )[1]
        == 0.0
    )
    assert list_traffic("something_else") is None


def test_a_fused_kernel_moves_each_listed_tensor_once():
    found = work(
        "triton_poi_fused_add_0",
        "triton_poi_fused_add_0",
        [[1000], [1000], [1000], []],
        ["float", "c10::Half", "float", "Scalar"],
    )
    assert found.total_bytes == 10_000


def test_broadcasting_decides_the_size_of_the_result():
    outer = work("aten::mul", ADD, [[64, 1], [1, 128]], ["float", "float"])
    assert (outer.read_bytes, outer.write_bytes) == (4 * (64 + 128), 4 * 64 * 128)


def test_a_tensor_without_dimensions_is_an_operand_and_a_python_number_is_none():
    where = pointwise_name(
        "at::native::where_kernel_impl(at::TensorIterator&)::{lambda(bool, float, float)#1}", 4
    )
    shapes, types = [[64, 1], [], [64, 32], [64, 32]], ["bool", "float", "float", "float"]
    assert work("aten::where", where, shapes, types).read_bytes == 64 + 4 + 4 * 64 * 32
    mul = pointwise_name("at::native::AUnaryFunctor<float, float, float, MulFunctor<float>>", 2)
    assert work("aten::mul", mul, [[64], [], [64]], ["float", "double", "float"]).read_bytes == 4 * 64


def test_an_optimizers_gradient_is_read_once_as_both_factors():
    addcmul = pointwise_name(
        "at::native::addcmul_cuda_kernel(at::TensorIteratorBase&)::{lambda(float, float, float)#1}", 4
    )
    found = work("aten::addcmul_", addcmul, [[1000], [1000], [1000], []], ["float"] * 3 + ["Scalar"])
    assert (found.read_bytes, found.write_bytes) == (8000, 4000)
    lists = [[[1000]], [[1000]], [[1000]], []]
    assert (
        work("aten::_foreach_addcmul_", FOREACH_ADD, lists, ["TensorList"] * 3 + ["Scalar"]).total_bytes
        == 12_000
    )


def test_gather_over_rows_reads_distinct_rows():
    gather = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)"
    shapes, strides = [[10, 256], [], [1000, 256], []], [[256, 1], [], [1, 0], []]
    found = work(
        "aten::gather",
        gather,
        shapes,
        ["float", "Scalar", "long int", "Scalar"],
        ["", "0", "", "False"],
        strides,
    )
    assert found.read_bytes == pytest.approx(10 * 1024 + 8000, rel=1e-3)
    assert found.write_bytes == 1000 * 1024


def test_only_whole_passes_of_a_sort_are_modelled():
    onesweep = "void cub::DeviceRadixSortOnesweepKernel<cub::policy_hub<float, long>, float, long>(int*)"
    found = work("aten::sort", onesweep, [[1000], []], ["float", "Scalar"])
    assert (found.total_bytes, found.whole) == (2 * 12_000, True)
    helper = "void at::native::mbtopk::computeDigitCumSum(short const*, unsigned int*, unsigned int)"
    assert work("aten::topk", helper, [[1000], []], ["float", "Scalar"]) is Answer.NONE


def test_group_norm_is_moments_and_a_pointwise_kernel():
    moments = "void at::native::RowwiseMomentsCUDAKernel<c10::Half>(long, float)"
    apply = pointwise_name(
        "at::native::GroupNormKernelImplInternal(at::Tensor const&)::{lambda(c10::Half, float, float)#1}", 4
    )
    shapes, types = (
        [[8, 64, 16, 16], [64], [64], *[[]] * 5],
        ["c10::Half", "c10::Half", "c10::Half"] + ["Scalar"] * 5,
    )
    size = 2 * 8 * 64 * 256
    assert work("aten::native_group_norm", moments, shapes, types).total_bytes == size
    assert work("aten::native_group_norm", apply, shapes, types).total_bytes == 2 * size


def test_tensor_cores_execute_whole_tiles():
    stem = "sm80_xmma_fprop_implicit_gemm_indexed_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x32x16_stage1_tensor16x8x16"
    scalars = ["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"]
    shapes = [[8, 3, 32, 32], [64, 3, 3, 3], *[[]] * 7]
    assert work("aten::convolution", stem, shapes, CONV_TYPES, scalars).executed == pytest.approx(16 / 3)
    shapes, scalars = [[8, 256, 32, 32], [256, 8, 3, 3], *[[]] * 7], [*scalars[:-1], "32"]
    assert work("aten::convolution", FPROP, shapes, CONV_TYPES, scalars).executed == 8
    assert attention("True").executed == 1.5
    assert attention("False").executed == 1.0


def test_a_convolution_by_transforms_has_flop_but_no_bytes():
    shapes = [[4, 32, 16, 16], [4, 16, 16, 16], [32, 16, 3, 3], *[[]] * 8]
    found = work("aten::convolution_backward", GEMM_FP32, shapes, ["float"] * 3 + ["ScalarList"] * 8)
    assert found.flop > 0
    assert math.isnan(found.read_bytes)


def test_operators_without_a_formula_send_one_up_and_foreign_kernels_do_not():
    assert work("aten::linalg_something", GEMM_BF16, [[4, 4]], ["float"]) is Answer.CLIMB
    assert (
        work("aten::mm", pointwise_name("at::native::FillFunctor<float>", 1), [[4, 4], [4, 4]], ["float"] * 2)
        is Answer.NONE
    )
    assert work("aten::mm", GEMM_BF16, []) is Answer.CLIMB


@pytest.mark.parametrize(
    "shapes",
    ["", "[", "{}", "[[-1, 4], [4, 4]]", '[["a"], []]', "[[1e300, 2], [2, 2]]", "[" * 5000, "null", f"[[{10**30}, 2], [2, 2]]", "[[[[1]]]]"],
    ids=lambda s: s[:12],
)  # fmt: skip
@pytest.mark.parametrize(
    "operator",
    ["aten::mm", "aten::add", "aten::cat", "aten::_foreach_add_", "aten::sum", "aten::convolution"],
)
def test_hostile_shapes_give_no_number(operator, shapes):
    for kernel in (GEMM_BF16, ADD, REDUCE, FOREACH_ADD, FPROP):
        found = model_work(parse_call(operator, shapes, "", "", ""), classify([kernel])[0])
        assert isinstance(found, Answer) or (math.isfinite(found.flop) and not found.total_bytes < 0)


@pytest.mark.torch
def test_flop_agree_with_torch_where_torch_is_right():
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    def counted(function, *shapes):
        with FlopCounterMode(display=False) as counter:
            function(*(torch.empty(shape, device="meta") for shape in shapes))
        return counter.get_total_flops()

    a, b, batch = (48, 40), (40, 24), [(5, 8, 6), (5, 6, 7)]
    assert work("aten::mm", GEMM_FP32, [a, b]).flop == counted(torch.mm, a, b)
    assert work("aten::bmm", GEMM_FP32, batch).flop == counted(torch.bmm, *batch)
    x, w = (4, 16, 18, 20), (32, 8, 3, 3)
    scalars = ["", "", "", "[2, 1]", "[1, 0]", "[1, 2]", "False", "[0, 0]", "2"]
    ours = work("aten::convolution", FPROP, [x, w, *[[]] * 7], CONV_TYPES, scalars).flop
    assert ours == counted(lambda x, w: torch.conv2d(x, w, None, (2, 1), (1, 0), (1, 2), 2), x, w)
    q = (2, 4, 64, 32)
    shapes = [q] * 3 + [[]] * 10
    full = ["", "", "", "", "", "", "64", "64", "True", "0.", "False", "False", ""]
    ours = work("aten::_cudnn_attention_forward", FLASH, shapes, ["c10::Half"] * 3 + [""] * 10, full).flop
    assert ours == counted(lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v), q, q, q)


def test_attention_without_types_takes_that_of_its_kernel():
    shapes = [[2, 8, 512, 64]] * 3
    names = ("fmha_cutlassF_f32_aligned_64x64_rf_sm80(P)", "fmha_cutlassF_f16_aligned_64x64_rf_sm80(P)")
    fp32, fp16 = (work("aten::_scaled_dot_product_efficient_attention", name, shapes) for name in names)
    assert fp32.read_bytes == 2 * fp16.read_bytes == 3 * 4 * 2 * 8 * 512 * 64


def test_a_strided_gradient_without_arguments_has_the_stride_of_its_sizes():
    kernel = DGRAD + "_strided"
    shapes = [[8, 64, 16, 16], [8, 64, 32, 32], [64, 64, 3, 3]]
    assert work("aten::convolution_backward", kernel, shapes).repeated[1] == 3
    same = [[8, 64, 32, 32], *shapes[1:]]
    assert work("aten::convolution_backward", kernel, same).repeated[1] == 0


GROUPED = "void cutlass::device_kernel<GemmUniversal<cutlass::gemm::GroupProblemShape<cute::tuple<int, int, int> > > >"
VARLEN = "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, true>"


@pytest.mark.parametrize(
    ("a", "b", "flop"),
    [
        ([8192, 2048], [8, 2048, 4096], 2 * 8192 * 2048 * 4096),
        ([4096, 8192], [8192, 2048], 2 * 4096 * 8192 * 2048),
        ([8, 512, 2048], [8, 2048, 4096], 2 * 8 * 512 * 2048 * 4096),
        ([8, 4096, 2048], [2048, 8192], 2 * 4096 * 2048 * 8192),
    ],
    ids=["rows", "depth", "batch", "columns"],
)
def test_grouped_products_count_every_row_once(a, b, flop):
    made = work("aten::_grouped_mm", GROUPED, [a, b, [8]], ["c10::BFloat16", "c10::BFloat16", "int"])
    assert made.flop == flop
    assert made.dtype == "bf16"


def varlen(sums, longest, tokens=8192):
    shapes = [[tokens, 32, 128]] * 3 + [[sums]] * 2 + [[]] * 5
    scalars = ["", "", "", "", "", str(longest), str(longest), "0.", "True", "False"]
    return work("aten::_flash_attention_forward", VARLEN, shapes, ["c10::BFloat16"] * 3, scalars)


def test_packed_sequences_see_only_their_own():
    made = varlen(5, 2048)
    assert made.flop == 4 * 32 * 2 * (2048 * 2049 // 2) * 256
    assert not made.guessed


def test_packed_sequences_of_unlike_lengths_are_a_guess():
    assert varlen(5, 4096).guessed
    assert varlen(4, 2731).guessed


def test_one_packed_sequence_is_a_whole_one():
    made = varlen(2, 8192)
    assert made.flop == 32 * 2 * (8192 * 8193 // 2) * 256
    assert not made.guessed


GATHER = "void at::native::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long)"
SCATTER_ADD = "void at::native::_scatter_gather_elementwise_kernel<128, 8, at::native::_cuda_scatter_gather_internal_kernel<true, float>>(int)"


def test_rows_of_a_table_larger_than_the_cache_are_read_again():
    """A million edges of 200,000 nodes of 256 bytes: counters read 191 MB, of which 8 MB are the index (H200)."""
    found = work(
        "aten::index_select",
        GATHER,
        [[200_000, 64], [], [1 << 20]],
        ["float", "Scalar", "long int"],
        ["", "0"],
    )
    h200 = Gpu(name="H200", l2_bytes=60 * 2**20)
    read = found.read_bytes + scattered_bytes(found, h200)[0]
    assert read == pytest.approx(191e6, rel=0.06)
    # A table that fits into the cache is read once.
    assert scattered_bytes(found, Gpu(name="large", l2_bytes=200e6)) == (0.0, 0.0)


def test_an_expanded_index_adds_whole_rows_and_is_read_once():
    shapes, types = (
        [[200_000, 64], [], [1 << 20, 64], [1 << 20, 64]],
        ["float", "Scalar", "long int", "float"],
    )
    strides = [[64, 1], [], [1, 0], [64, 1]]
    found = work("aten::scatter_add_", SCATTER_ADD, shapes, types, ["", "0"], strides)
    table, again, written = found.scattered
    assert table == 200_000 * 256
    touched = 200_000 * 256 * -math.expm1(-(1 << 20) / 200_000)
    assert found.read_bytes == pytest.approx((1 << 20) * (256 + 8) + touched)
    assert (found.write_bytes, again) == pytest.approx((touched, (1 << 20) * 256 - touched))
    assert written == again


def test_single_elements_of_a_long_row_move_a_sector_each():
    shapes, types = [[4096, 100_000], [], [4096, 1], []], ["float", "Scalar", "long int", "Scalar"]
    found = work("aten::gather", GATHER, shapes, types, ["", "1"])
    assert found.read_bytes == pytest.approx(4096 * (32 + 8), rel=1e-4)
    # Of a short row every sector is read, and none twice.
    shapes = [[4096, 8], [], [4096, 8], []]
    assert work("aten::gather", GATHER, shapes, types, ["", "1"]).read_bytes <= 4096 * (32 + 8 * 8)


def test_indices_that_a_sort_begins_with_are_only_written():
    kernel = "void at::native::(anonymous namespace)::fill_reverse_indices_kernel(long*, int, at::cuda::detail::IntDivider<unsigned int>)"
    found = work("aten::sort", kernel, [[64, 1024], [], [], []], ["float"])
    assert (found.read_bytes, found.write_bytes) == (0.0, 8.0 * 64 * 1024)


def test_topk_sorts_in_place_what_it_found():
    kernel = "void at::native::radixSortKVInPlace<2, -1, 128, 32, float, long, unsigned int>(x)"
    found = work("aten::topk", kernel, [[64, 1024], [], []], ["float", "Scalar", "Scalar"], ["", "50", "-1"])
    assert found.read_bytes == found.write_bytes == 64 * 50 * 12


def test_rows_added_by_index_put_are_touched_once_each():
    kernel = "void at::native::indexing_backward_kernel<float, 4>(long const*, long const*)"
    found = work("aten::index_put_", kernel, [[65536, 1024], [], [32768, 1024], []], ["float", "", "float"])
    touched = 65536 * -math.expm1(-0.5) * 4096
    assert found.write_bytes == pytest.approx(touched)
    assert found.read_bytes == pytest.approx(32768 * (4096 + 16) + touched)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "_upsample_nearest_exact2d"])
def test_interpolation_moves_every_pixel_once(name):
    kernel = "void at::native::(anonymous namespace)::upsample_bilinear2d_nhwc_out_frame<float, float>(float)"
    found = work(f"aten::{name}", kernel, [[2, 8, 16, 16], [], [], []], ["float"], ["", "[32, 48]"])
    assert (found.read_bytes, found.write_bytes) == (4.0 * 2 * 8 * 256, 4.0 * 2 * 8 * 32 * 48)
    back = work(
        f"aten::{name}_backward",
        kernel,
        [[2, 8, 32, 48], [], []],
        ["float"],
        ["", "[32, 48]", "[2, 8, 16, 16]"],
    )
    assert (back.read_bytes, back.write_bytes) == (found.write_bytes, found.read_bytes)
