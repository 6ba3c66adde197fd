"""Numbers to text and back: the only place that converts or prints ns, bytes and FLOP."""

from __future__ import annotations

import re

from profkit.errors import ProfkitError

__all__ = [
    "bytes_text",
    "count_text",
    "duration_text",
    "noun_text",
    "ns_from_us",
    "parse_bytes",
    "parse_duration_ns",
    "percent_text",
    "rate_text",
]

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
NS_PER_S = 1_000_000_000

_DURATION_UNITS_NS = {
    "ns": 1,
    "us": NS_PER_US,
    "µs": NS_PER_US,
    "ms": NS_PER_MS,
    "s": NS_PER_S,
    "m": 60 * NS_PER_S,
}
_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*(ns|us|µs|ms|s|m)\s*", re.ASCII)

_SIZE_UNITS = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
    "TI": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+)\s*([KMGT]?I?)B\s*", re.ASCII | re.IGNORECASE)

_ROUNDED_UP = 0.5e-3
"""Of a unit: what lacks less rounds to 1000 of the smaller one, so it is told in the larger."""


def duration_text(ns: float | None) -> str:
    """A time for people: ``1.23 ms``, ``850 ns``; ``–`` when unknown."""
    if ns is None:
        return "–"
    for unit, size in (("s", NS_PER_S), ("ms", NS_PER_MS), ("µs", NS_PER_US)):
        if abs(ns) >= (1 - _ROUNDED_UP) * size:
            return f"{_three_digits(ns / size)} {unit}"
    return f"{ns:.0f} ns"


def bytes_text(size: float | None) -> str:
    """A size for people in binary units: ``1.50 GiB``; ``–`` when unknown."""
    if size is None:
        return "–"
    value = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 - 1000 * _ROUNDED_UP:
            return f"{value:.0f} B" if unit == "B" else f"{_three_digits(value)} {unit}"
        value /= 1024
    return f"{_three_digits(value)} TiB"


def rate_text(per_second: float | None, unit: str) -> str:
    """A rate for people in decimal units: ``989 TFLOP/s`` for ``rate_text(989e12, "FLOP/s")``."""
    if per_second is None:
        return "–"
    value = float(per_second)
    if not value:
        return f"0 {unit}"
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 * (1 - _ROUNDED_UP):
            return f"{_three_digits(value)} {prefix}{unit}"
        value /= 1000
    return f"{_three_digits(value)} P{unit}"


def percent_text(share: float | None) -> str:
    """A share of one as per cent: ``43 %``, ``0.4 %``; ``–`` when unknown."""
    if share is None:
        return "–"
    percent = share * 100
    return f"{percent:.1f} %" if abs(percent) < 9.95 and percent else f"{percent:.0f} %"


def count_text(count: int | None) -> str:
    """A count for people, with thin groups of three: ``1 234``; ``–`` when unknown."""
    return "–" if count is None else f"{count:,}".replace(",", "\u202f")


def noun_text(count: int, noun: str, plural: str | None = None) -> str:
    """A count with its noun, which is in the plural unless it is one: ``1 step``, ``3 launches``, ``2 copies``."""
    if count == 1:
        return f"1 {noun}"
    return f"{count_text(count)} {plural or _plural(noun)}"


def _plural(noun: str) -> str:
    if noun.endswith(("s", "x", "ch", "sh")):
        return f"{noun}es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return f"{noun[:-1]}ies"
    return f"{noun}s"


def ns_from_us(text: str) -> int:
    """Microseconds as a decimal text to whole nanoseconds, exactly: ``"12.345"`` -> 12345."""
    from decimal import Decimal

    return round(Decimal(text) * NS_PER_US)


def parse_duration_ns(text: object) -> int:
    """A duration as people write it (``38.3ms``, ``2 s``) to nanoseconds.

    Raises:
        ProfkitError: The text is not a number followed by ns, us, ms, s or m (minutes), or it does not fit into 64 bits.
    """
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    duration_ns = float(match[1]) * _DURATION_UNITS_NS[match[2]] if match else 0.0
    if not match or duration_ns >= 2**63:
        raise ProfkitError(f"{text!r} is not a duration. Write a number with its unit: 38.3ms")
    return round(duration_ns)


def parse_bytes(text: object) -> int:
    """A size as people write it (``24GB``, ``80 GiB``) in bytes.

    Raises:
        ProfkitError: The text is not a number followed by B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, or it is too large.
    """
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    unit = _SIZE_UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) * unit >= 2**63:
        raise ProfkitError(f"{text!r} is not a size. Write a number with its unit: 24GB or 24GiB")
    return round(float(match[1]) * unit)


def _three_digits(value: float) -> str:
    """Three significant digits, without an exponent."""
    size = abs(value)
    return f"{value:.0f}" if size >= 99.95 else f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"
