"""What a recording's number formats put at risk: fp16 gradients without a scaler, and bf16 that the GPU emulates."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model import Finding, Severity
from profkit.model.kernel_class import Family
from profkit.model.summing import Summed
from profkit.roofline.autocast_calls import Calls, bare
from profkit.roofline.operator_shapes import floating_input_type
from profkit.roofline.precision_map import WindowKernels
from profkit.timeline.view import TraceView

__all__ = ["PRECISION_FINDINGS", "precision_findings"]

PRECISION_FINDINGS: Final = Summed[Finding](("code",), ("count",))
_FIRST_BF16: Final = (8, 0)
"""The compute capability from which on GPUs multiply bf16: Ampere (CUDA C++ Programming Guide, compute capabilities)."""
_PRODUCTS: Final = frozenset({"mm", "bmm", "addmm", "baddbmm", "convolution_backward"})
_SCALES: Final = ("_amp_", "unscale", "non_finite", "isfinite", "isinf", "isnan")
"""In names of what scalers launch: torch's, apex's and those written by hand look for infinities."""


def precision_findings(view: TraceView) -> list[Finding]:
    """What a trace's number formats put at risk."""
    return [*_without_scaler(view), *_emulated(view)]


def _without_scaler(view: TraceView) -> list[Finding]:
    """A backward pass in fp16 and an update, and nothing that scales the loss or looks for infinities."""
    if any(word in text.lower() for text in view.trace.strings for word in _SCALES):
        return []
    calls = Calls(view)
    products = np.flatnonzero(calls.operator & calls.named(lambda n: bare(n) in _PRODUCTS))
    products = products[calls.node[products] >= 0] if len(products) else products
    backward = sum("fp16" in calls.types(row) for row in products.tolist())
    kernels = view.work.class_of_name.values()
    updates = any(text.startswith("Optimizer.step#") for text in view.trace.strings) or any(
        kernel.family is Family.OPTIMIZER for kernel in kernels
    )
    return [Finding("fp16-without-scaler", Severity.WARNING, count=backward)] if backward and updates else []


def _emulated(view: TraceView) -> list[Finding]:
    """Products that take bf16 on GPUs that have no instruction for it: their kernels may be called fp32 ones."""
    kernels, dtypes = WindowKernels.of(view), view.work.dtypes
    taken = [t for t in np.unique(kernels.types).tolist() if t >= 0 and _takes_bf16(kernels.source[t])]
    named = kernels.dtype == (dtypes.index("bf16") if "bf16" in dtypes else -2)
    chosen = kernels.matrix & (named | np.isin(kernels.types, taken))
    devices = view.trace.devices
    counts = np.bincount(view.trace.operations.device[kernels.row[chosen]], minlength=len(devices)).tolist()
    return [
        Finding("bf16-emulated", Severity.WARNING, count=count, params={"gpu": device.name})
        for device, count in zip(devices, counts, strict=True)
        if count and device.compute_capability and device.compute_capability < _FIRST_BF16
    ]


def _takes_bf16(types: str) -> bool:
    return floating_input_type(types) == "bf16"
