"""Each recording with all that its tables are made from: the one place where timeline and roofline meet."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.errors import AnalysisError
from profkit.hardware import Gpu, find_gpu
from profkit.model import Collectives, Device, RangeKind, Trace
from profkit.model.memory_history import MemoryHistory
from profkit.model.states import State
from profkit.model.work import OperationBound
from profkit.readers.registry import Role, role_of
from profkit.roofline.bounds import bound_operations
from profkit.roofline.counted_work import counted_work
from profkit.roofline.declared_work import declare_work
from profkit.roofline.matched_work import work_from_trace
from profkit.timeline.decoding import decodes_few
from profkit.timeline.host_activity import HostActivity
from profkit.timeline.host_work import host_work
from profkit.timeline.idle import QUEUE_LATENCY_NS, IdleContext
from profkit.timeline.launch_queue import find_queue
from profkit.timeline.launches import find_launches
from profkit.timeline.phases import find_phases
from profkit.timeline.profiler_cost import is_possible, with_profiler_cost
from profkit.timeline.step_names import marked_rows
from profkit.timeline.steps import find_steps, steps_left_out
from profkit.timeline.view import (
    MatchedCounters,
    TraceView,
    divide_time,
    span_of,
    step_device_ns,
    steps_of_operations,
    warm_up_tail,
)
from profkit.timeline.waits import find_waits
from profkit.units import duration_text

__all__ = ["Options", "Roles", "analysed_views", "kept_steps", "roles_given", "view_trace"]

_STATE_OF_BOUND: Final = {
    OperationBound.COMPUTE: State.COMPUTE,
    OperationBound.MEMORY: State.MEMORY,
    OperationBound.OVERHEAD: State.SMALL_KERNELS,
    OperationBound.COMMUNICATION: State.COMMUNICATION,
    OperationBound.TRANSFER: State.TRANSFER,
    OperationBound.UNKNOWN: State.UNCLASSIFIED,
}


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may say about their recordings."""

    step_name: str | None = None
    """The name of the ranges that are steps: exact, a prefix, a glob, or an expression after ``re:``."""
    device: int | None = None
    """The report's id of the only device to look at."""
    phase: str | None = None
    """The only phase that tables by phase are to show, by its path or the end of it."""
    peaks: Gpu | None = None
    """Rates to use for every device in place of the table's."""
    plain_step_ns: int | None = None
    """The step's time without a profiler."""
    run_steps: Mapping[str, int] = field(default_factory=dict)
    """The same as ``run.json`` tells it, by the base name of each recording that it lists."""
    compiled_lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The program's lines that each compiled kernel comes from, by its name, as frames ``model.py(12): forward``."""


def analysed_views(
    recordings: Sequence[Trace | MemoryHistory], options: Options, left_out: NDArray[np.bool_] | None = None
) -> list[TraceView]:
    """The traces of some recordings with everything that tables are made from.

    Args:
        recordings: What the readers returned.
        options: What the person said about them.
        left_out: Which steps are left out of the window, where that is decided elsewhere.

    Raises:
        AnalysisError: There is no such device, or no range is named like the step that was asked for.
    """
    traces = [r for r in recordings if isinstance(r, Trace) and r.numerics is None]
    _check_options(traces, options)
    roles = Roles.of(traces)
    operator_views = [view_trace(t, _gpus(t, options.peaks), options.step_name) for t in roles.operators]
    views = _with_window(
        [
            view_trace(
                t,
                _gpus(t, options.peaks),
                options.step_name,
                _of_rank(t, operator_views),
                _same_gpu_first(t, roles.counters),
            )
            for t in _only_device(roles.timelines, options.device)
        ],
        left_out,
    )
    told = [replace(each, compiled_lines=options.compiled_lines) for each in views]
    return [replace(_with_plain_step(view, options), only_phase=options.phase) for view in told]


def _with_plain_step(view: TraceView, options: Options) -> TraceView:
    """The view with its step's time without a profiler: what the person said, else what its run folder tells.

    Raises:
        AnalysisError: The person said less than the device is busy in a step.
    """
    plain = options.plain_step_ns
    if plain is not None and not is_possible(view, plain):
        wrong = f"the device is busy for longer than {duration_text(plain)} in a step"
        raise AnalysisError("the unprofiled step time", wrong, "Give the time of one step of this recording")
    if plain is None:
        plain = options.run_steps.get(view.trace.source.name)
        if plain is not None and not is_possible(view, plain):
            plain = None
    return view if plain is None else with_profiler_cost(view, plain)


