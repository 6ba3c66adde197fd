"""Rows of a report about memory: peaks, who holds them, growth, what ran out of memory, and what would fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from profkit.model.findings import Finding
from profkit.model.names import Level, MemoryCategory
from profkit.model.report_allocator import AllocatorState
from profkit.model.report_fit import FitCategory
from profkit.model.rows import Bytes, Count, Instant, Interval, Ratio, Row

__all__ = [
    "Allocation",
    "CategoryRow",
    "FitRow",
    "GrowthRow",
    "HolderRow",
    "LargestAllocations",
    "LeftOut",
    "Memory",
    "MemoryCurve",
    "MemoryDevice",
    "MemoryPhase",
    "MemoryStep",
    "NeverFreedRow",
    "OutOfMemory",
    "PhaseSpan",
    "StackNode",
]


class MemoryDevice(Row, frozen=True, kw_only=True):
    """The memory of one device; what only a snapshot tells is None for a timeline's own memory events."""

    id: int
    """The device's ordinal."""
    peak_allocated_bytes: Bytes | None
    """The most that was allocated at once."""
    peak_reserved_bytes: Bytes | None
    """The most that the allocator held from CUDA."""
    peak_time_ns: Instant | None
    """When most was allocated."""
    fragmentation_bytes: Bytes | None
    """Reserved minus allocated at the end."""
    peak_active_bytes: Bytes | None = None
    """Allocated, and freed but still in use by other streams, at most."""
    peak_unsure_bytes: Bytes | None = None
    """By how much the peak may be higher: blocks from before the history have no exact size."""
    peak_rounding_bytes: Bytes | None = None
    """The part of the peak that is rounding of requests."""
    allocated_at_start_bytes: Bytes | None = None
    """Allocated when the history begins."""
    reserved_at_start_bytes: Bytes | None = None
    """Reserved when the history begins."""
    allocated_bytes: Bytes | None = None
    """Allocated at the end."""
    active_bytes: Bytes | None = None
    """Active at the end."""
    requested_bytes: Bytes | None = None
    """What the program asked for of what is allocated at the end."""
    reserved_bytes: Bytes | None = None
    """Reserved at the end."""
    events: Count | None = None
    """Entries of the history."""
    actions: Mapping[str, Count] | None = None
    """The same by action, with torch's names."""
    complete: bool | None = None
    """Whether the history shows everything from the first allocation on."""


class HolderRow(Row, frozen=True, kw_only=True):
    """Memory that one line of the program holds for one use."""

    category: MemoryCategory | None
    """What for; None for many small holders as one row."""
    where: str | None
    """The line that allocated it; None without a stack."""
    bytes: Bytes
    """Allocated bytes."""
    count: Count
    """Blocks."""
    phase: str | None
    """The path of the phase in which most of it was allocated."""


class CategoryRow(Row, frozen=True, kw_only=True):
    """Memory by what it is for."""

    category: MemoryCategory
    """What for."""
    bytes: Bytes
    """Allocated bytes."""
    count: Count
    """Blocks."""


class MemoryPhase(Row, frozen=True, kw_only=True):
    """Memory in a phase, over all its occurrences."""

    path: str
    """Its path."""
    peak_allocated_bytes: Bytes | None
    """The most that was allocated in it."""
    net_bytes: int | None
    """What it added, or took away where negative."""
    count: Count
    """How often it was entered."""
    churn_bytes: Bytes | None = None
    """All that was allocated in it; None where only totals are known."""


class MemoryStep(Row, frozen=True, kw_only=True):
    """Memory in a step."""

    step: Count
    """Its number, from 0."""
    path: str
    """Its name."""
    peak_allocated_bytes: Bytes | None
    """The most that was allocated in it."""
    net_bytes: int | None
    """What it added, or took away where negative."""
    churn_bytes: Bytes | None
    """All that was allocated in it."""


class NeverFreedRow(Row, frozen=True, kw_only=True):
    """Memory that is allocated at the end, by the line that allocated it."""

    where: str | None
    """The line; None without a stack."""
    bytes: Bytes
    """Allocated bytes."""
    count: Count
    """Blocks."""
    before_history_bytes: Bytes
    """The part that was there when the history began."""
    device: int
    """The device's ordinal."""


class OutOfMemory(Row, frozen=True, kw_only=True):
    """An allocation that failed."""

    device: int
    """The device's ordinal."""
    requested_bytes: Bytes | None
    """What was asked for."""
    free_bytes: Bytes | None
    """What CUDA had left."""
    where: str | None
    """The line that asked."""
    time_ns: Instant | None
    """When."""
    phase: str | None
    """The path of the phase around it."""
    allocated_bytes: Bytes
    """Allocated at that moment."""
    pending_free_bytes: Bytes
    """Freed, but still in use by other streams."""
    reserved_bytes: Bytes | None
    """Held from CUDA."""
    reserved_free_bytes: int | None
    """The free part of that."""
    largest_free_block_bytes: Bytes | None
    """The largest free block that the request could have used."""
    usable_free_bytes: Bytes | None
    """All free blocks in the pool of its stream and size."""
    holders: Sequence[HolderRow]
    """Who held most."""
    kind: Literal["fragmented", "streams", "limit", "outside", "full"]
    """Which shortage it was; ``outside``: what was missing is held outside of PyTorch's allocator."""
    gpu_bytes: Bytes | None = None
    """The memory of the GPU, from a trace of the same GPU."""
    outside_bytes: Bytes | None = None
    """The part of it that is neither reserved nor free; None where the GPU's memory is unknown."""
    expandable_segments: bool | None = None
    """Whether the allocator used expandable segments."""


