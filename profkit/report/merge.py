"""Summaries of many files to one report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profkit.advice import MOST_DEVICES, saving_of
from profkit.model import Finding
from profkit.model.findings import Fact
from profkit.model.report_time import Timeline
from profkit.model.report_verdict import AdviceRow
from profkit.model.result import Result, Row
from profkit.model.rows import replace
from profkit.model.states import State
from profkit.model.summing import added
from profkit.ranks import rank_section, report_offsets, verdict_on_ranks
from profkit.ranks.collective_table import merge_communication
from profkit.report import merged_tables
from profkit.report.part import FileSummary
from profkit.report.verdict import UNDECIDED, Grounds, verdict_on
from profkit.timeline.idle_tables import costliest_syncs
from profkit.timeline.lanes import shifted
from profkit.timeline.range_tables import busiest_operators, busiest_ranges
from profkit.timeline.step_times import median_step
from profkit.timeline.steps import steps_left_out

__all__ = ["common_left_out", "files_shown", "merge_files"]

_MADE_ANEW: Final = frozenset(
    {
        "parallelism", "ranks-missing", "ranks-not-compared", "straggler", "small-buckets", "waits-in-messages", "collectives-unmatched", "ranks-repeated",
        "recordings-apart", "recordings-uneven",
        "copies-on-compute-stream", "collectives-on-compute-stream", "streams-take-turns",
        "copies-run-alone", "copies-without-wait",
    }
)  # fmt: skip
"""Findings that are about all ranks together."""

_ONLY_OF_ALL: Final = frozenset({"no-phases", "no-steps"})
"""Findings that hold for a report only when they hold for every file."""

_SAME_EVERYWHERE: Final = frozenset({"warm-up-steps", "steps-by-period", "steps-differ", "step-outlier"})


def common_left_out(files: Sequence[FileSummary]) -> NDArray[np.bool_]:
    """Which steps the report leaves out; files that left out others are to be done again."""
    return steps_left_out(
        [f.step_device_ns for f in files], [f.kinds for f in files], [f.damaged for f in files]
    )


def files_shown(files: Sequence[FileSummary]) -> set[int]:
    """The files whose advice and timeline the report has: those of the devices that did most."""
    work = [(-ns, at) for at, f in enumerate(files) for ns in f.work_ns]
    busiest = _busiest_file(files)
    return {at for _, at in sorted(work)[:MOST_DEVICES]} | ({busiest} if busiest is not None else set())


def _busiest_file(files: Sequence[FileSummary]) -> int | None:
    busy = [max((d["busy_ns"] for d in f.result.devices), default=-1) for f in files]
    return busy.index(max(busy)) if busy and max(busy) >= 0 else None


def _advice(files: Sequence[FileSummary]) -> list[AdviceRow]:
    """Each advice once, from the file where it saves most; only the files shown have any."""
    found: dict[str, AdviceRow] = {}
    for row in (row for f in files for row in f.result.advice):
        if saving_of(row) >= saving_of(found.get(row.id, row)):
            found[row.id] = row
    return sorted(found.values(), key=lambda row: -saving_of(row))


def merge_files(files: Sequence[FileSummary], plain_step_ns: int | None = None) -> Result:
    """One report of many files, as `summarise` makes it of all of them in one process.

    Not the same: texts of findings that count something are those of one file; operators and gaps beyond what a
    file lists are not seen; a kernel's bound is that of the file with most of its time; a profiler trace gives
    nothing to an nsys export.

    Args:
        files: The summaries, of the same leading steps left out.
        plain_step_ns: The step without a profiler, where it is known.
    """
    first_device = _first_devices(files)
    communication = merge_communication([row for f in files for row in f.result.communication])
    ranks = rank_section(
        [f.ranks.numbered(at, first_device[at]) for at, f in enumerate(files) if f.ranks], communication
    )
    shifts = _shifts(files, ranks.found.clocks)
    grounds = Grounds.together([f.grounds for f in files])
    verdict = verdict_on(grounds, plain_step_ns=plain_step_ns, undecided=_undecided(files, grounds))
    fullest = _fullest(files)
    devices = [
        replace(d, id=d.id + first)
        for f, first in zip(files, first_device, strict=True)
        for d in f.result.devices
    ]
    window = merged_tables.window(
        [f for f in files if f.span], [s for f, s in zip(files, shifts, strict=True) if f.span]
    )
    kept = [row["device_ns"] / max(len(devices), 1) for row in window["steps"] if row["kept"]]
    return Result(
        inputs=[row for f in files for row in f.result.inputs],
        devices=devices,
        health=_health([f.result.health for f in files], ranks.findings),
        window=window,
        step=median_step([f.result.step for f in files if f.span], kept),
        verdict=verdict_on_ranks(verdict, ranks.found),
        totals=merged_tables.totals(files, first_device),
        phases=merged_tables.phases(files, fullest),
        kernels=merged_tables.kernels(files, sum(d["busy_ns"] for d in devices), first_device),
        operators=busiest_operators([row for f in files for row in f.result.operators]),
        ranges=busiest_ranges([row for f in files for row in f.result.ranges]),
        idle=merged_tables.idle(files, shifts, first_device),
        syncs=costliest_syncs([row for f in files for row in f.result.syncs]),
        memory=fullest.result.memory if fullest else None,
        communication=ranks.communication,
        ranks=ranks.found.rows,
        advice=_advice(files),
        timeline=_timeline(files, shifts, first_device),
        utilisation=[
            replace(row, device=row.device + first, time_ns=[t + shift for t in row.time_ns])
            for f, shift, first in zip(files, shifts, first_device, strict=True)
            for row in f.result.utilisation
        ],
        method=_method(files, ranks.method),
    )


def _first_devices(files: Sequence[FileSummary]) -> list[int]:
    first, found = 0, []
    for file in files:
        found.append(first)
        first += len(file.result.devices)
    return found


def _shifts(files: Sequence[FileSummary], clocks: Any) -> list[int]:
    """From each file's own report time to that of the whole report."""
    spans = [f.span or (0, 0) for f in files]
    traces = [at for at, f in enumerate(files) if f.span]
    by_trace = {at: clocks[at] for at in traces if at in clocks}
    offsets = report_offsets(
        [(spans[at], files[at].epoch_ns) for at in traces],
        {place: by_trace[at] for place, at in enumerate(traces) if at in by_trace},
    )
    found = [0] * len(files)
    for at, offset in zip(traces, offsets, strict=True):
        found[at] = offset + spans[at][0]
    return found


