"""What looks like a secret: names that secrets have, and the forms in which services give out keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["SECRET_PAIR", "SECRET_VALUE", "SECRET_WORD", "tokens_in"]

_WORD: Final = r"(?:key|token|secret|passw|passphrase|credential|auth|bearer|cookie|(?<![a-z])(?:pw|pwd|pass|pat|pin)(?![a-z]))"
SECRET_WORD: Final = re.compile(_WORD, re.IGNORECASE)
"""A part of a name, such as that of an option or of an environment variable, that says that its value is secret."""

SECRET_PAIR: Final = re.compile(
    rf"""([\w.-]*{_WORD}[\w.-]*["']?\s*[:=]\s*)([\[{{].*|"[^"]*"|'[^']*'|[^,;}}&]+)""",
    re.IGNORECASE | re.DOTALL,
)
"""A name and its value within a longer text: a dictionary, a header, a query. For texts of people, not for files."""

SECRET_VALUE: Final = re.compile(r"\b(?:hf|sk|pk|ghp|gho|glpat|xox[bpa]|AKIA|AIza|eyJ)[-_A-Za-z0-9]{14,}")
"""What services give out as keys."""

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


def tokens_in(
    data: bytes | bytearray | memoryview, start: int = 0, end: int | None = None
) -> Iterator[bytes]:
    """The texts between two places that look like keys which services gave out, in no order."""
    text = bytes(data)
    for begin, (pattern, strict) in _PATTERNS.items():
        at = text.find(begin)
        for _ in range(_MOST_LOOKED_AT):
            if at < 0:
                break
            found = pattern.match(text, at)
            within = strict and at > 0 and (text[at - 1 : at].isalnum() or text[at - 1] in b"_-")
            if found and not within and _is_drawn(found[0][len(begin) :]):
                yield found[0]
            at = text.find(begin, at + len(begin))


def _is_drawn(rest: bytes) -> bool:
    """Whether the rest of a key has letters and digits, and enough different ones."""
    return (
        len(set(rest)) >= _LEAST_CHARACTERS and any(48 <= each <= 57 for each in rest) and not rest.isdigit()
    )
