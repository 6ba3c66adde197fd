"""Where in the program calls were made: their operator, and the user's line of Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = [
    "call_operators",
    "forward_of_launches",
    "frame_text",
    "frames_at",
    "is_module",
    "is_users_frame",
    "module_name",
    "source_frames",
]

Column = NDArray[np.int64]

_FRAME: Final = re.compile(r"(?P<file>[^\n]{1,1000}?)\((?P<line>\d{1,9})\): (?P<function>[^\n]{1,1000})")
_MODULE: Final = "nn.Module: "
_LIBRARY_FILE: Final = re.compile(
    r"(?:^|[/\\])(?:torch|site-packages|dist-packages|profkit|python3\.\d+)(?:[/\\]|$)|^<"
    r"|(?:^|[/\\])(?:threading|contextlib|runpy)\.py$"
)


def call_operators(view: TraceView, calls: NDArray[Any]) -> Column:
    """For rows of `Trace.calls`: the string id of the operator that a person called, or -1.

    That is the outermost ``aten::`` operator of those around the call (``aten::item``, not the
    ``aten::_local_scalar_dense`` in it), or the innermost of another namespace.
    """
    trace, nesting = view.trace, view.launches.operators
    row = nesting.innermost(trace.calls.thread[calls], trace.calls.start_ns[calls])
    aten = matching(trace.strings, trace.ranges.name, lambda name: name.startswith("aten::"))
    climbing = np.flatnonzero(row >= 0)
    while len(climbing):
        up = nesting.parent[row[climbing]]
        goes = (up >= 0) & aten[row[climbing]] & aten[np.maximum(up, 0)]
        climbing = climbing[goes]
        row[climbing] = up[goes]
    names: Column = np.where(row >= 0, trace.ranges.name[np.maximum(row, 0)] if len(trace.ranges) else -1, -1)
    return names


def source_frames(view: TraceView, calls: NDArray[Any]) -> Column:
    """For rows of `Trace.calls`: the string id of the innermost frame of the user's own code, or -1.

    -1 too where the file has no stacks. `frame_text` makes it readable.
    """
    trace = view.trace
    frame: Column = trace.calls.stack[calls].astype(np.int64)
    found = frames_at(view, trace.calls.thread[calls], trace.calls.start_ns[calls])
    return np.where(found >= 0, found, frame)


def frames_at(
    view: TraceView,
    thread: NDArray[Any],
    time: NDArray[Any],
    wanted: Callable[[str], bool] = lambda name: is_users_frame(name),
) -> Column:
    """The string id of the innermost wanted frame on threads at some instants, of the user's own code, or -1."""
    trace = view.trace
    python = trace.ranges.kind == RangeKind.PYTHON
    if not python.any():
        return np.full(len(time), -1, np.int64)
    theirs = python & matching(trace.strings, trace.ranges.name, wanted)
    row = Nesting.of(trace.ranges, theirs).innermost(thread, time)
    names: Column = np.where(row >= 0, trace.ranges.name[np.maximum(row, 0)], -1)
    return names


def forward_of_launches(view: TraceView, rows: NDArray[Any]) -> tuple[Column, Column]:
    """Where the program asked for operations: a thread and an instant for each, on the host.

    That is the launch; for an operation of autograd, the forward operator of the same sequence number, since
    Python has no frame in the backward pass.
    """
    ranges, launches = view.trace.ranges, view.launches
    thread, time = launches.thread[rows].copy(), launches.time_ns[rows].copy()
    forward = np.flatnonzero(
        (ranges.kind == RangeKind.OPERATOR)
        & (ranges.sequence >= 0)
        & ~np.isin(ranges.thread, sorted(view.phases.autograd_threads))
    )
    if not len(forward):
        return thread, time
    # Of nested forward operators with one number, the last to start is the one that makes the node.
    forward = forward[np.lexsort((ranges.start_ns[forward], ranges.sequence[forward]))]
    numbers = ranges.sequence[forward]
    operator = launches.operator[rows].copy()
    climbing = np.flatnonzero((operator >= 0) & np.isin(thread, sorted(view.phases.autograd_threads)))
    while len(climbing):
        number = ranges.sequence[operator[climbing]]
        at = np.minimum(np.searchsorted(numbers, number, side="right") - 1, len(numbers) - 1)
        known = (number >= 0) & (at >= 0) & (numbers[np.maximum(at, 0)] == number)
        source = forward[at[known]]
        thread[climbing[known]], time[climbing[known]] = ranges.thread[source], ranges.start_ns[source]
        operator[climbing] = launches.operators.parent[operator[climbing]]
        climbing = climbing[~known & (operator[climbing] >= 0)]
    return thread, time


def frame_text(name: str) -> str:
    """``train.py(12): step`` with any folders as ``train.py:12 step``: paths hold names of users."""
    frame = _FRAME.fullmatch(name)
    if frame is None:
        return re.split(r"[/\\]", name)[-1]
    base = re.split(r"[/\\]", frame["file"])[-1]
    return f"{base}:{frame['line']} {frame['function']}"


def is_users_frame(name: str) -> bool:
    """A Python frame of the user's own code, by its file."""
    frame = _FRAME.fullmatch(name)
    return frame is not None and not _LIBRARY_FILE.search(frame["file"])


def is_module(name: str) -> bool:
    """The frame of an ``nn.Module``, as PyTorch names it: ``nn.Module: Linear_12``."""
    return name.startswith(_MODULE)


def module_name(name: str) -> str:
    """``nn.Module: Linear_12`` as ``Linear_12``: the number tells one instance of a class from another."""
    return name.removeprefix(_MODULE)
