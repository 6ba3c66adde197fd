"""The memory section of a report that may hold timelines too: one clock, one set of phases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.memory.snapshot_section import history_span, summarise_memory
from profkit.memory.trace_section import summarise_trace_memory, trace_memory_later
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_memory import Memory, PhaseSpan
from profkit.timeline.view import Span, TraceView

__all__ = ["MemoryFound", "fullest", "memory_found", "overlap"]


@dataclass(frozen=True, eq=False)
class MemoryFound:
    """The memory section of a report, and what it was made from."""

    section: Memory
    history: MemoryHistory | None = None
    """The snapshot; None where the timelines recorded allocations themselves."""
    view: TraceView | None = None
    """The timeline that was recorded at the same time as the snapshot."""


def memory_found(
    histories: Sequence[MemoryHistory], views: Sequence[TraceView], offsets: Sequence[int]
) -> MemoryFound | None:
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
        section = fullest([trace_memory_later(section, offset) for section, offset in recorded if section])
        return MemoryFound(section) if section else None
    sizes = _gpu_bytes(views)
    joined, apart = list[MemoryFound](), list[MemoryFound]()
    for history in histories:
        at = next((at for at, each in enumerate(views) if _overlaps(history, each)), None)
        if at is not None:
            epoch = views[at].trace.unix_epoch_ns or 0
            section = summarise_memory(history, epoch - offsets[at], _phases(views[at], epoch), sizes)
            joined.append(MemoryFound(section, history, views[at]))
            continue
        beside = any(v.operator_trace is not None and _overlaps(history, v.operator_trace) for v in views)
        (joined if beside else apart).append(MemoryFound(summarise_memory(history, gpu_bytes=sizes), history))
    return max(joined or apart, key=lambda found: found.section.peak_allocated_bytes or 0)


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
    epoch, span = view.trace.unix_epoch_ns, history_span(history)
    return (
        epoch is not None and span is not None and overlap(span, (view.span[0] + epoch, view.span[1] + epoch))
    )


def overlap(history: Span, timeline: Span) -> bool:
    """Whether a snapshot's history and a timeline were recorded at the same time, both in Unix time."""
    return history[0] < timeline[1] and history[1] > timeline[0]


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
