"""Tables that add up: rows about the same thing become one row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any, Generic, TypeVar

from profkit.model.rows import Row, replace

__all__ = ["Summed", "added"]

R = TypeVar("R", bound=Row)


def added(*parts: Any) -> Any:
    """The sum of numbers, tuples, maps of these, or rows of these.

    What is unknown in one is unknown in the sum; a key that only one map has keeps its value.
    """
    return reduce(_sum_of_two, parts)


def _sum_of_two(one: Any, other: Any) -> Any:
    if one is None or other is None:
        return None
    if isinstance(one, Row):
        names = one.__struct_fields__
        return replace(one, **{name: added(getattr(one, name), getattr(other, name)) for name in names})
    if isinstance(one, Mapping):
        return {**one, **{k: added(one[k], v) if k in one else v for k, v in other.items()}}
    return one + other


@dataclass(frozen=True)
class Summed(Generic[R]):
    """What makes rows of a table the same, and which of their fields are then added."""

    key: tuple[str, ...]
    adds: tuple[str, ...]

    def rows(self, rows: Iterable[R]) -> list[R]:
        """One row for each key, in the order in which keys first appear; other fields are those of its first row."""
        found: dict[tuple[Any, ...], R] = {}
        for row in rows:
            key = tuple(getattr(row, name) for name in self.key)
            known = found.get(key)
            found[key] = row if known is None else self._sum(known, row)
        return list(found.values())

    def _sum(self, one: R, other: R) -> R:
        return replace(one, **{name: added(getattr(one, name), getattr(other, name)) for name in self.adds})
