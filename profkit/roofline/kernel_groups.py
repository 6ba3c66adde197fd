"""Rows of several integer columns that are alike, found in one sort."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from profkit.model import IntColumn
from profkit.model.kernel_class import KernelClass

__all__ = ["group_rows", "where_class"]

_LARGEST_KEY = 2**62


def group_rows(columns: Iterable[IntColumn]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Group rows that agree in every column.

    Returns:
        The first row of each group, and the group of each row.
    """
    key: NDArray[np.int64] | None = None
    size = 1
    for column in columns:
        wide = column.astype(np.int64)
        if key is None:
            key = np.zeros(len(wide), np.int64)
        if not len(wide):
            continue
        low = int(wide.min())
        span = int(wide.max()) - low + 1
        if size > _LARGEST_KEY // span:
            key, size = _dense(key)
        if size > _LARGEST_KEY // span:
            wide, span = _dense(wide)
            low = 0
        key, size = key * span + (wide - low), size * span
    if key is None:
        key = np.zeros(0, np.int64)
    _, first, group = np.unique(key, return_index=True, return_inverse=True)
    return first, group.reshape(-1)


def where_class(
    names: IntColumn, classes: Mapping[int, KernelClass], holds: Callable[[KernelClass], bool]
) -> NDArray[np.bool_]:
    """For a column of name ids, whether each name's class has a property."""
    wanted = np.array([name for name, kernel in classes.items() if holds(kernel)], np.int64)
    found: NDArray[np.bool_] = np.isin(names, wanted)
    return found


def _dense(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The same grouping in the smallest numbers, and how many there are."""
    unique, dense = np.unique(values, return_inverse=True)
    return dense.reshape(-1).astype(np.int64), max(len(unique), 1)
