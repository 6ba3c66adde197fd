"""How the rows of each table of several files become the rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from profkit.model.report_time import Idle, PhaseRow, StepRow, Totals, Window
from profkit.model.result import Row
from profkit.model.rows import replace
from profkit.model.summing import added
from profkit.report.part import FileSummary
from profkit.roofline.kernel_table import KernelKey, share_of_busy
from profkit.timeline.host_time import summed_host_time
from profkit.timeline.idle_tables import largest_ranges, longest_gaps
from profkit.timeline.phase_table import summed_phases
from profkit.timeline.window_parts import longest_parts
from profkit.timeline.window_table import explained, kernel_totals, largest_share

__all__ = [
    "idle",
    "kernels",
    "phases",
    "totals",
    "window",
]


def phases(files: Sequence[FileSummary], fullest: FileSummary | None) -> list[PhaseRow]:
    """Phases by path; peaks of memory are those of the file that has the memory section."""
    memory = fullest.result.memory if fullest else None
    return summed_phases([row for f in files for row in f.result.phases], memory)


def _ordered(rows: list[Row], by: Callable[[Row], Any], most: int | None = None) -> list[Row]:
    return sorted(rows, key=by)[:most]


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


def totals(files: Sequence[FileSummary], first_device: Sequence[int]) -> Totals:
    """Counts and times of the whole files; devices are numbered on from those of the files before."""
    own = [f.result.totals for f in files]
    summed: Totals = reduce(added, [replace(each, kernels=(), devices=()) for each in own])
    devices = [
        replace(device, id=device.id + first)
        for each, first in zip(own, first_device, strict=True)
        for device in each.devices
    ]
    kernels = kernel_totals([row for each in own for row in each.kernels])
    return replace(summed, kernels=kernels, devices=devices)


def window(files: Sequence[FileSummary], shifts: Sequence[int]) -> Window:
    """The window and its steps, on the report's clock."""
    own = [(f.result.window, shift) for f, shift in zip(files, shifts, strict=True)]
    start = min((w.start_ns + shift for w, shift in own), default=0)
    end = max((w.end_ns + shift for w, shift in own), default=0)
    stepped = [(w, shift) for w, shift in own if w.steps]
    return Window(
        start_ns=start,
        end_ns=end,
        wall_ns=max((w.wall_ns for w, _ in stepped), default=end - start),
        device_ns=sum(w.device_ns for w, _ in own),
        steps=_steps(stepped),
        parts=longest_parts([row for w, _ in own for row in w.parts]),
    )


def _steps(stepped: Sequence[tuple[Window, int]]) -> list[StepRow]:
    rows = []
    for at in range(min((len(w.steps) for w, _ in stepped), default=0)):
        own = [w.steps[at] for w, _ in stepped]
        shares = reduce(added, [step.shares for step in own])
        rows.append(
            replace(
                own[0],
                kept=all(step.kept for step in own),
                wall_ns=max(step.wall_ns or 0 for step in own),
                device_ns=sum(step.device_ns for step in own),
                gpu_busy_ns=sum(step.gpu_busy_ns for step in own),
                shares=shares,
                start_ns=min(w.steps[at].start_ns + shift for w, shift in stepped),
                end_ns=max(w.steps[at].end_ns + shift for w, shift in stepped),
                bound=largest_share(shares),
                excess=None,
            )
        )
    return explained(rows)


def idle(files: Sequence[FileSummary], shifts: Sequence[int], first_device: Sequence[int]) -> Idle:
    """Idle time by cause, the longest gaps of all, and what the host did meanwhile."""
    own: list[Idle] = [f.result.idle for f in files]
    gaps = [
        replace(gap, device=gap.device + first, start_ns=gap.start_ns + shift)
        for row, shift, first in zip(own, shifts, first_device, strict=True)
        for gap in row.gaps
    ]
    longest = longest_gaps(gaps)
    return Idle(
        total_ns=sum(row.total_ns for row in own),
        by_cause=reduce(added, [row.by_cause for row in own]),
        by_range=largest_ranges([each for row in own for each in row.by_range]),
        gaps=longest,
        gaps_left_out=sum(row.gaps_left_out for row in own) + len(gaps) - len(longest),
        host=summed_host_time([row.host for row in own]),
    )
