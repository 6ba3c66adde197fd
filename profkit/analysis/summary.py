"""Recordings in, one result out: the order in which everything is found out and put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from profkit.analysis.advice import advise
from profkit.analysis.health import health_row, undecided_reason
from profkit.analysis.memory_section import give_phase_peaks, memory_row, memory_sentence
from profkit.analysis.profiler_cost import with_profiler_cost
from profkit.analysis.ranks import (
    FileOfRanks,
    compare_ranks,
    file_of_ranks,
    rank_section,
    report_offsets,
    verdict_on_ranks,
)
from profkit.analysis.result import Result, Row
from profkit.analysis.states import BUSY_STATES
from profkit.analysis.steps import warm_up_steps
from profkit.analysis.tables.communication import communication_rows
from profkit.analysis.tables.host_time import host_time_row
from profkit.analysis.tables.kernels import kernel_rows
from profkit.analysis.tables.parts import part_rows
from profkit.analysis.tables.phases import phase_rows
from profkit.analysis.tables.ranges import operator_rows, range_rows
from profkit.analysis.tables.utilisation import utilisation_rows
from profkit.analysis.tables.waiting import idle_row, sync_rows
from profkit.analysis.tables.window import shares_row, states_of, totals_row, window_row
from profkit.analysis.thresholds import threshold_rows
from profkit.analysis.timeline import timeline_row
from profkit.analysis.unrecorded import unrecorded_caveat
from profkit.analysis.verdict import verdict_row
from profkit.analysis.view import TraceView, step_device_ns, view_trace
from profkit.errors import AnalysisError
from profkit.hardware import Gpu, find_gpu
from profkit.model import Device, Finding, MemoryHistory, RangeKind, Severity, Trace

__all__ = ["Options", "analysed_views", "summarise", "summarise_views", "time_offsets", "timelines"]


_FINDINGS_ON_THE_PROGRAM: Final = frozenset({"out-of-memory", "leak", "fragmentation", "allocator-churn"})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What a person may say about their recordings."""

    step_name: str | None = None
    """The name of the ranges that are steps."""
    device: int | None = None
    """The report's id of the only device to look at."""
    peaks: Gpu | None = None
    """Rates to use for every device in place of the table's."""
    plain_step_ns: int | None = None
    """The step's time without a profiler."""


def summarise(recordings: Sequence[Trace | MemoryHistory], options: Options | None = None) -> Result:
    """Analyse recordings as one report.

    Args:
        recordings: What the readers returned; traces stay separate devices.
        options: What the person said about them.
    """
    options = options or Options()
    return summarise_views(recordings, analysed_views(recordings, options), options)


def summarise_views(
    recordings: Sequence[Trace | MemoryHistory],
    views: Sequence[TraceView],
    options: Options,
    *,
    whole: bool = True,
) -> Result:
    """The report of recordings whose traces are analysed already.

    Args:
        recordings: What the readers returned.
        views: What `analysed_views` made of them.
        options: What the person said about them.
        whole: Whether to give advice and a timeline too, which a report of many files has of a few of them.
    """
    histories = [r for r in recordings if isinstance(r, MemoryHistory)]
    device_ids = _device_ids([v.trace for v in views], options.device)
    devices = _device_rows(views, device_ids)
    communication = communication_rows(views)
    ranks = rank_section(_files_of_ranks(views, devices), communication)
    offsets = report_offsets([(v.span, v.trace.unix_epoch_ns) for v in views], ranks.found.clocks)
    busy = sum(
        int(states_of(v, d)[list(BUSY_STATES)].sum()) for v in views for d in range(len(v.trace.devices))
    )
    phases = phase_rows(views)
    ranges, too_deep = range_rows(views)
    memory = memory_row(histories, views, offsets)
    give_phase_peaks(phases, memory)
    verdict = verdict_row(views, plain_step_ns=options.plain_step_ns, undecided=_undecided(views, histories))
    if memory is not None and not views:
        verdict["sentence"] = memory_sentence(memory)
        verdict["instead"] = (
            "A memory snapshot holds no times of kernels: record a trace of the same step too."
        )
    if whole and verdict["caveats"]:
        verdict["caveats"] += [text for text in [unrecorded_caveat(views)] if text]
    return Result(
        inputs=[_input_row(r) for r in recordings],
        devices=devices,
        health=health_row(
            views, [*_findings(recordings, memory), *ranks.findings, *too_deep], _dropped(recordings)
        ),
        window={**window_row(views, offsets), "parts": part_rows(views)},
        verdict=verdict_on_ranks(verdict, ranks.found),
        totals=totals_row(views, device_ids),
        phases=phases,
        kernels=kernel_rows(views, busy, device_ids),
        operators=operator_rows(views),
        ranges=ranges,
        idle={**idle_row(views, offsets, device_ids), "host": host_time_row(views)},
        syncs=sync_rows(views),
        memory=memory,
        communication=communication,
        ranks=ranks.found.rows,
        advice=advise(views, memory, options.plain_step_ns) if whole else [],
        timeline=timeline_row(views, offsets, device_ids) if whole else None,
        utilisation=utilisation_rows(views, offsets, device_ids),
        method={**_method(recordings, views, options), "ranks": ranks.method},
    )


