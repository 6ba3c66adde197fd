"""The memory section of a report that may hold timelines too: one clock, one set of phases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profkit.analysis.memory import PhaseSpan, history_origin_ns, summarise_memory, summarise_trace_memory
from profkit.analysis.result import Row
from profkit.analysis.view import TraceView
from profkit.model import MemoryHistory
from profkit.units import bytes_text

__all__ = ["give_phase_peaks", "memory_row", "memory_sentence"]


def memory_row(
    histories: Sequence[MemoryHistory], views: Sequence[TraceView], offsets: Sequence[int]
) -> Row | None:
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
            summarise_trace_memory(view.trace, _phases(view, 0), -offset)
            for view, offset in zip(views, offsets, strict=True)
        ]
        return _fullest([row for row in recorded if row is not None])
    joined, apart = [], []
    for history in histories:
        view = next((at for at, each in enumerate(views) if _overlaps(history, each)), None)
        if view is not None:
            epoch = views[view].trace.unix_epoch_ns or 0
            joined.append(summarise_memory(history, epoch - offsets[view], _phases(views[view], epoch)))
        elif any(each.lender is not None and _overlaps(history, each.lender) for each in views):
            joined.append(summarise_memory(history))
        else:
            apart.append(summarise_memory(history))
    return _fullest(joined or apart)


def give_phase_peaks(phases: Sequence[Row], memory: Row | None) -> None:
    """Give each phase of the timelines the peak that the memory section knows for its path."""
    peaks = {row["path"]: row["peak_allocated_bytes"] for row in memory["by_phase"]} if memory else {}
    for row in phases:
        row["peak_allocated_bytes"] = peaks.get(row["path"])


def memory_sentence(memory: Row) -> str:
    """What a snapshot by itself says, in place of a verdict on times."""
    peak = memory["peak_allocated_bytes"]
    if peak is None:
        return "The peak of memory is unknown: no history of allocations was recorded."
    text = f"Memory peaked at {bytes_text(peak)}"
    held = memory["at_peak"][0] if memory["at_peak"] else None
    if held and held["where"]:
        text += f"; {bytes_text(held['bytes'])} of it ({str(held['category']).replace('_', ' ')}) came from {held['where']}"
    if memory["oom"]:
        text += ", and it ran out"
    elif any(row["code"] == "leak" and row["severity"] == "warning" for row in memory["findings"]):
        text += ", and it grows from step to step"
    return f"{text}."


def _fullest(rows: Sequence[Row]) -> Row | None:
    return max(rows, key=lambda row: row["peak_allocated_bytes"] or 0, default=None)


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
    return [(view.phases.paths[path], start + epoch, end + epoch) for path, start, end in spans]
