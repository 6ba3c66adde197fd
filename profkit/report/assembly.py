"""Recordings in, one result out: the order in which everything is found out and put together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profkit.advice import advise
from profkit.memory import memory_row
from profkit.model import Finding, Trace
from profkit.model.findings import Fact
from profkit.model.memory_history import MemoryHistory
from profkit.model.report import InputRow, Method, Report
from profkit.model.report import Options as StatedOptions
from profkit.model.report_memory import Memory
from profkit.model.report_ranks import RankComparison
from profkit.model.report_verdict import Health
from profkit.model.rows import replace
from profkit.ranks import compare_ranks, file_of_ranks, report_offsets
from profkit.report.fit_rows import fit_rows
from profkit.report.health import health_row, undecided_reason
from profkit.report.identity import identified
from profkit.report.joining import Joined
from profkit.report.method import threshold_rows
from profkit.report.numerics import numerics_rows
from profkit.report.part import Part, device_rows
from profkit.report.views import Options, analysed_views
from profkit.timeline.host_step import host_facts
from profkit.timeline.lanes import timeline_row
from profkit.timeline.range_tables import ranges_too_deep
from profkit.timeline.view import TraceView

__all__ = [
    "doubts_of",
    "health_of",
    "input_row",
    "method_of",
    "summarise",
    "time_offsets",
    "timelines",
    "undecided_of",
]


_FINDINGS_ON_THE_PROGRAM: Final = frozenset(
    {"out-of-memory", "leak", "fragmentation", "allocator-churn", "private-pools"}
)

_OF_THE_HOST: Final = frozenset({"host-only", "no-gpu-events"})
"""What is said of recordings that show the host alone."""


def summarise(recordings: Sequence[Trace | MemoryHistory], options: Options | None = None) -> Report:
    """Analyse recordings as one report.

    Args:
        recordings: What the readers returned; traces of different devices stay apart.
        options: What the person said about them.
    """
    options = options or Options()
    found = identified(recordings)
    recordings = found.recordings
    views = analysed_views(recordings, options)
    histories = [r for r in recordings if isinstance(r, MemoryHistory)]
    joined = Joined.of(Part.together([Part.of(view) for view in views]), options.device or 0)
    memory = memory_row(histories, views, joined.offsets)
    undecided = undecided_of(recordings, views)
    fit = fit_rows(recordings, views)
    return Report(
        **joined.tables(memory),
        inputs=[input_row(r) for r in found.read],
        health=health_of(recordings, views, joined.part, memory, [*found.findings, *joined.ranks.findings]),
        verdict=joined.verdict(
            undecided=undecided,
            facts=doubts_of(undecided, views),
        ),
        numerics=numerics_rows(recordings),
        advice=advise([v for v in views if v.has_timeline], memory, fit),
        fit=fit,
        timeline=timeline_row(views, joined.offsets, joined.device_ids),
        method=replace(method_of(recordings, views, options), ranks=joined.ranks.method),
    )


def health_of(
    recordings: Sequence[Trace | MemoryHistory],
    views: Sequence[TraceView],
    part: Part,
    memory: Memory | None,
    findings: Sequence[Finding] = (),
) -> Health:
    """How far some recordings can be trusted, with what else was found."""
    deep = ranges_too_deep(part.ranges_too_deep)
    return health_row(views, [*_findings(recordings, memory), *findings, *deep], _dropped(recordings))


def timelines(
    recordings: Sequence[Trace | MemoryHistory], options: Options
) -> tuple[list[TraceView], Memory | None]:
    """The analysed traces of some recordings, and the memory section: what an exported timeline is made from."""
    recordings = identified(recordings).recordings
    histories = [r for r in recordings if isinstance(r, MemoryHistory)]
    views = analysed_views(recordings, options)
    return views, memory_row(histories, views, time_offsets(views))


def undecided_of(recordings: Sequence[Trace | MemoryHistory], views: Sequence[TraceView]) -> Fact | None:
    """Why some recordings cannot give a verdict."""
    if views or not recordings:
        return undecided_reason(views)
    return Fact("memory-only" if any(isinstance(r, MemoryHistory) for r in recordings) else "numerics-only")


def doubts_of(undecided: Fact | None, views: Sequence[TraceView]) -> list[Fact]:
    """What the host's time goes to, where no GPU was recorded."""
    return host_facts(views[0])[1:] if undecided and undecided.code in _OF_THE_HOST else []


def time_offsets(views: Sequence[TraceView]) -> list[int]:
    """In ns, what to add to each trace's times: the report starts with the earliest event of its files."""
    files = [file_of_ranks(view, at, device_rows(view)) for at, view in enumerate(views)]
    compared = compare_ranks([device for file in files for device in file.devices])
    return report_offsets([(v.span, v.trace.unix_epoch_ns) for v in views], compared.clocks)


def input_row(recording: Trace | MemoryHistory) -> InputRow:
    """What a recording is."""
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


def method_of(
    recordings: Sequence[Trace | MemoryHistory], views: Sequence[TraceView], options: Options
) -> Method:
    """How the numbers were made, but for the comparison of ranks."""
    gpus = [gpu for view in views for gpu in view.gpus]
    return Method(
        options=StatedOptions(
            step=options.step_name,
            device=options.device,
            phase=options.phase,
            peaks=options.peaks.name if options.peaks else None,
            plain_step_ns=next((v.plain_step_ns for v in views if v.plain_step_ns), None),
        ),
        thresholds=threshold_rows(gpus),
        steps_found=[view.steps.count for view in views],
        events=sum(
            len(r.operations) + len(r.calls) + len(r.ranges) for r in recordings if isinstance(r, Trace)
        ),
        ranks=RankComparison(parallelism=(), streams=()),
    )
