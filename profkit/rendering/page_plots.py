"""What the page's plots draw: a timeline, memory, GPU metrics, thinned out so that what stands out is kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from profkit.model.report import Memory, Timeline, UtilisationRow
from profkit.model.report_memory import Allocation, LargestAllocations, MemoryCurve, PhaseSpan, StackNode
from profkit.model.report_time import Lane
from profkit.rendering.digest import number_of
from profkit.rendering.page_strings import PageStrings

__all__ = ["MemoryPlots", "Series", "TimelinePlot", "memory_plots", "series_of", "timeline_plot"]

_BARS: Final = 6000
_LANES: Final = 48
_CURVES: Final = 8
_CURVE_POINTS: Final = 3000
_SPANS: Final = 200
_STACK_NODES: Final = 500
_ALLOCATIONS: Final = 600


class PlotLane(msgspec.Struct, frozen=True):
    """A lane with its bars: start, length, name, tone and phase, texts as indices of the strings."""

    kind: str
    label: int
    bars: Sequence[tuple[int, int, int, int, int]]


class TimelinePlot(msgspec.Struct, frozen=True):
    """One step as lanes of bars."""

    step: int
    device: int
    start_ns: int
    end_ns: int
    left_out: int
    """Bars that are not drawn."""
    lanes: Sequence[PlotLane]
    queue: Sequence[tuple[int, int]]
    """Instants, and how many operations are queued from then on."""


class Curve(msgspec.Struct, frozen=True):
    """Memory over time, or over the events of a history without times."""

    id: int
    timed: bool
    x: Sequence[int]
    allocated_bytes: Sequence[int]
    reserved_bytes: Sequence[int]
    phases: Sequence[PhaseSpan]


class LargestPlot(msgspec.Struct, frozen=True):
    """The largest allocations as start, end, bytes, category and line, on the axis of their device's curve.

    A start of null is before the history; an end of null after it.
    """

    device: int
    timed: bool
    bars: Sequence[tuple[int | None, int | None, int, int, int]]
    left: int
    left_bytes: int


class MemoryPlots(msgspec.Struct, frozen=True):
    """The plots of the memory section."""

    curves: Sequence[Curve]
    stacks: Sequence[tuple[int, int, int, int]]
    """The frames at the peak as parent, name, bytes and blocks; parents before children."""
    largest: LargestPlot | None


class Series(msgspec.Struct, frozen=True):
    """A metric over time."""

    device: int
    metric: str
    time_ns: Sequence[int]
    value: Sequence[float | None]


def timeline_plot(timeline: Timeline | None, strings: PageStrings) -> TimelinePlot | None:
    """The longest bars of each lane, which tell its story, and the number of the others."""
    if timeline is None or not any(lane.bars for lane in timeline.lanes):
        return None
    lanes = timeline.lanes[:_LANES]
    share = max(1, _BARS // len(lanes))
    drawn = [_lane(lane, share, strings) for lane in lanes]
    left = sum(len(lane.bars) for lane in timeline.lanes) - sum(len(lane.bars) for lane in drawn)
    return TimelinePlot(
        step=strings.add(timeline.step),
        device=timeline.device,
        start_ns=timeline.start_ns,
        end_ns=timeline.end_ns,
        left_out=left + timeline.left_out,
        lanes=drawn,
        queue=timeline.queue,
    )


def _lane(lane: Lane, most: int, strings: PageStrings) -> PlotLane:
    longest = sorted(lane.bars, key=lambda bar: -bar[1])[:most]
    label = strings.add(lane.label)
    bars = [
        (start, length, strings.add(name), strings.add(tone), strings.add(phase))
        for start, length, name, tone, phase in sorted(longest, key=lambda bar: bar[0])
    ]
    return PlotLane(lane.kind, label, bars)


def memory_plots(memory: Memory | None, strings: PageStrings) -> MemoryPlots | None:
    """Memory over time, its largest allocations and the stacks of the peak, as far as they are known."""
    if memory is None:
        return None
    curves = [curve for row in memory.curve[:_CURVES] if (curve := _curve(row)).x]
    stacks = _flat_tree(memory.stacks, strings)
    largest = _largest(memory.largest, curves, strings)
    return MemoryPlots(curves, stacks, largest) if curves or stacks or largest else None


def _curve(row: MemoryCurve) -> Curve:
    timed = bool(row.time_ns)
    x = (row.time_ns if timed else row.event) or ()
    allocated, reserved = row.allocated_bytes or (), row.reserved_bytes or ()
    picks = _peaks(allocated, len(x))
    return Curve(
        id=row.id,
        timed=timed,
        x=[x[i] for i in picks],
        allocated_bytes=[allocated[i] for i in picks] if len(allocated) == len(x) else [],
        reserved_bytes=[reserved[i] for i in picks] if len(reserved) == len(x) else [],
        phases=row.phases[:_SPANS] if timed else (),
    )


def _largest(
    largest: LargestAllocations | None, curves: Sequence[Curve], strings: PageStrings
) -> LargestPlot | None:
    if largest is None or not largest.rows:
        return None
    rows = sorted(largest.rows, key=lambda row: -row.bytes)
    timed = any(curve.timed for curve in curves if curve.id == largest.device)
    more = rows[_ALLOCATIONS:]
    return LargestPlot(
        device=largest.device,
        timed=timed,
        bars=[
            (
                row.start_ns if timed else row.start_event,
                row.end_ns if timed else row.end_event,
                row.bytes,
                strings.add(row.category),
                strings.add(_line_of(row)),
            )
            for row in rows[:_ALLOCATIONS]
        ],
        left=largest.left_out.count + len(more),
        left_bytes=largest.left_out.peak_bytes + sum(row.bytes for row in more),
    )


def _line_of(row: Allocation) -> str | None:
    """Where an allocation came from; where no line of the program is known, the innermost frame."""
    return row.where or next(iter(reversed(row.stack)), None)


def _flat_tree(root: StackNode | None, strings: PageStrings) -> list[tuple[int, int, int, int]]:
    """The largest frames, parents before children."""
    if root is None or not root.bytes:
        return []
    flat: list[tuple[int, int, int, int]] = []
    waiting = [(-1, root)]
    while waiting and len(flat) < _STACK_NODES:
        at = max(range(len(waiting)), key=lambda i: waiting[i][1].bytes)
        parent, node = waiting.pop(at)
        flat.append((parent, strings.add(node.name), node.bytes, node.count))
        waiting.extend((len(flat) - 1, child) for child in node.children)
    return flat


def _peaks(values: Sequence[float], length: int) -> list[int]:
    """Indices of at most `_CURVE_POINTS` points that keep each stretch's lowest and highest value."""
    if length <= _CURVE_POINTS or len(values) != length:
        return list(range(length))[:_CURVE_POINTS]
    size = -(-2 * length // _CURVE_POINTS)
    picks: set[int] = {0, length - 1}
    for start in range(0, length, size):
        stretch = range(start, min(start + size, length))
        picks |= {min(stretch, key=values.__getitem__), max(stretch, key=values.__getitem__)}
    return sorted(picks)


def series_of(row: UtilisationRow) -> Series:
    """A metric with its lowest and highest values kept."""
    picks = _peaks([number_of(value) for value in row.value], min(len(row.time_ns), len(row.value)))
    return Series(
        device=row.device,
        metric=row.metric[:120],
        time_ns=[row.time_ns[i] for i in picks],
        value=[row.value[i] for i in picks],
    )
