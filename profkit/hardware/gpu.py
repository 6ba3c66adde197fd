"""A GPU and what it can reach: dense rates by data type and unit, bandwidth, fixed costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

__all__ = ["DTYPE_BYTES", "OVERHEAD_NS", "QUEUE_NS", "TENSOR", "TENSOR_HALF", "VECTOR", "Gpu"]

TENSOR = "tensor"
"""Tensor Cores, accumulating in fp32 (int32, fp64)."""
TENSOR_HALF = "tensor_fp16acc"
"""Tensor Cores accumulating in fp16: twice as fast on consumer GPUs."""
VECTOR = "vector"
"""Ordinary (SIMT) arithmetic."""

OVERHEAD_NS = 930.0
"""`To`: the median time that CUPTI shows for a kernel without work on an H200 (the shortest: 740 ns)."""
QUEUE_NS = 3_000.0
"""`Q`: what a device may need from the end of one queued kernel to the start of the next."""

DTYPE_BYTES: Mapping[str, float] = MappingProxyType(
    {
        "fp64": 8, "int64": 8, "complex64": 8, "complex128": 16,
        "fp32": 4, "tf32": 4, "int32": 4, "uint32": 4,
        "fp16": 2, "bf16": 2, "int16": 2, "uint16": 2,
        "fp8": 1, "int8": 1, "uint8": 1, "bool": 1,
        "fp4": 0.5, "int4": 0.5,
    }
)  # fmt: skip
"""Bytes of one element in memory (tf32 lives in memory as fp32)."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """What a GPU can reach at best; every rate is dense, without sparsity."""

    name: str
    architecture: str = ""
    compute_capability: str = ""
    sm_count: int | None = None
    memory_bytes: float | None = None
    bandwidth_bytes_per_s: float | None = None
    l2_bytes: float | None = None
    peaks: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """FLOP/s (or integer operations) by (data type, unit)."""
    overhead_ns: float = OVERHEAD_NS
    """`To`: the fixed time that any kernel takes in the recorder's clock."""
    queue_ns: float = QUEUE_NS
    """`Q`: a gap up to this length before a kernel that was launched in time is the queue's own latency."""
    source: str = ""
    """Where the rates come from, for a person to check."""

    def peak(self, dtype: str, unit: str) -> float | None:
        """FLOP/s of ``unit`` for ``dtype``, or None when the GPU has no such rate.

        A Tensor Core that accumulates in fp16 runs at the ordinary rate where the table has no other.
        """
        found = self.peaks.get((dtype, unit))
        if found is None and unit == TENSOR_HALF:
            found = self.peaks.get((dtype, TENSOR))
        if found is None and unit == VECTOR and dtype in ("bf16", "fp16", "fp8", "int8", "int32", "bool"):
            found = self.peaks.get(("fp32", VECTOR))  # computed in fp32 lanes
        return found

    @property
    def warp_instructions_per_s(self) -> float | None:
        """Instructions that all multiprocessors can issue: 4 a cycle each; None where lanes are not known.

        The clock is that of the fp32 peak: 2 FLOP a lane and cycle, 64 lanes up to Volta, Turing and GA100, else 128.
        """
        rate = self.peaks.get(("fp32", VECTOR))
        if rate is None or not self.compute_capability.replace(".", "").isdigit():
            return None
        lanes = 64 if self.compute_capability in ("6.0", "7.0", "7.5", "8.0") else 128
        return rate / (2 * lanes) * 4

    @property
    def exponentials_per_s(self) -> float | None:
        """Exponentials of all special function units: 16 a cycle and multiprocessor (CUDA Programming Guide)."""
        issued = self.warp_instructions_per_s
        return None if issued is None else issued * 4

    def best_peaks(self) -> dict[str, float]:
        """FLOP/s by data type, each on the fastest unit that training uses (fp32 accumulation)."""
        best: dict[str, float] = {}
        for (dtype, unit), rate in self.peaks.items():
            if unit != TENSOR_HALF:
                best[dtype] = max(rate, best.get(dtype, 0.0))
        return best

    def scaled(self, compute: float, memory: float, name: str) -> Gpu:
        """The GPU with its rates and sizes cut to shares of one: a MIG slice, or a part with fewer cores."""
        return replace(
            self,
            name=name,
            sm_count=None if self.sm_count is None else round(self.sm_count * compute),
            peaks={key: rate * compute for key, rate in self.peaks.items()},
            memory_bytes=None if self.memory_bytes is None else self.memory_bytes * memory,
            bandwidth_bytes_per_s=None
            if self.bandwidth_bytes_per_s is None
            else self.bandwidth_bytes_per_s * memory,
            l2_bytes=None if self.l2_bytes is None else self.l2_bytes * memory,
        )
