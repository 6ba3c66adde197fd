"""A bound on how many names a recording's operations have: each costs a row of several tables, whatever it ran."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from profkit.model import Finding, Severity, Trace

__all__ = ["MOST_NAMES", "OTHER_NAME", "with_bounded_names"]

MOST_NAMES: Final = 10_000
"""Distinct names of operations that are told apart: the most that one of 56 public traces has is 138."""

OTHER_NAME: Final = "(other names)"


def with_bounded_names(trace: Trace) -> Trace:
    """The trace, or one whose operations of the least time share `OTHER_NAME`, with a finding that says so."""
    operations = trace.operations
    names, places = np.unique(operations.name, return_inverse=True)
    if len(names) <= MOST_NAMES:
        return trace
    time_ns = np.bincount(places, weights=operations.end_ns - operations.start_ns)
    other = np.argsort(-time_ns, kind="stable")[MOST_NAMES:]
    names[other] = len(trace.strings)
    finding = Finding("names-put-together", Severity.WARNING, params={"count": len(other)})
    return replace(
        trace,
        strings=[*trace.strings, OTHER_NAME],
        operations=replace(operations, name=names[places.reshape(-1)].astype(np.int32)),
        findings=(*trace.findings, finding),
    )
