"""The closed tables below the kernels: products by size, and what launched the kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.hardware import DTYPE_BYTES
from profkit.model.kernel_class import Family
from profkit.model.report import FusionRow, KernelRow, SourceRow
from profkit.rendering.digest import share_text, where_text
from profkit.rendering.document import Document
from profkit.rendering.page_cells import with_units
from profkit.rendering.sentences.labels import OCCUPANCY_LIMITS, shapes_text

__all__ = ["ProductLine", "fusion_section", "products_section", "sources_section"]

_ROWS: Final = 60
_LINKS: Final = 8
"""Kernels of a chain that are named."""
_FAMILIES: Final = frozenset({Family.GEMM, Family.CONVOLUTION, Family.ATTENTION})
_ALIGNED_BYTES: Final = 16
"""What Tensor Cores load at once: rows whose length is a multiple of it need no special kernel (NVIDIA's guide to matrix
multiplication)."""


@dataclass(frozen=True)
class ProductLine:
    """A product of one size."""

    row: KernelRow
    size: str | None
    """Rows, columns and depth, or the shapes of the operator's inputs."""
    misaligned: str
    occupancy: str
    waves: str
    """With the part of the last wave that stays empty."""


def products_section(report: Document) -> tuple[Sequence[ProductLine], int]:
    """The products with most time, and how many are left out."""
    found = [row for row in report.kernels if row.family in _FAMILIES]
    return [_line(row) for row in found[:_ROWS]], len(found) - _ROWS


def sources_section(report: Document) -> Sequence[tuple[str, Sequence[SourceRow], int]]:
    """Modules and functions: what they are called, those with most time, and how many are left out."""
    kinds = (("Module", "module"), ("Function", "function"))
    tables = [(noun, [row for row in report.sources if row.kind == kind]) for noun, kind in kinds]
    return [(noun, rows[:_ROWS], len(rows) - _ROWS) for noun, rows in tables if rows]


def fusion_section(report: Document) -> tuple[Sequence[tuple[str, FusionRow]], int]:
    """Chains in words, those that save most, and how many are left out."""
    return [(_chain(row), row) for row in report.fusion[:_ROWS]], len(report.fusion) - _ROWS


def _chain(row: FusionRow) -> str:
    more = len(row.kernels) - _LINKS
    return " → ".join(row.kernels[:_LINKS]) + (f" → {more} more" if more > 0 else "")


def _line(row: KernelRow) -> ProductLine:
    limit = OCCUPANCY_LIMITS.get(row.occupancy_limit or "")
    return ProductLine(
        row=row,
        size=" × ".join(map(str, row.mnk)) if row.mnk else shapes_text(row.shapes),
        misaligned=where_text(*_misaligned(row)) or ("none" if row.mnk else "–"),
        occupancy="–" if row.occupancy is None else where_text(share_text(row.occupancy), limit),
        waves=_waves(row.waves),
    )


def _misaligned(row: KernelRow) -> list[str]:
    size = DTYPE_BYTES.get(row.dtype or "", _ALIGNED_BYTES)
    sides = zip("MNK", row.mnk or (), strict=False)
    return [f"{name} {side}" for name, side in sides if side * size % _ALIGNED_BYTES]


def _waves(waves: float | None) -> str:
    """Waves, and the part of the places for blocks that stays empty, over all of them.

    Where one wave fits exactly, blocks may be persistent and have more to do than one tile: nothing is said of it.
    """
    if waves is None or waves == 1.0:
        return "–" if waves is None else "1.00"
    return with_units(f"{waves:.2f}, {share_text(1.0 - waves / math.ceil(waves))} empty")