def timelines(
    recordings: Sequence[Trace | MemoryHistory], options: Options
) -> tuple[list[TraceView], Row | None]:
    """The analysed traces of some recordings, and the memory section: what an exported timeline is made from."""
    histories = [r for r in recordings if isinstance(r, MemoryHistory)]
    views = analysed_views(recordings, options)
    return views, memory_row(histories, views, time_offsets(views))


def analysed_views(
    recordings: Sequence[Trace | MemoryHistory], options: Options, left_out: int | None = None
) -> list[TraceView]:
    """The traces of some recordings with everything that tables are made from.

    Args:
        recordings: What the readers returned.
        options: What the person said about them.
        left_out: How many leading steps are warm-up, where that is decided elsewhere.

    Raises:
        AnalysisError: There is no such device, or no range is named like the step that was asked for.
    """
    _check_options([r for r in recordings if isinstance(r, Trace)], options)
    traces, lenders = _timelines_and_lenders([r for r in recordings if isinstance(r, Trace)])
    lending = [view_trace(t, _gpus(t, options.peaks), options.step_name) for t in lenders]
    views = _with_window(
        [
            view_trace(t, _gpus(t, options.peaks), options.step_name, _lender(t, lending))
            for t in _only_device(traces, options.device)
        ],
        left_out,
    )
    if options.plain_step_ns is None:
        return views
    return [with_profiler_cost(view, options.plain_step_ns) for view in views]


def _check_options(traces: Sequence[Trace], options: Options) -> None:
    """A device or a step that is not there would otherwise leave an empty report."""
    devices = sum(len(t.devices) for t in _timelines_and_lenders(traces)[0])
    if options.device is not None and not 0 <= options.device < devices:
        known = f"They are numbered 0 to {devices - 1}" if devices else "There is none"
        raise AnalysisError(f"device {options.device}", "the recordings have no such device", known)
    if options.step_name is not None and not any(options.step_name in t.strings for t in traces):
        raise AnalysisError(
            f"step {options.step_name!r}",
            "no range has this name",
            f"Ranges are named {_names_of_ranges(traces)}",
        )


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


def _timelines_and_lenders(traces: Sequence[Trace]) -> tuple[list[Trace], list[Trace]]:
    """Beside an nsys export, a profiler trace is another execution: it lends shapes, and no time of it counts."""
    timelines = [t for t in traces if t.source.format == "nsys" and len(t.operations)]
    if not timelines or len(timelines) == len(traces):
        return list(traces), []
    return timelines, [t for t in traces if t not in timelines]


def _lender(trace: Trace, lending: Sequence[TraceView]) -> TraceView | None:
    """The lender of the same rank, or the only one."""
    same = [view for view in lending if view.trace.source.rank == trace.source.rank]
    return same[0] if same else lending[0] if lending else None


def _undecided(views: Sequence[TraceView], histories: Sequence[MemoryHistory]) -> str | None:
    if not views and histories:
        return "a memory snapshot holds no times of kernels. Record a trace of the same step too"
    return undecided_reason(views)


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
                    trace, operations=operations, devices=[trace.devices[at]], **_without_rows(trace, rows)
                )
            )
    return kept


def _without_rows(trace: Trace, kept: Any) -> dict[str, Any]:
    """The tables that name operations, after some of these are gone."""
    place = np.cumsum(kept) - 1
    collectives = trace.collectives.take(kept[trace.collectives.operation])
    return {"collectives": replace(collectives, operation=place[collectives.operation].astype(np.int32))}


def _gpus(trace: Trace, peaks: Gpu | None) -> list[Gpu | None]:
    return [_card(device, peaks) for device in trace.devices]


def _card(device: Device, peaks: Gpu | None) -> Gpu | None:
    if peaks is not None or device.name is None:
        return peaks
    return find_gpu(
        device.name,
        memory_bytes=device.memory_bytes,
        sm_count=device.sm_count,
        bandwidth_bytes_per_s=device.bandwidth_bytes_per_s,
        l2_bytes=device.l2_bytes,
    )


