"""The ``memory`` section of a report: one snapshot, all its devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np

from profkit.analysis.memory.allocator import allocator_row, oom_rows
from profkit.analysis.memory.categories import activity_of, categorise
from profkit.analysis.memory.findings import findings_of
from profkit.analysis.memory.growth import Boundaries, growth_rows, step_boundaries
from profkit.analysis.memory.holders import Holders
from profkit.analysis.memory.owners import Owners
from profkit.analysis.memory.phases import (
    PhaseSpan,
    Stretch,
    Stretches,
    find_stretches,
    phase_rows,
    stretch_rows,
)
from profkit.analysis.memory.plots import curve_row, largest_rows, stack_tree
from profkit.analysis.memory.replay import DeviceReplay, replay
from profkit.analysis.result import Row
from profkit.model import Action, MemoryHistory

__all__ = ["history_origin_ns", "summarise_memory"]

_MOST_OWNERS: Final = 200
_MOST_STEPS: Final = 500
_LARGEST_SHOWN: Final = 400


def summarise_memory(
    history: MemoryHistory, origin_ns: int | None = None, phases: Sequence[PhaseSpan] = ()
) -> Row:
    """The report's ``memory`` object.

    Beside the contract's keys it has, for the page and for people: ``at_end`` (as ``at_peak``, when the snapshot
    was taken), ``by_category``, ``steps``, ``growth``, ``allocator``, ``curve``, ``largest``, ``stacks``,
    ``findings`` and ``since_ns`` (when the history begins).

    Peaks over all devices are those of the fullest device, not a sum: memory runs out on one card. ``at_peak``,
    ``by_category``, ``stacks`` and ``allocator`` are of that device, which ``device`` names.

    Args:
        history: What the reader returned.
        origin_ns: The Unix time that becomes 0; by default the earliest event or annotation.
        phases: Phases of a trace of the same process, in Unix time, for snapshots without annotations.
    """
    origin = history_origin_ns(history) or 0 if origin_ns is None else origin_ns
    owners = Owners(history)
    devices = []
    for replayed in replay(history):
        stretches = find_stretches(history, replayed, phases)
        devices.append(_Analysed.of(history, replayed, owners, stretches, origin))
    main = max(devices, key=_Analysed.weight, default=None)
    peaks = [d.row["peak_allocated_bytes"] for d in devices]
    reserved = [d.row["peak_reserved_bytes"] for d in devices]
    section: Row = {
        "devices": [d.row for d in devices],
        "device": main.replayed.device if main else None,
        "peak_allocated_bytes": max((p for p in peaks if p is not None), default=None),
        "peak_reserved_bytes": max((p for p in reserved if p is not None), default=None),
        "complete": bool(devices) and not history.dropped and all(d.replayed.complete for d in devices),
        "since_ns": min((t for d in devices for t in [d.holders.time_ns(0)] if t is not None), default=None),
        "by_phase": _merged(
            [phase_rows(stretch_rows(d.replayed, d.holders.stretches.phases)) for d in devices]
        ),
        "steps": _merged([_step_rows(d) for d in devices])[:_MOST_STEPS],
        "never_freed": [row for d in devices for row in _never_freed(d)],
        "oom": [row for d in devices for row in oom_rows(history, d.replayed, d.holders)],
        "growth": [{"device": d.replayed.device, **row} for d in devices for row in d.growth],
        "curve": [curve_row(d.holders) for d in devices if len(d.replayed.events)],
        **_of_main(history, main),
    }
    section["findings"] = findings_of(history, [d.replayed for d in devices], section)
    return section


def history_origin_ns(history: MemoryHistory) -> int | None:
    """The Unix time of the earliest event or annotation; None when the snapshot has no times."""
    times = np.concatenate([history.events.time_ns, history.annotations.start_ns])
    known = times[times >= 0]
    return int(known.min()) if len(known) else None


@dataclass(frozen=True, eq=False)
class _Analysed:
    """One device."""

    replayed: DeviceReplay
    holders: Holders
    boundaries: Boundaries | None
    growth: list[Row]
    peak_state: int
    row: Row

    @classmethod
    def of(
        cls,
        history: MemoryHistory,
        replayed: DeviceReplay,
        owners: Owners,
        stretches: Stretches,
        origin_ns: int,
    ) -> _Analysed:
        activity = activity_of(replayed, stretches, owners)
        categories = categorise(history, replayed, activity, owners)
        inside = stretches.phase_of_events(len(replayed.events))
        holders = Holders(replayed, owners, stretches, categories, inside, origin_ns)
        boundaries = step_boundaries(replayed, stretches, activity)
        growth = growth_rows(replayed, boundaries, owners, categories) if boundaries else []
        peak = int(replayed.allocated.argmax())
        return cls(replayed, holders, boundaries, growth, peak, _device_row(history, holders, peak))

    def weight(self) -> tuple[int, int]:
        """Recorded devices before others, fuller ones before emptier."""
        return int(self.replayed.recorded), int(self.replayed.allocated.max())


def _device_row(history: MemoryHistory, holders: Holders, peak: int) -> Row:
    replayed = holders.replayed
    recorded, reserved = replayed.recorded, replayed.reserved
    at_peak = replayed.alive(peak)
    requested = replayed.lifetimes.requested[replayed.alive(len(replayed.events))]
    return {
        "id": replayed.device,
        "peak_allocated_bytes": int(replayed.allocated.max()) if recorded else None,
        "peak_reserved_bytes": replayed.reserved_peak,
        "peak_active_bytes": int(replayed.active.max()) if recorded else None,
        "peak_time_ns": holders.time_ns(peak) if recorded else None,
        "peak_unsure_bytes": int(replayed.lifetimes.unsure[at_peak].sum()) if recorded else None,
        "peak_rounding_bytes": int((replayed.lifetimes.bytes - replayed.lifetimes.requested)[at_peak].sum()) if recorded else None,
        "fragmentation_bytes": max(0, int(reserved[-1] - replayed.allocated[-1])) if reserved is not None else None,
        "allocated_at_start_bytes": int(replayed.allocated[0]) if recorded else None,
        "reserved_at_start_bytes": int(reserved[0]) if reserved is not None and recorded else None,
        "allocated_bytes": int(replayed.allocated[-1]),
        "active_bytes": int(replayed.active[-1]),
        "requested_bytes": int(requested.sum()),
        "reserved_bytes": int(reserved[-1]) if reserved is not None else None,
        "events": len(replayed.events),
        "actions": _actions(replayed),
        "complete": replayed.complete,
    }  # fmt: skip


def _actions(replayed: DeviceReplay) -> dict[str, int]:
    """How many entries of each action the history has, by torch's names."""
    count = np.bincount(replayed.events.action, minlength=len(Action))
    return {action.name.lower(): int(count[action]) for action in Action if count[action]}


