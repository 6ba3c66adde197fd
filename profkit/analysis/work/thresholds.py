"""Every threshold of the bound model, with the study that it comes from (reports/calibration)."""

from __future__ import annotations

__all__ = [
    "DRIFT",
    "FEWEST_SAMPLES",
    "HELD_ON_CHIP",
    "INSTRUCTIONS_PER_ELEMENT",
    "OVERHEAD_FACTOR",
    "RASTER_LOSS",
    "RESIDENT_INPUT",
    "RESIDENT_WRITE",
    "UNSATURATED_BELOW",
]

UNSATURATED_BELOW = 0.4
"""Efficiency under which a kernel, not the card, is called slow."""

OVERHEAD_FACTOR = 2.0
"""Without known work, a kernel up to this many `To` long is bound by overhead."""

RESIDENT_WRITE = 0.43
"""Share of the L2 cache that holds output not yet written when a kernel that only writes ends."""

RESIDENT_INPUT = 0.3
"""Share of the L2 cache that an operand of a matrix product may fill without being read again."""

RASTER_LOSS = 1.45
"""Repeated reads over those of ideal square patches."""

DRIFT = 0.15
"""Share of the blocks along the slow side of a grid of tiles that read an operand for themselves."""

HELD_ON_CHIP = 1.5
"""Bytes, as a multiple of the L2 cache, that a second pass over an input finds on the chip."""

INSTRUCTIONS_PER_ELEMENT = {"strided": 40.0, "unrolled": 26.0, "cat": 96.0, "norm": 60.0}
"""Instructions for one element: of a pointwise kernel for each array that it touches; of others in all."""

FEWEST_SAMPLES = 4
"""GPU metric samples wholly inside kernels that are alike, below which they say nothing."""
