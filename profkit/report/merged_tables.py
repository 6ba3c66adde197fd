"""How the rows of each table of several files become the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from profkit.model.result import Row
from profkit.report.part import FileSummary
from profkit.roofline.kernel_table import KernelKey, share_of_busy
from profkit.timeline.idle_tables import MOST_GAPS, range_rows
from profkit.timeline.range_tables import MOST_OPERATORS
from profkit.timeline.window_parts import MOST_PARTS
from profkit.timeline.window_table import explain_outliers, largest_share

__all__ = [
    "added",
    "idle",
    "kernels",
    "operators",
    "part_rows",
    "phases",
    "ranges",
    "syncs",
    "totals",
    "window",
]


@dataclass(frozen=True)
class _Rule:
    """Rows with the same key are one; what is a number, or a map of numbers, is added."""

    key: tuple[str, ...]
    added: tuple[str, ...]


_PHASES: Final = _Rule(
    ("path",), ("count", "host_wall_ns", "gpu_inclusive_ns", "gpu_exclusive_ns", "kernel_count", "shares")
)
_OPERATORS: Final = _Rule(("name", "phase"), ("count", "host_ns", "host_self_ns", "gpu_ns", "gpu_self_ns"))
_RANGES: Final = _Rule(("domain", "kind", "name"), ("count", "host_wall_ns", "gpu_inclusive_ns"))
_SYNCS: Final = _Rule(("api", "operator", "where", "phase"), ("count", "blocked_ns", "cost_ns"))
_PARTS: Final = _Rule(("share", "cause", "family", "kernel", "phase", "rest"), ("ns",))


def added(one: Any, other: Any) -> Any:
    """The sum of two numbers or of two maps of numbers; what is unknown in one is unknown in the sum."""
    if isinstance(one, dict) and isinstance(other, dict):
        both = {k: added(one[k], other[k]) for k in one.keys() & other.keys()}
        return {k: both.get(k, v) for k, v in {**other, **one}.items()}
    return None if one is None or other is None else one + other


def _merged(rule: _Rule, tables: Sequence[Sequence[Row]]) -> list[Row]:
    rows: dict[tuple[Any, ...], Row] = {}
    for table in tables:
        for row in table:
            key = tuple(row.get(name) for name in rule.key)
            known = rows.get(key)
            if known is None:
                rows[key] = dict(row)
            else:
                known.update({name: added(known[name], row[name]) for name in rule.added})
    return list(rows.values())


def _ordered(rows: list[Row], by: Callable[[Row], Any], most: int | None = None) -> list[Row]:
    return sorted(rows, key=by)[:most]


def phases(files: Sequence[FileSummary], fullest: FileSummary | None) -> list[Row]:
    """Phases by path; peaks of memory are those of the file that has the memory section."""
    rows = _merged(_PHASES, [f.result.phases for f in files])
    peaks = {r["path"]: r["peak_allocated_bytes"] for r in fullest.result.phases} if fullest else {}
    for row in rows:
        row["bound"] = largest_share(row["shares"])
        row["peak_allocated_bytes"] = peaks.get(row["path"])
    return rows


def operators(files: Sequence[FileSummary]) -> list[Row]:
    """Operators by name and phase."""
    rows = _merged(_OPERATORS, [f.result.operators for f in files])
    return _ordered(
        rows,
        lambda r: (-r["gpu_self_ns"], -r["host_self_ns"], r["name"], str(r["phase"])),
        MOST_OPERATORS,
    )


def ranges(files: Sequence[FileSummary]) -> list[Row]:
    """Other ranges by domain, kind and name."""
    rows = _merged(_RANGES, [f.result.ranges for f in files])
    return _ordered(
        rows, lambda r: (-r["gpu_inclusive_ns"], -r["host_wall_ns"], r["name"], r["kind"]), MOST_OPERATORS
    )


def syncs(files: Sequence[FileSummary]) -> list[Row]:
    """Waits by call, operator, line and phase."""
    rows = _merged(_SYNCS, [f.result.syncs for f in files])
    return _ordered(rows, lambda r: (-r["cost_ns"], -r["blocked_ns"], *map(str, list(r.values())[:4])))


def kernels(files: Sequence[FileSummary], busy_ns: int, first_device: Sequence[int]) -> list[Row]:
    """Kernels by name and launch shape. Where files disagree on a bound or basis, that with most time counts."""
    rows: dict[KernelKey, list[tuple[Row, Any]]] = {}
    for file, first in zip(files, first_device, strict=True):
        for row in file.result.kernels:
            key = KernelKey.of(row)
            devices = {str(int(d) + first): ns for d, ns in row["devices"].items()}
            rows.setdefault(key, []).append(({**row, "devices": devices}, file.kernel_ns[key]))
    made = [_kernel(parts, busy_ns) for parts in rows.values()]
    return _ordered(
        made, lambda r: (-r["total_ns"], r["name"], *(str(r[k]) for k in ("grid", "block", "shapes")))
    )


def _kernel(parts: Sequence[tuple[Row, Any]], busy_ns: int) -> Row:
    rows = [row for row, _ in parts]
    main = max(rows, key=lambda r: r["total_ns"])
    duration = np.sort(np.concatenate([ns for _, ns in parts]))
    total, count = int(duration.sum()), len(duration)
    sums = {}
    for name in ("flop", "dram_bytes", "phases", "operators", "steps", "devices", "modules", "source_lines"):
        value = rows[0][name]
        for row in rows[1:]:
            value = added(value, row[name])
        sums[name] = value
    same = [r for r in rows if r["bound"] == main["bound"] and r["efficiency"] is not None]
    term = sum(r["efficiency"] * r["total_ns"] for r in same)
    judged = [r for r in rows if r["unsaturated"] is not None]
    slow = sum(r["total_ns"] for r in judged if r["unsaturated"])
    return {
        **main,
        **sums,
        "count": count,
        "total_ns": total,
        "mean_ns": round(total / count),
        "median_ns": int(duration[(count - 1) // 2] + duration[count // 2]) // 2,
        "min_ns": int(duration[0]),
        "max_ns": int(duration[-1]),
        "share": share_of_busy(total, busy_ns),
        "efficiency": term / sum(r["total_ns"] for r in same) if same and term else main["efficiency"],
        "unsaturated": slow * 2 > sum(r["total_ns"] for r in judged) if judged else None,
        "tflops": None if sums["flop"] is None or not total else sums["flop"] / total / 1e3,
        "gbs": None if sums["dram_bytes"] is None or not total else sums["dram_bytes"] / total,
    }


def totals(files: Sequence[FileSummary], first_device: Sequence[int]) -> Row:
    """Counts and times of the whole files; devices are numbered on from those of the files before."""
    row: Row = {}
    for file in files:
        own = {k: v for k, v in file.result.totals.items() if k not in ("kernels", "devices")}
        row = added(row, own) if row else own
    names = _merged(_Rule(("name",), ("count", "total_ns")), [f.result.totals["kernels"] for f in files])
    devices = [
        {**device, "id": device["id"] + first}
        for file, first in zip(files, first_device, strict=True)
        for device in file.result.totals["devices"]
    ]
    return {
        **row,
        "kernels": _ordered(names, lambda k: (-k["total_ns"], str(k["name"]))),
        "devices": devices,
    }


def window(files: Sequence[FileSummary], shifts: Sequence[int]) -> Row:
    """The window and its steps, on the report's clock."""
    own = [(f.result.window, shift) for f, shift in zip(files, shifts, strict=True)]
    start = min((w["start_ns"] + shift for w, shift in own), default=0)
    end = max((w["end_ns"] + shift for w, shift in own), default=0)
    stepped = [(w, shift) for w, shift in own if w["steps"]]
    return {
        "start_ns": start,
        "end_ns": end,
        "wall_ns": max((w["wall_ns"] for w, _ in stepped), default=end - start),
        "device_ns": sum(w["device_ns"] for w, _ in own),
        "steps": _steps(stepped),
        "parts": part_rows([w["parts"] for w, _ in own]),
    }


