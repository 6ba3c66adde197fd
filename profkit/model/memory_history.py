"""What the memory reader returns and the memory analyses take: the columns of a CUDA memory snapshot.

The rules of `profkit.model.trace` hold here too: times in ns (Unix time, as torch writes it), sizes in bytes, -1 for
an unknown integer. Addresses are the 64-bit pattern of the pointer as a signed integer; 0 is none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from profkit.model.columns import IntColumn, Table, column
from profkit.model.findings import Finding
from profkit.model.trace import Source

__all__ = [
    "Action",
    "AllocatorEvents",
    "Annotations",
    "BlockState",
    "Blocks",
    "Frames",
    "MemoryHistory",
    "Segments",
    "Stacks",
]


class Action(IntEnum):
    """What the caching allocator wrote into its trace."""

    ALLOC = 0
    FREE_REQUESTED = 1
    """The user gave the block back; it may still wait for other streams."""
    FREE_COMPLETED = 2
    """The block can be used again."""
    SEGMENT_ALLOC = 3
    """cudaMalloc."""
    SEGMENT_FREE = 4
    SEGMENT_MAP = 5
    """Physical memory was mapped into an expandable segment."""
    SEGMENT_UNMAP = 6
    SNAPSHOT = 7
    OOM = 8
    """An allocation failed: ``bytes`` is the request, ``device_free`` what CUDA had left."""
    FREE = 9
    """Traces before torch 2.0: the block was given back and can be used again."""


class BlockState(IntEnum):
    """The state of a block when the snapshot was taken."""

    INACTIVE = 0
    ALLOCATED = 1
    PENDING_FREE = 2


@dataclass(frozen=True, eq=False)
class AllocatorEvents(Table):
    """The allocator's trace, per device in the order of the file."""

    time_ns: IntColumn = column("i8")
    device: IntColumn = column("i4", 0)
    action: IntColumn = column("i1", Action.SNAPSHOT)
    """`Action`."""
    address: IntColumn = column("i8", 0)
    bytes: IntColumn = column("i8", 0)
    """Allocations and frees: what the program asked for, unrounded. Segments: what was mapped."""
    stream: IntColumn = column("i8", 0)
    """The stream's handle; 0 is the default stream."""
    stack: IntColumn = column("i4")
    """Row in `MemoryHistory.stacks`."""
    device_free: IntColumn = column("i8")
    category: IntColumn = column("i4")
    """String: what torch.profiler took the tensor for, in snapshots made from one."""
    metadata: IntColumn = column("i4")
    """String: what ``_set_memory_metadata`` said."""


@dataclass(frozen=True, eq=False)
class Segments(Table):
    """Memory that the allocator held from CUDA at the end; its sum per device is the reserved memory."""

    device: IntColumn = column("i4", 0)
    address: IntColumn = column("i8", 0)
    bytes: IntColumn = column("i8", 0)
    stream: IntColumn = column("i8", 0)
    large: IntColumn = column("i1")
    pool: IntColumn = column("i4")
    """String: ``0,0`` is the default pool; other pools belong to CUDA graphs or to a MemPool."""
    expandable: IntColumn = column("i1")
    stack: IntColumn = column("i4")


@dataclass(frozen=True, eq=False)
class Blocks(Table):
    """The pieces of the segments at the end."""

    segment: IntColumn = column("i4", 0)
    """Row in `MemoryHistory.segments`."""
    device: IntColumn = column("i4", 0)
    address: IntColumn = column("i8", 0)
    bytes: IntColumn = column("i8", 0)
    """What the block takes: the request, rounded, and what was not split off."""
    requested_bytes: IntColumn = column("i8")
    state: IntColumn = column("i1", BlockState.INACTIVE)
    """`BlockState`."""
    stack: IntColumn = column("i4")


@dataclass(frozen=True, eq=False)
class Annotations(Table):
    """Stretches that ``record_function`` or ``profkit.phase`` marked while the history was recorded."""

    start_ns: IntColumn = column("i8")
    end_ns: IntColumn = column("i8")
    """-1 for one that was still open at the end."""
    device: IntColumn = column("i4", 0)
    name: IntColumn = column("i4")
    """String, without `profkit.model.marks.PHASE_MARK`."""
    marked: IntColumn = column("i1", 0)
    """1 when ``profkit.phase`` made it."""


@dataclass(frozen=True, eq=False)
class Frames(Table):
    """Each distinct frame once."""

    file: IntColumn = column("i4")
    """String: as recorded, so it may hold a path with a user's name; never show more than its base name."""
    line: IntColumn = column("i4")
    function: IntColumn = column("i4")


@dataclass(frozen=True, eq=False)
class Stacks:
    """Each distinct stack once, innermost frame first: stack *i* is ``frames[starts[i]:starts[i + 1]]``."""

    starts: IntColumn
    frames: IntColumn
    """Rows of `MemoryHistory.frames`."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, stack: int) -> NDArray[Any]:
        return self.frames[self.starts[stack] : self.starts[stack + 1]]

    @classmethod
    def empty(cls) -> Stacks:
        """No stacks."""
        return cls(np.zeros(1, np.int64), np.zeros(0, np.int32))


@dataclass(frozen=True, eq=False)
class MemoryHistory:
    """One CUDA memory snapshot."""

    source: Source
    strings: Sequence[str]
    devices: Sequence[int]
    """The ordinals that have segments or events."""
    events: AllocatorEvents = field(default_factory=AllocatorEvents.empty)
    segments: Segments = field(default_factory=Segments.empty)
    blocks: Blocks = field(default_factory=Blocks.empty)
    segments_known: bool = True
    """False when the file has no usable list of segments: then what was reserved is unknown."""
    annotations: Annotations = field(default_factory=Annotations.empty)
    frames: Frames = field(default_factory=Frames.empty)
    stacks: Stacks = field(default_factory=Stacks.empty)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The allocator's settings: ints, floats, booleans, text, and ``roundup_power2_divisions`` as a dict."""
    findings: Sequence[Finding] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Left out, by reason: ``malformed_entries``, ``malformed_segments``, ``malformed_blocks``,
    ``malformed_frames``, ``malformed_annotations``, ``unknown_actions``."""

    def text(self, string: int) -> str | None:
        """The text of a string id; None for unknown."""
        return self.strings[string] if string >= 0 else None
