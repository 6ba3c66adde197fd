"""Rows that nsys lost while it imported a recording: an importer drops calls of a CUDA that is newer than itself."""

from __future__ import annotations

import re
from typing import Final

from profkit.model import Finding, OperationKind, Severity, Trace
from profkit.readers.registry import format_named
from profkit.timeline.launches import launches_without_kernel, unstarted_launches
from profkit.timeline.view import TraceView

__all__ = ["importer_finding"]

_LOST: Final = 0.05
"""A recording that lost so much of its launches' kernels is damaged."""

_YEAR_OF_CUDA: Final = {12: 2022, 13: 2025}
"""When a CUDA came out: 12.0 in December 2022, 13.0 in August 2025 (the dates of NVIDIA's release notes). An nsys has its
year in its version, and one of an earlier year is surely older; which release of the same year is, is not told."""


def importer_finding(view: TraceView) -> Finding | None:
    """That an export lacks rows, and whether its nsys is older than the CUDA that it recorded."""
    source, is_older = view.trace.source, _is_older(view.trace)
    known = format_named(source.format)
    if not (known and known.imported and _lacks_rows(view, is_older=is_older)):
        return None
    params = {"version": source.tool_version if is_older else None, "cuda": source.facts.get("cuda")}
    severity = Severity.WARNING if len(view.trace.operations) else Severity.ERROR
    return Finding("importer-lost-rows", severity, params=params)


def _lacks_rows(view: TraceView, *, is_older: bool) -> bool:
    """Whether rows of CUDA are missing; that all are is only likely where the importer is known to be older."""
    trace = view.trace
    kernels = int((trace.operations.kind == OperationKind.KERNEL).sum())
    unstarted = int(unstarted_launches(trace, view.launches).sum())
    lost = launches_without_kernel(trace, view.launches) - unstarted
    if lost > _LOST * (lost + kernels) or (view.steps.damaged.any() and not unstarted):
        return _may_be_older(trace)
    return is_older and not len(trace.operations) and trace.source.facts.get("gpus", "0") != "0"


def _is_older(trace: Trace) -> bool:
    """Whether the export was made by an nsys of a year before that of the recorded CUDA."""
    release, year = _year_of_nsys(trace), _year_of_cuda(trace)
    return release is not None and year is not None and release < year


def _may_be_older(trace: Trace) -> bool:
    """Whether no year speaks against it: an nsys of a later year than its CUDA, or than any known one, knows its calls."""
    release, year = _year_of_nsys(trace), _year_of_cuda(trace)
    return release is None or release <= (year or max(_YEAR_OF_CUDA.values()))


def _year_of_nsys(trace: Trace) -> int | None:
    release = re.match(r"(\d{4})\.", trace.source.tool_version or "")
    return int(release[1]) if release else None


def _year_of_cuda(trace: Trace) -> int | None:
    major = trace.source.facts.get("cuda", "").partition(".")[0]
    return _YEAR_OF_CUDA.get(int(major)) if major.isdigit() else None
