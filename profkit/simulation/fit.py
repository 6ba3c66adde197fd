"""Whether a step fits into memory after some changes: the replayed blocks changed, and the allocator played again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from profkit.memory.categories import CATEGORIES
from profkit.model.memory_history import Action
from profkit.model.report_fit import Fit, FitCategory, FitNote, FitNow, FitThen
from profkit.model.rows import Interval
from profkit.simulation.edited_step import EditedStep
from profkit.simulation.memory_changes import (
    MemoryChange,
    batch_times,
    fuse_optimizer,
    optimizer_kind,
    shard_over,
)
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.predict import Change, Step
from profkit.simulation.registry import CHANGES
from profkit.simulation.reserved_memory import reserved_bytes

__all__ = ["FitChanges", "fit_program", "largest_batch"]

_MOST_BATCH: Final = 64 * 1024


@dataclass(frozen=True, kw_only=True)
class FitChanges:
    """What is asked for; by default nothing changes."""

    batch: float = 1.0
    fused_optimizer: bool = False
    optimizer: str | None = None
    """``sgd``, ``adam`` or ``adam8bit``."""
    ranks: int = 1
    shard: str | None = None
    """``zero1``, ``zero2`` or ``zero3``, over ``ranks``."""

    def priced(self) -> list[_Priced]:
        """The changes in the order in which they are made."""
        found = []
        if self.optimizer is not None:
            found.append(_Priced("optimizer", self.optimizer, optimizer_kind(self.optimizer), (), 0.02))
        if self.fused_optimizer:
            found.append(_Priced("fused-optimizer", None, fuse_optimizer, (_timed("fused-optimizer"),), 0.02))
        if self.shard is not None and self.ranks > 1:
            found.append(_Priced("shard", self.shard, shard_over(self.ranks, self.shard), (), 0.05))
        if self.batch != 1:
            found.append(
                _Priced("batch", self.batch, batch_times(self.batch), (_batch_time(self.batch),), 0.03)
            )
        return found


@dataclass(frozen=True)
class _Priced:
    name: str
    value: float | str | None
    memory: MemoryChange
    time: tuple[Change, ...]
    unsure: float
    """How far the predicted peak may be off, as a share of it."""


_UNSURE: Final = 0.015
"""How far an unchanged step may be off: 64 MiB of cuBLAS workspaces came and went among the measured rows."""


def _timed(name: str) -> Change:
    return CHANGES[name][0]


def _batch_time(factor: float) -> Change:
    """Kernels of forward and backward take so many times as long; the optimizer does not know of the batch."""

    def change(edited: EditedStep) -> None:
        work = ~edited.facts.optimizer & ~edited.facts.zeroing
        edited.duration_ns = np.where(work, edited.duration_ns * factor, edited.duration_ns)

    return change


def fit_program(
    program: MemoryProgram,
    changes: FitChanges,
    *,
    step: Step | None = None,
    memory_bytes: int | None = None,
    gpu_bytes: int | None = None,
) -> Fit:
    """What the step of a program takes after some changes.

    Args:
        program: The recorded blocks.
        changes: What is asked for.
        step: The same step of a trace, for its time.
        memory_bytes: What it has to fit into; by default the memory of the recorded GPU.
        gpu_bytes: The memory of the recorded GPU, where a trace says it.
    """
    memory_bytes = memory_bytes if memory_bytes is not None else gpu_bytes
    priced = changes.priced()
    changed = _applied(program, priced)
    peak, reserved = _peak(changed, priced), _reserved(program, changed, priced)
    outside = _outside(program, gpu_bytes)
    return Fit(
        before=FitNow(
            peak_bytes=int(program.replayed.allocated.max()),
            reserved_bytes=program.replayed.reserved_peak,
            step_ns=round(step.plain_ns) if step else None,
        ),
        changes=[each.name for each in priced],
        settings={each.name: each.value for each in priced if each.value is not None},
        after=FitThen(peak_bytes=peak, reserved_bytes=reserved, step_ns=_time(step, priced)),
        memory_bytes=memory_bytes,
        outside_bytes=outside,
        fits=_fits(reserved, outside, memory_bytes),
        by_category=_by_category(program, changed),
        notes=_notes(program),
    )


def largest_batch(
    program: MemoryProgram, changes: FitChanges, memory_bytes: int, outside_bytes: int = 0
) -> float | None:
    """The largest batch that fits, as a multiple of the recorded one in steps of a 64th; None where none does."""
    fitting, failing = 0, _MOST_BATCH
    while failing - fitting > 1:
        middle = (fitting + failing) // 2 if failing < _MOST_BATCH or fitting else 64
        middle = min(max(middle, fitting + 1), failing - 1)
        priced = replace(changes, batch=middle / 64).priced()
        reserved = _reserved(program, _applied(program, priced), priced)
        if reserved.high + outside_bytes <= memory_bytes:
            fitting = middle
        else:
            failing = middle
    return fitting / 64 if fitting else None


def _applied(program: MemoryProgram, priced: Sequence[_Priced]) -> MemoryProgram:
    for each in priced:
        program = each.memory(program)
    return program


def _peak(changed: MemoryProgram, priced: Sequence[_Priced]) -> Interval:
    likely = changed.peak_bytes()
    unsure = float(np.hypot(_UNSURE, sum(each.unsure**2 for each in priced) ** 0.5))
    return Interval(low=likely * (1 - unsure), likely=likely, high=likely * (1 + unsure))


def _reserved(program: MemoryProgram, changed: MemoryProgram, priced: Sequence[_Priced]) -> Interval:
    """As the allocator is played; as far off as that is for the recorded step, and as the peak may be."""
    recorded, played = program.replayed.reserved_peak, reserved_bytes(program)
    likely = reserved_bytes(changed)
    if recorded and not priced:
        likely = recorded
    missed = abs(recorded / played - 1) if recorded and played else 0.05
    unsure = float(np.hypot(_UNSURE + missed, sum(each.unsure**2 for each in priced) ** 0.5))
    least = max(likely * (1 - unsure), 0)
    return Interval(low=least, likely=likely, high=likely * (1 + unsure))


def _outside(program: MemoryProgram, gpu_bytes: int | None) -> int:
    """What an out-of-memory report of the history says to be in use beside the allocator, else 0."""
    replayed = program.replayed
    told = np.flatnonzero((replayed.events.action == Action.OOM) & (replayed.events.device_free >= 0))
    if gpu_bytes is None or replayed.reserved is None or not len(told):
        return 0
    last = int(told[-1])
    return max(gpu_bytes - int(replayed.reserved[last + 1]) - int(replayed.events.device_free[last]), 0)


def _fits(reserved: Interval, outside: int, memory_bytes: int | None) -> bool | None:
    if memory_bytes is None:
        return None
    if reserved.high + outside <= memory_bytes:
        return True
    return False if reserved.low + outside > memory_bytes else None


def _time(step: Step | None, priced: Sequence[_Priced]) -> Interval | None:
    if step is None:
        return None
    found = step.predict([change for each in priced for change in each.time])
    return Interval(low=found.before_ns / found.high, likely=found.after_ns, high=found.before_ns / found.low)


def _by_category(program: MemoryProgram, changed: MemoryProgram) -> list[FitCategory]:
    before, after = _held(program), _held(changed)
    return [
        FitCategory(category=name, before_bytes=int(before[i]), after_bytes=int(after[i]))
        for i, name in enumerate(CATEGORIES)
        if before[i] or after[i]
    ]


def _held(program: MemoryProgram) -> np.ndarray:
    peak = int(program.curve().argmax())
    there = (program.allocated <= peak) & (program.freed > peak)
    return np.bincount(program.use[there], program.bytes[there], minlength=len(CATEGORIES))


def _notes(program: MemoryProgram) -> list[FitNote]:
    notes = []
    if not program.replayed.complete and not program.before.any():
        notes.append(FitNote(code="history-incomplete"))
    maybe = int(program.bytes[program.maybe_batched & program.before].sum())
    if maybe:
        notes.append(FitNote(code="unexplained-blocks", params={"bytes": maybe}))
    return notes
