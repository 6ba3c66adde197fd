"""Where in the program calls were made: their operator, and the user's line of Python."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.analysis.nesting import Nesting
from profkit.analysis.range_names import matching
from profkit.analysis.view import TraceView
from profkit.model import RangeKind

__all__ = ["call_operators", "frame_text", "source_frames"]

Column = NDArray[np.int64]

_FRAME: Final = re.compile(r"(?P<file>[^\n]{1,1000}?)\((?P<line>\d{1,9})\): (?P<function>[^\n]{1,1000})")
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
    python = trace.ranges.kind == RangeKind.PYTHON
    if not python.any():
        return frame
    nesting = Nesting.of(trace.ranges, python)
    theirs = matching(trace.strings, trace.ranges.name, _is_users_frame)
    row = nesting.innermost(trace.calls.thread[calls], trace.calls.start_ns[calls])
    climbing = np.flatnonzero(row >= 0)
    while len(climbing):
        climbing = climbing[~theirs[row[climbing]]]
        row[climbing] = nesting.parent[row[climbing]]
        climbing = climbing[row[climbing] >= 0]
    names: Column = np.where(row >= 0, trace.ranges.name[np.maximum(row, 0)], frame)
    return names


def frame_text(name: str) -> str:
    """``train.py(12): step`` with any folders as ``train.py:12 step``: paths hold names of users."""
    frame = _FRAME.fullmatch(name)
    if frame is None:
        return re.split(r"[/\\]", name)[-1]
    base = re.split(r"[/\\]", frame["file"])[-1]
    return f"{base}:{frame['line']} {frame['function']}"


def _is_users_frame(name: str) -> bool:
    frame = _FRAME.fullmatch(name)
    return frame is not None and not _LIBRARY_FILE.search(frame["file"])
