"""The memory section of a report that may hold timelines too: one clock, one set of phases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.memory.snapshot_section import history_origin_ns, summarise_memory
from profkit.memory.trace_section import summarise_trace_memory, trace_memory_later
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_memory import Memory, PhaseSpan
from profkit.timeline.view import TraceView

__all__ = ["fullest", "memory_row"]


def memory_row(
    histories: Sequence[MemoryHistory], views: Sequence[TraceView], offsets: Sequence[int]
) -> Memory | None:
    """The memory section: of one snapshot, else of what the timelines recorded.

    Of several snapshots it is one that was recorded during a timeline, and of those the one with the highest peak.

    A snapshot joins a timeline by clock when their times overlap: then both count from the report's origin, and a
    snapshot without annotations has the timeline's phases.

    Args:
        histories: The snapshots.
        views: The timelines.
        offsets: What to add to each timeline's times to have report times, in ns.
    """
    if not histories:
        recorded = [
            (summarise_trace_memory(view.trace, _phases(view, 0)), offset)
            for view, offset in zip(views, offsets, strict=True)
        ]
        return fullest([trace_memory_later(section, offset) for section, offset in recorded if section])
    sizes = _gpu_bytes(views)
    joined, apart = [], []
    for history in histories:
        view = next((at for at, each in enumerate(views) if _overlaps(history, each)), None)
        if view is not None:
            epoch = views[view].trace.unix_epoch_ns or 0
            phases = _phases(views[view], epoch)
            joined.append(summarise_memory(history, epoch - offsets[view], phases, sizes))
        elif any(
            each.operator_trace is not None and _overlaps(history, each.operator_trace) for each in views
        ):
            joined.append(summarise_memory(history, gpu_bytes=sizes))
        else:
            apart.append(summarise_memory(history, gpu_bytes=sizes))
    return fullest(joined or apart)


def fullest(sections: Sequence[Memory]) -> Memory | None:
    """The section with the highest peak."""
    return max(sections, key=lambda section: section.peak_allocated_bytes or 0, default=None)


def _gpu_bytes(views: Sequence[TraceView]) -> dict[int, int]:
    """The memory of the GPUs of the timelines by ordinal, where they agree."""
    found: dict[int, set[int]] = {}
    for device in (device for view in views for device in view.trace.devices):
        if device.memory_bytes:
            found.setdefault(device.ordinal, set()).add(device.memory_bytes)
    return {ordinal: sizes.pop() for ordinal, sizes in found.items() if len(sizes) == 1}


def _overlaps(history: MemoryHistory, view: TraceView) -> bool:
    """Whether a snapshot's history and a timeline were recorded at the same time."""
    epoch = view.trace.unix_epoch_ns
    times = history.events.time_ns[history.events.time_ns >= 0]
    first = history_origin_ns(history)
    if epoch is None or first is None or not len(times):
        return False
    return first < view.span[1] + epoch and int(times.max()) > view.span[0] + epoch


def _phases(view: TraceView, epoch: int) -> list[PhaseSpan]:
    ranges = view.trace.ranges
    rows = np.flatnonzero(view.phases.path >= 0)
    spans = zip(
        view.phases.path[rows].tolist(),
        ranges.start_ns[rows].tolist(),
        ranges.end_ns[rows].tolist(),
        strict=True,
    )
    return [
        PhaseSpan(path=view.phases.paths[path], start_ns=start + epoch, end_ns=end + epoch)
        for path, start, end in spans
    ]