class GrowthRow(Row, frozen=True, kw_only=True):
    """Memory that grows from step to step."""

    device: int
    """The device's ordinal."""
    where: str | None
    """The line that allocates it."""
    category: MemoryCategory
    """What for."""
    bytes_per_step: Bytes
    """The median growth."""
    grown_bytes: Bytes
    """The growth in all."""
    blocks: Count
    """Blocks at the last step."""
    increments: Count
    """Steps that were compared with the one before."""
    growing: Count
    """Those in which it grew."""
    p_value: Ratio
    """The chance of that many, were growing and not growing equally likely."""
    confidence: Level
    """How sure that makes a leak."""
    basis: Literal["steps", "optimizer", "backward", "pattern"]
    """What marked the steps."""


class PhaseSpan(Row, frozen=True, kw_only=True):
    """One time that a phase was entered."""

    path: str
    """Its path."""
    start_ns: Instant
    """When it began."""
    end_ns: Instant
    """When it ended."""
    name: str | None = None
    """The same as ``path``; a timeline's own memory events leave it out."""


class MemoryCurve(Row, frozen=True, kw_only=True):
    """The memory of one device over time, thinned out so that every peak is kept."""

    id: int
    """The device's ordinal."""
    device: int
    """The same."""
    time_ns: Sequence[Instant] | None
    """When; None where a snapshot has no times."""
    allocated_bytes: Sequence[Bytes] | None
    """Allocated then."""
    reserved_bytes: Sequence[Bytes] | None
    """Reserved then."""
    phases: Sequence[PhaseSpan]
    """The phases along the curve."""
    event: Sequence[Count] | None = None
    """The number of the entry of the history, where there is one."""
    active_bytes: Sequence[Bytes] | None = None
    """Active then, where it is known."""
    states: Count | None = None
    """How many states there were before thinning out."""


class Allocation(Row, frozen=True, kw_only=True):
    """One large allocation."""

    start_ns: Instant | None
    """When it was allocated; None before the history or without times."""
    end_ns: Instant | None
    """When it was freed; None where it was not, or without times."""
    start_event: Count
    """The entry of the history that allocated it; 0 before the history."""
    end_event: Count
    """The entry that freed it; one past the last where none did."""
    bytes: Bytes
    """Its size."""
    requested_bytes: Bytes
    """What the program asked for."""
    category: MemoryCategory
    """What for."""
    where: str | None
    """The line that allocated it."""
    stack: Sequence[str]
    """Its frames, outermost first."""


class LeftOut(Row, frozen=True, kw_only=True):
    """What a picture leaves out."""

    count: Count
    """Allocations."""
    peak_bytes: Bytes
    """The most of them at once."""


class LargestAllocations(Row, frozen=True, kw_only=True):
    """The allocations that fill most of the picture."""

    device: int
    """The device's ordinal."""
    rows: Sequence[Allocation]
    """In order of allocation."""
    left_out: LeftOut
    """The others."""


class StackNode(Row, frozen=True, kw_only=True):
    """A frame with everything that was allocated under it."""

    name: str
    """The frame."""
    bytes: Bytes
    """Allocated bytes."""
    count: Count
    """Blocks."""
    children: Sequence[StackNode]
    """The frames that it called, larger ones first."""


class Memory(Row, frozen=True, kw_only=True):
    """The memory section: of one snapshot, or of a timeline's own memory events.

    Peaks over all devices are those of the fullest device, not a sum: memory runs out on one GPU.
    """

    devices: Sequence[MemoryDevice]
    """Every device with memory."""
    device: int | None
    """The ordinal of the fullest device, which the tables below are about."""
    peak_allocated_bytes: Bytes | None
    """The most that was allocated at once on one device."""
    peak_reserved_bytes: Bytes | None
    """The most that was reserved on one device."""
    complete: bool
    """Whether the history shows everything from the first allocation on."""
    at_peak: Sequence[HolderRow]
    """Who held the peak, largest first."""
    by_phase: Sequence[MemoryPhase]
    """Phases in order of their first start."""
    never_freed: Sequence[NeverFreedRow]
    """What is allocated at the end."""
    oom: Sequence[OutOfMemory]
    """What ran out of memory."""
    curve: Sequence[MemoryCurve]
    """Memory over time, by device."""
    findings: Sequence[Finding]
    """On the recording first, then on the program."""
    since_ns: Instant | None = None
    """When the history begins."""
    at_end: Sequence[HolderRow] = ()
    """Who holds memory at the end."""
    by_category: Sequence[CategoryRow] = ()
    """The peak by use."""
    steps: Sequence[MemoryStep] = ()
    """Steps in order."""
    growth: Sequence[GrowthRow] = ()
    """What grows from step to step."""
    allocator: AllocatorState | None = None
    """The caching allocator."""
    largest: LargestAllocations | None = None
    """Single allocations."""
    stacks: StackNode | None = None
    """The peak as a tree of stacks."""


class FitRow(Row, frozen=True, kw_only=True):
    """What a change does to memory and time."""

    change: str
    """Its name in the registry of changes."""
    peak_bytes: Interval
    """The peak after it."""
    step_ns: Interval
    """The step after it."""
    fits: bool | None
    """Whether that fits the GPU; None where the bounds disagree."""
    memory_bytes: Bytes | None = None
    """The GPU's memory, where it is known."""
    by_category: Sequence[FitCategory] = ()
    """What holds the peak before and after."""
