"""Recordings in, one result out: the order in which everything is found out and put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profkit.advice import advise
from profkit.memory import MemoryFound, memory_found
from profkit.model import Finding, Trace
from profkit.model.findings import Fact
from profkit.model.memory_history import MemoryHistory
from profkit.model.report import InputRow, Method, Report
from profkit.model.report import Options as StatedOptions
from profkit.model.report_memory import Memory
from profkit.model.report_numerics import Numerics
from profkit.model.report_ranks import RankComparison
from profkit.model.summing import added
from profkit.ranks import compare_ranks, file_of_ranks, report_offsets
from profkit.readers.registry import role_of
from profkit.report.fit_rows import fit_rows
from profkit.report.health import health_row, told_together, undecided_reason
from profkit.report.identity import identified
from profkit.report.joining import Joined, Told
from profkit.report.method import threshold_rows
from profkit.report.numerics import numerics_rows
from profkit.report.part import Part, device_rows
from profkit.report.trace_health import TraceHealth
from profkit.report.views import Options, analysed_views
from profkit.timeline.lanes import timeline_row
from profkit.timeline.range_tables import ranges_too_deep
from profkit.timeline.view import TraceView

__all__ = [
    "FileFacts",
    "input_row",
    "memory_of",
    "method_of",
    "report_of",
    "summarise",
    "time_offsets",
    "timelines",
]

_FINDINGS_ON_THE_PROGRAM: Final = frozenset(
    {"out-of-memory", "leak", "fragmentation", "allocator-churn", "private-pools"}
)

_OF_THE_HOST: Final = frozenset({"host-only", "no-gpu-events"})
"""What is said of recordings that show the host alone."""


@dataclass(frozen=True, kw_only=True, eq=False)
class FileFacts:
    """What a report says of each recording that is no timeline's: small, and gathered file by file."""

    inputs: Sequence[InputRow]
    """One a file that it was read from."""
    findings: Sequence[Finding]
    """What its reader found."""
    dropped: Mapping[str, int]
    numerics: Sequence[Numerics]

    @property
    def name(self) -> str | None:
        """That of the file; None where there are several."""
        return self.inputs[0].path if len(self.inputs) == 1 else None

    @classmethod
    def of(cls, recording: Trace | MemoryHistory, read: Sequence[Trace | MemoryHistory]) -> FileFacts:
        """Those of one recording.

        Args:
            recording: What is analysed.
            read: What it was joined from.
        """
        return cls(
            inputs=[input_row(each) for each in read],
            findings=recording.findings if isinstance(recording, Trace) else (),
            dropped=recording.dropped,
            numerics=numerics_rows([recording]),
        )


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
    joined = Joined.of(Part.together([Part.of(view) for view in views]), options.device or 0)
    memory = memory_of(recordings, views, joined.offsets)
    fit = fit_rows(memory, [r for r in recordings if isinstance(r, Trace)], views)
    section = memory.section if memory else None
    return report_of(
        joined,
        [FileFacts.of(recording, read) for recording, read in zip(recordings, found.read, strict=True)],
        Told(
            memory=section,
            fit=fit,
            advice=advise([v for v in views if v.has_timeline], section, fit),
            timeline=timeline_row(views, joined.offsets, joined.device_ids),
        ),
        found.findings,
        method_of(recordings, views, options),
    )


def report_of(
    joined: Joined, files: Sequence[FileFacts], told: Told, findings: Sequence[Finding], method: Method
) -> Report:
    """The report, however its parts were gathered.

    Args:
        joined: The timelines.
        files: The recordings.
        told: What a few of them tell for all.
        findings: What was found of the recordings together.
        method: How it was made, but for the comparison of ranks.
    """
    traces = [trace.health for trace in joined.part.traces]
    of_memory = told.memory.findings if told.memory is not None else ()
    found = [
        *told_together([(file.name, file.findings) for file in files]),
        # Of the memory section's findings those on the snapshot, not on the program.
        *(f for f in of_memory if f.code not in _FINDINGS_ON_THE_PROGRAM),
        *findings,
        *joined.ranks.findings,
        *ranges_too_deep(joined.part.ranges_too_deep),
    ]
    dropped: Mapping[str, int] = added({}, *(file.dropped for file in files))
    undecided = _undecided(traces, joined, files)
    of_host = undecided is not None and undecided.code in _OF_THE_HOST
    return joined.report(
        told,
        inputs=[row for file in files for row in file.inputs],
        health=health_row(joined, found, dropped),
        verdict=joined.verdict(undecided=undecided, facts=traces[0].host[1:] if of_host and traces else ()),
        numerics=[row for file in files for row in file.numerics],
        method=method,
    )


def _undecided(traces: Sequence[TraceHealth], joined: Joined, files: Sequence[FileFacts]) -> Fact | None:
    """Why the recordings cannot give a verdict."""
    if traces or not files:
        return undecided_reason(traces, joined.part.grounds.states)
    of_memory = any(role_of(row.format) == "memory" for file in files for row in file.inputs)
    return Fact("memory-only" if of_memory else "numerics-only")


def memory_of(
    recordings: Sequence[Trace | MemoryHistory], views: Sequence[TraceView], offsets: Sequence[int]
) -> MemoryFound | None:
    """The memory section of some recordings."""
    return memory_found([r for r in recordings if isinstance(r, MemoryHistory)], views, offsets)


def timelines(
    recordings: Sequence[Trace | MemoryHistory], options: Options
) -> tuple[list[TraceView], Memory | None]:
    """The analysed traces of some recordings, and the memory section: what an exported timeline is made from."""
    recordings = identified(recordings).recordings
    views = analysed_views(recordings, options)
    memory = memory_of(recordings, views, time_offsets(views))
    return views, memory.section if memory else None


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
