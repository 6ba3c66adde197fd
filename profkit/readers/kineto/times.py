"""Microseconds as JSON writes them to whole nanoseconds, exactly."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

import msgspec
import numpy as np
from numpy.typing import NDArray

from profkit.readers.kineto.text import EXACT_US, Scalar
from profkit.units import NS_PER_US, ns_from_us

__all__ = ["IMPLAUSIBLE", "MISSING", "nanoseconds"]

MISSING = int(np.iinfo(np.int64).min)
"""No time, or no number."""
IMPLAUSIBLE = MISSING + 1
"""A time that 64 bits of nanoseconds cannot hold, or that is no finite number."""

_LIMIT_US = 9_000_000_000_000_000
_PLAIN = re.compile(r"(-?)(\d{1,16})(?:\.(\d{1,3}))?")


def nanoseconds(values: Sequence[Scalar]) -> NDArray[np.int64]:
    """Times in microseconds (numbers, texts, raw JSON) as whole nanoseconds, `MISSING` or `IMPLAUSIBLE`.

    A float below 2**43 is nearest to only one number of three decimals, so that its fraction, cut off exactly
    and then rounded, is what was written. Larger ones must come as text.
    """
    kinds = set(map(type, values))
    try:
        if kinds == {int}:
            whole = np.array(values, np.int64)
            fits = (whole >= -_LIMIT_US) & (whole <= _LIMIT_US)
            return np.where(fits, np.where(fits, whole, 0) * NS_PER_US, IMPLAUSIBLE)
        if kinds <= {int, float}:
            numbers = np.array(values, np.float64)
            if np.all(np.abs(numbers) < EXACT_US):
                floors = np.floor(numbers)
                fractions = np.rint((numbers - floors) * NS_PER_US)
                return floors.astype(np.int64) * NS_PER_US + fractions.astype(np.int64)
    except OverflowError:  # an integer that no column holds
        pass
    return np.fromiter((_one(value) for value in values), np.int64, len(values))


def _one(value: Scalar) -> int:
    if isinstance(value, msgspec.Raw):
        text = bytes(value).decode("utf-8", "replace").strip('" \t\r\n')
    else:
        if isinstance(value, int):
            return value * NS_PER_US if abs(value) <= _LIMIT_US else IMPLAUSIBLE
        text = "" if value is None else str(value).strip()
    if match := _PLAIN.fullmatch(text):
        sign, whole, fraction = match[1], int(match[2]), match[3] or ""
        ns = whole * NS_PER_US + int(fraction.ljust(3, "0"))
        return IMPLAUSIBLE if whole > _LIMIT_US else -ns if sign else ns
    try:
        number = Decimal(text)
    except InvalidOperation:
        return MISSING
    if number.is_nan():
        return MISSING
    return ns_from_us(text) if -_LIMIT_US <= number <= _LIMIT_US else IMPLAUSIBLE
