"""Two snapshots compared: whose memory at the peak grew, and whose shrank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from profkit.comparison.rows import Change, MemoryChange, MemoryComparison, PeakChange
from profkit.comparison.side import Side
from profkit.model.report_memory import Memory

__all__ = ["compare_memory", "memory_changes"]

Owner = tuple[str | None, str | None]


def memory_changes(before: Side, after: Side) -> MemoryComparison | None:
    """Memory of the first report of each side that has it; None where one has none."""
    first, second = (
        next((r.memory for r in side.reports if r.memory is not None), None) for side in (before, after)
    )
    return None if first is None or second is None else compare_memory(first, second)


def compare_memory(before: Memory, after: Memory) -> MemoryComparison:
    """Compare two memory sections by owner, category and phase, the largest change first.

    Line numbers move when a file is edited, so owners are matched by file and function as well: an owner that
    only one side has takes the one of the same file, function and category that only the other has.
    """
    owners: list[dict[Owner, int]] = [
        {(row.category, row.where): row.bytes for row in memory.at_peak} for memory in (before, after)
    ]
    categories: list[dict[Owner, int]] = [
        {(row.category, None): row.bytes for row in memory.by_category} for memory in (before, after)
    ]
    return MemoryComparison(
        peak_allocated_bytes=Change.of(before.peak_allocated_bytes, after.peak_allocated_bytes),
        peak_reserved_bytes=Change.of(before.peak_reserved_bytes, after.peak_reserved_bytes),
        owners=_rows(_moved(*owners)),
        categories=_rows([(key, categories[0].get(key, 0), categories[1].get(key, 0)) for key in {**categories[0], **categories[1]}]),
        by_phase=_peaks(*({row.path: row.peak_allocated_bytes for row in m.by_phase} for m in (before, after))),
    )  # fmt: skip


def _peaks(before: Mapping[str, int | None], after: Mapping[str, int | None]) -> list[PeakChange]:
    rows = []
    for path in {**before, **after}:
        was, now = before.get(path), after.get(path)
        change = None if was is None or now is None else now - was
        rows.append(PeakChange(path=path, before=was, after=now, change=change))
    return sorted(rows, key=lambda row: (-abs(row.change or 0), row.path))


def _moved(before: Mapping[Owner, int], after: Mapping[Owner, int]) -> list[tuple[Owner, int, int]]:
    """Both sides of each owner; owners of one side only are joined when nothing but their line differs."""
    rows = [(key, before[key], after[key]) for key in before if key in after]
    gone: dict[Owner, list[Owner]] = {}
    for key in before:
        if key not in after:
            gone.setdefault(_place(key), []).append(key)
    for key in after:
        if key not in before:
            twins = gone.get(_place(key))
            rows.append((key, before[twins.pop(0)] if twins else 0, after[key]))
    return rows + [(key, before[key], 0) for keys in gone.values() for key in keys]


def _place(key: Owner) -> Owner:
    """An owner without its line: ``train.py:12 forward`` is ``train.py forward``."""
    category, where = key
    file, colon, rest = (where or "").partition(":")
    line, _, function = rest.partition(" ")
    return (category, f"{file} {function}") if colon and line.isdigit() else key


def _rows(sizes: Sequence[tuple[Owner, int, int]]) -> list[MemoryChange]:
    rows = [
        MemoryChange(category=category, where=where, before=before, after=after, change=after - before)
        for (category, where), before, after in sizes
    ]
    return sorted(rows, key=lambda row: (-abs(row.change), str(row.where)))
