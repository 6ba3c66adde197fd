"""What readers return and analyses take: columns of events, with their units and meaning.

A `Trace` is one recorded timeline (one nsys export, or one Kineto trace). Each table of it is a set of
equally long numpy columns; a row is an event, and rows are in no promised order. Text stands once in
`Trace.strings`, and columns named after a text hold its index there. Everywhere:

- times are int64 nanoseconds on the trace's own clock, ends are exclusive, and ``end_ns >= start_ns``;
- sizes are bytes;
- an integer that is unknown is -1 (`UNKNOWN`), except where a column says otherwise;
- ids written by a tool (stream, context, correlation) are opaque: compared, never computed with.

Readers drop what is not credible (an end before its start, a time outside the recording) and count it in
`Trace.dropped`; so an analysis never needs to check a row by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from profkit.model.columns import IntColumn, Table, column
from profkit.model.findings import Finding
from profkit.model.report_numerics import Numerics

__all__ = [
    "LAUNCH_SHAPE",
    "Calls",
    "Collectives",
    "Counters",
    "CopyKind",
    "Device",
    "MemoryEvents",
    "Operations",
    "OperationKind",
    "Process",
    "RangeKind",
    "Ranges",
    "Samples",
    "Source",
    "Syncs",
    "Thread",
    "Trace",
]


class OperationKind(IntEnum):
    """What a device did."""

    KERNEL = 0
    COPY = 1
    MEMSET = 2
    GRAPH = 3
    """A CUDA graph recorded as one piece: its time is known, its kernels are not."""


class CopyKind(IntEnum):
    """The direction of a copy, with the numbers of nsys' ENUM_CUDA_MEMCPY_OPER."""

    UNKNOWN = 0
    HTOD = 1
    DTOH = 2
    HTOA = 3
    ATOH = 4
    ATOA = 5
    ATOD = 6
    DTOA = 7
    DTOD = 8
    HTOH = 9
    PTOP = 10
    MANAGED_HTOD = 11
    MANAGED_DTOH = 12
    MANAGED_DTOD = 13


class RangeKind(IntEnum):
    """Where a stretch of host time comes from."""

    ANNOTATION = 0
    """An NVTX push/pop range or a ``record_function`` of the user or of a library; also steps."""
    OPERATOR = 1
    """A dispatched operator: a Kineto ``cpu_op``, or an emit_nvtx range (its suffixes parsed away)."""
    PYTHON = 2
    """A Python function, ``file.py(12): name``, when stacks were recorded."""
    OVERHEAD = 3
    """Time that the profiler itself took."""
    START_END = 4
    """An NVTX start/end range: it belongs to its process, not to one thread, and nests in nothing."""


@dataclass(frozen=True)
class Source:
    """The file that a trace was read from."""

    name: str
    """The base name; never a path."""
    format: str
    """The name of a format in `profkit.readers.registry`, which also says what such a recording is for."""
    tool: str
    """The program that wrote it: ``Nsight Systems``, ``torch.profiler``, ``torch.cuda.memory``."""
    tool_version: str | None = None
    rank: int | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    """Safe facts for the report's last section: driver, CUDA version, options of the recording. Never an
    environment variable, a command line, a host name or a user name."""


@dataclass(frozen=True)
class Process:
    """A recorded process."""

    pid: int
    rank: int | None = None


@dataclass(frozen=True)
class Thread:
    """A host thread; ``process`` is an index into `Trace.processes`."""

    process: int
    tid: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Device:
    """A device on which operations ran."""

    ordinal: int
    """The tool's number for it: the CUDA ordinal where known."""
    name: str | None = None
    sm_count: int | None = None
    memory_bytes: int | None = None
    bandwidth_bytes_per_s: float | None = None
    """Theoretical peak DRAM bandwidth, where the file states it."""
    l2_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    uuid: str | None = None


LAUNCH_SHAPE = ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")
"""The columns of `Operations` that say how a kernel was launched."""