def _steps(stepped: Sequence[tuple[Row, int]]) -> list[Row]:
    rows = []
    for at in range(min((len(w["steps"]) for w, _ in stepped), default=0)):
        own = [(w["steps"][at], shift) for w, shift in stepped]
        row = dict(own[0][0])
        for other, _ in own[1:]:
            row.update({n: added(row[n], other[n]) for n in ("device_ns", "gpu_busy_ns", "shares")})
        row["kept"] = all(step["kept"] for step, _ in own)
        row["wall_ns"] = max(step["wall_ns"] for step, _ in own)
        row["start_ns"] = min(step["start_ns"] + shift for step, shift in own)
        row["end_ns"] = max(step["end_ns"] + shift for step, shift in own)
        row["bound"], row["note"] = largest_share(row["shares"]), None
        rows.append(row)
    explain_outliers(rows)
    return rows


def part_rows(tables: Sequence[Sequence[Row]]) -> list[Row]:
    """The window taken apart; beyond `MOST_PARTS`, rows are united as in one file."""
    rows = _merged(_PARTS, tables)
    named = _ordered(
        [r for r in rows if not r.get("rest")],
        lambda r: (-r["ns"], str(tuple(r[n] for n in _PARTS.key[:5]))),
    )
    beyond = [{**r, "kernel": None, "phase": None, "rest": True} for r in named[MOST_PARTS:]]
    return named[:MOST_PARTS] + _merged(_PARTS, [[r for r in rows if r.get("rest")], beyond])


def idle(files: Sequence[FileSummary], shifts: Sequence[int], first_device: Sequence[int]) -> Row:
    """Idle time by cause, the longest gaps of all, and what the host did meanwhile."""
    own = [f.result.idle for f in files]
    by_cause: Row = {}
    for row in own:
        by_cause = added(by_cause, row["by_cause"])
    gaps = [
        {**gap, "device": gap["device"] + first, "start_ns": gap["start_ns"] + shift}
        for row, shift, first in zip(own, shifts, first_device, strict=True)
        for gap in row["gaps"]
    ]
    gaps.sort(key=lambda g: (-g["dur_ns"], g["device"], g["start_ns"]))
    by_range: dict[tuple[str, str], int] = {}
    for each in (each for row in own for each in row["by_range"]):
        by_range[each["cause"], each["name"]] = by_range.get((each["cause"], each["name"]), 0) + each["ns"]
    return {
        "total_ns": sum(row["total_ns"] for row in own),
        "by_cause": by_cause,
        "by_range": range_rows(by_range),
        "gaps": gaps[:MOST_GAPS],
        "gaps_left_out": sum(row["gaps_left_out"] for row in own) + max(len(gaps) - MOST_GAPS, 0),
        "host": _host([row["host"] for row in own]),
    }


def _host(rows: Sequence[Row]) -> Row:
    made: Row = {}
    for row in rows:
        made = added(made, {k: v for k, v in row.items() if k != "by_operator"})
    names = _merged(_Rule(("name",), ("ns",)), [row["by_operator"] for row in rows])
    most = max((len(row["by_operator"]) for row in rows), default=0)
    return {**made, "by_operator": _ordered(names, lambda r: (-r["ns"], r["name"]), most)}
