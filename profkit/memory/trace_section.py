"""The memory section of a report from a timeline's own memory events, where there is no snapshot.

torch.profiler (``profile_memory=True``) writes the allocator's totals with each event; nsys
(``--cuda-memory-usage=true``) writes what the process took from CUDA, which for torch is reserved memory. Neither
knows who holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from profkit.memory.memory_curves import MOST_PHASES, picked_states
from profkit.memory.phase_memory import phases_of_device
from profkit.model import Finding, MemoryEvents, Severity, Trace
from profkit.model.report_memory import Memory, MemoryCurve, MemoryDevice, MemoryPhase, PhaseSpan
from profkit.model.rows import replace
from profkit.readers.registry import format_named

__all__ = ["summarise_trace_memory", "trace_memory_later"]

Bytes = NDArray[np.int64]


def summarise_trace_memory(trace: Trace, phases: Sequence[PhaseSpan] = ()) -> Memory | None:
    """The memory section of a report from a trace, on its clock; None when it has no memory events of a device.

    What only a snapshot knows is empty; ``complete`` is false, since the recording began somewhere.

    Args:
        trace: The timeline.
        phases: Its phases, on its clock.
    """
    events = trace.memory.take(trace.memory.device >= 0)
    if not len(events):
        return None
    events = events.take(np.argsort(events.time_ns, kind="stable"))
    curves = [_Curve(trace, events.take(events.device == d), int(d)) for d in np.unique(events.device)]
    allocated = [int(c.allocated.max()) for c in curves if c.allocated is not None]
    reserved = [int(c.reserved.max()) for c in curves if c.reserved is not None]
    return Memory(
        devices=[curve.device_row() for curve in curves],
        device=curves[0].ordinal,
        peak_allocated_bytes=max(allocated, default=None),
        peak_reserved_bytes=max(reserved, default=None),
        complete=False,
        at_peak=[],
        by_phase=phases_of_device(_entered(curves, phases)),
        never_freed=[],
        oom=[],
        curve=[curve.row(phases) for curve in curves],
        findings=[Finding("memory-without-owners", Severity.INFO, count=len(events))],
    )


def trace_memory_later(memory: Memory, ns: int) -> Memory:
    """The section that `summarise_trace_memory` made, with a time added to all of its instants, in ns."""

    def later(time_ns: int | None) -> int | None:
        return None if time_ns is None else time_ns + ns

    return replace(
        memory,
        devices=[replace(row, peak_time_ns=later(row.peak_time_ns)) for row in memory.devices],
        curve=[
            replace(
                curve,
                time_ns=[time + ns for time in curve.time_ns or ()],
                phases=[
                    replace(phase, start_ns=phase.start_ns + ns, end_ns=phase.end_ns + ns)
                    for phase in curve.phases
                ],
            )
            for curve in memory.curve
        ],
    )


class _Curve:
    """Allocated and reserved bytes of one device over time, with the state before the first event."""

    def __init__(self, trace: Trace, events: MemoryEvents, device: int) -> None:
        self.ordinal = trace.devices[device].ordinal if device < len(trace.devices) else device
        self.time_ns = np.concatenate([events.time_ns[:1], events.time_ns]).astype(np.int64)
        change = events.bytes.astype(np.int64)
        if (events.total_allocated >= 0).all():
            first = events.total_allocated[:1] - change[:1]
            self.allocated: Bytes | None = np.concatenate([first, events.total_allocated]).astype(np.int64)
            known = bool((events.total_reserved >= 0).all())
            held = np.concatenate([events.total_reserved[:1], events.total_reserved]).astype(np.int64)
            self.reserved: Bytes | None = held if known else None
            self.leading: Bytes = self.allocated
            return
        level = np.concatenate([[0], np.cumsum(change)])
        level -= min(int(level.min()), 0)  # frees of what was there before
        self.leading = level
        known_as = format_named(trace.source.format)
        by_driver = known_as is not None and known_as.allocations == "driver"
        self.allocated, self.reserved = (None, level) if by_driver else (level, None)

    def device_row(self) -> MemoryDevice:
        return MemoryDevice(
            id=self.ordinal,
            peak_allocated_bytes=int(self.allocated.max()) if self.allocated is not None else None,
            peak_reserved_bytes=int(self.reserved.max()) if self.reserved is not None else None,
            peak_time_ns=int(self.time_ns[self.leading.argmax()]),
            fragmentation_bytes=self._fragmentation(),
        )

    def _fragmentation(self) -> int | None:
        if self.allocated is None or self.reserved is None:
            return None
        return max(0, int(self.reserved[-1] - self.allocated[-1]))

    def row(self, phases: Sequence[PhaseSpan]) -> MemoryCurve:
        states = picked_states(self.leading, self.reserved)
        return MemoryCurve(
            id=self.ordinal,
            device=self.ordinal,
            time_ns=self.time_ns[states].tolist(),
            allocated_bytes=self.allocated[states].tolist() if self.allocated is not None else None,
            reserved_bytes=self.reserved[states].tolist() if self.reserved is not None else None,
            phases=[
                PhaseSpan(path=p.path, start_ns=p.start_ns, end_ns=p.end_ns) for p in phases[:MOST_PHASES]
            ],
        )

    def inside(self, phase: PhaseSpan) -> Bytes | None:
        """Allocated bytes from the state in which a phase began to that in which it ended."""
        if self.allocated is None:
            return None
        first = max(int(np.searchsorted(self.time_ns[1:], phase.start_ns, "left")), 0)
        last = int(np.searchsorted(self.time_ns[1:], phase.end_ns, "right"))
        return self.allocated[first : last + 1]


def _entered(curves: Sequence[_Curve], phases: Sequence[PhaseSpan]) -> Iterator[MemoryPhase]:
    """Every time that a phase was entered, over all devices."""
    for phase in phases:
        levels = [level for curve in curves for level in [curve.inside(phase)] if level is not None]
        if levels:
            peak, net = (
                max(int(level.max()) for level in levels),
                sum(int(level[-1] - level[0]) for level in levels),
            )
            yield MemoryPhase(path=phase.path, peak_allocated_bytes=peak, net_bytes=net, count=1)
