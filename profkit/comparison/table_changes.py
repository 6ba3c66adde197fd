"""What else differs: phases, waits of the host, communication."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar

from profkit.comparison.rows import Change, CommunicationChange, PhaseDetail, SyncChange
from profkit.comparison.side import Side
from profkit.model.report import Report
from profkit.model.report_ranks import CommunicationRow
from profkit.model.report_time import PhaseRow, SyncRow

__all__ = ["communication_changes", "phase_details", "sync_changes"]

Key = TypeVar("Key")
Row = TypeVar("Row", PhaseRow, SyncRow, CommunicationRow)
Values: TypeAlias = Sequence[float | None]


def phase_details(before: Side, after: Side) -> list[PhaseDetail]:
    """Phases by path, per step of one device; the largest change of busy time first."""

    def values(side: Side, row: PhaseRow) -> Values:
        return (
            side.busy_per_step(row.gpu_inclusive_ns),
            side.busy_per_step(row.gpu_exclusive_ns),
            side.per_step(row.host_wall_ns),
            _each(side, row.kernel_count),
        )

    pairs = _pairs(before, after, lambda report: report.phases, lambda row: row.path, values)
    peaks = [_peaks(side) for side in (before, after)]
    rows = [
        PhaseDetail(
            path=path,
            gpu_inclusive_ns=_whole(was[0], now[0]),
            gpu_exclusive_ns=_whole(was[1], now[1]),
            host_wall_ns=_whole(was[2], now[2]),
            kernel_count=_rounded(was[3], now[3]),
            peak_allocated_bytes=Change.of(peaks[0].get(path), peaks[1].get(path)),
        )
        for path, was, now in pairs
    ]
    return sorted(rows, key=lambda row: (-abs(row.gpu_inclusive_ns.change or 0), row.path))


def sync_changes(before: Side, after: Side) -> list[SyncChange]:
    """Waits of the host by call, operator, place and phase, per step, the largest change of their cost first."""

    def values(side: Side, row: SyncRow) -> Values:
        return side.per_step(row.count), side.per_step(row.blocked_ns), _each(side, row.cost_ns)

    def key(row: SyncRow) -> tuple[str, str | None, str | None, str | None]:
        return row.api, row.operator, _without_line(row.where), row.phase

    rows = [
        SyncChange(
            api=api,
            operator=operator,
            where=where,
            phase=phase,
            count=_rounded(was[0], now[0]),
            blocked_ns=_whole(was[1], now[1]),
            cost_ns=_whole(was[2], now[2]),
        )
        for (api, operator, where, phase), was, now in _pairs(
            before, after, lambda report: report.syncs, key, values
        )
    ]
    return sorted(
        rows,
        key=lambda row: (-abs(row.cost_ns.change or 0), -abs(row.blocked_ns.change or 0), str(row)),
    )


def communication_changes(before: Side, after: Side) -> list[CommunicationChange]:
    """Collectives by name and type, per step of one device, the largest change of exposed time first."""

    def values(side: Side, row: CommunicationRow) -> Values:
        numbers = (row.count, row.bytes, row.total_ns, row.exposed_ns)
        return [_each(side, number) for number in numbers]

    pairs = _pairs(
        before, after, lambda report: report.communication, lambda row: (row.collective, row.dtype), values
    )
    rows = [
        CommunicationChange(
            collective=collective,
            dtype=dtype,
            count=_rounded(was[0], now[0]),
            bytes=_rounded(was[1], now[1]),
            total_ns=_whole(was[2], now[2]),
            exposed_ns=_whole(was[3], now[3]),
        )
        for (collective, dtype), was, now in pairs
    ]
    return sorted(rows, key=lambda row: (-abs(row.exposed_ns.change or 0), str(row)))


def _pairs(
    before: Side,
    after: Side,
    table: Callable[[Report], Sequence[Row]],
    key_of: Callable[[Row], Key],
    values: Callable[[Side, Row], Values],
) -> list[tuple[Key, Values, Values]]:
    """The rows of a table with equal keys, united, as numbers per step; a missing row has 0, unknown is None."""
    sides = []
    for side in (before, after):
        sums: dict[Key, Values] = {}
        for row in (row for report in side.reports for row in table(report)):
            new, known = values(side, row), sums.get(key_of(row))
            sums[key_of(row)] = new if known is None else _summed(known, new)
        sides.append(sums)
    first, second = sides
    width = max((len(each) for side in sides for each in side.values()), default=0)
    nothing = (0.0,) * width
    return [(key, first.get(key, nothing), second.get(key, nothing)) for key in {**first, **second}]


def _summed(one: Values, other: Values) -> Values:
    return [None if a is None or b is None else a + b for a, b in zip(one, other, strict=True)]


def _each(side: Side, amount: float | None) -> float | None:
    return None if amount is None else side.per_step(amount)


def _whole(before: float | None, after: float | None) -> Change:
    return Change.of(*(None if each is None else round(each) for each in (before, after)))


def _rounded(before: float | None, after: float | None) -> Change:
    return Change.of(*(None if each is None else round(each, 2) for each in (before, after)))


def _peaks(side: Side) -> dict[str, int | None]:
    peaks: dict[str, int | None] = {}
    rows: Iterable[PhaseRow] = (row for report in side.reports for row in report.phases)
    for row in rows:
        known = [size for size in (row.peak_allocated_bytes, peaks.get(row.path)) if size is not None]
        peaks[row.path] = max(known, default=None)
    return peaks


def _without_line(where: str | None) -> str | None:
    """A place without its line, which moves whenever the file is edited."""
    file, colon, rest = (where or "").rpartition(":")
    line, _, function = rest.partition(" ")
    return where if not colon or not line.isdigit() else f"{file} {function}".rstrip()
