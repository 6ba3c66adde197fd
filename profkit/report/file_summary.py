"""What one recording gives to a report of many: its part of the tables, and what only the file itself can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.advice import advise
from profkit.memory import memory_row
from profkit.model import Trace
from profkit.model.findings import Fact
from profkit.model.memory_history import MemoryHistory
from profkit.model.report import InputRow, Method
from profkit.model.report_memory import Memory
from profkit.model.report_numerics import Numerics
from profkit.model.report_time import Timeline
from profkit.model.report_verdict import AdviceRow, Health
from profkit.report.assembly import doubts_of, health_of, input_row, method_of, undecided_of
from profkit.report.identity import Identity, identity_of
from profkit.report.joining import Joined
from profkit.report.numerics import numerics_rows
from profkit.report.part import Part
from profkit.report.views import Options, analysed_views
from profkit.timeline.lanes import timeline_row
from profkit.timeline.view import TraceView, step_device_ns

__all__ = ["FileSummary", "summarise_file"]

Column = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class FileSummary:
    """The summary of one recording; it can be pickled, and is small beside the recording."""

    part: Part
    """Of a snapshot, that of no trace."""
    sources: Sequence[InputRow]
    """One a file that it was read from."""
    identity: Identity | None
    """What it is a recording of."""
    health: Health
    undecided: Fact | None
    doubts: Sequence[Fact]
    """What else is to be said where nothing is decided."""
    memory: Memory | None
    """Of a trace, in its own times."""
    advice: Sequence[AdviceRow]
    """Empty unless it was asked for."""
    numerics: Sequence[Numerics]
    timeline: Timeline | None
    """In the trace's own times and device numbers; None unless it was asked for."""
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


def summarise_file(
    recording: Trace | MemoryHistory,
    options: Options,
    *,
    beside: Sequence[Trace | MemoryHistory] = (),
    gives: bool = False,
    left_out: NDArray[np.bool_] | None = None,
    whole: bool = False,
) -> FileSummary:
    """Summarise one recording: a pure function, to be run anywhere.

    Args:
        recording: What a reader returned.
        options: What the person said about it.
        beside: Recordings of the same program that give it shapes or counters.
        gives: Whether it only gives such things to others: then it has no tables.
        left_out: Which steps are left out of the window, when the whole report has decided.
        whole: Whether to give advice and a timeline too.
    """
    views = [] if gives else analysed_views([recording, *beside], options, left_out)
    view = views[0] if views else None
    joined = Joined.of(Part.together([Part.of(each) for each in views]))
    histories = [recording] if isinstance(recording, MemoryHistory) else []
    memory = memory_row(histories, views, [0] * len(views))
    undecided = undecided_of([recording], views)
    return FileSummary(
        part=joined.part,
        sources=[input_row(recording)],
        identity=identity_of(recording),
        health=health_of([recording], views, joined.part, memory, joined.ranks.findings),
        undecided=undecided,
        doubts=doubts_of(undecided, views),
        memory=memory,
        advice=advise([v for v in views if v.has_timeline], memory) if whole else [],
        numerics=numerics_rows([recording]),
        timeline=timeline_row(views, [0], joined.device_ids) if whole else None,
        method=method_of([recording], views, options),
        step_device_ns=step_device_ns(view) if view else np.empty(0, np.int64),
        kinds=view.steps.kinds if view else [],
        damaged=view.steps.damaged if view else np.zeros(0, bool),
        left_out=~view.kept_steps if view else np.zeros(0, bool),
        work_ns=_work_ns(view) if view else [],
    )


def _work_ns(view: TraceView) -> list[int]:
    operations = view.trace.operations
    length = (operations.end_ns - operations.start_ns).astype(np.int64)
    return [int(length[operations.device == d].sum()) for d in range(len(view.trace.devices))]
