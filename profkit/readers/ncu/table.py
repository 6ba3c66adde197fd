"""The table inside what Nsight Compute printed: found among other lines, checked row by row, in base units."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import ReadError

__all__ = ["CounterTable", "read_table"]

_LONGEST_LINE: Final = 1 << 20
_MOST_COLUMNS: Final = 4_000
"""ncu knows some 2,000 metrics a GPU; a table of more columns than that is no table of it."""
_MOST_DIGITS: Final = 15

_ONE: Final = {
    "": 1.0, "%": 1.0, "byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12,
    "nsecond": 1.0, "ns": 1.0, "usecond": 1e3, "us": 1e3, "msecond": 1e6, "ms": 1e6, "second": 1e9, "s": 1e9,
}  # fmt: skip
"""Units in which ncu prints sizes and times, in bytes and ns. Of what it prints per something only the first part counts
(``byte/block``)."""

_TRIPLE: Final = re.compile(r"\(\s*(\d{1,10}),\s*(\d{1,10}),\s*(\d{1,10})\s*\)")


@dataclass(frozen=True)
class CounterTable:
    """Columns by their header, one row a kernel in the order of launch."""

    columns: Mapping[str, Sequence[str]]
    units: Mapping[str, str]
    count: int
    incomplete: int
    """Rows with too few or too many cells: the file was cut, or another line ran into them."""
    errors: Sequence[str]
    """What the tool reported as errors, without its mark."""

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def text(self, column: str) -> list[str]:
        """The cells of a column; empty where there is no such column."""
        return list(self.columns.get(column, [""] * self.count))

    def number(self, column: str) -> NDArray[np.float64]:
        """The cells as numbers in base units (ns, bytes, %); NaN where there is none."""
        unit = self.units.get(column, "").partition("/")[0]
        factor = _ONE.get(unit, 1.0)
        return np.array([_number(cell) for cell in self.text(column)]).reshape(-1) * factor

    def whole(self, column: str) -> NDArray[np.int64]:
        """The cells as whole numbers; -1 where there is none."""
        values = self.number(column)
        return np.where(np.isnan(values), -1, np.nan_to_num(values)).astype(np.int64)

    @staticmethod
    def triple(text: str) -> tuple[int, int, int]:
        """``(64, 2, 1)`` as numbers; -1 three times for anything else."""
        found = _TRIPLE.fullmatch(text.strip())
        return (int(found[1]), int(found[2]), int(found[3])) if found else (-1, -1, -1)


def read_table(data: bytes | bytearray | memoryview, name: str) -> CounterTable:
    """The table in a text.

    Args:
        data: What ncu printed.
        name: The base name for messages.

    Raises:
        ReadError: There is no table, it is of another page, or it has more columns than ncu has metrics.
    """
    lines = _lines(bytes(data))
    errors: list[str] = []
    header: list[str] | None = None
    rows: list[list[str]] = []
    incomplete = 0
    for line in lines:
        if line.startswith("==ERROR=="):
            errors.append(line.removeprefix("==ERROR==").strip()[:200])
        elif line.startswith('"'):
            cells = _cells(line)
            if header is None:
                header = _checked(cells, name)
            elif cells == header:
                continue  # ncu prints the header again where it prints several reports
            elif len(cells) == len(header):
                rows.append(cells)
            else:
                incomplete += 1
    if header is None:
        raise ReadError(name, "Nsight Compute printed no table", _what_to_do(errors))
    units = rows.pop(0) if rows and not rows[0][0] else [""] * len(header)
    columns = dict(zip(header, map(list, zip(*rows, strict=True)), strict=False)) if rows else {}
    return CounterTable(columns, dict(zip(header, units, strict=True)), len(rows), incomplete, errors)


def _cells(line: str) -> list[str]:
    """The cells of one line; none of a line that is no CSV."""
    try:
        return next(csv.reader([line]), [])
    except csv.Error:  # a cell longer than any name
        return []


def _what_to_do(errors: Sequence[str]) -> str:
    seen = f"It says: {errors[0]} " if errors else ""
    return f"{seen}Record with: ncu --csv --page raw python train.py > counters.csv"


def _checked(header: list[str], name: str) -> list[str]:
    if "Metric Name" in header:
        raise ReadError(
            name,
            "it is the details page of Nsight Compute, not the raw page",
            "Export it with: ncu --csv --page raw",
        )
    if "Kernel Name" not in header or len(header) > _MOST_COLUMNS:
        raise ReadError(
            name, "its table is not the raw page of Nsight Compute", "Export it with: ncu --csv --page raw"
        )
    return header


def _lines(data: bytes) -> Iterator[str]:
    """Lines that may matter, each within a bound; a longer one is cut, and so counts as incomplete."""
    for line in data.split(b"\n"):
        if line[:1] == b'"' or line.startswith(b"==ERROR=="):
            yield line[:_LONGEST_LINE].decode("utf-8", "replace").rstrip("\r")


def _number(cell: str) -> float:
    """``413,401.60`` as a number; NaN for anything that is none."""
    plain = cell.replace(",", "")
    digits = plain.removeprefix("-").replace(".", "", 1)
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 2 * _MOST_DIGITS:
        return _scientific(plain)
    return float(plain)


def _scientific(text: str) -> float:
    try:
        value = float(text[:40])
    except ValueError:
        return float("nan")
    return value if abs(value) < 1e18 else float("nan")
