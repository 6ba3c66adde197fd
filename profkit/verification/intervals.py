"""Sets of nanoseconds as sorted lists of (start, end), end exclusive; each function is a loop."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

__all__ = ["Piece", "common", "length", "near", "united", "within", "without"]

Piece = tuple[int, int]


def united(pieces: list[Piece]) -> list[Piece]:
    """The nanoseconds that any piece covers."""
    result: list[Piece] = []
    for start, end in sorted(pieces):
        if start == end:
            continue
        if result and start <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], end))
        else:
            result.append((start, end))
    return result


def without(pieces: list[Piece], others: list[Piece]) -> list[Piece]:
    """The nanoseconds of pieces that none of the others covers."""
    result = []
    others = united(others)
    first = 0
    for start, end in united(pieces):
        while first < len(others) and others[first][1] <= start:
            first += 1
        at = first
        while at < len(others) and others[at][0] < end:
            if others[at][0] > start:
                result.append((start, others[at][0]))
            start = max(start, others[at][1])
            at += 1
        if start < end:
            result.append((start, end))
    return result


def within(pieces: list[Piece], start: int, end: int) -> list[Piece]:
    """The nanoseconds of pieces from start to end."""
    return [(max(a, start), min(b, end)) for a, b in united(pieces) if max(a, start) < min(b, end)]


def common(pieces: list[Piece], others: list[Piece]) -> list[Piece]:
    """The nanoseconds that are in both."""
    return without(pieces, without(pieces, others))


def near(pieces: list[Piece], start: int, end: int) -> list[Piece]:
    """Those of some united pieces that touch a stretch: a short list to go on with."""
    first = bisect_right(pieces, start, key=lambda piece: piece[1])
    return pieces[first : bisect_left(pieces, end, key=lambda piece: piece[0])]


def length(pieces: list[Piece]) -> int:
    """How many nanoseconds the pieces cover together."""
    return sum(end - start for start, end in united(pieces))
