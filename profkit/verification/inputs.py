"""Which plain reading an input needs; compression is taken off by the same means as for the report."""

from __future__ import annotations

import re
from pathlib import Path

from profkit.readers.nsys import exported
from profkit.readers.remote import shown_name
from profkit.readers.sources import Input, Kind, open_input
from profkit.verification.events import Recording, Span, UnreadError
from profkit.verification.exports import read_export
from profkit.verification.snapshots import DeviceMemory, read_memory
from profkit.verification.timeline import is_step
from profkit.verification.traces import read_trace

__all__ = ["read_input"]

_SNAPSHOT = re.compile(rb'\s*(?:\{\s*"(?:segments|device_traces)"|\[\s*\{\s*"(?:device|address|total_size)")')


def read_input(path: str, step_name: str | None) -> Recording | list[DeviceMemory]:
    """One input, read anew by plain means.

    Args:
        path: The file as the user gave it.
        step_name: The name of the ranges that are steps, where the user gave one.

    Raises:
        UnreadError: It cannot be read a second time, or is damaged in a way that plain means do not mend.
        ReadError: It is no longer there, or no longer what it was.
    """
    if path == "-":
        raise UnreadError("standard input cannot be read twice")

    def keep(span: Span) -> bool:
        return is_step(span, step_name)

    with open_input(path) as opened:
        if _is_snapshot(opened):
            return read_memory(opened.data, shown_name(path))
        if opened.kind is Kind.JSON:
            return read_trace(opened.data, keep)
        file = opened.file or Path(path)
        if opened.kind is Kind.SQLITE:
            return read_export(file, keep)
        with exported(file, shown_name(path)) as export:
            return read_export(export, keep)


def _is_snapshot(opened: Input) -> bool:
    return opened.kind is Kind.PICKLE or (opened.kind is Kind.JSON and bool(_SNAPSHOT.match(opened.data)))
