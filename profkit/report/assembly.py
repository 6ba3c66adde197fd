"""Recordings in, one result out: the order in which everything is found out and put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from profkit.advice import advise
from profkit.memory import memory_row
from profkit.model import Finding, Trace
from profkit.model.findings import Fact
from profkit.model.memory_history import MemoryHistory
from profkit.model.report import DeviceRow, InputRow
from profkit.model.report_memory import Memory
from profkit.model.result import Result, Row
from profkit.model.rows import replace
from profkit.model.states import BUSY_STATES
from profkit.ranks import (
    FileOfRanks,
    compare_ranks,
    file_of_ranks,
    rank_section,
    report_offsets,
    verdict_on_ranks,
)
from profkit.ranks.collective_table import communication_rows
from profkit.report.health import health_row, undecided_reason
from profkit.report.method import threshold_rows
from profkit.report.unprofiled import unprofiled_doubt
from profkit.report.verdict import verdict_row
from profkit.report.views import Options, analysed_views
from profkit.roofline.kernel_table import kernel_rows, kernel_sums, kernels_together
from profkit.timeline.gpu_metrics import utilisation_rows
from profkit.timeline.host_step import host_facts
from profkit.timeline.idle_tables import idle_row, sync_rows
from profkit.timeline.lanes import timeline_row
from profkit.timeline.phase_table import phase_rows
from profkit.timeline.range_tables import operator_rows, range_rows
from profkit.timeline.step_times import step_times
from profkit.timeline.view import TraceView
from profkit.timeline.window_table import shares_row, states_of, totals_row, window_row

__all__ = ["summarise", "summarise_views", "time_offsets", "timelines"]


_FINDINGS_ON_THE_PROGRAM: Final = frozenset(
    {"out-of-memory", "leak", "fragmentation", "allocator-churn", "private-pools"}
)


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
    ranges, too_deep = range_rows(views)
    memory = memory_row(histories, views, offsets)
    verdict: Any = verdict_row(
        views, plain_step_ns=options.plain_step_ns, undecided=_undecided(views, histories)
    )
    if whole and verdict.doubts:
        verdict = replace(verdict, doubts=[*verdict.doubts, *filter(None, [unprofiled_doubt(views)])])
    if verdict.undecided is not None and verdict.undecided.code == "host-only":
        verdict = replace(verdict, doubts=[*verdict.doubts, *host_facts(views[0])[1:]])
    return Result(
        inputs=[_input_row(r) for r in recordings],
        devices=devices,
        health=health_row(
            views, [*_findings(recordings, memory), *ranks.findings, *too_deep], _dropped(recordings)
        ),
        window=window_row(views, offsets),
        step=step_times(views),
        verdict=verdict_on_ranks(verdict, ranks.found),
        totals=totals_row(views, device_ids),
        phases=phase_rows(views, memory),
        kernels=kernel_rows(
            kernels_together(
                kernel.numbered(ids[0])
                for view, ids in zip(views, device_ids, strict=True)
                for kernel in kernel_sums(view)
            ),
            busy,
        ),
        operators=operator_rows(views),
        ranges=ranges,
        idle=idle_row(views, offsets, device_ids),
        syncs=sync_rows(views),
        memory=memory,
        communication=ranks.communication,
        ranks=ranks.found.rows,
        advice=advise([v for v in views if v.has_timeline], memory, options.plain_step_ns) if whole else [],
        timeline=timeline_row(views, offsets, device_ids) if whole else None,
        utilisation=utilisation_rows(views, offsets, device_ids),
        method={**_method(recordings, views, options), "ranks": ranks.method},
    )


def timelines(
    recordings: Sequence[Trace | MemoryHistory], options: Options
) -> tuple[list[TraceView], Memory | None]:
    """The analysed traces of some recordings, and the memory section: what an exported timeline is made from."""
    histories = [r for r in recordings if isinstance(r, MemoryHistory)]
    views = analysed_views(recordings, options)
    return views, memory_row(histories, views, time_offsets(views))


def _undecided(views: Sequence[TraceView], histories: Sequence[MemoryHistory]) -> Fact | None:
    if not views and histories:
        return Fact("memory-only")
    return undecided_reason(views)


def time_offsets(views: Sequence[TraceView]) -> list[int]:
    """In ns, what to add to each trace's times: the report starts with the earliest event of its files."""
    devices = _device_rows(views, _device_ids([v.trace for v in views], None))
    compared = compare_ranks([d for file in _files_of_ranks(views, devices) for d in file.devices])
    return report_offsets([(v.span, v.trace.unix_epoch_ns) for v in views], compared.clocks)


