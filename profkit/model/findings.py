"""What a recording is found to lack or to show: a code with its numbers; `profkit.rendering` has the sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TypeAlias

import msgspec

from profkit.model.rows import Count, Row

__all__ = ["Fact", "Finding", "Param", "Severity"]

Param: TypeAlias = str | int | float | bool | Sequence[str | int] | None
"""A number or a name inside a sentence."""


class Severity(StrEnum):
    """How much a finding matters, in this order."""

    INFO = "info"
    WARNING = "warning"
    """A number of the report is incomplete because of it."""
    ERROR = "error"
    """The verdict cannot be trusted because of it."""

    @property
    def rank(self) -> int:
        """0 for what matters least."""
        return list(Severity).index(self)

    # Texts compare by their letters, and "error" comes before "info".
    def __lt__(self, other: str, /) -> bool:
        return self.rank < Severity(other).rank

    def __le__(self, other: str, /) -> bool:
        return self.rank <= Severity(other).rank

    def __gt__(self, other: str, /) -> bool:
        return self.rank > Severity(other).rank

    def __ge__(self, other: str, /) -> bool:
        return self.rank >= Severity(other).rank


class Fact(Row, frozen=True):
    """Something that the report says in words: which sentence, and what stands in it."""

    code: str
    """A stable name in kebab case; `profkit.rendering` has one sentence for each."""
    params: Mapping[str, Param] = msgspec.field(default_factory=dict)
    """The values in the sentence, by name; names carry their unit (``gap_ns``)."""


class Finding(Row, frozen=True):
    """Something about a file that a person should know."""

    code: str
    """A stable name in kebab case, e.g. ``truncated``, ``graphs-opaque``, ``schema-newer``."""
    severity: Severity
    """``info``, ``warning`` or ``error``."""
    count: Count = 1
    """How many events, files or ranks it is about."""
    params: Mapping[str, Param] = msgspec.field(default_factory=dict)
    """The values in its sentence, by name; names carry their unit (``gap_ns``)."""
