"""Which arithmetic ran where: the map adds up to the kernels, and the type of a product is that of its inputs."""

import runpy
from collections import Counter
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from profkit.errors import ReadError
from profkit.model import Device, OperationKind, RangeKind, Trace
from profkit.model.report_precision import PrecisionRow
from profkit.readers import read
from profkit.report.views import Options, analysed_views, view_trace
from profkit.roofline.kernel_names import classify
from profkit.roofline.precision_findings import precision_findings
from profkit.roofline.precision_map import operator_types, precision_rows, precision_together, tf32_rows
from tests.builders import TraceBuilder
from tests.shared import DATA, SHARED

OURS = sorted(
    [*(DATA / "kineto").glob("*.json.gz"), *(DATA / "ncu").glob("*.json.gz"), DATA / "run_gpt/trace.json.gz"]
)
OTHERS = sorted(
    [*(SHARED / "recordings/zoo").glob("*.json.gz"), *(SHARED / "recordings/kineto").glob("*_stack*"),
     *(SHARED / "recordings/nsys").glob("emit_*"),
     *(SHARED / "corpus/kineto").glob("*.json*")]
)  # fmt: skip
COUNTING = runpy.run_path(str(Path(__file__).parents[2] / "reports/precision/product_types.py"))
products, reason = COUNTING["products"], COUNTING["reason"]
TENSOR_GEMM, SIMT_GEMM = "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NTN", "ampere_sgemm_128x64_tn"
TF32_GEMM = (
    "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x16_stage4_warpsize2x2x1_tensor16x8x8_kernel"
)


@cache
def viewed(path):
    """The view of a recording, or None for a file that is none."""
    try:
        (view,) = analysed_views([read(path)], Options())
    except (ReadError, ValueError):
        return None
    return view


@pytest.mark.parametrize("path", [*OURS, *OTHERS], ids=lambda path: path.name[:60])
def test_every_product_computes_in_the_type_of_what_it_multiplies(path):
    view = viewed(path)
    if view is None:
        pytest.skip("no recording")

    assert not [each for each in products(view) if reason(each) is None]


def test_our_recordings_have_thousands_of_such_products():
    assert sum(products(viewed(path)).total() for path in OURS) > 2000


@pytest.mark.parametrize(
    ("name", "types", "computes", "agrees"),
    [
        ("aten::mm", '["double", "double"]', "fp32", False),
        ("aten::addmm", '["float", "c10::Half", "c10::Half", "Scalar"]', "fp32", False),
        ("aten::addmm", '["float", "c10::Half", "c10::Half", "Scalar"]', "fp16", True),
        ("aten::mm", '["float", "float"]', "tf32", True),
        ("aten::mm", '["float", "float"]', None, False),
    ],
)
def test_another_type_than_that_of_what_is_multiplied_is_a_disagreement(name, types, computes, agrees):
    product = COUNTING["Product"](SIMT_GEMM, name, COUNTING["multiplied"](name, types), computes)

    assert (reason(product) is not None) == agrees


@pytest.mark.parametrize(
    ("kernel", "dtype"),
    [
        ("void gemmk1_kernel<int, double, 256, 5, false>(cublasGemmk1Params<double, double const*>)", "fp64"),
        ("void gemmSN_TN_kernel<__half, 128>(cublasGemmSmallNParams<__half const*>)", "fp16"),
        ("void ck::kernel_batchedgemm_xdlops<unsigned short>(int)", "bf16"),
        ("void implicit_convolve_sgemm<float, float, 1024>(int)", "fp32"),
        ("volta_gcgemm_32x32_nt", "complex64"),
    ],
)
def test_letters_within_another_word_are_no_type(kernel, dtype):
    assert classify([kernel])[0].dtype == dtype


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_the_map_is_the_sum_of_the_window_s_kernels_by_phase_and_type(path):
    view = viewed(path)
    operations, phases = view.trace.operations, view.phases
    expected: Counter[tuple] = Counter()
    for row in np.flatnonzero((operations.kind == OperationKind.KERNEL) & view.kept).tolist():
        kernel = view.work.class_of_name[int(operations.name[row])]
        path_at = phases.path[phases.of_operation[row]] if phases.of_operation[row] >= 0 else -1
        key = (
            phases.paths[path_at] if path_at >= 0 else None,
            view.work.dtypes[view.work.dtype[row]] if view.work.dtype[row] >= 0 else None,
            kernel.tensor_core,
            kernel.is_product,
        )
        expected[key] += int(operations.end_ns[row] - operations.start_ns[row])

    assert {(r.phase, r.dtype, r.tensor_core, r.matrix): r.ns for r in precision_rows(view)} == expected


