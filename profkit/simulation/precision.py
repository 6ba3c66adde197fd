"""Other arithmetic for matrix products: TF32, 16 bits by autocast, fp32 in place of fp64, aligned sizes."""

from __future__ import annotations

import math
import re
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import TENSOR, VECTOR
from profkit.model.kernel_class import Family
from profkit.roofline.autocast_lists import IN_FP32
from profkit.roofline.input_types import takes_fp32
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.kernel_facts import StepFacts

__all__ = [
    "align_matrices",
    "autocast",
    "misaligned",
    "misaligned_sizes",
    "simt_products",
    "to_fp32",
    "use_tf32",
    "wide_products",
]

Flags = NDArray[np.bool_]

_ACTIVATIONS: Final = (Family.ELEMENTWISE, Family.RANDOM, Family.COPY, Family.REDUCE, Family.POOLING)
_MISALIGNED: Final = re.compile(r"align[ac]?[12](?!\d)")
_ALIGNED: Final = ("bf16", "fp16", "fp8", "tf32")
"""Types of Tensor Cores, which want rows of 16 bytes: 8 elements of 16 bits, 4 of 32."""


def simt_products(facts: StepFacts) -> Flags:
    """Matrix products and convolutions of fp32 matrices on the ordinary units.

    A kernel that is called ``sgemm`` computes in fp32, and may still take 16 bits: those have no TF32.
    """
    names = facts.view.trace.names(facts.view.trace.operations.name[facts.program.row])
    return np.array(
        [
            k is not None
            and k.family in (Family.GEMM, Family.CONVOLUTION)
            and (k.dtype or "fp32") == "fp32"
            and k.unit == VECTOR
            and takes_fp32(name, taken)
            for k, taken, name in zip(facts.kernels, facts.taken, names, strict=True)
        ],
        bool,
    ) & ~facts.named("aten::dot", "aten::mv")


def wide_products(facts: StepFacts) -> Flags:
    """Matrix kernels that take 32-bit inputs, TF32 included."""
    return facts.matrix & np.isin(facts.dtype.astype(str), ("fp32", "tf32", ""))


def misaligned(facts: StepFacts) -> Flags:
    """Products on Tensor Cores whose kernel was made for rows that are not 16 bytes aligned."""
    names = facts.view.trace.names(facts.view.trace.operations.name[facts.program.row])
    marked = np.array([bool(_MISALIGNED.search(n.lower())) for n in names], bool)
    products = facts.family == Family.GEMM
    found: Flags = products & np.isin(facts.dtype.astype(str), _ALIGNED) & marked
    return found


def misaligned_sizes(facts: StepFacts, products: Flags) -> list[tuple[int, str]]:
    """The sizes of some products that are no multiple of 8, each with the product's shape, most costly first."""
    spent: dict[tuple[int, str], float] = {}
    for row in np.flatnonzero(products).tolist():
        mnk = _product_sizes(facts, row)
        shape = " x ".join(map(str, mnk))
        for size in {each for each in mnk if each % 8}:
            key = (size, f"of {shape}")
            spent[key] = spent.get(key, 0.0) + float(facts.program.duration_ns[row])
    return sorted(spent, key=lambda key: -spent[key])


def _product_sizes(facts: StepFacts, row: int) -> tuple[int, ...]:
    """Rows, columns and depth of a product; () where they are unknown."""
    work = facts.view.work
    at = int(work.product[facts.program.row[row]])
    return work.products[at] if at >= 0 else ()


def _odd_products(facts: StepFacts) -> Flags:
    """Products whose columns or depth are no multiple of 4: their kernels on Tensor Cores are those of `misaligned`.

    Rows in memory are that long, but for the gradient of a weight, whose depth is seldom odd.
    """
    sizes = map(partial(_product_sizes, facts), range(facts.count))
    return np.array([any(size % 4 for size in each[1:]) for each in sizes], bool)


def use_tf32(edited: EditedStep) -> None:
    """Products of fp32 matrices on Tensor Cores; operands stay 32 bits in memory."""
    narrowed = (edited.dtype == "fp32") & (edited.facts.dtype == "fp64") & edited.facts.matrix
    chosen = (simt_products(edited.facts) | narrowed) & edited.alive
    _retime(edited, chosen, "tf32", bytes_factor=1.0)
    edited.dtype[chosen] = "tf32"


def align_matrices(edited: EditedStep) -> None:
    """Products whose sizes Tensor Cores like."""
    for dtype in ("bf16", "fp16", "tf32"):
        chosen = misaligned(edited.facts) & (edited.dtype == dtype) & edited.alive
        _retime(edited, chosen, dtype, bytes_factor=1.0, aligned=True)


def to_fp32(edited: EditedStep) -> None:
    """Everything that was fp64 in fp32."""
    facts = edited.facts
    double = (facts.dtype == "fp64") & edited.alive
    _retime(edited, double & facts.matrix, "fp32", bytes_factor=0.5, unit=VECTOR)
    rest = double & ~facts.matrix
    floor = np.minimum(edited.duration_ns, edited.constants.start_ns)
    edited.retime(rest, floor + (edited.duration_ns - floor) * 0.5)
    edited.bytes[double] *= 0.5
    edited.dtype[double] = "fp32"


