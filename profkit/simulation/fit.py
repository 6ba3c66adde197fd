"""Whether a step fits into memory after some changes: the replayed blocks changed, and the allocator played again."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.memory.categories import CATEGORIES, PARAMETER, UNKNOWN_USE
from profkit.memory.growth import growth_rows, step_boundaries
from profkit.model import Trace
from profkit.model.memory_history import Action
from profkit.model.report_fit import Fit, FitCategory, FitNote, FitNow, FitThen
from profkit.model.rows import Interval
from profkit.simulation.block_operators import BlockOperators
from profkit.simulation.fit_changes import FitChanges, PricedChange
from profkit.simulation.fit_notes import about_recording
from profkit.simulation.memory_program import MemoryProgram
from profkit.simulation.offload_time import offload_ns
from profkit.simulation.predict import Step
from profkit.simulation.reserved_memory import reserved_bytes

__all__ = [
    "failed_request",
    "fit_program",
    "gpu_bytes",
    "largest_batch",
    "likely_ns",
    "room_bytes",
    "surely_fits",
    "wanted_bytes",
]

_MOST_BATCH: Final = 64 * 1024


_UNSURE: Final = 0.015
"""How far an unchanged step may be off: 64 MiB of cuBLAS workspaces came and went among the measured rows."""


def fit_program(
    program: MemoryProgram,
    changes: FitChanges,
    operators: BlockOperators | None = None,
    *,
    step: Step | None = None,
    memory_bytes: int | None = None,
    gpu_bytes: int | None = None,
) -> Fit:
    """What the step of a program takes after some changes.

    Args:
        program: The recorded blocks.
        changes: What is asked for.
        operators: The operators that made the blocks, where a trace of the same execution tells.
        step: The same step of a trace, for its time.
        memory_bytes: What it has to fit into; by default the memory of the recorded GPU.
        gpu_bytes: The memory of the recorded GPU, where a trace says it.
    """
    outside = _outside(program, memory_bytes, gpu_bytes)
    room = room_bytes(program, memory_bytes, gpu_bytes)
    memory_bytes = memory_bytes if memory_bytes is not None else gpu_bytes
    failed, grows = failed_request(program), _grows(program)
    priced, program, changed = _changed(program, changes, operators)
    moved = _unexplained(program, changes)
    peak, reserved = _peak(changed, priced, moved), _reserved(program, changed, priced, moved, room)
    return Fit(
        before=FitNow(
            peak_bytes=int(program.replayed.allocated.max()),
            reserved_bytes=program.replayed.reserved_peak,
            step_ns=round(step.told_ns) if step else None,
        ),
        changes=[each.name for each in priced],
        settings={
            **{each.name: each.value for each in priced if each.value is not None},
            **({"ranks": float(changes.ranks)} if changes.shard else {}),
        },
        after=FitThen(
            peak_bytes=peak, reserved_bytes=reserved, step_ns=_time(step, priced, _on_host(changed, changes))
        ),
        memory_bytes=memory_bytes,
        outside_bytes=outside,
        fits=_fits(reserved, outside, memory_bytes, finished=failed is None and not grows),
        by_category=_by_category(program.recorded, changed),
        notes=[
            *([FitNote(code="ran-out", params={"bytes": _requested(program, failed)})] if failed else []),
            *([FitNote(code="grows", params={"bytes": grows})] if grows else []),
            *about_recording(program, changes, operators),
            *([FitNote(code="gives-back")] if reserved.high == room else []),
        ],
    )


def surely_fits(
    program: MemoryProgram, changes: FitChanges, operators: BlockOperators | None, room: int
) -> bool:
    """Whether `fit_program` says of so much room that the step fits; the allocator is played once at most."""
    if not _finishes(program):
        return False
    priced, program, changed = _changed(program, changes, operators)
    _, more = moved = _unexplained(program, changes)
    return _peak(changed, priced, moved).high <= room and _runs_in(program, changed, priced, room - more)


def likely_ns(
    program: MemoryProgram, changes: FitChanges, operators: BlockOperators | None, step: Step
) -> float:
    """What `fit_program` says is the likely time of the changed step."""
    priced = changes.priced(program, operators)
    beside = 0.0
    if changes.offload_optimizer:
        *_, changed = _changed(program, changes, operators)
        beside = offload_ns(_on_host(changed, changes), step.facts.gpu).likely
    return round(step.after_ns([change for each in priced for change in each.time]) + beside)


def _finishes(program: MemoryProgram) -> bool:
    """Whether the recorded step comes to its end, and takes no more memory than the one before."""
    return failed_request(program) is None and not _grows(program)


@lru_cache(maxsize=4)
def _changed(
    program: MemoryProgram, changes: FitChanges, operators: BlockOperators | None
) -> tuple[Sequence[PricedChange], MemoryProgram, MemoryProgram]:
    """The changes, the blocks with a request that failed, and these changed."""
    priced, failed = changes.priced(program, operators), failed_request(program)
    program = program if failed is None else _with_request(program, failed)
    later = priced[len(changes.work.priced(program, operators)) :]
    return priced, program, _applied(_worked(program, changes.work, operators), later)


@lru_cache(maxsize=16)
def _worked(program: MemoryProgram, work: FitChanges, operators: BlockOperators | None) -> MemoryProgram:
    """What several sets of changes begin with."""
    return _applied(program, work.priced(program, operators))


def failed_request(program: MemoryProgram) -> int | None:
    """The event of the request that failed, where the recording ends in the step in which memory ran out."""
    failed = np.flatnonzero(program.replayed.events.action == Action.OOM)
    begin = int(program.step_bounds[-2])
    return int(failed[-1]) if len(failed) and failed[-1] >= begin else None


@lru_cache(maxsize=4)
def _grows(program: MemoryProgram) -> int:
    """Bytes a step by which owners surely grow: after enough steps nothing fits."""
    bounds = step_boundaries(program.replayed, program.stretches, program.activity)
    rows = (
        growth_rows(program.replayed, bounds, program.owners, program.use.astype(np.int64)) if bounds else []
    )
    return sum(row.bytes_per_step for row in rows if row.confidence == "high")


def wanted_bytes(program: MemoryProgram) -> int:
    """The peak of the recorded step, with the request that failed where memory ran out."""
    failed = failed_request(program)
    if failed is None:
        return int(program.replayed.allocated.max())
    return _with_request(program, failed).peak_bytes()


def _requested(program: MemoryProgram, event: int) -> int:
    return int(program.replayed.events.bytes[event])


def _with_request(program: MemoryProgram, event: int) -> MemoryProgram:
    """With the block that was asked for, from there to the end."""
    if not len(program.requested):
        return program
    return program.with_rows(
        np.zeros(1, np.int64),
        requested=np.array([_requested(program, event)]),
        rest=np.zeros(1, np.int64),
        allocated=np.array([event + 1]),
        freed=np.array([program.end]),
        reusable=np.array([program.end]),
        stack=program.replayed.events.stack[[event]],
        stream=program.replayed.events.stream[[event]],
        use=np.array([UNKNOWN_USE]),
        batched=np.ones(1, bool),
        maybe_batched=np.zeros(1, bool),
        source=np.array([-1]),
    )


_LEAST_GAIN: Final = 0.45
"""Of the logarithm of a likely speed-up, what was gained at least (bf16, fused attention and half the batch, nine rows)."""
_ANOTHER_RUN: Final = 0.08
"""The logarithm by which an unchanged step of another run may be longer or shorter (0.2, 5.9 and 7.3 %)."""


def gpu_bytes(traces: Sequence[Trace], program: MemoryProgram) -> int | None:
    """The memory of the GPU of a program, where a trace says it."""
    devices = [device for trace in traces for device in trace.devices if device.memory_bytes]
    same = [each.memory_bytes for each in devices if each.ordinal == program.replayed.device]
    return same[0] if same else None


def largest_batch(
    program: MemoryProgram,
    changes: FitChanges,
    operators: BlockOperators | None,
    memory_bytes: int,
) -> float | None:
    """The largest batch that fits, as a multiple of the recorded one in steps of a 64th; None where none does."""
    fitting, failing = 0, _MOST_BATCH
    while failing - fitting > 1:
        middle = (fitting + failing) // 2 if failing < _MOST_BATCH or fitting else 64
        middle = min(max(middle, fitting + 1), failing - 1)
        asked = replace(changes, batch=middle / 64)
        priced, _, changed = _changed(program, asked, operators)
        _, more = _unexplained(program, asked)
        if _runs_in(program, changed, priced, memory_bytes - more):
            fitting = middle
        else:
            failing = middle
    return fitting / 64 if fitting else None


def _applied(program: MemoryProgram, priced: Sequence[PricedChange]) -> MemoryProgram:
    for each in priced:
        program = each.memory(program)
    return program


def _unexplained(program: MemoryProgram, changes: FitChanges) -> tuple[int, int]:
    """Bytes by which a step may take less, and more, where blocks of an unknown use change as well.

    They may be inputs, which have the batch in their size, or weights without a gradient, which ranks share.
    """
    unknown = int(program.bytes[program.maybe_batched & program.before].sum())
    times = changes.batch * changes.sequence * (1 / changes.ranks if changes.shard in _SHARES_WEIGHTS else 1)
    least, most = min(times, 1.0), max(changes.batch * changes.sequence, 1.0)
    return round(unknown * (1 - least)), round(unknown * (most - 1))


_SHARES_WEIGHTS: Final = ("zero2", "zero3")


def _peak(changed: MemoryProgram, priced: Sequence[PricedChange], moved: tuple[int, int]) -> Interval:
    likely = changed.peak_bytes()
    unsure = float(np.hypot(_UNSURE, sum(each.unsure**2 for each in priced) ** 0.5))
    less, more = moved
    return _around(likely, max(likely * (1 - unsure) - less, 0), likely * (1 + unsure) + more)


def _reserved(
    program: MemoryProgram,
    changed: MemoryProgram,
    priced: Sequence[PricedChange],
    moved: tuple[int, int],
    room: int | None = None,
) -> Interval:
    """As the allocator is played; as far off as that is for the recorded step, and as the peak may be.

    With less ``room`` than it would like, it gives free segments back: then the upper end is the room in which it surely
    runs all the same, and the lower end that in which it may. What is free is given back: it is as sure as the peak.
    """
    recorded, (less, more) = program.replayed.reserved_peak, moved
    likely = reserved_bytes(changed) or 0
    if recorded and not priced and program.origin is None:
        likely = recorded
    unsure, short = _unsure_reserved(program, priced), _unsure_when_short(program, priced)
    least, most = max(likely * (1 - unsure) - less, 0), likely * (1 + unsure) + more
    if room is None or most <= room:
        return _around(likely, least, most)
    least_short = max(changed.peak_bytes() * (1 - short) - less, 0)
    if _runs_in(program, changed, priced, room - more):
        return _around(min(likely, room), min(least, least_short), room)
    if least > room >= least_short:
        runs = reserved_bytes(changed, round((room + less) * (1 + short))) is not None
        least = float(room) if runs else least
    return _around(likely, least, most)


def _runs_in(
    program: MemoryProgram, changed: MemoryProgram, priced: Sequence[PricedChange], room: int
) -> bool:
    """Whether the upper end of what a changed step reserves is no more than the room: one play of the allocator tells.

    What is sure to fit without giving anything back fits when short of memory too: that is surer of each change.
    """
    if reserved_bytes(changed, round(room / (1 + _unsure_when_short(program, priced)))) is not None:
        return True
    as_recorded = not priced and program.origin is None
    recorded = program.replayed.reserved_peak or 0
    return as_recorded and 0 < recorded * (1 + _unsure_reserved(program, priced)) <= room


def _unsure_reserved(program: MemoryProgram, priced: Sequence[PricedChange]) -> float:
    return float(np.hypot(_UNSURE + _missed(program), sum(each.unsure_reserved**2 for each in priced) ** 0.5))


def _unsure_when_short(program: MemoryProgram, priced: Sequence[PricedChange]) -> float:
    """The same where what is free is given back: as unsure as the peak."""
    return float(np.hypot(_UNSURE + _missed(program), sum(each.unsure**2 for each in priced) ** 0.5))


@lru_cache(maxsize=4)
def _missed(program: MemoryProgram) -> float:
    """How far off the played allocator is of the recorded step, without a request that failed."""
    recorded, played = program.replayed.reserved_peak, reserved_bytes(program.recorded) or 0
    return abs(recorded / played - 1) if recorded and played else 0.05


_CONTEXT_BYTES: Final = 631 << 20
"""What an H200 had in use beside torch's allocator when a process of torch 2.11 alone ran on it (tests/data/run_gpt)."""


