"""What a recording's number formats put at risk: fp16 gradients without a scaler, and bf16 that the GPU emulates."""

from __future__ import annotations

from typing import Final

import numpy as np

from profkit.model import Finding, OperationKind, Severity
from profkit.model.kernel_class import Family
from profkit.model.summing import Summed
from profkit.roofline.autocast_calls import Calls, bare
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
    """Products in bf16 on GPUs that have no instruction for them."""
    operations, work = view.trace.operations, view.work
    rows = np.flatnonzero((operations.kind == OperationKind.KERNEL) & view.counted)
    if "bf16" not in work.dtypes:
        return []
    rows = rows[work.dtype[rows] == work.dtypes.index("bf16")]
    found = []
    for at, device in enumerate(view.trace.devices):
        mine = rows[operations.device[rows] == at]
        products = [r for r in mine.tolist() if work.class_of_name[int(operations.name[r])].is_product]
        if products and device.compute_capability and device.compute_capability < _FIRST_BF16:
            found.append(
                Finding("bf16-emulated", Severity.WARNING, count=len(products), params={"gpu": device.name})
            )
    return found
