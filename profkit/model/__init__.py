"""What passes between the rooms: recordings as readers return them, and the report as analysis returns it.

The names are imported when they are first used: a program that only marks its phases loads no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from profkit.model.marks import PHASE_DOMAIN, PHASE_MARK

if TYPE_CHECKING:
    from profkit.model.trace import (
        UNKNOWN,
        Calls,
        Collectives,
        CopyKind,
        Device,
        Finding,
        IntColumn,
        MemoryEvents,
        OperationKind,
        Operations,
        Process,
        RangeKind,
        Ranges,
        Samples,
        Severity,
        Source,
        Syncs,
        Table,
        Thread,
        Trace,
        column,
    )

__all__ = [
    "PHASE_DOMAIN",
    "PHASE_MARK",
    "UNKNOWN",
    "Calls",
    "Collectives",
    "CopyKind",
    "Device",
    "Finding",
    "IntColumn",
    "MemoryEvents",
    "OperationKind",
    "Operations",
    "Process",
    "RangeKind",
    "Ranges",
    "Samples",
    "Severity",
    "Source",
    "Syncs",
    "Table",
    "Thread",
    "Trace",
    "column",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'profkit.model' has no attribute {name!r}")
    return getattr(import_module("profkit.model.trace"), name)
