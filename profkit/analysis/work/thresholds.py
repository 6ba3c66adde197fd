"""Every threshold of the bound model, with the study that it comes from (reports/calibration)."""

from __future__ import annotations

__all__ = ["OVERHEAD_FACTOR", "RASTER_LOSS", "RESIDENT_INPUT", "RESIDENT_WRITE", "UNSATURATED_BELOW"]

UNSATURATED_BELOW = 0.4
"""Efficiency under which a kernel, not the card, is called slow."""

OVERHEAD_FACTOR = 2.0
"""Without known work, a kernel up to this many `To` long is bound by overhead."""

RESIDENT_WRITE = 0.43
"""Share of the L2 cache that holds output not yet written when a kernel that only writes ends."""

RESIDENT_INPUT = 0.5
"""Share of the L2 cache that the operands of a matrix product may fill without being read again."""

RASTER_LOSS = 1.3
"""Repeated reads over those of ideal square patches."""
