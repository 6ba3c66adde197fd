"""Memory sections by hand, for tests of what reads them."""

from profkit.model.report_allocator import AllocatorState, ExpandableSegments, SteadyAllocator
from profkit.model.report_memory import Memory, OutOfMemory


def memory(peak_reserved_bytes, **more):
    """A section that knows the reserved peak, and what else is given."""
    unknown = {"devices": [], "device": 0, "peak_allocated_bytes": None, "complete": True, "at_peak": []}
    empty = {"by_phase": [], "never_freed": [], "oom": [], "curve": [], "findings": []}
    return Memory(peak_reserved_bytes=peak_reserved_bytes, **{**unknown, **empty, **more})


def allocator(free_bytes, regrowths, *, expandable=False):
    """An allocator with so much free when most was reserved."""
    return AllocatorState(
        device=0,
        fragmentation_bytes=free_bytes,
        fragmentation_at_peak_bytes=free_bytes,
        largest_free_block_bytes=None,
        free_blocks=None,
        inactive_split_bytes=None,
        releasable_bytes=None,
        pending_free_bytes=0,
        rounding_bytes=0,
        regrown_bytes=0,
        regrowths=regrowths,
        cuda_allocations=0,
        cuda_frees=0,
        steady=SteadyAllocator(steps=0, cuda_allocations=None, cuda_frees=None),
        settings={},
        expandable_segments=ExpandableSegments(on=expandable, could_save_bytes=None),
    )


def failed(kind, requested_bytes, **more):
    """An allocation that failed."""
    unknown = {"free_bytes": None, "where": None, "time_ns": None, "phase": None, "reserved_bytes": None}
    within = {"reserved_free_bytes": None, "largest_free_block_bytes": None, "usable_free_bytes": None}
    given = (
        {"device": 0, "allocated_bytes": 0, "pending_free_bytes": 0, "holders": []} | unknown | within | more
    )
    return OutOfMemory(kind=kind, requested_bytes=requested_bytes, **given)
