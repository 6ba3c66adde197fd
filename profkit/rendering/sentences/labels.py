"""One name for one thing: what every share, bound, idle cause and basis is called and means, wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

__all__ = [
    "BASES",
    "BOUNDS",
    "CAUSES",
    "CONFIDENCES",
    "SHARES",
    "Term",
    "LAUNCH_PARTS",
    "OCCUPANCY_LIMITS",
    "bound_term",
    "cause_term",
    "shapes_text",
    "share_label",
    "share_term",
]


class Term(NamedTuple):
    """A code of the report as a reader meets it."""

    label: str
    meaning: str
    terminal: str
    """Its colour in a terminal, as rich names it. In the page the colour hangs on the word itself."""


SHARES: Final = {
    "compute": Term("Compute", "in compute-bound kernels", "blue"),
    "memory": Term("Memory", "in memory-bound kernels, or copies within the GPU", "cyan"),
    "launch": Term(
        "Launch overhead", "waiting for launches, or in kernels too short to do useful work", "dark_orange"
    ),
    "unclassified": Term("Unclassified", "busy with work of unknown bound", "grey62"),
    "communication": Term("Communication", "in exposed collectives and peer copies", "magenta"),
    "transfer": Term("Host copies", "in exposed copies between host and device", "tan"),
    "input": Term("Input data", "idle while the host fetches the next batch", "red"),
    "sync": Term("Synchronisation", "idle after a host synchronisation", "yellow"),
    "host_work": Term("Host work", "idle while the host does other work", "gold1"),
    "other": Term("Other idle", "idle for another or an unknown reason", "grey42"),
}
"""In the order in which shares are drawn; the keys are the contract's."""

BOUNDS: Final = {
    "compute": Term("compute", "limited by arithmetic", "blue"),
    "memory": Term("memory", "limited by memory bandwidth", "cyan"),
    "overhead": Term("overhead", "limited by the fixed time that any kernel takes", "dark_orange"),
    "communication": Term("communication", "a collective or a peer copy", "magenta"),
    "transfer": Term("host copy", "a copy between host and device", "tan"),
    "unknown": Term("unknown", "not known from this file", "grey62"),
}

CAUSES: Final = {
    "input": Term("Input data", "the host was fetching a batch", "red"),
    "sync": Term("Synchronisation", "the host had waited for the device, and launched late", "yellow"),
    "host": Term("Launching", "the host was running its own code around launches", "dark_orange"),
    "host_work": Term("Host work", "the host was in a range or function that launches nothing", "gold1"),
    "queue": Term("Queue latency", "the usual time between queued operations", "orange3"),
    "initialisation": Term(
        "Initialisation", "the host was creating the GPU context or loading kernels", "grey62"
    ),
    "allocation": Term("Memory allocation", "the host was in calls like cudaMalloc or cudaFree", "grey62"),
    "compilation": Term("Compilation", "the host was compiling kernels", "grey62"),
    "capture": Term("Graph capture", "the host was capturing a CUDA graph", "grey62"),
    "profiler": Term("Profiler", "the profiler itself was working", "grey62"),
    "dependency": Term("Dependency", "queued, but waiting for another stream, event or copy", "grey62"),
    "tail": Term("Tail", "after the last operation of the window", "grey42"),
    "unknown": Term("Unknown", "the file does not show why", "grey42"),
}

LAUNCH_PARTS: Final = {
    "host": CAUSES["host"].label,
    "queue": CAUSES["queue"].label,
    "small_kernels": "Short kernels",
}
"""The parts of the share ``launch``."""

OCCUPANCY_LIMITS: Final[Mapping[str, str]] = {
    "registers": "registers",
    "shared_memory": "shared memory",
    "threads": "threads",
    "blocks": "blocks",
    "grid": "small grid",
}
"""What keeps more warps from a multiprocessor."""

BASES: Final = {
    "measured": "read from hardware counters in the file",
    "modelled": "computed from the shapes in the file",
    "inferred": "inferred from kernel names, launch sizes and durations",
    "unknown": "not known from this file",
}


CONFIDENCES: Final = {
    "measured": f"measured (kernel bounds are {BASES['measured']})",
    "modelled": f"modelled (kernel bounds are {BASES['modelled']})",
    "inferred": BASES["inferred"],
    "low": "low (the second-largest share is close, and may be the largest)",
}
"""What the confidence of a verdict means."""


def shapes_text(shapes: Sequence[Sequence[int]] | None, times: str = "×") -> str | None:
    """The shapes of an operator's inputs: ``8192×1024, 1024×4096``."""
    return ", ".join(times.join(map(str, shape)) for shape in shapes) if shapes else None


def share_term(name: str) -> Term:
    """The term of a share, or of an idle cause that is told from its share; a new one is shown by its own name."""
    return SHARES.get(name) or CAUSES.get(name) or Term(name, "", "grey62")


def share_label(name: str) -> str:
    """The label of a share."""
    return share_term(name).label


def bound_term(name: str | None) -> Term:
    """The term of a kernel's or phase's bound, which may also be a share."""
    key = name or "unknown"
    return BOUNDS.get(key) or SHARES.get(key) or Term(key, "", "grey62")


def cause_term(name: str | None) -> Term:
    """The term of an idle cause."""
    key = name or "unknown"
    return CAUSES.get(key) or Term(key, "", "grey62")