@dataclass(frozen=True, eq=False)
class Operations(Table):
    """What devices did: kernels, copies, memsets, opaque graphs. Copies HtoH are no device operation."""

    start_ns: IntColumn = column("i8", of="time")
    end_ns: IntColumn = column("i8", of="time")
    kind: IntColumn = column("i1", OperationKind.KERNEL)
    """`OperationKind`."""
    device: IntColumn = column("i4", 0, of="devices")
    """Index into `Trace.devices`."""
    process: IntColumn = column("i4", 0, of="processes")
    """Index into `Trace.processes`."""
    stream: IntColumn = column("i8")
    context: IntColumn = column("i8")
    name: IntColumn = column("i4", of="strings")
    """String: the demangled name with template arguments; for copies ``Memcpy HtoD`` and the like."""
    correlation: IntColumn = column("i8", 0, of="correlation")
    """Joins `Calls.correlation` of the same process; 0 is none. Nodes of a graph share one."""
    grid_x: IntColumn = column("i4")
    grid_y: IntColumn = column("i4")
    grid_z: IntColumn = column("i4")
    block_x: IntColumn = column("i4")
    block_y: IntColumn = column("i4")
    block_z: IntColumn = column("i4")
    registers: IntColumn = column("i4")
    """Registers a thread."""
    shared_bytes: IntColumn = column("i8")
    """Shared memory a block, static and dynamic."""
    bytes: IntColumn = column("i8")
    """Bytes of a copy or memset."""
    copy_kind: IntColumn = column("i1", CopyKind.UNKNOWN)
    """`CopyKind`, for copies."""
    source_device: IntColumn = column("i4")
    """For peer copies: the tool's ordinal of the source device."""
    target_device: IntColumn = column("i4")
    pageable: IntColumn = column("i1")
    """Copies: 1 when the host side is pageable memory, 0 when it is not."""
    graph_node: IntColumn = column("i8", 0)
    """Non-zero for a node of a graph that was traced node by node."""
    external: IntColumn = column("i8", 0, of="external")
    """Joins `Ranges.external` of the same process: the operator that launched it; 0 is none."""
    module: IntColumn = column("i4", of="strings")
    """String: the path of the module that a node of a graph was captured in (``layers.0.attention.wq``)."""


@dataclass(frozen=True, eq=False)
class Calls(Table):
    """Calls of the CUDA or HIP runtime and driver by host threads."""

    start_ns: IntColumn = column("i8", of="time")
    end_ns: IntColumn = column("i8", of="time")
    thread: IntColumn = column("i4", of="threads")
    """Index into `Trace.threads`."""
    name: IntColumn = column("i4", of="strings")
    """String: the function's name without its version suffix, e.g. ``cudaLaunchKernel``."""
    correlation: IntColumn = column("i8", 0, of="correlation")
    driver: IntColumn = column("i1", 0)
    """1 for the driver API, 0 for the runtime API."""
    stack: IntColumn = column("i4", of="strings")
    """String: the Python frame that made the call (``file.py:12``), where the file has it."""


@dataclass(frozen=True, eq=False)
class Ranges(Table):
    """Named stretches of host time: annotations, operators, Python functions, profiler overhead."""

    start_ns: IntColumn = column("i8", of="time")
    end_ns: IntColumn = column("i8", of="time")
    thread: IntColumn = column("i4", of="threads")
    """Index into `Trace.threads`: where it began."""
    kind: IntColumn = column("i1", RangeKind.ANNOTATION)
    """`RangeKind`."""
    name: IntColumn = column("i4", of="strings")
    """String, cleaned: without emit_nvtx suffixes and without `PHASE_MARK`."""
    domain: IntColumn = column("i4", of="strings")
    """String: the NVTX domain's name; -1 for the default domain and for formats without domains."""
    sequence: IntColumn = column("i8", of="sequence")
    """Autograd sequence number: a backward operator has that of its forward operator."""
    external: IntColumn = column("i8", 0, of="external")
    """An operator's number, which `Operations.external` names; 0 is none."""
    shapes: IntColumn = column("i4", of="strings")
    """String, JSON: the sizes of an operator's inputs, ``[[64, 128], [], [[2, 3], [4]]]``."""
    dtypes: IntColumn = column("i4", of="strings")
    """String, JSON: the types of its inputs, ``["float", "c10::BFloat16", "Scalar"]``."""
    strides: IntColumn = column("i4", of="strings")
    """String, JSON: the strides of its inputs, shaped like ``shapes``."""
    scalars: IntColumn = column("i4", of="strings")
    """String, JSON: its scalar inputs as text (Kineto's Concrete Inputs), ``["", "False", "[1, 1]"]``."""


@dataclass(frozen=True, eq=False)
class Syncs(Table):
    """Rows of the synchronisation activity. They add stream and context to a wait; they are no durations."""

    start_ns: IntColumn = column("i8", of="time")
    end_ns: IntColumn = column("i8", of="time")
    process: IntColumn = column("i4", 0, of="processes")
    stream: IntColumn = column("i8")
    context: IntColumn = column("i8")
    correlation: IntColumn = column("i8", 0, of="correlation")
    name: IntColumn = column("i4", of="strings")
    """String: ``Event Sync``, ``Stream Wait Event``, ``Stream Sync``, ``Context Sync``."""


