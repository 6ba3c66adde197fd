"""Steps that nobody marked: by repeated steps of one optimizer, else by the period of the launches."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.model import CopyKind, OperationKind, RangeKind, Trace
from profkit.model.names import FoundBy
from profkit.timeline.distinct import distinct
from profkit.timeline.grouping import group_rows
from profkit.timeline.launches import Launches
from profkit.timeline.periods import Repetitions, find_repetitions, united_runs
from profkit.timeline.range_names import matching
from profkit.timeline.step_breaks import stretches
from profkit.timeline.waits import find_waits

__all__ = ["HostSteps", "unmarked_steps"]

_EXPLAINED: Final = 0.3
_ALL_EXPLAINED: Final = 0.995
_SIGNS: Final = 0.6
_NAMES_ALONE_BELOW: Final = 0.9
_NAMES_ALONE_GAIN: Final = 1.2
_FEWEST: Final = 3
_OPTIMIZER_STEP = re.compile(r"Optimizer\.step#.+")
_OPTIMIZER_KERNEL = re.compile(
    r"adam|sgd|lamb(?!da)|lion\b|adagrad|rmsprop|adafactor|fusedoptimizer|multi_tensor_apply", re.IGNORECASE
)
_MODULE = re.compile(r"nn\.Module: .+_\d+|FSDP::\w+ \(.+\)")
"""One module of a model, by the recorder's number or the path to it."""
_ALIKE: Final = 0.1
"""Launches between two steps of one optimizer differ by no more than this from the median, in most of them."""

Column = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class HostSteps:
    """Steps on the host, of one process or of several."""

    found_by: FoundBy
    start: NDArray[np.int64]
    """In ns: shape (processes, steps)."""
    end: NDArray[np.int64]
    resumes: NDArray[np.bool_]

    @property
    def names(self) -> list[str]:
        """Steps without names are numbered."""
        return [f"step {number}" for number in range(1, self.start.shape[1] + 1)]


def unmarked_steps(trace: Trace, launches: Launches) -> HostSteps | None:
    """Find steps where no range marks them, or None.

    The steps of all processes are matched by their number; a process without kernels has those of the first.
    """
    for found_by, find in (("names", _by_optimizer), ("period", _by_period)):
        found = {
            process: steps
            for process in range(len(trace.processes))
            if (steps := find(trace, launches, process)) is not None
        }
        kernels = np.bincount(
            trace.operations.process[trace.operations.kind == OperationKind.KERNEL],
            minlength=max(len(trace.processes), 1),
        )
        without = sum(int(kernels[p]) for p in range(len(kernels)) if p not in found)
        if found and without <= 0.1 * kernels.sum():
            return _recorded(trace, _together(trace, found, "names" if found_by == "names" else "period"))
    return None


def _recorded(trace: Trace, steps: HostSteps) -> HostSteps:
    """Without the steps in which recording began anew: they are the end of one and the beginning of another."""
    begun = stretches(trace, steps.start.min(axis=0))
    whole = begun == stretches(trace, steps.end.max(axis=0) - 1)
    resumes = steps.resumes | np.concatenate(([False], ~whole[:-1] | (np.diff(begun) > 0)))
    return replace(steps, start=steps.start[:, whole], end=steps.end[:, whole], resumes=resumes[whole])


@dataclass(frozen=True, eq=False)
class _OfProcess:
    start: Column
    end: Column
    resumes: NDArray[np.bool_]


def _together(trace: Trace, found: dict[int, _OfProcess], found_by: FoundBy) -> HostSteps:
    count = min(len(steps.start) for steps in found.values())
    first = next(iter(found.values()))
    chosen = [found.get(process, first) for process in range(len(trace.processes))]
    return HostSteps(
        found_by,
        np.stack([steps.start[:count] for steps in chosen]),
        np.stack([steps.end[:count] for steps in chosen]),
        np.logical_or.reduce([steps.resumes[:count] for steps in chosen]),
    )


