"""The page's bars of memory before and after each change: what holds the peak, and the line of the GPU's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profkit.model.names import MemoryCategory
from profkit.model.report_memory import FitRow

__all__ = ["FitLine", "FitPart", "fit_lines"]

_LENGTH: Final = 100.0
_FAR: Final = 2.0
"""Times the largest peak: a GPU with more memory is not drawn, since the bars would become too short to compare."""


@dataclass(frozen=True)
class FitPart:
    """What a category holds at the peak, as a part of a bar whose length is 100."""

    category: str
    at: float
    length: float


@dataclass(frozen=True)
class FitLine:
    """A bar: the peak after a change alone, or that of the recorded step."""

    row: FitRow | None
    """None for the recorded step."""
    peak_bytes: float
    parts: Sequence[FitPart]
    limit_at: float | None
    """Where the GPU's memory ends; None where it is unknown or far beyond."""


def fit_lines(fit: Sequence[FitRow]) -> list[FitLine]:
    """The recorded step, then each change; empty without changes."""
    if not fit:
        return []
    before = {each.category: each.before_bytes for each in fit[0].by_category}
    held = [(None, before), *((row, {c.category: c.after_bytes for c in row.by_category}) for row in fit)]
    most = max(1, *(sum(parts.values()) for _, parts in held))
    memory = fit[0].memory_bytes
    shown = memory if memory is not None and memory <= _FAR * most else None
    scale = _LENGTH / max(most, shown or 0)
    return [
        FitLine(
            row=row,
            peak_bytes=row.peak_bytes.likely if row else sum(parts.values()),
            parts=_parts(parts, scale),
            limit_at=None if shown is None else round(shown * scale, 2),
        )
        for row, parts in held
    ]


def _parts(held: Mapping[MemoryCategory, int], scale: float) -> list[FitPart]:
    parts, at = [], 0.0
    for category, size in held.items():
        if size:
            parts.append(FitPart(category, round(at, 2), round(size * scale, 2)))
            at += size * scale
    return parts
