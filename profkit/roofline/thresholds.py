"""Every threshold of the bound model, with the study that it comes from (reports/calibration)."""

from __future__ import annotations

__all__ = [
    "DRIFT",
    "FEWEST_SAMPLES",
    "HELD_ON_CHIP",
    "HOPPER_MMA_SYNC",
    "IMPOSSIBLE",
    "MOST_EFFICIENT",
    "INSTRUCTIONS",
    "OVERHEAD_FACTOR",
    "RASTER_LOSS",
    "RESIDENT_INPUT",
    "RESIDENT_WRITE",
    "STRIDED_BASE",
    "STRIDED_PER_DIMENSION",
    "TIE",
    "UNSATURATED_BELOW",
]

UNSATURATED_BELOW = 0.4
"""Efficiency under which a kernel, not the GPU, is called slow."""

OVERHEAD_FACTOR = 2.0
"""Without known work, a kernel up to this many `To` long is bound by overhead."""

RESIDENT_WRITE = 0.43
"""Share of the L2 cache that holds output not yet written when a kernel that only writes ends."""

RESIDENT_INPUT = 0.3
"""Share of the L2 cache that an operand of a matrix product may fill without being read again."""

MOST_EFFICIENT = 1.05
"""Of a GPU's peak rate: no efficiency above it is shown. Algorithms that save arithmetic (transforms, first layers)
and padding reach 3.2 by the formulas."""

IMPOSSIBLE = 5.0
"""Of a GPU's peak rate: no algorithm saves as much. The shapes, the times or the GPU's rates are wrong."""

RASTER_LOSS = 1.45
"""Repeated reads over those of ideal square patches."""

DRIFT = 0.02
"""Share of an operand that each further block of a band reads for itself, since blocks drift apart."""

HELD_ON_CHIP = 1.5
"""Bytes, as a multiple of the L2 cache, that a second pass over an input finds on the chip."""

SECTOR_BYTES = 32
"""What DRAM moves at least (CUDA C++ programming guide, device memory accesses)."""

INSTRUCTIONS = {
    "unrolled": 26.0, "cat": 96.0, "norm": 50.0, "norm row": 30_000.0, "softmax": 55.0, "reduce": 10.0, "scan": 90.0,
    "tap": 20.0, "fused": 12.0, "turned": 33.0,
}  # fmt: skip
"""Instructions for one element: of a casting pointwise kernel for each array, of a depthwise convolution for each tap,
of a fused kernel for each word of its name, of a conversion between layouts for each place of its blocks, of the others in all; and for each row of a norm."""

STRIDED_BASE = 11.0
STRIDED_PER_DIMENSION = 6.0
"""Instructions of a strided pointwise kernel for each element and array, and more for each dimension."""

FEWEST_SAMPLES = 4
"""GPU metric samples wholly inside kernels that are alike, below which they say nothing."""

HOPPER_MMA_SYNC = 0.63
"""Share of a Hopper GPU's matrix rate that kernels built for older GPUs can reach: their instruction (mma.sync)
feeds the units at this share of wgmma's rate (Luo et al. 2024, Dissecting Hopper via microbenchmarking)."""

TIE = 0.1
"""Excess of the memory time over a matrix kernel's compute time that is within the models' error."""
