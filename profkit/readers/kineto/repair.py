"""Mends JSON that trace writers are known to break; each kind of damage has a name and is counted.

Whether a byte lies inside a string is told from the number of quotes before it, for all of a text at once.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
from numpy.typing import NDArray

__all__ = ["escape_bare_quotes", "repair"]

_ESCAPE = re.compile(
    rb'\\(?:["\\/bfnrt]|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u(?![dD][89a-fA-F])[0-9a-fA-F]{4})'
    rb"|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
    rb"|(\\)"
)
_BARE_NUMBER = re.compile(
    rb"[-+]?(?:\b(?:infinity|inf|nan)\b(?:\(\w*\))?|1\.#(?:inf|ind|qnan|snan)\w*)", re.IGNORECASE
)
_NAME = re.compile(
    r'("name"\s*:\s*")((?:(?!"name"\s*:).)*?)("\s*,\s*"(?:ph|cat|pid|tid|ts|dur|args|id|s|bp)"\s*:)',
    re.DOTALL,
)
_BARE_QUOTE = re.compile(r'(?<!\\)"')
_BARE_SIGNS = (b"inf", b"nan", b"1.#")
_QUOTE, _BACKSLASH, _SPACE, _COMMA = 0x22, 0x5C, 0x20, 0x2C
_CLOSING = (0x5D, 0x7D)
_WHITE = (0x09, 0x0A, 0x0D)


def repair(text: bytes) -> tuple[bytes, Counter[str]]:
    """Mend ``text``, which begins outside of a string; also how often each kind of damage was met."""
    found: Counter[str] = Counter()
    text = _as_utf8(text, found)
    if b"\\" in text:
        text = _mend_escapes(text, found)
    quotes = _quotes(text)
    text = _mend_controls(text, quotes, found)
    edits = [(start, end, b"null") for start, end in _bare_numbers(text, quotes)]
    found["bare-numbers"] += len(edits)
    commas = _trailing_commas(text, quotes)
    found["trailing-commas"] += len(commas)
    edits += [(comma, comma + 1, b"") for comma in commas]
    return _edited(text, sorted(edits)), +found


def escape_bare_quotes(event: str) -> str:
    """An event whose name holds quotes that its writer did not escape, with them escaped."""
    return _NAME.sub(lambda m: m[1] + _BARE_QUOTE.sub(r"\\\g<0>", m[2]) + m[3], event, count=1)


def _as_utf8(text: bytes, found: Counter[str]) -> bytes:
    try:
        text.decode()
    except UnicodeDecodeError:
        mended = text.decode("utf-8", "replace")
        found["invalid-utf8"] += max(1, mended.count("\ufffd") - text.count("\ufffd".encode()))
        return mended.encode()
    return text


def _mend_escapes(text: bytes, found: Counter[str]) -> bytes:
    def mended(match: re.Match[bytes]) -> bytes:
        if match[1]:
            found["lone-surrogates"] += 1
            return rb"\ufffd"
        if match[2]:
            found["invalid-escapes"] += 1
            return rb"\\"
        return match[0]

    return _ESCAPE.sub(mended, text)


def _quotes(text: bytes) -> NDArray[np.int64]:
    """Positions of the quotes that open or close a string."""
    array = np.frombuffer(text, np.uint8)
    quotes = np.flatnonzero(array == _QUOTE)
    escaped = [
        row
        for row in np.flatnonzero(array[np.maximum(quotes - 1, 0)] == _BACKSLASH).tolist()
        if _backslashes_before(text, int(quotes[row])) % 2
    ]
    return np.delete(quotes, escaped)


def _backslashes_before(text: bytes, position: int) -> int:
    start = position
    while start > 0 and text[start - 1] == _BACKSLASH:
        start -= 1
    return position - start


def _mend_controls(text: bytes, quotes: NDArray[np.int64], found: Counter[str]) -> bytes:
    array = np.frombuffer(text, np.uint8)
    controls = np.flatnonzero(array < _SPACE)
    inside = np.searchsorted(quotes, controls) % 2 == 1
    wrong = controls[inside | ~np.isin(array[controls], _WHITE)]
    if not len(wrong):
        return text
    found["control-characters"] += len(wrong)
    mended = array.copy()
    mended[wrong] = _SPACE
    return mended.tobytes()


def _bare_numbers(text: bytes, quotes: NDArray[np.int64]) -> list[tuple[int, int]]:
    """The spans of words such as inf and nan that lie outside of strings."""
    lowered = text.lower()
    starts: set[int] = set()
    for sign in _BARE_SIGNS:
        at = lowered.find(sign)
        while at >= 0:
            starts.add(at - 1 if lowered[at - 1 : at] in (b"-", b"+") else at)
            at = lowered.find(sign, at + 1)
    spans = [match.span() for at in sorted(starts) if (match := _BARE_NUMBER.match(text, at))]
    outside = np.searchsorted(quotes, [start for start, _ in spans]) % 2 == 0
    return [span for span, ok in zip(spans, outside.tolist(), strict=True) if ok]


def _trailing_commas(text: bytes, quotes: NDArray[np.int64]) -> list[int]:
    """Commas outside of strings that only white space parts from a closing bracket."""
    array = np.frombuffer(text, np.uint8)
    visible = np.flatnonzero(array > _SPACE)
    shown = array[visible]
    commas = visible[:-1][(shown[:-1] == _COMMA) & np.isin(shown[1:], _CLOSING)]
    found: list[int] = commas[np.searchsorted(quotes, commas) % 2 == 0].tolist()
    return found


def _edited(text: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    parts: list[bytes] = []
    done = 0
    for start, end, new in edits:
        parts += (text[done:start], new)
        done = end
    return b"".join((*parts, text[done:])) if edits else text
