"""Bounds of small traces whose answer is worked out by hand."""

import dataclasses
import json

import numpy as np
import pytest

from profkit.hardware import TENSOR, VECTOR, Gpu
from profkit.model import (
    CopyKind,
    Device,
    OperationKind,
    Operations,
    Process,
    RangeKind,
    Ranges,
    Samples,
    Source,
    Trace,
)
from profkit.model.work import Basis, OperationBound
from profkit.roofline.bounds import bound_operations
from profkit.roofline.inferred import infer_side
from profkit.roofline.kernel_names import classify
from tests.roofline.recordings import bound, cards, read

GEMM = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
COPY = "void at::native::vectorized_elementwise_kernel<8, at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul> >(int)"
NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
CARD = Gpu(
    name="Round", compute_capability="9.0", sm_count=100, bandwidth_bytes_per_s=1e12, l2_bytes=0.0, overhead_ns=1000.0,
    peaks={("bf16", TENSOR): 1e14, ("fp32", VECTOR): 1e13},
)  # fmt: skip
B = OperationBound


def trace_of(operations, calls=(), samples=(), devices=1):
    """``operations``: dicts with ``name``, ``ns`` and columns; ``calls``: (operator, shapes, types, parent)."""
    strings = []

    def text(value):
        if value not in strings:
            strings.append(value)
        return strings.index(value)

    rows = [dict(op, name=text(op.get("name", GEMM))) for op in operations]
    length = [row.pop("ns") for row in rows]
    start = np.concatenate([[0], np.cumsum(length)[:-1]]) if "start_ns" not in (rows or [{}])[0] else None
    names = sorted({key for row in rows for key in row})
    fill = {"kind": OperationKind.KERNEL, "grid_x": 100, "block_x": 128, "device": 0}
    columns = {key: [row.get(key, fill.get(key, -1)) for row in rows] for key in {*names, *fill}}
    ranges = {
        "name": [text(call[0]) for call in calls],
        "shapes": [text(json.dumps(call[1])) if call[1] else -1 for call in calls],
        "dtypes": [text(json.dumps(call[2])) if call[2] else -1 for call in calls],
        "kind": [RangeKind.OPERATOR] * len(calls),
    }
    table = Samples.of(
        len(samples),
        time_ns=[s[0] for s in samples],
        metric=[text(s[1]) for s in samples],
        value=[s[2] for s in samples],
    )
    return Trace(
        Source("x", "nsys", "made by hand"), strings, [Process(1)], [], [Device(i, "Round") for i in range(devices)],
        Operations.of(len(rows), start_ns=start, end_ns=start + np.array(length), **columns),
        ranges=Ranges.of(len(calls), **ranges), samples=table,
    )  # fmt: skip


def work_of(operations, rows=None, calls=(), gpu=CARD, samples=()):
    trace = trace_of(operations, calls, samples)
    parent = np.array([call[3] for call in calls], np.int64)
    return bound_operations(trace, np.array(rows or [-1] * len(operations)), parent, [gpu])


MM = ("aten::mm", [[1000, 1000], [1000, 1000]], ["c10::BFloat16"] * 2, -1)


def test_the_largest_of_the_three_times_is_the_bound():
    work = work_of([{"name": GEMM, "ns": 40_000}], [0], [MM])
    assert work.flop[0] == 2e9
    assert work.compute_ns[0] == pytest.approx(20_000)
    assert work.memory_ns[0] == pytest.approx(6_000)
    assert (work.bound[0], work.basis[0], work.unsaturated[0]) == (B.COMPUTE, Basis.MODELLED, 0)
    assert work.efficiency[0] == pytest.approx(0.5)


def test_a_kernel_far_under_its_roof_is_unsaturated():
    work = work_of([{"name": GEMM, "ns": 100_000}], [0], [MM])
    assert work.efficiency[0] == pytest.approx(0.2)
    assert work.unsaturated[0] == 1


