"""Ranks as lines of a table: of many, those that are unlike the others stand by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from profkit.model.report import RankRow
from profkit.rendering.digest import kept_steps
from profkit.rendering.document import Document
from profkit.units import count_text

__all__ = ["RankLine", "rank_lines"]

_FEW: Final = 8
"""So many ranks are all told, by their number."""
_ODD_SHARE: Final = 0.02
"""A rank is odd where a time of it is further from the median one, as a part of the median step."""


@dataclass(frozen=True)
class RankLine:
    """A rank, or the median of ranks that are alike; waiting is per step."""

    name: str
    step_ns: float | None
    late_ns: float | None
    waits_ns: float | None
    """Its waiting for others; None where the ranks were not compared."""
    causes_ns: float | None
    """The waiting of others for it."""
    shares: Mapping[Any, int]
    straggler: bool

    @property
    def times(self) -> tuple[float | None, ...]:
        """What makes a rank unlike others."""
        return self.step_ns, self.late_ns, self.waits_ns, self.causes_ns


def rank_lines(report: Document) -> list[RankLine]:
    """The ranks by number; of more than eight, those that are unlike the others first, and the others as one line."""
    steps = max(1, kept_steps(report))
    lines = [_line(row, steps) for row in sorted(report.ranks, key=lambda row: row.rank)]
    if len(lines) <= _FEW:
        return lines
    usual = [_median(column) for column in zip(*(line.times for line in lines), strict=True)]
    apart = _ODD_SHARE * (usual[0] or 0)
    odd = [line for line in lines if line.straggler or _is_apart(line, usual, apart)]
    alike = [line for line in lines if line not in odd]
    odd.sort(key=lambda line: not line.straggler)
    return [*odd, _together(alike)] if len(alike) > 1 else [*odd, *alike]


def _line(row: RankRow, steps: int) -> RankLine:
    waits, causes = row.exposed_waiting_ns, row.causes_wait_ns
    return RankLine(
        name=str(row.rank),
        step_ns=row.step_ns,
        late_ns=row.late_ns,
        waits_ns=None if waits is None else waits / steps,
        causes_ns=None if causes is None else causes / steps,
        shares=row.shares,
        straggler=bool(row.straggler),
    )


def _is_apart(line: RankLine, usual: Sequence[float | None], apart: float) -> bool:
    pairs = zip(line.times, usual, strict=True)
    return any(
        value is not None and middle is not None and abs(value - middle) > apart for value, middle in pairs
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _together(lines: Sequence[RankLine]) -> RankLine:
    step, late, waits, causes = (
        _median(column) for column in zip(*(line.times for line in lines), strict=True)
    )
    shares = {name: round(median(line.shares[name] for line in lines)) for name in lines[0].shares}
    return RankLine(f"{count_text(len(lines))} alike (median)", step, late, waits, causes, shares, False)
