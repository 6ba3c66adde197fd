"""How busy a GPU's units were during kernels, whoever measured it: metric samples or hardware counters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Activity"]

_Column = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Activity:
    """Shares of peak (0..1) by row of the kernels asked for; NaN where nothing was measured."""

    dram: _Column
    tensor: _Column
    issue: _Column
