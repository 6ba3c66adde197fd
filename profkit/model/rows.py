"""What every row and section of a report is: a frozen struct whose types carry the units."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, KeysView, Mapping
from typing import Annotated, Any, TypeAlias

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

    # TRANSITIONAL: everything below goes once no consumer says row["name"], row.get("name") or {**row}.

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_encode_fields__:
            raise KeyError(name)
        return getattr(self, self.__struct_fields__[self.__struct_encode_fields__.index(name)])

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field by its name in JSON, or ``default`` where there is no such field."""
        return self._as_mapping().get(name, default)

    def __contains__(self, name: object) -> bool:
        return name in self.__struct_encode_fields__

    def __iter__(self) -> Iterator[str]:
        return iter(self.__struct_encode_fields__)

    def __len__(self) -> int:
        return len(self.__struct_encode_fields__)

    def keys(self) -> KeysView[str]:
        """The names of the fields in JSON."""
        return self._as_mapping().keys()

    def items(self) -> ItemsView[str, Any]:
        """The fields by their names in JSON."""
        return self._as_mapping().items()

    def __or__(self, other: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._as_mapping(), **other}

    def _as_mapping(self) -> dict[str, Any]:
        return {name: self[name] for name in self}


Mapping.register(Row)  # TRANSITIONAL too: pandas and the renderers ask for a Mapping


class Interval(Row, frozen=True, kw_only=True):
    """An estimate with its bounds, in the unit that the field's name says."""

    low: float
    """The least that is to be expected."""
    likely: float
    """The best single guess."""
    high: float
    """The most that is to be expected."""
