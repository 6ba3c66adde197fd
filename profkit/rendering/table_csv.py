"""The kernel table as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
from typing import Any, Final

from profkit.model.result import Result, Row
from profkit.rendering.report_json import json_value

__all__ = ["COLUMNS", "render_csv"]

COLUMNS: Final = (
    "name", "short_name", "family", "dtype", "tensor_core", "grid", "block", "shapes", "mnk", "device", "count", "total_ns",
    "mean_ns", "median_ns", "min_ns", "max_ns", "share", "bound", "basis", "efficiency", "unsaturated", "flop",
    "dram_bytes", "tflops", "gbs", "phases", "operators",
)  # fmt: skip
"""The columns, in order: those of ``kernels[]``."""

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def render_csv(result: Result) -> str:
    """The rows of ``kernels[]``, most expensive first; times in ns, sizes in bytes, unknown is empty.

    A text that a spreadsheet would run as a formula gets a leading apostrophe; numbers stay numbers.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in sorted(result.kernels, key=lambda kernel: -kernel["total_ns"]):
        writer.writerow(_cell(value) for value in _values(row))
    return out.getvalue()


def _values(row: Row) -> list[Any]:
    return [json_value(row.get(column)) for column in COLUMNS]


def _number(value: Any) -> Any:
    """A number, or the numbers of a phase: ``5797663 (75)`` is time and launches."""
    return f"{value['ns']} ({value['count']})" if isinstance(value, dict) else value


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return value
    if isinstance(value, list):
        return (
            ", ".join(map(_cell, value))
            if any(isinstance(v, list) for v in value)
            else "x".join(map(str, value))
        )
    if isinstance(value, dict):
        value = "; ".join(f"{name}={_number(number)}" for name, number in value.items())
    text = "".join(c for c in str(value) if c.isprintable() or c in "\t\r\n")
    return f"'{text}" if text.lstrip(" \n").startswith(_FORMULA_STARTS) else text
