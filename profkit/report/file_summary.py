"""What one recording gives to a report of many: its part of the tables, and what only the file itself can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.advice import advise
from profkit.memory import history_span
from profkit.model import Trace
from profkit.model.memory_history import MemoryHistory
from profkit.model.report import Method
from profkit.model.report_memory import Memory
from profkit.report.assembly import FileFacts, memory_of, method_of
from profkit.report.fit_rows import fit_rows
from profkit.report.identity import Identity, identity_of, joined_recording
from profkit.report.joining import Told
from profkit.report.part import Part
from profkit.report.views import Options, analysed_views
from profkit.simulation.exchanged import Exchanged, paces_ns
from profkit.timeline.lanes import timeline_row
from profkit.timeline.view import Span, step_device_ns

__all__ = ["FileSummary", "summarise_file", "tell"]

Column = NDArray[np.int64]
Recording = Trace | MemoryHistory


@dataclass(frozen=True, kw_only=True, eq=False)
class FileSummary:
    """The summary of one recording; it can be pickled, and is small beside the recording."""

    part: Part
    """Of a snapshot, that of no trace."""
    facts: FileFacts
    identity: Identity | None
    """What it is a recording of."""
    memory: Memory | None
    """In its own times."""
    history_span: Span | None
    """Of a snapshot: from its first to its last event, in Unix time."""
    method: Method
    step_device_ns: Column
    """The length of every step, also of those that were left out."""
    kinds: list[str]
    """The kind of every step."""
    damaged: NDArray[np.bool_]
    """Which steps lost records."""
    left_out: NDArray[np.bool_]
    """Which steps the tables leave out."""
    work_ns: list[int]
    """The summed time of the operations of each device."""
    own_ns: list[int]
    """The window of each device without its collectives: of ranks, the one with most sets the pace."""


def summarise_file(
    read: Sequence[Recording],
    options: Options,
    *,
    beside: Sequence[Recording] = (),
    gives: bool = False,
    left_out: NDArray[np.bool_] | None = None,
) -> FileSummary:
    """Summarise one recording: a pure function, to be run anywhere.

    Args:
        read: What a reader returned; of several files that follow each other on one device, all.
        options: What the person said about it.
        beside: Recordings of the same program that give it shapes or counters.
        gives: Whether it only gives such things to others: then it has no tables.
        left_out: Which steps are left out of the window, when the whole report has decided.
    """
    recording = joined_recording(read)
    views = [] if gives else analysed_views([recording, *beside], options, left_out)
    view = views[0] if views else None
    memory = memory_of([recording], views, [0] * len(views))
    return FileSummary(
        part=Part.together([Part.of(each) for each in views]),
        facts=FileFacts.of(recording, read),
        identity=identity_of(recording),
        memory=memory.section if memory else None,
        history_span=history_span(recording) if isinstance(recording, MemoryHistory) else None,
        method=method_of([recording], views, options),
        step_device_ns=step_device_ns(view) if view else np.empty(0, np.int64),
        kinds=view.steps.kinds if view else [],
        damaged=view.steps.damaged if view else np.zeros(0, bool),
        left_out=~view.kept_steps if view else np.zeros(0, bool),
        work_ns=paces_ns(view, of_ranks=False) if view else [],
        own_ns=paces_ns(view, of_ranks=True) if view else [],
    )


def tell(
    recordings: Sequence[Recording],
    options: Options,
    left_out: NDArray[np.bool_] | None,
    offset_ns: int,
    known: Told | None,
    exchanged: Exchanged,
) -> Told:
    """What one recording tells for the whole report.

    Args:
        recordings: The recording, and those that are laid beside it.
        options: What the person said about them.
        left_out: Which steps the report leaves out.
        offset_ns: What to add to its times to have report times.
        known: What is told of the memory; None to find that out.
        exchanged: The collectives of all recordings.

    Returns:
        Its memory, or its advice and its timeline, with its own device numbers.
    """
    views = analysed_views(recordings, options, left_out)
    offsets = [offset_ns] * len(views)
    if known is None:
        memory = memory_of(recordings, views, offsets)
        traces = [each for each in recordings if isinstance(each, Trace)]
        return Told(memory=memory.section if memory else None, fit=fit_rows(memory, traces, views))
    return Told(
        advice=advise([v for v in views if v.has_timeline], known.memory, known.fit, exchanged),
        timeline=timeline_row(views, offsets, [list(range(len(v.trace.devices))) for v in views]),
    )
