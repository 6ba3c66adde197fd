"""What the memory section says: of the recording, of what grows, of the allocator, and of what ran out of memory."""

from __future__ import annotations

from typing import Final

from profkit.model.findings import Severity
from profkit.model.report_memory import Memory, OutOfMemory
from profkit.rendering.sentences.wording import Params, Table, Template, say
from profkit.units import bytes_text

__all__ = ["EXPANDABLE", "FINDINGS", "HISTORY_CLOCK", "memory_sentence", "oom_explanation"]

EXPANDABLE: Final = "Try PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."


def memory_sentence(memory: Memory) -> str:
    """What a snapshot by itself says, in place of a verdict on times."""
    if memory.peak_allocated_bytes is None:
        return "The memory peak is unknown: no history of allocations was recorded."
    text = f"Memory peaked at {bytes_text(memory.peak_allocated_bytes)}"
    if memory.oom:
        text += ", and an allocation failed"
    elif any(f.code == "leak" and f.severity == Severity.WARNING for f in memory.findings):
        text += ", and it grows from step to step"
    held = memory.at_peak[0] if memory.at_peak else None
    if held and held.where and held.category:
        text += f"; {bytes_text(held.bytes)} of it{_use(held.category)} was allocated at {held.where}"
    return f"{text}."


def _use(category: str) -> str:
    """What memory is for, in brackets; nothing where that is unknown."""
    return "" if category == "unknown" else f" ({category.replace('_', ' ')})"


def oom_explanation(oom: OutOfMemory) -> str:
    """Which shortage an allocation met, with the numbers."""
    return _shortage({name: getattr(oom, name) for name in oom.__struct_fields__})


def _shortage(params: Params) -> str:
    found = "{requested_bytes} was requested with {allocated_bytes} allocated"
    left = "." if params["free_bytes"] is None else " and {free_bytes} free on the GPU."
    kind = str(params["kind"])
    known = params["outside_bytes"] is not None and kind not in _SAY_WHAT_IS_OUTSIDE
    outside = " {outside_bytes} of the GPU is outside PyTorch's allocator." if known else ""
    return say(f"{found}{left} {_SHORTAGES[kind](params)}{outside}", params)


def _fragmented(params: Params) -> str:
    piece = (
        ""
        if params["largest_free_block_bytes"] is None
        else "; the largest free block has {largest_free_block_bytes}"
    )
    remedy = "" if params["expandable_segments"] else f" {EXPANDABLE}"
    return f"Fragmentation: {{reserved_free_bytes}} of the reserved memory was free{piece}.{remedy}"


def _streams(_: Params) -> str:
    return (
        "{reserved_free_bytes} of the reserved memory was free, but only {usable_free_bytes} in the pool of this stream "
        "and block size. The rest belongs to other streams or private pools."
    )


def _limit(_: Params) -> str:
    return (
        "The GPU had enough free memory. A limit on the process (set_per_process_memory_fraction) or a failed driver "
        "call stopped the request."
    )


def _outside(_: Params) -> str:
    return (
        "Of the GPU's {gpu_bytes}, {outside_bytes} is held outside PyTorch's allocator, which reserves {reserved_bytes}. "
        "Look for other processes with nvidia-smi, and for libraries that allocate by themselves, such as NCCL."
    )


def _full(params: Params) -> str:
    if params["reserved_bytes"] is None:
        return "The GPU was full. Memory of other processes is not in the snapshot."
    if params["outside_bytes"] is not None:
        return "The GPU was full: PyTorch reserves {reserved_bytes}, and {outside_bytes} is outside PyTorch's allocator."
    return (
        "PyTorch reserves {reserved_bytes}. All other used memory is outside PyTorch's allocator: other processes (see "
        "nvidia-smi), CUDA contexts, libraries such as NCCL."
    )


_SHORTAGES: Final = {
    "fragmented": _fragmented,
    "streams": _streams,
    "limit": _limit,
    "outside": _outside,
    "full": _full,
}


_SAY_WHAT_IS_OUTSIDE: Final = ("outside", "full")


def _out_of_memory(params: Params) -> str:
    return f"Out of memory at {params['where'] or 'an unknown call site'}: {_shortage(params)}"


def _leak(params: Params) -> str:
    where = params["where"] or "blocks without a stack"
    use = _use(str(params["category"]))
    return say(
        "Memory of {where}{use} grows by {step_bytes} per step: in {count} of {steps} steps, by {grown_bytes} in all.",
        {**params, "where": where, "use": use},
    )


def _fragmentation(params: Params) -> str:
    remedy = "" if params["expandable_segments"] else f" {EXPANDABLE}"
    return say(
        "Fragmentation: {free_bytes} of {reserved_bytes} reserved ({free_share}) was free even at the reserved peak. "
        "CUDA was asked for more memory {count:time}, although as much was free in blocks that did not fit."
        + remedy,
        params,
    )


def _on_device(template: str) -> Template:
    """A sentence on the recording of one device, which is named where there are several."""

    def sentence(params: Params) -> str:
        where = "" if params["device"] is None else "Device {device}: "
        return say(where + template, params)

    return sentence


HISTORY_CLOCK: Final = _on_device(
    "The clock went back: {count:entry} of the memory history earlier than the one before. "
    "The file's order counts; times may be wrong."
)

FINDINGS: Final[Table] = {
    "empty": "The snapshot is empty: nothing was allocated on a GPU.",
    "memory-without-owners": "The timeline's memory events do not say who holds memory. Record a memory snapshot too.",
    "no-history": _on_device(
        "No history of allocations was recorded, so the peak is unknown. Call "
        "torch.cuda.memory._record_memory_history() before the run."
    ),
    "history-truncated": _on_device(
        "The history begins with {allocated_bytes} allocated: it was started late, or its ring buffer (max_entries) "
        "overflowed. An earlier, higher peak would not show."
    ),
    "history-late": _on_device(
        "The allocator reserved {reserved_bytes} before the history began, none of it in use. There was an earlier "
        "peak that does not show."
    ),
    "peak-bounded": _on_device(
        "The peak may be up to {unsure_bytes} higher: the history does not show how older blocks were split."
    ),
    "segments-missing": _on_device(
        "More is allocated than reserved: entries of segments are missing from the history."
    ),
    "lost-frees": _on_device(
        "Frees are missing from the history: {count:block} allocated again without one."
    ),
    "extra-frees": _on_device("Entries are missing from the history: {count:block} freed twice."),
    "history-mismatch": _on_device(
        "History and segments disagree: {count:block} allocated in the history only. Frees were not recorded, or the two "
        "were taken at different moments."
    ),
    "sizes-estimated": _on_device(
        "Block sizes are not those of torch's CUDA allocator ({count:block}): another allocator, or changed settings. Sizes "
        "in between are estimates."
    ),
    "out-of-memory": _out_of_memory,
    "leak": _leak,
    "fragmentation": _fragmentation,
    "allocator-churn": (
        "In the last {steps:step} the allocator still asked CUDA for memory {cuda_allocations:time} and freed {count:time}. "
        "Each free waits for the GPU. Look for empty_cache() in the loop, or for nearly full memory."
    ),
    "private-pools": (
        "{private_bytes} of {reserved_bytes} reserved is in {count:private pool} of CUDA graphs or MemPool. {free_bytes} of "
        "that is free, and the default pool cannot use it."
    ),
}
"""The sentence of each finding by its code."""