def test_a_skinny_product_is_bound_by_memory():
    thin = ("aten::mm", [[1, 4096], [4096, 4096]], ["c10::BFloat16"] * 2, -1)
    work = work_of([{"name": GEMM, "ns": 40_000}], [0], [thin])
    assert work.bound[0] == B.MEMORY
    assert work.efficiency[0] == pytest.approx(2 * 4096 * 4098 / 1e12 / 40e-6, rel=1e-3)


def test_tiny_work_is_bound_by_overhead_and_has_no_efficiency():
    small = ("aten::mm", [[8, 8], [8, 8]], ["c10::BFloat16"] * 2, -1)
    work = work_of([{"name": GEMM, "ns": 3_000}], [0], [small])
    assert work.bound[0] == B.OVERHEAD
    assert np.isnan(work.efficiency[0])
    assert work.unsaturated[0] == -1


@pytest.mark.parametrize(
    "reduce",
    [
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16, float, __nv_bfloat16, false>(T4)",
        "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_split_k_kernel__5x_cublas",
    ],
)
def test_kernels_of_one_call_share_its_work_and_a_reduction_has_its_own(reduce):
    calls = [("aten::mm", [[1000, 1000], [1000, 1000]], ["c10::BFloat16"] * 2, -1)]
    work = work_of(
        [{"name": GEMM, "ns": 30_000}, {"name": GEMM, "ns": 10_000}, {"name": reduce, "ns": 9_000}],
        [0, 0, 0],
        calls,
    )
    assert work.flop[:2].tolist() == [1.5e9, 0.5e9]
    assert work.bound[2] == B.MEMORY
    assert work.dram_bytes[2] > 0


def test_the_innermost_operator_with_a_formula_counts():
    calls = [
        ("aten::linear", [[1000, 1000], [1000, 1000]], ["c10::BFloat16"] * 2, -1),
        ("aten::mm", [[1000, 1000], [1000, 1000]], ["c10::BFloat16"] * 2, 0),
        ("aten::something", [], [], 1),
    ]
    assert work_of([{"name": GEMM, "ns": 40_000}], [2], calls).flop[0] == 2e9


def test_a_kernel_that_its_operator_does_not_explain_is_not_given_the_work_of_a_product():
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
    work = work_of([{"name": fill, "ns": 3_000}, {"name": GEMM, "ns": 40_000}], [0, 0], [MM])
    assert work.flop[1] == 2e9
    assert not work.flop[0] > 1e6


def test_a_parent_loop_ends():
    calls = [("aten::a", [], [], 1), ("aten::b", [], [], 0)]
    assert work_of([{"name": GEMM, "ns": 40_000}], [0], calls).bound[0] == B.COMPUTE


def test_without_shapes_the_family_decides_and_efficiency_is_null():
    gemv = "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(T11)"
    norm = "void at::native::vectorized_layer_norm_kernel<float, float, false>(int, float)"
    work = work_of([{"name": n, "ns": 50_000} for n in (GEMM, gemv, norm, NCCL, "my_own_kernel")])
    assert work.bound.tolist() == [B.COMPUTE, B.MEMORY, B.MEMORY, B.COMMUNICATION, B.UNKNOWN]
    assert work.basis.tolist() == [Basis.INFERRED] * 4 + [Basis.UNKNOWN]
    assert np.isnan(work.efficiency).all()
    assert (work.unsaturated == -1).all()


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("nvjet_sm90_hsh_64x512_64x2_1x2_h_bz_coopB_NNT", B.MEMORY),
        ("nvjet_sm90_tst_128x64_64x8_1x2_h_bz_NNT", B.MEMORY),
        ("nvjet_sm90_hss_64x64_64x13_1x1_h_bz_TNT", B.MEMORY),
        ("nvjet_sm90_tst_192x192_64x3_2x1_v_bz_coopB_NNN", B.COMPUTE),
        ("nvjet_sm90_tst_72x128_64x3_2x1_v_bz_coopB_NNN", B.COMPUTE),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_nt_n_tilesize32x64x8_stage3_warpsize1x2x1_ffma_aligna4",
            B.COMPUTE,
        ),
        ("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", B.COMPUTE),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_16x128x128_4x1x1", B.MEMORY),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1", B.COMPUTE),
        ("conv2d_c1_k1_nhwc_specialized", B.COMPUTE),
        ("void wgrad2d_shmem_tiling<float>(int)", B.COMPUTE),
        ("void winograd_nonfused::winogradWgradData4x4<float, float>(int)", B.MEMORY),
        ("void winograd_nonfused::winogradForwardFilter4x4<float, float>(int)", B.MEMORY),
    ],
)
def test_without_shapes_the_tile_and_the_kind_decide_the_side_of_a_product(name, side):
    assert work_of([{"name": name, "ns": 50_000}]).bound.tolist() == [side]