def _files_of_ranks(views: Sequence[TraceView], devices: Sequence[DeviceRow]) -> list[FileOfRanks]:
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


def _device_rows(views: Sequence[TraceView], device_ids: Sequence[Sequence[int]]) -> list[DeviceRow]:
    rows = []
    for view, ids in zip(views, device_ids, strict=True):
        for at, device in enumerate(view.trace.devices):
            states, gpu = states_of(view, at), view.gpus[at]
            bandwidth = gpu.bandwidth_bytes_per_s if gpu else device.bandwidth_bytes_per_s
            rows.append(
                DeviceRow(
                    id=ids[at],
                    ordinal=device.ordinal,
                    rank=_rank(view.trace, at),
                    name=device.name,
                    peaks={d: rate / 1e12 for d, rate in sorted(gpu.best_peaks().items())} if gpu else {},
                    bandwidth_gbs=bandwidth / 1e9 if bandwidth else None,
                    peaks_source=gpu.source if gpu else None,
                    window_ns=view.windows[at].total_ns,
                    shares=shares_row(states),
                    busy_ns=int(states[list(BUSY_STATES)].sum()),
                )
            )
    return rows


def _rank(trace: Trace, device: int) -> int | None:
    processes = np.unique(trace.operations.process[trace.operations.device == device]).tolist()
    ranks = {trace.processes[p].rank for p in processes if p < len(trace.processes)}
    return ranks.pop() if len(ranks) == 1 and None not in ranks else trace.source.rank


def _input_row(recording: Trace | MemoryHistory) -> InputRow:
    source = recording.source
    ranks = {p.rank for p in recording.processes} if isinstance(recording, Trace) else set()
    return InputRow(
        path=source.name,
        format=source.format,
        tool=source.tool,
        tool_version=source.tool_version,
        ranks=sorted({r for r in (*ranks, source.rank) if r is not None}),
        facts=dict(source.facts),
    )


def _findings(recordings: Sequence[Trace | MemoryHistory], memory: Memory | None) -> list[Finding]:
    """What the readers found, and of the memory section's findings those on the snapshot, not on the program."""
    found = [f for r in recordings if isinstance(r, Trace) for f in r.findings]
    of_memory = memory.findings if memory is not None else ()
    return [*found, *(f for f in of_memory if f.code not in _FINDINGS_ON_THE_PROGRAM)]


def _dropped(recordings: Sequence[Trace | MemoryHistory]) -> dict[str, int]:
    total: dict[str, int] = {}
    for recording in recordings:
        for reason, count in recording.dropped.items():
            total[reason] = total.get(reason, 0) + count
    return total


def _method(recordings: Sequence[Trace | MemoryHistory], views: Sequence[TraceView], options: Options) -> Row:
    gpus = [gpu for view in views for gpu in view.gpus]
    return {
        "options": {
            "step": options.step_name,
            "device": options.device,
            "peaks": options.peaks.name if options.peaks else None,
            "plain_step_ns": options.plain_step_ns,
        },
        "thresholds": threshold_rows(gpus),
        "steps_found": [view.steps.count for view in views],
        "events": sum(
            len(r.operations) + len(r.calls) + len(r.ranges) for r in recordings if isinstance(r, Trace)
        ),
    }
