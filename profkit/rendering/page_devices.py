"""The page's tables of memory, of collectives and of ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profkit.model.report import CommunicationRow
from profkit.model.report_memory import CategoryRow, FitRow, MemoryStep
from profkit.rendering.document import Document, Memory
from profkit.rendering.page_cells import Segment, segments_of
from profkit.rendering.page_fit import FitLine, fit_lines
from profkit.rendering.rank_lines import RankLine, rank_lines

__all__ = ["MemorySection", "RanksSection", "memory_section", "ranks_section"]

_ROWS: Final = 40
_STEPS: Final = 12
_HOLDERS: Final = 15


@dataclass(frozen=True)
class CategoryLine:
    """Memory of one use at the peak."""

    row: CategoryRow
    share: float


@dataclass(frozen=True)
class HolderLine:
    """A line of the program that holds memory."""

    where: str | None
    use: str | None
    bytes: int
    count: int


@dataclass(frozen=True)
class HolderTable:
    """Who holds memory, largest first."""

    title: str
    lines: Sequence[HolderLine]
    left: int


@dataclass(frozen=True)
class MemorySection:
    """The memory section with the tables that it has rows for."""

    memory: Memory
    categories: Sequence[CategoryLine]
    holders: Sequence[HolderTable]
    steps: Sequence[MemoryStep]
    steps_left: int
    fit: Sequence[FitLine]


@dataclass(frozen=True)
class RanksSection:
    """Collectives, and ranks where there are several."""

    communication: Sequence[CommunicationRow]
    communication_left: int
    told_apart: bool
    """Whether waiting is told apart from the transfer."""
    ranks: Sequence[tuple[RankLine, Sequence[Segment]]]
    """Each with its bar."""
    ranks_left: int
    compared: bool
    """Whether it is known who waits for whom."""


def memory_section(memory: Memory | None, fit: Sequence[FitRow] = ()) -> MemorySection | None:
    """The memory section; None where nothing recorded it.

    Args:
        memory: The report's.
        fit: What each change would do to it.
    """
    if memory is None:
        return None
    total = sum(row.bytes for row in memory.by_category) or 1
    peak = [HolderLine(row.where, row.category, row.bytes, row.count) for row in memory.at_peak]
    kept = [HolderLine(row.where, None, row.bytes, row.count) for row in memory.never_freed]
    tables = (("Held at the peak", peak), ("Still allocated at the end", kept))
    steps = memory.steps
    shown = steps if len(steps) <= _STEPS else [*steps[: _STEPS // 2], *steps[-_STEPS // 2 :]]
    return MemorySection(
        memory=memory,
        categories=[CategoryLine(row, row.bytes / total) for row in memory.by_category],
        holders=[HolderTable(title, rows[:_HOLDERS], len(rows) - _HOLDERS) for title, rows in tables if rows],
        steps=shown,
        steps_left=len(steps) - len(shown),
        fit=fit_lines(fit),
    )


def ranks_section(report: Document) -> RanksSection | None:
    """Collectives and ranks; None where there is one rank that talks to nobody."""
    ranks = rank_lines(report) if len(report.ranks) > 1 else []
    if not report.communication and not ranks:
        return None
    shown = ranks if len(ranks) <= _ROWS else [*ranks[: _ROWS - 1], ranks[-1]]
    return RanksSection(
        communication=report.communication[:_ROWS],
        communication_left=len(report.communication) - _ROWS,
        told_apart=any(row.waiting_ns is not None for row in report.communication),
        ranks=[(line, segments_of(line.shares)) for line in shown],
        ranks_left=len(ranks) - len(shown),
        compared=any(line.causes_ns is not None for line in ranks),
    )