def _by_optimizer(trace: Trace, launches: Launches, process: int) -> _OfProcess | None:
    """From the end of each step of the only optimizer to the end of the next."""
    ranges = trace.ranges
    of_thread = np.array([t.process for t in trace.threads] or [-1], np.int64)
    rows = np.flatnonzero(ranges.kind == RangeKind.ANNOTATION)
    rows = rows[of_thread[ranges.thread[rows]] == process]
    rows = rows[
        matching(trace.strings, ranges.name[rows], lambda name: bool(_OPTIMIZER_STEP.fullmatch(name)))
    ]
    mine = (trace.operations.process == process) & launches.linked
    if len(rows) < _FEWEST or len(distinct(ranges.name[rows])[0]) != 1 or not mine.any():
        return None
    launched = np.sort(launches.time_ns[mine], kind="stable")
    ends = np.sort(ranges.end_ns[rows]).astype(np.int64)
    start, end = np.append(launched[0], ends[:-1]), ends
    count = np.searchsorted(launched, end) - np.searchsorted(launched, start)
    usual = float(np.median(count))
    alike = np.abs(count - usual) <= _ALIKE * usual
    if not usual or alike[1:].mean() < _SIGNS:
        return None  # the optimizers of several models take turns, or the loop does several things
    kept = slice(0 if alike[0] else 1, None)
    start, end = start[kept], end[kept]
    resumes = np.zeros(len(start), bool)
    resumes[:1] = True
    return _OfProcess(start, end, resumes) if len(start) >= _FEWEST else None


def _by_period(trace: Trace, launches: Launches, process: int) -> _OfProcess | None:
    operations = trace.operations
    kernel = np.isin(operations.kind, (OperationKind.KERNEL, OperationKind.GRAPH))
    own = kernel & launches.linked & (operations.process == process)
    if not own.any():
        return None
    device = int(np.bincount(operations.device[own]).argmax())
    rows = np.flatnonzero(own & (operations.device == device))
    rows = rows[np.lexsort((operations.start_ns[rows], launches.time_ns[rows]))]
    # What one call launched, a graph, is one element.
    first = np.concatenate(([True], np.diff(launches.call[rows]) != 0))
    element = rows[first]
    found = _repetitions(trace, element)
    if found is None:
        return None
    repeated, place = found
    begin = element[place[repeated.start]]
    last = element[np.append(place, len(element))[repeated.end] - 1]
    steps = _on_the_host(trace, launches, process, begin, last, repeated.resumes)
    if _are_layers(trace, process, steps):
        return None
    return steps if _is_credible(trace, launches, process, steps, repeated, element) else None


def _repetitions(trace: Trace, element: Column) -> tuple[Repetitions, Column] | None:
    """The repetitions of launches, and where each of their tokens begins: by name and grid, else by names alone."""
    operations = trace.operations
    optimizer = matching(
        trace.strings, operations.name[element], lambda name: bool(_OPTIMIZER_KERNEL.search(name[:2000]))
    )
    name = operations.name[element]
    exact = group_rows(name, *(getattr(operations, f"grid_{axis}")[element] for axis in "xyz"))[0]
    best: tuple[Repetitions, Column] | None = None
    for codes in (exact, group_rows(name)[0]):
        token, place = united_runs(codes)
        found = find_repetitions(token, optimizer[place])
        if found is not None and (best is None or found.explained > _NAMES_ALONE_GAIN * best[0].explained):
            best = (found, place)
        if best is not None and best[0].explained >= _NAMES_ALONE_BELOW:
            break
    return best