FLASH_TRAITS = "Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::half_t>"
CUTLASS = "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm_bf16_64x128_64x4_nt_align8>(T1::Params)"


@pytest.mark.parametrize(
    ("name", "grid", "side"),
    [
        (f"void flash_fwd_kernel<{FLASH_TRAITS}>(int)", (1, 512, 12), B.MEMORY),
        ("sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize64x64x16_stage4_tensor16x8x16_kernel", (1, 1, 9), B.COMPUTE),
        (f"void flash_fwd_kernel<{FLASH_TRAITS}>(int)", (2, 512, 12), B.COMPUTE),
        (f"void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<{FLASH_TRAITS}>(int)", (1, 16, 10), B.MEMORY),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1", (1, 64, 64), B.COMPUTE),
        (CUTLASS, (2, 1, 66), B.MEMORY),  # a result of 128 x 128: at most 64 FLOP a byte
        (CUTLASS, (2, 2, 66), B.COMPUTE),
        (CUTLASS, (-1, -1, -1), B.COMPUTE),
    ],
)  # fmt: skip
def test_without_shapes_the_grid_shows_products_with_little_arithmetic(name, grid, side):
    columns = dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True))
    assert work_of([{"name": name, "ns": 50_000, **columns}]).bound.tolist() == [side]


def test_shapes_have_the_last_word_over_the_grid():
    large = ("aten::mm", [[8192, 8192], [8192, 8192]], ["c10::BFloat16"] * 2, -1)
    one_tile = {"name": CUTLASS, "ns": 12_000_000, "grid_x": 1, "grid_y": 1, "grid_z": 4}
    work = work_of([one_tile], [0], [large])
    assert (work.bound[0], work.basis[0]) == (B.COMPUTE, Basis.MODELLED)


GRADIENT = (
    "aten::convolution_backward", [[64, 64, 112, 112], [64, 3, 224, 224], [64, 3, 7, 7]], ["c10::Half"] * 3, -1,
)  # fmt: skip
TO = "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(int)"
BACK = "void cudnn::engines_precompiled::nhwcToNchwKernel<__half, __half, float, true, false, (cudnnKernelDataType_t)0>(int)"


def conversion(name, grid, ns=140_000):
    columns = dict(zip(("grid_x", "grid_y", "grid_z"), grid, strict=True))
    return work_of([{"name": name, "ns": ns, "block_x": 256, **columns}], [0], [GRADIENT], CARD_OF_4_TB)


CARD_OF_4_TB = dataclasses.replace(CARD, bandwidth_bytes_per_s=4e12)


