"""What can be saved of a piece of events that does not parse: event by event."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from profkit.readers.kineto.repair import escape_bare_quotes, repair

__all__ = ["Patience", "Rescued", "rescue"]

_NEXT_EVENT = re.compile(r'\}\s*,\s*(\{)\s*"\w')
_SPACE_OR_COMMA = re.compile(r"[\s,]*")


def _refuse(constant: str) -> Any:
    raise ValueError(constant)  # NaN and the like are Python's JSON, and nobody else's


_scanner = json.JSONDecoder(parse_constant=_refuse)


@dataclass
class Patience:
    """How often a file may cost much, so that one that is all damage takes seconds and not hours."""

    readings_on: int = 100
    """Readings on from an event that does not end where the next seems to start."""
    mendings: int = 2000
    """Events that were to be mended, and could not."""


@dataclass
class Rescued:
    """The whole events of a piece, as text, and what became of the rest."""

    events: list[str] = field(default_factory=list)
    repairs: Counter[str] = field(default_factory=Counter)
    unreadable: int = 0
    ignored: int = 0
    """Bytes at the end of the file that are no whole event."""
    tail: bytes | None = None
    """What follows the end of the list; None when the piece does not reach it."""

    @property
    def damage(self) -> int:
        """0 when nothing was lost."""
        return self.unreadable + self.ignored


def rescue(text: str, patience: Patience, *, last: bool) -> Rescued:
    """Save the events of ``text``, which starts with an event; ``last`` says that the file ends with it."""
    saved, position = Rescued(), 0
    while True:
        position = _SPACE_OR_COMMA.match(text, position).end()  # type: ignore[union-attr]  # matches always
        if position >= len(text):
            return saved
        if text[position] == "]":
            saved.tail = text[position + 1 :].encode()
            return saved
        following = _NEXT_EVENT.search(text, position)
        event = text[position : following.start() + 1] if following else text[position:]
        length = _scanned(event)
        if not length and following and patience.readings_on:
            patience.readings_on -= 1
            length = _scanned(text[position:])
        if length:
            saved.events.append(text[position : position + length])
            position += length
            continue
        mended, found = _mended(event) if patience.mendings else (event, Counter())
        length = _scanned(mended)
        if length:
            saved.events.append(mended[:length])
            saved.repairs += found
        elif last and not following:
            saved.ignored = len(event.encode())
            return saved
        else:
            saved.unreadable += 1
            patience.mendings = max(0, patience.mendings - 1)
            length = len(mended)
        if following:
            position += len(event)
        else:
            text, position = mended, length


def _mended(event: str) -> tuple[str, Counter[str]]:
    """An event with its damage mended, alone, so that a quote too many spoils no other."""
    for candidate, quotes in ((event, 0), (escape_bare_quotes(event), 1)):
        text, found = repair(candidate.encode())
        mended = text.decode()
        if _scanned(mended):
            return mended, found + Counter({"bare-quotes": quotes})
    return event, Counter()


def _scanned(text: str) -> int:
    """How many characters of ``text`` are one whole value; 0 when it does not start with one."""
    try:
        return int(_scanner.raw_decode(text)[1])
    except (ValueError, RecursionError):
        return 0
