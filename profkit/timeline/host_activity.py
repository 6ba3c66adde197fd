"""What a host thread was doing, as sets of time."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np

from profkit.model import RangeKind, Trace
from profkit.model.states import State
from profkit.timeline.intervals import Intervals
from profkit.timeline.phases import Phases
from profkit.timeline.range_names import compiles, fetches_data, matching
from profkit.timeline.waits import Waits

__all__ = ["HOST_PRECEDENCE", "HostActivity"]

HOST_PRECEDENCE: Final = (State.ALLOCATION, State.COMPILATION, State.PROFILER, State.INPUT)
"""What a late launch is charged to, the first that holds (design, section 2); `State.HOST` is the rest."""

_ALLOCATING: Final = (
    "cudaMalloc", "cudaFree", "cudaHostAlloc", "cudaHostRegister", "cudaHostUnregister", "cuMemAlloc", "cuMemFree",
    "cuMemHostAlloc", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuMemSetAccess",
    "cuMemAddressReserve", "cuMemAddressFree", "hipMalloc", "hipFree", "hipHostMalloc", "hipExtMalloc", "hipMem",
)  # fmt: skip
_NOT_ALLOCATING: Final = ("hipMemcpy", "hipMemset", "hipMemGetInfo", "hipMemPrefetch")
_LOADING: Final = (
    "cuModuleLoad", "cuLibraryLoad", "cudaLibraryLoad", "cuModuleGetFunction", "cuLibraryGetKernel", "cuLink",
    "hipModuleLoad", "nvrtc", "cuModuleUnload", "cudaGraphInstantiate", "cuGraphInstantiate", "hipGraphInstantiate",
)  # fmt: skip
_QUEUE_FULL: Final = "Command Buffer Full"


class HostActivity:
    """The activity of each thread of a trace; a thread's sets are made when first asked for."""

    def __init__(self, trace: Trace, phases: Phases, waits: Waits) -> None:
        self._trace = trace
        self._waits = waits
        calls, ranges, strings = trace.calls, trace.ranges, trace.strings
        self._allocating = matching(
            strings, calls.name, lambda n: n.startswith(_ALLOCATING) and not n.startswith(_NOT_ALLOCATING)
        )
        self._loading = matching(strings, calls.name, lambda n: n.startswith(_LOADING))
        self._compiling = matching(strings, ranges.name, compiles) & (ranges.kind != RangeKind.PYTHON)
        overhead = (ranges.kind == RangeKind.OVERHEAD) & ~self._compiling
        self._overhead = overhead & ~matching(strings, ranges.name, lambda n: n == _QUEUE_FULL)
        loader = matching(strings, ranges.name, fetches_data)
        data_loader = matching(strings, ranges.name, lambda n: n.startswith("enumerate(DataLoader)#"))
        self._fetching = loader & (phases.rows | (data_loader & (ranges.kind != RangeKind.PYTHON)))
        # Overhead on a thread without calls is the profiler's own thread: the whole process paid for it.
        process = np.array([thread.process for thread in trace.threads] or [-1])
        silent = (ranges.thread >= 0) & ~np.isin(ranges.thread, calls.thread)
        self._paying_process = np.where(silent, process[ranges.thread], -1)
        self.of_thread = cache(self._of_thread)
        self.recorded = cache(self._recorded)
        self.waiting = cache(self._waiting)

    def doing(self, thread: int, inherits: int) -> dict[State, Intervals]:
        """What a thread did, by cause; where it did nothing recorded, what the other thread did.

        Args:
            thread: The launching thread.
            inherits: The thread whose phase the launch has; may be the same.
        """
        own = self.of_thread(thread)
        if inherits in (thread, -1):
            return own
        silent, other = self.recorded(thread), self.of_thread(inherits)
        return {cause: own[cause].union(other[cause].difference(silent)) for cause in HOST_PRECEDENCE}

    def waiting_of(self, thread: int, inherits: int) -> Intervals:
        """When a thread was blocked, or the thread whose phase it has while it did nothing itself."""
        if inherits in (thread, -1):
            return self.waiting(thread)
        return self.waiting(thread).union(self.waiting(inherits).difference(self.recorded(thread)))

    def _of_thread(self, thread: int) -> dict[State, Intervals]:
        calls, ranges = self._trace.calls, self._trace.ranges
        call, here = calls.thread == thread, ranges.thread == thread
        process = self._trace.threads[thread].process
        overhead = here | (self._paying_process == process)
        loading = Intervals.of(calls.start_ns[call & self._loading], calls.end_ns[call & self._loading])
        compiling = Intervals.of(*self._ranges(here & self._compiling))
        return {
            State.ALLOCATION: Intervals.of(
                calls.start_ns[call & self._allocating], calls.end_ns[call & self._allocating]
            ),
            State.COMPILATION: loading.union(compiling),
            State.PROFILER: Intervals.of(*self._ranges(overhead & self._overhead)),
            State.INPUT: Intervals.of(*self._ranges(here & self._fetching)),
        }

    def _ranges(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self._trace.ranges.start_ns[rows], self._trace.ranges.end_ns[rows]

    def _recorded(self, thread: int) -> Intervals:
        calls = self._trace.calls
        call = calls.thread == thread
        ranges = Intervals.of(*self._ranges(self._trace.ranges.thread == thread))
        return ranges.union(Intervals.of(calls.start_ns[call], calls.end_ns[call]))

    def _waiting(self, thread: int) -> Intervals:
        mine = self._waits.thread == thread
        return Intervals.of(self._waits.start_ns[mine], self._waits.end_ns[mine])