def room_bytes(program: MemoryProgram, memory_bytes: int | None, gpu_bytes: int | None) -> int | None:
    """What the allocator may reserve, of the memory that is named or of the GPU's; None where neither is known."""
    whole = memory_bytes if memory_bytes is not None else gpu_bytes
    return None if whole is None else whole - _outside(program, memory_bytes, gpu_bytes)


def _outside(program: MemoryProgram, memory_bytes: int | None, gpu_bytes: int | None) -> int:
    """What is in use beside the allocator, as an out-of-memory report of the history says.

    Of a GPU's whole memory CUDA's context takes its part at least.
    """
    least = _CONTEXT_BYTES if memory_bytes is None and gpu_bytes is not None else 0
    replayed = program.replayed
    told = np.flatnonzero((replayed.events.action == Action.OOM) & (replayed.events.device_free >= 0))
    if gpu_bytes is None or replayed.reserved is None or not len(told):
        return least
    last = int(told[-1])
    return max(gpu_bytes - int(replayed.reserved[last + 1]) - int(replayed.events.device_free[last]), least)


def _fits(reserved: Interval, outside: int, memory_bytes: int | None, *, finished: bool) -> bool | None:
    if memory_bytes is None:
        return None
    if reserved.high + outside <= memory_bytes:
        return True if finished else None
    return False if reserved.low + outside > memory_bytes else None


