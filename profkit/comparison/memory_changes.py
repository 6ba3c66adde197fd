"""Two snapshots compared: whose memory at the peak grew, and whose shrank."""

from __future__ import annotations

from collections.abc import Sequence

from profkit.model.result import Row

__all__ = ["compare_memory"]


def compare_memory(before: Row, after: Row) -> Row:
    """Compare two ``memory`` sections by owner, the largest change first.

    Line numbers move when a file is edited, so owners are matched by file and function as well: an owner that
    only one side has takes the one of the same file, function and category that only the other has.

    Returns:
        ``{peak_allocated_bytes, peak_reserved_bytes, owners, categories}``: the first two are
        ``{before, after, change}``, the others rows ``{category, where, before, after, change}``; an unknown
        side makes its change null.
    """
    return {
        **{
            key: _change(before.get(key), after.get(key))
            for key in ("peak_allocated_bytes", "peak_reserved_bytes")
        },
        "owners": _rows(_moved(_table(before["at_peak"]), _table(after["at_peak"]))),
        "categories": _rows(
            [(key, *sizes) for key, sizes in _paired(before["by_category"], after["by_category"])]
        ),
    }


Key = tuple[str | None, str | None]


def _change(before: int | None, after: int | None) -> Row:
    return {
        "before": before,
        "after": after,
        "change": None if before is None or after is None else after - before,
    }


def _table(rows: Sequence[Row]) -> dict[Key, int]:
    return {(row["category"], row.get("where")): int(row["bytes"]) for row in rows}


def _paired(before: Sequence[Row], after: Sequence[Row]) -> list[tuple[Key, tuple[int, int]]]:
    first, second = _table(before), _table(after)
    return [(key, (first.get(key, 0), second.get(key, 0))) for key in {**first, **second}]


def _moved(before: dict[Key, int], after: dict[Key, int]) -> list[tuple[Key, int, int]]:
    """Both sides of each owner; owners of one side only are joined when nothing but their line differs."""
    rows = [(key, before[key], after[key]) for key in before if key in after]
    gone: dict[Key, list[Key]] = {}
    for key in before:
        if key not in after:
            gone.setdefault(_place(key), []).append(key)
    for key in after:
        if key not in before:
            twins = gone.get(_place(key))
            rows.append((key, before[twins.pop(0)] if twins else 0, after[key]))
    return rows + [(key, before[key], 0) for keys in gone.values() for key in keys]


def _place(key: Key) -> Key:
    """An owner without its line: ``train.py:12 forward`` is ``train.py forward``."""
    category, where = key
    file, colon, rest = (where or "").partition(":")
    line, _, function = rest.partition(" ")
    return (category, f"{file} {function}") if colon and line.isdigit() else key


def _rows(sizes: Sequence[tuple[Key, int, int]]) -> list[Row]:
    rows = [
        {"category": category, "where": where, **_change(before, after)}
        for (category, where), before, after in sizes
    ]
    return sorted(rows, key=lambda row: (-abs(int(row["change"])), str(row["where"])))
