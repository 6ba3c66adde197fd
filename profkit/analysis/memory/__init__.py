"""CUDA memory snapshots: who holds the memory at the peak, in which phase, and what never comes back."""

from profkit.analysis.memory.replay import DeviceReplay, replay
from profkit.analysis.memory.summary import history_origin_ns, summarise_memory

__all__ = ["DeviceReplay", "history_origin_ns", "replay", "summarise_memory"]
