"""Which plain reading an input needs; what it is and its compression are told by the same means as for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from profkit.readers.nsys import exported
from profkit.readers.registry import format_of_input
from profkit.readers.remote import shown_name
from profkit.readers.sources import Input, Kind, open_input
from profkit.verification.events import Recording, Span, UnreadError
from profkit.verification.exports import read_export
from profkit.verification.snapshots import DeviceMemory, read_memory
from profkit.verification.timeline import is_step
from profkit.verification.traces import read_trace

__all__ = ["read_input"]

Keep = Callable[[Span], bool]


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
        format_ = format_of_input(opened)
        if format_.name not in _READERS:
            raise UnreadError(f"there is no second reader for {format_.what}", format_.role)
        return _READERS[format_.name](opened, path, keep)


def _export(opened: Input, path: str, keep: Keep) -> Recording:
    file = opened.file or Path(path)
    if opened.kind is Kind.SQLITE:
        return read_export(file, keep)
    with exported(file, shown_name(path)) as export:
        return read_export(export, keep)


_READERS: Final[Mapping[str, Callable[[Input, str, Keep], Recording | list[DeviceMemory]]]] = {
    "snapshot": lambda opened, path, keep: read_memory(opened.data, shown_name(path)),
    "kineto": lambda opened, path, keep: read_trace(opened.data, keep),
    "nsys": _export,
}
"""The second readers by the name of the format; a format without one is not verified, and that is said."""
