"""JSON: each string literal by itself, so that all else stays as it is, to the byte, also in a damaged file."""

from __future__ import annotations

import json
import re
from typing import Final

from profkit.scrubbing.texts import HIDDEN, Scrubber, is_option_of_secret, is_private_name

__all__ = ["scrub_json"]

_STRING: Final = re.compile(rb'"((?:[^"\\]|\\.)*+)"(\s{0,64}:\s{0,64}(?=["\[]))?', re.DOTALL)
"""A literal, and whether it is the key of a text or a list."""
_NEXT: Final = re.compile(rb'\s{0,64},\s{0,64}(?:"value"\s{0,64}:\s{0,64})?(?=")')
"""What is between a name and its value in a list, or in an object that has both."""
_LIST: Final = re.compile(rb"\[[^\[\]{}]{0,65536}\]")
_THREAD: Final = re.compile(
    rb'"thread_name"[^{}]{0,300}"args":\s{0,16}\{\s{0,64}"name":\s{0,16}"((?:[^"\\]|\\.){0,300}+)"'
)
_BEGINS: Final = tuple(bytes([each]) for each in b"-ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_TELLING: Final = (b"/home", b"Users", b"=", b".pt.trace.json", b"--user", b"name:", b'":', b"':")
"""What a text has that may name a person or a machine."""
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
    distinct = {found[1] for found in literals}
    scrub.learn(_text(each) for each in distinct if any(sign in each for sign in _TELLING))
    scrub.learn([scrub.name])
    for number, found in enumerate(literals[:-1]):
        value = literals[number + 1] if _is_key_of(found, literals[number + 1]) else None
        if value is None and _first_of_pair(found):
            value = _second_of_pair(data, literals, number)
        if value is not None and len(found[1]) < 64:
            scrub.learn_pair(_text(found[1]).lstrip("-"), _text(value[1]))


def _is_key_of(found: re.Match[bytes], value: re.Match[bytes]) -> bool:
    return bool(found[2]) and value.start() == found.end()


def _first_of_pair(found: re.Match[bytes]) -> bool:
    """Whether a literal, no key itself, is a name whose value follows as the next literal of the list or object."""
    return not found[2] and found[1][:1] in _BEGINS and is_option_of_secret(_text(found[1]))


def _second_of_pair(data: bytes, literals: list[re.Match[bytes]], number: int) -> re.Match[bytes] | None:
    between = _NEXT.match(data, literals[number].end())
    if between is None:
        return None
    return next((each for each in literals[number + 1 : number + 3] if each.start() == between.end()), None)


def _replaced(
    data: bytes, literals: list[re.Match[bytes]], number: int, scrub: Scrubber
) -> tuple[bytes | None, int]:
    """What stands in place of a literal, None for the same; and where it ends. A private name takes its value along."""
    found = literals[number]
    own = _literal(found[1], scrub(_text(found[1]))) + (found[2] or b"")
    value = None
    if found[2] and is_private_name(_text(found[1])):
        listed = _LIST.match(data, found.end())
        if listed:
            scrub.removed["command lines"] += 1
            return own + b"[]", listed.end()
        value = literals[number + 1] if number + 1 < len(literals) else None
    elif _first_of_pair(found):
        value = _second_of_pair(data, literals, number)
    if value is not None:
        hidden = json.dumps(scrub.hide(_text(value[1]), "private values")).encode()
        return own + data[found.end() : value.start()] + hidden + (value[2] or b""), value.end()
    return (None, 0) if own == found[0] else (own, found.end())


def _text(literal: bytes) -> str:
    if b"\\" not in literal:
        return literal.decode("utf-8", "replace")
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
