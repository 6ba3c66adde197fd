"""Steps in which rules about number formats, compiling and updating fire, and near misses."""

import json
from contextlib import contextmanager

from profkit.model import RangeKind
from tests.advice.made_steps import (
    ADD,
    BF16_GEMM,
    FILL,
    FUSED_ADAM,
    GELU,
    GEMM_SHAPES,
    MULTI_TENSOR,
    SGEMM,
    US,
)

ROWS = [[8192, 4096]]
GIB = 1 << 30


def products(step, number, name=SGEMM, us=6000, operators=("aten::addmm",)):
    step.launch(name, us, operators=operators, shapes=GEMM_SHAPES)
    step.launch(name, us, operators=operators, shapes=GEMM_SHAPES)


def tf32_products(step, number):
    products(step, number, "cutlass_80_tensorop_s1688gemm_128x128_16x4_nn_align4", 1000)


def bf16_products(step, number):
    products(step, number, BF16_GEMM, 400)


def small_products(step, number):
    # In fp32, but the host is the limit.
    for _ in range(20):
        step.launch(SGEMM, 3, host=200, operators=("aten::addmm",), shapes=[[64], [32, 64], [64, 64]])


def scaled(step, number):
    bf16_products(step, number)
    step.launch(MULTI_TENSOR, 100, operators=("aten::_amp_foreach_non_finite_check_and_unscale_",))


def fp64(step, number):
    step.launch("ampere_dgemm_64x64_nn", 3000, operators=("aten::mm",), shapes=[[2048, 2048], [2048, 2048]])


def misaligned(step, number, align="align1"):
    step.launch(
        f"cutlass_80_tensorop_bf16_s16816gemm_bf16_128x128_32x4_nn_{align}",
        3000,
        operators=("aten::mm",),
        shapes=[[4096, 1024], [1024, 8191]],
    )


def aligned(step, number):
    misaligned(step, number, "align16")


def chain(step, number):
    for _ in range(12):
        step.launch(ADD, 120, shapes=[[8192, 4096], [8192, 4096]])


def few_pointwise(step, number):
    products(step, number)
    step.launch(GELU, 20, operators=("aten::gelu",), shapes=ROWS)


def compiled_chain(step, number):
    for _ in range(12):
        step.launch(
            "triton_poi_fused_add_gelu_0", 120, operators=("triton_poi_fused_add_gelu_0", "CompiledFunction")
        )


def many_small(step, number, waits=False, extra=0):
    for index in range(60 + extra):
        step.launch(ADD, 4, host=60, shapes=[[64, 64], [64, 64]])
        if waits and index % 10 == 5:
            step.wait()


def many_small_with_waits(step, number):
    many_small(step, number, waits=True)


def many_small_of_changing_number(step, number):
    many_small(step, number, extra=8 * (number % 3))


def replayed(step, number):
    for node in range(30):
        step.launch(ADD, 2, host=60, shapes=[[64, 64]], graph_node=node + 1)


def broken(step, number, regions=4):
    for region in range(regions):
        with step.within(f"Torch-Compiled Region: {region}/0"):
            step.launch(
                "triton_poi_fused_add_0",
                20,
                host=80,
                operators=("triton_poi_fused_add_0", "CompiledFunction"),
            )
        for _ in range(4):
            step.launch(ADD, 30, host=80, shapes=[[2048, 4096], [2048, 4096]])


def whole_graph(step, number):
    broken(step, number, regions=1)


def recompiling(step, number, version=None):
    version = number if version is None else version
    with step.within(f"Torch-Compiled Region: 0/{version}"):
        if version:
            with step.within("compile_fx (dynamo_timed)"):
                step.idle(4000)
        step.launch("triton_poi_fused_add_0", 200, host=80, operators=("CompiledFunction",))


def compiled_before(step, number):
    with step.within("Torch-Compiled Region: 0/0"):
        step.launch("triton_poi_fused_add_0", 200, host=80, operators=("CompiledFunction",))


def python_loop(step, number, turns=64):
    for _ in range(turns):
        step.launch(ADD, 3, host=50, operators=("aten::copy_", "aten::select"), shapes=[[128]])


def short_loop(step, number):
    python_loop(step, number, turns=8)
    bf16_products(step, number)


def adam(step, number, kernel=MULTI_TENSOR, kernels=12):
    bf16_products(step, number)
    with step.within("Optimizer.step#Adam.step"):
        for index in range(kernels):
            operator = "aten::_foreach_addcdiv_" if index == 0 else f"aten::_foreach_op{index}_"
            step.launch(kernel, 150, operators=(operator,), shapes=[[[8192, 4096]]])


def fused_adam(step, number):
    adam(step, number, FUSED_ADAM, 1)


def zeroed(step, number):
    bf16_products(step, number)
    step.backward(BF16_GEMM, 400, shapes=GEMM_SHAPES)
    step.backward(
        ADD,
        60,
        "torch::autograd::AccumulateGrad",
        ("aten::add_", "torch::autograd::AccumulateGrad"),
        shapes=ROWS,
    )
    with step.within("Optimizer.zero_grad#Adam.zero_grad"):
        step.launch(FILL, 80, operators=("aten::fill_", "aten::zero_"), shapes=ROWS)


def zeros_elsewhere(step, number):
    bf16_products(step, number)
    step.launch(FILL, 80, operators=("aten::fill_", "aten::zeros"), shapes=ROWS)


@contextmanager
def typed(step, name, *inputs):
    """An operator around what is launched inside; inputs are pairs of a type as torch writes it and a shape."""
    start = step.host
    step.host += 2
    yield
    step.host += 2
    types, shapes = (step.builder.text(json.dumps([each[at] for each in inputs])) for at in (0, 1))
    step.builder.range(start * US, step.host * US, name, kind=RangeKind.OPERATOR, dtypes=types, shapes=shapes)


def under_autocast(step, number, mask="float", us=200):
    """A product that autocast casts, then scores and a mask: an fp32 one makes them fp32."""
    rows, weight, scores = [4096, 4096], [8192, 4096], [8, 12, 1024, 1024]
    with typed(step, "aten::linear", ("float", rows), ("float", weight)):
        for shape in (weight, rows):
            with (
                typed(step, "aten::to", ("float", shape)),
                typed(step, "aten::_to_copy", ("float", shape)),
                typed(step, "aten::copy_", ("c10::BFloat16", shape), ("float", shape)),
            ):
                step.launch(ADD, 20, operators=())
        with typed(step, "aten::linear", ("c10::BFloat16", rows), ("c10::BFloat16", weight)):
            step.launch(BF16_GEMM, 400, operators=())
    with typed(step, "aten::add", ("c10::BFloat16", scores), (mask, [8, 1, 1024, 1024])):
        step.launch(ADD, us, operators=())


def under_autocast_with_a_mask_of_16_bits(step, number):
    under_autocast(step, number, mask="c10::BFloat16")
