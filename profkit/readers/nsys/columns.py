"""Integer columns as they come out of a table, and the few operations that all of them need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "NULL",
    "Columns",
    "Integers",
    "constant",
    "distinct",
    "distinct_pairs",
    "is_constant",
    "positions",
]

Integers = NDArray[np.int64]

NULL = int(np.iinfo(np.int64).min)
"""Stands for SQL NULL in columns where every other integer is a value: times and global ids."""

_DENSE_SPAN = 1 << 22


@dataclass(frozen=True, eq=False)
class Columns:
    """Equally long int64 columns by name; a column that the table lacks is constant."""

    length: int
    values: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.values[name]

    def take(self, rows: NDArray[Any]) -> Columns:
        """The rows that a mask or an array of row numbers selects."""
        if rows.dtype == bool and rows.all():
            return self
        length = int(np.count_nonzero(rows)) if rows.dtype == bool else len(rows)
        return Columns(
            length,
            {
                name: np.broadcast_to(column[0], length)
                if len(column) and is_constant(column)
                else column[rows]
                for name, column in self.values.items()
            },
        )


def constant(column: Integers) -> Integers:
    """The column itself, or, where all rows are equal, one value that stands for them."""
    if len(column) and column.min() == column.max():
        return np.broadcast_to(column[0], len(column))
    return column


def is_constant(column: NDArray[Any]) -> bool:
    """Whether one value stands for all rows."""
    return column.strides == (0,)


def distinct(ids: Integers) -> tuple[Integers, NDArray[np.intp]]:
    """The sorted distinct values, and for each row the place of its value among them.

    Ids of one recording lie close together, where a table of flags is several times faster than sorting.
    """
    if not len(ids):
        return np.empty(0, np.int64), np.empty(0, np.intp)
    if is_constant(ids):
        return ids[:1].copy(), np.broadcast_to(np.intp(0), len(ids))
    low, high = int(ids.min()), int(ids.max())
    if high - low >= max(_DENSE_SPAN, 4 * len(ids)):
        values, places = np.unique(ids, return_inverse=True)
        return values, places.reshape(-1)
    offsets = ids - low
    flags = np.zeros(high - low + 1, bool)
    flags[offsets] = True
    found = np.flatnonzero(flags)
    lookup = np.empty(len(flags), np.intp)
    lookup[found] = np.arange(len(found))
    return found + low, lookup[offsets]


def distinct_pairs(first: Integers, second: Integers) -> tuple[list[tuple[int, int]], NDArray[np.intp]]:
    """The sorted distinct pairs of the values of two columns, and for each row the place of its pair among them.

    A table of all values by all values would be as large as a damaged file makes it.
    """
    firsts, first_places = distinct(first)
    seconds, second_places = distinct(second)
    width = max(1, len(seconds))
    if len(first) and is_constant(first_places) and is_constant(second_places):
        numbers, places = np.zeros(1, np.intp), first_places
    else:
        numbers, places = distinct(first_places * width + second_places)
    return [(int(firsts[n // width]), int(seconds[n % width])) for n in numbers.tolist()], places


def positions(order: Mapping[int, int], ids: Integers) -> NDArray[np.int32]:
    """The number that ``order`` gives to each id; -1 for an id that it does not hold."""
    values, places = distinct(ids)
    numbers = np.fromiter((order.get(value, -1) for value in values.tolist()), np.int32, len(values))
    result: NDArray[np.int32] = numbers[places]
    return result
