"""CUDA memory snapshots: who holds the memory at the peak, in which phase, and what never comes back."""

from profkit.memory.history_section import history_origin_ns, summarise_memory
from profkit.memory.phase_memory import PhaseSpan
from profkit.memory.replay import DeviceReplay, replay
from profkit.memory.trace_memory import summarise_trace_memory

__all__ = [
    "DeviceReplay",
    "PhaseSpan",
    "history_origin_ns",
    "replay",
    "summarise_memory",
    "summarise_trace_memory",
]
