"""How the rows of each table of several files become the rows of one table."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from profkit.model.report_kernels import KernelRow
from profkit.model.report_time import Idle, PhaseRow, StepRow, Totals, Window
from profkit.model.rows import replace
from profkit.model.summing import added
from profkit.report.part import FileSummary
from profkit.roofline.kernel_table import kernel_rows, kernels_together
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


def kernels(files: Sequence[FileSummary], busy_ns: int, first_device: Sequence[int]) -> list[KernelRow]:
    """Kernels by name, launch shape and input shapes."""
    numbered = (
        kernel.numbered(first)
        for file, first in zip(files, first_device, strict=True)
        for kernel in file.kernels
    )
    return kernel_rows(kernels_together(numbered), busy_ns)


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
