"""Bytes of optimizer steps: foreach operators and fused ones, from their lists of tensors.

Per parameter and pass (fp32): SGD 12 B, with momentum 20 B, Adam and AdamW 28 B (p, g, m, v read; p, m, v
written), AMSGrad 36 B; a foreach operator reads the lists that it names and writes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes

__all__ = ["optimizer_model"]

_READ_ONLY = frozenset({"_foreach_norm", "_foreach_max"})
_FUSED = re.compile(r"_fused_(adamw?|sgd|adagrad)_?$")


def optimizer_model(name: str) -> Callable[[Call, KernelClass], Work | None] | None:
    """The model of a foreach or fused optimizer operator; None for any other name."""
    if _FUSED.match(name):
        return _fused
    if name.startswith("_foreach_") or name == "_amp_foreach_non_finite_check_and_unscale_":
        return _foreach
    return None


def _lists(call: Call) -> list[tuple[Tensor, ...]]:
    return [item for item in call.inputs if isinstance(item, tuple) and item]


def _size(tensors: tuple[Tensor, ...], kernel: KernelClass) -> float:
    return sum(t.numel * element_bytes(t.dtype or kernel.dtype) for t in tensors)


def _fused(call: Call, kernel: KernelClass) -> Work | None:
    """``_fused_adam_(params, grads, exp_avgs, ...)``: gradients are only read, the scalars' list is small."""
    lists = _lists(call)
    if len(lists) < 2 or kernel.family is not Family.OPTIMIZER:
        return None
    sizes = [_size(tensors, kernel) for tensors in lists]
    elements = float(sum(t.numel for t in lists[0]))
    return Work(12.0 * elements, sum(sizes), sum(sizes) - sizes[1], dtype="fp32")


def _foreach(call: Call, kernel: KernelClass) -> Work | None:
    lists = _lists(call)
    if not lists or kernel.family is not Family.OPTIMIZER:
        return None
    sizes = [_size(tensors, kernel) for tensors in lists]
    if "cleanup" in kernel.function:
        return Work(role="cleanup", dtype="fp32")
    written = 0.0 if call.name in _READ_ONLY else sizes[0]
    read = 0.0 if call.name in ("_foreach_zero_",) else sum(sizes)
    if call.name == "_foreach_copy_":
        read = sum(sizes[1:])
    if call.name == "_foreach_addcmul_":
        read = sum(sizes[:2])  # every optimizer of PyTorch passes its gradients as both factors
    return Work(2.0 * sum(t.numel for t in lists[0]), read, written, dtype="fp32")
