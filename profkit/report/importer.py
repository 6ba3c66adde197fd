"""Rows that nsys lost while it imported a recording: an importer drops calls of a CUDA that is newer than itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from profkit.model import Finding, OperationKind, Severity, Trace
from profkit.readers.registry import format_named
from profkit.timeline.launches import launches_without_kernel
from profkit.timeline.view import TraceView

__all__ = ["importer_findings"]

_LOST: Final = 0.05
"""A recording that lost so much of its launches' kernels is damaged."""

_FIRST_WITH_CUDA: Final = {12: (2022, 4), 13: (2025, 3)}
"""The release of Nsight Systems that the release notes of a CUDA toolkit list beside it: 12.0 has 2022.4.2, 13.0
has 2025.3.2."""


def importer_findings(views: Sequence[TraceView]) -> list[Finding]:
    """That an export lacks rows, and whether its nsys is older than the CUDA that it recorded."""
    for view in views:
        source = view.trace.source
        known, needed = format_named(source.format), _needed(view.trace)
        if not (known and known.imported and _lacks_rows(view, is_older=needed is not None)):
            continue
        params = {
            "version": source.tool_version,
            "cuda": source.facts.get("cuda"),
            "needed": ".".join(map(str, needed)) if needed else None,
        }
        severity = Severity.WARNING if len(view.trace.operations) else Severity.ERROR
        return [Finding("importer-lost-rows", severity, params=params)]
    return []


def _lacks_rows(view: TraceView, *, is_older: bool) -> bool:
    """Whether rows of CUDA are missing; that all are is only likely where the importer is known to be older."""
    trace = view.trace
    kernels = int((trace.operations.kind == OperationKind.KERNEL).sum())
    lost = launches_without_kernel(trace, view.launches)
    if lost > _LOST * (lost + kernels) or view.steps.damaged.any():
        return True
    return is_older and not len(trace.operations) and trace.source.facts.get("gpus", "0") != "0"


def _needed(trace: Trace) -> tuple[int, int] | None:
    """The first release that knows the recorded CUDA, where the export was made by an older one."""
    release = re.match(r"(\d{4})\.(\d+)", trace.source.tool_version or "")
    major = trace.source.facts.get("cuda", "").partition(".")[0]
    needed = _FIRST_WITH_CUDA.get(int(major)) if major.isdigit() else None
    if release is None or needed is None or (int(release[1]), int(release[2])) >= needed:
        return None
    return needed
