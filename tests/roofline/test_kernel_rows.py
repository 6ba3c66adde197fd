"""The rows of the kernel table: what keeps kernels apart, and what is counted of each."""

import json

import pytest

from profkit.model import RangeKind
from profkit.model.report_kernels import PhaseTime
from profkit.report.assembly import summarise
from tests.builders import TraceBuilder

NVJET = "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
CUDNN = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_6_128x128x128_4x1x1_kernel0_0"
OPERATOR = RangeKind.OPERATOR


def operator(made, start, end, name, shapes=None, dtypes=None):
    texts = {"shapes": shapes, "dtypes": dtypes}
    columns = {key: made.text(json.dumps(value)) for key, value in texts.items() if value is not None}
    return made.range(start, end, name, kind=OPERATOR, **columns)


def product(made, at, rows, took=10_000):
    operator(made, at, at + 10, "aten::mm", [[rows, 1024], [1024, 4096]], ["c10::BFloat16"] * 2)
    return made.kernel(
        at + 20, at + 20 + took, launch=(at + 1, at + 2), name=NVJET,
        grid_x=132, grid_y=1, grid_z=1, block_x=384, block_y=1, block_z=1,
    )  # fmt: skip


def rows(made):
    return summarise([made.trace()]).kernels


def test_a_persistent_kernel_has_a_row_for_each_size_of_its_inputs():
    made = TraceBuilder()
    for at, size in ((0, 8192), (20_000, 256), (40_000, 8192)):
        product(made, at, size)

    found = {tuple(row.mnk): (row.count, row.shapes) for row in rows(made)}
    assert found == {
        (8192, 4096, 1024): (2, ((8192, 1024), (1024, 4096))),
        (256, 4096, 1024): (1, ((256, 1024), (1024, 4096))),
    }


def test_without_shapes_one_launch_shape_is_one_row():
    made = TraceBuilder()
    for at in (0, 20_000):
        made.kernel(at, at + 100, launch=(at, at + 1), name=NVJET)
    (row,) = rows(made)
    assert (row.count, row.shapes, row.mnk) == (2, None, None)


def test_a_list_of_tensors_keeps_no_kernels_apart():
    made = TraceBuilder()
    for at, sizes in ((0, [[4, 4], [8]]), (20_000, [[5, 5], [9]])):
        operator(made, at, at + 10, "aten::_foreach_add_", [sizes, []])
        made.kernel(at + 20, at + 120, launch=(at + 1, at + 2), name="multi_tensor_apply_kernel<float>")
    (row,) = rows(made)
    assert (row.count, row.shapes) == (2, None)


def test_launches_of_a_phase_are_counted_not_shared_by_time():
    made = TraceBuilder().range(0, 100, "forward").range(100, 200, "backward")
    for at, took in ((0, 1000), (10, 1000), (20, 1000), (100, 9000)):
        made.kernel(at * 1000, at * 1000 + took, launch=(at + 1, at + 2))
    (row,) = rows(made)
    assert row.phases == {"forward": PhaseTime(ns=3000, count=3), "backward": PhaseTime(ns=9000, count=1)}


@pytest.mark.parametrize(
    ("taken", "dtype"),
    [("c10::BFloat16", "bf16"), ("c10::Half", "fp16"), ("float", None), (None, None)],
    ids=["bf16", "truly fp16", "fp32 around a cast", "nothing recorded"],
)
def test_what_attention_took_decides_not_the_letters_of_cudnn(taken, dtype):
    made = TraceBuilder()
    shapes = [[4, 32, 2048, 128]] * 3
    operator(made, 0, 10, "aten::_scaled_dot_product_cudnn_attention", shapes, taken and [taken] * 3)
    made.kernel(20, 1_500_020, launch=(1, 2), name=CUDNN)
    (row,) = rows(made)
    assert row.dtype == dtype
    assert row.tensor_core
    assert "fp16" not in row.short_name
    # Both types of 16 bits have one rate, so the bound does not hang on which it is.
    assert row.bound == "compute"


def test_a_products_own_name_holds_against_a_wider_operator():
    made = TraceBuilder()
    operator(made, 0, 10, "aten::mm", ((8192, 1024), (1024, 4096)), ["float", "float"])
    made.kernel(20, 98_020, launch=(1, 2), name="cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4")
    (row,) = rows(made)
    assert row.dtype == "tf32"


@pytest.mark.parametrize(
    ("taken", "dtype"), [("c10::BFloat16", "bf16"), ("float", "fp32"), ("long int", None)]
)
def test_a_triton_kernel_has_the_type_of_its_operators_inputs(taken, dtype):
    made = TraceBuilder()
    operator(made, 0, 10, "mylib::fused_rope", [[4096, 4096], []], [taken, "Scalar"])
    made.kernel(20, 50_020, launch=(1, 2), name="_rope_kernel")
    (row,) = rows(made)
    assert row.dtype == dtype


def test_nodes_of_a_graph_name_the_module_they_were_captured_in():
    made = TraceBuilder()
    for at, module in ((0, "layers.0.attention.wq"), (100, "layers.1.attention.wq"), (200, None)):
        columns = {"module": made.text(module)} if module else {}
        made.kernel(at, at + 50, launch=(at, at + 1), graph_node=7, **columns)
    (row,) = rows(made)
    assert row.modules == {"layers.0.attention.wq": 1, "layers.1.attention.wq": 1}


SKINNY = "bmm_Bfloat16_Bfloat16Bfloat16_Fp32_t128x8x512u2_s6_et128x8_m128x8x16_cga1x1x1_16dp256b_BN_transOut_sm100f"
WIDE = SKINNY.replace("128x8x", "128x256x").replace("et128x8", "et128x256")
DECODE = "fmhaSm100fKernel_QkvBfloat16OBfloat16H128PagedKvCausalP64VarSeqQ8Kv128PersistentSwapsAbForGen"


@pytest.mark.parametrize(
    ("name", "bound", "dtype"),
    [
        (SKINNY, "memory", "bf16"),
        (WIDE, "compute", "bf16"),
        (DECODE, "memory", "bf16"),
        (SKINNY.replace("Bfloat16Bfloat16", "MxE2m1MxE4m3"), "memory", "fp8"),
    ],
    ids=["skinny", "wide", "decode", "unlike inputs"],
)
def test_a_skinny_tile_vetoes_compute_and_a_sum_is_no_input(name, bound, dtype):
    made = TraceBuilder().kernel(
        10,
        45_710,
        launch=(1, 2),
        name=name,
        grid_x=12,
        grid_y=128,
        grid_z=1,
        block_x=256,
        block_y=1,
        block_z=1,
    )
    (row,) = rows(made)
    assert (row.bound, row.dtype, row.tensor_core) == (bound, dtype, True)
