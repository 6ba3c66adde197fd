"""JSON: each string literal by itself, so that all else stays as it is, to the byte, also in a damaged file."""

from __future__ import annotations

import json
import re
from typing import Final

from profkit.scrubbing.texts import HIDDEN, Scrubber, kept_variable

__all__ = ["scrub_json"]

_STRING: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)"(\s{0,64}:\s{0,64}(?=["\[]))?', re.DOTALL)
"""A literal, and whether it is the key of a text or a list."""
_LIST: Final = re.compile(rb"\[[^\[\]{}]{0,65536}\]")
_ENVIRONMENT: Final = re.compile(r"[A-Z][A-Z0-9_]{2,63}")
_PRIVATE: Final = frozenset(
    {"user", "username", "user_name", "host", "hostname", "host_name", "cmdline", "command", "command_line", "argv", "cwd", "home", "home_dir"}
)  # fmt: skip
_THREAD: Final = re.compile(
    rb'"thread_name"[^{}]{0,300}"args":\s{0,16}\{\s{0,64}"name":\s{0,16}"((?:[^"\\]|\\.){0,300}+)"'
)
_NEEDED_THREADS: Final = (b"pt_autograd", b"stream ")
"""Threads by whose names an analysis knows what they are."""


def scrub_json(data: bytes, scrub: Scrubber, *, threads: bool = False) -> bytes:
    """JSON text in UTF-8 without what is to be hidden.

    Values of keys that look like variables of the environment, of users, hosts and command lines are hidden whole.

    Args:
        data: The text.
        scrub: What is to be hidden; names of people and machines are learnt first.
        threads: Whether the names of host threads are hidden too.
    """
    literals = list(_STRING.finditer(data))
    _learn(data, literals, scrub)
    parts: list[bytes] = []
    at = 0
    for number, found in enumerate(literals):
        if found.start() < at:  # within a list that was hidden
            continue
        replaced, end = _replaced(data, literals, number, scrub)
        if replaced is not None:
            parts += [data[at : found.start()], replaced]
            at = end
    made = b"".join([*parts, data[at:]])
    return _THREAD.sub(lambda found: _thread(found, scrub), made) if threads else made


def _learn(data: bytes, literals: list[re.Match[bytes]], scrub: Scrubber) -> None:
    scrub.learn(
        _text(found[1])
        for found in literals
        if b"/home" in found[1] or b"Users" in found[1] or b"=" in found[1]
    )
    for number, found in enumerate(literals[:-1]):
        value = literals[number + 1]
        if found[2] and value.start() == found.end() and len(found[1]) < 64:
            scrub.learn_pair(_text(found[1]), _text(value[1]))


def _replaced(
    data: bytes, literals: list[re.Match[bytes]], number: int, scrub: Scrubber
) -> tuple[bytes | None, int]:
    """What stands in place of a literal, None for the same; and where it ends. A private key takes its value along."""
    found = literals[number]
    own = _literal(found[1], scrub(_text(found[1])))
    tail = found[2] or b""
    if tail and _is_private(_text(found[1])):
        if data[found.end() : found.end() + 1] == b"[":
            listed = _LIST.match(data, found.end())
            if listed:
                scrub.removed["command lines"] += 1
                return own + tail + b"[]", listed.end()
        elif number + 1 < len(literals):
            value = literals[number + 1]
            hidden = json.dumps(scrub.hide(_text(value[1]), "private values")).encode()
            return own + tail + hidden + (value[2] or b""), value.end()
    return (None, 0) if own == b'"' + found[1] + b'"' else (own + tail, found.end())


def _is_private(key: str) -> bool:
    if key.lower() in _PRIVATE:
        return True
    return _ENVIRONMENT.fullmatch(key) is not None and not kept_variable(key)


def _text(literal: bytes) -> str:
    try:
        return str(json.loads(b'"' + literal + b'"', strict=False))
    except ValueError:  # a literal that is no valid JSON, as of paths on Windows
        return literal.decode("utf-8", "replace")


def _literal(given: bytes, text: str) -> bytes:
    """A text as a literal; the given one where it is the same."""
    return b'"' + given + b'"' if text == _text(given) else json.dumps(text).encode()


def _thread(found: re.Match[bytes], scrub: Scrubber) -> bytes:
    if any(name in found[1] for name in _NEEDED_THREADS):
        return found[0]
    scrub.removed["thread names"] += 1
    return found[0][: found.start(1) - found.start()] + HIDDEN.encode() + b'"'
