"""The values that the stages of profkit hand to each other.

Readers return a `Trace` (one timeline) or a `MemoryHistory` (one memory snapshot): columns of events. Analyses return
a `profkit.model.report.Report`: typed, frozen rows of numbers, codes and names, without a word of English. Everything
here is data; nothing here computes.

- `trace`, `memory_history`: what readers return, on `columns`.
- `report`: what analysis returns. Its rows stand by topic in `report_time`, `report_kernels`, `report_memory`,
  `report_allocator`, `report_ranks` and `report_verdict`; the names that they share are in `names`, their base and
  their units in `rows`.
- `findings`: codes with their numbers, from readers and analyses alike.

The names here are imported when they are first used: a program that only marks its phases loads no numpy.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from profkit.model.marks import PHASE_DOMAIN, PHASE_MARK, WORK_MARK

if TYPE_CHECKING:
    from profkit.model.columns import UNKNOWN, IntColumn, Table, column
    from profkit.model.findings import Fact, Finding, Severity
    from profkit.model.memory_history import (
        Action,
        AllocatorEvents,
        Annotations,
        Blocks,
        BlockState,
        Frames,
        MemoryHistory,
        Segments,
        Stacks,
    )
    from profkit.model.trace import (
        LAUNCH_SHAPE,
        Calls,
        Collectives,
        CopyKind,
        Counters,
        Device,
        MemoryEvents,
        OperationKind,
        Operations,
        Process,
        RangeKind,
        Ranges,
        Samples,
        Source,
        Syncs,
        Thread,
        Trace,
    )

__all__ = [
    "PHASE_DOMAIN",
    "PHASE_MARK",
    "WORK_MARK",
    "LAUNCH_SHAPE",
    "Action",
    "AllocatorEvents",
    "Annotations",
    "BlockState",
    "Blocks",
    "Calls",
    "Collectives",
    "Counters",
    "CopyKind",
    "Device",
    "Fact",
    "Finding",
    "Frames",
    "IntColumn",
    "MemoryEvents",
    "MemoryHistory",
    "OperationKind",
    "Operations",
    "Process",
    "RangeKind",
    "Ranges",
    "Samples",
    "Segments",
    "Severity",
    "Source",
    "Stacks",
    "Syncs",
    "Table",
    "Thread",
    "Trace",
    "UNKNOWN",
    "column",
]

_HOMES: Final = {
    "Action": "memory_history",
    "AllocatorEvents": "memory_history",
    "Annotations": "memory_history",
    "BlockState": "memory_history",
    "Blocks": "memory_history",
    "Calls": "trace",
    "Collectives": "trace",
    "Counters": "trace",
    "CopyKind": "trace",
    "Device": "trace",
    "Fact": "findings",
    "Finding": "findings",
    "Frames": "memory_history",
    "IntColumn": "columns",
    "LAUNCH_SHAPE": "trace",
    "MemoryEvents": "trace",
    "MemoryHistory": "memory_history",
    "OperationKind": "trace",
    "Operations": "trace",
    "Process": "trace",
    "RangeKind": "trace",
    "Ranges": "trace",
    "Samples": "trace",
    "Segments": "memory_history",
    "Severity": "findings",
    "Source": "trace",
    "Stacks": "memory_history",
    "Syncs": "trace",
    "Table": "columns",
    "Thread": "trace",
    "Trace": "trace",
    "UNKNOWN": "columns",
    "column": "columns",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'profkit.model' has no attribute {name!r}")
    return getattr(import_module(f"profkit.model.{_HOMES[name]}"), name)
