"""What holds the host up: launches that a CUDA graph takes away, waits, allocation, blocking launches."""

from __future__ import annotations

import numpy as np

from profkit.analysis.whatif.draft import Draft

__all__ = ["capture", "keep_memory", "lift_waits"]


def capture(draft: Draft) -> None:
    """The whole step as one graph: its kernels one after the other, launched at once."""
    draft.graphed = True


def lift_waits(draft: Draft) -> None:
    """The host waits for nothing; copies of results to the host stay."""
    draft.own_ns = np.where(draft.waits, np.maximum(draft.own_ns, draft.constants.lifted_ns), draft.own_ns)
    draft.waits = np.zeros_like(draft.waits)


def keep_memory(draft: Draft) -> None:
    """No allocation from the driver: the time of its calls, and the waits that they are, are gone."""
    draft.gap_ns -= draft.allocation_ns
    draft.allocation_ns = np.zeros_like(draft.allocation_ns)
