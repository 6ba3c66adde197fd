"""Kernels that are slow because of their own instructions: index arithmetic, casts, statistics.

Such a kernel stays on the memory side, but it is not the card's idle time that makes it slow: its instructions keep
the multiprocessors busy, so it is not flagged unsaturated. Counters showed the instructions an element (thresholds).
"""

from __future__ import annotations

from profkit.analysis.work.names import Family, KernelClass
from profkit.analysis.work.thresholds import INSTRUCTIONS_PER_ELEMENT
from profkit.analysis.work.work import Work
from profkit.hardware import Gpu

__all__ = ["issue_ns"]

_WARP = 32


def issue_ns(work: Work, kernel: KernelClass, gpu: Gpu | None) -> float:
    """The time in which the card could issue the kernel's instructions; 0 when nothing is known of them."""
    rate = gpu.warp_instructions_per_s if gpu else None
    if not rate or not work.elements:
        return 0.0
    return work.elements / _WARP * _instructions(kernel) / rate * 1e9


def _instructions(kernel: KernelClass) -> float:
    if kernel.style in INSTRUCTIONS_PER_ELEMENT:
        return INSTRUCTIONS_PER_ELEMENT[kernel.style] * max(len(kernel.operands), 1)
    if kernel.function.startswith("catarray"):
        return INSTRUCTIONS_PER_ELEMENT["cat"]
    return INSTRUCTIONS_PER_ELEMENT["norm"] if kernel.family is Family.NORM else 0.0