@dataclass(frozen=True)
class Roles:
    """What each trace of a report is for: of one program, one kind of recording is the timeline."""

    timelines: Sequence[Trace]
    """Their times count."""
    operators: Sequence[Trace]
    """Other executions: they give shapes and operators, and no time of them counts."""
    counters: Sequence[Trace]
    """Hardware counters of single kernels."""

    @classmethod
    def of(cls, traces: Sequence[Trace]) -> Roles:
        """The roles of traces: one without a single operation gives nothing to the others, and stays a timeline."""
        given = roles_given(role_of(t.source.format) for t in traces if len(t.operations))
        by_role = {
            role: [t for t in traces if role_of(t.source.format) == role and role in given]
            for role in _GIVING
        }
        others = [t for t in traces if role_of(t.source.format) not in given]
        return cls(timelines=others, operators=by_role["operators"], counters=by_role["counters"])


_GIVING: Final[tuple[Role, ...]] = ("timeline", "operators", "counters")
"""Of the recordings of one program, the timeline is what disturbs it least, and counters only without any other."""


def roles_given(roles: Iterable[Role | None]) -> set[Role]:
    """The roles whose recordings, beside the others of a report, are not its timeline."""
    there = set(roles)
    known: list[Role] = [role for role in _GIVING if role in there]
    return set(known[1:])


def view_trace(
    trace: Trace,
    gpus: Sequence[Gpu | None],
    step_name: str | None = None,
    operator_trace: TraceView | None = None,
    counters: Sequence[Trace] = (),
) -> TraceView:
    """Find out everything that the tables of a trace need, with the whole recording as the window.

    Args:
        trace: The timeline.
        gpus: The GPU of each device of the trace, where known.
        step_name: The name of the ranges that are steps, where the usual names do not do.
        operator_trace: A profiler trace of the same step, which gives shapes and operators.
        counters: Hardware counters of the same kernels, the best first.
    """
    launches = find_launches(trace)
    steps = find_steps(trace, launches, step_name)
    phases = find_phases(trace, launches, steps.rows)
    waits = find_waits(trace)
    counted = counted_work(trace, launches.time_ns, counters)
    lean = decodes_few(trace, launches)
    work = bound_operations(trace, launches.operator, launches.operators.parent, gpus, counted, lean)
    declare_work(trace, phases, work, gpus)
    match = np.full(len(trace.operations), -1, np.int64)
    if operator_trace is not None:
        work, match = work_from_trace(trace, launches, steps, phases, work, operator_trace)
    state = np.array([_STATE_OF_BOUND[b] for b in OperationBound], np.int8)[work.bound]
    span = span_of(trace)
    queue = min((g.queue_ns for g in gpus if g is not None), default=QUEUE_LATENCY_NS)
    held = find_queue(trace, launches)
    activity = HostActivity(trace, phases, waits, held, host_work(trace, steps.rows))
    divided = divide_time(
        IdleContext(trace, launches, phases, waits, activity, int(queue)), steps, state, span
    )
    tail = warm_up_tail(trace, launches)
    return TraceView(
        trace=trace,
        gpus=gpus,
        launches=launches,
        steps=steps,
        phases=phases,
        waits=waits,
        activity=activity,
        queue=held,
        work=work,
        state=state,
        segments=divided.segments,
        wait_cost_ns=divided.wait_cost_ns,
        span=span,
        step_of_operation=steps_of_operations(trace, launches, steps, tail),
        warm_up_tail=tail,
        kept_steps=np.ones(steps.count, bool),
        operator_trace=operator_trace,
        match=match,
        counters=[
            MatchedCounters(each, match)
            for each, match in zip(counters, counted.matches if counted and counters else (), strict=True)
        ],
    )


