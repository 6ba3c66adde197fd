"""The one list of the names that a report uses as values: shares, idle causes, bounds, bases, resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias, get_args

from msgspec import Meta

from profkit.model.rows import Ns

__all__ = [
    "IDLE_CAUSES",
    "LAUNCH_PARTS",
    "RESOURCES",
    "SHARES",
    "Basis",
    "Confidence",
    "FoundBy",
    "IdleCause",
    "IdleTimes",
    "KernelBound",
    "LaunchPart",
    "Level",
    "MemoryCategory",
    "Resource",
    "ShareBound",
    "ShareName",
    "Shares",
]

ShareName: TypeAlias = Literal[
    "compute",
    "memory",
    "launch",
    "unclassified",
    "communication",
    "transfer",
    "input",
    "sync",
    "host_work",
    "other",
]
SHARES: Final[tuple[ShareName, ...]] = get_args(ShareName)
"""The ten shares of a window; they add up to it, per device, to the nanosecond."""

ShareBound: TypeAlias = Literal[ShareName, "unknown"]
"""The largest share, where there is one."""

IdleCause: TypeAlias = Literal[
    "input",
    "sync",
    "host",
    "host_work",
    "queue",
    "initialisation",
    "allocation",
    "compilation",
    "capture",
    "profiler",
    "dependency",
    "tail",
    "unknown",
]
IDLE_CAUSES: Final[tuple[IdleCause, ...]] = get_args(IdleCause)
"""Why a device ran nothing."""

FoundBy: TypeAlias = Literal["marks", "names", "period", "none"]
"""What tells the steps: marks of the profiler or the program, names of an engine or optimizer, repetition, nothing."""

LaunchPart: TypeAlias = Literal["host", "queue", "small_kernels"]
LAUNCH_PARTS: Final[tuple[LaunchPart, ...]] = get_args(LaunchPart)
"""What the share ``launch`` consists of: two idle causes, and kernels too small to do more than start and end."""

Resource: TypeAlias = Literal[
    "compute", "memory", "device_overhead", "host", "input", "transfer", "communication"
]
RESOURCES: Final[tuple[Resource, ...]] = get_args(Resource)
"""What may set the pace of a step; ``device_overhead`` is small kernels and queue."""

Shares: TypeAlias = Annotated[Mapping[ShareName, Ns], Meta(extra_json_schema={"required": list(SHARES)})]
"""Device time by share, in ns; all ten are always present."""

IdleTimes: TypeAlias = Annotated[
    Mapping[IdleCause, Ns], Meta(extra_json_schema={"required": list(IDLE_CAUSES)})
]
"""Idle time by cause, in ns; all causes are always present."""

KernelBound: TypeAlias = Literal["compute", "memory", "overhead", "communication", "unknown"]
"""The largest of an operation's terms; overhead is the fixed time that any kernel takes."""

Basis: TypeAlias = Literal["measured", "modelled", "inferred", "unknown"]
"""Where FLOP and bytes come from, best first."""

Confidence: TypeAlias = Literal["measured", "modelled", "inferred", "low", "unknown"]
"""The basis that most busy time rests on; ``low`` where a close second may as well be first."""

Level: TypeAlias = Literal["high", "medium", "low"]
"""How sure a piece of advice or a leak is."""

MemoryCategory: TypeAlias = Literal[
    "parameter", "gradient", "optimizer_state", "activation", "temporary", "workspace", "unknown"
]
"""What a block of memory was for."""