def test_the_grid_tells_which_image_a_conversion_between_layouts_turns():
    image, wide, result = 2 * 64 * 3 * 224**2, 2 * 64 * 8 * 224**2, 2 * 64 * 64 * 112**2
    x, dy = (1568, 1, 64), (392, 2, 64)
    # pixels of three channels are written in halves of sectors, which are read first
    assert conversion(TO, x).dram_bytes[0] == image + 2 * wide
    assert conversion(BACK, x).dram_bytes[0] == image + wide
    assert conversion(TO, dy).dram_bytes[0] == 2 * result


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        (TO, (1567, 1, 64)),
        (BACK, (392, 2, 64)),
    ],  # no image has this grid; the result's gradient is not brought back
)
def test_a_conversion_of_no_known_image_is_known_by_its_name_only(name, grid):
    unknown = conversion(name, grid)
    assert np.isnan(unknown.dram_bytes[0])
    assert (unknown.bound[0], unknown.basis[0]) == (B.MEMORY, Basis.INFERRED)


def test_two_images_with_one_grid_leave_a_conversion_unknown():
    same = (
        "aten::convolution_backward",
        [[64, 32, 96, 96], [64, 3, 96, 96], [32, 3, 3, 3]],
        ["c10::Half"] * 3,
        -1,
    )
    grid = {"grid_x": 288, "grid_y": 1, "grid_z": 64}
    to, back = ({"name": name, "ns": 90_000, **grid} for name in (TO, BACK))
    found = work_of([to, back], [0, 0], [same], CARD_OF_4_TB)
    assert np.isnan(found.dram_bytes[0])
    assert found.dram_bytes[1] == 2 * 64 * 96 * 96 * (3 + 8)


def test_each_conversion_of_a_convolution_counts_by_itself():
    twice = [{"name": TO, "ns": 140_000, "grid_x": 392, "grid_y": 2, "grid_z": 64}] * 2
    found = work_of(twice, [0, 0], [GRADIENT], CARD_OF_4_TB)
    assert found.dram_bytes.tolist() == [2 * 2 * 64 * 64 * 112**2] * 2


def test_without_shapes_few_blocks_for_a_short_time_are_overhead():
    work = work_of([{"name": GEMM, "ns": 4_000, "grid_x": 4}, {"name": GEMM, "ns": 60_000, "grid_x": 4}])
    assert work.bound.tolist() == [B.OVERHEAD, B.COMPUTE]


def test_a_pointwise_kernel_tells_its_bytes_by_its_grid():
    work = work_of([{"name": COPY, "ns": 100_000, "grid_x": 10_000, "block_x": 128}])
    assert work.dram_bytes[0] == pytest.approx(10_000 * 128 * 8 * 6)
    assert (work.bound[0], work.basis[0]) == (B.MEMORY, Basis.INFERRED)


def test_an_estimate_that_the_memory_could_not_move_is_dropped():
    work = work_of([{"name": COPY, "ns": 5_000, "grid_x": 10_000, "block_x": 128}])
    assert np.isnan(work.dram_bytes[0])
    assert work.bound[0] == B.MEMORY


def test_copies_are_bound_by_their_kind():
    def copy(kind, source=-1, target=-1):
        return {"name": "Memcpy", "ns": 20_000, "kind": OperationKind.COPY, "copy_kind": kind, "bytes": 10**6,
                "source_device": source, "target_device": target}  # fmt: skip

    work = work_of(
        [copy(CopyKind.HTOD), copy(CopyKind.DTOH), copy(CopyKind.PTOP), copy(CopyKind.DTOD), copy(CopyKind.DTOD, 0, 1),
         copy(CopyKind.ATOA), copy(CopyKind.MANAGED_HTOD), copy(CopyKind.UNKNOWN),
         {"name": "Memset", "ns": 20_000, "kind": OperationKind.MEMSET, "bytes": 10**7}, {"name": "Graph", "ns": 9_000, "kind": OperationKind.GRAPH}]
    )  # fmt: skip
    assert [B(b).name for b in work.bound] == [
        "TRANSFER", "TRANSFER", "COMMUNICATION", "MEMORY", "COMMUNICATION", "MEMORY", "TRANSFER", "UNKNOWN", "MEMORY", "UNKNOWN",
    ]  # fmt: skip
    assert work.dram_bytes[3] == pytest.approx(2e6)
    assert work.efficiency[8] == pytest.approx(0.5)


