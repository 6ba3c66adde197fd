"""Keys that services gave out, found in whole files by how they begin."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["tokens_in"]

_KEYS: Final = {
    b"hf_": (rb"[A-Za-z0-9]{30,128}", False),
    **dict.fromkeys(
        (b"ghp_", b"gho_", b"ghs_", b"ghu_", b"ghr_", b"npm_", b"gsk_"), (rb"[A-Za-z0-9]{36,255}", False)
    ),
    b"github_pat_": (rb"\w{22,255}", False),
    b"glpat-": (rb"[\w-]{20,255}", False),
    **dict.fromkeys(
        (
            b"xoxb-",
            b"xoxp-",
            b"xoxa-",
            b"xoxs-",
            b"xapp-",
            b"pypi-",
            b"nvapi-",
            b"dckr_pat_",
            b"hvs.",
            b"ya29.",
            b"GOCSPX-",
        ),
        (rb"[\w-]{16,255}", True),
    ),
    **dict.fromkeys((b"sk_live_", b"rk_live_", b"r8_"), (rb"[A-Za-z0-9]{24,255}", True)),
    b"dapi": (rb"[0-9a-f]{32}(?![A-Za-z0-9])", True),
    b"SG.": (rb"[\w-]{16,64}\.[\w-]{16,64}", True),
    b"sk-": (rb"[\w-]{20,255}", True),
    **dict.fromkeys((b"AKIA", b"ASIA"), (rb"[A-Z0-9]{16}(?![A-Za-z0-9])", True)),
    b"AIza": (rb"[\w-]{35}", True),
    b"eyJhbGci": (rb"[\w-]{10,2048}\.[\w-]{10,2048}\.[\w-]{10,2048}", True),
}
"""How keys of services begin, what follows, and whether that occurs within words, so that a word must begin there.

In a binary file the byte before a text is its length, which may be a letter.
"""
_PATTERNS: Final = {
    begin: (re.compile(re.escape(begin) + rest), strict) for begin, (rest, strict) in _KEYS.items()
}
_LEAST_CHARACTERS: Final = 9
"""Different ones in a key that was drawn at random; placeholders such as ``hf_xxxxxxxx`` have fewer."""
_MOST_LOOKED_AT: Final = 10_000
"""Places of each beginning: a pattern may look at thousands of bytes from each."""
_LONG: Final = 1 << 16
_PIECE: Final = 1 << 18
"""Bytes from which one look at all pairs costs less than a search for each beginning, and bytes a look, for the cache."""
_HEADS: Final = {
    begin: (int.from_bytes(begin[:4], "little"), (1 << 8 * len(begin[:4])) - 1) for begin in _KEYS
}
"""The first three or four bytes as a number, and the bits of it that count."""
_FIRST_PAIRS: Final = np.isin(np.arange(1 << 16), [head & 0xFFFF for head, _ in _HEADS.values()])


def tokens_in(data: bytes | bytearray | memoryview) -> Iterator[bytes]:
    """The texts that look like keys which services gave out, in no order."""
    text = bytes(data)
    for begin, at in _places_of_long(text) if len(text) >= _LONG else _places(text):
        pattern, strict = _PATTERNS[begin]
        found = pattern.match(text, at)
        within = strict and at > 0 and (text[at - 1 : at].isalnum() or text[at - 1] in b"_-")
        if found and not within and _is_drawn(found[0][len(begin) :]):
            yield found[0]


def _places(text: bytes) -> Iterator[tuple[bytes, int]]:
    """Where each beginning stands, by a search for each."""
    for begin in _KEYS:
        at = text.find(begin)
        for _ in range(_MOST_LOOKED_AT):
            if at < 0:
                break
            yield begin, at
            at = text.find(begin, at + len(begin))


def _places_of_long(text: bytes) -> Iterator[tuple[bytes, int]]:
    """The same where the first bytes of a beginning stand, by one look at every pair of bytes for all of them."""
    found = [_candidates(text, at) for start in range(0, len(text), _PIECE) for at in (start, start + 1)]
    places, heads = (np.concatenate(parts) for parts in zip(*found, strict=True))
    for begin, (head, mask) in _HEADS.items():
        for at in places[heads & mask == head][:_MOST_LOOKED_AT].tolist():
            yield begin, at


def _candidates(text: bytes, start: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
    """Every second place of a piece whose two bytes begin a key, and the four bytes there as a number."""
    count = min(_PIECE // 2 + 1, (len(text) - start) // 2)
    pairs = np.frombuffer(text, "<u2", max(count, 0), min(start, len(text)))
    at = np.flatnonzero(_FIRST_PAIRS.take(pairs[:-1]))
    return 2 * at + start, pairs[at] | pairs[at + 1].astype(np.uint32) << 16


def _is_drawn(rest: bytes) -> bool:
    """Whether the rest of a key has letters and digits, and enough different ones."""
    return (
        len(set(rest)) >= _LEAST_CHARACTERS and any(48 <= each <= 57 for each in rest) and not rest.isdigit()
    )