@dataclass(frozen=True, eq=False)
class Collectives(Table):
    """What a file says of collective kernels, one row for a kernel that says something.

    Also, in `Trace.messages`, the sends and receives that the host asked for: a batch of them is one kernel.
    """

    operation: IntColumn = column("i4", of="operations")
    """Row in `Trace.operations`; of messages unknown."""
    name: IntColumn = column("i4", of="strings")
    """String: ``allreduce``, ``_allgather_base``..."""
    dtype: IntColumn = column("i4", of="strings")
    """String as written: ``BFloat16``."""
    in_elements: IntColumn = column("i8")
    out_elements: IntColumn = column("i8")
    group_size: IntColumn = column("i4")
    group: IntColumn = column("i4", of="strings")
    """String: the process group's name or description."""
    sequence: IntColumn = column("i8")
    """The collective's number within its group, where written."""
    peer: IntColumn = column("i4")
    """Of a send or receive: the rank on the other side, as numbered in the whole job."""
    time_ns: IntColumn = column("i8", of="time")
    """Of messages: when the host asked."""
    thread: IntColumn = column("i4", of="threads")
    """Of messages: index into `Trace.threads`."""


@dataclass(frozen=True, eq=False)
class MemoryEvents(Table):
    """Allocations that a timeline itself recorded (Kineto ``[memory]``, nsys memory usage)."""

    time_ns: IntColumn = column("i8", of="time")
    device: IntColumn = column("i4", of="devices")
    """Index into `Trace.devices`; -1 is the host."""
    thread: IntColumn = column("i4", of="threads")
    bytes: IntColumn = column("i8", 0)
    """Positive for an allocation, negative for a free."""
    address: IntColumn = column("i8")
    total_allocated: IntColumn = column("i8")
    total_reserved: IntColumn = column("i8")


@dataclass(frozen=True, eq=False)
class Samples(Table):
    """Samples of hardware metrics over the whole device."""

    time_ns: IntColumn = column("i8", of="time")
    device: IntColumn = column("i4", 0, of="devices")
    metric: IntColumn = column("i4", of="strings")
    """String: the metric's name as written, e.g. ``DRAM Read Bandwidth [Throughput %]``."""
    value: NDArray[np.float64] = column("f8", float("nan"))


@dataclass(frozen=True, eq=False)
class Counters(Table):
    """What hardware counters said of single kernels, each measured in a run of its own; NaN is not collected."""

    operation: IntColumn = column("i4", of="operations")
    """Row in `Trace.operations`."""
    duration_ns: IntColumn = column("i8")
    """Its time when it runs by itself, with cold caches unless the tool was told otherwise."""
    dram_bytes: NDArray[np.float64] = column("f8", float("nan"))
    """Bytes to and from device memory."""
    dram_share: NDArray[np.float64] = column("f8", float("nan"))
    """Memory throughput over its peak, 0 to 1, like the shares below."""
    sm_share: NDArray[np.float64] = column("f8", float("nan"))
    """Throughput of the busiest pipe or the issue slots of the multiprocessors."""
    tensor_share: NDArray[np.float64] = column("f8", float("nan"))
    """Cycles in which the Tensor Cores were active."""
    occupancy: NDArray[np.float64] = column("f8", float("nan"))
    """Active warps over the most that a multiprocessor holds."""


@dataclass(frozen=True, eq=False)
class Trace:
    """One recorded timeline."""

    source: Source
    strings: Sequence[str]
    """Each text once. Hostile or broken text is kept as valid Unicode; renderers escape it."""
    processes: Sequence[Process] = ()
    threads: Sequence[Thread] = ()
    devices: Sequence[Device] = ()
    operations: Operations = field(default_factory=Operations.empty)
    calls: Calls = field(default_factory=Calls.empty)
    ranges: Ranges = field(default_factory=Ranges.empty)
    syncs: Syncs = field(default_factory=Syncs.empty)
    collectives: Collectives = field(default_factory=Collectives.empty)
    messages: Collectives = field(default_factory=Collectives.empty)
    memory: MemoryEvents = field(default_factory=MemoryEvents.empty)
    samples: Samples = field(default_factory=Samples.empty)
    counters: Counters = field(default_factory=Counters.empty)
    numerics: Numerics | None = None
    """What the tensors held; such a file has no times."""
    unix_epoch_ns: int | None = None
    """The Unix time, in ns, of this trace's time zero; None when the file does not say."""
    resumed_ns: Sequence[int] = ()
    """When recording began anew, in order: nothing is known of the time before, since the last event."""
    findings: Sequence[Finding] = ()
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Events that were left out, by reason in snake case: ``reversed_times``, ``implausible_times``,
    ``lost_timestamps``, ``not_an_object``..."""

    def names(self, ids: IntColumn) -> NDArray[np.object_]:
        """Texts of a column of string ids; ``""`` for unknown ones."""
        table = np.empty(len(self.strings) + 1, dtype=object)
        table[:-1] = self.strings
        table[-1] = ""
        names: NDArray[np.object_] = table[ids]
        return names
