"""Which plain reading an input needs; what it is and its compression are told by the same means as for the report."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from profkit.readers.nsys import exported
from profkit.readers.remote import shown_name
from profkit.readers.sources import Input, open_input
from profkit.verification.events import Recording, Span, UnreadError
from profkit.verification.exports import read_export
from profkit.verification.host import wanted
from profkit.verification.snapshots import DeviceMemory, read_memory
from profkit.verification.step_names import is_step
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
        return wanted(span) or is_step(span, step_name)

    with open_input(path) as opened:
        if opened.format.name not in _READERS:
            raise UnreadError(f"there is no second reader for {opened.format.what}", opened.format.role)
        return _READERS[opened.format.name](opened, shown_name(path), keep)


def _export(opened: Input, name: str, keep: Keep) -> Recording:
    if not opened.format.exported_as:
        return read_export(opened.content, keep)
    with exported(opened.content, name) as export:
        return read_export(export, keep)


_READERS: Final[Mapping[str, Callable[[Input, str, Keep], Recording | list[DeviceMemory]]]] = {
    "snapshot": lambda opened, name, keep: read_memory(opened.content, name),
    "kineto": lambda opened, name, keep: read_trace(opened.content, keep),
    "nsys": _export,
}
"""The second readers by the name of the format; a format without one is not verified, and that is said."""
