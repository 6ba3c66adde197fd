"""How much of the GPU's arithmetic a step uses: what its products would take at the peak of their units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profkit.model.work import Basis
from profkit.simulation.kernel_facts import StepFacts
from profkit.simulation.layouts import recomputed

__all__ = ["FlopUse", "flop_use"]

_KNOWN: Final = 0.9
"""Of the time of products, what must have known FLOP: with less, their sum would say too little by more than a tenth."""


@dataclass(frozen=True)
class FlopUse:
    """The products of a step at the peak of the unit and type that each uses, in ns."""

    model_ns: float
    """Without what backward computes a second time."""
    all_ns: float


def flop_use(facts: StepFacts) -> FlopUse | None:
    """That of a step; None where the FLOP or the peak of its products are not known."""
    view, rows, product = facts.view, facts.program.row, facts.matrix
    at_peak_ns = view.work.flop[rows] / view.work.peak_flops[rows] * 1e9
    known = product & np.isfinite(at_peak_ns) & (view.work.basis[rows] <= Basis.MODELLED)
    time = facts.program.duration_ns
    if not known.any() or time[known].sum() < _KNOWN * time[product].sum():
        return None
    return FlopUse(
        model_ns=float(at_peak_ns[known & ~recomputed(facts)].sum()), all_ns=float(at_peak_ns[known].sum())
    )