def _check_options(traces: Sequence[Trace], options: Options) -> None:
    """A device or a step that is not there would otherwise leave an empty report."""
    devices = sum(len(t.devices) for t in Roles.of(traces).timelines)
    if options.device is not None and options.device not in range(devices):
        known = f"They are numbered 0 to {devices - 1}" if devices else "There is none"
        raise AnalysisError(f"device {options.device}", "the recordings have no such device", known)
    if options.step_name is not None and not any(_has_step(t, options.step_name) for t in traces):
        raise AnalysisError(
            f"step {options.step_name!r}",
            "no range has this name",
            f"Ranges are named {_names_of_ranges(traces)}",
        )


def _has_step(trace: Trace, pattern: str) -> bool:
    try:
        return bool(marked_rows(trace, pattern)[0].any())
    except re.error as error:
        raise AnalysisError(
            f"step {pattern!r}", f"the expression is wrong: {error}", "Write it as re:EXPRESSION"
        ) from None


def _names_of_ranges(traces: Sequence[Trace]) -> str:
    """The most frequent names of annotations, for a person to choose the step from."""
    counts: Counter[str] = Counter()
    for trace in traces:
        names, times = np.unique(
            trace.ranges.name[trace.ranges.kind == RangeKind.ANNOTATION], return_counts=True
        )
        counts.update(
            {trace.strings[n]: c for n, c in zip(names.tolist(), times.tolist(), strict=True) if n >= 0}
        )
    return ", ".join(name for name, _ in counts.most_common(8)) or "nothing: none were recorded"


def _of_rank(trace: Trace, others: Sequence[TraceView]) -> TraceView | None:
    """Of other recordings of a program that of the same rank, or the first."""
    same = [view for view in others if view.trace.source.rank == trace.source.rank]
    return same[0] if same else others[0] if others else None


def _same_gpu_first(trace: Trace, counters: Sequence[Trace]) -> list[Trace]:
    """Counters of a GPU of the same name before others; ncu does not say of which rank they are."""
    names = {device.name for device in trace.devices}
    return sorted(counters, key=lambda c: not names & {device.name for device in c.devices})


def _only_device(traces: Sequence[Trace], device: int | None) -> list[Trace]:
    """The traces that have a device, cut down to it."""
    if device is None:
        return list(traces)
    kept, first = [], 0
    for trace in traces:
        at = device - first
        first += len(trace.devices)
        if 0 <= at < len(trace.devices):
            rows = trace.operations.device == at
            operations = trace.operations.take(rows)
            operations = replace(operations, device=np.zeros(len(operations), np.int32))
            kept.append(
                replace(
                    trace,
                    operations=operations,
                    devices=[trace.devices[at]],
                    collectives=_collectives_of(trace, rows),
                )
            )
    return kept


def _collectives_of(trace: Trace, kept: NDArray[np.bool_]) -> Collectives:
    """The collectives of the kept operations, which are numbered anew."""
    place = np.cumsum(kept) - 1
    collectives = trace.collectives.take(kept[trace.collectives.operation])
    return replace(collectives, operation=place[collectives.operation].astype(np.int32))


def _gpus(trace: Trace, peaks: Gpu | None) -> list[Gpu | None]:
    return [_gpu(device, peaks) for device in trace.devices]


def _gpu(device: Device, peaks: Gpu | None) -> Gpu | None:
    if peaks is not None or device.name is None:
        return peaks
    return find_gpu(
        device.name,
        memory_bytes=device.memory_bytes,
        sm_count=device.sm_count,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
        l2_bytes=device.l2_bytes,
    )


def _with_window(views: list[TraceView], left_out: NDArray[np.bool_] | None) -> list[TraceView]:
    """Leave out warm-up and damaged steps, the same of every trace."""
    if left_out is None:
        left_out = steps_left_out(
            [step_device_ns(view) for view in views],
            [view.steps.kinds for view in views],
            [view.steps.damaged for view in views],
        )
    return [replace(view, kept_steps=kept_steps(view.steps.count, left_out)) for view in views]


def kept_steps(count: int, left_out: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The kept steps of a trace that may have more steps than others; one is always kept."""
    kept = np.ones(count, bool)
    both = min(len(kept), len(left_out))
    kept[:both] = ~left_out[:both]
    if not kept.any():
        kept[-1:] = True
    return kept