def _undecided(files: Sequence[FileSummary], grounds: Grounds) -> Fact | None:
    reasons: list[Fact | None] = [f.result.verdict["undecided"] for f in files]
    told = next((reason for reason in reasons if reason), None)
    unknown = int(grounds.states[State.UNCLASSIFIED]) > UNDECIDED * max(int(grounds.states.sum()), 1)
    return told if unknown or None not in reasons else None


def _fullest(files: Sequence[FileSummary]) -> FileSummary | None:
    with_memory = [f for f in files if f.result.memory is not None]
    return max(with_memory, key=lambda f: f.result.memory["peak_allocated_bytes"] or 0, default=None)


def _timeline(
    files: Sequence[FileSummary], shifts: Sequence[int], first_device: Sequence[int]
) -> Timeline | None:
    at = _busiest_file(files)
    made = files[at].result.timeline if at is not None else None
    if at is None or made is None:
        return None
    return shifted(replace(made, device=made.device + first_device[at]), shifts[at])


def _health(rows: Sequence[Row], made_anew: Sequence[Finding]) -> Row:
    found: dict[str, list[Finding]] = {}
    for row in rows:
        for finding in row["findings"]:
            if finding.code not in _MADE_ANEW:
                found.setdefault(finding.code, []).append(finding)
    for code in _ONLY_OF_ALL:
        if len(found.get(code, ())) < len(rows):
            found.pop(code, None)
    findings = [_finding(code, same) for code, same in found.items()]
    findings += made_anew
    findings.sort(key=lambda f: -f.severity.rank)
    total: Row = {}
    for row in rows:
        counts = {k: v for k, v in row.items() if k not in ("ok", "findings", "profiler_overhead_ns")}
        total = added(total, counts)
    overhead = [row["profiler_overhead_ns"] for row in rows if row["profiler_overhead_ns"] is not None]
    return {
        "ok": all(row["ok"] for row in rows),
        "findings": findings,
        **total,
        "profiler_overhead_ns": sum(overhead) if overhead else None,
    }


def _finding(code: str, same: Sequence[Finding]) -> Finding:
    worst = max(same, key=lambda f: f.severity.rank)
    count = worst.count if code in _SAME_EVERYWHERE | _ONLY_OF_ALL else sum(f.count for f in same)
    more = len(same) - 1 if code not in _SAME_EVERYWHERE | _ONLY_OF_ALL else 0
    params = {**worst.params, "more_files": more} if more else worst.params
    return replace(worst, count=count, params=params)


def _method(files: Sequence[FileSummary], ranks: Row) -> Row:
    first = files[0].result.method
    return {
        **first,
        "steps_found": [count for f in files for count in f.result.method["steps_found"]],
        "events": sum(f.result.method["events"] for f in files),
        "ranks": ranks,
    }