def test_an_unknown_card_gives_sides_but_no_numbers():
    trace = trace_of([{"name": GEMM, "ns": 40_000}, {"name": COPY, "ns": 40_000}], [MM])
    work = bound_operations(trace, np.array([0, -1]), np.array([-1]), [None])
    assert work.bound.tolist() == [B.COMPUTE, B.MEMORY]
    assert np.isnan(work.efficiency).all()
    assert work.flop[0] == 2e9


def test_metric_samples_inside_a_kernel_win_over_the_model():
    metrics = {
        "DRAM Read Bandwidth [Throughput %]": 50.0,
        "DRAM Write Bandwidth [Throughput %]": 20.0,
        "Tensor Active [Throughput %]": 10.0,
    }
    samples = [(t * 1000, name, value) for t in range(40) for name, value in metrics.items()]
    work = work_of([{"name": GEMM, "ns": 40_000}], [0], [MM], samples=samples)
    assert (work.bound[0], work.basis[0]) == (B.MEMORY, Basis.MEASURED)
    assert work.efficiency[0] == pytest.approx(0.7)
    assert work.dram_bytes[0] == pytest.approx(0.7 * 40e-6 * 1e12)


def test_samples_during_overlapping_kernels_say_nothing_of_either():
    samples = [(t * 1000, "DRAM Read Bandwidth [Throughput %]", 50.0) for t in range(80)]
    trace = trace_of([{"name": GEMM, "ns": 40_000}, {"name": COPY, "ns": 40_000}], samples=samples)
    overlapping = dataclasses.replace(trace.operations, start_ns=np.zeros(2, np.int64))
    work = bound_operations(
        dataclasses.replace(trace, operations=overlapping), np.array([-1, -1]), np.zeros(0, np.int64), [CARD]
    )
    assert Basis.MEASURED not in work.basis


def test_nothing_is_bounded_in_an_empty_trace():
    trace = Trace(Source("x", "nsys", "made by hand"), [])
    assert len(bound_operations(trace, np.zeros(0, np.int64), np.zeros(0, np.int64), []).bound) == 0


def test_the_order_of_events_changes_nothing():
    trace = read("kineto", "convnet_fp16_channels_last")
    order = np.random.default_rng(0).permutation(len(trace.operations))
    straight, mixed = (
        bound(trace),
        bound(dataclasses.replace(trace, operations=trace.operations.take(order)), cards(trace)),
    )
    for column in ("bound", "basis", "unsaturated"):
        assert (getattr(straight, column)[order] == getattr(mixed, column)).all()
    for column in ("flop", "dram_bytes", "efficiency"):
        assert np.allclose(getattr(straight, column)[order], getattr(mixed, column), equal_nan=True)


def test_a_kernel_kept_busy_by_its_instructions_is_not_unsaturated():
    strided = (
        "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"
        "(at::TensorIteratorBase&)::{lambda(float)#1}>(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"
    )
    call = ("aten::copy_", [[1000, 1000], [1000, 1000], []], ["float", "float", "Scalar"], -1)
    quick, slow = (work_of([{"name": strided, "ns": ns}], [0], [call]) for ns in (25_000, 400_000))
    assert quick.efficiency[0] == pytest.approx(0.32)
    assert (quick.unsaturated[0], slow.unsaturated[0]) == (0, 1)


def test_results_that_stay_in_the_cache_are_not_dram_traffic():
    card = dataclasses.replace(CARD, l2_bytes=1e8)
    fill = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)"
    small, large = (("aten::fill_", [[n], []], ["float", "Scalar"], -1) for n in (10**6, 10**8))
    work = work_of(
        [{"name": fill, "ns": 10_000}, {"name": fill, "ns": 10**6}], [0, 1], [small, large], gpu=card
    )
    assert work.dram_bytes[0] == 0
    assert work.dram_bytes[1] == pytest.approx(4e8 - 0.43e8)


