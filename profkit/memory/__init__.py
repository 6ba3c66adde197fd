"""GPU memory: who holds it at the peak, in which phase, what grows, and what ran out of it.

In come a `MemoryHistory` (a snapshot) or the memory events of a `Trace`; out goes a `Memory`, the section of a report,
in numbers and codes. The words are the caching allocator's: segment, block, reserved, active, allocated.
"""

from profkit.memory.memory_section import MemoryFound, fullest, memory_found, overlap
from profkit.memory.replay import DeviceReplay, replay
from profkit.memory.snapshot_section import history_origin_ns, history_span, summarise_memory
from profkit.memory.trace_section import summarise_trace_memory, trace_memory_later

__all__ = [
    "DeviceReplay",
    "MemoryFound",
    "fullest",
    "history_origin_ns",
    "history_span",
    "memory_found",
    "overlap",
    "replay",
    "summarise_memory",
    "summarise_trace_memory",
    "trace_memory_later",
]
