"""The kernels of a comparison as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import Final

from profkit.comparison.rows import KernelChange
from profkit.rendering.comparison_document import ComparisonDocument
from profkit.rendering.table_csv import csv_cell

__all__ = ["render_comparison_csv"]

_COLUMNS: Final = KernelChange.__struct_fields__


def render_comparison_csv(comparison: ComparisonDocument) -> str:
    """The rows of ``kernels[]``, the largest change first; times in ns per step, unknown is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for row in comparison.kernels:
        writer.writerow(csv_cell(getattr(row, column)) for column in _COLUMNS)
    return out.getvalue()