def autocast(edited: EditedStep) -> None:
    """Forward and backward in bf16: products at the rate of 16 bits, less traffic around them, casts on top.

    A model that only runs is loaded in 16 bits, and needs no casts. A GPU whose Tensor Cores have no bf16 takes fp16.
    """
    facts, constants = edited.facts, edited.constants
    gpu = facts.gpu
    narrow = "fp16" if gpu and not gpu.peak("bf16", TENSOR) and gpu.peak("fp16", TENSOR) else "bf16"
    chosen = wide_products(facts) & edited.alive & ~facts.optimizer
    sizes = facts.inputs
    _retime(edited, chosen, narrow, bytes_factor=0.5)
    wide = facts.once(_stays_wide) & facts.trains
    soft = _follows_products(edited) & ~wide & edited.alive
    floor = np.minimum(edited.duration_ns, constants.start_ns)
    edited.retime(soft, floor + (edited.duration_ns - floor) * 0.5)
    edited.bytes[chosen] *= 0.5
    edited.bytes[soft] *= 0.5
    edited.dtype[chosen] = narrow
    cast = chosen & (facts.family != Family.ATTENTION) & facts.trains
    for row in np.flatnonzero(cast).tolist():
        _add_casts(edited, row, sizes[row])


def _follows_products(edited: EditedStep) -> Flags:
    """Kernels that see 16 bits under autocast; softmax, losses, the optimizer and norms but batch norm stay in fp32."""
    facts = edited.facts
    batch_norms = facts.of_family(Family.NORM) & ~_norms_of_rows(facts)
    kinds = (facts.of_family(*_ACTIVATIONS) | batch_norms) & ~facts.optimizer & ~facts.zeroing
    return kinds & np.isin(facts.dtype.astype(str), ("fp32", "tf32", ""))


def _stays_wide(facts: StepFacts) -> Flags:
    """What follows an operator that autocast keeps in fp32, up to the next product, and what adds to a stream in fp32."""
    listed = {f"aten::{name}" for name in IN_FP32}
    kept = np.array([not listed.isdisjoint(names) for names in facts.operators], bool) | (
        facts.of_family(Family.SOFTMAX, Family.LOSS) | _norms_of_rows(facts)
    )
    found = np.zeros(facts.count, bool)
    forward, backward = np.flatnonzero(~facts.backward), np.flatnonzero(facts.backward)[::-1]
    for rows in (forward, backward):
        # The last of either kind before each.
        last = np.maximum.accumulate(np.where(kept[rows] | facts.matrix[rows], np.arange(len(rows)), -1))
        found[rows] = (last >= 0) & kept[rows][last]
    return found | _residuals(facts)


def _residuals(facts: StepFacts) -> Flags:
    """Sums of two tensors alike: with layer norms, one of them is what the layers before added up in fp32."""
    alike = np.array([len(each) > 1 and each[0] == each[1] for each in facts.inputs], bool)
    return alike & facts.innermost("aten::add", "aten::add_") & _norms_of_rows(facts).any()


def _norms_of_rows(facts: StepFacts) -> Flags:
    return facts.of_family(Family.NORM) & ~facts.named("batch_norm", "BatchNorm")


def _add_casts(edited: EditedStep, row: int, sizes: tuple[float, ...]) -> None:
    """Casts of weight and input before a forward product; of the weight's gradient after a backward one."""
    bandwidth = edited.facts.gpu.bandwidth_bytes_per_s if edited.facts.gpu else None
    rate = (bandwidth or math.inf) * edited.constants.memory / 1e9
    backward = bool(edited.facts.backward[row])
    matrices = sorted(sizes)[-2:] if len(sizes) > 1 else []
    if backward:
        # Two products for each of the forward pass: one of them makes the weight's gradient.
        elements = min(matrices) / 2 if matrices else _unknown_elements(edited, row) / 2
        launches = 1.0
    else:
        elements = sum(matrices) * 0.75 if matrices else _unknown_elements(edited, row)
        launches = 2.0 + (1.0 if len(sizes) > 2 else 0.0)
    each = 0.0 if edited.facts.in_graph[row] else edited.constants.light_launch
    host = launches * each * edited.usual_launch_ns
    edited.add(row, launches * edited.constants.start_ns + elements * 6.0 / rate, host)


def _unknown_elements(edited: EditedStep, row: int) -> float:
    """Without shapes: two thirds of what the product moves are its inputs, 4 bytes an element."""
    moved = edited.facts.bytes[row]
    return 0.0 if math.isnan(moved) else float(moved) * 2 / 3 / 4


def _retime(
    edited: EditedStep,
    chosen: Flags,
    dtype: str,
    *,
    bytes_factor: float,
    unit: str = TENSOR,
    aligned: bool = False,
) -> None:
    facts, gpu = edited.facts, edited.facts.gpu
    peak = gpu.peak(dtype, unit) if gpu else None
    if gpu is None or peak is None or not chosen.any():
        return
    share = np.where(facts.family == Family.ATTENTION, edited.constants.attention, edited.constants.matrix)
    if unit == TENSOR and not aligned:
        share = np.where(facts.once(_odd_products), edited.constants.misaligned, share)
    flop = known_flop(edited)
    compute = flop / (peak * share.astype(float)) * 1e9
    rate = (gpu.bandwidth_bytes_per_s or math.inf) * edited.constants.memory
    memory = np.nan_to_num(edited.bytes) * bytes_factor / rate * 1e9
    edited.retime(chosen, edited.constants.start_ns + np.maximum(compute, memory))


def known_flop(edited: EditedStep) -> NDArray[np.float64]:
    """FLOP of each operation; without shapes, what a matrix kernel's unit does in its time at the usual share of its peak."""
    facts = edited.facts
    peak = np.nan_to_num(facts.view.work.peak_flops[facts.program.row])
    by_time = peak * facts.program.duration_ns / 1e9 * edited.constants.matrix
    flop: NDArray[np.float64] = np.where(np.isnan(facts.flop), by_time, facts.flop)
    return flop