def typed(name, types, kernel, *, capability=(9, 0)):
    """A trace of one operator with one kernel of 100 ns."""
    made = TraceBuilder()
    made.range(0, 50, name, kind=RangeKind.OPERATOR, dtypes=made.text(types))
    made.kernel(60, 160, launch=(10, 20), name=kernel)
    trace = made.trace()
    device = Device(0, "NVIDIA H100 80GB HBM3", compute_capability=capability)
    return view_trace(Trace(**{**vars(trace), "devices": [device]}), [None])


def test_an_operator_s_types_come_from_its_inputs_and_its_kernel():
    (row,) = operator_types(typed("aten::mm", '["c10::Half", "c10::Half", "Scalar"]', TENSOR_GEMM))

    assert (row.name, row.takes, row.computes, row.tensor_core) == (
        "aten::mm",
        ("fp16", "fp16"),
        "fp16",
        True,
    )
    assert (row.ns, row.count, row.matrix) == (100, 1, True)


@pytest.mark.parametrize(
    ("name", "kernel", "work", "tf32_ns", "fp32_ns"),
    [
        ("aten::mm", SIMT_GEMM, "products", 0, 100),
        ("aten::mm", TF32_GEMM, "products", 100, 0),
        ("aten::cudnn_convolution", TF32_GEMM, "convolutions", 100, 0),
    ],
)
def test_tf32_is_told_for_products_and_convolutions_apart(name, kernel, work, tf32_ns, fp32_ns):
    (row,) = tf32_rows(typed(name, '["float", "float"]', kernel))

    assert (row.work, row.tf32_ns, row.fp32_ns) == (work, tf32_ns, fp32_ns)


def test_tf32_is_not_told_of_half_inputs_nor_of_gpus_without_it():
    assert not tf32_rows(typed("aten::mm", '["c10::Half", "c10::Half"]', SIMT_GEMM))
    assert not tf32_rows(typed("aten::mm", '["float", "float"]', SIMT_GEMM, capability=(7, 5)))


def test_a_product_with_a_vector_does_not_say_that_tf32_is_off():
    name = "std::enable_if<true, void>::type internal::gemvx::kernel<int, int, float, float, float, float, false>(int)"
    assert not tf32_rows(typed("aten::mm", '["float", "float"]', name))


BF16 = '["c10::BFloat16", "c10::BFloat16"]'
GEMV = "void gemmSN_NN_kernel<float, 128, 2, 4, 8, 4, 4, false, cublasGemvTensorStridedBatched<__nv_bfloat16 const> >"


@pytest.mark.parametrize("kernel", [SIMT_GEMM, GEMV, "void gemv2T_kernel_val<int, int, __nv_bfloat16>()"])
@pytest.mark.parametrize(("capability", "found"), [((7, 0), 1), ((7, 5), 1), ((6, 1), 1), ((8, 0), 0)])
def test_bf16_before_ampere_is_emulated_whatever_its_kernel_is_called(kernel, capability, found):
    rows = precision_findings(typed("aten::mm", BF16, kernel, capability=capability))

    assert [row.code for row in rows] == ["bf16-emulated"] * found
    assert all(row.params["gpu"] == "NVIDIA H100 80GB HBM3" and row.count == 1 for row in rows)


def test_other_types_are_not_emulated():
    for types in ('["float", "float"]', '["c10::Half", "c10::Half"]'):
        assert not precision_findings(typed("aten::mm", types, SIMT_GEMM, capability=(7, 0)))


@pytest.mark.parametrize(
    "kernel",
    [
        "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn",
        "volta_h884gemm_256x128_ldg8_nt",
        "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_tn",
        "turing_fp16_s1688cudnn_fp16_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1",
    ],
)
def test_fp16_on_volta_and_turing_is_on_tensor_cores(kernel):
    (row,) = precision_rows(typed("aten::mm", '["c10::Half", "c10::Half"]', kernel, capability=(7, 5)))

    assert (row.dtype, row.tensor_core, row.matrix) == ("fp16", True, True)


