"""What a person should know about a memory snapshot: gaps in its history, growth, fragmentation, churn, OOMs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from profkit.memory.replay import DeviceReplay
from profkit.model import Finding, Severity
from profkit.model.findings import Param
from profkit.model.memory_history import MemoryHistory
from profkit.model.report_allocator import AllocatorState
from profkit.model.report_memory import GrowthRow, MemoryDevice, OutOfMemory

__all__ = ["findings_of"]

_LARGE_SHARE: Final = 0.1
"""Of reserved memory: less than this is the allocator's normal slack."""
_LARGE_BYTES: Final = 64 << 20
_NAMED_LEAKS: Final = 3
_SMALLEST_LEAK: Final = 1 << 20
_LEAST_LEAK_SHARE: Final = 0.001


def findings_of(
    history: MemoryHistory,
    replays: Sequence[DeviceReplay],
    devices: Sequence[MemoryDevice],
    ooms: Sequence[OutOfMemory],
    growth: Sequence[GrowthRow],
    allocator: AllocatorState | None,
) -> list[Finding]:
    """Findings about the recording first, then about the program.

    Args:
        history: The snapshot, with what its reader found.
        replays: Its devices.
        devices: The rows of the same.
        ooms: What ran out of memory.
        growth: What grows from step to step, most first.
        allocator: The allocator of the fullest device.
    """
    found = list(history.findings)
    for replayed, device in zip(replays, devices, strict=True):
        where = replayed.device if len(replays) > 1 else None
        found += _about_history(replayed, device, {"device": where})
        if replayed.recorded and history.segments_known and replayed.reserved_peak is None:
            found.append(Finding("segments-missing", Severity.WARNING, params={"device": where}))
    if not replays:
        found.append(Finding("empty", Severity.WARNING))
    found += [_out_of_memory(row) for row in ooms]
    found += _leaks(growth, max((d.peak_allocated_bytes or 0 for d in devices), default=0))
    if allocator is not None:
        found += _about_allocator(allocator, devices)
    return found


def _about_history(
    replayed: DeviceReplay, device: MemoryDevice, params: dict[str, Param]
) -> Iterator[Finding]:
    if not replayed.recorded:
        if device.reserved_bytes or device.allocated_bytes:
            yield Finding("no-history", Severity.WARNING, params=params)
        return
    if device.allocated_at_start_bytes:
        size = device.allocated_at_start_bytes
        yield Finding("history-truncated", Severity.WARNING, params=params | {"allocated_bytes": size})
    elif not replayed.complete and device.reserved_at_start_bytes:
        size = device.reserved_at_start_bytes
        yield Finding("history-late", Severity.INFO, params=params | {"reserved_bytes": size})
    times = replayed.events.time_ns[replayed.events.time_ns >= 0]
    if back := int((times[1:] < times[:-1]).sum()):
        yield Finding("clock-went-back", Severity.WARNING, count=back, params=params)
    if device.peak_unsure_bytes:
        yield Finding(
            "peak-bounded", Severity.INFO, params=params | {"unsure_bytes": device.peak_unsure_bytes}
        )
    for code, severity, blocks in (
        ("lost-frees", Severity.WARNING, replayed.lost_frees),
        ("extra-frees", Severity.WARNING, replayed.extra_frees),
        ("history-mismatch", Severity.WARNING, replayed.unmatched),
        ("sizes-estimated", Severity.INFO, replayed.resized),
    ):
        if blocks:
            yield Finding(code, severity, count=blocks, params=params)


def _out_of_memory(row: OutOfMemory) -> Finding:
    params: dict[str, Param] = {
        "kind": row.kind,
        "where": row.where,
        "requested_bytes": row.requested_bytes,
        "allocated_bytes": row.allocated_bytes,
        "free_bytes": row.free_bytes,
        "reserved_bytes": row.reserved_bytes,
        "reserved_free_bytes": row.reserved_free_bytes,
        "usable_free_bytes": row.usable_free_bytes,
        "largest_free_block_bytes": row.largest_free_block_bytes,
        "outside_bytes": row.outside_bytes,
        "gpu_bytes": row.gpu_bytes,
        "expandable_segments": row.expandable_segments,
    }
    return Finding("out-of-memory", Severity.WARNING, params=params)


def _leaks(growth: Sequence[GrowthRow], peak_bytes: int) -> list[Finding]:
    least = max(_SMALLEST_LEAK, _LEAST_LEAK_SHARE * peak_bytes)
    return [
        Finding(
            "leak",
            Severity.WARNING if row.confidence == "high" else Severity.INFO,
            count=row.growing,
            params={
                "where": row.where,
                "category": row.category,
                "step_bytes": row.bytes_per_step,
                "grown_bytes": row.grown_bytes,
                "steps": row.increments,
            },
        )
        for row in [row for row in growth if row.grown_bytes >= least][:_NAMED_LEAKS]
    ]


def _about_allocator(allocator: AllocatorState, devices: Sequence[MemoryDevice]) -> Iterator[Finding]:
    reserved = max((d.peak_reserved_bytes or 0 for d in devices), default=0)
    if reserved:
        spare = allocator.fragmentation_at_peak_bytes or 0
        if allocator.regrowths and spare >= max(_LARGE_BYTES, _LARGE_SHARE * reserved):
            params: dict[str, Param] = {
                "free_bytes": spare,
                "reserved_bytes": reserved,
                "free_share": spare / reserved,
                "expandable_segments": allocator.expandable_segments.on,
            }
            yield Finding("fragmentation", Severity.WARNING, count=allocator.regrowths, params=params)
        steady = allocator.steady
        if steady.cuda_frees:
            params = {"steps": steady.steps, "cuda_allocations": steady.cuda_allocations}
            yield Finding("allocator-churn", Severity.WARNING, count=steady.cuda_frees, params=params)
    private = allocator.private_pools
    if private is not None and private.reserved_bytes >= max(_LARGE_BYTES, _LARGE_SHARE * reserved):
        held = next((d.reserved_bytes for d in devices if d.id == allocator.device), None)
        params = {
            "private_bytes": private.reserved_bytes,
            "free_bytes": private.free_bytes,
            "reserved_bytes": held,
        }
        yield Finding("private-pools", Severity.INFO, count=private.pools, params=params)
