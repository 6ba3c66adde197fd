"""What every row and section of a report is: a frozen struct whose types carry the units."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

__all__ = ["Bytes", "Count", "Instant", "Interval", "Ns", "Ratio", "Row", "replace"]

Ns: TypeAlias = Annotated[int, Meta(ge=0)]
"""A length of time in nanoseconds."""

Instant: TypeAlias = int
"""A time in nanoseconds from the report's origin, the earliest event of its files."""

Bytes: TypeAlias = Annotated[int, Meta(ge=0)]
"""A size in bytes."""

Count: TypeAlias = Annotated[int, Meta(ge=0)]
"""A number of things."""

Ratio: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
"""A part of a whole, 0 to 1."""


class Row(msgspec.Struct, frozen=True):
    """A row or a section of a report. Unknown is None; `replace` makes a changed copy."""


class Interval(Row, frozen=True, kw_only=True):
    """An estimate with its bounds, in the unit that the field's name says."""

    low: int | float
    """The least that is to be expected."""
    likely: int | float
    """The best single guess."""
    high: int | float
    """The most that is to be expected."""
