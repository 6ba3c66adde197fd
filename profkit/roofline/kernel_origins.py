"""Where the kernels of each row of the table come from: steps, devices, modules and lines of the program."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.model.report_kernels import PhaseTime
from profkit.timeline.call_sites import forward_of_launches, frame_text, frames_at, is_module, module_name
from profkit.timeline.grouping import weights_by_pair
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["MOST_STEPS", "Origins", "add_call_sites"]

MOST_STEPS: Final = 64
"""With more kept steps than this, kernel rows are not told apart by step."""

_MOST_LINES: Final = 12

Column = NDArray[np.int64]
Name = TypeVar("Name", int, str)


@dataclass(frozen=True)
class Origins:
    """What the kernels of one row of the table come from, with their time or number."""

    phases: dict[str, PhaseTime] = field(default_factory=dict)
    operators: dict[str, int] = field(default_factory=dict)
    steps: dict[str, int] = field(default_factory=dict)
    devices: dict[int, int] = field(default_factory=dict)
    modules: dict[str, int] = field(default_factory=dict)
    source_lines: dict[str, int] = field(default_factory=dict)


def add_call_sites(owners: Sequence[Origins], view: TraceView, rows: Column, group: Column) -> None:
    """Add the kernels of a trace to what each row of the table says of their places.

    Args:
        owners: One for each row of the table.
        view: The trace.
        rows: Its kernels, as rows of `Trace.operations`.
        group: The row of the table that each belongs to.
    """
    operations = view.trace.operations
    duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    if 0 < view.kept_count <= MOST_STEPS:
        names = dict(enumerate(view.steps.names))
        _add([each.steps for each in owners], group, view.step_of_operation[rows], duration, names)
    devices = {at: at for at in range(len(view.trace.devices))}
    _add([each.devices for each in owners], group, operations.device[rows], duration, devices)
    _add_captured(owners, view, rows, group)
    _add_compiled(owners, view, rows, group)
    _add_program(owners, view, rows, group)
    if view.operator_trace is not None:
        matched = view.match[rows]
        _add_program(owners, view.operator_trace, matched[matched >= 0], group[matched >= 0])


def _add_captured(owners: Sequence[Origins], view: TraceView, rows: Column, group: Column) -> None:
    """Modules that nodes of a graph were captured in, as the file itself names them."""
    modules = view.trace.operations.module[rows].astype(np.int64)
    names = {i: view.trace.strings[i] for i in np.unique(modules).tolist() if i >= 0}
    _add([each.modules for each in owners], group, modules, np.ones(len(rows), np.int64), names)


def _is_told(view: TraceView, rows: Column) -> NDArray[np.bool_]:
    """Kernels whose lines the compiler tells: a frame around their launch is only where the compiled code was called."""
    operations = view.trace.operations
    return matching(view.trace.strings, operations.name[rows], lambda name: name in view.compiled_lines)


def _add_compiled(owners: Sequence[Origins], view: TraceView, rows: Column, group: Column) -> None:
    """Lines of compiled kernels: a launch counts at each line that its kernel was fused from."""
    told = np.flatnonzero(_is_told(view, rows))
    named = view.trace.operations.name[rows[told]].astype(np.int64)
    once = np.ones(len(told), np.int64)
    for at, by_name in weights_by_pair(group[told], named, once).items():
        lines = owners[at].source_lines
        for name, count in by_name.items():
            for frame in view.compiled_lines[view.trace.strings[name]][:_MOST_LINES]:
                lines[frame_text(frame)] = lines.get(frame_text(frame), 0) + count


def _add_program(owners: Sequence[Origins], view: TraceView, rows: Column, group: Column) -> None:
    """Lines and modules, where the recording has Python frames."""
    python, strings = view.trace.ranges.kind == RangeKind.PYTHON, view.trace.strings
    if not python.any() and not (view.trace.calls.stack >= 0).any():
        return
    linked = np.flatnonzero(view.launches.linked[rows] & ~_is_told(view, rows))
    once = np.ones(len(linked), np.int64)
    thread, time = forward_of_launches(view, rows[linked])
    own = view.trace.calls.stack[view.launches.call[rows[linked]]].astype(np.int64)
    frames = frames_at(view, thread, time)
    frames = np.where(frames >= 0, frames, own)
    lines = {i: frame_text(strings[i]) for i in np.unique(frames).tolist() if i >= 0}
    _add([each.source_lines for each in owners], group[linked], frames, once, lines, _MOST_LINES)
    modules = _modules(view, python, thread, time)
    # By class: the number only tells one instance from another.
    names = {i: re.sub(r"_\d+$", "", module_name(strings[i])) for i in np.unique(modules).tolist() if i >= 0}
    _add([each.modules for each in owners], group[linked], modules, once, names)


def _modules(view: TraceView, python: NDArray[np.bool_], thread: Column, time: Column) -> Column:
    """The string id of the innermost ``nn.Module`` whose forward was running at each instant, or -1."""
    ranges = view.trace.ranges
    module = python & matching(view.trace.strings, ranges.name, is_module)
    found = Nesting.of(ranges, module).innermost(thread, time)
    names: Column = np.where(found >= 0, ranges.name[np.maximum(found, 0)], -1)
    return names


def _add(
    targets: Sequence[dict[Name, int]],
    group: Column,
    place: NDArray[Any],
    weight: Column,
    names: Mapping[int, Name],
    most: int | None = None,
) -> None:
    for at, by_place in weights_by_pair(group, place, weight).items():
        target = targets[at]
        for each, total in list(by_place.items())[:most]:
            target[names[each]] = target.get(names[each], 0) + total