def _of_main(history: MemoryHistory, main: _Analysed | None) -> Row:
    if main is None:
        return {
            "at_peak": [],
            "by_category": [],
            "at_end": [],
            "allocator": None,
            "largest": None,
            "stacks": None,
        }
    recorded, holders = main.replayed.recorded, main.holders
    end = len(main.replayed.events)
    return {
        "at_peak": holders.rows(main.peak_state, _MOST_OWNERS) if recorded else [],
        "by_category": holders.by_category(main.peak_state) if recorded else [],
        "at_end": holders.rows(end, _MOST_OWNERS),
        "allocator": allocator_row(history, main.replayed, main.boundaries),
        "largest": largest_rows(holders, _LARGEST_SHOWN) if recorded else None,
        "stacks": stack_tree(holders, main.peak_state if recorded else end),
    }


def _never_freed(device: _Analysed) -> list[Row]:
    """What is allocated at the end by owner; how much of it was there before the history began is told apart."""
    replayed, owners = device.replayed, device.holders.owners
    alive = np.flatnonzero(replayed.alive(len(replayed.events)))
    lives = replayed.lifetimes
    key, inverse = np.unique(owners.owner(lives.stack[alive]), return_inverse=True)
    total, older = np.zeros(len(key), np.int64), np.zeros(len(key), np.int64)
    np.add.at(total, inverse, lives.bytes[alive])
    before = lives.allocated[alive] == 0
    np.add.at(older, inverse[before], lives.bytes[alive[before]])
    count = np.bincount(inverse, minlength=len(key))
    rows: list[Row] = [
        {
            "where": owners.names[int(owner)],
            "bytes": int(size),
            "count": int(number),
            "before_history_bytes": int(old),
            "device": replayed.device,
        }
        for owner, size, number, old in zip(key, total, count, older, strict=True)
    ]
    return sorted(rows, key=_negative_bytes)[:_MOST_OWNERS]


def _negative_bytes(row: Row) -> int:
    return -int(row["bytes"])


def _step_rows(device: _Analysed) -> list[Row]:
    """Steps in order; equal names stay apart. Where none are marked, each goes to the end of an optimizer step."""
    stretches = device.holders.stretches
    rows = stretch_rows(device.replayed, stretches.steps or _between(stretches.optimizer))
    return [{"step": index, **row} for index, row in enumerate(rows)]


def _between(ends: list[Stretch]) -> list[Stretch]:
    return [
        Stretch(f"to {end.path}", start.end_ns, end.end_ns, start.last, end.last)
        for start, end in pairwise(ends)
        if end.last > start.last
    ]


def _merged(devices: list[list[Row]]) -> list[Row]:
    """The same rows of all devices as one: the highest peak, the sum of what grew."""
    merged: dict[Any, Row] = {}
    for rows in devices:
        for row in rows:
            known = merged.setdefault((row.get("step"), row["path"]), row)
            if known is row or row["peak_allocated_bytes"] is None:
                continue
            known["peak_allocated_bytes"] = max(
                known["peak_allocated_bytes"] or 0, row["peak_allocated_bytes"]
            )
            for key in ("net_bytes", "churn_bytes"):
                known[key] = (known[key] or 0) + row[key]
    return list(merged.values())
