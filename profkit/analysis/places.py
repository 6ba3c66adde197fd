"""Where in the program a call was made: its operator, and the user's line of Python."""

from __future__ import annotations

import re
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from profkit.analysis.nesting import Nesting
from profkit.analysis.view import TraceView
from profkit.model import RangeKind, Trace

__all__ = ["call_operator", "source_line"]

_FRAME: Final = re.compile(r"(?P<file>.+?)\((?P<line>\d+)\): (?P<function>.+)")
_NOT_THE_USERS: Final = re.compile(
    r"(?:^|[/\\])(?:torch|site-packages|dist-packages|threading\.py|contextlib\.py|runpy\.py|profkit|python3\.\d+)(?:[/\\]|$)"
    r"|^<|threading\.py$|contextlib\.py$|runpy\.py$"
)

_python: WeakKeyDictionary[Trace, Nesting] = WeakKeyDictionary()


def call_operator(view: TraceView, call: int) -> str | None:
    """The operator that a person called: the outermost ``aten::`` one around a call, else the innermost any."""
    if call < 0:
        return None
    ranges, calls, nesting = view.trace.ranges, view.trace.calls, view.launches.operators
    row = int(nesting.open_on(int(calls.thread[call]), calls.start_ns[call : call + 1])[0])
    if row < 0:
        return None
    name = view.trace.strings[ranges.name[row]]
    while row >= 0 and view.trace.strings[ranges.name[row]].startswith("aten::"):
        name = view.trace.strings[ranges.name[row]]
        row = int(nesting.parent[row])
    return name


def source_line(trace: Trace, call: int) -> str | None:
    """``file.py:12`` of the innermost frame of the user's own code around a call, when stacks were recorded."""
    if call < 0:
        return None
    calls, ranges = trace.calls, trace.ranges
    if calls.stack[call] >= 0:
        return trace.strings[calls.stack[call]]
    nesting = _python.get(trace)
    if nesting is None:
        nesting = _python[trace] = Nesting.of(ranges, ranges.kind == RangeKind.PYTHON)
    row = int(nesting.open_on(int(calls.thread[call]), np.asarray(calls.start_ns[call : call + 1]))[0])
    while row >= 0:
        frame = _FRAME.fullmatch(trace.strings[ranges.name[row]])
        if frame and not _NOT_THE_USERS.search(frame["file"]):
            return f"{re.split(r'[/\\\\]', frame['file'])[-1]}:{frame['line']} {frame['function']}"
        row = int(nesting.parent[row])
    return None
