"""When the host is in some layers of a forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from profkit.memory.categories import BACKWARD
from profkit.model import IntColumn
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.recompute_memory import Segment

__all__ = ["LayerTimes", "layer_times"]

_FORWARD = 0


@dataclass(frozen=True)
class LayerTimes:
    """When the host was in some layers of a forward pass."""

    unix_ns: Sequence[tuple[int, int]]
    """In each step of the history."""
    shares: Sequence[tuple[float, float]]
    """In the last of them: 0 is the begin of its forward pass, 1 its end."""
    tensors: int = 0
    """How many tensors the layers of that step keep."""


def layer_times(program: MemoryProgram, segments: Sequence[Segment]) -> LayerTimes:
    """When the layers run: from a layer's first activation to the next one's, so that its last kernel is in it."""
    events = program.replayed.events.time_ns
    spans = [_host_span(program, events, place, segments) for place in range(len(segments))]
    if not segments:
        return LayerTimes((), ())
    last = max(segment.step for segment in segments)
    mine = [span for span, segment in zip(spans, segments, strict=True) if segment.step == last]
    start = next(segment for segment in segments if segment.step == last).first(program)
    before = np.flatnonzero(program.activity[:start] != _FORWARD)
    after = np.flatnonzero(program.activity[start:] == BACKWARD)
    since = int(events[int(before[-1]) + 1 if len(before) else 0])
    until = int(events[start + int(after[0]) if len(after) else len(events) - 1])
    length = max(until - since, 1)
    shares = [((begin - since) / length, (end - since) / length) for begin, end in mine]
    return LayerTimes(spans, shares, sum(len(each.rows) for each in segments if each.step == last))


def _host_span(
    program: MemoryProgram, events: IntColumn, place: int, segments: Sequence[Segment]
) -> tuple[int, int]:
    segment = segments[place]
    behind = segments[place + 1] if place + 1 < len(segments) else None
    following = segment.last(program) + 1
    if behind is not None and behind.step == segment.step and behind.name == segment.name:
        following = max(behind.first(program), following)
    return int(events[segment.first(program)]), int(events[min(following, len(events) - 1)])
