"""What cells of the page are made of: bars of shares, names that may hold anything, columns of milliseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args

from markupsafe import Markup, escape

from profkit.model.names import MemoryCategory
from profkit.rendering.digest import number_of, parts_of, share_text
from profkit.rendering.sentences.labels import BOUNDS, CAUSES, SHARES, share_term
from profkit.units import NS_PER_MS

__all__ = [
    "Segment",
    "bar_text",
    "clip",
    "digits",
    "milliseconds",
    "segments_of",
    "told",
    "tone",
    "visible",
    "with_units",
]

_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_UNIT: Final = re.compile(r"(?<=\d) (?=(?:%|ns|µs|us|ms|s|[KMGT]?i?B)\b|%)")
_OPTION: Final = re.compile(r"(?<![\w-])--[a-z][a-z-]*[a-z]")
_TONES: Final = {*SHARES, *BOUNDS, *CAUSES, *get_args(MemoryCategory), "small_kernels"} - {"unknown"}


@dataclass(frozen=True)
class Segment:
    """A part of a bar whose length is 1000."""

    name: str
    label: str
    meaning: str
    ns: int
    fraction: float
    at: float
    length: float


def segments_of(
    shares: Mapping[Any, int], length: float = 1000, *, largest_first: bool = False
) -> list[Segment]:
    """The shares as a bar of this length: in drawing order, by which bars compare, or the largest first."""
    segments, at = [], 0.0
    parts = parts_of(shares)
    if largest_first:
        parts.sort(key=lambda part: -part[1])
    for name, ns, fraction in parts:
        term = share_term(name)
        segments.append(
            Segment(
                name,
                term.label,
                term.meaning,
                ns,
                fraction,
                round(at * length, 2),
                round(fraction * length, 2),
            )
        )
        at += fraction
    return segments


def bar_text(segments: Sequence[Segment]) -> str:
    """A bar in words, for those who do not see it."""
    return ", ".join(f"{one.label} {share_text(one.fraction)}" for one in segments) or "no shares"


def digits(values: Iterable[float | None]) -> int:
    """The decimals of a column of milliseconds, so that its largest value has three or four figures."""
    largest = max((abs(number_of(value)) for value in values), default=0) / NS_PER_MS
    return 0 if largest >= 10_000 else 1 if largest >= 100 else 2 if largest >= 10 else 3


def milliseconds(ns: float | None, decimals: int = 3) -> str:
    """A cell of a column of milliseconds: figures alone, since the header has the unit."""
    if ns is None:
        return "–"
    text = f"{ns / NS_PER_MS:,.{decimals}f}".replace(",", "\u202f")
    return f"<{10**-decimals:.{decimals}f}" if 0 < ns / NS_PER_MS < 0.5 * 10**-decimals else text


def clip(value: object, length: int = 120) -> str:
    """A text from a file, cut in its middle: its ends tell most."""
    text = "–" if value in (None, "") else visible(str(value))
    return text if len(text) <= length else f"{text[: length * 2 // 3]}…{text[-(length // 3) :]}"


def told(sentence: str, length: int = 600) -> Markup:
    """A sentence whose numbers keep their units, and whose options (``--plain-step``) break over no line."""
    escaped = str(escape(with_units(clip(sentence, length))))
    return Markup("<bdi>{}</bdi>").format(Markup(_OPTION.sub(r"<code>\g<0></code>", escaped)))


def with_units(sentence: str) -> str:
    """A sentence in which no line breaks between a number and its unit."""
    return _UNIT.sub("\u00a0", sentence)


def visible(text: str) -> str:
    """Controls, and marks that turn the reading direction, as their number: they could hide what a name says."""
    return _UNSEEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text.replace("\n", " ").replace("\t", " "))


def tone(name: str | None) -> str:
    """The class that colours a share, bound, cause or use of memory; a name that is not known is grey."""
    return f"tone-{name}" if name in _TONES else "tone-unknown"
