"""The step on another GPU: each operation's terms at the other's rates, its efficiency kept, the host unchanged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.hardware import TENSOR, VECTOR, Gpu
from profkit.model.work import OperationBound
from profkit.simulation.edited_step import EditedStep

__all__ = ["OtherGpu"]

Floats = NDArray[np.float64]

_STAYS = (OperationBound.COMMUNICATION, OperationBound.TRANSFER)
"""Links between GPUs and to the host are not in the table."""


@dataclass(frozen=True)
class OtherGpu:
    """A change: the step runs on this GPU.

    What takes an operation longer than its larger term (compute or memory) is taken to be a share of that term, so the
    share is kept. Launch overhead, copies from and to the host, and collectives stay as they are.
    """

    gpu: Gpu

    def __call__(self, edited: EditedStep) -> None:
        """Give every operation the time that it would take there."""
        own = edited.facts.gpu
        if own is None:
            return
        rows = edited.facts.program.row
        work = edited.facts.view.work
        before, after = (self._terms(edited, gpu) for gpu in (own, self.gpu))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = after / before
        ratio = np.where(np.isfinite(ratio) & (ratio > 0), ratio, self._usual(edited, own))
        fixed = np.minimum(edited.duration_ns, own.overhead_ns)
        moved = fixed + (edited.duration_ns - fixed) * ratio
        edited.duration_ns = np.where(np.isin(work.bound[rows], _STAYS), edited.duration_ns, moved)

    def _terms(self, edited: EditedStep, gpu: Gpu) -> Floats:
        """The larger of each operation's compute and memory time on a GPU, in ns; NaN where neither is known."""
        compute = edited.facts.flop / self._peaks(edited, gpu) * 1e9
        memory = edited.bytes / (gpu.bandwidth_bytes_per_s or np.nan) * 1e9
        larger: Floats = np.fmax(compute, memory)
        return larger

    def _peaks(self, edited: EditedStep, gpu: Gpu) -> Floats:
        """FLOP/s for the type and unit of each operation after the changes before this one; NaN is unknown."""
        facts = edited.facts
        recorded = facts.view.work.peak_flops[facts.program.row]
        found = np.full(facts.count, np.nan)
        for dtype in np.unique(edited.dtype.astype(str)).tolist():
            mine = edited.dtype == dtype
            tensor, vector = gpu.peak(dtype, TENSOR), gpu.peak(dtype, VECTOR)
            own = facts.gpu.peak(dtype, TENSOR) if facts.gpu else None
            cores = facts.matrix & ((edited.dtype != facts.dtype) | (recorded == own)) & (dtype != "fp32")
            found[mine & cores] = tensor or np.nan
            found[mine & ~cores] = vector or tensor or np.nan
        return found

    def _usual(self, edited: EditedStep, own: Gpu) -> Floats:
        """For operations of unknown work: matrix kernels by their peak, all others by the bandwidth."""
        bandwidth = (own.bandwidth_bytes_per_s or 1.0) / (self.gpu.bandwidth_bytes_per_s or 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            peaks = self._peaks(edited, own) / self._peaks(edited, self.gpu)
        found: Floats = np.where(edited.facts.matrix & np.isfinite(peaks), peaks, bandwidth)
        return found
