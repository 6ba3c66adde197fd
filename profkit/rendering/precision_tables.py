"""The precision map as every renderer shows it: types and units, with time, work and launches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.model.report_precision import OperatorTypes, PrecisionRow
from profkit.rendering.digest import Scale, share_text
from profkit.rendering.document import AutocastOperator, Document
from profkit.rendering.page_cells import digits
from profkit.rendering.sentences.precision import autocast_summary, tf32_message
from profkit.units import rate_text

__all__ = [
    "Format",
    "PrecisionSection",
    "flop_cell",
    "accidents_of",
    "formats_of",
    "note_of",
    "precision_lines",
    "precision_section",
    "unit_label",
]

_ROWS: Final = 60

_NOTABLE: Final = 0.01
"""A smaller share of products on an unknown unit is not told."""


@dataclass(frozen=True)
class Format:
    """A type on a unit, over phases."""

    dtype: str
    unit: str
    work: str
    """``products``, with convolutions and attention, or ``other``."""
    ns: int
    share: float
    """Of the kernels' time."""
    flop: int | None
    flop_ns: int
    """The time of the launches whose FLOP are known."""
    count: int


@dataclass(frozen=True)
class PrecisionSection:
    """What the page shows of number formats."""

    formats: Sequence[Format]
    rows: Sequence[PrecisionRow]
    left: int
    operators: Sequence[OperatorTypes]
    operators_left: int
    lines: Sequence[str]
    autocast: Sequence[AutocastOperator]
    note: str
    digits: int


def formats_of(report: Document) -> list[Format]:
    """The map without its phases, most time first."""
    found: dict[tuple[str, str, str], list[PrecisionRow]] = {}
    for row in report.precision:
        key = (
            row.dtype or "unknown",
            unit_label(report, row.tensor_core),
            "products" if row.matrix else "other",
        )
        found.setdefault(key, []).append(row)
    total = sum(row.ns for row in report.precision) or 1
    formats = [_format(key, rows, total) for key, rows in found.items()]
    return sorted(formats, key=lambda each: (-each.ns, each.dtype))


def _format(key: tuple[str, str, str], rows: Sequence[PrecisionRow], total: int) -> Format:
    dtype, unit, work = key
    ns, known = sum(row.ns for row in rows), [row.flop for row in rows if row.flop is not None]
    flop = sum(known) if known else None
    return Format(
        dtype,
        unit,
        work,
        ns,
        ns / total,
        flop,
        sum(row.flop_ns for row in rows),
        sum(row.count for row in rows),
    )


def unit_label(report: Document, tensor_core: bool | None) -> str:
    """The unit in its maker's words."""
    if tensor_core is None:
        return "unknown"
    is_amd = any((device.name or "").startswith("AMD") for device in report.devices)
    matrix, vector = ("Matrix Cores", "vector units") if is_amd else ("Tensor Cores", "CUDA cores")
    return matrix if tensor_core else vector


def note_of(report: Document) -> str:
    """The share of products, convolutions and attention on Tensor Cores, in a few words; empty without any of them."""
    matrix = [row for row in report.precision if row.matrix]
    total = sum(row.ns for row in matrix)
    if not total:
        return ""
    on, unknown = (sum(row.ns for row in matrix if row.tensor_core is it) / total for it in (True, None))
    if unknown == 1:
        return "the unit that computes the products is unknown"
    known = f"{share_text(on)} of the time of products is on {unit_label(report, True)}"
    return known if unknown < _NOTABLE else f"{known}, {share_text(unknown)} on an unknown unit"


def flop_cell(row: Format | PrecisionRow, scale: Scale) -> str:
    """An amount of work per step; ``> 1.2 TFLOP`` where some launches do not tell theirs, or a dash where none does."""
    partly = row.flop is not None and row.flop_ns < row.ns
    return ("> " if partly else "") + rate_text(scale(row.flop), "FLOP")


def precision_lines(report: Document, scale: Scale) -> list[str]:
    """What the formats put at risk, whether TF32 was on, and what autocast did."""
    lines = [row.message for row in report.precision_findings]
    lines += [tf32_message(row, scale.divisor) for row in report.tf32]
    if report.autocast:
        lines.append(autocast_summary(report.autocast, scale.divisor, timed=bool(report.precision)))
    return lines


def accidents_of(report: Document) -> list[AutocastOperator]:
    """What autocast met that is no design of its own."""
    return [row for row in report.autocast.operators if not row.by_design] if report.autocast else []


def precision_section(report: Document, scale: Scale) -> PrecisionSection:
    """The formats, the map by phase, and the types of operators."""
    rows, operators = report.precision, report.operator_types
    return PrecisionSection(
        formats=formats_of(report),
        rows=rows[:_ROWS],
        left=len(rows) - _ROWS,
        operators=operators[:_ROWS],
        operators_left=len(operators) - _ROWS,
        lines=precision_lines(report, scale),
        autocast=report.autocast.operators[:_ROWS] if report.autocast else (),
        note=note_of(report),
        digits=digits([rows[0].ns / scale.divisor if rows else 0]),
    )
