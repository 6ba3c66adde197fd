"""The peak that a kernel's arithmetic can reach: unit and data type, from its name and its operator."""

from __future__ import annotations

from profkit.hardware import TENSOR, VECTOR, Gpu
from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.thresholds import HOPPER_MMA_SYNC

__all__ = ["exponential_ns", "peak_of"]

_OTHER_HALF = {"bf16": "fp16", "fp16": "bf16"}
_SIXTEEN_BITS_OR_LESS = frozenset({"fp16", "bf16", "fp8", "fp4", "int8"})


def peak_of(kernel: KernelClass, work: Work | None, gpu: Gpu | None) -> float:
    """FLOP/s that the GPU offers for this kernel's arithmetic; NaN when unknown."""
    if gpu is None or kernel.is_collective or (kernel.family is Family.OTHER and work is None):
        return float("nan")
    if not kernel.is_matrix:
        dtype = (work.dtype if work else None) or "fp32"
        return gpu.peak(dtype if dtype == "fp64" else "fp32", VECTOR) or float("nan")
    dtype = kernel.dtype or (work.dtype if work else None) or ("bf16" if kernel.is_half_attention else "fp32")
    unit = kernel.unit or (TENSOR if dtype in _SIXTEEN_BITS_OR_LESS else VECTOR)
    rate = gpu.peak(dtype, unit)
    if rate is None and dtype in _OTHER_HALF:
        rate = gpu.peak(_OTHER_HALF[dtype], unit)
    if unit != VECTOR and gpu.compute_capability.startswith("9.") and kernel.before_hopper:
        rate = rate and rate * HOPPER_MMA_SYNC
    return (rate or gpu.peak("fp32", VECTOR) or float("nan")) / kernel.products


def exponential_ns(work: Work, gpu: Gpu | None) -> float:
    """The time that the special function units need for attention's exponentials."""
    rate = gpu.exponentials_per_s if gpu else None
    return work.exponentials / rate * 1e9 if rate else 0.0