def _on_the_host(
    trace: Trace, launches: Launches, process: int, begin: Column, last: Column, resumes: NDArray[np.bool_]
) -> _OfProcess:
    """Host times of steps by their first and last kernels.

    Copies between two steps go to the next, those to the host to the one before.
    """
    operations, time = trace.operations, launches.time_ns
    start, end = time[begin].astype(np.int64), time[last].astype(np.int64)
    aside = np.isin(operations.kind, (OperationKind.COPY, OperationKind.MEMSET))
    aside &= launches.linked & (operations.process == process)
    to_host = operations.copy_kind == CopyKind.DTOH
    into = np.sort(time[aside & ~to_host], kind="stable")
    out = np.sort(time[aside & to_host], kind="stable")
    follows = ~resumes
    at = np.searchsorted(into, np.roll(end, 1), side="right")
    earliest = np.append(into, np.iinfo(np.int64).max)[at]
    start = np.where(follows, np.minimum(start, np.maximum(earliest, np.roll(end, 1))), start)
    before_next = np.append(start[1:], np.iinfo(np.int64).max)
    upto = np.searchsorted(out, before_next) - 1
    latest = np.where(upto >= 0, out[np.maximum(upto, 0)] if len(out) else -1, -1)
    joined = np.append(follows[1:], False)
    end = np.where(joined, np.maximum(end, latest), end)
    return _OfProcess(start, end + 1, resumes)


def _are_layers(trace: Trace, process: int, steps: _OfProcess) -> bool:
    """Whether each repetition runs modules of its own: steps run the same ones. Offloaded layers copy as steps do."""
    ranges = trace.ranges
    of_thread = np.array([t.process for t in trace.threads] or [-1], np.int64)
    rows = np.flatnonzero(of_thread[ranges.thread] == process)
    rows = rows[matching(trace.strings, ranges.name[rows], lambda name: bool(_MODULE.fullmatch(name[:2000])))]
    step = np.searchsorted(steps.start, ranges.start_ns[rows], side="right") - 1
    inside = (step >= 0) & (ranges.start_ns[rows] < steps.end[np.maximum(step, 0)])
    name = distinct(ranges.name[rows[inside]])[1]
    found = np.unique(name * len(steps.start) + step[inside]) // len(steps.start)
    times = np.bincount(found)
    return bool(len(times)) and float((times == 1).mean()) > _SIGNS


def _is_credible(
    trace: Trace, launches: Launches, process: int, steps: _OfProcess, repeated: Repetitions, element: Column
) -> bool:
    """Whether repetitions are steps, and no layers: most show a sign of a step, or they explain everything."""
    if repeated.explained < _EXPLAINED or len(steps.start) < _FEWEST:
        return False
    if repeated.explained >= _ALL_EXPLAINED:
        return True
    operations, time = trace.operations, launches.time_ns
    optimizer = matching(
        trace.strings, operations.name[element], lambda name: bool(_OPTIMIZER_KERNEL.search(name[:2000]))
    )
    copies = launches.linked & (operations.process == process) & (operations.kind == OperationKind.COPY)
    copies &= ~np.isin(operations.copy_kind, (CopyKind.DTOD, CopyKind.PTOP))
    waits = find_waits(trace)
    signs = [time[element[optimizer]], time[copies], waits.start_ns[waits.process == process]]
    until = np.append(steps.start[1:], steps.end[-1:])
    shown = np.zeros(len(steps.start), bool)
    for times in signs:
        ordered = np.sort(times, kind="stable")
        shown |= np.searchsorted(ordered, until) > np.searchsorted(ordered, steps.start)
    return bool((shown | _several_threads(launches, element, steps)).mean() >= _SIGNS)


def _several_threads(launches: Launches, element: Column, steps: _OfProcess) -> NDArray[np.bool_]:
    """Whether two threads launched the kernels of each step: forward and backward."""
    thread, time = launches.thread[element], launches.time_ns[element]
    seen = np.zeros(len(steps.start), np.int64)
    for each in distinct(thread)[0].tolist():
        ordered = np.sort(time[thread == each], kind="stable")
        seen += np.searchsorted(ordered, steps.end) > np.searchsorted(ordered, steps.start)
    return seen > 1
