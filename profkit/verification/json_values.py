"""The values of a JSON list one by one, by Python's own decoder, however long the list is.

A damaged value is mended by hand where its writer is known to break it in that way (Windows paths, bare ``inf``,
control characters); the others are found all the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from profkit.verification.events import UnreadError

__all__ = ["events_of"]

_WHITE = re.compile(r"[ \t\r\n]*")
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_EVENTS = re.compile(r'"traceEvents"\s*:\s*\[')
_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_CONTROL = re.compile(r"[\x00-\x1f]")
_BACKSLASH = re.compile(r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})|(\\)')
_BARE = re.compile(
    r'("(?:[^"\\]|\\.)*")|[-+]?(?:infinity|inf|nan)\b(?:\(\w*\))?|1\.#\w+|(,)(?=\s*[\]}])',
    re.DOTALL | re.IGNORECASE,
)
_decoder = json.JSONDecoder(parse_float=Decimal, parse_constant=lambda _: None)


def events_of(data: bytes | bytearray | memoryview) -> Iterator[Any]:
    """The entries of ``traceEvents``, or of a bare list; times are ints, exact decimals, or what else stood there.

    One byte is one character while the list is cut, so that a text of 100 MB takes 100 MB; the texts of each
    entry are UTF-8 again.

    Raises:
        UnreadError: There is no such list, or a value that cannot be mended.
    """
    text = str(data, "latin-1")
    at = _start(text)
    while True:
        match = _BETWEEN.match(text, at)
        at = match.end() if match else at
        if at >= len(text) or text[at] == "]":
            return
        try:
            value, after = _decoder.raw_decode(text, at)
            if not text.isascii() and not text[at:after].isascii():
                value = _decoder.decode(_utf8(text[at:after]))
        except (ValueError, RecursionError):
            end = _end(text, at)
            if end is None and text.count('"ph"', at) > 1:
                raise UnreadError("it is damaged before its end") from None
            if end is None:
                return  # the file was cut off inside this value
            after, value = end, _mended(_utf8(text[at:end]))
        yield value
        at = after


def _start(text: str) -> int:
    """Where the first entry of the list of events begins."""
    match = _WHITE.match(text)
    at = match.end() if match else 0
    if text[at : at + 1] == "[":
        return at + 1
    depth = 0
    for token in _TOKEN.finditer(text, at):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
        elif depth == 1 and token[0] == '"traceEvents"':
            found = _EVENTS.match(text, token.start())
            if found:
                return found.end()
    found = _EVENTS.search(text)
    if found is None:
        raise UnreadError("it has no list of events")
    return found.end()


def _end(text: str, at: int) -> int | None:
    """Where the value that begins at ``at`` ends, by its brackets; None where the text ends before."""
    depth = 0
    for token in _TOKEN.finditer(text, at):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(token[0], 0)
        if depth == 0:
            return token.end()
        if depth < 0:
            return token.start()
    return None


def _mended(text: str) -> Any:
    plain = _BACKSLASH.sub(lambda m: "\\\\" if m[1] else m[0], _CONTROL.sub(" ", text))
    plain = _BARE.sub(lambda m: m[1] or ("" if m[2] else "null"), plain)
    try:
        return _decoder.decode(plain)
    except (ValueError, RecursionError):
        raise UnreadError("a part of it is not JSON") from None


def _utf8(text: str) -> str:
    return text.encode("latin-1").decode("utf-8", "replace")