@pytest.mark.parametrize(
    "reduce",
    [
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16>(int)",
        "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x32_stage3_warpsize2x2x1_tensor16x8x16_execute_split_k_kernel__5x_cublas",
        "void vllm::paged_attention_v2_reduce_kernel<__nv_bfloat16, 128, 128, 512>(__nv_bfloat16*)",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, 4, 5, true>(int)",
    ],
)
def test_a_reduction_of_split_products_is_no_product(reduce):
    (row,) = precision_rows(typed("aten::mm", '["c10::BFloat16", "c10::BFloat16"]', reduce))

    assert (row.matrix, row.tensor_core) == (False, False)


@pytest.mark.parametrize(
    "beside",
    [
        "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params, float const*, float*)",
        "Im2d2Col_v2",
        "void at::native::col2im_kernel<float, float>(long, float const*, long)",
        "void at::native::vol2col_kernel<float>(long, float const*, int)",
        "void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(int)",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(int)",
        "void cudnn::winograd_nonfused::winogradForwardOutput4x4<float, float>(int)",
    ],
)
def test_what_lays_data_out_for_a_product_is_no_product(beside):
    (row,) = precision_rows(typed("aten::cudnn_convolution", '["float", "float"]', beside))

    assert not row.matrix


MANGLED = "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageINS_4gemm4warp11MmaTensorOp"
MATRIX_CORES = "_ZN2ck16tensor_operation6device49kernel_grouped_conv_fwd_multiple_abd_xdl_cshuffle"


@pytest.mark.parametrize(
    ("kernel", "taken", "computes"),
    [(MANGLED, "float", "tf32"), (MANGLED, "c10::Half", "fp16"), (MATRIX_CORES, "float", "fp32")],
)
def test_tensor_cores_take_fp32_as_tf32_and_matrix_cores_as_it_is(kernel, taken, computes):
    (row,) = precision_rows(typed("aten::cudnn_convolution", f'["{taken}", "{taken}"]', kernel))

    assert (row.dtype, row.tensor_core, row.matrix) == (computes, True, True)


def test_composable_kernel_calls_bf16_a_short_and_nothing_multiplies_those():
    moe, other = classify(
        [f"void {space}kernel_moe_gemm<{space}Grid<unsigned short, float>>(int)" for space in ("ck::", "")]
    )

    assert (moe.dtype, other.dtype) == ("bf16", None)


@pytest.mark.parametrize(
    ("others", "found"),
    [
        (["c10::Half"], "fp16"),
        (["c10::BFloat16"], "bf16"),
        (["c10::Half", "c10::BFloat16"], None),
        (["float"], None),
    ],
)
def test_a_copy_of_two_bytes_has_the_type_that_the_recording_names(others, found):
    made = TraceBuilder()
    opaque = "void at::native::CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 3, 64, 64>(int)"
    made.range(0, 50, "aten::cat", kind=RangeKind.OPERATOR, dtypes=made.text('["TensorList", "Scalar"]'))
    made.kernel(60, 160, launch=(10, 20), name=opaque)
    for at, other in enumerate(others):
        made.range(
            100 + at, 101 + at, "aten::relu", kind=RangeKind.OPERATOR, dtypes=made.text(f'["{other}"]')
        )
    (row,) = precision_rows(view_trace(made.trace(), [None]))

    assert row.dtype == found


def test_known_work_adds_up_and_unknown_work_stays_unknown():
    def row(ns, flop):
        return PrecisionRow(
            phase=None, dtype="bf16", tensor_core=True, matrix=True, ns=ns, flop=flop,
            flop_ns=ns if flop is not None else 0, count=1,
        )  # fmt: skip

    (both,) = precision_together([row(10, 500), row(30, None)])
    (neither,) = precision_together([row(10, None), row(30, None)])

    assert (both.ns, both.flop, both.flop_ns, both.count) == (40, 500, 10, 2)
    assert (neither.flop, neither.flop_ns) == (None, 0)
