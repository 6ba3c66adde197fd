"""The kernels of a comparison as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import Final

from profkit.comparison.rows import KernelChange
from profkit.errors import printable
from profkit.rendering.comparison_document import ComparisonDocument

__all__ = ["render_comparison_csv"]

_COLUMNS: Final = KernelChange.__struct_fields__


def render_comparison_csv(comparison: ComparisonDocument) -> str:
    """The rows of ``kernels[]``, the largest change first; times in ns per step, unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for row in comparison.kernels:
        writer.writerow(_cell(getattr(row, column)) for column in _COLUMNS)
    return out.getvalue()


def _cell(value: str | float | None) -> str | float:
    if not isinstance(value, str):
        return "" if value is None else value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
