"""What one recording gives to a report of many: its own tables, and the few numbers that tables do not show."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from profkit.model import Trace
from profkit.model.memory_history import MemoryHistory
from profkit.model.result import Result
from profkit.ranks import FileOfRanks, file_of_ranks
from profkit.report.assembly import summarise_views
from profkit.report.verdict import Grounds
from profkit.report.views import Options, analysed_views
from profkit.roofline.kernel_table import KernelSums, kernel_sums
from profkit.timeline.view import Span, TraceView, step_device_ns

__all__ = ["FileSummary", "summarise_file"]

Column = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, eq=False)
class FileSummary:
    """The summary of one recording; it can be pickled, and is small beside the recording."""

    result: Result
    """The report of this recording alone, without advice and timeline unless they were asked for."""
    span: Span | None
    """From the first to the last event of a trace; None for a snapshot."""
    epoch_ns: int | None
    step_device_ns: Column
    """The length of every step, also of those that were left out."""
    damaged: NDArray[np.bool_]
    """Which steps lost records."""
    kinds: list[str]
    """The kind of every step."""
    left_out: NDArray[np.bool_]
    """Which steps the tables leave out."""
    grounds: Grounds
    ranks: FileOfRanks | None
    work_ns: list[int]
    """The summed time of the operations of each device."""
    kernels: list[KernelSums]


def summarise_file(
    recording: Trace | MemoryHistory,
    options: Options,
    *,
    left_out: NDArray[np.bool_] | None = None,
    whole: bool = False,
) -> FileSummary:
    """Summarise one recording: a pure function, to be run anywhere.

    Args:
        recording: What a reader returned.
        options: What the person said about it.
        left_out: Which steps are left out of the window, when the whole report has decided.
        whole: Whether to give advice and a timeline too.
    """
    views = analysed_views([recording], options, left_out)
    result = summarise_views([recording], views, options, whole=whole)
    view = views[0] if views else None
    return FileSummary(
        result=result,
        span=view.span if view else None,
        epoch_ns=view.trace.unix_epoch_ns if view else None,
        step_device_ns=step_device_ns(view) if view else np.empty(0, np.int64),
        damaged=view.steps.damaged if view else np.zeros(0, bool),
        kinds=view.steps.kinds if view else [],
        left_out=~view.kept_steps if view else np.zeros(0, bool),
        grounds=Grounds.of(views),
        ranks=file_of_ranks(view, 0, result.devices) if view else None,
        work_ns=_work_ns(view) if view else [],
        kernels=kernel_sums(view) if view else [],
    )


def _work_ns(view: TraceView) -> list[int]:
    operations = view.trace.operations
    length = (operations.end_ns - operations.start_ns).astype(np.int64)
    return [int(length[operations.device == d].sum()) for d in range(len(view.trace.devices))]
