"""The memory section of a report from one snapshot, all its devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from profkit.memory.allocator import allocator_row, fragmentation_at_end
from profkit.memory.categories import activity_of, categorise
from profkit.memory.growth import Boundaries, growth_rows, step_boundaries
from profkit.memory.holders import Holders
from profkit.memory.memory_curves import curve_row, largest_rows, stack_tree
from profkit.memory.memory_findings import findings_of
from profkit.memory.out_of_memory import oom_rows
from profkit.memory.owners import Owners
from profkit.memory.phase_memory import (
    Stretch,
    find_stretches,
    merged_phases,
    merged_steps,
    phases_of_device,
    stretch_rows,
)
from profkit.memory.replay import DeviceReplay, replay
from profkit.model.memory_history import Action, MemoryHistory
from profkit.model.report_allocator import AllocatorState
from profkit.model.report_memory import (
    CategoryRow,
    GrowthRow,
    HolderRow,
    LargestAllocations,
    Memory,
    MemoryDevice,
    MemoryPhase,
    PhaseSpan,
    StackNode,
)
from profkit.model.rows import replace

__all__ = ["history_origin_ns", "history_span", "summarise_memory"]

_MOST_OWNERS: Final = 200
_MOST_STEPS: Final = 500
_LARGEST_SHOWN: Final = 400


def summarise_memory(
    history: MemoryHistory,
    origin_ns: int | None = None,
    phases: Sequence[PhaseSpan] = (),
    gpu_bytes: Mapping[int, int] | None = None,
) -> Memory:
    """The memory section of a report from one snapshot.

    Args:
        history: What the reader returned.
        origin_ns: The Unix time that becomes 0; by default the earliest event or annotation.
        phases: Phases of a trace of the same process, in Unix time, for snapshots without annotations.
        gpu_bytes: The memory of the GPUs by ordinal, where a trace says it.
    """
    origin = history_origin_ns(history) or 0 if origin_ns is None else origin_ns
    owners = Owners(history)
    devices = [_Analysed.of(history, each, owners, phases, origin) for each in replay(history)]
    main = _of_main(history, devices)
    known = [d.holders.time_ns(0) for d in devices]
    sizes = gpu_bytes or {}
    ooms = [row for d in devices for row in oom_rows(history, d.holders, sizes.get(d.replayed.device))]
    growth = [row for d in devices for row in d.growth]
    rows = [d.row for d in devices]
    return Memory(
        devices=rows,
        device=main.device,
        peak_allocated_bytes=_most(row.peak_allocated_bytes for row in rows),
        peak_reserved_bytes=_most(row.peak_reserved_bytes for row in rows),
        complete=bool(devices) and not history.dropped and all(row.complete for row in rows),
        since_ns=min((time for time in known if time is not None), default=None),
        at_peak=main.at_peak,
        at_end=main.at_end,
        by_category=main.by_category,
        by_phase=merged_phases(d.phases() for d in devices),
        steps=merged_steps(d.steps() for d in devices)[:_MOST_STEPS],
        never_freed=[row for d in devices for row in d.holders.still_allocated(_MOST_OWNERS)],
        oom=ooms,
        growth=growth,
        allocator=main.allocator,
        curve=[curve_row(d.holders) for d in devices if len(d.replayed.events)],
        largest=main.largest,
        stacks=main.stacks,
        findings=findings_of(history, [d.replayed for d in devices], rows, ooms, growth, main.allocator),
    )


def history_origin_ns(history: MemoryHistory) -> int | None:
    """The Unix time of the earliest event or annotation; None when the snapshot has no times."""
    times = np.concatenate([history.events.time_ns, history.annotations.start_ns])
    known = times[times >= 0]
    return int(known.min()) if len(known) else None


def history_span(history: MemoryHistory) -> tuple[int, int] | None:
    """From the earliest event or annotation to the last event, in Unix time; None without events that have times."""
    times = history.events.time_ns[history.events.time_ns >= 0]
    first = history_origin_ns(history)
    return (first, int(times.max())) if first is not None and len(times) else None


@dataclass(frozen=True, eq=False)
class _Analysed:
    """One device."""

    replayed: DeviceReplay
    holders: Holders
    boundaries: Boundaries | None
    growth: list[GrowthRow]
    row: MemoryDevice

    @classmethod
    def of(
        cls,
        history: MemoryHistory,
        replayed: DeviceReplay,
        owners: Owners,
        phases: Sequence[PhaseSpan],
        origin_ns: int,
    ) -> _Analysed:
        stretches = find_stretches(history, replayed, phases)
        activity = activity_of(replayed, stretches, owners)
        categories = categorise(history, replayed, activity, owners)
        inside = stretches.phase_of_events(len(replayed.events))
        holders = Holders(replayed, owners, stretches, categories, inside, origin_ns)
        boundaries = step_boundaries(replayed, stretches, activity)
        growth = growth_rows(replayed, boundaries, owners, categories) if boundaries else []
        return cls(replayed, holders, boundaries, growth, _device_row(holders))

    def weight(self) -> tuple[int, int]:
        """Recorded devices before others, fuller ones before emptier."""
        return int(self.replayed.recorded), int(self.replayed.allocated.max())

    def phases(self) -> list[MemoryPhase]:
        return phases_of_device(stretch_rows(self.replayed, self.holders.stretches.phases))

    def steps(self) -> list[MemoryPhase]:
        """Steps in order. Where none are marked, each goes to the end of an optimizer step."""
        stretches = self.holders.stretches
        return stretch_rows(self.replayed, stretches.steps or _between(stretches.optimizer))


def _between(ends: Sequence[Stretch]) -> list[Stretch]:
    return [
        Stretch(f"to {end.path}", start.end_ns, end.end_ns, start.last, end.last)
        for start, end in pairwise(ends)
        if end.last > start.last
    ]


def _device_row(holders: Holders) -> MemoryDevice:
    replayed, lives = holders.replayed, holders.replayed.lifetimes
    reserved = replayed.reserved
    at_end = MemoryDevice(
        id=replayed.device,
        peak_allocated_bytes=None,
        peak_reserved_bytes=replayed.reserved_peak,
        peak_time_ns=None,
        fragmentation_bytes=fragmentation_at_end(replayed),
        allocated_bytes=int(replayed.allocated[-1]),
        active_bytes=int(replayed.active[-1]),
        requested_bytes=int(lives.requested[replayed.alive(len(replayed.events))].sum()),
        reserved_bytes=int(reserved[-1]) if reserved is not None else None,
        events=len(replayed.events),
        actions=_actions(replayed),
        complete=replayed.complete,
    )
    if not replayed.recorded:
        return at_end
    peak = int(replayed.allocated.argmax())
    at_peak = replayed.alive(peak)
    return replace(
        at_end,
        peak_allocated_bytes=int(replayed.allocated[peak]),
        peak_active_bytes=int(replayed.active.max()),
        peak_time_ns=holders.time_ns(peak),
        peak_unsure_bytes=int(lives.unsure[at_peak].sum()),
        peak_rounding_bytes=int(lives.rounding[at_peak].sum()),
        allocated_at_start_bytes=int(replayed.allocated[0]),
        reserved_at_start_bytes=int(reserved[0]) if reserved is not None else None,
    )


def _actions(replayed: DeviceReplay) -> dict[str, int]:
    """How many entries of each action the history has, by torch's names."""
    count = np.bincount(replayed.events.action, minlength=len(Action))
    return {action.name.lower(): int(count[action]) for action in Action if count[action]}


@dataclass(frozen=True, eq=False)
class _Main:
    """What is told of the fullest device only: memory runs out on one GPU."""

    device: int | None = None
    at_peak: Sequence[HolderRow] = ()
    by_category: Sequence[CategoryRow] = ()
    at_end: Sequence[HolderRow] = ()
    allocator: AllocatorState | None = None
    largest: LargestAllocations | None = None
    stacks: StackNode | None = None


def _of_main(history: MemoryHistory, devices: Sequence[_Analysed]) -> _Main:
    main = max(devices, key=_Analysed.weight, default=None)
    if main is None:
        return _Main()
    recorded, holders = main.replayed.recorded, main.holders
    peak, end = int(main.replayed.allocated.argmax()), len(main.replayed.events)
    return _Main(
        device=main.replayed.device,
        at_peak=holders.rows(peak, _MOST_OWNERS) if recorded else [],
        by_category=holders.by_category(peak) if recorded else [],
        at_end=holders.rows(end, _MOST_OWNERS),
        allocator=allocator_row(history, main.replayed, main.boundaries),
        largest=largest_rows(holders, _LARGEST_SHOWN) if recorded else None,
        stacks=stack_tree(holders, peak if recorded else end),
    )


def _most(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
