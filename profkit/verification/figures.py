"""What a report says and what the raw files say of the same things, side by side, under one name each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from profkit.model.report import KernelRow, Report
from profkit.model.report_time import DeviceTotals, KernelTotal
from profkit.verification.derived import derived_figures
from profkit.verification.events import Op
from profkit.verification.intervals import length
from profkit.verification.said import said_figures
from profkit.verification.snapshots import DeviceMemory
from profkit.verification.timeline import Timeline

__all__ = ["Figure", "memory_figures", "timeline_figures"]

Figure = tuple[str, int | None, int | None]
"""A name, what the report says, what the files say."""

_KINDS = ("kernel", "memset", "graph")


def timeline_figures(report: Report, timelines: Sequence[Timeline]) -> list[Figure]:
    """Totals, devices, window, steps and kernels by name.

    Args:
        report: The report.
        timelines: All of its recordings that are timelines, in its order.
    """
    places = [(timeline, device) for timeline in timelines for device in timeline.devices]
    figures = [("devices", len(report.devices), len(places)), *_totals(report, timelines)]
    for totals, (timeline, device) in zip(report.totals.devices, places, strict=False):
        figures += _device_totals(totals, timeline, device)
    if any(timeline.number_of_steps for timeline in timelines) != bool(report.window.steps):
        # Steps that nobody marked are found by how launches repeat: plain means do not find them a second time.
        figures += _by_name(
            "totals.kernels", report.totals.kernels, [op for t in timelines for op in t.kernels()]
        )
        return figures + derived_figures(report, timelines)
    for row, (timeline, device) in zip(report.devices, places, strict=False):
        window = timeline.window(device)
        figures.append((f"devices[{row.id}].window_ns", row.window_ns, length(window)))
        busy = sum(timeline.busy_ns(device, *piece) for piece in window)
        figures.append((f"devices[{row.id}].busy_ns", row.busy_ns, busy))
    figures += _window(report, timelines, places)
    figures += _by_name(
        "totals.kernels", report.totals.kernels, [op for t in timelines for op in t.kernels()]
    )
    kept = [op for t in timelines for op in t.kernels() if t.in_window(op)]
    figures += _by_name("kernels", report.kernels, kept)
    return figures + said_figures(report, timelines) + derived_figures(report, timelines)


def memory_figures(report: Report, devices: Sequence[DeviceMemory]) -> list[Figure]:
    """Entries by action, what is held at the end, and the peaks of each device of one snapshot."""
    rows = {row.id: row for row in report.memory.devices} if report.memory is not None else {}
    figures: list[Figure] = [("memory.devices", len(rows), len(devices))]
    for device in devices:
        row, name = rows.get(device.device), f"memory.devices[{device.device}]"
        told = (row.actions if row is not None else None) or {}
        for action in sorted({*told, *device.actions}):
            figures.append((f"{name}.actions.{action}", told.get(action, 0), device.actions[action]))
        for key in (
            "reserved_bytes",
            "allocated_bytes",
            "active_bytes",
            "peak_reserved_bytes",
            "peak_allocated_bytes",
        ):
            known, said = getattr(device, key), getattr(row, key, None)
            if known is not None and said is not None:
                figures.append((f"{name}.{key}", said, known))
    return figures


def _totals(report: Report, timelines: Sequence[Timeline]) -> list[Figure]:
    kernels = [op for timeline in timelines for op in timeline.kernels()]
    hidden = not kernels and any(op.kind == "graph" for timeline in timelines for op in timeline.ops)
    worked_out = {
        "kernel_count": None if hidden else len(kernels),
        "kernel_sum_ns": sum(op.length for op in kernels),
        "kernel_union_ns": sum(timeline.summed_busy(timeline.kernels()) for timeline in timelines),
        "gpu_busy_ns": sum(timeline.summed_busy() for timeline in timelines),
        "gpu_span_ns": sum(timeline.span() for timeline in timelines),
        "copy_ns": sum(op.length for timeline in timelines for op in timeline.ops if op.kind not in _KINDS),
    }
    return [(f"totals.{name}", getattr(report.totals, name), value) for name, value in worked_out.items()]


def _device_totals(row: DeviceTotals, timeline: Timeline, device: int) -> list[Figure]:
    by_kind: dict[str, list[Op]] = {"kernel": [], "copy": [], "memset": [], "graph": []}
    for op in timeline.by_device[device]:
        by_kind[op.kind if op.kind in _KINDS else "copy"].append(op)
    name = f"totals.devices[{row.id}]"
    figures: list[Figure] = []
    for kind in ("kernel", "copy", "memset"):
        figures.append((f"{name}.{kind}_count", getattr(row, f"{kind}_count"), len(by_kind[kind])))
        summed = sum(op.length for op in by_kind[kind])
        figures.append((f"{name}.{kind}_sum_ns", getattr(row, f"{kind}_sum_ns"), summed))
    union = length(timeline.busy(device, by_kind["kernel"]))
    figures.append((f"{name}.kernel_union_ns", row.kernel_union_ns, union))
    figures.append((f"{name}.gpu_busy_ns", row.gpu_busy_ns, length(timeline.busy(device))))
    return figures


def _window(
    report: Report, timelines: Sequence[Timeline], places: Iterable[tuple[Timeline, int]]
) -> list[Figure]:
    windows = [piece for timeline, device in places for piece in timeline.window(device)]
    total = sum(end - start for start, end in windows)
    figures: list[Figure] = [("window.device_ns", report.window.device_ns, total)]
    if len(timelines) == 1 and windows:  # several files may be moved against each other
        origin = timelines[0].recording.edges()[0]
        for name, value in (
            ("start_ns", min(start for start, _ in windows)),
            ("end_ns", max(end for _, end in windows)),
        ):
            figures.append((f"window.{name}", getattr(report.window, name), value - origin))
    stepped = [timeline for timeline in timelines if timeline.number_of_steps]
    count = min((timeline.number_of_steps for timeline in stepped), default=0)
    figures.append(("window.steps", len(report.window.steps), count))
    for number, row in enumerate(report.window.steps[:count]):
        name = f"window.steps[{number}]"
        figures.append((f"{name}.kept", int(row.kept), int(all(t.is_kept(number) for t in stepped))))
        figures.append((f"{name}.device_ns", row.device_ns, sum(t.device_ns(number) for t in stepped)))
        busy = sum(
            timeline.busy_ns(device, *tile)
            for timeline in stepped
            for device, tile in timeline.tiles(number).items()
        )
        figures.append((f"{name}.gpu_busy_ns", row.gpu_busy_ns, busy))
    return figures


def _by_name(table: str, rows: Sequence[KernelRow | KernelTotal], kernels: Iterable[Op]) -> list[Figure]:
    told: dict[str, list[int]] = {}
    counted: dict[str, list[int]] = {}
    for row in rows:
        entry = told.setdefault(row.name, [0, 0])
        entry[0] += row.count
        entry[1] += row.total_ns
    for op in kernels:
        entry = counted.setdefault(op.name, [0, 0])
        entry[0] += 1
        entry[1] += op.length
    figures: list[Figure] = []
    for name in dict.fromkeys([*told, *counted]):
        ours, theirs = told.get(name, [0, 0]), counted.get(name, [0, 0])
        shown = name if len(name) <= 60 else f"{name[:57]}..."
        figures.append((f"{table}[{shown}].count", ours[0], theirs[0]))
        figures.append((f"{table}[{shown}].total_ns", ours[1], theirs[1]))
    return figures
