"""What else differs: phases, memory, waits of the host, communication."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from profkit.comparison.memory_changes import compare_memory
from profkit.comparison.side import Side
from profkit.model.result import Row

__all__ = ["communication_pairs", "memory_pairs", "phase_pairs", "sync_pairs"]

Key = tuple[Any, ...]


def phase_pairs(before: Side, after: Side) -> list[Row]:
    """Phases by path, per step of one device: busy time with children, host time, kernels, memory peak."""
    numbers = ("gpu_inclusive_ns", "gpu_exclusive_ns", "host_wall_ns", "kernel_count")
    rows = _pairs(before, after, "phases", lambda row: (row["path"],), numbers)
    peaks = [_peaks(side) for side in (before, after)]
    found = []
    for (path,), numbers_of in rows:
        peak = [each.get(path) for each in peaks]
        found.append({"path": path, **numbers_of, "peak_allocated_bytes": _change(*peak)})
    return sorted(found, key=lambda row: (-abs(row["gpu_inclusive_ns"]["change"] or 0), row["path"]))


def sync_pairs(before: Side, after: Side) -> list[Row]:
    """Waits of the host by call, operator, place and phase, per step, the largest change of their cost first."""
    rows = _pairs(
        before,
        after,
        "syncs",
        lambda row: (row["api"], row["operator"], _without_line(row["where"]), row["phase"]),
        ("count", "blocked_ns", "cost_ns"),
    )
    names = ("api", "operator", "where", "phase")
    found = [{**dict(zip(names, key, strict=True)), **numbers} for key, numbers in rows]
    return sorted(
        found,
        key=lambda row: (
            -abs(row["cost_ns"]["change"] or 0),
            -abs(row["blocked_ns"]["change"] or 0),
            str(row),
        ),
    )


def communication_pairs(before: Side, after: Side) -> list[Row]:
    """Collectives by name and type, per step of one device."""
    rows = _pairs(
        before,
        after,
        "communication",
        lambda row: (row["collective"], row["dtype"]),
        ("count", "bytes", "total_ns", "exposed_ns"),
    )
    found = [{"collective": key[0], "dtype": key[1], **numbers} for key, numbers in rows]
    return sorted(found, key=lambda row: (-abs(row["exposed_ns"]["change"] or 0), str(row)))


def memory_pairs(before: Side, after: Side) -> Row | None:
    """Memory of the first report of each side that has it: peaks, owners, categories, and peaks by phase."""
    sections = [next((r.memory for r in side.results if r.memory), None) for side in (before, after)]
    if sections[0] is None or sections[1] is None:
        return None
    first, second = ({"at_peak": [], "by_category": [], **section} for section in (sections[0], sections[1]))
    peaks = [
        {row["path"]: row["peak_allocated_bytes"] for row in s.get("by_phase") or ()} for s in (first, second)
    ]
    by_phase = [
        {"path": path, **_change(peaks[0].get(path), peaks[1].get(path))} for path in {**peaks[0], **peaks[1]}
    ]
    return {
        **compare_memory(first, second),
        "by_phase": sorted(by_phase, key=lambda row: (-abs(row["change"] or 0), row["path"])),
    }


def _pairs(
    before: Side, after: Side, table: str, key_of: Callable[[Row], Key], numbers: tuple[str, ...]
) -> list[tuple[Key, Row]]:
    """The rows of a table with equal keys, united, as numbers per step; a missing row has 0, unknown is None."""
    sides = []
    for side in (before, after):
        sums: dict[Key, dict[str, float | None]] = {}
        for row in side.rows(table):
            known = sums.setdefault(key_of(row), dict.fromkeys(numbers, 0.0))
            for name in numbers:
                one, other = known[name], row.get(name)
                known[name] = None if one is None or other is None else one + other
        sides.append({key: {n: _per_step(side, v, n) for n, v in row.items()} for key, row in sums.items()})
    none: dict[str, float | None] = dict.fromkeys(numbers, 0)
    return [
        (key, {n: _change(sides[0].get(key, none)[n], sides[1].get(key, none)[n]) for n in numbers})
        for key in {**sides[0], **sides[1]}
    ]


def _per_step(side: Side, value: float | None, name: str) -> float | None:
    if value is None:
        return None
    return round(side.per_step(value)) if name.endswith("_ns") else round(side.per_step(value), 2)


def _change(before: float | None, after: float | None) -> Row:
    change = None if before is None or after is None else round(after - before, 2)
    return {"before": before, "after": after, "change": change}


def _peaks(side: Side) -> dict[str, int | None]:
    peaks: dict[str, int | None] = {}
    for row in side.rows("phases"):
        size = row["peak_allocated_bytes"]
        peaks[row["path"]] = (
            max(size, peaks.get(row["path"]) or 0) if size is not None else peaks.get(row["path"])
        )
    return peaks


def _without_line(where: str | None) -> str | None:
    """A place without its line, which moves whenever the file is edited."""
    file, colon, rest = (where or "").rpartition(":")
    line, _, function = rest.partition(" ")
    return where if not colon or not line.isdigit() else f"{file} {function}".rstrip()
