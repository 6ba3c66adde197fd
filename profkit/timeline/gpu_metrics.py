"""GPU metric samples over the window, few enough to plot."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model.report_time import UtilisationRow
from profkit.timeline.view import TraceView

__all__ = ["utilisation_rows"]

_POINTS: Final = 400
_MOST_MHZ: Final = 1e5
"""A clock that reads more is in Hz."""
_SHOWN: Final = (
    "SM Active",
    "SMs Active",
    "SM Issue",
    "Tensor Active",
    "DRAM Read",
    "DRAM Write",
    "GR Active",
    "PCIe",
    "GPC Clock",
    "SYS Clock",
)


def utilisation_rows(view: TraceView) -> list[UtilisationRow]:
    """The mean of each throughput metric in equal parts of each device's window; parts without samples are left out.

    Devices have their numbers in the trace, and times are the trace's.
    """
    rows = []
    samples = view.trace.samples
    for device in range(len(view.windows)):
        first, last = view.window_hull(device)
        for metric in np.unique(samples.metric[samples.device == device]).tolist():
            name = view.trace.strings[metric] if metric >= 0 else ""
            if not name.startswith(_SHOWN):
                continue
            mine = (samples.device == device) & (samples.metric == metric)
            mine &= (samples.time_ns >= first) & (samples.time_ns < last) & np.isfinite(samples.value)
            if mine.any():
                shown = samples.value[mine]
                # Nsight Systems calls it MHz, and writes Hz.
                shown = shown / 1e6 if "[MHz]" in name and shown.max() > _MOST_MHZ else shown
                time, value = _resampled(samples.time_ns[mine], shown, first, last)
                rows.append(UtilisationRow(device=device, metric=name, time_ns=time, value=value))
    return rows


def _resampled(time: np.ndarray, value: np.ndarray, first: int, last: int) -> tuple[list[int], list[float]]:
    parts = min(_POINTS, len(time))
    part = ((time - first) * parts // max(last - first, 1)).astype(np.int64)
    count = np.bincount(part, minlength=parts)
    mean = np.bincount(part, weights=value, minlength=parts) / np.maximum(count, 1)
    known = np.flatnonzero(count)
    centre = first + (2 * known + 1) * (last - first) // (2 * parts)
    return centre.tolist(), [round(float(v), 2) for v in mean[known]]
