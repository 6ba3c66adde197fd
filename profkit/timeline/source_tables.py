"""What the program's own modules and functions launched, where the recording has Python frames or names of modules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from profkit.model import RangeKind
from profkit.model.report_kernels import SourceRow
from profkit.model.summing import Summed
from profkit.timeline.call_sites import (
    forward_of_launches,
    frame_text,
    is_module,
    is_users_frame,
    module_name,
)
from profkit.timeline.grouping import group_rows, sums
from profkit.timeline.nesting import Nesting
from profkit.timeline.range_names import matching
from profkit.timeline.view import TraceView

__all__ = ["SOURCES", "busiest_sources", "source_rows"]

_MOST_ROWS: Final = 1_000
"""Rows of each kind that a report keeps."""
_DEEPEST: Final = 128
"""Levels of frames that are followed; endless recursion would cost work times levels."""
_SUMS: Final = ("count", "gpu_ns", "gpu_self_ns", "gpu_backward_ns", "host_ns")

Column = NDArray[np.int64]
Flags = NDArray[np.bool_]
Kind = Literal["module", "function"]
Path = tuple[str, ...]
"""From the outermost to the innermost."""

SOURCES: Final = Summed[SourceRow](("kind", "name"), _SUMS)


def busiest_sources(rows: Sequence[SourceRow]) -> list[SourceRow]:
    """The table of modules and functions: most device time first."""
    ordered = sorted(rows, key=lambda r: (-r.gpu_ns, -r.gpu_self_ns, r.name))
    return [
        row for kind in ("module", "function") for row in [r for r in ordered if r.kind == kind][:_MOST_ROWS]
    ]


def source_rows(view: TraceView) -> list[SourceRow]:
    """The modules and functions of a trace, with what was launched in the window."""
    rows = np.flatnonzero(view.counted & view.launches.linked)
    captured = view.trace.operations.module[rows].astype(np.int64)
    # Of nodes of a graph no module runs when they are launched: the file says where they were captured.
    plain, strings = rows[captured < 0], view.trace.strings
    forward = np.zeros(len(rows), bool)
    modules = [_Launched.of(view, rows, forward, captured, lambda at: tuple(strings[at].split(".")))]
    modules.append(_by_frames(view, view, plain, plain, "module"))
    functions = [_by_frames(view, view, rows, rows, "function")]
    if view.operator_trace is not None:
        rows = rows[view.match[rows] >= 0]
        rows = rows[view.operator_trace.launches.linked[view.match[rows]]]
        lent = view.operator_trace, view.match[rows]
        modules.append(_by_frames(view, *lent, rows, "module"))
        functions.append(_by_frames(view, *lent, rows, "function"))
    return _rows("module", modules, _around) + _rows("function", functions, _callers)


def _around(path: Path) -> list[str]:
    """A module and those around it, each by its whole path."""
    return ["/".join(path[: n + 1]) for n in range(len(path))]


def _callers(path: Path) -> list[str]:
    """A function and those that called it, each once."""
    return [*dict.fromkeys(reversed(path))][::-1]


@dataclass(frozen=True)
class _Launched:
    """What was launched on each path."""

    paths: Sequence[Path]
    sums: Sequence[NDArray[np.int64]]
    """Launches, device time, of that in backward, and the time of the launching calls, each by path."""

    @classmethod
    def of(
        cls, view: TraceView, rows: Column, backward: Flags, place: Column, path_of: Callable[[int], Path]
    ) -> _Launched:
        """Count operations by the numbers of their paths, -1 for none.

        Args:
            view: The trace whose times count.
            rows: Its operations, all of them linked to a call.
            backward: Whether the backward pass launched each.
            place: The path of each.
            path_of: The path of a number.
        """
        known = np.flatnonzero(place >= 0)
        rows = rows[known]
        group, example = group_rows(place[known])
        operations, calls = view.trace.operations, view.trace.calls
        duration = (operations.end_ns - operations.start_ns)[rows].astype(np.int64)
        call = view.launches.call[rows]
        # The nodes of a graph share one call.
        host = np.zeros(len(rows), np.int64)
        once = np.unique(call, return_index=True)[1]
        host[once] = (calls.end_ns - calls.start_ns)[call[once]]
        columns = (np.ones(len(rows), np.int64), duration, np.where(backward[known], duration, 0), host)
        return cls(
            [path_of(at) for at in place[known][example].tolist()],
            [sums(group, column, len(example)) for column in columns],
        )


def _by_frames(timed: TraceView, view: TraceView, rows: Column, times: Column, kind: Kind) -> _Launched:
    """What was launched in frames of a kind.

    Args:
        timed: The trace whose times count.
        view: That with the frames, which may be another execution of the same step.
        rows: Operations of it.
        times: The operations of ``timed`` that they are.
        kind: ``module`` for ``nn.Module``, ``function`` for functions in the user's own files.
    """
    ranges, strings = view.trace.ranges, view.trace.strings
    chosen = (ranges.kind == RangeKind.PYTHON) & matching(
        strings, ranges.name, is_module if kind == "module" else is_users_frame
    )
    chosen = Nesting.of(ranges, chosen).down_to(chosen, _DEEPEST)
    nesting = Nesting.of(ranges, chosen)
    number, paths = _paths(nesting, np.flatnonzero(chosen), ranges.name.astype(np.int64))
    thread, time = forward_of_launches(view, rows)
    at = nesting.innermost(thread, time)
    place = np.where(at >= 0, number[np.maximum(at, 0)] if len(number) else -1, -1)
    text = module_name if kind == "module" else frame_text
    stack = view.trace.calls.stack[view.launches.call[rows]].astype(np.int64)
    if kind == "function" and (stack >= 0).any():
        paths += [(at,) for at in range(len(strings))]
        place = np.where((place < 0) & (stack >= 0), stack + len(paths) - len(strings), place)
    moved = thread != view.launches.thread[rows]
    return _Launched.of(timed, times, moved, place, lambda at: tuple(text(strings[i]) for i in paths[at]))


def _paths(nesting: Nesting, rows: Column, name: Column) -> tuple[Column, list[tuple[int, ...]]]:
    """The path of names of each range from its outermost one: its number by range, and the paths."""
    number = np.full(len(name), -1, np.int64)
    paths: list[tuple[int, ...]] = []
    above = nesting.parent[rows]
    level = above < 0
    while level.any():
        here, outer = rows[level], above[level]
        inside = np.where(outer >= 0, number[np.maximum(outer, 0)], -1)
        group, example = group_rows(inside, name[here])
        number[here] = group + len(paths)
        pairs = zip(inside[example].tolist(), name[here[example]].tolist(), strict=True)
        paths += [(*(paths[outside] if outside >= 0 else ()), own) for outside, own in pairs]
        rows, above = rows[~level], above[~level]
        level = number[above] >= 0
    return number, paths


def _rows(kind: Kind, found: Sequence[_Launched], names: Callable[[Path], list[str]]) -> list[SourceRow]:
    """One row for each name on the paths: what is launched on a path counts once for each."""
    made = []
    for each in found:
        for path, count, gpu, backward, host in zip(
            each.paths, *(c.tolist() for c in each.sums), strict=True
        ):
            *outer, inner = names(path)
            whole = {"count": count, "gpu_ns": gpu, "gpu_backward_ns": backward, "host_ns": host}
            made += [SourceRow(kind=kind, name=name, gpu_self_ns=0, **whole) for name in outer]
            made.append(SourceRow(kind=kind, name=inner, gpu_self_ns=gpu, **whole))
    return SOURCES.rows(made)