def _on_host(changed: MemoryProgram, changes: FitChanges) -> int:
    """Bytes of the parameters that the host updates."""
    updated = (changed.use == PARAMETER) & changed.before if changes.offload_optimizer else slice(0)
    return int(changed.requested[updated].sum())


def _time(step: Step | None, priced: Sequence[PricedChange], on_host: int) -> Interval | None:
    if step is None:
        return None
    found = step.predict([change for each in priced for change in each.time])
    alone = [step.told_ns / step.after_ns(each.time) for each in priced if each.time]
    missed = (1 - _LEAST_GAIN) * sum(max(math.log(speedup), 0.0) for speedup in alone)
    low = math.exp(min(math.log(found.low), math.log(found.likely) - missed) - _ANOTHER_RUN)
    high = math.exp(math.log(found.high) + _ANOTHER_RUN)
    slowest = found.before_ns / low
    if any(each.slowest for each in priced):
        after = step.after_ns([change for each in priced for change in each.slowest or each.time])
        slowest = max(slowest, after * math.exp(_ANOTHER_RUN))
    beside = offload_ns(on_host, step.facts.gpu)
    return _around(
        found.after_ns + beside.likely,
        found.before_ns / high + beside.low,
        slowest + beside.high,
    )


def _around(likely: float, low: float, high: float) -> Interval:
    """An interval of whole bytes or ns."""
    return Interval(low=float(round(low)), likely=float(round(likely)), high=float(round(high)))


def _by_category(program: MemoryProgram, changed: MemoryProgram) -> list[FitCategory]:
    before, after = _held(program), _held(changed)
    return [
        FitCategory(category=name, before_bytes=int(before[i]), after_bytes=int(after[i]))
        for i, name in enumerate(CATEGORIES)
        if before[i] or after[i]
    ]


def _held(program: MemoryProgram) -> NDArray[Any]:
    peak = int(program.curve().argmax())
    there = (program.allocated <= peak) & (program.freed > peak)
    return np.bincount(program.use[there], program.bytes[there], minlength=len(CATEGORIES))
