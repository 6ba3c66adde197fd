"""Tables of events: equally long numpy columns, declared by name and type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNKNOWN", "IntColumn", "Table", "column"]

UNKNOWN = -1

IntColumn = NDArray[np.integer[Any]]


def column(dtype: str, fill: int | float = UNKNOWN, of: str | None = None) -> Any:
    """Declare a column of a `Table`.

    Args:
        dtype: Its numpy type.
        fill: What its rows hold where nothing is known.
        of: What its numbers are, where they mean something only within their trace: ``time``, an index into
            ``strings``, ``processes``, ``threads``, ``devices`` or ``operations``, or an id (``correlation``...).
    """
    return field(metadata={"dtype": np.dtype(dtype), "fill": fill, "of": of})


class Table:
    """Equally long columns; subclasses declare them with `column`."""

    def __len__(self) -> int:
        return len(getattr(self, fields(self)[0].name))  # type: ignore[arg-type]

    @classmethod
    def of(cls, length: int, **columns: Any) -> Self:
        """Build a table of ``length`` rows; columns that are left out are filled as unknown.

        Raises:
            ValueError: A column has another length.
            TypeError: There is no column of that name.
        """
        values = {}
        for declared in fields(cls):  # type: ignore[arg-type]
            dtype, fill = declared.metadata["dtype"], declared.metadata["fill"]
            given = columns.pop(declared.name, None)
            values[declared.name] = (
                np.full(length, fill, dtype) if given is None else np.ascontiguousarray(given, dtype)
            )
            if len(values[declared.name]) != length:
                raise ValueError(f"{cls.__name__}.{declared.name} has not {length} rows")
        if columns:
            raise TypeError(f"{cls.__name__} has no column {sorted(columns)}")
        return cls(**values)

    @classmethod
    def empty(cls) -> Self:
        """A table without rows."""
        return cls.of(0)

    @classmethod
    def together(cls, tables: Sequence[Self]) -> Self:
        """The rows of several tables, one after the other."""
        names = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        return cls(**{name: np.concatenate([getattr(table, name) for table in tables]) for name in names})

    def renumbered(self, change: Mapping[str, Callable[[NDArray[Any]], NDArray[Any]]]) -> Self:
        """The table with other numbers in the columns of some kinds.

        Args:
            change: By kind (see `column`), the new numbers of old ones.
        """
        values = {}
        for declared in fields(self):  # type: ignore[arg-type]
            old, new = getattr(self, declared.name), change.get(declared.metadata["of"])
            values[declared.name] = old if new is None else new(old).astype(declared.metadata["dtype"])
        return type(self)(**values)

    def take(self, rows: NDArray[Any]) -> Self:
        """The rows that a mask or an array of row numbers selects, as a new table."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})  # type: ignore[arg-type]
