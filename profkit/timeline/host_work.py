"""The program's own work on the host: ranges and Python frames that launch nothing."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind, Trace
from profkit.timeline.distinct import rows_by_value
from profkit.timeline.launches import launch_calls, processes_of_calls
from profkit.timeline.range_names import is_library, is_operator_name, is_torchs_frame, matching

__all__ = ["host_work"]

_LONG_NS: Final = 500_000
"""A shorter pause lies between launches of any program (design, section 2)."""

_LONGEST_NAME: Final = 1_000
"""What is longer is no name that a person gave."""

_LIBRARY_DOMAIN: Final = re.compile(
    r"CCCL|CUB|Thrust|NCCL|cu[A-Z]\w+|libcud\w+|NVSHMEM|TensorRT|DALI|RMM|RAPIDS\w*|UCX|MPI|PyTorch|torch\w*",
    re.IGNORECASE,
)


def host_work(trace: Trace, steps: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which ranges are the program's own work.

    They are longer than half a millisecond; no thread of their process launches anything during them; nothing that
    has the same name launches anything, ever; and they are not torch's or a library's.

    Args:
        trace: The timeline.
        steps: Which ranges are steps: never work.
    """
    ranges = trace.ranges
    kind = ranges.kind
    frames: NDArray[np.bool_] = kind == RangeKind.PYTHON
    marks: NDArray[np.bool_] = (kind == RangeKind.ANNOTATION) & ~steps
    marks &= ~matching(trace.strings, ranges.domain, lambda name: _LIBRARY_DOMAIN.match(name) is not None)
    launches = _launches_inside(trace)
    idle_name = np.ones(len(trace.strings) + 1, bool)
    idle_name[ranges.name[launches & (frames | marks)]] = False
    found = (frames | marks) & (ranges.end_ns - ranges.start_ns > _LONG_NS) & ~launches
    found &= idle_name[ranges.name]
    rows = np.flatnonzero(found)
    own = np.where(
        frames[rows],
        matching(trace.strings, ranges.name[rows], _is_programs_frame),
        matching(trace.strings, ranges.name[rows], _is_programs_mark),
    )
    found[rows] = own
    return found


def _is_programs_frame(name: str) -> bool:
    return len(name) <= _LONGEST_NAME and not is_torchs_frame(name)


def _is_programs_mark(name: str) -> bool:
    return 0 < len(name) <= _LONGEST_NAME and not (is_library(name) or is_operator_name(name))


def _launches_inside(trace: Trace) -> NDArray[np.bool_]:
    """Whether a thread of its process begins a launch call in each range, by the call's name."""
    ranges, calls = trace.ranges, trace.calls
    found = np.zeros(len(ranges), bool)
    if not len(ranges):
        return found
    launching = launch_calls(trace, calls.name)
    process = processes_of_calls(trace)[launching]
    start = calls.start_ns[launching]
    of_range = np.array([t.process for t in trace.threads] or [-1], np.int64)[ranges.thread]
    for each, mine in rows_by_value(of_range):
        times = np.sort(start[process == each])
        before = np.searchsorted(times, ranges.start_ns[mine], side="left")
        found[mine] = np.searchsorted(times, ranges.end_ns[mine], side="left") > before
    return found
