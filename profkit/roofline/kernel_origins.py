"""Where the kernels of each row of the table come from: steps, devices, modules and lines of the program."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.timeline.call_sites import forward_of_launches, frame_text, frames_at
from profkit.timeline.grouping import weights_by_pair
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["MOST_STEPS", "add_call_sites", "no_call_sites"]

MOST_STEPS: Final = 64
"""With more kept steps than this, kernel rows are not told apart by step."""

_MOST_LINES: Final = 12
_MODULE: Final = "nn.Module: "

Column = NDArray[np.int64]
Origins: TypeAlias = list[dict[str, Any]]
"""For each row of the kernel table, maps of names by kind of place."""


def no_call_sites() -> dict[str, Any]:
    """The keys of a row before anything was added."""
    return {"steps": {}, "devices": {}, "modules": {}, "source_lines": {}}


def add_call_sites(owners: Origins, view: TraceView, rows: Column, group: Column) -> None:
    """Add the kernels of a trace to what each row of the table says of their places.

    Args:
        owners: The rows, made with `no_call_sites`.
        view: The trace.
        rows: Its kernels, as rows of `Trace.operations`.
        group: The row of the table that each belongs to.
    """
    operations = view.trace.operations
    duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
    if 0 < view.kept_count <= MOST_STEPS:
        names = dict(enumerate(view.steps.names))
        _add(owners, "steps", group, view.step_of_operation[rows], duration, names)
    _add(
        owners,
        "devices",
        group,
        operations.device[rows],
        duration,
        {at: at for at in range(len(view.trace.devices))},
    )
    _add_captured(owners, view, rows, group)
    _add_program(owners, view, rows, group)
    if view.operator_trace is not None:
        matched = view.match[rows]
        _add_program(owners, view.operator_trace, matched[matched >= 0], group[matched >= 0])


def _add_captured(owners: Origins, view: TraceView, rows: Column, group: Column) -> None:
    """Modules that nodes of a graph were captured in, as the file itself names them."""
    modules = view.trace.operations.module[rows].astype(np.int64)
    names = {i: view.trace.strings[i] for i in np.unique(modules).tolist() if i >= 0}
    _add(owners, "modules", group, modules, np.ones(len(rows), np.int64), names)


def _add_program(owners: Origins, view: TraceView, rows: Column, group: Column) -> None:
    """Lines and modules, where the recording has Python frames."""
    python, strings = view.trace.ranges.kind == RangeKind.PYTHON, view.trace.strings
    if not python.any() and not (view.trace.calls.stack >= 0).any():
        return
    linked = np.flatnonzero(view.launches.linked[rows])
    once = np.ones(len(linked), np.int64)
    thread, time = forward_of_launches(view, rows[linked])
    own = view.trace.calls.stack[view.launches.call[rows[linked]]].astype(np.int64)
    frames = frames_at(view, thread, time)
    frames = np.where(frames >= 0, frames, own)
    lines = {i: frame_text(strings[i]) for i in np.unique(frames).tolist() if i >= 0}
    _add(owners, "source_lines", group[linked], frames, once, lines)
    modules = _modules(view, python, thread, time)
    names = {i: _module_class(strings[i]) for i in np.unique(modules).tolist() if i >= 0}
    _add(owners, "modules", group[linked], modules, once, names)


def _module_class(name: str) -> str:
    """``nn.Module: Linear_12`` as ``Linear``: the number only tells one instance from another."""
    return re.sub(r"_\d+$", "", name.removeprefix(_MODULE))


def _modules(view: TraceView, python: NDArray[np.bool_], thread: Column, time: Column) -> Column:
    """The string id of the innermost ``nn.Module`` whose forward was running at each instant, or -1."""
    ranges = view.trace.ranges
    module = python & matching(view.trace.strings, ranges.name, lambda name: name.startswith(_MODULE))
    found = Nesting.of(ranges, module).innermost(thread, time)
    names: Column = np.where(found >= 0, ranges.name[np.maximum(found, 0)], -1)
    return names


def _add(
    owners: Origins,
    key: str,
    group: Column,
    place: NDArray[Any],
    weight: Column,
    names: Mapping[int, str | int],
) -> None:
    for at, by_place in weights_by_pair(group, place, weight).items():
        target = owners[at][key]
        for each, total in list(by_place.items())[: _MOST_LINES if key == "source_lines" else None]:
            target[names[each]] = target.get(names[each], 0) + total
