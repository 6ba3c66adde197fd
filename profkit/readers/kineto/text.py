"""The text of a trace to lists of events, a bounded piece at a time, however damaged it is.

The fast way: one pass skips over the file and finds its top-level values; the array of events is then decoded
in pieces of some megabytes, cut between two events. A ``}``, a comma, a ``{``, a quote and a letter follow each
other only outside of strings (inside one the quote would end it, and no letter may follow), so a cut never
splits a text; a cut inside a nested list leaves brackets open, is noticed, and the piece grows.

The slow way, for pieces that do not parse: mend what writers are known to break, then save event by event.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import msgspec

from profkit.readers.kineto.repair import repair
from profkit.readers.kineto.rescue import Patience, rescue

__all__ = ["EXACT_US", "Event", "Header", "Scalar", "TraceText"]

Scalar = int | float | str | msgspec.Raw | None

Header = dict[str, msgspec.Raw]
"""The top-level values of a file, undecoded."""

EXACT_US = 2.0**43
"""Below it, neighbouring floats of microseconds are less than a nanosecond apart."""

_PIECE = 8 << 20
_MOST_COMMAS = 4_000_000
"""Of one piece: a real one has a twentieth of it, and each may part two events of a hundred bytes in memory."""
_CUT = re.compile(rb'\}\s*(,)\s*\{\s*"\w')
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*(\[)')
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_NULL = msgspec.Raw(b"null")


class Event(msgspec.Struct, gc=False):
    """One entry of ``traceEvents``; times are microseconds as written."""

    ph: str = ""
    cat: str | None = None
    name: str | None = None
    pid: int | float | str | None = None
    tid: int | float | str | None = None
    ts: int | float | str | None = None
    dur: int | float | str | None = None
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _ExactEvent(Event, gc=False):
    """The same with times as text, for those that a float would round."""

    ts: msgspec.Raw = _NULL  # type: ignore[assignment]
    dur: msgspec.Raw = _NULL  # type: ignore[assignment]


class _LooseEvent(msgspec.Struct, gc=False):
    ph: msgspec.Raw = _NULL
    cat: msgspec.Raw = _NULL
    name: msgspec.Raw = _NULL
    pid: msgspec.Raw = _NULL
    tid: msgspec.Raw = _NULL
    ts: msgspec.Raw = _NULL
    dur: msgspec.Raw = _NULL
    args: msgspec.Raw = msgspec.Raw(b"{}")


_header = msgspec.json.Decoder(Header)
_raw = msgspec.json.Decoder(msgspec.Raw)
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_events = msgspec.json.Decoder(list[Event])
_exact_events = msgspec.json.Decoder(list[_ExactEvent])
_loose_event = msgspec.json.Decoder(_LooseEvent)


class TraceText:
    """The text of one trace. What its attributes say is whole once `pieces` has been iterated."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.header: Header = {}
        self.repairs: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self.truncated = False
        self.ignored_bytes = 0
        self.has_events = True
        """Whether there is a list of events; otherwise `header` says what else the file is."""
        self.is_json = True
        self.is_valid = True
        self._ended = True
        self._tail = b""
        self._patience = Patience()
        self._body = self._find(memoryview(data))

    def _find(self, data: memoryview) -> memoryview:
        """The inside of the list of events; to the end of the file where that does not parse."""
        start = re.compile(rb"\s*").match(data).end()  # type: ignore[union-attr]  # matches always
        is_list = bytes(data[start : start + 1]) == b"["
        try:
            if is_list:
                return memoryview(_raw.decode(data))[1:-1]
            self.header = _header.decode(data)
            events = memoryview(self.header.get("traceEvents", b""))
            self.has_events = bytes(events[:1]) == b"["
            return events[1:-1]
        except _BROKEN:
            self.is_valid = self._ended = False
        if is_list:
            self.is_json = re.compile(rb"\[\s*(?:[\[{\]]|$)").match(data, start) is not None
            return data[start + 1 :]
        match = _EVENTS.search(data)
        self._read_header(bytes(data[start + 1 : match.start()]) if match else bytes(data[start + 1 :]))
        self.has_events = match is not None
        self.is_json = match is not None or bool(self.header)
        return data[match.end() :] if match else data[:0]

    def _read_header(self, inside: bytes) -> bool:
        """Add the values of a part of the top level of a file that does not parse; whether they could be read."""
        mended, found = repair(b"{" + inside.strip(b" \t\r\n,}") + b"}")
        for end in (b"", b"}", b"]}"):  # the part may have been stripped of brackets of its own
            try:
                self.header |= _header.decode(mended[:-1] + end + b"}")
            except _BROKEN:
                continue
            self.repairs += found
            return True
        return False

    def pieces(self) -> Iterator[list[Event]]:
        """The events, some megabytes of text at a time."""
        start = 0
        while start < len(self._body):
            events, start = self._piece(start)
            yield events
            if self._ended and not self.is_valid:
                self.truncated = not self._read_header(self._tail + bytes(self._body[start:]))
                return
        if not self._ended:
            self.truncated = True

    def _piece(self, start: int) -> tuple[list[Event], int]:
        """The events from ``start`` on, and where the next piece starts.

        Raises:
            MemoryError: It cannot be cut, and holds more values than any recording.
        """
        body, size = self._body, _PIECE
        while True:
            cut = _CUT.search(body, start + size) if start + size < len(body) else None
            end = cut.start(1) if cut else len(body)
            text = b"".join((b"[", body[start:end], b"]"))
            if text.count(b",") > _MOST_COMMAS:
                raise MemoryError
            try:
                return self._decoded(text), end + 1
            except _BROKEN:
                mended, found = repair(text[:-1])
                mended += b"]"
            try:
                if found:
                    events = self._decoded(mended)
                    self.repairs += found
                    return events, end + 1
            except _BROKEN:
                pass
            if not self.is_valid or end == len(body):
                return self._rescued(text, mended, found, last=end == len(body)), end + 1
            size *= 2

    def _decoded(self, text: bytes) -> list[Event]:
        try:
            events = _events.decode(text)
        except msgspec.ValidationError:
            return [event for raw in _raws.decode(text) if (event := self._loose(raw)) is not None]
        if any(event.ts.__class__ is float and not -EXACT_US < event.ts < EXACT_US for event in events):
            events = list(_exact_events.decode(text))
        return events

    def _loose(self, raw: msgspec.Raw) -> Event | None:
        """An event some of whose values are of a wrong type: those are unknown."""
        try:
            loose = _loose_event.decode(raw)
        except msgspec.ValidationError:
            self.dropped["not_an_object"] += 1
            return None
        return Event(
            ph=str(_value(loose.ph) or ""),
            cat=_text(loose.cat),
            name=_text(loose.name),
            pid=_number_or_text(loose.pid),
            tid=_number_or_text(loose.tid),
            ts=loose.ts,  # type: ignore[arg-type]  # as in _ExactEvent
            dur=loose.dur,  # type: ignore[arg-type]
            args=loose.args,
        )

    def _rescued(self, text: bytes, mended: bytes, found: Counter[str], *, last: bool) -> list[Event]:
        """The events of a piece that does not parse, once mended as a whole, else each for itself."""
        saved = rescue(mended[1:-1].decode(), self._patience, last=last)
        saved.repairs += found
        if saved.damage:
            alone = rescue(text[1:-1].decode("utf-8", "replace"), self._patience, last=last)
            saved = min(saved, alone, key=lambda rescued: (-len(rescued.events), rescued.repairs.total()))
        self.repairs += saved.repairs
        self.dropped["unreadable"] += saved.unreadable
        self.ignored_bytes += saved.ignored
        if saved.tail is not None:
            self._ended, self._tail = True, saved.tail
        return self._one_by_one(saved.events)

    def _one_by_one(self, whole: list[str]) -> list[Event]:
        try:
            return self._decoded(f"[{','.join(whole)}]".encode())
        except _BROKEN:
            events: list[Event] = []
        for text in whole:
            try:
                events += self._decoded(f"[{text}]".encode())
            except _BROKEN:
                self.dropped["unreadable"] += 1
        return events


def _value(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw)
    except _BROKEN:
        return None


def _text(raw: msgspec.Raw) -> str | None:
    value = _value(raw)
    return None if value is None else str(value)


def _number_or_text(raw: msgspec.Raw) -> int | float | str | None:
    value = _value(raw)
    return value if isinstance(value, int | float | str) else None