def test_a_near_tie_of_a_product_is_compute():
    call = ("aten::mm", [[1000, 198], [198, 1000]], ["c10::BFloat16"] * 2, -1)
    work = work_of(
        [{"name": GEMM, "ns": 10_000}],
        [0],
        [call],
        gpu=dataclasses.replace(CARD, bandwidth_bytes_per_s=6.6e11),
    )
    assert work.memory_ns[0] > work.compute_ns[0] > 0.91 * work.memory_ns[0]
    assert work.bound[0] == B.COMPUTE
    assert work.efficiency[0] == pytest.approx(work.compute_ns[0] / 10_000)


def test_an_old_kernel_has_a_lower_roof_on_hopper():
    old = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_nn"
    work = work_of([{"name": GEMM, "ns": 40_000}, {"name": old, "ns": 40_000}], [0, 0], [MM, MM])
    assert work.peak_flops.tolist() == [1e14, pytest.approx(0.63e14)]


FPROP = (
    "sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1"
)
X, W = [8, 64, 32, 32], [128, 64, 3, 3]


def conv(*sizes):
    return ("aten::cudnn_convolution", list(sizes), None, -1)


def gradient(*sizes):
    return ("aten::convolution_backward", list(sizes), None, -1)


def test_without_arguments_a_gradient_tells_the_size_of_the_convolution_s_result():
    calls = [conv(X, W), gradient([8, 128, 16, 16], X, W)]
    work = work_of([{"name": FPROP, "ns": 90_000}], [0], calls)
    assert work.flop[0] == 2 * (8 * 128 * 16 * 16) * 64 * 9
    assert work.basis[0] == Basis.MODELLED


def test_two_strides_of_one_input_and_weight_leave_the_result_unknown():
    calls = [conv(X, W), gradient([8, 128, 16, 16], X, W), gradient([8, 128, 32, 32], X, W)]
    work = work_of([{"name": FPROP, "ns": 90_000}], [0], calls)
    assert np.isnan(work.flop[0])
    assert work.bound[0] == B.COMPUTE


def test_without_arguments_or_gradients_the_result_is_unknown():
    assert np.isnan(work_of([{"name": FPROP, "ns": 90_000}], [0], [conv(X, W)]).flop[0])


def test_a_depthwise_kernel_with_more_instructions_than_bytes_is_compute():
    depthwise = [[8, 64, 32, 32], [64, 1, 3, 3]]
    calls = [conv(*depthwise), gradient([8, 64, 32, 32], *depthwise)]
    direct = work_of([{"name": "conv2d_c1_k1_nhwc_specialized", "ns": 90_000}], [0], calls)
    assert direct.bound[0] == B.COMPUTE
    assert np.isnan(direct.efficiency[0])
    assert direct.dram_bytes[0] == 2 * (2 * 8 * 64 * 32 * 32 + 64 * 9)  # 16 bits, though no one wrote a type


@pytest.mark.parametrize(("lean", "side"), [(False, B.COMPUTE), (True, B.MEMORY)])
def test_a_product_that_cannot_be_bound_by_arithmetic_is_not(lean, side):
    trace = trace_of([{"name": GEMM, "ns": 90_000}])
    none = np.full(1, -1)
    work = bound_operations(trace, none, np.empty(0, np.int64), [CARD], lean=np.array([lean]))
    assert work.bound[0] == side


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("Cijk_B_PostGSU2", OperationBound.MEMORY),
        (
            "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128>",
            OperationBound.MEMORY,
        ),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", OperationBound.MEMORY),
        ("_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x64x1_swiglu", OperationBound.COMPUTE),
    ],
)
def test_a_name_alone_tells_a_product_that_only_reads(name, side):
    (kernel,) = classify([name])
    assert infer_side(kernel) is side
