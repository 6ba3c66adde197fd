"""What a person should know about a memory snapshot: gaps in its history, leaks, fragmentation, churn, OOMs."""

from __future__ import annotations

from typing import Final

from profkit.memory.replay import DeviceReplay
from profkit.model import Severity
from profkit.model.memory_history import MemoryHistory
from profkit.model.result import Row
from profkit.units import bytes_text, percent_text

__all__ = ["findings_of"]

_LARGE_SHARE: Final = 0.1
"""Of reserved memory: less than this is the allocator's normal slack."""
_LARGE_BYTES: Final = 64 << 20
_NAMED_LEAKS: Final = 3
_SMALLEST_LEAK: Final = 1 << 20
_LEAST_LEAK_SHARE: Final = 0.001


def findings_of(history: MemoryHistory, replays: list[DeviceReplay], section: Row) -> list[Row]:
    """Findings about the recording first, then about the program; ``{code, severity, message, count}``."""
    rows = [
        {**_row(found.code, found.severity, found.message, found.count), "params": dict(found.params)}
        for found in history.findings
    ]
    for replayed, device in zip(replays, section["devices"], strict=True):
        rows += _about_history(replayed, device, f"Device {replayed.device}: " if len(replays) > 1 else "")
    if not replays:
        rows.append(
            _row("empty", Severity.WARNING, "The snapshot holds no memory: nothing was allocated on a GPU.")
        )
    return rows + _out_of_memory(section) + _leaks(section) + _allocator(section)


def _row(code: str, severity: Severity, message: str, count: int = 1) -> Row:
    return {"code": code, "severity": severity.name.lower(), "message": message, "count": count}


def _about_history(replayed: DeviceReplay, device: Row, where: str) -> list[Row]:
    rows = []
    if not replayed.recorded:
        if device["reserved_bytes"] or device["allocated_bytes"]:
            message = (
                f"{where}No history of allocations was recorded, so the peak is unknown: call "
                "torch.cuda.memory._record_memory_history() before the run."
            )
            rows.append(_row("no-history", Severity.WARNING, message))
        return rows
    if device["allocated_at_start_bytes"]:
        message = (
            f"{where}The history begins with {bytes_text(device['allocated_at_start_bytes'])} allocated already: it "
            "was started late, or its ring buffer (max_entries) kept only the newest entries. A higher peak "
            "before that cannot be seen."
        )
        rows.append(_row("history-truncated", Severity.WARNING, message))
    elif not replayed.complete and device["reserved_at_start_bytes"]:
        message = (
            f"{where}The allocator held {bytes_text(device['reserved_at_start_bytes'])} when the history began, none "
            "of it in use: there was an earlier peak that cannot be seen."
        )
        rows.append(_row("history-late", Severity.INFO, message))
    times = replayed.events.time_ns[replayed.events.time_ns >= 0]
    if back := int((times[1:] < times[:-1]).sum()):
        message = (
            f"{where}The clock went back: {back} entries of the history are earlier than the one before. The order of "
            "the file counts; what joins memory and times does not hold there."
        )
        rows.append(_row("clock-went-back", Severity.WARNING, message, back))
    return rows + _inexact(replayed, device, where)


def _inexact(replayed: DeviceReplay, device: Row, where: str) -> list[Row]:
    rows = []
    if device["peak_unsure_bytes"]:
        message = (
            f"{where}The peak may be up to {bytes_text(device['peak_unsure_bytes'])} higher: how blocks were cut "
            "before the history began is not recorded."
        )
        rows.append(_row("peak-bounded", Severity.INFO, message))
    if replayed.reserved is not None and replayed.reserved_peak is None:
        message = f"{where}More is allocated than reserved: entries of segments are missing from the history."
        rows.append(_row("segments-missing", Severity.WARNING, message))
    if replayed.lost_frees:
        message = f"{where}{replayed.lost_frees} blocks were allocated again without a recorded free."
        rows.append(_row("lost-frees", Severity.WARNING, message, replayed.lost_frees))
    if replayed.extra_frees:
        message = (
            f"{where}{replayed.extra_frees} blocks were freed twice: entries of the history are missing."
        )
        rows.append(_row("extra-frees", Severity.WARNING, message, replayed.extra_frees))
    if replayed.unmatched:
        message = (
            f"{where}{replayed.unmatched} blocks are allocated at the end of the history but not in the segments: "
            "the two were not taken at the same moment, or frees were not recorded."
        )
        rows.append(_row("history-mismatch", Severity.WARNING, message, replayed.unmatched))
    if replayed.resized:
        message = (
            f"{where}{replayed.resized} blocks have another size than torch's CUDA allocator gives them: it was "
            "another allocator, or its settings changed. Sizes in between are estimates."
        )
        rows.append(_row("sizes-estimated", Severity.INFO, message, replayed.resized))
    return rows


def _out_of_memory(section: Row) -> list[Row]:
    return [
        _row(
            "out-of-memory",
            Severity.WARNING,
            f"Out of memory at {row['where'] or 'an unknown place'}: {row['explanation']}",
        )
        for row in section["oom"]
    ]


def _leaks(section: Row) -> list[Row]:
    rows = []
    least = max(_SMALLEST_LEAK, _LEAST_LEAK_SHARE * (section["peak_allocated_bytes"] or 0))
    grown = [row for row in section["growth"] if row["grown_bytes"] >= least]
    for row in grown[:_NAMED_LEAKS]:
        severity = Severity.WARNING if row["confidence"] == "high" else Severity.INFO
        message = (
            f"Memory of {row['where'] or 'blocks without a stack'} ({row['category']}) grows by "
            f"{bytes_text(row['bytes_per_step'])} a step: in {row['growing']} of {row['increments']} steps, by "
            f"{bytes_text(row['grown_bytes'])} in all."
        )
        rows.append(_row("leak", severity, message, row["growing"]))
    return rows


def _allocator(section: Row) -> list[Row]:
    allocator, reserved = section["allocator"], section["peak_reserved_bytes"]
    if not allocator or not reserved:
        return []
    rows = []
    spare = allocator["fragmentation_at_peak_bytes"] or 0
    if allocator["regrowths"] and spare >= max(_LARGE_BYTES, _LARGE_SHARE * reserved):
        remedy = (
            ""
            if allocator["expandable_segments"]["on"]
            else " Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
        )
        message = (
            f"{bytes_text(spare)} of the {bytes_text(reserved)} reserved ({percent_text(spare / reserved)}) were free even "
            f"when most was reserved. CUDA was asked for more {allocator['regrowths']} times while as much lay free in "
            f"blocks too small for the request, or not to be split: fragmentation.{remedy}"
        )
        rows.append(_row("fragmentation", Severity.WARNING, message, allocator["regrowths"]))
    steady = allocator["steady"]
    if steady["cuda_frees"]:
        message = (
            f"In the last {steady['steps']} steps the allocator still asked CUDA for memory "
            f"{steady['cuda_allocations']} times and gave it back {steady['cuda_frees']} times; each waits for the "
            "device. Look for empty_cache() in the loop, or for memory that is nearly full."
        )
        rows.append(_row("allocator-churn", Severity.WARNING, message, steady["cuda_frees"]))
    return rows
