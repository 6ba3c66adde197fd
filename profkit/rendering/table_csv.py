"""The kernel table, and every device operation, as CSV that is safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from profkit.model.report import KernelRow
from profkit.model.report_kernels import PhaseTime
from profkit.rendering.document import Document
from profkit.rendering.sentences.labels import shapes_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COLUMNS", "csv_cell", "launches_csv", "render_csv"]

COLUMNS: Final = (
    "name", "short_name", "family", "dtype", "tensor_core", "grid", "block", "shapes", "mnk", "count", "total_ns", "mean_ns",
    "median_ns", "min_ns", "max_ns", "share", "bound", "basis", "efficiency", "unsaturated", "flop", "dram_bytes",
    "tflops", "gbs", "phases", "operators", "devices",
    "registers", "shared_bytes", "occupancy", "occupancy_limit", "waves",
)  # fmt: skip
"""The columns, in order: fields of ``kernels[]``."""

_FORMULA_STARTS: Final = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
"""The full-width ones too: spreadsheets of East Asia take them for the others."""


def render_csv(report: Document) -> str:
    """The rows of ``kernels[]``, most expensive first; times in ns, sizes in bytes, unknown is empty.

    A text that a spreadsheet would run as a formula gets a leading apostrophe; numbers stay numbers.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in sorted(report.kernels, key=lambda kernel: -kernel.total_ns):
        writer.writerow(map(csv_cell, _values(row)))
    return out.getvalue()


def _values(row: KernelRow) -> Iterable[str | float | None]:
    return (
        row.name, row.short_name, row.family, row.dtype, row.tensor_core, _dims(row.grid), _dims(row.block),
        shapes_text(row.shapes, "x"), _dims(row.mnk), row.count, row.total_ns, row.mean_ns, row.median_ns, row.min_ns, row.max_ns, row.share, row.bound, row.basis,
        row.efficiency, row.unsaturated, row.flop, row.dram_bytes, row.tflops, row.gbs,
        _pairs({path: _launched(part) for path, part in row.phases.items()}), _pairs(row.operators), _pairs(row.devices),
        row.registers, row.shared_bytes, row.occupancy, row.occupancy_limit, row.waves,
    )  # fmt: skip


def launches_csv(launches: pd.DataFrame) -> str:
    """The rows of `Report.launches`, with cells as `render_csv` has them."""
    import pandas as pd

    made = launches.copy()
    for name in map(str, made.select_dtypes(exclude="number")):
        number, values = pd.factorize(made[name].to_numpy(object))
        cells = [csv_cell(_LAUNCH_TEXTS.get(name, str)(value)) for value in values]
        made[name] = pd.Series([*cells, ""], dtype=object).to_numpy()[number]
    return str(made.to_csv(index=False, lineterminator="\r\n"))


def _dims(size: Iterable[int] | None) -> str | None:
    return None if size is None else "x".join(map(str, size))


_LAUNCH_TEXTS: Final[Mapping[str, Callable[[Any], str | None]]] = {
    "grid": _dims,
    "block": _dims,
    "shapes": lambda shapes: shapes_text(shapes, "x"),
}
"""How objects of a table are written; others are texts."""


def _launched(part: PhaseTime) -> str:
    """Time and launches in a phase: ``5797663 in 75``."""
    return f"{part.ns} in {part.count}" if part.count is not None else str(part.ns)


def _pairs(numbers: Mapping[str, int | str]) -> str:
    return "; ".join(f"{name}={number}" for name, number in numbers.items())


def csv_cell(value: str | float | None) -> str | float:
    """What stands in a cell: text on one line, with an apostrophe where a spreadsheet would run it as a formula."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return value
    text = "".join(c if c.isprintable() else " " if c in "\t\r\n" else "" for c in value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA_STARTS) else text
