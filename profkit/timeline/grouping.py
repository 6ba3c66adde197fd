"""Rows that share keys, as group numbers; and statistics by group."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.timeline.distinct import distinct

__all__ = ["group_rows", "medians", "sums", "weights_by_pair"]

Column = NDArray[np.int64]


def group_rows(*columns: NDArray[Any]) -> tuple[Column, Column]:
    """Number the distinct tuples of some equally long columns.

    Returns:
        The group of each row, and one row number for each group.
    """
    key = distinct(columns[0])[1]
    for column in columns[1:]:
        values, codes = distinct(column)
        # Numbered anew each time, so that the product stays far from overflow.
        key = distinct(key * max(len(values), 1) + codes)[1]
    example = np.zeros(int(key.max(initial=-1)) + 1, np.int64)
    example[key[::-1]] = np.arange(len(key))[::-1]
    return key, example


def sums(group: Column, values: NDArray[Any], groups: int) -> NDArray[Any]:
    """The sum of each group, in the type of the values."""
    total = np.zeros(groups, values.dtype)
    np.add.at(total, group, values)
    return total


def medians(group: Column, values: Column, groups: int) -> Column:
    """The median of each group, rounded down between two whole values; every group has a value."""
    order = np.lexsort((values, group))
    count = np.bincount(group, minlength=groups)
    first = np.concatenate(([0], np.cumsum(count)[:-1]))
    low, high = values[order[first + (count - 1) // 2]], values[order[first + count // 2]]
    middle: Column = (low + high) // 2
    return middle


def weights_by_pair(group: Column, other: Column, weight: NDArray[Any]) -> dict[int, dict[int, int]]:
    """For each group: the summed weight by the other key, heaviest first; rows with a negative key are left out."""
    known = other >= 0
    group, other, weight = group[known], other[known], weight[known]
    if not len(group):
        return {}
    pair, example = group_rows(group, other)
    total = sums(pair, weight, len(example))
    found: dict[int, dict[int, int]] = {}
    for at in np.lexsort((other[example], -total)).tolist():
        found.setdefault(int(group[example[at]]), {})[int(other[example[at]])] = int(total[at])
    return found
