"""Summaries of many files to one report."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profkit.advice import MOST_DEVICES, saving_of
from profkit.memory import fullest, trace_memory_later
from profkit.model import Finding
from profkit.model.findings import Fact
from profkit.model.report import Report
from profkit.model.report_memory import Memory
from profkit.model.report_time import Timeline
from profkit.model.report_verdict import AdviceRow, Health
from profkit.model.rows import replace
from profkit.model.states import State
from profkit.model.summing import added
from profkit.report.file_summary import FileSummary
from profkit.report.joining import Joined
from profkit.report.part import Part
from profkit.report.verdict import UNDECIDED, Grounds
from profkit.timeline.lanes import shifted
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

_ONLY_OF_ALL: Final = frozenset({"no-phases", "no-ranges", "no-steps", "no-torch"})
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
    busy = [max((d.busy_ns for t in f.part.traces for d in t.devices), default=-1) for f in files]
    return busy.index(max(busy)) if busy and max(busy) >= 0 else None


def _advice(files: Sequence[FileSummary]) -> list[AdviceRow]:
    """Each advice once, from the file where it saves most; only the files shown have any."""
    found: dict[str, AdviceRow] = {}
    for row in (row for f in files for row in f.advice):
        if saving_of(row) >= saving_of(found.get(row.id, row)):
            found[row.id] = row
    return sorted(found.values(), key=lambda row: -saving_of(row))


def merge_files(files: Sequence[FileSummary]) -> Report:
    """One report of many files, whose tables are those of all of them in one process.

    Args:
        files: The summaries, of the same leading steps left out.
    """
    joined = Joined.of(Part.together([f.part for f in files]))
    undecided, doubts = _undecided(files, joined.part.grounds)
    memory = _memory(files, joined.offsets)
    return Report(
        **joined.tables(memory),
        inputs=[row for f in files for row in f.sources],
        health=_health(files, joined.ranks.findings),
        verdict=joined.verdict(undecided=undecided, facts=doubts),
        numerics=[row for f in files for row in f.numerics],
        advice=_advice(files),
        timeline=_timeline(files, joined),
        method=replace(
            next((f for f in files if f.part.traces), files[0]).method,
            steps_found=[count for f in files for count in f.method.steps_found],
            events=sum(f.method.events for f in files),
            ranks=joined.ranks.method,
        ),
    )


def _undecided(files: Sequence[FileSummary], grounds: Grounds) -> tuple[Fact | None, Sequence[Fact]]:
    """Why the files cannot decide, and what else the first of them says then."""
    files = [f for f in files if f.part.traces] or files
    told = next((f for f in files if f.undecided), None)
    unknown = int(grounds.states[State.UNCLASSIFIED]) > UNDECIDED * max(int(grounds.states.sum()), 1)
    if told is None or not (unknown or all(f.undecided for f in files)):
        return None, ()
    return told.undecided, told.doubts


def _memory(files: Sequence[FileSummary], offsets: Sequence[int]) -> Memory | None:
    """That of the fullest snapshot, else of the fullest timeline, in the report's times."""
    snapshots = [f.memory for f in files if f.memory and not f.part.traces]
    traces = accumulate((len(f.part.traces) for f in files), initial=0)
    recorded = [
        trace_memory_later(f.memory, offsets[at])
        for f, at in zip(files, traces, strict=False)
        if f.memory and f.part.traces
    ]
    return fullest(snapshots or recorded)


def _timeline(files: Sequence[FileSummary], joined: Joined) -> Timeline | None:
    at = _busiest_file(files)
    made = files[at].timeline if at is not None else None
    if at is None or made is None:
        return None
    trace = sum(len(f.part.traces) for f in files[:at])
    return shifted(replace(made, device=made.device + joined.first_device[trace]), joined.offsets[trace])


def _health(files: Sequence[FileSummary], made_anew: Sequence[Finding]) -> Health:
    parts = [f.health for f in files]
    timelines = sum(bool(f.part.traces) for f in files)
    found: dict[str, list[Finding]] = {}
    for part in parts:
        for finding in part.findings:
            if finding.code not in _MADE_ANEW:
                found.setdefault(finding.code, []).append(finding)
    for code in _ONLY_OF_ALL:
        if len(found.get(code, ())) < timelines:
            found.pop(code, None)
    findings = [_finding(code, same) for code, same in found.items()]
    findings += made_anew
    findings.sort(key=lambda f: -f.severity.rank)
    overhead = [part.profiler_overhead_ns for part in parts if part.profiler_overhead_ns is not None]
    total: Health = added(*(replace(part, ok=False, findings=(), profiler_overhead_ns=0) for part in parts))
    return replace(
        total,
        ok=all(part.ok for part in parts),
        findings=findings,
        profiler_overhead_ns=sum(overhead) if overhead else None,
    )


def _finding(code: str, same: Sequence[Finding]) -> Finding:
    worst = max(same, key=lambda f: f.severity.rank)
    count = worst.count if code in _SAME_EVERYWHERE | _ONLY_OF_ALL else sum(f.count for f in same)
    more = len(same) - 1 if code not in _SAME_EVERYWHERE | _ONLY_OF_ALL else 0
    params = {**worst.params, "more_files": more} if more else worst.params
    return replace(worst, count=count, params=params)
