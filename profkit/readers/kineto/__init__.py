"""torch.profiler's Chrome JSON (Kineto), of torch 1.8 to today, NVIDIA, AMD and CPU only."""

from __future__ import annotations

import re

from profkit.errors import ReadError
from profkit.model import Finding, Process, Severity, Source, Trace
from profkit.readers.kineto import header
from profkit.readers.kineto.assembly import Assembly
from profkit.readers.kineto.columns import TraceColumns
from profkit.readers.kineto.text import TraceText

__all__ = ["read_kineto"]


def read_kineto(data: bytes | bytearray | memoryview, name: str) -> Trace:
    """Read a Kineto trace, an object or a bare list of events, mending what can be mended.

    Args:
        data: The uncompressed text.
        name: The base name of the file, for messages; a rank may be read from it.

    Raises:
        ReadError: It is no JSON, or no trace of torch.profiler, or has no events.
    """
    text = TraceText(data)
    if not text.is_json:
        raise ReadError(name, "it is plain text, or JSON that is damaged at its start", header.WANTED)
    if not text.has_events:
        raise header.foreign(text.header, name)
    columns = TraceColumns()
    for events in text.pieces():
        columns.add(events)
    _refuse(text, columns, name)
    made = Assembly(columns)
    base = made.unix_epoch_ns if made.unix_epoch_ns is not None else header.base_ns(text.header)
    rank = header.rank(text.header, name)
    texts = columns.strings.texts
    operations, calls, ranges = made.operations(), made.calls(), made.ranges()
    return Trace(
        Source(
            name,
            "kineto",
            "torch.profiler",
            header.torch_version(texts),
            rank,
            header.facts(text.header),
        ),
        strings=texts,
        processes=[Process(each.pid, rank if each.rank is None else each.rank) for each in made.processes],
        threads=made.threads,
        devices=header.devices(text.header, made.ordinals),
        operations=operations,
        calls=calls,
        ranges=ranges,
        syncs=made.syncs(),
        collectives=made.collectives(),
        messages=made.messages(),
        memory=made.memory(),
        unix_epoch_ns=base,
        findings=_findings(text, columns, empty=not (len(operations) or len(calls) or len(ranges))),
        dropped=dict(+(made.dropped + text.dropped)),
    )


_ACCELERATOR = re.compile(r"(mtia|hpu|npu|mlu|musa|glow|xla|tpu|privateuse1)_", re.IGNORECASE)
"""How categories of devices begin that are neither NVIDIA's, AMD's nor Intel's (Kineto's ActivityType.cpp, and plugins)."""


def _refuse(text: TraceText, columns: TraceColumns, name: str) -> None:
    """Raise for lists of other things than events of torch.profiler."""
    if not columns.events:
        junk, broken = text.dropped["not_an_object"], text.dropped["unreadable"]
        what = "it has no trace events"
        if junk:
            what = f"its list holds {junk} values that are no events"
        elif broken or text.truncated:
            what = "it is damaged before the end of its first event"
        raise ReadError(name, what, header.WANTED)
    known = any((columns.operations, columns.calls, columns.ranges, columns.memory, columns.syncs))
    foreign = columns.begin_end + columns.unknown_categories.total()
    if not known and foreign:
        which = ", ".join(sorted(columns.unknown_categories)[:3])
        what = (
            f"categories {which}"
            if which
            else "begin and end events without categories, as IBM AIU traces have"
        )
        raise ReadError(name, f"it is a trace of another program: {what}", header.WANTED)


def _findings(text: TraceText, columns: TraceColumns, *, empty: bool) -> list[Finding]:
    made = [Finding(kind, Severity.WARNING, count=count) for kind, count in sorted(text.repairs.items())]
    if text.truncated:
        params = {"events": columns.events, "ignored_bytes": text.ignored_bytes}
        made.append(Finding("truncated", Severity.WARNING, count=max(1, text.ignored_bytes), params=params))
    unreadable = text.dropped["unreadable"]
    if unreadable:
        made.append(Finding("unreadable-events", Severity.WARNING, count=unreadable))
    if not (text.is_valid or made):
        made.append(Finding("invalid-header", Severity.WARNING))
    if empty:
        made.append(Finding("no-events", Severity.ERROR))
    unknown = columns.unknown_categories
    if unknown:
        listed = [f"{category} ({count})" for category, count in unknown.most_common(3)]
        made.append(
            Finding("unknown-categories", Severity.INFO, count=unknown.total(), params={"categories": listed})
        )
        others = sorted({found[1].upper() for found in map(_ACCELERATOR.match, unknown) if found})
        if others:
            made.append(Finding("other-accelerator", Severity.WARNING, params={"accelerators": others}))
    return made
