"""Kernels over lists of tensors (``multi_tensor_apply``) read by their names."""

from __future__ import annotations

import re

__all__ = ["CHUNK_ELEMENTS", "list_traffic"]

CHUNK_ELEMENTS = 65536
"""Elements that one block of PyTorch's ``multi_tensor_apply`` takes (kChunkSize)."""


def list_traffic(name: str) -> tuple[float, float] | None:
    """Tensors read and written per element by a ``multi_tensor_apply`` functor, from its template arguments.

    ``BinaryOpListAlphaFunctor<float, depth, r_args_depth, res_arg_index>`` reads ``r_args_depth`` lists and
    writes one; a fused step reads all its lists and writes all but the gradients.
    """
    fused = re.search(r"Fused(\w{1,64}?)MathFunctor<[^,<>]{1,60}, (?:\(int\))?(\d{1,2})", name)
    if fused:
        depth = float(fused[2])
        return depth, max(depth - 1.0, 1.0)
    listed = re.search(
        r"Functor<[^,<>]{1,60}, (?:\(int\))?(\d{1,2}), (?:\(int\))?(\d{1,2}), (?:\(int\))?\d{1,2}", name
    )
    if listed:
        return float(listed[2]), 0.0 if "LpNorm" in name else 1.0
    if "ZeroFunctor" in name:
        return 0.0, 1.0
    return (1.0, 0.0) if "LpNorm" in name else None
