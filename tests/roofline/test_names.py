import csv
import time
from pathlib import Path

import pytest

from profkit.model.kernel_class import Family
from profkit.roofline.kernel_names import classify

_WITH_TILES = [
    # name, family, dtype, out_dtype, tensor core, tile: from the name taxonomy (docs/models.md)
    ("ampere_sgemm_128x64_tn", "gemm", "fp32", "fp32", False, (128, 64, 0)),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn", "gemm", "bf16", "bf16", True, (128, 128, 32)),
    ("ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_nn", "gemm", "fp16", "fp16", True, (64, 64, 0)),
    ("turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "gemm", "fp16", "fp16", True, (128, 128, 0)),
    ("volta_h884gemm_64x64_ldg8_nn", "gemm", "fp16", "fp16", True, (64, 64, 0)),
    ("ampere_fp16_sgemm_fp16_128x64_tn", "gemm", "fp16", "fp16", False, (128, 64, 0)),
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", "gemm", "tf32", "fp32", True, (128, 128, 32)),
    ("void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_nn_align1>(T1::Params)", "gemm", "fp32", "fp32", False, (64, 64, 8)),
    ("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_nn_align1>(T1::Params)", "gemm", "fp64", "fp64", True, (64, 64, 16)),
    ("nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT", "gemm", "bf16", "bf16", True, (256, 128, 64)),
    ("nvjet_hsh_192x192_64x4_2x1_v_bz_coopB_bias_TNN", "gemm", "fp16", "fp16", True, (192, 192, 64)),
    ("nvjet_tss_64x8_64x16_4x1_v_bz_splitK_TNT", "gemm", "bf16", "fp32", True, (64, 8, 64)),
    ("nvjet_sm90_qqtst_128x256_128x4_2x1_v_bz_coopA_TNT", "gemm", "fp8", "bf16", True, (128, 256, 128)),
    ("sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel", "gemm", "bf16", "fp32", True, (128, 128, 64)),
    ("sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4", "gemm", "fp32", "fp32", False, (64, 64, 8)),
    ("sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x16_stage4_tensor16x8x8_execute", "gemm", "tf32", "fp32", True, (128, 128, 16)),
    ("sm90_xmma_gemm_e4m3e4m3_e4m3f32_f32_tn_n_tilesize64x128x128_warpgroupsize1x1x1", "gemm", "fp8", "fp32", True, (64, 128, 128)),
    ("cutlass3x_sm100_tensorop_s128x256x16gemm_bf16_bf16_f32_bf16_bf16_128x256x64_0_tnn_align8_2sm", "gemm", "bf16", "bf16", True, (128, 256, 64)),
    ("cutlass3x_sm100_simt_sgemm_f32_f32_f32_f32_f32_128x64x16_1x1x1", "gemm", "fp32", "fp32", False, (128, 64, 16)),
    ("Cijk_Ailk_Bljk_BBS_BH_MT128x64x32_MI32x32x8x1_SN_1LDSB0_APM1", "gemm", "bf16", "bf16", True, (128, 64, 32)),
    ("ampere_scudnn_128x64_relu_medium_nn_v1", "convolution", "fp32", "fp32", False, (128, 64, 0)),
    ("turing_s1688cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1", "convolution", "fp16", "fp16", True, (128, 128, 0)),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32", "convolution", "tf32", "fp32", True, (64, 128, 32)),
]  # fmt: skip

_BY_FAMILY = [
    ("void gemv2T_kernel_val<int, int, __half, __half, __half, float, 128, 16, 4, 4, false>(T11)", "gemm"),
    ("void splitKreduce_kernel<32, 16, int, float, __half, float, __half, true, false, false>(T4)", "gemm"),
    ("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>>>(T3)", "reduce"),
    ("void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true>(T1)", "layout"),
    ("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<64, 128, 128, 8>>(T1)", "attention"),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<float, 2>>(T1)", "optimizer"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)", "fill"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::masked_fill_kernel(at::TensorIterator&)::{lambda(float, bool)#1}, std::array<char*, 3ul> >(int)", "elementwise"),
    ("triton_tem_fused_mm_3", "gemm"),
    ("triton_per_fused_native_layer_norm_0", "norm"),
    ("triton_red_fused__softmax_2", "softmax"),
    ("triton_poi_fused__to_copy_4", "copy"),
    ("void fbgemm_gpu::permute_2D_data_kernel<true, long, float, float>(int, int, int)", "other"),
    ("multimem_all_reduce_kernel<c10::BFloat16, 16>", "communication"),
    ("__amd_rocclr_fillBufferAligned", "fill"),
    ("__amd_rocclr_copyBuffer", "copy"),
    ("void at::native::_scatter_gather_elementwise_kernel<128, 4, at::native::_cuda_scatter_gather_internal_kernel<true>>(int)", "index"),
    ("void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(T1)", "sort"),
    ("my_own_kernel", "other"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family", "dtype", "out_dtype", "tensor_core", "tile"), _WITH_TILES)
def test_matrix_names_tell_type_unit_and_tile(name, family, dtype, out_dtype, tensor_core, tile):
    (kernel,) = classify([name])
    found = (kernel.family, kernel.dtype, kernel.out_dtype, kernel.tensor_core, kernel.tile)
    assert found == (family, dtype, out_dtype, tensor_core, tile)


@pytest.mark.parametrize(("name", "family"), _BY_FAMILY)
def test_names_tell_the_family(name, family):
    assert classify([name])[0].family == family


@pytest.mark.parametrize(
    ("name", "vendor", "gradient"),
    [
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816fprop_optimized_bf16_128x128_32x5_nhwc_align8>(T1)", "cutlass", None),
        ("void cutlass::Kernel2<cutlass_80_tensorop_s16816dgrad_optimized_bf16_128x128_32x5_nhwc_align8>(T1)", "cutlass", "dgrad"),
        ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x128x32", "xmma", "wgrad"),
        ("void at::native::conv_depthwise2d_backward_kernel<3, 1, float, int>(T1)", "", "dgrad"),
        ("void at::native::conv_depthwise2d_grad_weight_kernel<float, int>(T1)", "", "wgrad"),
        ("igemm_bwd_gtcx_nhwc_bf16_bx0", "", "dgrad"),
        ("igemm_wrw_gtcx_nhwc_bf16_bx0", "", "wgrad"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT128x64x32_MI32x32x8x1_SN_1LDSB0_APM1", "tensile", None),
    ],
)  # fmt: skip
def test_matrix_names_tell_vendor_and_gradient(name, vendor, gradient):
    (kernel,) = classify([name])
    assert (kernel.vendor, kernel.gradient) == (vendor, gradient)


def _table():
    with (Path(__file__).parent / "names.tsv").open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


@pytest.mark.parametrize("row", _table(), ids=lambda row: row["name"][:60])
def test_names_seen_in_recordings_are_understood(row):
    (kernel,) = classify([row["name"]])
    tile = "x".join(map(str, kernel.tile)) if kernel.tile else "-"
    found = (kernel.family.value, kernel.dtype or "-", kernel.out_dtype or "-", kernel.unit or "-", tile)
    assert found == (row["family"], row["dtype"], row["out_dtype"], row["unit"], row["tile"])


def test_the_table_covers_every_family():
    assert len(_table()) >= 150
    assert {row["family"] for row in _table()} >= set(Family) - {Family.OTHER, Family.RECURRENT}


def test_the_accumulator_of_fp16_products_is_told_apart():
    full, half = classify(
        ["turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn", "turing_h1688gemm_128x128_ldg8_tn"]
    )
    assert (full.unit, half.unit) == ("tensor", "tensor_fp16acc")


def test_operands_of_pointwise_kernels_are_the_output_first():
    add, cast, where = classify(
        [
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
            "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)"
            "::{lambda(float)#1}, std::array<char*, 2ul> >(int)",
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::where_kernel_impl"
            "(at::TensorIterator&)::{lambda(bool, float, float)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)",
        ]
    )
    assert add.operands == ("fp32", "fp32", "fp32")
    assert cast.operands == ("bf16", "fp32")
    assert (where.operands, where.items) == (("fp32", "bool", "fp32", "fp32"), 2)


def test_one_kernel_in_the_dialects_of_three_tools_is_one_class():
    kineto, nsys, ncu = classify(
        [
            "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float, false>(int, float, float const*)",
            "void at::native::<unnamed>::vectorized_layer_norm_kernel<float, float, (bool)0>(int, T2, const T1 *)",
            "void native::<unnamed>::vectorized_layer_norm_kernel<float, float, 0>(int, T2, const T1 *)",
        ]
    )
    assert kineto == nsys == ncu


def test_short_names_are_short_and_tell_kernels_apart():
    kernels = classify([row["name"] for row in _table()])
    assert max(len(kernel.short_name) for kernel in kernels) <= 72
    assert all(kernel.short_name.isprintable() and kernel.short_name.strip() for kernel in kernels)


@pytest.mark.parametrize(
    "name",
    [
        "", "(", "<<<<", "void ", ">>>", "void <", "\0\x1b[2J", "é" * 10_000, "<" * 10_000, "(" * 10_000, "a::" * 3_000,
        "lambda(" * 2_000, "x<" + "lambda(float)" * 800, "void at::native::elementwise_kernel<" + "Functor<" * 1_200,
        "1x" * 5_000, "_f16f16" * 1_500, "nvjet_" + "t" * 9_000, "Cijk_" + "A" * 9_000, "_MT" * 3_000, "mean_" * 2_000 + "rsqrt",
        "triton_poi_fused_" + "t_" * 5_000, "std::enable_if<" * 700, "[lambda() (instance " * 500,
    ],
    ids=lambda name: ascii(name[:20]),
)  # fmt: skip
def test_hostile_names_are_classified_at_once(name):
    begin = time.perf_counter()
    (kernel,) = classify([name])
    assert time.perf_counter() - begin < 0.25
    assert len(kernel.short_name) <= 72


@pytest.mark.parametrize(
    "listed",
    ["_to_copy_view_t_0", "copy_1", "clone_transpose_2", "_unsafe_view_cat_permute_3", "copy__to_copy_4"],
)
def test_compiled_kernels_that_only_move_data_are_copies(listed):
    (found,) = classify([f"triton_poi_fused_{listed}"])
    assert found.family == Family.COPY


def test_a_compiled_kernel_of_a_long_name_takes_no_exponential_time():
    (found,) = classify([f"triton_poi_fused_{'copy_' * 2_000}x"])
    assert found.family != Family.COPY
