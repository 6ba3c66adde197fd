"""What an optimizer in the host's memory adds to a step: gradients go there, it updates, weights come back."""

from __future__ import annotations

import math
from typing import Final

from profkit.hardware import Gpu
from profkit.model.rows import Interval

__all__ = ["offload_ns"]

_LINKS: Final = ((9.0, 63e9), (8.0, 31.5e9), (0.0, 15.75e9))
"""Bytes a second in one direction of 16 lanes by compute capability: PCIe 5 since Hopper, 4 since Ampere, 3 before."""
_UNKNOWN: Final = 8.0
_REACHED: Final = 0.8
"""Of that, by copies from pinned memory: 50 to 55 GB/s on an H200 host (reports/calibration)."""
_PAGEABLE: Final = 0.1
"""The same from pageable memory, which is copied twice, and tensor by tensor."""
_UPDATE_BYTES: Final = 7
"""Times the weights: Adam reads weight, gradient and two states, and writes all but the gradient."""
_HOST_BYTES_PER_S: Final = (200e9, 2e9)
"""The memory of a server's socket, and one core that updates an operator at a time: 2.4 to 4.3 GB/s for three models beside an
H200, beside other processes (reports/memory)."""


def offload_ns(weights_bytes: int, gpu: Gpu | None) -> Interval:
    """From copies that overlap and a fast host to pageable copies and one core; likely is the geometric mean of the two.

    Args:
        weights_bytes: Of the parameters that are updated; their gradients are as large.
        gpu: Its generation tells the link; unknown is that of Ampere.
    """
    told = gpu.compute_capability if gpu is not None else ""
    capability = float(told) if told.replace(".", "", 1).isdecimal() else _UNKNOWN
    link = next(rate for since, rate in _LINKS if capability >= since)
    fast, slow = (_UPDATE_BYTES * weights_bytes / rate for rate in _HOST_BYTES_PER_S)
    low = weights_bytes / (_REACHED * link) + fast
    high = 2 * weights_bytes / (_PAGEABLE * link) + slow
    return Interval(low=low * 1e9, likely=math.sqrt(low * high) * 1e9, high=high * 1e9)