def _with_window(views: list[TraceView], left_out: int | None) -> list[TraceView]:
    """Leave out leading warm-up steps, the same of every trace."""
    if left_out is None:
        left_out = warm_up_steps([step_device_ns(view) for view in views])
    return [view.keeping(min(left_out, max(view.steps.count - 1, 0))) for view in views]


def time_offsets(views: Sequence[TraceView]) -> list[int]:
    """In ns, what to add to each trace's times: the report starts with the earliest event of its files."""
    devices = _device_rows(views, _device_ids([v.trace for v in views], None))
    compared = compare_ranks([d for file in _files_of_ranks(views, devices) for d in file.devices])
    return report_offsets([(v.span, v.trace.unix_epoch_ns) for v in views], compared.clocks)


def _files_of_ranks(views: Sequence[TraceView], devices: Sequence[Row]) -> list[FileOfRanks]:
    found, first = [], 0
    for file, view in enumerate(views):
        own = devices[first : first + len(view.trace.devices)]
        first += len(own)
        found.append(file_of_ranks(view, file, own))
    return found


def _device_ids(traces: Sequence[Trace], only: int | None) -> list[list[int]]:
    ids, first = [], only or 0
    for trace in traces:
        ids.append(list(range(first, first + len(trace.devices))))
        first += len(trace.devices)
    return ids


def _device_rows(views: Sequence[TraceView], device_ids: Sequence[Sequence[int]]) -> list[Row]:
    rows = []
    for view, ids in zip(views, device_ids, strict=True):
        for at, device in enumerate(view.trace.devices):
            states, card = states_of(view, at), view.gpus[at]
            bandwidth = card.bandwidth_bytes_per_s if card else device.bandwidth_bytes_per_s
            rows.append(
                {
                    "id": ids[at],
                    "ordinal": device.ordinal,
                    "rank": _rank(view.trace, at),
                    "name": device.name,
                    "peaks": {d: rate / 1e12 for d, rate in sorted(card.best_peaks().items())}
                    if card
                    else {},
                    "bandwidth_gbs": bandwidth / 1e9 if bandwidth else None,
                    "peaks_source": card.source if card else None,
                    "window_ns": view.windows[at][1] - view.windows[at][0],
                    "shares": shares_row(states),
                    "busy_ns": int(states[list(BUSY_STATES)].sum()),
                }
            )
    return rows


def _rank(trace: Trace, device: int) -> int | None:
    processes = np.unique(trace.operations.process[trace.operations.device == device]).tolist()
    ranks = {trace.processes[p].rank for p in processes if p < len(trace.processes)}
    return ranks.pop() if len(ranks) == 1 and None not in ranks else trace.source.rank


def _input_row(recording: Trace | MemoryHistory) -> Row:
    source = recording.source
    ranks = {p.rank for p in recording.processes} if isinstance(recording, Trace) else set()
    return {
        "path": source.name,
        "format": source.format,
        "tool": source.tool,
        "tool_version": source.tool_version,
        "ranks": sorted({r for r in (*ranks, source.rank) if r is not None}),
        "facts": dict(source.facts),
    }


def _findings(recordings: Sequence[Trace | MemoryHistory], memory: Row | None) -> list[Finding]:
    """What the readers found, and of the memory section's findings those on the snapshot, not on the program."""
    found = [f for r in recordings if isinstance(r, Trace) for f in r.findings]
    for row in (memory or {}).get("findings", ()):
        if row["code"] not in _FINDINGS_ON_THE_PROGRAM:
            found.append(
                Finding(row["code"], Severity[row["severity"].upper()], row["message"], row["count"])
            )
    return found


def _dropped(recordings: Sequence[Trace | MemoryHistory]) -> dict[str, int]:
    total: dict[str, int] = {}
    for recording in recordings:
        for reason, count in recording.dropped.items():
            total[reason] = total.get(reason, 0) + count
    return total


def _method(recordings: Sequence[Trace | MemoryHistory], views: Sequence[TraceView], options: Options) -> Row:
    cards = [card for view in views for card in view.gpus]
    return {
        "options": {
            "step": options.step_name,
            "device": options.device,
            "peaks": options.peaks.name if options.peaks else None,
            "plain_step_ns": options.plain_step_ns,
        },
        "thresholds": threshold_rows(cards),
        "steps_found": [view.steps.count for view in views],
        "events": sum(
            len(r.operations) + len(r.calls) + len(r.ranges) for r in recordings if isinstance(r, Trace)
        ),
    }
