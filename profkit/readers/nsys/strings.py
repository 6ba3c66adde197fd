"""nsys' numbered strings, as texts of the trace."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from profkit.model import UNKNOWN
from profkit.readers.nsys.columns import Integers, distinct
from profkit.readers.nsys.database import Database, text
from profkit.readers.strings import Strings

__all__ = ["UNNAMED", "StringIds"]

UNNAMED = "<unnamed>"
"""The name of what has none, so that it is counted and not lost."""


class StringIds:
    """The export's table of numbered strings."""

    def __init__(self, database: Database, strings: Strings) -> None:
        table = database.table("STRINGIDS")
        self._values = table.pairs("id", "value") if table else {}
        self._strings = strings

    def raw(self, number: int | None) -> bytes:
        """The bytes of one string; empty when there is none of that number."""
        return self._values.get(number, b"") or b"" if number is not None else b""

    def text(self, number: int | None) -> str:
        """One string; empty when there is none of that number."""
        return text(self.raw(number))

    def resolve(self, ids: Integers, clean: Callable[[str], str] = str) -> NDArray[np.int32]:
        """Column of nsys' numbers to a column of the trace's; `UNKNOWN` where a string is missing or empty."""
        values, places = distinct(ids)
        numbers = np.full(len(values), UNKNOWN, np.int32)
        for place, value in enumerate(values.tolist()):
            content = clean(self.text(value))
            if content:
                numbers[place] = self._strings.add(content)
        resolved: NDArray[np.int32] = numbers[places]
        return resolved

    def first_of(self, *columns: Integers, clean: Callable[[str], str] = str) -> NDArray[np.int32]:
        """The first of several columns that has a text, `UNNAMED` where none has."""
        names = self.resolve(columns[0], clean)
        for column in columns[1:]:
            missing = names == UNKNOWN
            if not missing.any():
                return names
            names[missing] = self.resolve(column[missing], clean)
        missing = names == UNKNOWN
        if missing.any():
            names[missing] = self._strings.add(UNNAMED)
        return names
