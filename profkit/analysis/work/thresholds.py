"""Every threshold of the bound model, with the study that it comes from (reports/calibration)."""

from __future__ import annotations

__all__ = ["OVERHEAD_FACTOR", "RESIDENT_READ", "RESIDENT_WRITE", "UNSATURATED_BELOW"]

UNSATURATED_BELOW = 0.4
"""Efficiency under which a kernel, not the card, is called slow."""

OVERHEAD_FACTOR = 2.0
"""Without known work, a kernel up to this many `To` long is bound by overhead."""

RESIDENT_WRITE = 0.40
"""Share of the L2 cache that holds output not yet written to DRAM when a kernel ends."""

RESIDENT_READ = 0.0
"""Share of the L2 cache that may serve inputs which the kernel before wrote."""
