"""Files to `Trace` or `MemoryHistory`: what a file is, is told from its content, never from its name."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from profkit.access_keys import tokens_in
from profkit.errors import ReadError
from profkit.model import Finding, Severity, Trace
from profkit.readers.name_bounds import with_bounded_names
from profkit.readers.registry import originals_of
from profkit.readers.remote import is_remote, shown_name
from profkit.readers.sources import open_input

if TYPE_CHECKING:
    from profkit.model.memory_history import MemoryHistory

__all__ = ["read"]

_MOST_DEVICES = 256
_MOST_THREADS = 16_384
"""Each costs half a millisecond; the most that any of 180 recordings of ours and of others has is far below."""
_LOOKED_AT = 4 << 20
"""Bytes at each end of a file that are searched for access keys, in some 25 ms."""


def read(
    path: str | PurePath, *, name: str | None = None, expand_limit: int | None = None
) -> Trace | MemoryHistory:
    """Read one recording, whatever it is: nsys export or report, profiler trace, memory snapshot, ncu table.

    Args:
        path: A file, plain or compressed; ``-`` is standard input.
        name: The name to show instead of the last part of the path.
        expand_limit: The most bytes that the input may take in memory; see `sources.open_input`.

    Raises:
        ReadError: The file cannot be read as any of the formats; one line says why.
    """
    given = str(path)
    shown = name or ("stdin" if given == "-" else shown_name(given))
    with _collector_off(), open_input(given, expand_limit) as opened:
        try:
            made = opened.format.read(opened.content, shown)
            _refuse_impossible(made, shown)
            if isinstance(made, Trace):
                made = with_bounded_names(made)
        except (MemoryError, RecursionError):
            raise ReadError(
                shown, "it is too large or too deep for this machine", "Record fewer steps."
            ) from None
        found = (*opened.findings, *_stale(given), *_secrets(opened.content))
    return replace(made, findings=(*found, *made.findings)) if found else made


@contextmanager
def _collector_off() -> Iterator[None]:
    """Millions of new containers, none in a cycle, make the collector walk them again and again: most of the time."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _secrets(content: Any) -> tuple[Finding, ...]:
    """A finding when access keys stand at the beginning or the end of a file, where recorders put the environment."""
    if isinstance(content, Path):
        with content.open("rb") as opened:
            ends = [opened.read(_LOOKED_AT)]
            opened.seek(max(len(ends[0]), content.stat().st_size - _LOOKED_AT))
            ends.append(opened.read(_LOOKED_AT))
    else:
        ends = [content[:_LOOKED_AT], content[max(_LOOKED_AT, len(content) - _LOOKED_AT) :]]
    count = len({token for data in ends for token in tokens_in(data)})
    return (Finding("secrets", Severity.INFO, count=count),) if count else ()


def _stale(path: str) -> tuple[Finding, ...]:
    """A finding when the original beside an export is newer: the export is then of an earlier recording."""
    if path == "-" or is_remote(path):
        return ()
    for original in map(Path, originals_of(path)):
        with suppress(OSError):  # there is none
            if original.stat().st_mtime > Path(path).stat().st_mtime:
                params = {"export": Path(path).name, "report": original.name}
                return (Finding("export-stale", Severity.WARNING, params=params),)
    return ()


def _refuse_impossible(made: Trace | MemoryHistory, name: str) -> None:
    """Refuse a recording of more devices or threads than there can be: each costs time, whatever it ran."""
    threads = len(made.threads) if isinstance(made, Trace) else 0
    for count, most, what in (
        (len(made.devices), _MOST_DEVICES, "device"),
        (threads, _MOST_THREADS, "thread"),
    ):
        if count > most:
            raise ReadError(
                name, f"it names {count} {what}s, so its {what} numbers are damaged", "Record it again."
            )
