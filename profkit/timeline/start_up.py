"""What sets the device up: context creation, loading of code, first uses, weights that are moved once."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import CopyKind, OperationKind, Operations, Trace
from profkit.timeline.distinct import rows_by_value
from profkit.timeline.launch_queue import FULL_QUEUE, LaunchQueue
from profkit.timeline.launches import graph_launches, processes_of_calls
from profkit.timeline.range_names import matching
from profkit.timeline.waits import blocks

__all__ = ["allocates", "initialising", "profiles", "weights_moved_until"]

_LONG_NS: Final = 1_000_000
"""A call that long does more than its name says (design, section 2)."""

_SLOW_FREE_NS: Final = 100_000_000
"""No memory takes as long to give back: such a free hides the first use of a library (5 s in one of cuDNN's; of 1,360
frees of a program without a cache, the longest took 68 ms)."""

_FEW_QUEUED: Final = 10
"""With fewer launches queued, no full queue can hold a launch call up: it loads code (design, section 2)."""

_WEIGHTS: Final = 10
"""So many copies before the first kernel, and most of all copies to the device, move a model and no input."""

_MOST_COPIES: Final = 0.75

_ALLOCATING: Final = (
    "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister", "cuMemAlloc", "cuMemFree",
    "cuMemHostAlloc", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuMemSetAccess",
    "cuMemAddressReserve", "cuMemAddressFree", "hipMalloc", "hipFree", "hipHostMalloc", "hipExtMalloc", "hipMem",
)  # fmt: skip
_NOT_ALLOCATING: Final = ("hipMemcpy", "hipMemset", "hipMemGetInfo", "hipMemPrefetch")
_LOADING: Final = (
    "cuModuleLoad", "cuLibraryLoad", "cudaLibraryLoad", "cuModuleGetFunction", "cuLibraryGetKernel", "cuModuleUnload",
    "hipModuleLoad", "hipModuleGetFunction", "hipModuleUnload",
)  # fmt: skip
_OF_ANOTHER_KIND: Final = ("Memcpy", "MemPrefetch", "GraphLaunch", "Capture")


def allocates(name: str) -> bool:
    """A call that asks the driver for memory, or gives it back."""
    return name.startswith(_ALLOCATING) and not name.startswith(_NOT_ALLOCATING)


def profiles(name: str) -> bool:
    """A call of a profiler."""
    return "Profiler" in name or name.startswith(("cupti", "roctracer", "rocprofiler"))


def initialising(trace: Trace, queue: LaunchQueue) -> NDArray[np.bool_]:
    """Which calls set the device up.

    Those are the loading of modules; each process's first call (it makes the context), where it is long and nothing
    ran before it; a long launch call that no full queue blocks (it loads its kernel); a free of a tenth of a second; and
    any other long call that does not wait, copy, allocate, launch a graph, capture or profile.
    """
    calls, strings = trace.calls, trace.strings
    long = calls.end_ns - calls.start_ns > _LONG_NS
    loading: NDArray[np.bool_] = matching(strings, calls.name, lambda name: name.startswith(_LOADING))
    graph = graph_launches(trace, calls.name)
    lazy = queue.launching & ~graph & ~queue.blocked & (queue.queued < _FEW_QUEUED)
    plain = matching(strings, calls.name, _may_set_up) & ~queue.launching & (queue.queued < FULL_QUEUE)
    slow = calls.end_ns - calls.start_ns > _SLOW_FREE_NS
    freeing = slow & matching(strings, calls.name, lambda name: allocates(name) and "Free" in name)
    return loading | freeing | (long & (lazy | plain | _first(trace)))


def _may_set_up(name: str) -> bool:
    return not (
        blocks(name) or allocates(name) or profiles(name) or any(part in name for part in _OF_ANOTHER_KIND)
    )


def _first(trace: Trace) -> NDArray[np.bool_]:
    """The first call of each process of which nothing had run before: a recording may begin in the middle."""
    calls, operations = trace.calls, trace.operations
    found = np.zeros(len(calls), bool)
    for process, mine in rows_by_value(processes_of_calls(trace)):
        first = mine[np.argmin(calls.start_ns[mine])]
        ran = operations.start_ns[operations.process == process]
        found[first] = not len(ran) or int(ran.min()) >= int(calls.start_ns[first])
    return found


def weights_moved_until(operations: Operations, rows: NDArray[np.int64]) -> int:
    """The start of the first of a device's operations that is no part of moving weights to it once.

    Args:
        operations: All operations.
        rows: Those of one device; some.
    """
    start, kind = operations.start_ns[rows], operations.kind[rows]
    work = np.isin(kind, (OperationKind.KERNEL, OperationKind.GRAPH))
    first = int(start.min())
    if not work.any():
        return first
    began = int(start[work].min())
    moved = (kind == OperationKind.COPY) & (operations.copy_kind[rows] == CopyKind.HTOD)
    before = int(np.count_nonzero(moved & (start < began)))
    return began if before >= max(_WEIGHTS, _MOST_COPIES * np.count_nonzero(moved)) else first
