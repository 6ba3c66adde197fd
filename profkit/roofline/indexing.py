"""Bytes of embeddings, gathers, scatters, sorts and scans."""

from __future__ import annotations

import math
from collections.abc import Callable

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes
from profkit.roofline.thresholds import INSTRUCTIONS

__all__ = ["INDEXING_MODELS"]

_READING_PASSES = (
    "radixsorthistogram",
    "radixsortupsweep",
    "gathertopk",
    "computeblockdigitcounts",
    "radixfindkth",
)
_MOVING_PASSES = ("radixsortonesweep", "radixsortdownsweep", "segmentedradixsort", "mergesort")
_SEGMENT = 10
"""Rows of a gradient that PyTorch's embedding backward sums in one partial segment (NROWS_PER_THREAD)."""


def _index_bytes(tensor: Tensor) -> float:
    return tensor.numel * element_bytes(tensor.dtype or "int64")


def _embedding(call: Call, kernel: KernelClass) -> Work | None:
    """``embedding(weight, indices)`` and ``index_select(x, dim, index)``: rows in, rows out."""
    table = call.tensor(0)
    index = call.tensor(1) or call.tensor(2)
    if (
        not table
        or not index
        or not table.shape
        or kernel.family not in (Family.INDEX, Family.OTHER, Family.ELEMENTWISE)
    ):
        return None
    axis = (call.integers(1) or (0,))[0] % len(table.shape) if call.name == "index_select" else 0
    row = table.numel / max(table.shape[axis], 1) * element_bytes(table.dtype or kernel.dtype)
    distinct = min(float(index.numel), _distinct(index.numel, table.shape[axis]))
    return Work(0.0, distinct * row + _index_bytes(index), index.numel * row)


def _distinct(draws: int, of: int) -> float:
    """Distinct rows that so many random indices touch."""
    return of * -math.expm1(-draws / of) if of else 0.0


def _embedding_backward(call: Call, kernel: KernelClass) -> Work | None:
    """``embedding_dense_backward(grad, indices, rows, ...)``: sort, partial sums, sums into a dense gradient."""
    grad, index = call.tensor(0), call.tensor(1)
    rows = (call.integers(2) or (0,))[0]
    if not grad or not index or not grad.shape:
        return None
    if kernel.family is Family.SORT:
        return _sort_pass(index.numel)
    width = grad.shape[-1] * element_bytes(grad.dtype or kernel.dtype)
    distinct = _distinct(index.numel, rows) if rows > 0 else float(index.numel)
    partial = min(float(index.numel), distinct + index.numel / _SEGMENT) * grad.shape[-1] * 4.0
    if "compute_grad_weight" in kernel.function:
        return Work(
            float(grad.numel), index.numel * width + 16.0 * index.numel, partial, role="partial", dtype="fp32"
        )
    if "sum_and_scatter" in kernel.function:
        return Work(float(grad.numel), partial, distinct * width, role="scatter", dtype="fp32")
    if "krn_" in kernel.function or "num_of_partial" in kernel.function:
        return Work(0.0, 8.0 * distinct, 8.0 * distinct, whole=True)
    if kernel.family is Family.INDEX:
        return Work(float(grad.numel), index.numel * (width + 8.0), distinct * width, dtype="fp32")
    return None


def _gather(call: Call, kernel: KernelClass) -> Work | None:
    """``gather(x, dim, index)``; an index that is expanded over the other dimensions takes whole rows."""
    x, index = call.tensor(0), call.tensor(2)
    axis = (call.integers(1) or (0,))[0]
    if not x or not index or not x.shape or kernel.family not in (Family.INDEX, Family.ELEMENTWISE):
        return None
    size = element_bytes(x.dtype or kernel.dtype)
    read = min(x.numel, index.numel) * size
    if index.stored < index.numel:
        along = x.shape[axis % len(x.shape)]
        read = min(_distinct(index.stored, along), float(index.stored)) * x.numel / max(along, 1) * size
    return Work(0.0, read + index.stored * element_bytes(index.dtype or "int64"), index.numel * size)


def _scatter(call: Call, kernel: KernelClass) -> Work | None:
    """``scatter_(self, dim, index, src)`` and ``scatter_add_``, ``index_add_``: the touched elements twice."""
    x, index = call.tensor(0), call.tensor(2)
    source = call.tensor(3)
    if not x or not index or kernel.family not in (Family.INDEX, Family.ELEMENTWISE):
        return None
    size = element_bytes(x.dtype or kernel.dtype)
    moved = (source.numel if source else index.numel) * size
    touched = min(moved, x.numel * size)
    again = touched if "add" in call.name or "reduce" in call.name else 0.0
    return Work(0.0, _index_bytes(index) + (moved if source else 0.0) + again, touched)


def _sort(call: Call, kernel: KernelClass) -> Work | None:
    """``sort``, ``topk`` and scans: the passes over everything; their many small helpers are not modelled."""
    x = next(iter(call.tensors()), None)
    if not x or kernel.family not in (Family.SORT, Family.REDUCE):
        return None
    keys = x.numel * element_bytes(x.dtype or kernel.dtype)
    if any(word in kernel.function for word in _READING_PASSES):
        return Work(float(x.numel), keys, 0.0, whole=True, dtype="fp32")
    if "scan" in kernel.function and "cum" in call.name:
        return Work(
            float(x.numel), keys, keys, whole=True, dtype="fp32", instructions=x.numel * INSTRUCTIONS["scan"]
        )
    if any(word in kernel.function for word in _MOVING_PASSES):
        return Work(float(x.numel), keys + 8.0 * x.numel, keys + 8.0 * x.numel, whole=True, dtype="fp32")
    return None


def _sort_pass(count: int) -> Work:
    """A pass over 64-bit keys with 64-bit values."""
    return Work(0.0, count * 16.0, count * 16.0, whole=True)


_Model = Callable[[Call, KernelClass], Work | None]
INDEXING_MODELS: dict[str, _Model] = {
    **dict.fromkeys(("embedding", "index_select"), _embedding),
    "embedding_dense_backward": _embedding_backward,
    "gather": _gather,
    **dict.fromkeys(
        ("scatter", "scatter_", "scatter_add", "scatter_add_", "index_add", "index_add_", "scatter_reduce_"),
        _scatter,
    ),
    **dict.fromkeys(("sort", "topk", "cumsum", "cumprod", "argsort", "logcumsumexp"), _sort),
}
"""By operator name without ``aten::``."""
