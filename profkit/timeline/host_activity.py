"""What a host thread was doing, as sets of time."""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.model.states import State
from profkit.timeline.intervals import Intervals
from profkit.timeline.launch_queue import LaunchQueue
from profkit.timeline.launches import captures
from profkit.timeline.phases import Phases
from profkit.timeline.range_names import compiles, fetches_data, loads_code, matching
from profkit.timeline.start_up import allocates, initialising, profiles
from profkit.timeline.waits import Waits

__all__ = ["HOST_PRECEDENCE", "HostActivity"]

HOST_PRECEDENCE: Final = (
    State.DEPENDENCY, State.INITIALISATION, State.CAPTURE, State.ALLOCATION, State.COMPILATION, State.PROFILER, State.INPUT,
)  # fmt: skip
"""What a late launch is attributed to, the first that applies (design, section 2): `State.DEPENDENCY` is a call that
waited for the device. What is left is `State.SYNC` as far as there is credit, then `State.HOST_WORK`, then `State.HOST`."""

_COMPILING: Final = (
    "cuLink", "nvrtc", "hiprtc", "cudaGraphInstantiate", "cuGraphInstantiate", "hipGraphInstantiate",
)  # fmt: skip
_QUEUE_FULL: Final = "Command Buffer Full"


class HostActivity:
    """The activity of each thread of a trace; a thread's sets are made when first asked for."""

    def __init__(
        self, trace: Trace, phases: Phases, waits: Waits, queue: LaunchQueue, work: NDArray[np.bool_]
    ) -> None:
        self._trace = trace
        self._waits = waits
        self._queue = queue
        self.work = work
        """Which rows of `Trace.ranges` are the program's own work."""
        calls, ranges, strings = trace.calls, trace.ranges, trace.strings
        self._initialising = initialising(trace, queue)
        self._allocating = matching(strings, calls.name, allocates)
        self._profiling = matching(strings, calls.name, profiles)
        self._building = matching(strings, calls.name, lambda n: n.startswith(_COMPILING))
        recorded = ranges.kind != RangeKind.PYTHON
        self._compiling = matching(strings, ranges.name, compiles) & recorded
        self._loading = matching(strings, ranges.name, loads_code) & recorded
        overhead = (ranges.kind == RangeKind.OVERHEAD) & ~self._compiling & ~self._loading
        self._overhead = overhead & ~matching(strings, ranges.name, lambda n: n == _QUEUE_FULL)
        loader = matching(strings, ranges.name, fetches_data)
        data_loader = matching(strings, ranges.name, lambda n: n.startswith("enumerate(DataLoader)#"))
        self.fetching = loader & (phases.rows | (data_loader & recorded))
        """Which rows of `Trace.ranges` fetch or prepare data."""
        # Overhead on a thread without calls is the profiler's own thread: the whole process paid for it.
        process = np.array([thread.process for thread in trace.threads] or [-1])
        silent = (ranges.thread >= 0) & ~np.isin(ranges.thread, calls.thread)
        self._paying_process = np.where(silent, process[ranges.thread], -1)
        self.of_thread = cache(self._of_thread)
        self.recorded = cache(self._recorded)
        self.waiting = cache(self._waiting)

    def doing(self, thread: int, inherits: int) -> dict[State, Intervals]:
        """What a thread did, by cause: `HOST_PRECEDENCE` and `State.HOST_WORK`. Where it did nothing recorded, the other.

        Args:
            thread: The launching thread.
            inherits: The thread whose phase the launch has; may be the same.
        """
        own = self.of_thread(thread)
        if inherits in (thread, -1):
            return own
        silent, other = self.recorded(thread), self.of_thread(inherits)
        return {cause: own[cause].union(other[cause].difference(silent)) for cause in own}

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
        queue = self._queue
        wait = Intervals.of(calls.start_ns[call], queue.wait_end_ns[call])
        return {
            State.DEPENDENCY: self._calls(call & queue.blocked).union(wait),
            State.INITIALISATION: self._calls(call & self._initialising).union(
                Intervals.of(*self._ranges(here & self._loading))
            ),
            State.CAPTURE: captures(self._trace, thread),
            State.ALLOCATION: self._calls(call & self._allocating),
            State.COMPILATION: self._calls(call & self._building).union(
                Intervals.of(*self._ranges(here & self._compiling))
            ),
            State.PROFILER: self._calls(call & self._profiling).union(
                Intervals.of(*self._ranges(overhead & self._overhead))
            ),
            State.INPUT: Intervals.of(*self._ranges(here & self.fetching)),
            State.HOST_WORK: Intervals.of(*self._ranges(here & self.work)).difference(self.waiting(thread)),
        }

    def _calls(self, rows: NDArray[np.bool_]) -> Intervals:
        return Intervals.of(self._trace.calls.start_ns[rows], self._trace.calls.end_ns[rows])

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
