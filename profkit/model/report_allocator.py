"""What a report says of the caching allocator: where reserved memory is not allocated, and how often CUDA was asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from profkit.model.rows import Bytes, Count, Row

__all__ = ["AllocatorState", "ExpandableSegments", "PrivatePools", "Setting", "SteadyAllocator"]


class SteadyAllocator(Row, frozen=True, kw_only=True):
    """Calls to CUDA in the second half of the steps, where the allocator should need none."""

    steps: Count
    """How many steps that is."""
    cuda_allocations: Count | None
    """How often memory was asked for; None without steps."""
    cuda_frees: Count | None
    """How often memory was given back; None without steps."""


class ExpandableSegments(Row, frozen=True, kw_only=True):
    """The setting ``expandable_segments``."""

    on: bool
    """Whether it was on."""
    could_save_bytes: Bytes | None
    """The most that it could save."""


class PrivatePools(Row, frozen=True, kw_only=True):
    """Pools that only a CUDA graph or a ``torch.cuda.MemPool`` may use, at the end."""

    pools: Count
    """How many."""
    reserved_bytes: Bytes
    """What they hold from CUDA."""
    free_bytes: Bytes
    """The free part of it, which the default pool cannot use."""


Setting: TypeAlias = bool | int | float | str | Mapping[str, int]
"""The value of a setting of the allocator."""


class AllocatorState(Row, frozen=True, kw_only=True):
    """One device's caching allocator."""

    device: int
    """The device's ordinal."""
    fragmentation_bytes: Bytes | None
    """Reserved minus allocated at the end."""
    fragmentation_at_peak_bytes: Bytes | None
    """Reserved minus active when most was reserved: the most that better packing could save."""
    largest_free_block_bytes: Bytes | None
    """The largest free block at the end."""
    free_blocks: Count | None
    """Free blocks at the end."""
    inactive_split_bytes: Bytes | None
    """Free pieces of segments that are in use, at the end."""
    releasable_bytes: Bytes | None
    """Free whole segments at the end, which ``empty_cache`` gives back."""
    pending_free_bytes: Bytes
    """Freed, but still in use by other streams, at the end."""
    rounding_bytes: Bytes
    """Rounding of what is allocated at the end."""
    regrown_bytes: Bytes
    """Reserved anew although as much was free."""
    regrowths: Count
    """How often that happened."""
    cuda_allocations: Count
    """How often CUDA was asked for memory."""
    cuda_frees: Count
    """How often memory was given back to CUDA."""
    steady: SteadyAllocator
    """The same in the second half of the steps."""
    settings: Mapping[str, Setting]
    """The settings that matter here, with torch's names."""
    expandable_segments: ExpandableSegments
    """The setting that lets free pieces be joined."""
    private_pools: PrivatePools | None = None
    """What is kept apart from the default pool; None where nothing is."""
