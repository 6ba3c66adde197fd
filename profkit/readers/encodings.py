"""Text in the encodings that tools write JSON in, as UTF-8."""

from __future__ import annotations

import json
from typing import Any, Final

__all__ = ["as_utf8", "is_mixed"]

_BYTE_ORDER_MARKS: Final = (b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf", b"\x00\x00\xfe\xff")
_STARTS: Final = (b"{", b"[")
_SPACES: Final = (b" ", b"\t", b"\r", b"\n")
_TAIL: Final = 64
_ZEROS: Final = {"utf-32": b"\x00\x00\x00", "utf-16": b"\x00"}
"""Between two characters of ASCII."""


def as_utf8(data: Any) -> Any:
    """JSON that Windows tools re-encoded as UTF-16 or UTF-32, and a byte order mark, as plain UTF-8."""
    encoding = _encoding(bytes(data[:4]))
    if encoding == "utf-8":
        return data
    return data[3:] if encoding == "utf-8-sig" else bytes(data).decode(encoding, "replace").encode()


def is_mixed(data: Any) -> bool:
    """Whether JSON ends in another encoding than it begins in, as where one tool appends to another's file."""
    if not as_utf8(bytes(data[:_TAIL])).lstrip().startswith(_STARTS):
        return False
    tail = bytes(data[-_TAIL:]).strip(b"\x00")
    ending = next((encoding for encoding, zeros in _ZEROS.items() if zeros in tail), "utf-8")
    return not _encoding(bytes(data[:4])).startswith(ending)


def _encoding(head: bytes) -> str:
    """By the first four bytes of text: a byte order mark, or the zeros around its first characters."""
    marked = head.startswith(_BYTE_ORDER_MARKS)
    return (
        json.detect_encoding(head)
        if marked or head.lstrip(b"\x00").startswith((*_STARTS, *_SPACES))
        else "utf-8"
    )
