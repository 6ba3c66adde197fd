"""The values that the stages of profkit hand to each other.

Readers return a `Trace` (one timeline) or a `MemoryHistory` (one memory snapshot): columns of events. Analyses return
a `profkit.model.report.Report`: typed, frozen rows of numbers, codes and names, without a word of English. Everything
here is data; nothing here computes.

- `trace`, `memory_history`: what readers return, on `columns`.
- `report`: what analysis returns. Its rows stand by topic in `report_time`, `report_kernels`, `report_memory`,
  `report_allocator`, `report_ranks` and `report_verdict`; the names that they share are in `names`, their base and
  their units in `rows`.
- `findings`: codes with their numbers, from readers and analyses alike.
"""

from profkit.marks import PHASE_DOMAIN, PHASE_MARK
from profkit.model.columns import UNKNOWN, IntColumn
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
    Calls,
    Collectives,
    CopyKind,
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
    "UNKNOWN",
    "Action",
    "AllocatorEvents",
    "Annotations",
    "BlockState",
    "Blocks",
    "Calls",
    "Collectives",
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
    "Thread",
    "Trace",
]
