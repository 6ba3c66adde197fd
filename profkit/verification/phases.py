"""Phases, a second time: how often each was entered, how many kernels it launched, and how long they ran."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from profkit.verification.events import Op, Span
from profkit.verification.host import Host
from profkit.verification.intervals import Piece, length
from profkit.verification.timeline import Timeline

__all__ = ["PhaseTotals", "phase_totals"]


@dataclass
class PhaseTotals:
    """One path of phases in the window."""

    count: int = 0
    host_wall_ns: int = 0
    kernels: int = 0
    opaque: bool = False
    """Whether a graph hides some of its kernels."""
    exclusive: dict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))
    """By device: when its own operations run."""
    inclusive: dict[int, list[Piece]] = field(default_factory=lambda: defaultdict(list))
    """The same with those of the phases inside."""

    @property
    def gpu_exclusive_ns(self) -> int:
        """A union on each device."""
        return sum(length(pieces) for pieces in self.exclusive.values())

    @property
    def gpu_inclusive_ns(self) -> int:
        """A union on each device."""
        return sum(length(pieces) for pieces in self.inclusive.values())


def phase_totals(timeline: Timeline, host: Host) -> dict[str, PhaseTotals]:
    """The phases of one recording by path, e.g. ``forward/loss``."""
    paths = _paths(host.phases)
    found: dict[str, PhaseTotals] = defaultdict(PhaseTotals)
    for span in host.phases:
        if timeline.begun_in_window(span):
            found[paths[id(span)][-1]].count += 1
            found[paths[id(span)][-1]].host_wall_ns += span.end - span.start
    for op in timeline.ops:
        phase = host.phase_of(op)[0] if id(op) in timeline.launch else None
        if phase is not None and timeline.in_window(op):
            _add(found, paths[id(phase)], op)
    return found


def _add(found: dict[str, PhaseTotals], paths: list[str], op: Op) -> None:
    found[paths[-1]].exclusive[op.device].append((op.start, op.end))
    for path in paths:
        found[path].inclusive[op.device].append((op.start, op.end))
        found[path].kernels += op.kind == "kernel"
        found[path].opaque |= op.kind == "graph"


def _paths(phases: list[Span]) -> dict[int, list[str]]:
    """The paths of every phase and of those around it on its thread, the outermost first, by `id`."""
    found: dict[int, list[str]] = {}
    open_on: dict[tuple[int, int], list[Span]] = defaultdict(list)
    for span in sorted(phases, key=lambda span: (span.start, -span.end)):
        around = open_on[span.thread]
        while around and around[-1].end < span.end:
            around.pop()
        above = found[id(around[-1])] if around else []
        name = span.name.replace("/", "∕") or "<unnamed>"
        found[id(span)] = [*above, f"{above[-1]}/{name}" if above else name]
        around.append(span)
    return found
