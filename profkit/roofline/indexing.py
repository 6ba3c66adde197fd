"""Bytes of embeddings, gathers, scatters, sorts and scans."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from profkit.model.kernel_class import Family, KernelClass
from profkit.model.work import Work
from profkit.roofline.operator_shapes import Call, Tensor, element_bytes
from profkit.roofline.thresholds import INSTRUCTIONS, SECTOR_BYTES

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


@dataclass(frozen=True)
class _Picks:
    """Random places of a table: bytes of those that are touched, and of every further time that one is."""

    first: float
    again: float
    table: float
    """Bytes that the places are spread over."""


def _picks(x: Tensor, axis: int, count: float, unit: float, size: float) -> _Picks:
    """Places picked along an axis, in each slice of the dimensions before it.

    Args:
        x: The table.
        axis: The axis that an index is for.
        count: Picks in a slice.
        unit: Bytes of a pick; less than a sector moves a sector.
        size: Bytes of an element.
    """
    slices = max(math.prod(x.shape[:axis]), 1)
    table = x.numel * size / slices
    moved = math.ceil(unit / SECTOR_BYTES) * SECTOR_BYTES
    first = min(_distinct(count, table / moved), count) * moved
    return _Picks(slices * first, slices * (count * moved - first), table)


def _indexed(x: Tensor, axis: int, index: Tensor, size: float) -> _Picks:
    """What an index of as many dimensions as the table picks: whole rows where it is expanded over what follows."""
    along, inside = index.shape[axis], index.shape[axis + 1 :]
    steps = index.strides[axis + 1 :] if index.strides else inside
    if not any(steps):
        return _picks(x, axis, along, math.prod(inside) * size, size)
    return _picks(x, axis, along * math.prod(inside), size, size)


def _axis(call: Call, x: Tensor) -> int:
    return (call.integers(1) or (0,))[0] % len(x.shape)


def _row_picks(x: Tensor, axis: int, index: Tensor, size: float) -> _Picks:
    """What a list of places along an axis picks: all that lies behind it."""
    return _picks(x, axis, index.numel, math.prod(x.shape[axis + 1 :]) * size, size)


def _embedding(call: Call, kernel: KernelClass) -> Work | None:
    """``embedding(weight, indices)`` and ``index_select(x, dim, index)``: rows in, rows out."""
    table, index = call.tensor(0), call.tensor(1) or call.tensor(2)
    if (
        not table
        or not index
        or not table.shape
        or kernel.family not in (Family.INDEX, Family.OTHER, Family.ELEMENTWISE)
    ):
        return None
    size = element_bytes(table.dtype or kernel.dtype)
    axis = _axis(call, table) if call.name == "index_select" else 0
    picked = _row_picks(table, axis, index, size)
    written = index.numel * table.numel / max(table.shape[axis], 1) * size
    return Work(
        0.0, picked.first + index.nbytes("int64"), written, scattered=(picked.table, picked.again, 0.0)
    )


def _distinct(draws: float, of: float) -> float:
    """Distinct places that so many random ones touch."""
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
    if not x or not index or not _fits(x, index) or kernel.family not in (Family.INDEX, Family.ELEMENTWISE):
        return None
    size = element_bytes(x.dtype or kernel.dtype)
    picked = _indexed(x, _axis(call, x), index, size)
    return Work(
        0.0,
        picked.first + index.nbytes("int64"),
        index.numel * size,
        scattered=(picked.table, picked.again, 0.0),
    )


def _fits(x: Tensor, index: Tensor) -> bool:
    return bool(x.shape) and len(index.shape) == len(x.shape)


def _scatter(call: Call, kernel: KernelClass) -> Work | None:
    """``scatter_(self, dim, index, src)`` and ``scatter_add_``, ``index_add_``: the touched elements twice."""
    x, index, source = call.tensor(0), call.tensor(2), call.tensor(3)
    if not x or not x.shape or not index or kernel.family not in (Family.INDEX, Family.ELEMENTWISE):
        return None
    size, axis = element_bytes(x.dtype or kernel.dtype), _axis(call, x)
    if not call.name.startswith("index_") and not _fits(x, index):
        return None
    picked = (_row_picks if call.name.startswith("index_") else _indexed)(x, axis, index, size)
    read = index.nbytes("int64") + (source.stored * size if source else 0.0)
    adds = "add" in call.name or "reduce" in call.name
    return Work(
        0.0,
        read + (picked.first if adds else 0.0),
        picked.first,
        scattered=(picked.table, picked.again if adds else 0.0, picked.again),
    )


def _index_put(call: Call, kernel: KernelClass) -> Work | None:
    """``index_put_(self, indices, values, accumulate)`` of rows: sorted indices bring each touched row once."""
    x, values = call.tensor(0), call.tensor(2)
    if not x or not values or not x.shape or "indexing_backward" not in kernel.function:
        return None
    if values.shape[1:] != x.shape[1:]:  # other indices than one of rows: the recording does not tell them
        return None
    size, count = element_bytes(x.dtype or kernel.dtype), values.shape[0]
    touched = _distinct(count, x.shape[0]) * x.numel / max(x.shape[0], 1) * size
    return Work(float(values.numel), values.numel * size + touched + 16.0 * count, touched, dtype="fp32")


def _sort(call: Call, kernel: KernelClass) -> Work | None:
    """``sort``, ``topk`` and scans: the passes over everything, and what prepares or ends them."""
    x = next(iter(call.tensors()), None)
    if not x or kernel.family not in (Family.SORT, Family.REDUCE):
        return None
    size = element_bytes(x.dtype or kernel.dtype)
    keys = x.numel * size
    if any(word in kernel.function for word in _READING_PASSES):
        return Work(float(x.numel), keys, 0.0, whole=True, dtype="fp32")
    if "scan" in kernel.function and "cum" in call.name:
        return Work(
            float(x.numel), keys, keys, whole=True, dtype="fp32", instructions=x.numel * INSTRUCTIONS["scan"]
        )
    if any(word in kernel.function for word in _MOVING_PASSES):
        return Work(float(x.numel), keys + 8.0 * x.numel, keys + 8.0 * x.numel, whole=True, dtype="fp32")
    if "fill_reverse_indices" in kernel.function:
        return Work(0.0, 0.0, 8.0 * x.numel, whole=True)
    if "kvinplace" in kernel.function:
        moved = _sorted_in_place(call, x) * (size + 8.0)
        return Work(0.0, moved, moved, whole=True, dtype="fp32")
    return None


def _sorted_in_place(call: Call, x: Tensor) -> float:
    """Elements that blocks sort by themselves: of ``topk(x, k, dim)`` those that it found."""
    count, axis = (call.integers(1) or (0,))[0], (call.integers(2) or (-1,))[0]
    if call.name != "topk" or not count:
        return float(x.numel)
    return x.numel / max(x.shape[axis % len(x.shape)], 1) * count


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
    **dict.fromkeys(("index_put_", "_index_put_impl_"), _index_put),
    **dict.fromkeys(("sort", "topk", "cumsum", "cumprod", "argsort", "logcumsumexp"), _sort),
}
"""By operator name without ``aten::``."""
