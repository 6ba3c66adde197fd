"""The words of a report: what its shares, bounds, causes and levels are called, and what they mean."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = [
    "BASES",
    "BOUNDS",
    "CAUSES",
    "SHARES",
    "Term",
    "bound_term",
    "cause_term",
    "share_term",
]


class Term(NamedTuple):
    """A word of the contract as a reader meets it."""

    label: str
    meaning: str
    terminal: str
    """Its colour in a terminal, as rich names it. In the page the colour hangs on the word itself."""


SHARES: Final = {
    "compute": Term("Compute", "in kernels that the arithmetic units limit", "blue"),
    "memory": Term("Memory", "in kernels and copies that the card's own memory limits", "cyan"),
    "launch": Term(
        "Launch overhead", "waiting for launches, or in kernels too small to matter", "dark_orange"
    ),
    "unclassified": Term("Unclassified", "busy with work whose limit the file does not tell", "grey62"),
    "communication": Term("Communication", "in collectives and peer copies that nothing hides", "magenta"),
    "transfer": Term("Host copies", "in copies between host and device that nothing hides", "tan"),
    "input": Term("Input data", "idle while the host fetches the next batch", "red"),
    "sync": Term("Synchronisation", "idle because the host had waited for the device", "yellow"),
    "host_work": Term("Host work", "idle while the program works on the host and launches nothing", "gold1"),
    "other": Term("Other idle", "idle for another or an unknown reason", "grey42"),
}
"""In the order in which shares are drawn; the keys are the contract's."""

BOUNDS: Final = {
    "compute": Term("compute", "limited by the arithmetic units", "blue"),
    "memory": Term("memory", "limited by the card's memory bandwidth", "cyan"),
    "overhead": Term("overhead", "too short: the fixed cost of any kernel limits it", "dark_orange"),
    "communication": Term("communication", "a collective or a peer copy", "magenta"),
    "transfer": Term("host copy", "a copy between host and device", "tan"),
    "unknown": Term("unknown", "the file does not tell", "grey62"),
}

CAUSES: Final = {
    "input": Term("Input data", "the launching thread was fetching a batch", "red"),
    "sync": Term("Synchronisation", "the host had waited for the device and was late afterwards", "yellow"),
    "host": Term("Host too slow", "the launching thread was running Python or framework code", "dark_orange"),
    "host_work": Term(
        "Host work", "the program's own code, in a range or function that launches nothing", "gold1"
    ),
    "queue": Term(
        "Launch latency", "the kernel was queued, and the device took its usual time to start it", "orange3"
    ),
    "initialisation": Term(
        "Initialisation", "the launching thread was creating the context or loading code", "grey62"
    ),
    "allocation": Term(
        "Memory allocation", "the launching thread was in cudaMalloc, cudaFree or the like", "grey62"
    ),
    "compilation": Term("Compilation", "the launching thread was compiling or loading code", "grey62"),
    "capture": Term("Graph capture", "the launching thread was capturing a CUDA graph", "grey62"),
    "profiler": Term("Profiler", "the profiler itself was at work", "grey62"),
    "dependency": Term("Dependency", "queued, but waiting for another stream, an event or a copy", "grey62"),
    "tail": Term("Tail", "after the last operation of the window", "grey42"),
    "unknown": Term("Unknown", "the file has no launch for the operation that ended the gap", "grey42"),
}

BASES: Final = {
    "measured": "read from hardware counters in the file",
    "modelled": "computed from the shapes in the file",
    "inferred": "judged by kernel names, launch sizes and durations",
    "unknown": "the file does not tell",
}


def share_term(name: str) -> Term:
    """The term of a share; a share that is new to this version is shown by its own name."""
    return SHARES.get(name) or Term(name, "", "grey62")


def bound_term(name: str | None) -> Term:
    """The term of a kernel's or phase's bound, which may also be a share."""
    key = name or "unknown"
    return BOUNDS.get(key) or SHARES.get(key) or Term(key, "", "grey62")


def cause_term(name: str | None) -> Term:
    """The term of an idle cause."""
    key = name or "unknown"
    return CAUSES.get(key) or Term(key, "", "grey62")
