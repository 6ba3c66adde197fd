"""CUDA memory snapshots: who holds the memory at the peak, in which phase, and what never comes back."""

from profkit.analysis.memory.comparison import compare_memory
from profkit.analysis.memory.phases import PhaseSpan
from profkit.analysis.memory.replay import DeviceReplay, replay
from profkit.analysis.memory.summary import history_origin_ns, summarise_memory
from profkit.analysis.memory.trace_memory import summarise_trace_memory

__all__ = [
    "DeviceReplay",
    "PhaseSpan",
    "compare_memory",
    "history_origin_ns",
    "replay",
    "summarise_memory",
    "summarise_trace_memory",
]
